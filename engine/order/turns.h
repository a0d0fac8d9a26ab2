/* Whose turn it is on the device. A share is what one tenant has of the submitter's turns, or one session that belongs
 * to none. Of the shares that have something to run, the one goes next that has had least in proportion to its weight,
 * counted in what its work takes, as measured where the device says so and estimated elsewhere; a share that comes
 * after a pause starts where the others are, with nothing saved up. Within a share its sessions take turns (struct
 * run_group), and within a session its streams.
 *
 * Shares and groups are recycled but never freed before the order: cancelled streams may still be in one. All of it
 * under the order's lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct order;
struct stream;

enum { STREAM_PRIORITIES = 3 }; /* above, at and below the default */

/* The turns' part of a stream. */
struct stream_turns {
    uint64_t published; /* records up to this one may run */
    int priority;
    bool runnable;       /* in the run queue, or being run */
    struct stream *next; /* in its group, or set aside */
};

enum { SHARE_WEIGHT_DEFAULT = 100, SHARE_WEIGHT_MAX = 10000 };

/* The streams of one session that have something to run. The highest priority goes first, and equals take turns: so
 * neither many streams nor high priorities get one session more than its part. */
struct run_group {
    struct stream *first[STREAM_PRIORITIES], *last[STREAM_PRIORITIES];
    struct run_share *share;
    struct run_group *next; /* in its share */
    bool queued;
    /* owner thread */
    uint64_t session;      /* number of the session */
    struct stream *joiner; /* has only waits: its point stands for several other points (plan.c); NULL until needed */
    struct run_group *free_next;
};

/* Nanoseconds times SHARE_WEIGHT_MAX over weight. In 64 bits it would wrap around within hours of a small weight, and who
 * has been idle meanwhile would be taken for somebody who is far ahead. */
__extension__ typedef unsigned __int128 run_pass;

struct run_share {
    struct run_group *first, *last;
    uint32_t weight; /* 1 to SHARE_WEIGHT_MAX */
    run_pass pass;   /* the device's time that it has had, divided by its weight */
    bool queued, running;
    /* The most that one operation may take, where the device can stop it, and be estimated to take elsewhere; 0: any time. */
    uint64_t operation_ns;
    struct run_share *next, *previous; /* in the run queue */
    struct run_share *free_next;       /* owner thread */
};

struct run_queue {
    struct run_share *first, *last; /* by `pass`, ascending; equals in the order in which they came */
    run_pass now;                   /* pass of the share that had the last turn, when it began */
};

/* Puts a stream at the end of its priority's turn. */
void turns_enqueue(struct run_queue *run, struct stream *stream);
/* Puts a stream at the head of its priority's turn: it is in the middle of a launch. So a session has no more launches under
 * way than there are priorities. */
void turns_enqueue_first(struct run_queue *run, struct stream *stream);
/* Whether anybody else waits than the share and session whose turn it is, and others of that session with its priority. */
bool turns_wanted(const struct run_queue *run, const struct run_share *share, const struct stream *stream);
/* The next stream, or NULL. Its share is out of the queue until turns_end(). */
struct stream *turns_begin(struct run_queue *run, struct run_share **share);
/* The turn took so many nanoseconds. */
void turns_end(struct run_queue *run, struct run_share *share, uint64_t cost);
/* A share for a new owner. */
void turns_reset(const struct run_queue *run, struct run_share *share, uint32_t weight);

/* ---- groups and shares are recycled: owner thread, without the lock ---- */

struct run_group *group_take(struct order *order, struct run_share *share, uint64_t session);
void group_give(struct order *order, struct run_group *group);
struct run_share *share_take(struct order *order, uint32_t weight, uint64_t operation_ns);
void share_give(struct order *order, struct run_share *share);
void share_set(struct order *order, struct run_share *share, uint32_t weight, uint64_t operation_ns);
