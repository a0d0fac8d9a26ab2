/* The submitter: takes launches from the streams, in turns, and hands them to the device.
 *
 * Its role belongs to one thread at a time: usually the engine's submitter thread, and sometimes the owner, which runs
 * a little work itself when nobody else is at it (engine_kick). Streams that wait for another one stay in the run queue
 * and are looked at again when something has moved. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "engine/device_impl.h"
#include "engine/engine_impl.h"

enum {
    SUBMITTER_TURN_RECORDS = 256,
    SUBMITTER_TURN_NS = 200 * 1000, /* of estimated work: then the next stream has its turn */
    SUBMITTER_SPIN_NS = 30 * 1000,  /* waking a sleeping core costs about this much */
};

static void submitter_latch(struct engine *engine, const struct fault *fault) {
    pthread_mutex_lock(&engine->lock);
    if (!atomic_load(&engine->broken)) {
        engine->latched = *fault;
        atomic_store(&engine->broken, true);
    }
    pthread_mutex_unlock(&engine->lock);
}

static void submitter_launch(struct engine *engine, const struct stream *stream, const struct launch *launch) {
    if (atomic_load_explicit(&stream->cancelled, memory_order_relaxed) ||
        atomic_load_explicit(&engine->broken, memory_order_relaxed))
        return;
    struct fault fault;
    if (engine->device->vtable->launch(engine->device, launch, &fault) != STATUS_OK)
        submitter_latch(engine, &fault);
}

/* Runs the stream's next record; false when it waits for another stream. */
static bool submitter_step(struct engine *engine, struct stream *stream, struct record *record) {
    switch ((enum record_kind)record->kind) {
    case RECORD_LAUNCH:
        submitter_launch(engine, stream, &record->launch);
        return true;
    case RECORD_WAIT:
        return point_reached(record->wait.stream, record->wait.number) ||
               atomic_load_explicit(&engine->broken, memory_order_relaxed); /* nothing runs any more */
    case RECORD_TAINT:
        taint_settle(record->taint.result, record->taint.inputs, record->taint.check);
        return true;
    case RECORD_LAUNCH_STAGED:
        submitter_launch(engine, stream, &record->launch);
        free(record->launch.inputs[0].data);
        return true;
    case RECORD_CHUNK:
        break;
    }
    return true;
}

/* The next record, with used-up chunks left behind in *done. */
static struct record *submitter_next(struct stream *stream, struct stream_chunk **done) {
    struct record *record = (struct record *)(stream->head->records + stream->head_used);
    if (record->kind == RECORD_CHUNK) {
        struct stream_chunk *used = stream->head;
        stream->head = used->next;
        stream->head_used = 0;
        used->next = *done;
        *done = used;
        record = (struct record *)stream->head->records;
    }
    return record;
}

/* What one turn of a stream did. */
struct turn {
    bool moved, blocked, signalled;
    uint64_t weight;
    struct stream_chunk *chunks;
};

/* Whether the owner waits for what has been reached. It is told once, and says anew what it waits for when it polls. */
static bool submitter_watched(struct stream *stream) {
    if (stream->executed < atomic_load(&stream->watched))
        return false;
    atomic_store_explicit(&stream->watched, UINT64_MAX, memory_order_relaxed);
    return true;
}

static void submitter_turn(struct engine *engine, struct stream *stream, uint64_t published, struct turn *turn) {
    uint64_t weight = 0;
    for (int i = 0; i < SUBMITTER_TURN_RECORDS && stream->executed < published; i++) {
        struct record *record = submitter_next(stream, &turn->chunks);
        if (!submitter_step(engine, stream, record)) {
            turn->blocked = true;
            break;
        }
        weight += record->weight;
        stream->head_used += record->bytes;
        stream->executed++;
        atomic_store_explicit(&stream->completed, stream->executed, memory_order_release);
        turn->moved = true;
        if (submitter_watched(stream)) {
            turn->signalled = true;
            break;
        }
        if (weight >= SUBMITTER_TURN_NS)
            break;
    }
    turn->weight = weight;
    /* Once more, now in one order with the owner's accesses: this last look at `watched` comes after it. */
    atomic_store(&stream->completed, stream->executed);
    if (submitter_watched(stream))
        turn->signalled = true;
}

static void group_enqueue(struct run_queue *run, struct run_group *group) {
    group->next = NULL;
    group->queued = true;
    if (run->last)
        run->last->next = group;
    else
        run->first = group;
    run->last = group;
}

void submitter_enqueue(struct engine *engine, struct stream *stream) {
    struct run_group *group = stream->group;
    int priority = stream->priority;
    stream->run_next = NULL;
    stream->runnable = true;
    if (group->last[priority])
        group->last[priority]->run_next = stream;
    else
        group->first[priority] = stream;
    group->last[priority] = stream;
    if (!group->queued)
        group_enqueue(&engine->run, group);
    atomic_store_explicit(&engine->work_hint, true, memory_order_relaxed);
}

