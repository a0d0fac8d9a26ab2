/* Traces, for the submitter and the reaper. */
#pragma once

#include <pthread.h>

#include "engine/order/stream.h"
#include "engine/watch/trace.h"

/* A moment by both clocks, the device's and the host's. */
struct trace_origin {
    _Atomic unsigned references;
    struct device_event *event;
    uint64_t at_ns;
};

/* A launch on a device that runs later, until it has run. */
struct trace_pending {
    struct trace_pending *next;
    uint64_t number; /* of its record */
    struct trace_origin *origin;
    struct device_event *begin, *end;
    uint64_t enqueued_ns;
    struct trace_event event;
};

struct trace {
    _Atomic bool on;
    const struct run_share *_Atomic share; /* whose launches alone; NULL: everybody's */
    _Atomic uint64_t session;              /* and whose alone; 0: all of these */
    struct trace_event *ring; /* TRACE_RING of them, made at the first start, and kept */
    uint64_t began_ns;
    _Atomic uint64_t dropped;
    _Atomic uint64_t written; /* by the submitter, or the reaper where there is one */
    uint8_t apart[64];        /* in another line of the cache */
    _Atomic uint64_t read;    /* by the owner */
    pthread_mutex_t lock;     /* of the streams' lists of pending launches */
    /* submitter */
    struct device_stream *clock; /* has nothing to do but to tell the time */
    struct trace_origin *origin;
    uint64_t looked_ns; /* for an origin, last */
};

void trace_init(struct engine *engine);
/* When no thread of the engine runs any more. */
void trace_finish(struct engine *engine);

static inline bool trace_is_on(const struct trace *trace) {
    return __builtin_expect(atomic_load_explicit(&trace->on, memory_order_relaxed), 0);
}

/* Whether it is on, and notes what this stream runs. By the submitter, while the stream has records to run. */
bool trace_wants(const struct trace *trace, const struct stream *stream);

/* By the submitter, around the launch of the stream's next record, with the stream on the device. */
struct trace_mark {
    uint64_t begin_ns;
    bool further;                  /* the launch goes on, which was left */
    struct trace_pending *pending; /* NULL: it is not recorded */
};
void trace_before(struct engine *engine, struct stream *stream, struct trace_mark *mark);
void trace_after(struct engine *engine, struct stream *stream, const struct record *record, struct trace_mark *mark);
/* By the reaper: the stream has run as far as this record. */
void trace_reaped(struct engine *engine, struct stream *stream, uint64_t number);
