/* The watch over a device that completes nothing, because of an endless kernel, or a driver's call that does not return. Only work
 * counts that the device could do now: work that was put on it, or that the submitter is putting there. A stream that waits for
 * bytes from elsewhere is not the device's fault. The owner finds all this out when it looks; a launch pays one store for it.
 *
 * Streams are watched one by one, too, since other streams may go on beside a kernel that does not end. But a stream may also have to
 * wait for its turn on the device: devices have fewer queues than there are streams, so work that was put on the device before may
 * come first, and so may work of a higher priority. */
#include <stdio.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/order_impl.h"
#include "proto/ops/utf8.h"

enum { STALL_STEP_NS = 1000 * 1000 * 1000, STALL_PATIENCE = 4 };
/* Workspaces are given back after this long without work, and once more after the same time, since CUDA does not free all of them the
 * first time. */
#define STALL_REST_NS (UINT64_C(10) * 1000 * 1000 * 1000)

/* The work that the device is doing now, found with the lock held. */
struct suspect {
    const struct stream *stream; /* NULL: none */
    struct stream_span span;
};

/* Whether a stream's work on the device waits there for another stream's work. */
static bool span_waits(const struct stream_span *span) {
    return span->wait && !point_reached(span->wait->wait.stream, span->wait->wait.number);
}

static struct stream_span span_of(const struct record *record) {
    return (struct stream_span){record, record, NULL, 1, record->weight};
}

/* The stream's oldest work that the device has: what is before its first mark, or the launch whose call another thread makes. False: there is
 * none. */
static bool stream_work(const struct stream *stream, struct stream_span *span) {
    if (!stream->marks.count && !stream->aside)
        return false;
    *span = stream->marks.count ? marks_at(&stream->marks, 0)->span : span_of(stream->aside);
    return true;
}

/* Finds a stream with work on the device that does not wait for another stream's. */
static void suspect_marked(const struct order *order, struct suspect *suspect) {
    for (const struct stream *stream = order->streams_all; stream; stream = stream->all_next) {
        struct stream_span span;
        if (!stream_work(stream, &span) || (suspect->stream && (!span.launches || span_waits(&span))))
            continue;
        bool better = !suspect->stream || !suspect->span.launches || span_waits(&suspect->span);
        if (better)
            *suspect = (struct suspect){stream, span};
    }
}

/* A device that has failed does not tell any more which of its marks it has reached; and it may have failed at the launch that is
 * being made. So all of the stream's launches are suspects. */
static void suspect_widen(const struct order *order, struct suspect *suspect) {
    const struct stream *stream = suspect->stream;
    const struct record *record =
        stream && order->turn == stream ? atomic_load_explicit(&stream->submit.running, memory_order_relaxed) : NULL;
    for (unsigned i = 1; stream && i < stream->marks.count; i++) {
        const struct stream_span *span = &marks_at(&stream->marks, i)->span;
        if (!span->launches)
            continue;
        if (!suspect->span.launches)
            suspect->span.first = span->first;
        suspect->span.last = span->last;
        suspect->span.launches += span->launches;
    }
    if (record && suspect->span.launches && suspect->span.last != record) {
        suspect->span.last = record;
        suspect->span.launches++;
    }
}

/* The launch that is being made, unless other launches are on the device. (A mark without launches may have run already.) */
static void suspect_running(const struct order *order, struct suspect *suspect) {
    const struct stream *stream = order->turn;
    const struct record *record = stream ? atomic_load_explicit(&stream->submit.running, memory_order_relaxed) : NULL;
    if (!stream || suspect->span.launches || (suspect->stream && !record))
        return;
    *suspect = (struct suspect){.stream = stream};
    if (record)
        suspect->span = span_of(record);
}

/* ---- words ---- */

