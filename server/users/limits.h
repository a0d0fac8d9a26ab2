/* What a session and a principal may take: one struct, and one table of its keys, which serves the configuration (for
 * everybody), a principal's own settings, --help and status alike. A principal is whoever a connection belongs to; its
 * limits hold for all of its sessions together, whatever their number. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/ops/status.h"

/* Of principal-sessions and principal-connections: a quarter of the places that there are, and for admins any number. */
#define LIMITS_QUARTER UINT64_MAX

/* Bytes, counts and milliseconds. 0 is "no limit of its own" wherever the table allows it. */
struct limits {
    /* of a session */
    uint64_t session_bytes;      /* live, on the device */
    uint64_t session_host_bytes; /* of the host's memory, that its messages make grow */
    uint64_t session_tensors;    /* live */
    uint64_t session_streams;    /* open */
    uint64_t session_operations; /* in flight: past it the worker stops reading that socket */
    uint64_t session_out_bytes;  /* of replies in flight: past it too */
    /* of a principal on one device */
    uint64_t principal_bytes;
    uint64_t principal_host_bytes;
    uint64_t principal_operations;
    uint64_t principal_staging; /* host memory on its way, but for the first piece of each transfer */
    uint64_t principal_rate;    /* bytes a second, in and out together: past it sockets wait, and nothing is dropped */
    uint64_t weight;            /* of its share of the device's time */
    uint64_t named_bytes;       /* of its named tensors, which are among principal_bytes, too */
    uint64_t named_tensors;
    /* of a principal on all devices */
    uint64_t principal_sessions;
    uint64_t principal_connections;
    /* of time */
    uint64_t idle_timeout;   /* after it a session that nobody uses is closed */
    uint64_t operation_time; /* after it an operation that is still being computed is ended */
    uint64_t session_lease;  /* after it a session that has lost its connection is closed */
};

enum {
    LIMITS_KEYS = 19,
    LIMITS_NAMED_TENSORS_MAX = 16384, /* the largest named_tensors: a file of names has room for so many */
};

/* Every limit at its default. */
void limits_init(struct limits *limits);
/* What is 0 and may not be gets its default: for a struct that somebody has filled by hand. */
void limits_fill(struct limits *limits);
/* Whether this is one of the keys. */
bool limits_has(const char *key);
/* Its row; it is one of the keys. */
unsigned limits_number(const char *key);
/* STATUS_INVALID_ARGUMENT names the value and what would be right, or the unknown key; then nothing is changed. */
int limits_set(struct limits *limits, const char *key, const char *value, struct fault *fault);
/* The same for one of a few that somebody sets for himself; `own` has a bit for each of them. Twice is an error. */
int limits_set_own(struct limits *limits, uint32_t *own, const char *key, const char *value, struct fault *fault);
/* How many of these places may be taken; 0: any number. */
uint64_t limits_of_places(uint64_t limit, uint64_t places);
/* Takes those over. */
void limits_overlay(struct limits *limits, const struct limits *over, uint32_t own);
/* The table's rows, in its order: the key, and its value in the key's unit; `unit` is "bytes", "", "ms" or "bytes/s".
 * False past the last. */
bool limits_row(const struct limits *limits, unsigned row, const char **key, uint64_t *value, const char **unit);
/* A line for each key. */
void limits_print_help(FILE *out);
