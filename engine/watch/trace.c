#include "engine/watch/trace.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/device/device_impl.h"
#include "engine/engine_impl.h"
#include "engine/session/tenant_impl.h"

enum {
    TRACE_RING = (64 << 20) / sizeof(struct trace_event),
    TRACE_ORIGIN_WAIT_NS = 100 * 1000 * 1000,
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

bool trace_next(struct engine *engine, struct trace_event *event) {
    struct trace *trace = &engine->trace;
    uint64_t read = atomic_load_explicit(&trace->read, memory_order_relaxed);
    while (read != atomic_load_explicit(&trace->written, memory_order_acquire)) {
        *event = trace->ring[read % TRACE_RING];
        atomic_store_explicit(&trace->read, ++read, memory_order_release);
        if (event->begin_ns >= trace->began_ns) /* else it belongs to a trace before this one */
            return true;
    }
    return false;
}

uint64_t trace_dropped(const struct engine *engine) {
    return atomic_load_explicit(&engine->trace.dropped, memory_order_relaxed);
}

/* ---- start and end ---- */

void trace_init(struct engine *engine) {
    pthread_mutex_init(&engine->trace.lock, NULL);
}

bool trace_wants(const struct trace *trace, const struct stream *stream) {
    if (!atomic_load_explicit(&trace->on, memory_order_acquire))
        return false;
    const struct run_share *share = atomic_load_explicit(&trace->share, memory_order_relaxed);
    uint64_t session = atomic_load_explicit(&trace->session, memory_order_relaxed);
    if (session && stream->session != session)
        return false;
    return !share || (stream->group && stream->group->share == share);
}

int trace_start(struct engine *engine, const struct tenant *tenant, uint64_t session, struct fault *fault) {
    const struct device_async *async = engine->device->vtable->async;
    struct trace *trace = &engine->trace;
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
    trace->began_ns = engine_clock();
    atomic_store(&trace->session, session);
    atomic_store(&trace->share, tenant ? tenant->share : NULL);
    atomic_store(&trace->on, true); /* whoever sees this has not seen an older ring */
    return STATUS_OK;
}

void trace_stop(struct engine *engine) {
    atomic_store(&engine->trace.on, false);
}

uint64_t trace_host_bytes(void) {
    return TRACE_RING * sizeof(struct trace_event);
}

/* Somebody may be writing an event just now, so the ring's addresses stay. */
void trace_rest(struct engine *engine) {
    struct trace *trace = &engine->trace;
    if (trace->ring)
        madvise(trace->ring, TRACE_RING * sizeof *trace->ring, MADV_DONTNEED);
}

static void origin_unref(struct engine *engine, struct trace_origin *origin) {
    if (!origin || atomic_fetch_sub(&origin->references, 1) > 1)
        return;
    engine->device->vtable->async->event_release(engine->device, origin->event);
    free(origin);
}

static void pending_destroy(struct engine *engine, struct trace_pending *pending) {
    const struct device_async *async = engine->device->vtable->async;
    if (pending->begin)
        async->event_release(engine->device, pending->begin);
    if (pending->end)
        async->event_release(engine->device, pending->end);
    origin_unref(engine, pending->origin);
    free(pending);
}

void trace_finish(struct engine *engine) {
    struct trace *trace = &engine->trace;
    for (struct stream *stream = engine->streams_all; stream; stream = stream->all_next)
        trace_reaped(engine, stream, UINT64_MAX);
    origin_unref(engine, trace->origin);
    if (trace->clock)
        engine->device->vtable->async->stream_destroy(engine->device, trace->clock);
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

static void trace_describe(struct trace_event *event, const struct stream *stream, const struct record *record) {
    bool kernel = record->kind == RECORD_KERNEL;
    unsigned extents = 0;
    event->n_operands = 0;
    event->session = stream->session;
    event->sequence = record->sequence;
    event->stream = stream->id;
    event->role = stream->role;
    event->bytes = 0;
    history_copy(event->name, sizeof event->name, kernel ? record->kernel.name : op_info(record->launch.opcode)->name);
    history_copy(event->label, sizeof event->label, record->label ? (const char *)record + record->label : "");
    if (kernel)
        return;
    event->bytes = operand_bytes(&record->launch.output);
    trace_note_operand(event, &record->launch.output, &extents);
    for (unsigned i = 0; i < record->launch.n_inputs; i++) {
        event->bytes += operand_bytes(&record->launch.inputs[i]);
        trace_note_operand(event, &record->launch.inputs[i], &extents);
    }
}

/* ---- the device's clock ---- */

/* An event on a stream with nothing on it is reached at once, and the host sees when. 0: not in time, or not at all. */
static uint64_t origin_reach(struct engine *engine, struct device_event *event) {
    uint64_t begun = engine_clock(), before = begun;
    struct fault fault;
    for (bool reached = false; before - begun < TRACE_ORIGIN_WAIT_NS;) {
        if (engine->device->vtable->async->event_reached(engine->device, event, &reached, &fault) != STATUS_OK) {
            engine_latch(engine, &fault);
            return 0;
        }
        uint64_t now = engine_clock();
        if (reached)
            return before + (now - before) / 2;
        before = now;
        sched_yield();
    }
    return 0;
}

static struct trace_origin *origin_create(struct engine *engine) {
    const struct device_async *async = engine->device->vtable->async;
    struct trace *trace = &engine->trace;
    struct trace_origin *origin = calloc(1, sizeof *origin);
    struct fault fault;
    int code = origin ? STATUS_OK : STATUS_NO_HOST_MEMORY;
    if (origin && !trace->clock)
        code = async->stream_create(engine->device, 0, &trace->clock, &fault);
    if (code == STATUS_OK)
        code = async->timed_record(engine->device, trace->clock, &origin->event, &fault);
    if (code == STATUS_OK && (origin->at_ns = origin_reach(engine, origin->event))) {
        atomic_init(&origin->references, 1);
        return origin;
    }
    if (code == STATUS_OK)
        async->event_release(engine->device, origin->event);
    else if (code == STATUS_DEVICE_LOST)
        engine_latch(engine, &fault);
    free(origin);
    return NULL;
}

/* A moment not too long ago; NULL: the device does not tell. One that does not answer is not asked with every launch. */
static struct trace_origin *trace_origin(struct engine *engine) {
    struct trace *trace = &engine->trace;
    if (trace->looked_ns && engine_clock() - trace->looked_ns < TRACE_ORIGIN_NS)
        return trace->origin;
    trace->looked_ns = engine_clock();
    struct trace_origin *origin = origin_create(engine);
    if (origin) {
        origin_unref(engine, trace->origin);
        trace->origin = origin;
    }
    return trace->origin;
}

/* ---- launches ---- */

/* The device's clock may be a little behind the host's. */
static uint64_t trace_queued(uint64_t enqueued_ns, uint64_t begin_ns) {
    return begin_ns > enqueued_ns ? begin_ns - enqueued_ns : 1;
}

static struct device_event *trace_time(struct engine *engine, struct stream *stream) {
    struct device_event *event = NULL;
    struct fault fault;
    int code = engine->device->vtable->async->timed_record(engine->device, stream->device_stream, &event, &fault);
    if (code == STATUS_DEVICE_LOST)
        engine_latch(engine, &fault);
    return code == STATUS_OK ? event : NULL;
}

void trace_before(struct engine *engine, struct stream *stream, struct trace_mark *mark) {
    *mark = (struct trace_mark){.begin_ns = engine_clock(), .further = stream->begun};
    if (!engine->device->vtable->async)
        return;
    struct trace_origin *origin = trace_origin(engine);
    mark->pending = origin ? calloc(1, sizeof *mark->pending) : NULL;
    if (!mark->pending)
        return;
    atomic_fetch_add(&origin->references, 1);
    mark->pending->origin = origin;
    mark->pending->begin = trace_time(engine, stream);
}

static void trace_append(struct engine *engine, struct stream *stream, struct trace_pending *pending) {
    pthread_mutex_lock(&engine->trace.lock);
    *(stream->traces ? &stream->traces_last->next : &stream->traces) = pending;
    stream->traces_last = pending;
    atomic_store_explicit(&stream->traced, true, memory_order_relaxed);
    pthread_mutex_unlock(&engine->trace.lock);
}

void trace_after(struct engine *engine, struct stream *stream, const struct record *record, struct trace_mark *mark) {
    struct trace_pending *pending = mark->pending;
    if (!engine->device->vtable->async) {
        struct trace_event event = {.begin_ns = mark->begin_ns, .end_ns = engine_clock()};
        event.queued_ns = mark->further ? 0 : trace_queued(record->enqueued_ns, event.begin_ns);
        trace_describe(&event, stream, record);
        trace_push(&engine->trace, &event);
        return;
    }
    if (pending)
        pending->end = trace_time(engine, stream);
    if (!pending || !pending->begin || !pending->end) {
        if (pending)
            pending_destroy(engine, pending);
        atomic_fetch_add_explicit(&engine->trace.dropped, 1, memory_order_relaxed);
        return;
    }
    pending->number = stream->executed + 1;
    pending->enqueued_ns = record->enqueued_ns;
    trace_describe(&pending->event, stream, record);
    trace_append(engine, stream, pending);
}

/* Both events have been reached. Times by different origins may differ by what the clocks are read apart; on a stream one
 * thing runs after the other. */
static void trace_settle(struct engine *engine, struct stream *stream, struct trace_pending *pending) {
    const struct device_async *async = engine->device->vtable->async;
    struct trace_event *event = &pending->event;
    int64_t begin, end;
    struct fault fault;
    if (!atomic_load(&engine->trace.on) || atomic_load(&engine->broken))
        return;
    int code = async->event_elapsed(engine->device, pending->origin->event, pending->begin, &begin, &fault);
    if (code == STATUS_OK)
        code = async->event_elapsed(engine->device, pending->begin, pending->end, &end, &fault);
    if (code == STATUS_DEVICE_LOST)
        engine_latch(engine, &fault);
    if (code != STATUS_OK) {
        atomic_fetch_add_explicit(&engine->trace.dropped, 1, memory_order_relaxed);
        return;
    }
    event->begin_ns = pending->origin->at_ns + (uint64_t)begin;
    if (event->begin_ns < stream->traced_ns)
        event->begin_ns = stream->traced_ns;
    event->queued_ns = trace_queued(pending->enqueued_ns, event->begin_ns);
    event->end_ns = event->begin_ns + (end > 0 ? (uint64_t)end : 0);
    stream->traced_ns = event->end_ns;
    trace_push(&engine->trace, event);
}

void trace_reaped(struct engine *engine, struct stream *stream, uint64_t number) {
    struct trace_pending *pending;
    pthread_mutex_lock(&engine->trace.lock);
    while ((pending = stream->traces) && pending->number <= number) {
        stream->traces = pending->next;
        if (!stream->traces)
            atomic_store_explicit(&stream->traced, false, memory_order_relaxed);
        pthread_mutex_unlock(&engine->trace.lock);
        trace_settle(engine, stream, pending);
        pending_destroy(engine, pending);
        pthread_mutex_lock(&engine->trace.lock);
    }
    pthread_mutex_unlock(&engine->trace.lock);
}
