/* Streams: queues of records that the owner thread fills and the submitter empties, in order.
 *
 * A stream's records are numbered from 1. A *point* is a stream and a number: "when this much of that stream has run".
 * Streams are recycled but never freed before the order, and their numbers never start again, so a point stays
 * meaningful however old it is: memory that was freed at a point can be handed to another stream, which waits for it.
 *
 * On a device whose launches run later (device_async) a record is executed when it has been put on the device's stream,
 * and completed when it has run there. Then the submitter marks how far it has come with events, and the reaper goes
 * through the same records after it.
 *
 * Threads: a stream has a part for each thread that works on it. Parts of different threads share no line of the cache. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine/device/device_kernels.h"
#include "engine/device/launch.h"
#include "engine/order/replay.h"
#include "engine/order/turns.h"
#include "engine/watch/trace_impl.h"

struct device_event;
struct guard;
struct order;
struct poison;
struct stream;

/* ---- records: the work of a stream, one record after the other in chunks of memory. The owner fills them; the submitter and the
 * reaper read them in order ---- */

enum record_kind {
    RECORD_LAUNCH,  /* a struct launch follows */
    RECORD_FLAT,    /* several struct flat_launch follow, which run one after another */
    RECORD_KERNEL,  /* a struct kernel_launch follows */
    RECORD_REPLAY,  /* a struct replay_run follows: many launches, once or often (replay.h) */
    RECORD_WAIT,    /* wait until another stream has reached a point */
    RECORD_POISON,  /* settle a poison (poison.h) */
    RECORD_CHUNK,   /* the next record is in the next chunk */
    RECORD_NOTHING, /* a launch that has been taken back */
};

struct record {
    uint32_t bytes;    /* of the whole record, header included */
    uint8_t kind;      /* enum record_kind */
    uint8_t ends;      /* so many operations end with it */
    uint16_t label;    /* of a launch: offset in the record of its operation's label, NUL-terminated; 0: it has none */
    uint64_t weight;   /* rough cost in nanoseconds */
    uint64_t sequence; /* number of its operation in the session; 0: it belongs to no operation */
    uint64_t enqueued_ns;
    union {
        struct launch launch;
        struct kernel_launch kernel;
        struct replay_run replay;
        struct {
            uint32_t n;
            struct flat_launch launches[];
        } flat;
        struct {
            struct stream *stream;
            uint64_t number;
        } wait;
        struct {
            struct poison *result;
            struct poison *inputs[3];
            struct guard *guard;
        } poison;
    };
};

enum { RECORD_FLAT_MAX = 64 }; /* launches in one record */

/* How many launches it stands for. */
static inline uint32_t record_launches(const struct record *record) {
    switch ((enum record_kind)record->kind) {
    case RECORD_LAUNCH:
    case RECORD_KERNEL:
        return 1;
    case RECORD_FLAT:
        return record->flat.n;
    case RECORD_REPLAY: /* many, whose times are not taken one by one */
    case RECORD_WAIT:
    case RECORD_POISON:
    case RECORD_CHUNK:
    case RECORD_NOTHING:
        break;
    }
    return 0;
}

/* The label of its operation; NULL: it has none. */
static inline const char *record_label(const struct record *record) {
    return record->label ? (const char *)record + record->label : NULL;
}

enum { STREAM_CHUNK_BYTES = 64 << 10 };

struct stream_chunk {
    struct stream_chunk *next;
    uint32_t units; /* of STREAM_CHUNK_BYTES; 1, unless a record would not fit into that */
    _Alignas(16) uint8_t records[];
};

static inline size_t stream_chunk_bytes(uint64_t units) {
    return units * (sizeof(struct stream_chunk) + STREAM_CHUNK_BYTES);
}

/* A place in a stream's chunks. */
struct record_cursor {
    struct stream_chunk *chunk; /* NULL: the stream had no chunk yet */
    size_t used;                /* bytes of the chunk that are before the place */
};

static inline struct record *record_at(const struct record_cursor *cursor) {
    return (struct record *)(cursor->chunk->records + cursor->used);
}

/* ---- marks: how far a stream has come on a device whose launches run later, event by event; under the order's lock ---- */

/* The records that were put on the device between two events. If the device gets stuck, an error message names them. The records
 * stay as long as the event does. */
struct stream_span {
    const struct record *first, *last; /* launches */
    const struct record *wait;         /* the last wait for another stream */
    unsigned launches;
    uint64_t weight;
};

