/* The submitter: takes launches from the streams, in turns, and hands them to the device.
 *
 * One thread at a time has the submitter's role: usually the submitter's own thread, and sometimes the owner, which runs a little
 * work itself when no other thread has the role (order_kick). Streams that wait for another stream are looked at again when some
 * stream has moved. */
#include <sched.h>
#include <stdlib.h>

#include "engine/device/device_impl.h"
#include "engine/device/thread.h"
#include "engine/order/submitter.h"

enum {
    SUBMITTER_TURN_RECORDS = 256,
    SUBMITTER_TURN_COST_NS = 1000, /* of the turn itself, so that turns of records without weight are not free */
    SUBMITTER_SPIN_NS = 30 * 1000, /* waking a sleeping core costs about this much */
    /* It is unknown how long clients' kernels run. So few of them share an event: the watch over the device looks at events. */
    SUBMITTER_TURN_KERNELS = 8,
    /* A launch that can be left is left after this time when another session waits: long compared with what leaving costs, and short
     * compared with what a client notices. */
    SUBMITTER_PART_NS = 1000 * 1000,
    /* A session that has had a turn within this time is expected to want another one. */
    SUBMITTER_SHARED_NS = 500 * 1000 * 1000,
    /* Launches of one stream on a device that runs later: CUDA queues some 1,000, and with more of them a call waits for room. */
    SUBMITTER_AHEAD = 512,
    /* Those of all streams, which may share one of CUDA's queues; but each stream may always have a few there. */
    SUBMITTER_AHEAD_ALL = 960,
    SUBMITTER_AHEAD_LEAST = 16,
    /* Of one run, turns that are on such a device at a time: few, since nothing stops what is there when the run is cancelled. */
    SUBMITTER_PARTS = SUBMITTER_AHEAD / SUBMITTER_PART_LAUNCHES,
};

/* The device's own stream for this stream; NULL if the device has failed. */
static struct device_stream *submitter_device_stream(struct order *order, struct stream *stream) {
    struct device_stream **slot = &stream->submit.device_streams[stream->turns.priority];
    struct fault fault;
    if (!*slot && order->device->vtable->async->stream_create(
                      order->device, STREAM_PRIORITIES / 2 - stream->turns.priority, slot, &fault) != STATUS_OK) {
        *slot = NULL;
        order_latch(order, &fault);
    }
    stream->submit.device_stream = *slot;
    return *slot;
}

bool submitter_skips(const struct order *order, const struct stream *stream) {
    return atomic_load_explicit(&stream->cancelled, memory_order_relaxed) ||
           atomic_load_explicit(&order->broken, memory_order_relaxed);
}

bool submitter_may_launch(struct order *order, struct stream *stream, struct device_stream **device_stream) {
    if (submitter_skips(order, stream))
        return false;
    if (order->device->vtable->async && !(*device_stream = submitter_device_stream(order, stream)))
        return false;
    stream->submit.unmarked = true;
    return true;
}

void submitter_count_launch(struct stream *stream) {
    stream->submit.unmarked_launches++;
}

void submitter_count_trace(struct stream *stream, const struct device_stream *device_stream) {
    stream->submit.unmarked_launches += device_stream ? 2 : 0;
}

void submitter_launch(struct order *order, struct stream *stream, const struct launch *launch) {
    const struct device_vtable *vtable = order->device->vtable;
    struct device_stream *device_stream = NULL;
    struct fault fault;
    if (!submitter_may_launch(order, stream, &device_stream))
        return;
    submitter_count_launch(stream);
    if (vtable->launch(order->device, device_stream, launch, &fault) != STATUS_OK)
        order_latch(order, &fault);
}

/* The time that a launch has taken corrects the estimates for similar launches. */
static void record_learn(struct order *order, const struct record *record, uint64_t ns) {
    if (record->kind == RECORD_LAUNCH)
        cost_learn(&order->cost, record->launch.opcode, launch_dtype(&record->launch), record->weight,
                   record->launch.factor, ns);
}