/* "matmul", "user kernel scan". Without the label: all users of the device see these words, and a label belongs to one of them. */
static void record_describe(const struct record *record, char *text, size_t size) {
    if (record->kind == RECORD_REPLAY) {
        snprintf(text, size, "a program of %u launches", record->replay.replay->n_steps);
        return;
    }
    bool kernel = record->kind == RECORD_KERNEL; /* a client's kernel, which lives as long as one of its launches */
    unsigned opcode = record->kind == RECORD_FLAT ? record->flat.launches[0].opcode : record->launch.opcode;
    const char *name = kernel ? record->kernel.name : op_info(opcode)->name;
    char clean[OPERATION_NAME_MAX + 1];
    utf8_clean(clean, sizeof clean, name);
    snprintf(text, size, "%s%s", kernel ? "user kernel " : "", clean);
}

static void span_describe(const struct stream_span *span, char *text, size_t size) {
    char first[OPERATION_NAME_MAX + 24], last[sizeof first];
    text[0] = 0;
    if (!span->launches)
        return;
    record_describe(span->first, first, sizeof first);
    record_describe(span->last, last, sizeof last);
    if (span->launches == 1)
        snprintf(text, size, "%s", first);
    else
        snprintf(text, size, "one of %u launches, from %.70s to %.70s", span->launches, first, last);
}

/* A failure of work that the device runs, or has run, is reported by the next call of the device, whichever that is; a failure of a
 * launch itself is reported by that launch. */
void stall_blame(const struct order *order, struct fault *fault) {
    char operation[sizeof((struct order_stall){0}.operation)] = "";
    struct suspect suspect = {0};
    size_t used = strlen(fault->message);
    if (fault->code == STATUS_DEVICE_LOST) {
        suspect_marked(order, &suspect);
        suspect_widen(order, &suspect);
    }
    suspect_running(order, &suspect);
    if (suspect.stream)
        span_describe(&suspect.span, operation, sizeof operation);
    if (*operation)
        snprintf(fault->message + used, sizeof fault->message - used, "; the device was at %s", operation);
}

/* ---- the watch ---- */

static uint64_t stall_completed(const struct order *order) {
    uint64_t completed = atomic_load_explicit(&order->pieces, memory_order_relaxed);
    for (const struct stream *stream = order->streams_all; stream; stream = stream->all_next)
        completed += atomic_load_explicit(&stream->completed, memory_order_relaxed);
    return completed;
}

/* ---- stream by stream ---- */

static uint64_t weight_add(uint64_t a, uint64_t b) {
    return a + b < UINT64_MAX / 8 && a + b >= a ? a + b : UINT64_MAX / 8;
}

/* Whether the stream's oldest work on the device waits for nothing but the device. */
static bool stream_due(const struct stream *stream) {
    const struct stream_mark *mark = marks_at(&stream->marks, 0);
    if (!stream->marks.count)
        return stream->aside;
    return mark->event && mark->span.launches && !span_waits(&mark->span);
}

/* How much work all streams have on the device, and the highest priority of a stream whose work is due. */
struct device_load {
    uint64_t weight;
    int priority;
};

static struct device_load stall_load(const struct order *order) {
    struct device_load load = {0, STREAM_PRIORITIES};
    for (const struct stream *stream = order->streams_all; stream; stream = stream->all_next) {
        for (unsigned i = 0; i < stream->marks.count; i++)
            load.weight = weight_add(load.weight, marks_at(&stream->marks, i)->span.weight);
        if (stream->aside)
            load.weight = weight_add(load.weight, stream->aside->weight);
        bool computes = stream->role >= 0; /* copies do not delay kernels */
        if (computes && stream->turns.priority < load.priority && stream_due(stream))
            load.priority = stream->turns.priority;
    }
    return load;
}

static void stream_look(struct stream *stream, const struct device_load *load, uint64_t elapsed) {
    struct stream_watch *watch = &stream->watch;
    uint64_t completed = atomic_load_explicit(&stream->completed, memory_order_relaxed);
    bool due = stream_due(stream);
    if (!due || !watch->due || completed != watch->completed)
        *watch = (struct stream_watch){.due = due, .completed = completed, .weight = load->weight};
    else if (stream->turns.priority <= load->priority)
        watch->idle_ns += elapsed;
}

