/* Cleanup that runs whichever way a function returns:
 *
 *     CLEANUP(free) char *text = malloc(bytes);
 *     …
 *     *result = TAKE(text);
 *     return STATUS_OK;
 *
 * The variable is initialised where it is declared, before any return. The variable that was declared last is cleaned up first. For
 * another type write a line CLEANUP_OF beside the code that uses it. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(function) __attribute__((cleanup(cleanup_##function)))

/* For a pointer; the function is not called for NULL. */
#define CLEANUP_OF(type, function)                                                                                     \
    static inline void cleanup_##function(type **pointer) {                                                            \
        if (*pointer)                                                                                                  \
            function(*pointer);                                                                                        \
    }

/* For an object; it must be valid to finish the object in the state in which it was initialised. */
#define CLEANUP_FINISH(type, function)                                                                                 \
    static inline void cleanup_##function(type *object) {                                                              \
        function(object);                                                                                              \
    }

/* The pointer's value; the variable becomes NULL, so nothing is cleaned up. */
#define TAKE(pointer)                                                                                                  \
    ({                                                                                                                 \
        __typeof__(pointer) taken_ = (pointer);                                                                        \
        (pointer) = NULL;                                                                                              \
        taken_;                                                                                                        \
    })

CLEANUP_OF(FILE, fclose)

static inline void cleanup_free(void *pointer) {
    free(*(void **)pointer);
}

/* A descriptor; -1: none. */
static inline void cleanup_close(const int *fd) {
    if (*fd >= 0)
        close(*fd);
}