void submitter_abandon(struct order *order, struct stream *stream) {
    if (stream->submit.begun)
        order->device->vtable->abandon(order->device, stream->submit.begun);
    stream->submit.begun = NULL;
}

/* The launch's operation has been computed for as long as an operation may be. */
static void submitter_stop(struct order *order, struct stream *stream, struct report *report) {
    uint32_t none = STATUS_OK;
    if (atomic_compare_exchange_strong(&report->code, &none, STATUS_LIMIT))
        report->value = (int64_t)(stream->submit.worked_ns / 1000000);
    submitter_abandon(order, stream);
}

bool submitter_launch_part(struct order *order, struct stream *stream, const struct record *record,
                           const struct launch *launch, const struct fused_launch *fused, struct turn *turn) {
    struct report *report = launch ? launch->report : fused->report;
    uint64_t sequence =
        record->kind == RECORD_LAUNCH ? record->sequence : 0; /* a run's operations have their times for themselves */
    struct device_turn part = {.cancelled = &stream->cancelled,
                               .wanted = &order->wanted,
                               .turn_ns = turn->brief ? 0 : SUBMITTER_PART_NS,
                               .shared = turn->shared,
                               .progress = &order->pieces};
    struct fault fault;
    if (submitter_skips(order, stream)) {
        submitter_abandon(order, stream);
        return false;
    }
    if (!stream->submit.begun && (sequence == 0 || sequence != stream->submit.worked))
        stream->submit.worked_ns = 0;
    bool limited = turn->most_ns && report;
    if (limited)
        part.most_ns = turn->most_ns > stream->submit.worked_ns ? turn->most_ns - stream->submit.worked_ns : 1;
    bool fresh = !stream->submit.begun;
    stream->submit.launch_ns = fresh ? 0 : stream->submit.launch_ns;
    const struct device_vtable *vtable = order->device->vtable;
    int code = launch ? vtable->launch_part(order->device, launch, &part, &stream->submit.begun, &fault)
                      : vtable->launch_fused(order->device, fused, &part, &stream->submit.begun, &fault);
    if (code != STATUS_OK)
        order_latch(order, &fault);
    if (!part.used_ns)
        return false;
    if (fresh)
        stream->submit.begun_ns = clock_now() - part.used_ns;
    turn->cost += part.used_ns;
    stream->submit.worked = sequence;
    stream->submit.worked_ns += part.used_ns;
    stream->submit.launch_ns += part.used_ns;
    if (stream->submit.begun && limited && stream->submit.worked_ns >= turn->most_ns)
        submitter_stop(order, stream, report);
    else if (!stream->submit.begun)
        record_learn(order, record, stream->submit.launch_ns);
    if (submitter_skips(order, stream))
        submitter_abandon(order, stream);
    return stream->submit.begun;
}

void submitter_launch_kernel(struct order *order, struct stream *stream, const struct kernel_launch *launch) {
    const struct device_vtable *vtable = order->device->vtable;
    struct device_stream *device_stream = NULL;
    struct fault fault;
    if (!submitter_may_launch(order, stream, &device_stream))
        return;
    submitter_count_launch(stream);
    flight_note(&order->flight, &stream->completed, stream->submit.executed + 1, launch->name);
    if (vtable->kernels->launch(order->device, device_stream, launch, &fault) != STATUS_OK)
        order_latch(order, &fault);
}

static void submitter_launch_record(struct order *order, struct stream *stream, const struct record *record,
                                    struct turn *turn) {
    if (record->kind == RECORD_KERNEL)
        submitter_launch_kernel(order, stream, &record->kernel);
    else if (order->device->vtable->launch_part)
        turn->left = submitter_launch_part(order, stream, record, &record->launch, NULL, turn);
    else
        submitter_launch(order, stream, &record->launch);
}

