/* Named tensors of one worker: which names a principal has on this device, and the values they stand for. Names belong to
 * their principal and nobody else sees them. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/held.h"
#include "server/account.h"

enum {
    NAMES_OWNERS_MAX = 4096, /* principals with names on a device */
    NAMES_COUNT_MAX = 16384, /* names of a principal on a device, at most: what a file of them has room for */
};

struct service;
struct stats_names;

struct name_entry {
    struct held *held;
    uint64_t since_ns; /* CLOCK_MONOTONIC */
    char name[];
};

/* A principal's names. It stays while it has some, or storage is charged to it. */
struct name_owner {
    struct name_owner *next;
    struct account *account; /* the principal, who is here for as long */
    struct held_account bytes;
    struct name_entry **entries; /* in the order of their bytes */
    unsigned count, capacity;
};

struct names {
    struct service *service;
    struct name_owner *owners;
    unsigned n_owners;
    char fault[256]; /* why saved ones could not be restored; "": they could */
};

void names_init(struct names *names, struct service *service);
/* Lets go of all values; the sessions have gone. */
void names_finish(struct names *names);

/* Binds all of these names in one step, or none, within the principal's limits. `values` are computed; what succeeds takes
 * a reference to each. `only_new`: STATUS_DUPLICATE_ID where one of the names is there. STATUS_LIMIT,
 * STATUS_INVALID_ARGUMENT. */
int names_publish(struct names *names, const char *principal, const struct limits *limits, struct held *const values[],
                  const char *const texts[], unsigned n, bool only_new, struct fault *fault);
/* STATUS_UNKNOWN_ID where there is none. */
int names_find(const struct names *names, const char *principal, const char *name, struct held **held,
               struct fault *fault);
int names_remove(struct names *names, const char *principal, const char *name, struct fault *fault);

/* NULL: it has none. */
const struct name_owner *names_owner(const struct names *names, const char *principal);
/* For the stats page. */
void names_stats(const struct names *names, struct stats_names *stats);
/* Position of the first name that comes after `name`; of the first of all for "". */
unsigned names_after(const struct name_owner *owner, const char *name);
