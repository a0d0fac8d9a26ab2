/* Whose turn it is on the device. Each tenant has a share of the submitter's turns, and so has each session without a tenant. Among
 * the shares that have something to run, the share goes next that has had the least of the device's time in proportion to its
 * weight. Time is measured where the device tells it, and estimated elsewhere. A share that comes after a pause starts at the
 * others' time: it has saved nothing up. Within a share the sessions take turns (struct run_group), and within a session the
 * streams.
 *
 * Shares and groups are recycled but never freed before the order, since cancelled streams may still be in one. All under the
 * order's lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/ops/op.h"

struct order;
struct stream;

enum { STREAM_PRIORITIES = 3 }; /* above, at and below the default */

/* A stream's place in the turns. */
struct stream_turns {
    uint64_t published; /* records up to this one may run */
    int priority;
    bool runnable;       /* in the run queue, or being run */
    struct stream *next; /* in its group, or set aside */
};

enum { SHARE_WEIGHT_DEFAULT = 100, SHARE_WEIGHT_MAX = 10000 };

/* The streams of one session that have something to run. The highest priority goes first, and streams of one priority take turns.
 * So neither many streams nor high priorities get a session more than its part of the share. */
struct run_group {
    struct stream *first[STREAM_PRIORITIES], *last[STREAM_PRIORITIES];
    struct run_share *share;
    struct run_group *next; /* in its share */
    bool queued;
    /* owner thread */
    uint64_t session; /* number of the session */
    struct stream
        *joiner; /* has only waits: one point of it stands for several other points (plan.c); NULL until needed */
    struct run_group *free_next;
};

/* Nanoseconds times SHARE_WEIGHT_MAX, divided by the weight. 64 bits would overflow within hours for a share of small weight, and a
 * share that was idle meanwhile would seem to be far ahead. */
__extension__ typedef unsigned __int128 run_pass;

struct run_share {
    struct run_group *first, *last;
    uint32_t weight; /* 1 to SHARE_WEIGHT_MAX */
    run_pass pass;   /* the device's time that it has had, divided by its weight */
    bool queued, running;
    /* Calls that other threads make for it (submitter_aside.c), by the operations' families: each has a library of its own. Submitter's. */
    uint8_t asides[OP_FAMILY_COUNT];
    /* The longest time that one operation may take on a device that can stop it, or be estimated to take on another; 0: any. */
    uint64_t operation_ns;
    struct run_share *next, *previous; /* in the run queue */
    struct run_share *free_next;       /* owner thread */
};

struct run_queue {
    struct run_share *first, *last; /* by ascending `pass`; shares of equal pass in the order in which they came */
    run_pass now;                   /* pass of the share that had the last turn, when it began */
};

/* Puts a stream at the end of its priority's turn. */
void turns_enqueue(struct run_queue *run, struct stream *stream);
/* Puts a stream at the head of its priority's turn, because it is in the middle of a launch. So a session has at most one launch
 * under way for each priority. */
void turns_enqueue_first(struct run_queue *run, struct stream *stream);
/* Whether anything waits for the device besides this stream and streams of the same session that have its priority or a lower one. */
bool turns_wanted(const struct run_queue *run, const struct run_share *share, const struct stream *stream);
/* The stream whose turn is next, or NULL. Its share is out of the queue until turns_end(). */
struct stream *turns_begin(struct run_queue *run, struct run_share **share);
/* Ends the turn, which is charged `cost` nanoseconds. */
void turns_end(struct run_queue *run, struct run_share *share, uint64_t cost);
/* Makes a share ready for a new owner. */
void turns_reset(const struct run_queue *run, struct run_share *share, uint32_t weight);

/* ---- groups and shares are recycled: owner thread, without the lock ---- */

struct run_group *group_take(struct order *order, struct run_share *share, uint64_t session);
void group_give(struct order *order, struct run_group *group);
struct run_share *share_take(struct order *order, uint32_t weight, uint64_t operation_ns);
void share_give(struct order *order, struct run_share *share);
void share_set(struct order *order, struct run_share *share, uint32_t weight, uint64_t operation_ns);