void submitter_launch_flat_traced(struct order *order, struct stream *stream, const struct record *record,
                                  const struct flat_launch *launches, uint32_t n, uint64_t sequence) {
    for (uint32_t i = 0; i < n; i++) {
        const int64_t axis[2] = {launches[i].elements, 1};
        const struct launch launch = {
            .opcode = launches[i].opcode,
            .output = {launches[i].data[0], &axis[0], &axis[1], launches[i].dtype, launches[i].dtype, 1}};
        const struct trace_launch trace = {.session = stream->session,
                                           .sequence = sequence ? sequence : launches[i].sequence,
                                           .stream = stream->id,
                                           .role = stream->role,
                                           .number = stream->submit.executed + 1,
                                           .enqueued_ns = record->enqueued_ns,
                                           .launch = &launch};
        struct trace_mark mark;
        trace_before(&order->trace, NULL, NULL, &mark);
        order->device->vtable->launch_flat(order->device, &launches[i], 1);
        trace_after(&order->trace, &stream->trace, NULL, &trace, &mark);
    }
}

/* Small launches, with devices that have run them when launch_flat() returns. */
static void submitter_launch_flat(struct order *order, struct stream *stream, const struct record *record) {
    struct device *device = order->device;
    const struct flat_launch *launches = record->flat.launches;
    bool traced = trace_is_on(&order->trace) && trace_wants(&order->trace, stream->group->share, stream->session);
    if (submitter_skips(order, stream))
        return;
    for (uint32_t i = 0; i < record->flat.n; i++)
        history_note(&order->history, &stream->completed, stream->submit.executed + 1, stream->session,
                     launches[i].sequence, launches[i].opcode, NULL, NULL);
    if (__builtin_expect(!traced, 1)) {
        device->vtable->launch_flat(device, launches, record->flat.n);
        return;
    }
    submitter_launch_flat_traced(order, stream, record, launches, record->flat.n, 0);
}

struct trace_launch submitter_traced(const struct stream *stream, const struct record *record,
                                     const struct launch *launch, const char *kernel, const char *label) {
    return (struct trace_launch){.session = stream->session,
                                 .sequence = record->sequence,
                                 .stream = stream->id,
                                 .role = stream->role,
                                 .number = stream->submit.executed + 1,
                                 .enqueued_ns = record->enqueued_ns,
                                 .launch = launch,
                                 .kernel = kernel,
                                 .label = label};
}

static void submitter_launch_traced(struct order *order, struct stream *stream, const struct record *record,
                                    const struct trace_launch *launch, struct turn *turn) {
    struct device_stream *device_stream = NULL;
    struct trace_mark mark;
    if (!submitter_may_launch(order, stream, &device_stream)) {
        submitter_abandon(order, stream);
        return;
    }
    trace_before(&order->trace, device_stream, stream->submit.begun, &mark);
    submitter_launch_record(order, stream, record, turn);
    trace_after(&order->trace, &stream->trace, device_stream, launch, &mark);
    submitter_count_trace(stream, device_stream);
}

/* False: the stream waits for the call, which another thread makes. */
static bool submitter_step_launch(struct order *order, struct stream *stream, const struct record *record,
                                  struct turn *turn) {
    const struct launch *launch = record->kind == RECORD_LAUNCH ? &record->launch : NULL;
    const char *kernel = launch ? NULL : record->kernel.name;
    bool traced = trace_is_on(&order->trace) && trace_wants(&order->trace, stream->group->share, stream->session);
    bool waits = launch && submitter_waits(order, stream, launch);
    if (waits && submitter_aside_is_full(order, stream, launch))
        return false;
    if (!submitter_has_begun(stream))
        history_note(&order->history, &stream->completed, stream->submit.executed + 1, stream->session,
                     record->sequence, launch ? launch->opcode : 0, kernel, record_label(record));
    if (__builtin_expect(!traced && !waits, 1)) {
        submitter_launch_record(order, stream, record, turn);
        return true;
    }
    const struct trace_launch trace = submitter_traced(stream, record, launch, kernel, record_label(record));
    if (waits)
        return submitter_launch_aside(order, stream, launch, &trace, traced, turn);
    submitter_launch_traced(order, stream, record, &trace, turn);
    return true;
}

/* The event of the first mark that includes this number, or the last event before that mark. *marked: there is such a mark. If there
 * is one and the result is NULL, its records have run. With the lock held, since the reaper takes events out. */
