/* The limits of sessions and principals: one struct, and one table of its keys. The configuration (for everybody), a
 * principal's own settings, --help and the status all use the table. A principal's limits hold for the sum of its
 * sessions. Plain functions, any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/ops/status.h"

/* The value "quarter" of principal-sessions and principal-connections: a quarter of all places; for an admin any
 * number. */
#define LIMITS_QUARTER UINT64_MAX

/* Bytes, counts and milliseconds. Where the table allows 0, it means that there is no such limit. */
struct limits {
    /* of a session */
    uint64_t session_bytes;      /* live bytes on the device */
    uint64_t session_host_bytes; /* host memory that is used for its messages */
    uint64_t session_tensors;    /* live */
    uint64_t session_streams;    /* open */
    uint64_t session_operations; /* operations in flight: past it the worker stops reading the socket */
    uint64_t session_out_bytes;  /* bytes of replies in flight: past it the worker stops reading the socket */
    /* of a principal on one device */
    uint64_t principal_bytes;
    uint64_t principal_host_bytes;
    uint64_t principal_operations;
    uint64_t principal_staging; /* staging memory, not counting the first piece of each transfer */
    uint64_t principal_rate;    /* bytes a second, in and out together: past it sockets wait; nothing is dropped */
    uint64_t weight;            /* weight of its share of the device's time */
    uint64_t named_bytes;       /* bytes of its named tensors, which count in principal_bytes, too */
    uint64_t named_tensors;     /* number of its named tensors */
    /* of a principal on all devices */
    uint64_t principal_sessions;
    uint64_t principal_connections;
    /* of time */
    uint64_t idle_timeout;   /* a session that was not used for so long is closed */
    uint64_t operation_time; /* an operation that is computed for longer is stopped */
    uint64_t session_lease;  /* a session that has lost its connection is closed after this */
};

enum {
    LIMITS_KEYS = 19,
    LIMITS_NAMED_TENSORS_MAX = 16384, /* the largest named_tensors: a file of names has room for so many */
};

/* Sets every limit to its default. */
void limits_init(struct limits *limits);
/* Sets each limit that is 0, although the table does not allow that, to its default: for a struct that was filled by
 * hand. */
void limits_fill(struct limits *limits);
/* Whether `key` is in the table. */
bool limits_has(const char *key);
/* The row of a key that is in the table. */
unsigned limits_number(const char *key);
/* Sets one limit from text. STATUS_INVALID_ARGUMENT: the fault names an unknown key, or a wrong value and what would be
 * right; nothing is changed. */
int limits_set(struct limits *limits, const char *key, const char *value, struct fault *fault);
/* The same for a principal's own limits: `own` has a bit for each row that is set. Setting one twice is an
 * error. */
int limits_set_own(struct limits *limits, uint32_t *own, const char *key, const char *value, struct fault *fault);
/* The number that a limit of places means (LIMITS_QUARTER: a quarter of `places`); 0: any number. */
uint64_t limits_of_places(uint64_t limit, uint64_t places);
/* Copies the limits that `own` names from `over` to `limits`. */
void limits_overlay(struct limits *limits, const struct limits *over, uint32_t own);
/* Reads a row of the table: its key, its value and the value's unit ("bytes", "", "ms" or "bytes/s"). False: there is
 * no such row. */
bool limits_row(const struct limits *limits, unsigned row, const char **key, uint64_t *value, const char **unit);
/* Prints a line for each key. */
void limits_print_help(FILE *out);
