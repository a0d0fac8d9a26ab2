#include "engine/order/order.h"

#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/order_impl.h"

enum {
    ORDER_INLINE_NS = 50 * 1000, /* estimated work that the owner does itself rather than switch threads */
    WAITER_STEPS = 8,            /* of the budget, for one callback */
    WAITER_CALLBACKS = 32,       /* of one stream, before other streams have their turn */
};

/* ---- life ---- */

static void order_lost(void *owner, const struct fault *fault) {
    order_latch(owner, fault);
}

static void order_stop_reaper(struct order *order) {
    if (!order->device->vtable->async)
        return;
    pthread_mutex_lock(&order->lock);
    order->submitted = true;
    pthread_cond_signal(&order->reap);
    pthread_mutex_unlock(&order->lock);
    pthread_join(order->reaper, NULL);
}

int order_init(struct order *order, struct device *device, void (*wake)(void *owner), void *owner) {
    order->device = device;
    order->wake = wake;
    order->owner = owner;
    order->polled_last = &order->polled;
    order->budget = (struct budget){.clock = clock_now, .until_ns = BUDGET_UNLIMITED};
    pthread_mutex_init(&order->lock, NULL);
    pthread_cond_init(&order->work, NULL);
    pthread_cond_init(&order->progress, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&order->reap, &monotonic);
    pthread_condattr_destroy(&monotonic);
    cost_init(&order->cost, device);
    reports_init(&order->reports, device);
    flight_init(&order->flight);
    trace_init(&order->trace, device, order_lost, order);
    samples_init(&order->samples);
    int error = device->vtable->async ? pthread_create(&order->reaper, NULL, reaper_main, order) : 0;
    if (error)
        return error;
    error = pthread_create(&order->thread, NULL, submitter_main, order);
    if (error)
        order_stop_reaper(order);
    return error;
}

/* Cancelled streams may still hold records that own something. On a device that runs later, the reaper makes room for the records
 * that are still to be put there. */
static void order_drain(struct order *order) {
    pthread_mutex_lock(&order->lock);
    order->submitting = true;
    submitter_run(order, false);
    while (order->blocked && order->device->vtable->async) {
        while (!order->outside_moved)
            pthread_cond_wait(&order->work, &order->lock);
        submitter_run(order, false);
    }
    pthread_mutex_unlock(&order->lock);
}

/* Before any memory is freed: a device that has failed may still run the work that it was given. */
static void order_destroy_device_streams(struct order *order) {
    for (struct stream *stream = order->streams_all; stream; stream = stream->all_next)
        for (int i = 0; i < STREAM_PRIORITIES; i++)
            if (stream->submit.device_streams[i])
                order->device->vtable->async->stream_destroy(order->device, stream->submit.device_streams[i]);
}

void order_stop(struct order *order) {
    pthread_mutex_lock(&order->lock);
    order->stopping = true;
    pthread_cond_signal(&order->work);
    pthread_mutex_unlock(&order->lock);
    pthread_join(order->thread, NULL);
    order_drain(order);
    order_stop_reaper(order);
    order_destroy_device_streams(order);
}

