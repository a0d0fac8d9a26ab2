/* Traces, for the submitter and the reaper. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "engine/device/device.h"
#include "engine/watch/trace.h"

struct device_event;
struct device_stream;

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

/* The launches of a stream that are traced and have not run to their end. */
struct trace_line {
    struct trace_pending *first, *last; /* under the trace's lock */
    _Atomic bool any;                   /* the list is not empty */
    uint64_t ended_ns;                  /* when the last launch ended; reaper */
};

struct trace {
    struct device *device;
    void (*lost)(void *owner, const struct fault *fault); /* the device has failed for good */
    void *owner;
    _Atomic bool on;
    const void *_Atomic share; /* launches of this share alone; NULL: of all */
    _Atomic uint64_t session;  /* and of this session alone; 0: of all */
    struct trace_event *ring;  /* of TRACE_RING events; made at the first start, and kept */
    uint64_t began_ns;
    _Atomic uint64_t dropped;
    _Atomic uint64_t written; /* by the submitter, or the reaper where there is one */
    uint8_t apart[64];        /* in another line of the cache */
    _Atomic uint64_t read;    /* by the owner */
    pthread_mutex_t lock;     /* of the streams' lists of pending launches */
    /* submitter */
    struct device_stream *clock; /* without work, only to tell the time */
    struct trace_origin *origin;
    uint64_t looked_ns; /* when an origin was made, or failed to be made, last */
};

void trace_init(struct trace *trace, struct device *device, void (*lost)(void *owner, const struct fault *fault),
                void *owner);
/* No launch may be pending, and no thread may use the trace any more. */
void trace_finish(struct trace *trace);

static inline bool trace_is_on(const struct trace *trace) {
    return __builtin_expect(atomic_load_explicit(&trace->on, memory_order_relaxed), 0);
}

/* Whether the trace is on and records launches of this share and session. By the submitter. */
bool trace_wants(const struct trace *trace, const void *share, uint64_t session);

/* A launch, and where it comes from. */
struct trace_launch {
    uint64_t session, sequence;
    uint32_t stream;
    int32_t role;
    uint64_t number; /* of its record */
    uint64_t enqueued_ns;
    const struct launch *launch; /* NULL: it is a client's kernel */
    const char *kernel;          /* the name of that kernel */
    const char *label;           /* may be NULL */
};
/* The submitter calls trace_before() and trace_after() around the launch. `stream`: the device's own stream; NULL if launches have run
 * when they return. */
struct trace_mark {
    uint64_t begin_ns;
    bool further;                  /* a further piece of a launch that was left */
    struct trace_pending *pending; /* NULL: it is not recorded */
};
void trace_before(struct trace *trace, struct device_stream *stream, bool further, struct trace_mark *mark);
void trace_after(struct trace *trace, struct trace_line *line, struct device_stream *stream,
                 const struct trace_launch *launch, struct trace_mark *mark);
/* By the reaper: the stream's records up to this number have run, or, if `lost`, the device has failed. */
void trace_reaped(struct trace *trace, struct trace_line *line, uint64_t number, bool lost);
