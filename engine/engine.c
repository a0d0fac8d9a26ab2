#include "engine/engine.h"

#include <malloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/device/device_impl.h"
#include "engine/engine_impl.h"
#include "engine/session/held.h"
#include "engine/session/session_impl.h"

enum {
    ENGINE_INLINE_NS = 50 * 1000, /* estimated work that the owner does itself rather than switch threads */
    ENGINE_KEEP_BYTES = 64 << 20, /* memory kept reserved when the last session has gone */
    ENGINE_KEEP_HOST = 64 << 20,  /* and so much of the host's may have been freed without being given back */
    ENGINE_STAGING_BYTES = 1 << 30,
    ENGINE_CALLBACK_STEPS = 8, /* of the budget: an answer is made, */
    ENGINE_CALLBACKS = 32,     /* and so many for one stream before others have their turn */
};

uint64_t engine_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- life ---- */

static void engine_stop_reaper(struct engine *engine) {
    if (!engine->device->vtable->async)
        return;
    pthread_mutex_lock(&engine->lock);
    engine->submitted = true;
    pthread_cond_signal(&engine->reap);
    pthread_mutex_unlock(&engine->lock);
    pthread_join(engine->reaper, NULL);
}

/* With the lock held; the first one stays. */
static void engine_break(struct engine *engine, const struct fault *fault, bool blame) {
    if (atomic_load(&engine->broken))
        return;
    engine->latched = *fault;
    if (blame) {
        flight_blame(&engine->flight, &engine->latched);
        stall_blame(engine, &engine->latched);
    }
    atomic_store(&engine->broken, true);
}

void engine_latch(struct engine *engine, const struct fault *fault) {
    pthread_mutex_lock(&engine->lock);
    engine_break(engine, fault, true);
    pthread_mutex_unlock(&engine->lock);
}

void engine_fail(struct engine *engine, const struct fault *fault) {
    pthread_mutex_lock(&engine->lock);
    engine_break(engine, fault, false);
    engine_tell(engine);
    pthread_mutex_unlock(&engine->lock);
}

static void engine_pool_lost(void *owner, const struct fault *fault) {
    struct engine *engine = owner;
    pthread_mutex_lock(&engine->lock);
    engine_break(engine, fault, true);
    engine_tell(engine);
    pthread_mutex_unlock(&engine->lock);
}

static void engine_pool_held_up(void *owner, bool begins) {
    const struct engine_options *options = &((struct engine *)owner)->options;
    if (options->held_up)
        options->held_up(options->owner, begins);
}

static void engine_storage_freed(struct storage *storage) {
    if (storage->session)
        session_discharge(storage->session, storage->charged);
    if (storage->holder)
        held_account_discharge(storage->holder, storage->charged);
}

static int engine_init(struct engine *engine, struct device *device, const struct engine_options *options) {
    engine->device = device;
    engine->options = *options;
    engine->ending_last = &engine->ending;
    engine->polled_last = &engine->polled;
    engine->budget = (struct budget){.clock = engine_clock, .until_ns = BUDGET_UNLIMITED};
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->work, NULL);
    pthread_cond_init(&engine->progress, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->reap, &monotonic);
    pthread_condattr_destroy(&monotonic);
    cost_init(&engine->cost, device);
    pool_init(&engine->pool, device);
    staging_init(&engine->staging, device, options->staging_total ? options->staging_total : ENGINE_STAGING_BYTES);
    engine->pool.lost = engine->staging.pool.lost = engine_pool_lost;
    engine->pool.held_up = engine->staging.pool.held_up = engine_pool_held_up;
    engine->pool.owner = engine->staging.pool.owner = engine;
    engine->pool.freed = engine_storage_freed; /* staging memory is charged to no account */
    slab_init(&engine->tensors, sizeof(struct tensor));
    slab_init(&engine->waiters, sizeof(struct waiter));
    reports_init(&engine->reports, device);
    flight_init(&engine->flight);
    trace_init(engine);
    samples_init(&engine->samples);
    int error = device->vtable->async ? pthread_create(&engine->reaper, NULL, reaper_main, engine) : 0;
    if (error)
        return error;
    error = pthread_create(&engine->thread, NULL, submitter_main, engine);
    if (error)
        engine_stop_reaper(engine);
    return error;
}

int engine_create(struct device *device, const struct engine_options *options, struct engine **result,
                  struct fault *fault) {
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for an engine");
    int error = engine_init(engine, device, options);
    if (error) {
        free(engine);
        return fault_set(fault, STATUS_INTERNAL, "cannot start the submitter thread: %s", strerror(error));
    }
    *result = engine;
    return STATUS_OK;
}

/* Cancelled streams may still hold records that own something. Of those put on a device that runs later, the reaper
 * makes room for more. */
static void engine_drain(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    engine->submitting = true;
    submitter_run(engine, false);
    while (engine->blocked && engine->device->vtable->async) {
        while (!engine->outside_moved)
            pthread_cond_wait(&engine->work, &engine->lock);
        submitter_run(engine, false);
    }
    pthread_mutex_unlock(&engine->lock);
}

