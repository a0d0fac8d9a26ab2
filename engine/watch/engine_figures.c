/* What an engine tells of itself. */
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/engine_impl.h"

struct device *engine_device(struct engine *engine) {
    return engine->device;
}

struct budget *engine_budget(struct engine *engine) {
    return &engine->budget;
}

static void engine_stats_operations(const struct engine *engine, struct engine_stats *stats) {
    stats->ops_total = engine->ops_ended;
    for (const struct stream *stream = engine->streams_all; stream; stream = stream->all_next) {
        stats->queue_depth += stream_operations(stream);
        stats->ops_total += atomic_load_explicit(&stream->ops_done, memory_order_relaxed);
    }
}

static void engine_stats_staging(struct engine *engine, struct engine_stats *stats) {
    const struct staging *staging = &engine->staging;
    bool pinned = engine->device->vtable->host_reserve;
    stats->staging_total = staging->pool.total;
    stats->staging_reserved = staging->pool.reserved;
    stats->staging_held = staging->held;
    for (const struct staging_wait *wait = staging->waits; wait; wait = wait->next)
        stats->staging_waiting++;
    stats->pinnings = pinned ? staging->pool.reservations + reports_reservations(&engine->reports) : 0;
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

/* With the lock held. What goes on counts up to now. */
static uint64_t engine_busy(const struct engine *engine, uint64_t now) {
    if (engine->device->vtable->async)
        return engine->busy_ns + (engine->marked ? now - engine->busy_since_ns : 0);
    return engine->busy_ns + (engine->turn ? now - engine->turn_end_ns : 0);
}

uint64_t engine_stream_time(const struct engine *engine, const struct stream *stream, uint64_t now) {
    const struct stream_mark *mark = &stream->marks[stream->marks_first];
    uint64_t ns = stream->device_ns - stream->device_ns_before;
    if (engine->turn == stream && !engine->device->vtable->async)
        return ns + now - engine->turn_end_ns;
    if (!stream->marks_count || !mark->event)
        return ns;
    return ns + now - (stream->reached_ns > mark->began_ns ? stream->reached_ns : mark->began_ns);
}

void engine_stats(struct engine *engine, struct engine_stats *stats) {
    memset(stats, 0, sizeof *stats);
    device_describe(engine->device, &stats->device);
    stats->memory_total = engine->pool.total;
    stats->memory_reserved = engine->pool.reserved;
    stats->memory_live = engine->pool.live;
    stats->memory_peak = engine->pool.peak;
    stats->memory_largest_free = pool_largest_free(&engine->pool);
    stats->reservations = engine->pool.reservations;
    stats->releases = engine->pool.releases;
    engine_stats_staging(engine, stats);
    engine_stats_workspaces(engine, stats);
    stats->stalled_ns = engine->stall.idle_ns;
    engine_stats_operations(engine, stats);
    stats->sessions = engine->sessions;
    memcpy(stats->refusals, engine->refusals, sizeof stats->refusals);
    memcpy(stats->failures, engine->failures, sizeof stats->failures);
    pthread_mutex_lock(&engine->lock);
    stats->queue_time = engine->queue_time;
    stats->run_time = engine->run_time;
    stats->busy_ns = engine_busy(engine, engine_clock());
    pthread_mutex_unlock(&engine->lock);
}

int engine_fault(struct engine *engine, struct fault *fault) {
    if (!atomic_load(&engine->broken))
        return STATUS_OK;
    pthread_mutex_lock(&engine->lock);
    int code = fault_set(fault, STATUS_DEVICE_LOST, "the device failed: %s", engine->latched.message);
    pthread_mutex_unlock(&engine->lock);
    return code;
}
