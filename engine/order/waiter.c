/* Callbacks at points of streams. */
#include "engine/device/device_impl.h"
#include "engine/order/order_impl.h"

enum {
    WAITER_STEPS = 8,      /* of the budget: an answer is made, */
    WAITER_CALLBACKS = 32, /* and so many for one stream before others have their turn */
};

static void stream_watch(struct stream *stream) {
    uint64_t number = stream->waiters.first ? stream->waiters.first->number : UINT64_MAX;
    /* Before the owner's next look at `completed`, in the one order of all such accesses; the submitter does the same the
     * other way round, so one of the two sees the other. Not a fence: ThreadSanitizer does not follow those. */
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

/* Whether a stream's first waiter can be answered: always on a broken device, on which some points are never reached.
 */
static bool stream_answerable(const struct stream *stream) {
    return stream->waiters.first &&
           (point_reached(stream, stream->waiters.first->number) || atomic_load(&stream->order->broken));
}

/* False: more of the stream's callbacks are due than one stream's turn takes, or the budget. */
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

/* ---- what has been signalled ---- */

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

/* Moves the streams that were signalled to the owner's own list, behind those left from before: from then on they may be
 * signalled again. */
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
                continue; /* the sessions end now, and with them what the budget is for */
}

/* ---- who is told ---- */

void order_trim_workspaces(struct order *order) {
    const struct device_async *async = order->device->vtable->async;
    if (!async || !async->trim)
        return;
    pthread_mutex_lock(&order->lock);
    order->trim_due = true;
    pthread_cond_signal(&order->work);
    pthread_mutex_unlock(&order->lock);
}