static void chunks_free(struct stream_chunk *chunk) {
    for (struct stream_chunk *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
}

static void order_free_lists(struct order *order) {
    for (struct stream *stream = order->streams_all, *next; stream; stream = next) {
        next = stream->all_next;
        free(stream->queue.tail.chunk);
        free(stream);
    }
    for (struct run_group *group = order->groups_free, *next; group; group = next) {
        next = group->free_next;
        free(group);
    }
    for (struct run_share *share = order->shares_free, *next; share; share = next) {
        next = share->free_next;
        free(share);
    }
    chunks_free(order->chunks);
    chunks_free(order->chunks_own);
    chunks_free(order->chunks_lost);
}

void order_finish(struct order *order) {
    for (struct stream *stream = order->streams_all; stream; stream = stream->all_next)
        trace_reaped(&order->trace, &stream->trace, UINT64_MAX, true);
    flight_finish(&order->flight);
    trace_finish(&order->trace);
    reports_finish(&order->reports);
    order_free_lists(order);
    pthread_cond_destroy(&order->reap);
    pthread_cond_destroy(&order->progress);
    pthread_cond_destroy(&order->work);
    pthread_mutex_destroy(&order->lock);
}

/* ---- work ---- */

/* Hands the streams with new records to the run queue; with the lock held. */
static void order_publish(struct order *order) {
    struct stream *touched = order->touched;
    order->touched = NULL;
    for (struct stream *next; touched; touched = next) {
        next = touched->touched.next;
        touched->touched.listed = false;
        touched->turns.published = touched->enqueued;
        order->run_weight += touched->queue.weight;
        touched->queue.weight = 0;
        if (!touched->turns.runnable)
            submitter_enqueue(order, touched);
    }
}

/* The owner polls next, so it does not wake itself. A thread that signals after this must not find the owner marked as woken. */
static void order_run_inline(struct order *order) {
    bool sent = order->wake_sent;
    order->wake_sent = true;
    order->submitting = true;
    submitter_run(order, true);
    order->submitting = false;
    order->wake_sent = sent;
    if (order->run.first) /* work that has turned out to take long */
        pthread_cond_signal(&order->work);
}

void order_kick(struct order *order) {
    if (!order_kick_due(order))
        return;
    order->kick_needed = false;
    pthread_mutex_lock(&order->lock);
    order_publish(order);
    if (order->submitting) {
        /* its loop will find the work */
    } else if (!order->device->vtable->async && order->run_weight <= ORDER_INLINE_NS) {
        order_run_inline(order);
    } else if (order->submitter_asleep) {
        pthread_cond_signal(&order->work);
    }
    pthread_mutex_unlock(&order->lock);
}

void order_await(struct order *order) {
    pthread_mutex_lock(&order->lock);
    order->wake_sent = false;
    while (!order->signalled && !order->polled && !atomic_load(&order->broken))
        pthread_cond_wait(&order->progress, &order->lock);
    pthread_mutex_unlock(&order->lock);
}

void order_trim_workspaces(struct order *order) {
    const struct device_async *async = order->device->vtable->async;
    if (!async || !async->trim)
        return;
    pthread_mutex_lock(&order->lock);
    order->trim_due = true;
    pthread_cond_signal(&order->work);
    pthread_mutex_unlock(&order->lock);
}

/* ---- callbacks at points of streams ---- */

static void stream_watch(struct stream *stream) {
    uint64_t number = stream->waiters.first ? stream->waiters.first->number : UINT64_MAX;
    /* The owner writes `watched` and then reads `completed`; the submitter writes `completed` and then reads `watched`. All four
     * accesses are sequentially consistent, so at least one of the two threads sees what the other has written. A fence would
     * do the same, but ThreadSanitizer does not follow fences. */
    atomic_store(&stream->watched, number);
}

static void waiter_unlink(struct waiter *waiter) {
    struct stream *stream = waiter->stream;
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        stream->waiters.first = waiter->next;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    else
        stream->waiters.last = waiter->previous;
    waiter->stream = NULL;
}

static void waiter_link(struct waiter *waiter) {
    struct stream *stream = waiter->stream;
    struct waiter *before = stream->waiters.last;
    while (before && before->number > waiter->number)
        before = before->previous;
    waiter->previous = before;
    waiter->next = before ? before->next : stream->waiters.first;
    if (waiter->next)
        waiter->next->previous = waiter;
    else
        stream->waiters.last = waiter;
    if (before)
        before->next = waiter;
    else
        stream->waiters.first = waiter;
}

void waiter_begin(struct waiter *waiter, struct stream *stream, uint64_t number,
                  void (*reached)(struct waiter *waiter)) {
    *waiter = (struct waiter){.stream = stream, .number = number, .reached = reached};
    waiter_link(waiter);
    if (stream->waiters.first == waiter) {
        stream_watch(stream);
        if (point_reached(stream, number))
            order_signal_self(stream->order, stream);
    }
}

void waiter_cancel(struct waiter *waiter) {
    if (waiter->stream)
        waiter_unlink(waiter);
}

/* Whether a stream's first waiter can be called back: on a broken device always, since some points are never reached there. */
static bool stream_answerable(const struct stream *stream) {
    return stream->waiters.first &&
           (point_reached(stream, stream->waiters.first->number) || atomic_load(&stream->order->broken));
}

/* False: the stream's turn or the budget is over, and more of its callbacks are due. */
static bool stream_call_back(struct stream *stream) {
    int left = WAITER_CALLBACKS;
    do {
        while (stream_answerable(stream)) {
            struct waiter *waiter = stream->waiters.first;
            waiter_unlink(waiter);
            waiter->reached(waiter);
            bool over = budget_spent(&stream->order->budget, WAITER_STEPS);
            if ((over || --left == 0) && stream_answerable(stream))
                return false;
        }
        stream_watch(stream);
    } while (stream_answerable(stream));
    return true;
}

/* ---- streams that have been signalled ---- */

void order_signal(struct order *order, struct stream *stream) {
    if (stream->signalled.listed)
        return;
    stream->signalled.listed = true;
    stream->signalled.next = order->signalled;
    order->signalled = stream;
}

void order_tell(struct order *order) {
    if (order->wake_sent)
        return;
    order->wake_sent = true;
    if (order->wake)
        order->wake(order->owner);
    else
        pthread_cond_signal(&order->progress);
}

void order_signal_self(struct order *order, struct stream *stream) {
    pthread_mutex_lock(&order->lock);
    order_signal(order, stream);
    bool tell = !order->wake_sent;
    order->wake_sent = true;
    pthread_mutex_unlock(&order->lock);
    if (tell && order->wake)
        order->wake(order->owner);
}

/* Moves the streams that were signalled to the end of the owner's own list. From then on they may be signalled again. */
static void order_collect(struct order *order) {
    pthread_mutex_lock(&order->lock);
    struct stream *signalled = order->signalled;
    order->signalled = NULL;
    order->wake_sent = false;
    for (struct stream *next; signalled; signalled = next) {
        next = signalled->signalled.next;
        signalled->signalled.listed = false;
        if (signalled->polled.listed)
            continue;
        signalled->polled.listed = true;
        signalled->polled.next = NULL;
        *order->polled_last = signalled;
        order->polled_last = &signalled->polled.next;
    }
    pthread_mutex_unlock(&order->lock);
}

/* Stream by stream, some callbacks at a time: a stream with many waiters does not hold up the others. */
void order_call_back(struct order *order) {
    order_collect(order);
    bool over = false;
    while (order->polled && !over) {
        struct stream *stream = order->polled;
        bool left = !stream_call_back(stream);
        order->polled = stream->polled.next;
        if (!order->polled)
            order->polled_last = &order->polled;
        stream->polled.listed = left;
        if (left) {
            stream->polled.next = NULL;
            *order->polled_last = stream;
            order->polled_last = &stream->polled.next;
        }
        over = budget_spent(&order->budget, 1);
    }
    if (atomic_load(&order->broken))
        for (struct stream *stream = order->streams_all; stream; stream = stream->all_next)
            while (!stream_call_back(stream))
                continue; /* without the budget: all sessions end now, so nobody is left whose turn it protects */
}

/* ---- the device's failure ---- */

/* With the lock held. The first failure stays. */
static void order_break(struct order *order, const struct fault *fault, bool blame) {
    if (atomic_load(&order->broken))
        return;
    order->latched = *fault;
    if (blame) {
        flight_blame(&order->flight, &order->latched);
        stall_blame(order, &order->latched);
    }
    atomic_store(&order->broken, true);
}

void order_latch(struct order *order, const struct fault *fault) {
    pthread_mutex_lock(&order->lock);
    order_break(order, fault, true);
    pthread_mutex_unlock(&order->lock);
}

void order_fail(struct order *order, const struct fault *fault, bool blame) {
    pthread_mutex_lock(&order->lock);
    order_break(order, fault, blame);
    order_tell(order);
    pthread_mutex_unlock(&order->lock);
}

int order_fault(struct order *order, struct fault *fault) {
    if (!atomic_load(&order->broken))
        return STATUS_OK;
    pthread_mutex_lock(&order->lock);
    int code = fault_set(fault, STATUS_DEVICE_LOST, "the device failed: %s", order->latched.message);
    pthread_mutex_unlock(&order->lock);
    return code;
}

/* ---- the device's time ---- */

uint64_t order_busy(const struct order *order, uint64_t now) {
    if (order->device->vtable->async)
        return order->busy_ns + (order->marked ? now - order->busy_since_ns : 0);
    return order->busy_ns + (order->turn ? now - order->turn_end_ns : 0);
}

uint64_t stream_time(const struct stream *stream, uint64_t now) {
    const struct order *order = stream->order;
    const struct stream_mark *mark = marks_at(&stream->marks, 0);
    uint64_t ns = stream->device_ns - stream->device_ns_before;
    if (order->turn == stream && !order->device->vtable->async)
        return ns + now - order->turn_end_ns;
    if (!stream->marks.count || !mark->event)
        return ns;
    return ns + now - (stream->reap.reached_ns > mark->began_ns ? stream->reap.reached_ns : mark->began_ns);
}