static struct device_event *mark_event(const struct stream *stream, uint64_t number, bool *marked) {
    struct device_event *event = NULL;
    *marked = false;
    for (unsigned i = 0; i < stream->marks.count && !*marked; i++) {
        const struct stream_mark *mark = marks_at(&stream->marks, i);
        event = mark->event ? mark->event : event;
        *marked = mark->number >= number;
    }
    return event;
}

/* Makes later work of the stream wait, on the device, for another stream's records up to a number, which are on the device already;
 * and not for records that were put there since, if there is a mark between. */
static void submitter_order(struct order *order, struct stream *stream, struct stream *other, uint64_t number) {
    const struct device_async *async = order->device->vtable->async;
    struct device_event *event;
    struct fault fault;
    bool marked;
    if (!other->submit.device_stream || !submitter_device_stream(order, stream))
        return;
    stream->submit.unmarked = true;
    submitter_count_launch(stream);
    pthread_mutex_lock(&order->lock);
    event = mark_event(other, number, &marked);
    int waits =
        marked && event ? async->event_wait(order->device, stream->submit.device_stream, event, &fault) : STATUS_OK;
    pthread_mutex_unlock(&order->lock);
    if (waits != STATUS_OK)
        order_latch(order, &fault);
    if (marked)
        return;
    int code = async->event_record(order->device, other->submit.device_stream, &event, &fault);
    if (code == STATUS_OK) {
        code = async->event_wait(order->device, stream->submit.device_stream, event, &fault);
        async->event_release(order->device, event);
    }
    if (code != STATUS_OK)
        order_latch(order, &fault);
}

/* False: the stream has to wait here, since the awaited record has not been put on the device, or is no record of the device. */
static bool submitter_wait(struct order *order, struct stream *stream, const struct record *record) {
    struct stream *other = record->wait.stream;
    if (point_reached(other, record->wait.number) ||
        atomic_load_explicit(&order->broken, memory_order_relaxed)) /* no record runs any more */
        return true;
    if (!order->device->vtable->async || other->submit.executed < record->wait.number)
        return false;
    submitter_order(order, stream, other, record->wait.number);
    return true;
}

/* Runs the stream's next record, or puts it on the device; false if it waits for another stream, or for a call. */
static bool submitter_step(struct order *order, struct stream *stream, struct record *record, struct turn *turn) {
    switch ((enum record_kind)record->kind) {
    case RECORD_LAUNCH:
    case RECORD_KERNEL:
        atomic_store_explicit(&stream->submit.running, record, memory_order_relaxed);
        return submitter_step_launch(order, stream, record, turn);
    case RECORD_FLAT:
        atomic_store_explicit(&stream->submit.running, record, memory_order_relaxed);
        submitter_launch_flat(order, stream, record);
        return true;
    case RECORD_REPLAY:
        atomic_store_explicit(&stream->submit.running, record, memory_order_relaxed);
        submitter_replay(order, stream, record, turn);
        return !turn->waits;
    case RECORD_WAIT:
        return submitter_wait(order, stream, record);
    case RECORD_POISON:
        if (!order->device->vtable->async) /* else the reaper does it */
            poison_settle(record->poison.result, record->poison.inputs, record->poison.guard);
        return true;
    case RECORD_CHUNK:
    case RECORD_NOTHING:
        break;
    }
    return true;
}

static void turn_note(struct turn *turn, const struct record *record) {
    struct stream_span *span = &turn->span;
    if (record->kind == RECORD_WAIT)
        span->wait = record;
    if (record->kind != RECORD_LAUNCH && record->kind != RECORD_KERNEL)
        return;
    if (!span->launches++)
        span->first = record;
    span->last = record;
    span->weight += record->weight;
}

/* Whether a device that runs later has as much work as may be put on it in advance. With more, a launch might block the submitter. */
static bool submitter_far_ahead(const struct order *order, const struct stream *stream) {
    if (!order->device->vtable->async)
        return false;
    unsigned unmarked = stream->submit.unmarked_launches, ahead = atomic_load(&stream->submit.ahead) + unmarked;
    return atomic_load(&stream->submit.parts) >= SUBMITTER_PARTS || ahead >= SUBMITTER_AHEAD ||
           (ahead >= SUBMITTER_AHEAD_LEAST &&
            atomic_load_explicit(&order->ahead, memory_order_relaxed) + unmarked >= SUBMITTER_AHEAD_ALL);
}