static struct stream *group_dequeue(struct run_group *group) {
    for (int i = 0; i < ENGINE_PRIORITIES; i++) {
        struct stream *stream = group->first[i];
        if (!stream)
            continue;
        group->first[i] = stream->run_next;
        if (!group->first[i])
            group->last[i] = NULL;
        return stream;
    }
    return NULL;
}

static bool group_empty(const struct run_group *group) {
    for (int i = 0; i < ENGINE_PRIORITIES; i++)
        if (group->first[i])
            return false;
    return true;
}

/* The next stream of the group whose turn it is; the group goes to the end. */
static struct stream *submitter_dequeue(struct engine *engine) {
    struct run_queue *run = &engine->run;
    struct run_group *group = run->first;
    if (!group)
        return NULL;
    run->first = group->next;
    if (!run->first)
        run->last = NULL;
    group->queued = false;
    struct stream *stream = group_dequeue(group);
    if (!group_empty(group))
        group_enqueue(run, group);
    return stream;
}

static void submitter_return_chunks(struct engine *engine, struct stream_chunk *chunks) {
    while (chunks) {
        struct stream_chunk *next = chunks->next;
        if (engine->chunks_count < ENGINE_CHUNKS_KEPT) {
            chunks->next = engine->chunks;
            engine->chunks = chunks;
            engine->chunks_count++;
        } else {
            free(chunks);
        }
        chunks = next;
    }
}

/* Books a turn, with the lock held. */
static void submitter_book(struct engine *engine, struct stream *stream, const struct turn *turn) {
    engine->run_weight -= turn->weight;
    submitter_return_chunks(engine, turn->chunks);
    if (turn->signalled && !stream->signalled) {
        stream->signalled = true;
        stream->signal_next = engine->signalled;
        engine->signalled = stream;
    }
    bool tell = turn->signalled || atomic_load_explicit(&engine->broken, memory_order_relaxed);
    if (tell && !engine->wake_sent) {
        engine->wake_sent = true;
        if (engine->options.wake)
            engine->options.wake(engine->options.owner);
        else
            pthread_cond_signal(&engine->progress);
    }
}

static void submitter_enqueue_all(struct engine *engine, struct stream **list) {
    for (struct stream *stream = *list, *next; stream; stream = next) {
        next = stream->run_next;
        submitter_enqueue(engine, stream);
    }
    *list = NULL;
}

static void submitter_set_aside(struct engine *engine, struct stream *stream) {
    stream->run_next = engine->blocked;
    engine->blocked = stream;
}

/* Blocked streams are set aside and tried again when something has moved, here or outside. When only such are left the
 * role is given up, and whoever makes the awaited point happen kicks the engine. */
void submitter_run(struct engine *engine) {
    submitter_enqueue_all(engine, &engine->blocked);
    engine->outside_moved = false;
    struct stream *stream;
    while ((stream = submitter_dequeue(engine))) {
        uint64_t published = stream->published;
        pthread_mutex_unlock(&engine->lock);
        struct turn turn = {0};
        submitter_turn(engine, stream, published, &turn);
        pthread_mutex_lock(&engine->lock);
        submitter_book(engine, stream, &turn);
        bool outside_moved = engine->outside_moved; /* perhaps just after this stream was found blocked */
        engine->outside_moved = false;
        if (turn.moved || outside_moved)
            submitter_enqueue_all(engine, &engine->blocked);
        if (turn.blocked && !outside_moved)
            submitter_set_aside(engine, stream);
        else if (stream->executed < stream->published)
            submitter_enqueue(engine, stream);
        else
            stream->runnable = false;
    }
    atomic_store_explicit(&engine->work_hint, false, memory_order_relaxed);
}

static inline void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t submitter_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Waits a moment for work without the lock; only where another core can bring it. */
static void submitter_spin(struct engine *engine) {
    uint64_t end = submitter_clock() + SUBMITTER_SPIN_NS;
    do {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(&engine->work_hint, memory_order_relaxed))
                return;
            spin_pause();
        }
    } while (submitter_clock() < end);
}

void *submitter_main(void *argument) {
    struct engine *engine = argument;
    cpu_set_t cpus;
    bool spin = sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) > 1;
    pthread_mutex_lock(&engine->lock);
    while (!engine->stopping) {
        bool work = engine->run.first || engine->outside_moved;
        if (work && !engine->submitting) {
            engine->submitting = true;
            submitter_run(engine);
            engine->submitting = false;
            if (spin) {
                pthread_mutex_unlock(&engine->lock);
                submitter_spin(engine);
                pthread_mutex_lock(&engine->lock);
            }
            continue;
        }
        engine->submitter_asleep = true;
        pthread_cond_wait(&engine->work, &engine->lock);
        engine->submitter_asleep = false;
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}
