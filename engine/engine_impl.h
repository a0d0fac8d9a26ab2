/* The engine's inside, for the files of this room. */
#pragma once

#include <pthread.h>

#include "engine/order/cost.h"
#include "engine/engine.h"
#include "engine/watch/flight.h"
#include "engine/watch/history.h"
#include "engine/program/kernel_impl.h"
#include "engine/memory/pool.h"
#include "engine/watch/samples.h"
#include "engine/memory/staging.h"
#include "engine/values/tensor.h"
#include "engine/watch/trace_impl.h"
#include "engine/order/turns.h"

enum {
    ENGINE_CHUNKS_KEPT = 64,
};

struct engine {
    struct device *device;
    struct engine_options options;

    struct cost cost;
    /* owner thread */
    struct pool pool;
    struct staging staging; /* host memory on the way to and from the device */
    struct reports reports;
    struct kernel_store kernels;
    struct stream *touched;      /* streams with unpublished records */
    struct stream *streams_free; /* recycled */
    struct stream *outsides_free;
    struct run_group *groups_free;
    struct run_share *shares_free;
    struct stream *streams_all;
    uint32_t streams_made;
    struct slab waiters;
    struct slab tensors;
    struct stream_chunk *chunks_own; /* taken from the shared list, for the next streams that grow */
    unsigned sessions;
    struct session *sessions_list;
    struct session *ending, **ending_last; /* those that have ended, and whose memory is still to be given back */
    struct budget budget;
    struct stream *polled, **polled_last; /* those with callbacks that are due, in order */
    uint64_t refusals[ENGINE_REFUSALS];
    uint64_t *refused; /* the one of these that the operation at hand has met; NULL: none */
    uint64_t
        ops_ended; /* operations that came to their end here: with a failure, or with nothing for the device to do */
    uint64_t failures[STATUS_COUNT];
    uint64_t host_freed; /* bytes of host memory that ended sessions had, since the host got some back last */
    bool rested;         /* since the last session went what streams and reports need no more has been given back */
    bool trim_more;      /* at rest, and more than one call's share is to be given back to the device */
    bool kick_needed;    /* a point was reached outside: blocked streams may go on */
    struct {             /* stall.c */
        uint64_t completed, looked_ns;
        bool busy;        /* at the last look */
        uint64_t idle_ns; /* for so long nothing has completed of what the device has to do */
        uint64_t rest_ns; /* for so long the device has had nothing to do */
        const struct stream *told; /* the last one that was told of as stuck, and what of it had completed then */
        uint64_t told_at;
    } stall;

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t work;     /* the submitter sleeps on it */
    pthread_cond_t progress; /* engine_wait() sleeps on it */
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
    _Atomic bool work_hint;  /* the run queue is not empty; for spinning without the lock */
    const struct run_group *turn_group; /* of the last turn, and when the one before it was somebody else's; submitter */
    uint64_t shared_ns;
    _Atomic bool wanted;     /* somebody else waits for the device than the session whose turn it is */
    _Atomic uint64_t ahead;  /* records of all streams that are on a device that runs later */
    _Atomic uint64_t pieces; /* grows while a launch runs that is done in pieces */
};

/* Counts a refusal; session_put_off() may take it back. */
static inline void engine_refuse(struct engine *engine, unsigned refusal) {
    engine->refused = &engine->refusals[refusal];
    ++*engine->refused;
}

/* The submitter gives workspaces back when it comes to it. Owner thread. */
void engine_trim_workspaces(struct engine *engine);
/* Nanoseconds of CLOCK_MONOTONIC. Any thread. */
uint64_t engine_clock(void);
/* For so long the device has been at the work of the session that has the stream now; with the lock held. */
uint64_t engine_stream_time(const struct engine *engine, const struct stream *stream, uint64_t now);

/* Owner thread. */
void engine_touch(struct engine *engine, struct stream *stream);
struct stream_chunk *engine_chunk_take(struct engine *engine);
struct run_group *engine_group_take(struct engine *engine, struct run_share *share);
void engine_group_give(struct engine *engine, struct run_group *group);
struct run_share *engine_share_take(struct engine *engine, uint32_t weight);
void engine_share_give(struct engine *engine, struct run_share *share);
struct stream *engine_stream_take(struct engine *engine, struct run_group *group, int priority);
/* The stream may still have work; it is used again when that has run. */
void engine_stream_give(struct engine *engine, struct stream *stream);

/* At rest: streams in reserve give back the memory of their records. True: all of them have; the others are not through yet. */
bool engine_streams_rest(struct engine *engine);

/* A callback at a point of a stream. Owner thread. `reached` runs once, from engine_poll(). */
struct waiter {
    struct stream *stream;
    uint64_t number;
    void (*reached)(struct waiter *waiter);
    void *owner;
    struct waiter *next, *previous;
};
/* NULL out of memory. The point must not have been reached already: the caller has looked. */
struct waiter *engine_waiter(struct engine *engine, struct stream *stream, uint64_t number,
                             void (*reached)(struct waiter *waiter), void *owner);
void engine_waiter_cancel(struct engine *engine, struct waiter *waiter);


/* A timeline without records, for what happens outside the device: its numbers are handed out by the taker and reached
 * by engine_outside_reached() alone. Never mixed with the other streams, whose records the submitter counts. */
struct stream *engine_outside_take(struct engine *engine);
void engine_outside_give(struct engine *engine, struct stream *stream);
/* The newest number has been reached. Streams that wait for it go on at the next engine_kick(). */
void engine_outside_reached(struct engine *engine, struct stream *stream);

/* Notes, with the lock held, that a stream has reached a point that the owner waits for. */
void engine_signal(struct engine *engine, struct stream *stream);
/* The owner has found a watched point reached by itself, and has to poll. Takes the lock. */
void engine_signal_self(struct engine *engine, struct stream *stream);
/* Wakes the owner, with the lock held, if it has not been told since it polled last. */
void engine_tell(struct engine *engine);
/* The device has failed for good. Without the lock. */
void engine_latch(struct engine *engine, const struct fault *fault);
/* Adds to the words of a failure what the device is at; with the lock held. */
void stall_blame(const struct engine *engine, struct fault *fault);
/* Takes back chunks that have been used up, with the lock held. */
void engine_return_chunks(struct engine *engine, struct stream_chunk *chunks);
/* The next record at a cursor in a stream's chunks. A chunk left behind is put before *done, where that is given. */
struct record *engine_next_record(struct stream *stream, struct stream_chunk **head, size_t *used,
                                  struct stream_chunk **done);

/* Reaper (reaper.c): only on devices whose launches run later. */
void *reaper_main(void *engine);
/* Everything executed on the stream so far is on the device: to be called by the submitter without the lock, and */
struct stream_mark reaper_mark(struct engine *engine, struct stream *stream);
/* handed to the reaper with the lock held. */
void reaper_take(struct engine *engine, struct stream *stream, struct stream_mark mark);

/* Submitter (submitter.c). */
void *submitter_main(void *engine);
/* Runs what is published until nothing can run, or where `brief` until something proves to take long; called with the lock
 * held and the role taken, returns so. */
void submitter_run(struct engine *engine, bool brief);
/* Puts a stream at the end of its priority's turn; with the lock held. */
void submitter_enqueue(struct engine *engine, struct stream *stream);
