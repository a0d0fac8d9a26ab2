/* What has been answered to requests that change something, for clients that may not have heard it: one that lost its
 * connection asks again under the same number, and gets the same answer instead of the same change once more. Of each
 * session the last OUTCOMES_MAX are kept. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection;
struct reply;

enum { OUTCOMES_MAX = 64 };

/* A reply without payload, as it is sent; or, of one that waits for the disk (`changed`), whose names have changed. */
struct outcome {
    struct outcome *next;
    uint64_t sequence;
    bool changed;
    uint16_t type;
    size_t bytes;
    uint8_t frame[]; /* `changed`: a principal's key, with its NUL */
};

struct outcome_list {
    struct outcome *first, **last; /* the oldest one first; `last` NULL: none yet */
    unsigned count;
};

/* Without memory for it the request is carried out again if it is asked again. */
void outcome_remember(struct outcome_list *list, const struct reply *reply);
/* The change has been made, and is answered when it is on the disk: outcome_remember() takes this one's place. */
void outcome_changed(struct outcome_list *list, uint64_t sequence, const char *principal);
/* NULL: it has not been answered. */
const struct outcome *outcome_find(const struct outcome_list *list, uint64_t sequence);
void outcome_list_finish(struct outcome_list *list);