/* Records up to `number` have run when the event is reached. */
struct stream_mark {
    struct device_event *event; /* NULL: none of these records is on the device */
    uint64_t number;
    struct stream_span span;
    uint64_t began_ns; /* when the first of these records was put on the device */
    uint32_t
        sample_weight; /* the mark is of one launch whose time is taken and counts for so many launches; 0: it is not */
    uint32_t parts;    /* so many turns were left in the middle of a run before the event */
    uint32_t launches; /* launches that were put on the device since the mark before this one */
    bool counted;      /* among order->marked, since another thread began the call that the mark is behind */
};

enum { STREAM_MARKS = 64 };

/* A ring. The reaper removes the oldest mark when its records have run. */
struct stream_marks {
    struct stream_mark ring[STREAM_MARKS];
    unsigned first, count;
};

/* The oldest mark is number 0. Its place may be read when there is no mark, too. */
static inline const struct stream_mark *marks_at(const struct stream_marks *marks, unsigned i) {
    return &marks->ring[(marks->first + i) % STREAM_MARKS];
}

/* There must be room. */
static inline void marks_add(struct stream_marks *marks, const struct stream_mark *mark) {
    marks->ring[(marks->first + marks->count++) % STREAM_MARKS] = *mark;
}

/* Removes the oldest mark. */
static inline void marks_drop(struct stream_marks *marks) {
    marks->first = (marks->first + 1) % STREAM_MARKS;
    marks->count--;
}

/* ---- callbacks at points; owner thread ---- */

/* Embedded in the object that waits. It must not move until the point has been reached or the waiter cancelled. */
struct waiter {
    struct stream *stream; /* NULL: it waits for nothing */
    uint64_t number;
    void (*reached)(struct waiter *waiter); /* once, from order_call_back(); may free the waiter */
    struct waiter *next, *previous;
};

/* The waiters of one stream, by ascending numbers. */
struct stream_waiters {
    struct waiter *first, *last;
};

/* ---- a stream's parts ---- */

enum {
    STREAM_CLOCK_RECORDS = 64, /* a power of two: so many records may have one time */
    STREAM_HOLDS = 8
};

/* When record number `at` was enqueued, the point for which it waits depended on bytes from elsewhere. */
struct stream_hold {
    uint64_t at;
    struct stream *stream;
    uint64_t number;
};

/* The records of a stream of which stream_certain() cannot say that they will run. */
struct stream_holds {
    unsigned count;
    struct stream_hold hold[STREAM_HOLDS]; /* ascending; reached ones are dropped when there is no room */
    uint64_t crowded, crowded_last; /* where there was no room: the first and last record that count as holds, too */
};

/* The operation that is being enqueued. */
struct stream_operation {
    const char *label;     /* NULL: it has none */
    uint64_t sequence;     /* 0 between two */
    uint64_t estimated_ns; /* of its launches so far, by the device's own rates */
    struct report *report; /* for those of its launches that may take long; NULL: none */
};

/* The end at which records are added. */
struct stream_queue {
    struct record_cursor tail;
    struct record *newest;
    uint64_t weight;     /* of the records since the last publication */
    uint64_t now_ns;     /* when the newest records were enqueued, roughly */
    uint64_t ops;        /* operations whose last record has been enqueued here */
    uint64_t ops_before; /* of these, the ones enqueued before the present session had the stream */
};

/* A stream's place in a list of the order's. */
struct stream_link {
    struct stream *next;
    bool listed;
};

/* A launch whose call another thread makes, since it waits for the device (device_async.launch_aside). */
struct stream_aside {
    struct device_aside *call; /* NULL: there is none */
    uint8_t *counter;          /* of its share and family; NULL: it is not counted */
    uint64_t began_ns;
    bool traced;
    struct trace_mark mark; /* if it is traced */
};

/* The submitter's part of a stream. */
struct stream_submit {
    struct record_cursor at; /* the next record */
    uint64_t executed;
    struct device_stream *device_streams[STREAM_PRIORITIES]; /* made when first used */
    struct device_stream *device_stream; /* the one in use; NULL: nothing was put on the device yet */
    struct device_begun *begun;          /* the launch of the next record, if it has begun; else NULL */
    struct stream_aside aside;           /* or, on a device that runs later, its call */
    uint64_t begun_ns;                   /* when it began */
    uint32_t begun_sample;               /* its times count for so many launches; 0: they are not taken */
    uint64_t launch_ns;                  /* how long the device has worked on it */
    uint64_t worked;                     /* the operation on which the device worked in pieces last; 0: none */
    uint64_t worked_ns;                  /* how long the device has worked on that operation */
    bool unmarked;                       /* work was put on the device after the last event */
    unsigned unmarked_launches;          /* how many launches that was */
    /* On a device that runs later: launches up to the last event that are not known to have run; and turns of a run. */
    _Atomic unsigned ahead, parts;
    _Atomic(const struct record *) running; /* the last launch of the turn; read by the owner, with the lock held */
};

