/* Streams: queues of records that the owner thread fills and the submitter empties, in order.
 *
 * A stream's records are numbered from 1. A *point* is a stream and a number: "when this much of that stream has run".
 * Streams are recycled but never freed before the order, and their numbers never start again, so a point stays
 * meaningful however old it is: memory that was freed at a point can be handed to another stream, which waits for it.
 *
 * On a device whose launches run later (device_async) a record is executed when it has been put on the device's stream,
 * and completed when it has run there. Then the submitter marks how far it has come with events, and the reaper goes
 * through the same records behind it.
 *
 * Threads: fields are grouped by who may touch them. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/device/device_kernels.h"
#include "engine/device/launch.h"
#include "engine/order/poison.h"
#include "engine/watch/trace_impl.h"

struct order;
struct run_group;
struct waiter;
struct stream;

enum record_kind {
    RECORD_LAUNCH,  /* a struct launch follows */
    RECORD_KERNEL,  /* a struct kernel_launch follows */
    RECORD_WAIT,    /* go on when another stream has reached a point */
    RECORD_POISON,  /* settle a poison (engine/order/poison.h) */
    RECORD_CHUNK,   /* the queue goes on in the next chunk */
    RECORD_NOTHING, /* was a launch, and has been taken back */
};

struct record {
    uint32_t bytes;    /* of the whole record, header included */
    uint8_t kind;      /* enum record_kind */
    bool ends;         /* the last one of its operation */
    uint16_t label;    /* of a launch: where in the record its operation's label is, NUL-terminated; 0: it has none */
    uint64_t weight;   /* rough cost in nanoseconds */
    uint64_t sequence; /* number of its operation in the session; 0: of none */
    uint64_t enqueued_ns;
    union {
        struct launch launch;
        struct kernel_launch kernel;
        struct {
            struct stream *stream;
            uint64_t number;
        } wait;
        struct {
            struct poison *result;
            struct poison *inputs[3];
            struct check *check;
        } poison;
    };
};

/* The label of its operation; NULL: it has none. */
static inline const char *record_label(const struct record *record) {
    return record->label ? (const char *)record + record->label : NULL;
}

enum {
    STREAM_CHUNK_BYTES = 64 << 10,
    STREAM_CLOCK_RECORDS = 64, /* a power of two: so many records may have one time */
    STREAM_MARKS = 64,
    STREAM_HOLDS = 8,
    STREAM_PRIORITIES = 3 /* above, at and below the default */
};

struct stream_chunk {
    struct stream_chunk *next;
    _Alignas(16) uint8_t records[STREAM_CHUNK_BYTES];
};

/* What was put on the device between two events, for the words of a device that gets stuck with it. The records are there
 * for as long as the event is. */
struct stream_span {
    const struct record *first, *last; /* launches */
    const struct record *wait;         /* the last wait for another stream */
    unsigned launches;
    uint64_t weight;
};

/* Records up to `number` have run when the event is reached. */
struct stream_mark {
    struct device_event *event; /* NULL: none of them is on the device */
    uint64_t number;
    struct stream_span span;
    uint64_t began_ns;      /* when the first of it was put on the device */
    uint32_t sample_weight; /* it is one launch, whose time is taken, and stands for so many; 0: it is none */
};

/* What the watch over the device found when it looked at a stream last (stall.c). */
struct stream_watch {
    bool due; /* what is oldest there has all it waits for */
    uint64_t completed, idle_ns;
    uint64_t weight; /* of all that was on the device when that became the oldest */
};

/* Record number `at` waits for a point that hung on bytes from elsewhere when it was enqueued. */
struct stream_hold {
    uint64_t at;
    struct stream *stream;
    uint64_t number;
};

struct stream {
    struct order *order;

    /* owner thread */
    uint64_t enqueued; /* number of the newest record */
    uint64_t weight;   /* of what was enqueued since the last publication */
    struct record *newest;
    uint64_t ops_enqueued; /* operations whose last record is here, */
    uint64_t
        ops_before;    /* and those of them that its session did not enqueue, for they came before it had the stream */
    uint64_t now_ns;   /* when the newest records were enqueued, roughly */
    const char *label; /* of the operation that is being enqueued; NULL: it has none */
    uint64_t sequence; /* of the same; 0 between two */
    uint64_t estimated_ns; /* by the device's own rates, of the same: its launches so far */
    struct report *report; /* of the same: where its launches that take long report; NULL: nowhere */
    struct stream_chunk *tail;
    size_t tail_used;
    struct waiter *waiters, *waiters_last; /* ascending numbers */
    struct stream *touched_next;           /* in order->touched */
    bool touched;
    struct stream *poll_next; /* in order->polled, */
    bool polled;              /* while it is there */
    struct stream *free_next; /* in order->streams_free, or outsides_free */
    struct stream *all_next;
    bool outside; /* has no records: outside_take() */
    unsigned n_holds;
    struct stream_hold holds[STREAM_HOLDS]; /* ascending; those that have been reached go when there is no room */
    uint64_t crowded, crowded_last;         /* there was none: first and last of the records that are taken for holds */
    struct stream_watch watch;

