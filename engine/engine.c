#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "engine/device/clock.h"
#include "engine/device/device_impl.h"
#include "engine/engine_impl.h"
#include "engine/memory/tenant.h"

/* ---- life ---- */

static bool engine_session_ended(struct session *session) {
    if (!recorded_session_ended(session)) /* first: programs let kernels go */
        return false;
    kernel_session_ended(session);
    return true;
}

static int engine_init(struct engine *engine, struct device *device, const struct engine_options *options) {
    engine->device = device;
    int error = order_init(&engine->order, device, options->wake, options->owner);
    if (error)
        return error;
    memory_init(&engine->memory, &engine->order, options->staging_total, options->blocks, options->owner);
    sessions_init(&engine->sessions, &engine->order, &engine->memory, engine_session_ended);
    engine->sessions.program = engine->program;
    engine->program->recorded->order = &engine->order;
    engine->program->recorded->kernels = &engine->kernels;
    engine->kernels.order = &engine->order;
    return 0;
}

int engine_create(struct device *device, const struct engine_options *options, struct engine **result,
                  struct fault *fault) {
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine)
        engine->program = program_create(device);
    if (!engine || !engine->program) {
        free(engine);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for an engine");
    }
    int error = engine_init(engine, device, options);
    if (error) {
        program_destroy(engine->program);
        free(engine);
        return fault_set(fault, STATUS_INTERNAL, "cannot start the submitter thread: %s", strerror(error));
    }
    *result = engine;
    return STATUS_OK;
}

void engine_destroy(struct engine *engine) {
    if (!engine)
        return;
    engine->order.budget.until_ns = BUDGET_UNLIMITED;
    sessions_end_some(&engine->sessions);
    order_stop(&engine->order);
    recorded_store_finish(engine->program->recorded); /* its plans let kernels go */
    kernel_store_finish(&engine->kernels);
    memory_finish(&engine->memory);
    sessions_finish(&engine->sessions);
    order_finish(&engine->order);
    device_close(engine->device);
    program_destroy(engine->program);
    free(engine);
}

/* ---- work ---- */

void engine_kick(struct engine *engine) {
    order_kick(&engine->order);
}

bool engine_due(const struct engine *engine) {
    return order_kick_due(&engine->order) || staging_due(&engine->memory.staging) || order_calls_back(&engine->order) ||
           engine->sessions.ending || engine->memory.trim_more || recorded_sweep_due(engine->program->recorded);
}

/* What sessions left, when the last one has gone. Not on a broken device: giving memory back may wait for it, and for ever. */
static void engine_rest(struct engine *engine) {
    struct sessions *sessions = &engine->sessions;
    engine->memory.trim_more = false;
    if (sessions->count || sessions->ending || atomic_load(&engine->order.broken))
        return;
    memory_rest(&engine->memory);
    if (!sessions->rested)
        sessions->rested = order_rest(&engine->order) && reports_rest(&engine->order.reports);
    if (sessions->rested)
        memory_rest_host(&engine->memory);
}

void engine_poll(struct engine *engine) {
    order_call_back(&engine->order);
    if (engine->kernels.running)
        kernel_store_sweep(&engine->kernels);
    if (engine->program->recorded->running || engine->program->recorded->left)
        recorded_sweep(engine->program->recorded);
    sessions_end_some(&engine->sessions);
    engine_rest(engine);
    if (engine->memory.staging.waits || engine->memory.staging.answered)
        staging_poll(&engine->memory);
}

/* Counts what sessions have enqueued so far. True: all of it has run. */
static bool engine_is_idle(const struct engine *engine, uint64_t *enqueued) {
    bool idle = !engine->sessions.ending;
    *enqueued = engine->sessions.ops_ended; /* those that had no record */
    for (const struct stream *stream = engine->order.streams_all; stream; stream = stream->all_next) {
        *enqueued += stream->enqueued;
        idle &= atomic_load_explicit(&stream->completed, memory_order_relaxed) == stream->enqueued;
    }
    return idle;
}

void engine_tick(struct engine *engine) {
    uint64_t enqueued;
    bool quiet = engine_is_idle(engine, &enqueued) && enqueued == engine->rest.enqueued;
    engine->rest.enqueued = enqueued;
    engine->rest.ticks = quiet ? engine->rest.ticks + 1 : 0;
    if (engine->rest.ticks >= ENGINE_REST_TICKS)
        memory_rest_host(&engine->memory);
}

void engine_wait(struct engine *engine) {
    engine_kick(engine);
    if (!engine->sessions.ending && !staging_due(&engine->memory.staging))
        order_await(&engine->order);
    engine_poll(engine);
}

