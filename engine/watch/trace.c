#include "engine/watch/trace.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/device/clock.h"
#include "engine/device/device_impl.h"
#include "engine/watch/history.h"
#include "engine/watch/trace_impl.h"

enum {
    TRACE_RING = (64 << 20) / sizeof(struct trace_event),
    TRACE_ORIGIN_WAIT_NS = 100 * 1000 * 1000,
    TRACE_ORIGIN_TRIES = 16,
    TRACE_ORIGIN_CLOSE_NS = 10 * 1000,
};
/* CUDA tells the time between two events as a float of milliseconds: within a second that is exact to some 60 ns. */
#define TRACE_ORIGIN_NS (UINT64_C(1000) * 1000 * 1000)

/* ---- the ring ---- */

static void trace_push(struct trace *trace, const struct trace_event *event) {
    uint64_t written = atomic_load_explicit(&trace->written, memory_order_relaxed);
    if (written - atomic_load_explicit(&trace->read, memory_order_acquire) >= TRACE_RING) {
        atomic_fetch_add_explicit(&trace->dropped, 1, memory_order_relaxed);
        return;
    }
    trace->ring[written % TRACE_RING] = *event;
    atomic_store_explicit(&trace->written, written + 1, memory_order_release);
}

bool trace_next(struct trace *trace, struct trace_event *event) {
    uint64_t read = atomic_load_explicit(&trace->read, memory_order_relaxed);
    while (read != atomic_load_explicit(&trace->written, memory_order_acquire)) {
        *event = trace->ring[read % TRACE_RING];
        atomic_store_explicit(&trace->read, ++read, memory_order_release);
        if (event->begin_ns >= trace->began_ns) /* else it belongs to an earlier trace */
            return true;
    }
    return false;
}

uint64_t trace_dropped(const struct trace *trace) {
    return atomic_load_explicit(&trace->dropped, memory_order_relaxed);
}

/* ---- start and end ---- */

void trace_init(struct trace *trace, struct device *device, void (*lost)(void *owner, const struct fault *fault),
                void *owner) {
    trace->device = device;
    trace->lost = lost;
    trace->owner = owner;
    pthread_mutex_init(&trace->lock, NULL);
}

bool trace_wants(const struct trace *trace, const void *share, uint64_t session) {
    if (!atomic_load_explicit(&trace->on, memory_order_acquire))
        return false;
    const void *wanted = atomic_load_explicit(&trace->share, memory_order_relaxed);
    uint64_t only = atomic_load_explicit(&trace->session, memory_order_relaxed);
    return (!only || session == only) && (!wanted || share == wanted);
}