    /* under the order's lock */
    uint64_t published; /* records up to this one may run */
    struct run_group *group;
    struct stream *run_next; /* in its group, or set aside */
    bool runnable;           /* in the run queue, or being run */
    struct stream *signal_next;
    bool signalled; /* in the list of streams that reached a watched point */
    int priority;
    uint32_t id;      /* number of the stream, from 1 */
    int32_t role;     /* what it is to its session (engine/watch/trace.h) */
    uint64_t session; /* number of the session that has it; the submitter reads it while it has records to run */
    struct stream_mark marks[STREAM_MARKS]; /* the first is the reaper's to remove */
    unsigned marks_first, marks_count;
    struct stream *reap_next;
    bool reaping; /* in the reaper's list */
    /* For so long the device has been at this stream's work, up to the last turn or mark that ended, and, of that, for
     * sessions that had the stream before. Never falls. */
    uint64_t device_ns, device_ns_before;

    /* submitter */
    _Alignas(64) struct stream_chunk *head;
    size_t head_used;
    uint64_t executed;
    struct device_stream *device_streams[STREAM_PRIORITIES]; /* made when first used */
    struct device_stream *device_stream; /* the one in use; NULL: nothing was put on the device yet */
    struct device_begun *begun;          /* the next record's launch, which is under way; NULL: it is not */
    uint64_t begun_ns;                   /* since when, */
    uint32_t begun_sample;               /* and for how many launches its times stand; 0: they are not taken */
    uint64_t launch_ns;                  /* for so long the device has worked on it */
    uint64_t worked_ns;                  /* for so long the device has worked on that operation, */
    uint64_t worked; /* which has this number in the session; 0: none has been worked on in pieces */
    bool unmarked;   /* something is on the device behind the last event */
    _Atomic(const struct record *) running; /* the last launch of the turn; read by the owner, with the lock held */

    struct trace_line trace;

    /* reaper */
    _Alignas(64) struct stream_chunk *reap_head;
    size_t reap_used;
    uint64_t reaped;
    uint64_t reached_ns; /* when its last event had been reached; written with the lock held */

    /* written by the submitter, or by the reaper where there is one; read by the owner */
    _Alignas(64) _Atomic uint64_t completed;
    /* Operations that have run to their end, and those that never will, for the stream was cancelled or the device broke:
     * counted before `completed` tells of them. Neither ever falls. */
    _Atomic uint64_t ops_done, ops_skipped;
    _Atomic uint64_t chunks; /* of records that it has */
    /* written by the owner, read by the same */
    _Alignas(64) _Atomic uint64_t watched; /* the owner wants to know when this number is reached; UINT64_MAX: no */
    _Atomic bool cancelled;                /* skip launches, keep waits */
};

/* Memory's last uses: what must have run before somebody else may write there. Owner thread. */
struct use {
    struct stream *stream;
    uint64_t number;
};
enum { USES_MAX = 4 };
struct uses {
    struct use use[USES_MAX];
    unsigned count;
};

static inline bool point_reached(const struct stream *stream, uint64_t number) {
    return atomic_load(&stream->completed) >= number; /* see stream_watch() */
}

/* Counts a record's operation if it ends with that. For whoever writes `completed`, before it does. */
static inline void stream_count(struct stream *stream, const struct record *record, bool skipped) {
    _Atomic uint64_t *count = skipped ? &stream->ops_skipped : &stream->ops_done;
    if (record->ends)
        atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* Operations whose last record has not come to its end. Owner thread. */
static inline uint64_t stream_operations(const struct stream *stream) {
    return stream->ops_enqueued - atomic_load_explicit(&stream->ops_done, memory_order_relaxed) -
           atomic_load_explicit(&stream->ops_skipped, memory_order_relaxed);
}

/* Whether the owner waits for a point that has been reached now. It is told once, and says anew what it waits for when it
 * polls. For whoever writes `completed`. */
static inline bool stream_watched(struct stream *stream, uint64_t completed) {
    if (completed < atomic_load(&stream->watched))
        return false;
    atomic_store_explicit(&stream->watched, UINT64_MAX, memory_order_relaxed);
    return true;
}

/* Adds a use; uses that have run by now are dropped to make room. False: full. */
bool uses_add(struct uses *uses, struct stream *stream, uint64_t number);
/* Drops what has run; true when nothing is left. */
bool uses_idle(struct uses *uses);

/* What is enqueued from now on belongs to this operation; NULL and 0: to none. The label is the caller's, until the next call. */
static inline void stream_begin_operation(struct stream *stream, const char *label, uint64_t sequence) {
    stream->label = label;
    stream->sequence = sequence;
    stream->estimated_ns = 0;
}

/* Makes room for one record and numbers it; NULL out of memory, with nothing enqueued. The record runs once the stream
 * has been published, so the caller fills it before order_kick(). */
struct record *stream_push(struct stream *stream, enum record_kind kind, size_t bytes, uint64_t weight);
/* The newest record is the last one of an operation, which is done when that is. */
void stream_end_operation(struct stream *stream);
/* Where the stream's next record will be. */
struct stream_position {
    struct stream_chunk *chunk; /* NULL: in the stream's first one */
    size_t used;
    uint64_t number;
};
struct stream_position stream_position(const struct stream *stream);
/* Launches enqueued since then will not run. None of them may have been published, nor ended an operation. Their numbers stay, as do
 * waits, which others may rely on, and records of poison, which settle what they refer to. */
void stream_take_back(struct stream *stream, const struct stream_position *position);
/* Makes the stream's next record wait for a point of another one. Nothing is enqueued where the point was reached. */
int stream_wait(struct stream *stream, struct stream *other, uint64_t number);
/* Whether the point comes in any case: what is on a device ends, but bytes from elsewhere may be waiting for something
 * here, and nothing up to the point waits for any that have not come. False, too, where that would take long to find
 * out. Owner thread. */
bool stream_certain(const struct stream *stream, uint64_t number);
