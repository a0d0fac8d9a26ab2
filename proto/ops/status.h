/* Status codes and the fault that carries one.
 *
 * There is one numbering, from the kernel that fails to the `int` that the client's call returns: the public header's TD_E_*
 * constants have these values (client/lib/error.c asserts it), and so has the `code` field on the wire. */
#pragma once

#include <stdarg.h>
#include <stdint.h>

/* X(NAME, value, text): a new code is one row here and one constant in client/tensord.h. Values never change. */
#define STATUS_TABLE(X)                                                                                                \
    X(OK, 0, "success")                                                                                                \
    X(INVALID_ARGUMENT, 1, "invalid argument")                                                                         \
    X(SHAPE, 2, "shapes do not fit")                                                                                   \
    X(DTYPE, 3, "dtype not accepted here")                                                                             \
    X(UNKNOWN_ID, 4, "no tensor has this id")                                                                          \
    X(DUPLICATE_ID, 5, "this id was used before")                                                                      \
    X(DEVICE_MISMATCH, 6, "tensors are on different devices")                                                          \
    X(OUT_OF_MEMORY, 7, "out of device memory")                                                                        \
    X(LIMIT, 8, "a limit was reached")                                                                                 \
    X(OUT_OF_RANGE, 9, "index out of range")                                                                           \
    X(UNSUPPORTED, 10, "not supported by this device")                                                                 \
    X(DEVICE_LOST, 11, "the device was lost")                                                                          \
    X(NO_DEVICE, 12, "no such device")                                                                                 \
    X(PROTOCOL, 13, "protocol violation")                                                                              \
    X(VERSION, 14, "no protocol version in common")                                                                    \
    X(AGAIN, 15, "the send queue is full, try again")                                                                  \
    X(TIMED_OUT, 16, "timed out")                                                                                      \
    X(CONNECTION, 17, "cannot reach the daemon")                                                                       \
    X(NO_HOST_MEMORY, 18, "out of host memory")                                                                        \
    X(CANCELLED, 19, "cancelled")                                                                                      \
    X(DRAINING, 20, "the daemon is shutting down")                                                                     \
    X(INTERNAL, 21, "internal error")                                                                                  \
    X(DENIED, 22, "not permitted")                                                                                     \
    X(SINGULAR, 23, "a matrix is singular")

enum status {
#define X(name, value, text) STATUS_##name = (value),
    STATUS_TABLE(X)
#undef X
        STATUS_COUNT
};

/* A failure with its message. `message` is for people: it names the values that did not fit. */
struct fault {
    enum status code;
    char message[256];
};

/* The general text of a code; never NULL, even if no code has this number. */
const char *status_text(int code);
/* The constant's name without prefix, "OUT_OF_MEMORY"; never NULL. */
const char *status_name(int code);

/* Fills `fault` (may be NULL) and returns `code`, so that a check is one line: `return fault_set(fault, …)`. A message may
 * contain names that others have chosen, and terminals and logs show it: so it is escaped here (utf8_clean()). */
int fault_set(struct fault *fault, enum status code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int fault_set_list(struct fault *fault, enum status code, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* Bytes for people, in messages: "512 B", "1.42 GiB". */
enum { BYTES_TEXT_MAX = 16 };

/* Three digits, rounded; returns `out`. */
char *bytes_text(char out[BYTES_TEXT_MAX], uint64_t bytes);
