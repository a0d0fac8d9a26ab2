/* The order of what runs on one device: its streams, whose turn it is, the thread that launches, and the one that finds out
 * what has run. It knows launches and points, and nothing of whom they are for.
 *
 * Threads. The owner enqueues, and calls back; the submitter launches; the reaper, on devices whose launches run later, makes
 * known what has run. Fields are grouped by who may touch them. */
#pragma once

#include <pthread.h>

#include "engine/order/budget.h"
#include "engine/order/cost.h"
#include "engine/order/poison.h"
#include "engine/order/stream.h"
#include "engine/order/turns.h"
#include "engine/watch/histogram.h"
#include "engine/watch/history.h"
#include "engine/watch/samples.h"
#include "engine/watch/trace_impl.h"

/* What the watch found when it looked at all streams last. */
struct order_watch {
    uint64_t completed, looked_ns;
    bool busy;
    uint64_t idle_ns;          /* for so long the device has had work, and completed none of it */
    uint64_t rest_ns;          /* for so long the device has had nothing to do */
    const struct stream *told; /* the stream that was reported last, and how many of its records had completed then */
    uint64_t told_at;
};

struct order {
    struct device *device;
    void (*wake)(void *owner); /* completions wait for the owner; any thread. NULL: the owner uses order_await() */
    void *owner;

    struct cost cost;
    struct reports reports; /* any thread */
    /* owner thread */
    struct budget budget;
    struct stream *touched;      /* streams with unpublished records */
    struct stream *streams_free; /* recycled */
    struct stream *outsides_free;
    struct run_group *groups_free;
    struct run_share *shares_free;
    struct stream *streams_all;
    uint32_t streams_made;
    struct stream_chunk *chunks_own;      /* taken from the shared list, for the next streams that grow */
    struct stream *polled, **polled_last; /* those with callbacks that are due, in order */
    bool kick_needed;                     /* a point was reached outside: blocked streams may go on */
    struct order_watch watch;

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t work;     /* the submitter sleeps on it */
    pthread_cond_t progress; /* order_await() sleeps on it */
    struct run_queue run;
    uint64_t run_weight;  /* published and not yet run, in nanoseconds, roughly */
    bool submitting;      /* somebody has the submitter's role, */
    struct stream *turn;  /* and this stream's turn it is; its records stay until that is over. NULL: between two */
    uint64_t turn_end_ns; /* when the turn before it ended, and it began */
    bool submitter_asleep;
    bool trim_due; /* the submitter shall give workspaces back */
    bool stopping;
    bool wake_sent;           /* the owner has been told, and has not polled yet */
    struct stream *blocked;   /* runnable, but waiting for another stream's point */
    bool outside_moved;       /* the owner has made a point happen itself */
    struct stream *signalled; /* streams that reached a watched point */
    struct stream_chunk *chunks;
    unsigned chunks_count;
    struct stream_chunk *chunks_lost; /* of a failed device, which may still read the launches in them */
    struct fault latched;             /* a sticky failure of the device */
    struct histogram queue_time, run_time;
    /* For so long the device has had something to do, up to the end of the last turn or, where launches run later, of the
     * last time without a mark; and since when it is at something. */
    uint64_t busy_ns, busy_since_ns, busy_until_ns;
    unsigned marked;        /* marks whose events are on the device, */
    bool marked_alone;      /* and the last that came has had it for itself */
    struct flight flight;   /* user kernels that may have caused it */
    _Atomic bool broken;    /* `latched` is set */
    struct stream *reaping; /* streams with marks that the reaper has not seen yet */
    pthread_cond_t reap;    /* the reaper sleeps on it */
    bool reaper_asleep;
    bool submitted; /* nothing more will be marked */
    pthread_t thread, reaper;
    struct history history; /* the submitter's */
    struct samples samples; /* the submitter's */
    struct trace trace;
    _Atomic bool work_hint; /* the run queue is not empty; for spinning without the lock */
    const struct run_group
        *turn_group; /* of the last turn, and when the one before it was somebody else's; submitter */
    uint64_t shared_ns;
    _Atomic bool wanted;     /* somebody else waits for the device than the session whose turn it is */
    _Atomic uint64_t ahead;  /* records of all streams that are on a device that runs later */
    _Atomic uint64_t pieces; /* grows while a launch runs that is done in pieces */
};

/* ---- life ---- */

/* Starts the threads; `order` is zeroed. An errno where that fails. Does not take over the device. */
int order_init(struct order *order, struct device *device, void (*wake)(void *owner), void *owner);
/* Stops them, when what was enqueued has run or been skipped. Nothing uses memory of the device any more. */
void order_stop(struct order *order);
/* After that. */
void order_finish(struct order *order);

/* ---- work: owner thread ---- */

/* Starts what has been enqueued since. A little work on an idle device is done before it returns; more goes to the submitter. */
void order_kick(struct order *order);
static inline bool order_kick_due(const struct order *order) {
    return order->touched || order->kick_needed;
}
/* Calls the callbacks of points that have been reached, as far as the budget goes. */
void order_call_back(struct order *order);
/* Whether that has been ended by the budget. */
static inline bool order_calls_back(const struct order *order) {
    return order->polled;
}
/* Sleeps until there is something to call back, or the device has failed. Only with wake == NULL. */
void order_await(struct order *order);
/* The submitter gives workspaces back when it comes to it. */
void order_trim_workspaces(struct order *order);
/* At rest: streams in reserve give back the memory of their records. True: all of them have; the others are not through yet. */
bool order_rest(struct order *order);

/* ---- the watch over a device that has stopped completing work: owner thread ---- */

/* The work of a device that has stopped completing work. engine_stalled() says when that is. */
struct order_stall {
    uint64_t ns;
    char operation[320];
    const struct stream *stream;
};
bool order_stalled(struct order *order, uint64_t timeout_ns, struct order_stall *stall);
void order_stall_again(struct order *order);

/* ---- the device's failure: any thread ---- */

/* The device has failed for good: what it was at is added to the words. The first failure stays. Not with the lock held. The
 * owner is not told: whoever calls is the owner, or has a turn or a look at hand that tells it in the end. */
void order_latch(struct order *order, const struct fault *fault);
/* The same, and the owner is told; `blame`: what the device was at is added to the words. */
void order_fail(struct order *order, const struct fault *fault, bool blame);
/* STATUS_DEVICE_LOST, with words, once it has. */
int order_fault(struct order *order, struct fault *fault);

/* ---- the device's time ---- */

/* So long it has had something to do since the start, and has been at the work of whoever has the stream now; with the lock
 * held, and up to `now`. */
uint64_t order_busy(const struct order *order, uint64_t now);
uint64_t stream_time(const struct stream *stream, uint64_t now);

/* ---- streams: owner thread ---- */

struct stream *stream_take(struct order *order, struct run_group *group, int priority);
/* The stream may still have work; it is used again when that has run. */
void stream_give(struct stream *stream);

/* A timeline without records, for what happens outside the device: its numbers are handed out by the taker and reached
 * by outside_reached() alone. Never mixed with the other streams, whose records the submitter counts. */
struct stream *outside_take(struct order *order);
void outside_give(struct stream *stream);
/* The newest number has been reached. Streams that wait for it go on at the next order_kick(). */
void outside_reached(struct stream *stream);
