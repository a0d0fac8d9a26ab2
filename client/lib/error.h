/* The calling thread's last error. */
#pragma once

#include <stdbool.h>

#include "client/tensord.h"
#include "proto/ops/status.h"
#include "proto/wire/tensord.pb-c.h"

/* These functions set the thread's last error and return its code, so that a check is one line. */
int error_set(enum status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int error_store(const td_error *error);
/* The same with `details`, which are malloc'ed and are taken over; NULL: none. */
int error_store_details(const td_error *error, char *details);
/* `operation` and `label` may be NULL; if there is an operation, the message begins with it. */
int error_fault(const struct fault *fault, const char *operation, const char *label);
/* Puts words before the message of the last error, in the place of the operation's name if it begins with that. */
int error_about(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Notes that a call returns NULL for a tensor because of the last error: a later call with that NULL keeps this error.
 * Returns NULL. */
void *error_null(void);
/* The code of the last error if that error has made a tensor NULL; else 0: then a NULL is the program's own mistake. */
int error_of_null(void);

/* The thread's last error as it was before a call that can succeed though parts of it fail. */
struct error_kept {
    td_error error;
    char *details; /* NULL: there are none, or no memory */
    bool made_null;
};
void error_keep(struct error_kept *kept);
/* Ends a call with its code, which it returns: after a success the error is again what it was. */
int error_kept_end(struct error_kept *kept, int code);

/* Makes a td_error of its parts, without storing it. */
void error_compose(td_error *error, int code, const char *message, const char *operation, const char *label,
                   uint64_t sequence);
void error_from_wire(td_error *error, const Tensord__Error *wire);