/* ---- its parts, and what it tells of them ---- */

struct device *engine_device(struct engine *engine) {
    return engine->device;
}

struct sessions *engine_sessions(struct engine *engine) {
    return &engine->sessions;
}

struct memory *engine_memory(struct engine *engine) {
    return &engine->memory;
}

struct kernel_store *engine_kernels(struct engine *engine) {
    return &engine->kernels;
}

struct budget *engine_budget(struct engine *engine) {
    return &engine->order.budget;
}

static void engine_stats_operations(const struct engine *engine, struct engine_stats *stats) {
    stats->ops_total = engine->sessions.ops_ended;
    for (const struct stream *stream = engine->order.streams_all; stream; stream = stream->all_next) {
        stats->queue_depth += stream_operations(stream);
        stats->ops_total += atomic_load_explicit(&stream->ops_done, memory_order_relaxed);
    }
}

static void engine_stats_staging(struct engine *engine, struct engine_stats *stats) {
    const struct staging *staging = &engine->memory.staging;
    bool pinned = engine->device->vtable->host_reserve;
    stats->staging_total = staging->pool.total;
    stats->staging_reserved = staging->pool.reserved;
    stats->staging_held = staging->used;
    for (const struct staging_wait *wait = staging->waits; wait; wait = wait->next)
        stats->staging_waiting++;
    stats->pinnings = pinned ? staging->pool.reservations + reports_reservations(&engine->order.reports) : 0;
    stats->unpinnings = pinned ? staging->pool.releases : 0;
}

static void engine_stats_workspaces(struct engine *engine, struct engine_stats *stats) {
    struct device_workspaces workspaces = {0};
    if (engine->device->vtable->workspaces)
        engine->device->vtable->workspaces(engine->device, &workspaces);
    stats->workspaces = workspaces.bytes;
    stats->workspaces_limit = workspaces.limit;
    stats->workspace_growths = workspaces.growths;
}

void engine_stats(struct engine *engine, struct engine_stats *stats) {
    memset(stats, 0, sizeof *stats);
    device_describe(engine->device, &stats->device);
    stats->memory_total = engine->memory.pool.total;
    stats->memory_reserved = engine->memory.pool.reserved;
    stats->memory_live = engine->memory.pool.live;
    stats->memory_peak = engine->memory.pool.peak;
    stats->memory_largest_free = pool_largest_free(&engine->memory.pool);
    stats->reservations = engine->memory.pool.reservations;
    stats->releases = engine->memory.pool.releases;
    engine_stats_staging(engine, stats);
    engine_stats_workspaces(engine, stats);
    stats->stalled_ns = engine->order.watch.idle_ns;
    engine_stats_operations(engine, stats);
    recorded_store_read(engine->program->recorded, &stats->programs, &stats->program_runs);
    stats->sessions = engine->sessions.count;
    memcpy(stats->refusals, engine->memory.refusals, sizeof stats->refusals);
    memcpy(stats->failures, engine->sessions.failures, sizeof stats->failures);
    pthread_mutex_lock(&engine->order.lock);
    stats->queue_time = engine->order.queue_time;
    stats->run_time = engine->order.run_time;
    stats->busy_ns = order_busy(&engine->order, clock_now());
    pthread_mutex_unlock(&engine->order.lock);
}

void engine_fail(struct engine *engine, const struct fault *fault) {
    order_fail(&engine->order, fault, false);
}

int engine_fault(struct engine *engine, struct fault *fault) {
    return order_fault(&engine->order, fault);
}

unsigned engine_last_operations(const struct engine *engine, struct history_operation *operations, unsigned capacity) {
    return history_last(&engine->order.history, operations, capacity);
}

bool engine_stalled(struct engine *engine, uint64_t timeout_ns, struct engine_stall *stall) {
    struct order_stall found = {0};
    bool stalled = order_stalled(&engine->order, timeout_ns, &found);
    memcpy(stall->operation, found.operation, sizeof stall->operation); /* what it is at, in any case */
    if (!stalled)
        return false;
    stall->ns = found.ns;
    stall->session = sessions_find(&engine->sessions, found.stream);
    return true;
}

void engine_stall_again(struct engine *engine) {
    order_stall_again(&engine->order);
}

int engine_trace_start(struct engine *engine, const struct tenant *tenant, uint64_t session, struct fault *fault) {
    return trace_start(&engine->order.trace, tenant ? tenant_share(tenant) : NULL, session, fault);
}

struct trace *engine_trace(struct engine *engine) {
    return &engine->order.trace;
}