int trace_start(struct trace *trace, const void *share, uint64_t session, struct fault *fault) {
    const struct device_async *async = trace->device->vtable->async;
    if (async && (!async->timed_record || !async->event_elapsed))
        return fault_set(fault, STATUS_UNSUPPORTED, "this device does not tell when something ran");
    if (!trace->ring) {
        void *ring = mmap(NULL, TRACE_RING * sizeof *trace->ring, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (ring == MAP_FAILED)
            return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a trace");
        trace->ring = ring;
    }
    atomic_store(&trace->read, atomic_load(&trace->written));
    atomic_store(&trace->dropped, 0);
    trace->began_ns = clock_now();
    atomic_store(&trace->session, session);
    atomic_store(&trace->share, share);
    atomic_store(&trace->on, true); /* last: a thread that sees it sees the stores above, too */
    return STATUS_OK;
}

void trace_stop(struct trace *trace) {
    atomic_store(&trace->on, false);
}

uint64_t trace_host_bytes(void) {
    return TRACE_RING * sizeof(struct trace_event);
}

/* The ring stays mapped, since another thread may be writing an event just now. */
void trace_rest(struct trace *trace) {
    if (trace->ring)
        madvise(trace->ring, TRACE_RING * sizeof *trace->ring, MADV_DONTNEED);
}

static void origin_unref(struct trace *trace, struct trace_origin *origin) {
    if (!origin || atomic_fetch_sub(&origin->references, 1) > 1)
        return;
    trace->device->vtable->async->event_release(trace->device, origin->event);
    free(origin);
}

static void pending_destroy(struct trace *trace, struct trace_pending *pending) {
    const struct device_async *async = trace->device->vtable->async;
    if (pending->begin)
        async->event_release(trace->device, pending->begin);
    if (pending->end)
        async->event_release(trace->device, pending->end);
    origin_unref(trace, pending->origin);
    free(pending);
}

void trace_finish(struct trace *trace) {
    origin_unref(trace, trace->origin);
    if (trace->clock)
        trace->device->vtable->async->stream_destroy(trace->device, trace->clock);
    if (trace->ring)
        munmap(trace->ring, TRACE_RING * sizeof *trace->ring);
    pthread_mutex_destroy(&trace->lock);
}

/* ---- what a launch is ---- */

static uint64_t operand_bytes(const struct operand *operand) {
    uint64_t bytes = dtype_size(operand->dtype);
    for (unsigned i = 0; i < operand->rank; i++)
        bytes *= (uint64_t)operand->shape[i]; /* no tensor has 2^63 bytes */
    return bytes;
}

static void trace_note_operand(struct trace_event *event, const struct operand *operand, unsigned *extents) {
    if (*extents + operand->rank > TRACE_EXTENTS)
        return;
    event->dtypes[event->n_operands] = operand->dtype;
    event->ranks[event->n_operands++] = operand->rank;
    for (unsigned i = 0; i < operand->rank; i++)
        event->extents[(*extents)++] = operand->shape[i];
}

static void trace_describe(struct trace_event *event, const struct trace_launch *what) {
    const struct launch *launch = what->launch;
    unsigned extents = 0;
    event->n_operands = 0;
    event->session = what->session;
    event->sequence = what->sequence;
    event->stream = what->stream;
    event->role = what->role;
    event->bytes = 0;
    history_copy(event->name, sizeof event->name, launch ? op_info(launch->opcode)->name : what->kernel);
    history_copy(event->label, sizeof event->label, what->label ? what->label : "");
    if (!launch)
        return;
    event->bytes = operand_bytes(&launch->output);
    trace_note_operand(event, &launch->output, &extents);
    for (unsigned i = 0; i < launch->n_inputs; i++) {
        event->bytes += operand_bytes(&launch->inputs[i]);
        trace_note_operand(event, &launch->inputs[i], &extents);
    }
}

/* ---- the device's clock ---- */

/* An event on a stream without work, which is reached at once: between these two times of the host. */
struct origin_try {
    struct device_event *event; /* NULL: there is none */
    uint64_t from_ns, to_ns;
};

/* Puts the event there. It is reached after the begin of the last look that does not find it reached: when that look returns it may be.
 * STATUS_AGAIN: it was not reached in time, or the device has failed. */
static int origin_reach(struct trace *trace, struct origin_try *try, struct fault *fault) {
    const struct device_async *async = trace->device->vtable->async;
    uint64_t begun = clock_now(), look = begun;
    int code = async->timed_record(trace->device, trace->clock, &try->event, fault);
    if (code != STATUS_OK)
        return code;
    for (bool reached = false; look - begun < TRACE_ORIGIN_WAIT_NS; sched_yield()) {
        try->from_ns = look;
        look = clock_now();
        code = async->event_reached(trace->device, try->event, &reached, fault);
        try->to_ns = clock_now();
        if (code != STATUS_OK) {
            trace->lost(trace->owner, fault);
            break;
        }
        if (reached)
            return STATUS_OK;
    }
    return STATUS_AGAIN;
}

static void origin_drop(struct trace *trace, struct origin_try *try) {
    if (try->event)
        trace->device->vtable->async->event_release(trace->device, try->event);
    try->event = NULL;
}

/* The try whose times are closest together, of one, or of some before there is an origin: on a busy machine they may be milliseconds apart. */
static int origin_find(struct trace *trace, struct origin_try *best, struct fault *fault) {
    int code = STATUS_OK;
    for (int left = trace->origin ? 1 : TRACE_ORIGIN_TRIES; left > 0 && code == STATUS_OK; left--) {
        struct origin_try next = {NULL};
        code = origin_reach(trace, &next, fault);
        bool better = code == STATUS_OK && (!best->event || next.to_ns - next.from_ns < best->to_ns - best->from_ns);
        origin_drop(trace, better ? best : &next);
        *best = better ? next : *best;
        if (better && best->to_ns - best->from_ns < TRACE_ORIGIN_CLOSE_NS)
            break;
    }
    return best->event ? STATUS_OK : code;
}

/* The times of launches that are told by different origins have to agree, since one launch may wait for the other: so the device's own clock says how
 * long after the last origin this one is, and the host's corrects that only where it must be wrong. */
static uint64_t origin_time(struct trace *trace, const struct origin_try *found) {
    const struct trace_origin *last = trace->origin;
    struct fault fault;
    int64_t later;
    if (!last || trace->device->vtable->async->event_elapsed(trace->device, last->event, found->event, &later,
                                                             &fault) != STATUS_OK)
        return found->from_ns + (found->to_ns - found->from_ns) / 2;
    uint64_t at_ns = last->at_ns + (uint64_t)later;
    return at_ns < found->from_ns ? found->from_ns : at_ns > found->to_ns ? found->to_ns : at_ns;
}

static struct trace_origin *origin_create(struct trace *trace) {
    struct trace_origin *origin = calloc(1, sizeof *origin);
    struct origin_try found = {NULL};
    struct fault fault;
    int code = origin ? STATUS_OK : STATUS_NO_HOST_MEMORY;
    if (origin && !trace->clock)
        code = trace->device->vtable->async->stream_create(trace->device, 0, &trace->clock, &fault);
    if (code == STATUS_OK)
        code = origin_find(trace, &found, &fault);
    if (code == STATUS_OK) {
        origin->event = found.event;
        origin->at_ns = origin_time(trace, &found);
        atomic_init(&origin->references, 1);
        return origin;
    }
    if (code == STATUS_DEVICE_LOST)
        trace->lost(trace->owner, &fault);
    free(origin);
    return NULL;
}

/* A moment not too long ago; NULL: the device does not tell the time. It is asked once a second at most, even if it does not answer. */
static struct trace_origin *trace_origin(struct trace *trace) {
    if (trace->looked_ns && clock_now() - trace->looked_ns < TRACE_ORIGIN_NS)
        return trace->origin;
    trace->looked_ns = clock_now();
    struct trace_origin *origin = origin_create(trace);
    if (origin) {
        origin_unref(trace, trace->origin);
        trace->origin = origin;
    }
    return trace->origin;
}

/* ---- launches ---- */

/* The device's clock may be a little behind the host's. */
static uint64_t trace_queued(uint64_t enqueued_ns, uint64_t begin_ns) {
    return begin_ns > enqueued_ns ? begin_ns - enqueued_ns : 1;
}

static struct device_event *trace_time(struct trace *trace, struct device_stream *stream) {
    struct device_event *event = NULL;
    struct fault fault;
    int code = trace->device->vtable->async->timed_record(trace->device, stream, &event, &fault);
    if (code == STATUS_DEVICE_LOST)
        trace->lost(trace->owner, &fault);
    return code == STATUS_OK ? event : NULL;
}

void trace_before(struct trace *trace, struct device_stream *stream, bool further, struct trace_mark *mark) {
    *mark = (struct trace_mark){.begin_ns = clock_now(), .further = further};
    if (!stream)
        return;
    struct trace_origin *origin = trace_origin(trace);
    mark->pending = origin ? calloc(1, sizeof *mark->pending) : NULL;
    if (!mark->pending)
        return;
    atomic_fetch_add(&origin->references, 1);
    mark->pending->origin = origin;
    mark->pending->begin = trace_time(trace, stream);
}

static void trace_append(struct trace *trace, struct trace_line *line, struct trace_pending *pending) {
    pthread_mutex_lock(&trace->lock);
    *(line->first ? &line->last->next : &line->first) = pending;
    line->last = pending;
    atomic_store_explicit(&line->any, true, memory_order_relaxed);
    pthread_mutex_unlock(&trace->lock);
}

void trace_after(struct trace *trace, struct trace_line *line, struct device_stream *stream,
                 const struct trace_launch *launch, struct trace_mark *mark) {
    struct trace_pending *pending = mark->pending;
    if (!stream) {
        struct trace_event event = {.begin_ns = mark->begin_ns, .end_ns = clock_now()};
        event.queued_ns = mark->further ? 0 : trace_queued(launch->enqueued_ns, event.begin_ns);
        trace_describe(&event, launch);
        trace_push(trace, &event);
        return;
    }
    if (pending)
        pending->end = trace_time(trace, stream);
    if (!pending || !pending->begin || !pending->end) {
        if (pending)
            pending_destroy(trace, pending);
        atomic_fetch_add_explicit(&trace->dropped, 1, memory_order_relaxed);
        return;
    }
    pending->number = launch->number;
    pending->enqueued_ns = launch->enqueued_ns;
    trace_describe(&pending->event, launch);
    trace_append(trace, line, pending);
}

/* Both events have been reached. Times of different origins may be off by what the host's clock has corrected; but launches of one stream run one
 * after the other, so a begin before the last end is moved to it. */
static void trace_settle(struct trace *trace, struct trace_line *line, struct trace_pending *pending) {
    const struct device_async *async = trace->device->vtable->async;
    struct trace_event *event = &pending->event;
    int64_t begin, end;
    struct fault fault;
    int code = async->event_elapsed(trace->device, pending->origin->event, pending->begin, &begin, &fault);
    if (code == STATUS_OK)
        code = async->event_elapsed(trace->device, pending->begin, pending->end, &end, &fault);
    if (code == STATUS_DEVICE_LOST)
        trace->lost(trace->owner, &fault);
    if (code != STATUS_OK) {
        atomic_fetch_add_explicit(&trace->dropped, 1, memory_order_relaxed);
        return;
    }
    event->begin_ns = pending->origin->at_ns + (uint64_t)begin;
    if (event->begin_ns < line->ended_ns)
        event->begin_ns = line->ended_ns;
    event->queued_ns = trace_queued(pending->enqueued_ns, event->begin_ns);
    event->end_ns = event->begin_ns + (end > 0 ? (uint64_t)end : 0);
    line->ended_ns = event->end_ns;
    trace_push(trace, event);
}

void trace_reaped(struct trace *trace, struct trace_line *line, uint64_t number, bool lost) {
    struct trace_pending *pending;
    pthread_mutex_lock(&trace->lock);
    while ((pending = line->first) && pending->number <= number) {
        line->first = pending->next;
        if (!line->first)
            atomic_store_explicit(&line->any, false, memory_order_relaxed);
        pthread_mutex_unlock(&trace->lock);
        if (!lost && atomic_load(&trace->on))
            trace_settle(trace, line, pending);
        pending_destroy(trace, pending);
        pthread_mutex_lock(&trace->lock);
    }
    pthread_mutex_unlock(&trace->lock);
}
