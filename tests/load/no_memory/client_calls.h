/* A job that makes every call that the library has. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

struct client_callbacks {
    atomic_int expected, called;
    float fetched[32]; /* outlives the connection: a fetch may still be on its way when a later call is refused */
};

/* TD_OK, or the code of the first call that failed. Ends the process where a call does what it must not. `values` are
 * `n` floats, more than a chunk. */
int client_calls(const char *url, float *values, size_t n, struct client_callbacks *callbacks);