static void engine_stop(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    engine->stopping = true;
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    pthread_join(engine->thread, NULL);
    engine_drain(engine);
    engine_stop_reaper(engine);
}

/* Before any memory goes: what was put on a device that has failed since may still be running. */
static void engine_destroy_device_streams(struct engine *engine) {
    for (struct stream *stream = engine->streams_all; stream; stream = stream->all_next)
        for (int i = 0; i < STREAM_PRIORITIES; i++)
            if (stream->device_streams[i])
                engine->device->vtable->async->stream_destroy(engine->device, stream->device_streams[i]);
}

static void chunks_free(struct stream_chunk *chunk) {
    for (struct stream_chunk *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
}

static void engine_free_lists(struct engine *engine) {
    for (struct stream *stream = engine->streams_all, *next; stream; stream = next) {
        next = stream->all_next;
        free(stream->tail);
        free(stream);
    }
    for (struct run_group *group = engine->groups_free, *next; group; group = next) {
        next = group->free_next;
        free(group);
    }
    for (struct run_share *share = engine->shares_free, *next; share; share = next) {
        next = share->free_next;
        free(share);
    }
    slab_finish(&engine->waiters);
    chunks_free(engine->chunks);
    chunks_free(engine->chunks_own);
    chunks_free(engine->chunks_lost);
}

void engine_destroy(struct engine *engine) {
    if (!engine)
        return;
    engine->budget.until_ns = BUDGET_UNLIMITED;
    session_end_some(engine);
    engine_stop(engine);
    engine_destroy_device_streams(engine);
    kernel_store_finish(engine);
    flight_finish(&engine->flight);
    trace_finish(engine);
    pool_finish(&engine->pool);
    staging_finish(&engine->staging);
    reports_finish(&engine->reports);
    slab_finish(&engine->tensors);
    engine_free_lists(engine);
    pthread_cond_destroy(&engine->reap);
    pthread_cond_destroy(&engine->progress);
    pthread_cond_destroy(&engine->work);
    pthread_mutex_destroy(&engine->lock);
    device_close(engine->device);
    free(engine);
}

/* ---- work ---- */

static bool engine_kick_due(const struct engine *engine) {
    return engine->touched || engine->kick_needed;
}

bool engine_due(const struct engine *engine) {
    return engine_kick_due(engine) || staging_due(&engine->staging) || engine->polled || engine->ending ||
           engine->trim_more;
}

/* Hands what has been enqueued to the run queue; with the lock held. */
static void engine_publish(struct engine *engine) {
    struct stream *touched = engine->touched;
    engine->touched = NULL;
    for (struct stream *next; touched; touched = next) {
        next = touched->touched_next;
        touched->touched = false;
        touched->published = touched->enqueued;
        engine->run_weight += touched->weight;
        touched->weight = 0;
        if (!touched->runnable)
            submitter_enqueue(engine, touched);
    }
}

/* The owner polls next, so it does not wake itself; but whoever signals after this must not think that it has been. */
static void engine_run_inline(struct engine *engine) {
    bool sent = engine->wake_sent;
    engine->wake_sent = true;
    engine->submitting = true;
    submitter_run(engine, true);
    engine->submitting = false;
    engine->wake_sent = sent;
    if (engine->run.first) /* what has turned out to take long */
        pthread_cond_signal(&engine->work);
}

void engine_kick(struct engine *engine) {
    if (!engine_kick_due(engine))
        return;
    engine->kick_needed = false;
    pthread_mutex_lock(&engine->lock);
    engine_publish(engine);
    if (engine->submitting) {
        /* its loop will find the work */
    } else if (!engine->device->vtable->async && engine->run_weight <= ENGINE_INLINE_NS) {
        engine_run_inline(engine);
    } else if (engine->submitter_asleep) {
        pthread_cond_signal(&engine->work);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* ---- completions ---- */

static void engine_watch(struct stream *stream) {
    uint64_t number = stream->waiters ? stream->waiters->number : UINT64_MAX;
    /* Before the owner's next look at `completed`, in the one order of all such accesses; the submitter does the same the
     * other way round, so one of the two sees the other. Not a fence: ThreadSanitizer does not follow those. */
    atomic_store(&stream->watched, number);
}

static void waiter_unlink(struct waiter *waiter) {
    struct stream *stream = waiter->stream;
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        stream->waiters = waiter->next;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    else
        stream->waiters_last = waiter->previous;
}

static void waiter_recycle(struct engine *engine, struct waiter *waiter) {
    slab_give(&engine->waiters, waiter);
}

static void waiter_link(struct waiter *waiter) {
    struct stream *stream = waiter->stream;
    struct waiter *before = stream->waiters_last;
    while (before && before->number > waiter->number)
        before = before->previous;
    waiter->previous = before;
    waiter->next = before ? before->next : stream->waiters;
    if (waiter->next)
        waiter->next->previous = waiter;
    else
        stream->waiters_last = waiter;
    if (before)
        before->next = waiter;
    else
        stream->waiters = waiter;
}

struct waiter *engine_waiter(struct engine *engine, struct stream *stream, uint64_t number,
                             void (*reached)(struct waiter *waiter), void *owner) {
    struct waiter *waiter = slab_take(&engine->waiters);
    if (!waiter)
        return NULL;
    *waiter = (struct waiter){.stream = stream, .number = number, .reached = reached, .owner = owner};
    waiter_link(waiter);
    if (stream->waiters == waiter) {
        engine_watch(stream);
        if (point_reached(stream, number))
            engine_signal_self(engine, stream);
    }
    return waiter;
}

void engine_waiter_cancel(struct engine *engine, struct waiter *waiter) {
    waiter_unlink(waiter);
    waiter_recycle(engine, waiter);
}

/* Whether a stream's first waiter can be answered: always on a broken device, on which some points are never reached.
 */
static bool engine_answerable(struct engine *engine, const struct stream *stream) {
    return stream->waiters && (point_reached(stream, stream->waiters->number) || atomic_load(&engine->broken));
}

/* False: more of the stream's callbacks are due than one stream's turn takes, or the budget. */
static bool engine_fire(struct engine *engine, struct stream *stream) {
    int left = ENGINE_CALLBACKS;
    do {
        while (engine_answerable(engine, stream)) {
            struct waiter *waiter = stream->waiters;
            waiter_unlink(waiter);
            waiter->reached(waiter);
            waiter_recycle(engine, waiter);
            bool over = budget_spent(&engine->budget, ENGINE_CALLBACK_STEPS);
            if ((over || --left == 0) && engine_answerable(engine, stream))
                return false;
        }
        engine_watch(stream);
    } while (engine_answerable(engine, stream));
    return true;
}

/* Not on a broken device: giving memory back may wait for it, and for ever. */
static void engine_trim(struct engine *engine) {
    engine->trim_more = false;
    if (engine->sessions || engine->ending || atomic_load(&engine->broken))
        return;
    if (engine->pool.reserved > ENGINE_KEEP_BYTES)
        engine->trim_more |= pool_trim(&engine->pool, ENGINE_KEEP_BYTES);
    if (engine->staging.pool.reserved > ENGINE_KEEP_BYTES)
        engine->trim_more |= pool_trim(&engine->staging.pool, ENGINE_KEEP_BYTES);
    if (!engine->rested)
        engine->rested = engine_streams_rest(engine) && reports_rest(&engine->reports);
    if (engine->rested && engine->host_freed > ENGINE_KEEP_HOST) {
        engine->host_freed = 0;
        malloc_trim(0); /* up to a tenth of a second, for which who comes now would wait: not for each short session */
    }
}

/* Adds what has been signalled to what was left before, as a list of the owner's own: from then on a stream may be
 * signalled anew. */
static void engine_collect(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    struct stream *signalled = engine->signalled;
    engine->signalled = NULL;
    engine->wake_sent = false;
    for (struct stream *next; signalled; signalled = next) {
        next = signalled->signal_next;
        signalled->signalled = false;
        if (signalled->polled)
            continue;
        signalled->polled = true;
        signalled->poll_next = NULL;
        *engine->polled_last = signalled;
        engine->polled_last = &signalled->poll_next;
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Stream by stream, each some at a time: one that many wait for does not hold up the others. */
static void engine_call_back(struct engine *engine) {
    bool over = false;
    while (engine->polled && !over) {
        struct stream *stream = engine->polled;
        bool left = !engine_fire(engine, stream);
        engine->polled = stream->poll_next;
        if (!engine->polled)
            engine->polled_last = &engine->polled;
        stream->polled = left;
        if (left) {
            stream->poll_next = NULL;
            *engine->polled_last = stream;
            engine->polled_last = &stream->poll_next;
        }
        over = budget_spent(&engine->budget, 1);
    }
}

void engine_poll(struct engine *engine) {
    engine_collect(engine);
    engine_call_back(engine);
    if (atomic_load(&engine->broken))
        for (struct stream *stream = engine->streams_all; stream; stream = stream->all_next)
            while (!engine_fire(engine, stream))
                continue; /* the sessions end now, and with them what the budget is for */
    if (engine->kernels.running)
        kernel_store_sweep(engine);
    session_end_some(engine);
    engine_trim(engine);
    staging_poll(engine);
}

void engine_wait(struct engine *engine) {
    engine_kick(engine);
    pthread_mutex_lock(&engine->lock);
    engine->wake_sent = false;
    while (!engine->signalled && !engine->polled && !engine->ending && !atomic_load(&engine->broken) &&
           !staging_due(&engine->staging))
        pthread_cond_wait(&engine->progress, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
    engine_poll(engine);
}
