/* The reaper: on a device whose launches run later, it follows the submitter through the streams' records and makes known which
 * records have run.
 *
 * It asks for the state of one event after the other, and does not sleep on one of them: streams do not end in the order in which
 * their events were recorded, and CUDA has no call that waits for the first of several events. A callback of CUDA's would not do,
 * since none comes after an error. The reaper asks often while events have just been reached, and more and more rarely while none
 * are. */
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "engine/device/device_impl.h"
#include "engine/device/thread.h"
#include "engine/order/order_impl.h"

enum {
    REAPER_EAGER_NS = 50 * 1000,    /* for so long after a record has run, the reaper asks without a pause */
    REAPER_NAP_NS = 20 * 1000,      /* then it makes pauses of this length, */
    REAPER_NAP_MAX_NS = 500 * 1000, /* and, while the owner waits for nothing, longer ones up to this length */
};

/* ---- the submitter's side ---- */

struct stream_mark reaper_mark(struct order *order, struct stream *stream) {
    const struct device_async *async = order->device->vtable->async;
    struct stream_mark mark = {.number = stream->submit.executed};
    struct fault fault;
    if (!stream->submit.unmarked || atomic_load(&order->broken))
        return mark;
    stream->submit.unmarked = false;
    mark.launches = stream->submit.unmarked_launches;
    stream->submit.unmarked_launches = 0;
    atomic_fetch_add(&stream->submit.ahead, mark.launches);
    atomic_fetch_add_explicit(&order->ahead, mark.launches, memory_order_relaxed);
    if (async->event_record(order->device, stream->submit.device_stream, &mark.event, &fault) != STATUS_OK) {
        mark.event = NULL;
        order_latch(order, &fault);
    }
    return mark;
}

static struct stream_span span_join(const struct stream_span *a, const struct stream_span *b) {
    return (struct stream_span){
        .first = a->launches ? a->first : b->first,
        .last = b->launches ? b->last : a->last,
        .wait = b->wait ? b->wait : a->wait,
        .launches = a->launches + b->launches,
        .weight = a->weight + b->weight,
    };
}

/* The device is busy while there is a mark that has not been reached. A mark has the device for itself if no other mark was there when
 * it came, and no other has come since. */
void reaper_count(struct order *order, uint64_t began_ns) {
    order->marked_alone = order->marked == 0 && began_ns >= order->busy_until_ns;
    if (!order->marked++)
        order->busy_since_ns = began_ns > order->busy_until_ns ? began_ns : order->busy_until_ns;
}

void reaper_uncount(struct order *order, uint64_t now) {
    if (--order->marked)
        return;
    order->busy_ns += now - order->busy_since_ns;
    order->busy_until_ns = now;
}

void reaper_take(struct order *order, struct stream *stream, struct stream_mark mark) {
    if (stream->marks.count == STREAM_MARKS) { /* the new mark replaces the last one and includes its records */
        struct stream_mark *last = &stream->marks.ring[(stream->marks.first + STREAM_MARKS - 1) % STREAM_MARKS];
        mark.span = span_join(&last->span, &mark.span);
        mark.parts += last->parts;
        mark.launches += last->launches;
        mark.sample_weight = 0;
        mark.began_ns = last->event ? last->began_ns : mark.began_ns;
        if (mark.counted && last->event)
            order->marked--; /* and the last mark stays counted */
        else if (mark.event && !last->event && !mark.counted)
            reaper_count(order, mark.began_ns);
        if (mark.event && last->event)
            order->device->vtable->async->event_release(order->device, last->event);
        else if (!mark.event)
            mark.event = last->event;
        *last = mark;
        return;
    }
    if (mark.event && !mark.counted)
        reaper_count(order, mark.began_ns);
    marks_add(&stream->marks, &mark);
    if (stream->reaping.listed)
        return;
    stream->reaping.listed = true;
    stream->reaping.next = order->reaping;
    order->reaping = stream;
    if (order->reaper_asleep)
        pthread_cond_signal(&order->reap);
}

/* ---- what has run ---- */

/* What one look at a stream found. */
struct reaped {
    bool moved, signalled;
    struct stream_chunk *chunks;
};

/* How long a timed run took: the event before it may have been reached only after it was put on the device. */
static uint64_t reaper_ran(const struct stream *stream, const struct replay_run *run) {
    uint64_t from_ns = stream->reap.walked_ns > run->began_ns ? stream->reap.walked_ns : run->began_ns;
    return stream->reap.reached_ns > from_ns ? stream->reap.reached_ns - from_ns : 0;
}