/* The reaper's part of a stream. */
struct stream_reap {
    struct record_cursor at; /* the next record */
    uint64_t reaped;
    uint64_t reached_ns; /* when its last event was reached; written with the lock held */
    uint64_t walked_ns;  /* when that of the last record was, which has been counted */
};

/* What the watch found when it looked at a stream last. */
struct stream_watch {
    bool due; /* its oldest work on the device waits for nothing but the device */
    uint64_t completed, idle_ns;
    uint64_t weight; /* of all work on the device when that work became the oldest */
};

/* ---- streams ---- */

struct stream {
    struct order *order;
    uint32_t id;  /* from 1 */
    bool outside; /* has no records: outside_take() */
    struct stream *all_next;

    /* owner thread */
    uint64_t enqueued; /* number of the newest record */
    struct stream_queue queue;
    struct stream_operation operation;
    struct stream_link touched; /* has unpublished records */
    struct stream_link polled;  /* callbacks are due */
    struct stream_waiters waiters;
    struct stream_holds holds;
    struct stream *free_next; /* in order->streams_free, or outsides_free */

    /* to whom the stream belongs: written by the owner with the lock held, read by the submitter while there are records to run */
    struct run_group *group;
    uint64_t session; /* its number */
    int32_t role;     /* what the stream is to it (engine/watch/trace.h) */

    /* under the order's lock */
    /* How long the device has been at this stream's work, up to the last turn or mark that ended; and how much of that was for
     * sessions that had the stream before. Neither falls. */
    _Alignas(64) uint64_t device_ns;
    uint64_t device_ns_before;
    struct stream_turns turns;
    struct stream_link signalled; /* reached a watched point */
    struct stream_link reaping;   /* has marks for the reaper */
    struct stream_watch watch;
    struct stream_marks marks;
    const struct record *aside; /* the record whose launch another thread makes; NULL: there is none */

    /* submitter */
    _Alignas(64) struct stream_submit submit;
    struct trace_line trace;

    /* reaper */
    _Alignas(64) struct stream_reap reap;

    /* written by the submitter, or by the reaper where there is one; read by the owner */
    _Alignas(64) _Atomic uint64_t completed;
    /* Operations that have run to their end, and operations that never will because the stream was cancelled or the device
     * broke. Both are counted before `completed` includes them, and neither falls. */
    _Atomic uint64_t ops_done, ops_skipped;
    _Atomic uint64_t chunks; /* that it has, of records */
    /* written by the owner, read by the submitter or the reaper */
    _Alignas(64) _Atomic uint64_t watched; /* the owner wants to know when this number is reached; UINT64_MAX: no */
    _Atomic bool cancelled;                /* skip launches, keep waits */
};

static inline bool point_reached(const struct stream *stream, uint64_t number) {
    return atomic_load(&stream->completed) >= number; /* see stream_watch() */
}

/* Counts the operations that end with a record. Called by the thread that writes `completed`, before it does. */
static inline void stream_count(struct stream *stream, const struct record *record, bool skipped) {
    _Atomic uint64_t *count = skipped ? &stream->ops_skipped : &stream->ops_done;
    if (record->ends)
        atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + record->ends,
                              memory_order_relaxed);
}

/* Operations whose last record has neither run nor been skipped. Owner thread. */
static inline uint64_t stream_operations(const struct stream *stream) {
    return stream->queue.ops - atomic_load_explicit(&stream->ops_done, memory_order_relaxed) -
           atomic_load_explicit(&stream->ops_skipped, memory_order_relaxed);
}

/* Whether the owner waits for a point that has now been reached. The owner is told once; when it polls, it sets `watched` again.
 * Called by the thread that writes `completed`. */
static inline bool stream_watched(struct stream *stream, uint64_t completed) {
    if (completed < atomic_load(&stream->watched))
        return false;
    atomic_store_explicit(&stream->watched, UINT64_MAX, memory_order_relaxed);
    return true;
}