/* On devices whose launches have run when they return: makes known that they have. */
static bool submitter_complete(struct stream *stream, struct turn *turn) {
    atomic_store_explicit(&stream->completed, stream->submit.executed, memory_order_release);
    turn->signalled = stream_watched(stream, stream->submit.executed);
    return turn->signalled;
}

/* On devices that run later, the reaper measures how long a launch ran. Elsewhere, a launch in parts has been `measured` and learned
 * from already: other launches may have run between the parts. */
static void submitter_note(struct order *order, const struct stream *stream, const struct record *record,
                           uint64_t launched_ns, uint32_t weight, bool measured) {
    bool async = order->device->vtable->async;
    uint64_t ran_ns = async ? 0 : measured ? stream->submit.launch_ns : clock_now() - launched_ns;
    if (!async && !measured && !submitter_skips(order, stream))
        record_learn(order, record, ran_ns);
    if (!submitter_skips(order, stream)) /* if it skips, the launch may not have run */
        samples_note(&order->samples, launched_ns > record->enqueued_ns ? launched_ns - record->enqueued_ns : 0,
                     ran_ns / record_launches(record), weight);
}

static void submitter_turn(struct order *order, struct stream *stream, uint64_t published, struct turn *turn) {
    bool async = order->device->vtable->async;
    int kernels = 0;
    for (int i = 0; i < SUBMITTER_TURN_RECORDS && stream->submit.executed < published; i++) {
        struct record *record = stream_next_record(stream, &stream->submit.at, async ? NULL : &turn->chunks);
        /* The launch's times count for so many launches; 0: they are not taken. */
        bool begun = submitter_has_begun(stream);
        uint32_t sample = begun ? stream->submit.begun_sample : 0;
        uint64_t launched_ns = stream->submit.begun_ns, cost = turn->cost;
        if (submitter_far_ahead(order, stream) || (turn->full && record->kind == RECORD_KERNEL)) {
            turn->blocked = true;
            break;
        }
        if (async && turn->moved && record->kind == RECORD_LAUNCH && submitter_waits(order, stream, &record->launch))
            break;
        uint32_t launches = record_launches(record);
        if (launches && !begun) {
            struct sampler *sampler = samples_of(&order->samples, record->weight / launches, async);
            if (!sampler_due(sampler) || turn->full) {
                sampler->since += launches;
            } else if (async && turn->moved) {
                break; /* the launch gets a turn of its own, so that an event before it and one after it tell how long it runs */
            } else {
                sample = samples_take(&order->samples, sampler, async);
                sampler->since = launches - 1;
                launched_ns = clock_now();
            }
        }
        if (async && record->kind == RECORD_REPLAY && !record->replay.begun && turn->moved &&
            replay_timed(record->replay.replay, record->replay.times))
            break; /* a timed run begins behind an event, too */
        turn->blocked = !submitter_step(order, stream, record, turn);
        if (turn->left || turn->blocked) {
            stream->submit.begun_sample = sample; /* the launch's times are taken when it has ended */
            stream->submit.begun_ns = turn->blocked ? launched_ns : stream->submit.begun_ns;
            break;
        }
        bool estimated = turn->cost == cost;
        if (estimated)
            turn->cost += record->weight;
        if (sample)
            submitter_note(order, stream, record, launched_ns, sample, !estimated);
        if (async)
            turn_note(turn, record);
        turn->weight += record->weight;
        stream->submit.at.used += record->bytes;
        stream->submit.executed++;
        turn->moved = true;
        kernels += record->kind == RECORD_KERNEL;
        if (!async)
            stream_count(stream, record, submitter_skips(order, stream));
        if ((!async && submitter_complete(stream, turn)) || turn->cost >= SUBMITTER_TURN_NS ||
            (async &&
             (sample || (record->kind == RECORD_REPLAY && record->replay.counts) || kernels == SUBMITTER_TURN_KERNELS ||
              stream->submit.executed == atomic_load(&stream->watched))) ||
            order->samples.count == SAMPLES_MAX) {
            turn->sample_weight = sample;
            break;
        }
    }
    if (async) {
        turn->mark = turn->moved || turn->left ? reaper_mark(order, stream) : (struct stream_mark){0};
        turn->mark.parts = turn->left;
        atomic_fetch_add(&stream->submit.parts, turn->left);
        if (turn->mark.event) {
            turn->mark.span = turn->span;
            turn->mark.began_ns = turn->began_ns;
            turn->mark.sample_weight = turn->sample_weight;
        }
        return;
    }
    /* Once more, now sequentially consistent, with a last look at `watched` after it: see stream_watch(). */
    atomic_store(&stream->completed, stream->submit.executed);
    turn->signalled = stream_watched(stream, stream->submit.executed) || turn->signalled;
}