/* The stream's records up to `number` have run: settles their poison, and counts them. False: a record waits for a point of another
 * stream that is not known to have been reached. The device keeps the order of work, but causes of failures must be known in that
 * order, too. */
static bool reaper_walk(struct order *order, struct stream *stream, uint64_t number, struct reaped *reaped) {
    while (stream->reap.reaped < number) {
        struct record *record = stream_next_record(stream, &stream->reap.at, &reaped->chunks);
        if (record->kind == RECORD_WAIT && !point_reached(record->wait.stream, record->wait.number) &&
            !atomic_load(&order->broken))
            return false;
        bool skipped = atomic_load_explicit(&stream->cancelled, memory_order_relaxed) ||
                       atomic_load_explicit(&order->broken, memory_order_relaxed);
        if (record->kind == RECORD_REPLAY) {
            replay_end(&record->replay, true);
            if (!skipped)
                replay_count(&record->replay, reaper_ran(stream, &record->replay));
        }
        if (record->kind == RECORD_POISON)
            poison_settle(record->poison.result, record->poison.inputs, record->poison.guard);
        if (atomic_load_explicit(&stream->trace.any, memory_order_relaxed))
            trace_reaped(&order->trace, &stream->trace, stream->reap.reaped + 1, atomic_load(&order->broken));
        stream_count(stream, record, skipped);
        stream->reap.walked_ns = stream->reap.reached_ns;
        stream->reap.at.used += record->bytes;
        stream->reap.reaped++;
        reaped->moved = true;
    }
    return true;
}

/* Whether the event has been reached. True also on a failed device, where no event is reached any more and nothing has to wait. */
static bool reaper_reached(struct order *order, struct device_event *event) {
    bool reached = false;
    struct fault fault;
    if (atomic_load(&order->broken))
        return true;
    if (order->device->vtable->async->event_reached(order->device, event, &reached, &fault) == STATUS_OK)
        return reached;
    order_latch(order, &fault);
    return true;
}

/* Books the device's time of a mark that has been reached. With the lock held, also while the clock is read, so that figures that were
 * read before are never larger. */
static void reaper_book_time(struct order *order, struct stream *stream, const struct stream_mark *mark) {
    uint64_t now = clock_now();
    uint64_t ns = now - (stream->reap.reached_ns > mark->began_ns ? stream->reap.reached_ns : mark->began_ns);
    stream->reap.reached_ns = now;
    stream->device_ns += ns;
    if (mark->sample_weight && !atomic_load(&order->broken))
        histogram_add(&order->run_time, ns, mark->sample_weight);
    bool one = mark->sample_weight && mark->span.launches == 1;
    const struct record *launch = one && order->marked_alone ? mark->span.first : NULL;
    if (launch && launch->kind == RECORD_LAUNCH && !atomic_load_explicit(&stream->cancelled, memory_order_relaxed))
        cost_learn(&order->cost, launch->launch.opcode, launch_dtype(&launch->launch), launch->weight,
                   launch->launch.factor, ns);
    reaper_uncount(order, now);
}

/* Whether the stream's first mark has been reached, and its number. Its event is taken out then. */
static bool reaper_pass_mark(struct order *order, struct stream *stream, uint64_t *number, struct reaped *reaped) {
    pthread_mutex_lock(&order->lock);
    bool any = stream->marks.count > 0;
    struct stream_mark mark = any ? *marks_at(&stream->marks, 0) : (struct stream_mark){0};
    pthread_mutex_unlock(&order->lock);
    if (!any || (mark.event && !reaper_reached(order, mark.event)))
        return false;
    if (mark.event) {
        pthread_mutex_lock(&order->lock);
        reaper_book_time(order, stream, &mark);
        stream->marks.ring[stream->marks.first].event = NULL;
        stream->marks.ring[stream->marks.first].span = (struct stream_span){0};
        pthread_mutex_unlock(&order->lock);
        order->device->vtable->async->event_release(order->device, mark.event); /* nothing can wait for it any more */
    }
    if (mark.parts || mark.launches) {
        pthread_mutex_lock(&order->lock); /* they are taken off once, however often the mark is looked at */
        stream->marks.ring[stream->marks.first].parts = stream->marks.ring[stream->marks.first].launches = 0;
        pthread_mutex_unlock(&order->lock);
        atomic_fetch_sub(&stream->submit.parts, mark.parts);
        atomic_fetch_sub(&stream->submit.ahead, mark.launches);
        atomic_fetch_sub_explicit(&order->ahead, mark.launches, memory_order_relaxed);
        reaped->moved = true; /* the run may continue, and a stream that was too far ahead */
    }
    *number = mark.number;
    return true;
}