/* Records that are enqueued from now on belong to this operation; NULL and 0: to none. The label stays the caller's, and must stay
 * unchanged until the next call. */
static inline void stream_begin_operation(struct stream *stream, const char *label, uint64_t sequence) {
    stream->operation.label = label;
    stream->operation.sequence = sequence;
    stream->operation.estimated_ns = 0;
}

/* Makes room for one record and numbers it; NULL out of memory, with nothing enqueued. The record runs once the stream
 * has been published, so the caller fills it before order_kick(). */
struct record *stream_push(struct stream *stream, enum record_kind kind, size_t bytes, uint64_t weight);
/* Makes room for a small launch: in the newest record, if that holds such launches and is not published, or in a new one. */
static inline struct flat_launch *stream_push_flat(struct stream *stream, uint64_t sequence, uint64_t weight) {
    struct stream_queue *queue = &stream->queue;
    struct record *record = queue->newest;
    if (!stream->touched.listed || record->kind != RECORD_FLAT || record->flat.n == RECORD_FLAT_MAX ||
        queue->tail.used + sizeof(struct flat_launch) + sizeof(struct record) > STREAM_CHUNK_BYTES) {
        record = stream_push(stream, RECORD_FLAT, offsetof(struct record, flat.launches[1]), weight);
        if (!record)
            return NULL;
        record->flat.n = 0;
    } else {
        record->bytes += sizeof(struct flat_launch);
        record->weight += weight;
        queue->tail.used += sizeof(struct flat_launch);
        queue->weight += weight;
    }
    struct flat_launch *launch = &record->flat.launches[record->flat.n++];
    launch->sequence = sequence;
    return launch;
}
_Static_assert(sizeof(struct flat_launch) % 16 == 0, "a record's size is a multiple of 16");
/* The newest record is the last one of its operation: the operation is done when this record is. */
static inline void stream_end_operation(struct stream *stream) {
    stream->queue.newest->ends++;
    stream->queue.ops++;
}
/* Where the stream's next record will be. */
struct stream_position {
    struct record_cursor at; /* no chunk: in the stream's first one */
    uint64_t number;
};
struct stream_position stream_position(const struct stream *stream);
/* Launches enqueued since `position` will not run. None of them may have been published or have ended an operation. Their numbers
 * stay. Waits stay, because other streams may rely on them, and so do records of poison, which settle what they refer to. */
void stream_take_back(struct stream *stream, const struct stream_position *position);
/* Makes the stream's next record wait for a point of another stream. Enqueues nothing if the point has been reached. */
int stream_wait(struct stream *stream, struct stream *other, uint64_t number);
/* Whether the point will certainly be reached: no record up to it waits for bytes from elsewhere that have not come. (Work on a device
 * ends by itself. Bytes from elsewhere may never come, since they may wait for something here.) False also if it would take long
 * to find out. Owner thread. */
bool stream_certain(const struct stream *stream, uint64_t number);

/* Calls `reached` when the stream has reached the point. The caller has made sure that it was not reached before. */
void waiter_begin(struct waiter *waiter, struct stream *stream, uint64_t number,
                  void (*reached)(struct waiter *waiter));
/* Does nothing if it waits for nothing. */
void waiter_cancel(struct waiter *waiter);

/* ---- memory's last uses: the points that must be reached before somebody else may write there; owner thread ---- */

struct use {
    struct stream *stream;
    uint64_t number;
};
enum { USES_MAX = 4 };
struct uses {
    struct use use[USES_MAX];
    unsigned count;
};

/* Adds a use; uses that have run by now are dropped to make room. False: full. */
bool uses_add(struct uses *uses, struct stream *stream, uint64_t number);
/* Adds all uses of `more`. False, and nothing is changed: they are too many. */
bool uses_join(struct uses *uses, const struct uses *more);
/* Drops the uses whose points have been reached. True: none is left. */
bool uses_idle(struct uses *uses);

/* The last use of something on each of any number of streams. */
struct use_list {
    struct use *uses;
    unsigned n, capacity;
    bool stays; /* a use could not be noted: it is in use for good */
};
void use_list_note(struct use_list *list, struct stream *stream, uint64_t number);
/* Whether a use has not run yet. Forgets those that have. */
bool use_list_runs(struct use_list *list);
static inline void use_list_finish(struct use_list *list) {
    free(list->uses);
}