void submitter_enqueue(struct order *order, struct stream *stream) {
    const struct stream *turn = order->turn;
    turns_enqueue(&order->run, stream);
    if (turn && (turn->group != stream->group || stream->turns.priority < turn->turns.priority))
        atomic_store_explicit(&order->wanted, true, memory_order_relaxed);
    atomic_store_explicit(&order->work_hint, true, memory_order_relaxed);
}

/* On devices whose launches have run when they return, the device worked for the turn's stream all the time. */
static void submitter_book_time(struct order *order, struct stream *stream, const struct turn *turn) {
    bool async = order->device->vtable->async;
    uint64_t ns = order->turn_end_ns - turn->began_ns;
    if (!async) {
        stream->device_ns += ns;
        order->busy_ns += ns;
    }
    if (order->samples.count)
        samples_book(&order->samples, &order->queue_time, async ? NULL : &order->run_time);
}

/* What the turn's share is charged. A device whose launches can be left does nothing else meanwhile: so the turn is charged its
 * time, and no session pays for estimates that were learned from other sessions' launches. */
static uint64_t submitter_turn_cost(const struct order *order, const struct stream *stream, const struct turn *turn) {
    if (order->device->vtable->launch_part)
        return order->turn_end_ns - turn->began_ns;
    bool skipped = atomic_load_explicit(&stream->cancelled, memory_order_relaxed); /* the launches cost nothing then */
    return (skipped ? 0 : turn->cost) + SUBMITTER_TURN_COST_NS;
}

/* While another thread makes a call, the device works. */
static void submitter_book_aside(struct order *order, struct stream *stream, struct stream_mark *mark) {
    bool under_way = stream->submit.aside.call;
    if (under_way && !stream->aside) {
        stream->aside = atomic_load_explicit(&stream->submit.running, memory_order_relaxed);
        reaper_count(order, stream->submit.aside.began_ns);
    } else if (!under_way && stream->aside) {
        stream->aside = NULL;
        mark->counted = mark->event;
        if (!mark->counted)
            reaper_uncount(order, clock_now());
    }
}

/* Books a turn, with the lock held. */
static void submitter_book(struct order *order, struct stream *stream, struct run_share *share, struct turn *turn) {
    order->run_weight -= turn->weight;
    turns_end(&order->run, share, turn->moved || turn->left ? submitter_turn_cost(order, stream, turn) : 0);
    chunks_give(order, turn->chunks);
    submitter_book_time(order, stream, turn);
    submitter_book_aside(order, stream, &turn->mark);
    if (turn->mark.number || turn->mark.parts)
        reaper_take(order, stream, turn->mark);
    if (turn->signalled)
        order_signal(order, stream);
    if (turn->signalled || atomic_load_explicit(&order->broken, memory_order_relaxed))
        order_tell(order);
}

static void submitter_enqueue_all(struct order *order, struct stream **list) {
    for (struct stream *stream = *list, *next; stream; stream = next) {
        next = stream->turns.next;
        submitter_enqueue(order, stream);
    }
    *list = NULL;
}

