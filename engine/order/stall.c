/* The watch over a device that completes nothing: an endless kernel, or a driver's call that does not come back. What counts
 * is work that is the device's to do now: put on it, or in the submitter's hands; a stream that waits for bytes from
 * elsewhere is not the device's fault. All of it is found out by the owner when it looks, and costs a launch one store.
 *
 * Streams are watched one by one, too, since others may go on beside a kernel that does not end. There a stream may have to
 * wait its turn: devices have fewer queues than there are streams, so that all which was put on the device before may come
 * first, and so may whatever has a higher priority. */
#include <stdio.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/order_impl.h"
#include "proto/ops/utf8.h"

enum { STALL_STEP_NS = 1000 * 1000 * 1000, STALL_PATIENCE = 4 };
/* Workspaces are given back after this long without work, and again after the same time: what CUDA frees by then, it has
 * not freed the first time. */
#define STALL_REST_NS (UINT64_C(10) * 1000 * 1000 * 1000)

/* What the device is at, found with the lock held. */
struct suspect {
    const struct stream *stream; /* NULL: nobody */
    struct stream_span span;
};

/* Whether what a stream has on the device stands there for another stream's work. */
static bool span_waits(const struct stream_span *span) {
    return span->wait && !point_reached(span->wait->wait.stream, span->wait->wait.number);
}

/* Finds a stream with work on the device that does not wait for another stream's. */
static void suspect_marked(const struct order *order, struct suspect *suspect) {
    for (const struct stream *stream = order->streams_all; stream; stream = stream->all_next) {
        const struct stream_mark *mark = marks_at(&stream->marks, 0);
        if (!stream->marks.count || (suspect->stream && (!mark->span.launches || span_waits(&mark->span))))
            continue;
        bool better = !suspect->stream || !suspect->span.launches || span_waits(&suspect->span);
        if (better)
            *suspect = (struct suspect){stream, mark->span};
    }
}

/* A device that has failed tells no more which of its marks it has reached; and it may have failed at the launch that is
 * being made. */
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

/* The launch that is being made, unless others are on the device: a mark without launches may have run already. */
static void suspect_running(const struct order *order, struct suspect *suspect) {
    const struct stream *stream = order->turn;
    const struct record *record = stream ? atomic_load_explicit(&stream->submit.running, memory_order_relaxed) : NULL;
    if (!stream || suspect->span.launches || (suspect->stream && !record))
        return;
    *suspect = (struct suspect){.stream = stream};
    if (record)
        suspect->span = (struct stream_span){record, record, NULL, 1, record->weight};
}

/* ---- words ---- */

/* "matmul", "user kernel scan". Without its label: these words reach everybody on the device, and a label is its owner's. */
static void record_describe(const struct record *record, char *text, size_t size) {
    bool kernel = record->kind == RECORD_KERNEL; /* a client's: it lives as long as one of its launches */
    const char *name = kernel ? record->kernel.name : op_info(record->launch.opcode)->name;
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

/* A failure that lies in what runs, or has run, on the device shows with whatever call of it comes next; one of a launch
 * itself with that. */
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
    return stream->marks.count && mark->event && mark->span.launches && !span_waits(&mark->span);
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
        bool computes = stream->role >= 0; /* copies are in no kernel's way */
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

/* How long it may take beyond the timeout. The session whose stream was found stuck has been ended, and cannot be waited for
 * as long again: what it has on the device is all that keeps others from theirs. */
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

/* Whether the time without work has just passed a multiple of STALL_REST_NS. */
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
    if (stuck)
        suspect = (struct suspect){stuck, marks_at(&stuck->marks, 0)->span};
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