/* How long the work may take beyond the timeout. If this stream was reported as stuck before, its session has been ended, and its work
 * is not waited for as long again: nothing else keeps the other sessions from the device. */
static uint64_t stall_patience(const struct order *order, const struct stream *stream, uint64_t weight) {
    bool told = order->watch.told == stream && order->watch.told_at == atomic_load(&stream->completed);
    return told ? 0 : STALL_PATIENCE * (weight < UINT64_MAX / 8 ? weight : UINT64_MAX / 8);
}

/* Looks at all streams, with the lock held. Returns the stream that has been stuck for longest, if that is too long, or NULL. */
static const struct stream *stall_stuck(struct order *order, uint64_t timeout_ns, uint64_t elapsed) {
    const struct device_load load = stall_load(order);
    const struct stream *stuck = NULL;
    for (struct stream *stream = order->streams_all; stream; stream = stream->all_next) {
        stream_look(stream, &load, elapsed);
        if (timeout_ns && stream->watch.idle_ns >= timeout_ns + stall_patience(order, stream, stream->watch.weight))
            stuck = !stuck || stream->watch.idle_ns > stuck->watch.idle_ns ? stream : stuck;
    }
    return stuck;
}

/* ---- all of it ---- */

/* Whether the device's time without work has just passed STALL_REST_NS, or twice that. */
static bool stall_rested(struct order *order, bool resting, uint64_t elapsed) {
    uint64_t before = order->watch.rest_ns;
    order->watch.rest_ns = resting ? before + elapsed : 0;
    return before / STALL_REST_NS < order->watch.rest_ns / STALL_REST_NS && before < 2 * STALL_REST_NS;
}

void order_stall_again(struct order *order) {
    order->watch.idle_ns = 0;
    pthread_mutex_lock(&order->lock);
    for (struct stream *stream = order->streams_all; stream; stream = stream->all_next)
        stream->watch.idle_ns = 0;
    pthread_mutex_unlock(&order->lock);
}

bool order_stalled(struct order *order, uint64_t timeout_ns, struct order_stall *stall) {
    struct suspect suspect = {0};
    if (atomic_load(&order->broken))
        return false;
    uint64_t now = clock_now(), completed = stall_completed(order), elapsed = now - order->watch.looked_ns;
    elapsed = elapsed < STALL_STEP_NS ? elapsed : STALL_STEP_NS;
    order->watch.looked_ns = now;
    pthread_mutex_lock(&order->lock);
    const struct stream *stuck = stall_stuck(order, timeout_ns, elapsed);
    suspect_marked(order, &suspect);
    suspect_running(order, &suspect);
    if (stuck && stream_work(stuck, &suspect.span))
        suspect.stream = stuck;
    if (suspect.stream) /* its records are there while the lock is held */
        span_describe(&suspect.span, stall->operation, sizeof stall->operation);
    pthread_mutex_unlock(&order->lock);
    bool resting = !suspect.stream && completed == order->watch.completed;
    if (stall_rested(order, resting, elapsed))
        order_trim_workspaces(order);
    if (resting && order->device->vtable->measure) {
        order->device->vtable->measure(order->device);
        cost_follow(&order->cost, order->device);
    }
    bool idle = order->watch.busy && suspect.stream && completed == order->watch.completed;
    order->watch.busy = suspect.stream;
    order->watch.completed = completed;
    order->watch.idle_ns = idle ? order->watch.idle_ns + elapsed : 0;
    bool all = idle && timeout_ns &&
               order->watch.idle_ns >= timeout_ns + stall_patience(order, suspect.stream, suspect.span.weight);
    if (!all && !stuck)
        return false;
    stall->ns = stuck ? stuck->watch.idle_ns : order->watch.idle_ns;
    stall->stream = suspect.stream;
    order->watch.told = suspect.stream;
    order->watch.told_at = atomic_load(&suspect.stream->completed);
    return true;
}