static void submitter_set_aside(struct order *order, struct stream *stream) {
    stream->turns.next = order->blocked;
    order->blocked = stream;
}

/* Whether more than one session has had turns of late. */
static bool submitter_shares(struct order *order, const struct stream *stream) {
    if (order->turn_group != stream->group)
        order->shared_ns = order->turn_end_ns;
    order->turn_group = stream->group;
    return order->turn_end_ns - order->shared_ns < SUBMITTER_SHARED_NS;
}

/* Blocked streams are set aside and tried again when some stream has moved, here or outside. When only blocked streams are left, the
 * role is given up, and the thread that reaches the awaited point kicks. */
void submitter_run(struct order *order, bool brief) {
    submitter_enqueue_all(order, &order->blocked);
    order->outside_moved = false;
    struct run_share *share;
    struct stream *stream;
    order->turn_end_ns = order->run.first ? clock_now() : 0;
    while ((stream = turns_begin(&order->run, &share))) {
        uint64_t published = stream->turns.published;
        struct turn turn = {.shared = submitter_shares(order, stream),
                            .brief = brief,
                            .full = stream->marks.count == STREAM_MARKS,
                            .began_ns = order->turn_end_ns,
                            .most_ns = share->operation_ns};
        bool wanted = brief || turns_wanted(&order->run, share, stream);
        atomic_store_explicit(&order->wanted, wanted, memory_order_relaxed);
        order->turn = stream;
        atomic_store_explicit(&stream->submit.running, NULL, memory_order_relaxed);
        pthread_mutex_unlock(&order->lock);
        submitter_turn(order, stream, published, &turn);
        pthread_mutex_lock(&order->lock);
        order->turn = NULL;
        order->turn_end_ns =
            clock_now(); /* with the lock held, so that figures that were read before are never larger */
        submitter_book(order, stream, share, &turn);
        bool outside_moved = order->outside_moved; /* perhaps just after this stream was found blocked */
        order->outside_moved = false;
        if (turn.moved || outside_moved)
            submitter_enqueue_all(order, &order->blocked);
        if (turn.blocked && !outside_moved)
            submitter_set_aside(order, stream);
        else if (turn.left)
            turns_enqueue_first(&order->run, stream);
        else if (stream->submit.executed < stream->turns.published)
            submitter_enqueue(order, stream);
        else
            stream->turns.runnable = false;
        if (brief && turn.left)
            return;
    }
    atomic_store_explicit(&order->work_hint, false, memory_order_relaxed);
}

static inline void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits a moment for work, without the lock. Only useful if another core can bring work. */
static void submitter_spin(struct order *order) {
    uint64_t end = clock_now() + SUBMITTER_SPIN_NS;
    do {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(&order->work_hint, memory_order_relaxed))
                return;
            spin_pause();
        }
    } while (clock_now() < end);
}

/* With the lock held. Has the submitter's role meanwhile: work that comes is found afterwards. */
static void submitter_trim(struct order *order) {
    order->trim_due = false;
    if (order->submitting || atomic_load(&order->broken))
        return;
    order->submitting = true;
    pthread_mutex_unlock(&order->lock);
    order->device->vtable->async->trim(order->device);
    pthread_mutex_lock(&order->lock);
    order->submitting = false;
}

void *submitter_main(void *argument) {
    struct order *order = argument;
    cpu_set_t cpus;
    thread_begin("submitter");
    bool spin = sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) > 1;
    pthread_mutex_lock(&order->lock);
    while (!order->stopping) {
        bool work = order->run.first || order->outside_moved;
        if (work && !order->submitting) {
            order->submitting = true;
            submitter_run(order, false);
            order->submitting = false;
            if (spin) {
                pthread_mutex_unlock(&order->lock);
                submitter_spin(order);
                pthread_mutex_lock(&order->lock);
            }
            continue;
        }
        if (order->trim_due) {
            submitter_trim(order);
            continue;
        }
        order->submitter_asleep = true;
        pthread_cond_wait(&order->work, &order->lock);
        order->submitter_asleep = false;
    }
    pthread_mutex_unlock(&order->lock);
    thread_end();
    return NULL;
}
