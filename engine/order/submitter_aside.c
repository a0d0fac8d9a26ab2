/* Launches whose calls take long, because a library waits for the device or makes a plan: while the submitter was in one, no session would have
 * a turn. So a thread of the device's makes the call. The stream waits for it, even when it has been cancelled, since the call reads
 * the record; all other streams go on. */
#include "engine/device/device_impl.h"
#include "engine/order/submitter.h"

bool submitter_waits(const struct order *order, const struct stream *stream, const struct launch *launch) {
    const struct device_vtable *vtable = order->device->vtable;
    if (!vtable->async || !vtable->async->launch_aside)
        return false;
    const struct op_kernel *kernel = vtable->operations[launch->opcode];
    return stream->submit.aside.call || (kernel && kernel->waits && kernel->waits(order->device, launch));
}

/* Calls of one share and family at a time: fewer than a device makes side by side, so that there are threads for others. */
enum { SUBMITTER_ASIDES = 3 };

static uint8_t *aside_counter(const struct stream *stream, const struct launch *launch) {
    return &stream->group->share->asides[op_info(launch->opcode)->family];
}

bool submitter_aside_is_full(const struct order *order, const struct stream *stream, const struct launch *launch) {
    return !stream->submit.aside.call && *aside_counter(stream, launch) >= SUBMITTER_ASIDES &&
           !submitter_skips(order, stream);
}

/* Counts a call that has begun, or is over. */
static void aside_count(struct stream_aside *aside, uint8_t *counter) {
    if (aside->call && !aside->counter) {
        aside->counter = counter;
        ++*counter;
    } else if (!aside->call && aside->counter) {
        --*aside->counter;
        aside->counter = NULL;
    }
}

/* By the device's thread. */
static void aside_moved(void *context) {
    struct order *order = context;
    pthread_mutex_lock(&order->lock);
    order->outside_moved = true;
    pthread_cond_signal(&order->work);
    pthread_mutex_unlock(&order->lock);
}

bool submitter_launch_aside(struct order *order, struct stream *stream, const struct launch *launch,
                            const struct trace_launch *trace, bool traced, struct turn *turn) {
    struct stream_aside *aside = &stream->submit.aside;
    struct device_stream *device_stream = stream->submit.device_stream;
    struct fault fault;
    if (!aside->call) {
        if (!submitter_may_launch(order, stream, &device_stream))
            return true;
        aside->began_ns = clock_now();
        aside->traced = traced;
        if (traced)
            trace_before(&order->trace, device_stream, false, &aside->mark);
    }
    int code = order->device->vtable->async->launch_aside(order->device, device_stream, launch, aside_moved, order,
                                                          &aside->call, &fault);
    aside_count(aside, aside_counter(stream, launch));
    if (code == STATUS_AGAIN)
        return false;
    if (code != STATUS_OK)
        order_latch(order, &fault);
    turn->began_ns = aside->began_ns;
    submitter_count_launch(stream);
    if (aside->traced) {
        trace_after(&order->trace, &stream->trace, device_stream, trace, &aside->mark);
        submitter_count_trace(stream, device_stream);
    }
    return true;
}
