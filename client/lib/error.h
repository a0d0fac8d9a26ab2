/* The calling thread's last error. */
#pragma once

#include "client/tensord.h"
#include "proto/ops/status.h"
#include "proto/wire/tensord.pb-c.h"

/* All set the thread's last error and return its code, so that a check is one line. */
int error_set(enum status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int error_store(const td_error *error);
/* The same with more words, malloc'ed, which it takes over; may be NULL. */
int error_store_details(const td_error *error, char *details);
/* `operation` and `label` may be NULL; where an operation is named the message begins with it. */
int error_fault(const struct fault *fault, const char *operation, const char *label);

/* Notes that the last error made a call return NULL for a tensor: a later call with that NULL keeps this error. Returns
 * NULL. */
void *error_null(void);
/* The code of the last error, where it has made a tensor NULL; else 0: a NULL is the program's own mistake. */
int error_of_null(void);

/* A td_error of the pieces, without storing it. */
void error_compose(td_error *error, int code, const char *message, const char *operation, const char *label,
                   uint64_t sequence);
void error_from_wire(td_error *error, const Tensord__Error *wire);