static void reaper_drop_mark(struct order *order, struct stream *stream) {
    pthread_mutex_lock(&order->lock);
    marks_drop(&stream->marks);
    pthread_mutex_unlock(&order->lock);
}

static struct reaped reaper_look(struct order *order, struct stream *stream) {
    struct reaped reaped = {0};
    uint64_t number;
    while (reaper_pass_mark(order, stream, &number, &reaped)) {
        bool whole = reaper_walk(order, stream, number, &reaped);
        atomic_store(&stream->completed, stream->reap.reaped); /* before the look at `watched`: see stream_watch() */
        if (stream_watched(stream, stream->reap.reaped))
            reaped.signalled = true;
        if (!whole)
            break;
        reaper_drop_mark(order, stream);
    }
    return reaped;
}

/* ---- the thread ---- */

/* Books what a look has found, with the lock held. A stream with marks left goes back into the list. */
static void reaper_book(struct order *order, struct stream *stream, const struct reaped *reaped) {
    chunks_give(order, reaped->chunks);
    if (reaped->signalled)
        order_signal(order, stream);
    if (reaped->signalled || atomic_load(&order->broken))
        order_tell(order);
    if (reaped->moved && (order->blocked || order->submitting)) { /* a stream may wait because it was too far ahead */
        order->outside_moved = true;
        pthread_cond_signal(&order->work);
    }
    stream->reaping.listed = stream->marks.count > 0;
    if (!stream->reaping.listed)
        return;
    stream->reaping.next = order->reaping;
    order->reaping = stream;
}

/* Looks at every stream once. Called with the lock held, which is given up during the looks. */
static bool reaper_round(struct order *order, bool *watched) {
    struct stream *list = order->reaping;
    bool moved = false;
    order->reaping = NULL;
    for (struct stream *next; list; list = next) {
        next = list->reaping.next;
        pthread_mutex_unlock(&order->lock);
        struct reaped reaped = reaper_look(order, list);
        pthread_mutex_lock(&order->lock);
        reaper_book(order, list, &reaped);
        *watched = *watched || atomic_load_explicit(&list->watched, memory_order_relaxed) != UINT64_MAX;
        moved = moved || reaped.moved;
    }
    return moved;
}

/* Sleeps until new work is marked, but no longer than a pause. Unless the owner waits, the pause grows with the time in which no record
 * has run. */
static void reaper_nap(struct order *order, uint64_t now, uint64_t idle_ns, bool watched) {
    if (idle_ns < REAPER_EAGER_NS) {
        pthread_mutex_unlock(&order->lock);
        sched_yield();
        pthread_mutex_lock(&order->lock);
        return;
    }
    uint64_t nap = idle_ns / 4 > REAPER_NAP_MAX_NS ? REAPER_NAP_MAX_NS : idle_ns / 4;
    uint64_t end = now + (nap > REAPER_NAP_NS && !watched ? nap : REAPER_NAP_NS);
    struct timespec until = {.tv_sec = (time_t)(end / 1000000000u), .tv_nsec = (long)(end % 1000000000u)};
    order->reaper_asleep = true;
    pthread_cond_timedwait(&order->reap, &order->lock, &until);
    order->reaper_asleep = false;
}

void *reaper_main(void *argument) {
    struct order *order = argument;
    uint64_t moved_ns = clock_now();
    thread_begin("reaper");
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* else a nap of 20 µs takes 70 at least */
    pthread_mutex_lock(&order->lock);
    while (order->reaping || !order->submitted) {
        if (!order->reaping) {
            order->reaper_asleep = true;
            pthread_cond_wait(&order->reap, &order->lock);
            order->reaper_asleep = false;
            moved_ns = clock_now();
            continue;
        }
        bool watched = false, moved = reaper_round(order, &watched);
        uint64_t now = clock_now();
        if (moved)
            moved_ns = now;
        else if (order->reaping)
            reaper_nap(order, now, now - moved_ns, watched);
    }
    pthread_mutex_unlock(&order->lock);
    thread_end();
    return NULL;
}
