/* The order in which work runs on one device: its streams, their turns, the thread that launches (the submitter), and the thread
 * that finds out which launches have run (the reaper). The order knows launches and points, and nothing of sessions' data.
 *
 * Threads. The owner enqueues and calls back; the submitter launches; the reaper, which only devices have whose launches run later,
 * makes known which launches have run. Fields are grouped by the threads that may touch them. */
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
    uint64_t idle_ns;          /* how long the device has had work and completed none of it */
    uint64_t rest_ns;          /* how long the device has had nothing to do */
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
    struct stream *polled, **polled_last; /* streams with callbacks that are due, in order */
    bool kick_needed;                     /* a point was reached outside: blocked streams may go on */
    struct order_watch watch;

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t work;     /* the submitter sleeps on it */
    pthread_cond_t progress; /* order_await() sleeps on it */
    struct run_queue run;
    uint64_t run_weight; /* nanoseconds, roughly, of the records that have been published and have not run */
    bool submitting;     /* a thread has the submitter's role */
    struct stream
        *turn; /* the stream whose turn it is; its records stay until the turn is over. NULL: between two turns */
    uint64_t turn_end_ns; /* when the last turn ended, which is when this one began */
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
    /* How long the device has had something to do, up to the end of the last turn. Where launches run later: up to the last moment
     * at which no mark was left (`busy_until_ns`); since `busy_since_ns` it has had something to do again. */
    uint64_t busy_ns, busy_since_ns, busy_until_ns;
    unsigned marked;        /* marks whose events are on the device, and calls that other threads make */
    bool marked_alone;      /* the newest of these marks has had the device for itself */
    struct flight flight;   /* user kernels that may have caused the failure */
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
    /* the submitter's: the group that had the last turn, and when a turn of another group ended last */
    const struct run_group *turn_group;
    uint64_t shared_ns;
    _Atomic bool wanted;     /* another session than the one whose turn it is waits for the device */
    _Atomic unsigned ahead;  /* launches of all streams: as stream->submit.ahead */
    _Atomic uint64_t pieces; /* grows while a launch runs that is done in pieces */
};

/* ---- life ---- */

/* Starts the threads; `order` is zeroed before. Returns an errno on failure. Does not take over the device. */
int order_init(struct order *order, struct device *device, void (*wake)(void *owner), void *owner);
/* Stops the threads when all records that were enqueued have run or been skipped. Then nothing uses memory of the device. */
void order_stop(struct order *order);
/* After order_stop(). */
void order_finish(struct order *order);

/* ---- work: owner thread ---- */

/* Starts the records that have been enqueued since the last call. A little work on an idle device is done before it returns; more
 * goes to the submitter. */
void order_kick(struct order *order);
static inline bool order_kick_due(const struct order *order) {
    return order->touched || order->kick_needed;
}
/* Calls the callbacks of points that have been reached, as far as the budget goes. */
void order_call_back(struct order *order);
/* Whether the budget has ended order_call_back() before it was through. */
static inline bool order_calls_back(const struct order *order) {
    return order->polled;
}
/* Sleeps until a callback is due or the device has failed. Only with wake == NULL. */
void order_await(struct order *order);
/* Has the submitter give workspaces back, later. */
void order_trim_workspaces(struct order *order);
/* For a device at rest: recycled streams give back the memory of their records, except streams that still have records to run. True:
 * all streams have given it back. */
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

/* Notes that the device has failed for good, and adds to the message what the device was computing. The first failure stays. Not with
 * the lock held. The owner is not told: the caller is the owner itself, or tells it at the end of its turn or look. */
void order_latch(struct order *order, const struct fault *fault);
/* The same, and tells the owner; `blame`: adds to the message what the device was computing. */
void order_fail(struct order *order, const struct fault *fault, bool blame);
/* STATUS_DEVICE_LOST with a message, once the device has failed. */
int order_fault(struct order *order, struct fault *fault);

/* ---- the device's time ---- */

/* How long the device has had something to do since the start, up to `now`. With the lock held. */
uint64_t order_busy(const struct order *order, uint64_t now);
/* How long the device has been at the work of the session that has the stream now, up to `now`. With the lock held. */
uint64_t stream_time(const struct stream *stream, uint64_t now);

/* ---- streams: owner thread ---- */

struct stream *stream_take(struct order *order, struct run_group *group, int priority);
/* The stream may still have work; it is used again when the work has run. */
void stream_give(struct stream *stream);

/* A timeline without records, for events outside the device: whoever takes it hands its numbers out, and outside_reached() alone
 * reaches them. It is never mixed with the other streams, whose records the submitter counts. */
struct stream *outside_take(struct order *order);
void outside_give(struct stream *stream);
/* The newest number has been reached. Streams that wait for it go on at the next order_kick(). */
void outside_reached(struct stream *stream);
