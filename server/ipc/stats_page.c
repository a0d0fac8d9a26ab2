#include "server/ipc/stats_page.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "server/process/clock.h"

enum { STATS_READ_PATIENCE_NS = 1000000 };

void stats_page_begin(struct stats_page *page) {
    uint32_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    atomic_store_explicit(&page->sequence, sequence + 1, memory_order_relaxed);
    /* The odd number must be visible before any of the plain writes that follow. */
    atomic_thread_fence(memory_order_release);
}

void stats_page_end(struct stats_page *page) {
    uint32_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    atomic_store_explicit(&page->written_ns, clock_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&page->sequence, sequence + 1, memory_order_release);
}

void stats_device_copy_counters(struct stats_device *to, const struct stats_device *from) {
    struct engine_stats *engine = &to->engine;
    engine->ops_total = from->engine.ops_total;
    engine->program_runs = from->engine.program_runs;
    engine->busy_ns = from->engine.busy_ns;
    engine->reservations = from->engine.reservations;
    engine->releases = from->engine.releases;
    engine->pinnings = from->engine.pinnings;
    engine->unpinnings = from->engine.unpinnings;
    engine->workspace_growths = from->engine.workspace_growths;
    engine->memory_peak = from->engine.memory_peak;
    engine->queue_time = from->engine.queue_time;
    engine->run_time = from->engine.run_time;
    engine->device.products_library = from->engine.device.products_library;
    engine->device.products_slow = from->engine.device.products_slow;
    for (unsigned i = 0; i < DEVICE_LIBRARIES_MAX; i++) {
        engine->device.libraries[i].launches = from->engine.device.libraries[i].launches;
        engine->device.libraries[i].refused = from->engine.device.libraries[i].refused;
    }
    memcpy(engine->refusals, from->engine.refusals, sizeof engine->refusals);
    memcpy(engine->failures, from->engine.failures, sizeof engine->failures);
    to->worker_cpu_ns = from->worker_cpu_ns;
    to->bytes_in = from->bytes_in;
    to->bytes_out = from->bytes_out;
    to->fetch_time = from->fetch_time;
    memcpy(to->refusals, from->refusals, sizeof to->refusals);
    memcpy(to->rejections, from->rejections, sizeof to->rejections);
}

/* The writer is another process, so the reader does not rely on it to terminate the texts. */
static void stats_terminate(struct stats_device *device, struct stats_session *sessions, unsigned count) {
    struct device_info *info = &device->engine.device;
    info->kind[sizeof info->kind - 1] = 0;
    info->model[sizeof info->model - 1] = 0;
    info->capability[sizeof info->capability - 1] = 0;
    info->uuid[sizeof info->uuid - 1] = 0;
    info->bus[sizeof info->bus - 1] = 0;
    info->driver[sizeof info->driver - 1] = 0;
    info->runtime[sizeof info->runtime - 1] = 0;
    for (struct device_library *l = info->libraries; l < info->libraries + DEVICE_LIBRARIES_MAX; l++)
        l->name[sizeof l->name - 1] = l->version[sizeof l->version - 1] = l->reason[sizeof l->reason - 1] = 0;
    device->readings.driver[sizeof device->readings.driver - 1] = 0;
    device->names.fault[sizeof device->names.fault - 1] = 0;
    for (unsigned i = 0; i < STATS_OWNERS_MAX; i++)
        device->names.owners[i].principal[sizeof device->names.owners[i].principal - 1] = 0;
    for (struct stats_session *s = sessions; s < sessions + count; s++) {
        principal_end_texts(&s->principal);
        s->tls_cipher[sizeof s->tls_cipher - 1] = 0;
        s->peer[sizeof s->peer - 1] = 0;
        s->remote.host[sizeof s->remote.host - 1] = 0;
        s->client[sizeof s->client - 1] = 0;
        s->last_failure[sizeof s->last_failure - 1] = 0;
        s->label[sizeof s->label - 1] = 0;
    }
}

static unsigned stats_least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* What a reader copies from the page. */
struct stats_copy {
    struct stats_device *device;
    struct stats_session *sessions;
    struct stats_principal *principals;
    struct stats_program *programs;
    unsigned capacity, copied, total;
};

static void stats_copy_sessions(const struct stats_page *page, struct stats_copy *copy) {
    copy->total = stats_least(page->n_sessions, STATS_SESSIONS_MAX);
    copy->copied = stats_least(copy->total, copy->capacity);
    *copy->device = page->device;
    if (copy->copied)
        memcpy(copy->sessions, page->sessions, copy->copied * sizeof *copy->sessions);
}

static void stats_copy_principals(const struct stats_page *page, struct stats_copy *copy) {
    copy->total = stats_least(page->n_principals, STATS_PRINCIPALS_MAX);
    copy->copied = stats_least(copy->total, copy->capacity);
    if (copy->copied)
        memcpy(copy->principals, page->principals, copy->copied * sizeof *copy->principals);
}

static void stats_copy_programs(const struct stats_page *page, struct stats_copy *copy) {
    copy->total = stats_least(page->n_programs, STATS_PROGRAMS_MAX);
    copy->copied = stats_least(copy->total, copy->capacity);
    if (copy->copied)
        memcpy(copy->programs, page->programs, copy->copied * sizeof *copy->programs);
}

static bool stats_page_copy(const struct stats_page *page,
                            void (*take)(const struct stats_page *page, struct stats_copy *copy),
                            struct stats_copy *copy) {
    uint64_t deadline = clock_now_ns() + STATS_READ_PATIENCE_NS;
    do {
        uint32_t before = atomic_load_explicit(&page->sequence, memory_order_acquire);
        if (!(before & 1)) {
            take(page, copy);
            /* The copies must be done before the number is looked at again. */
            atomic_thread_fence(memory_order_acquire);
            if (atomic_load_explicit(&page->sequence, memory_order_relaxed) == before)
                return true;
        }
        sched_yield();
    } while (clock_now_ns() < deadline);
    return false;
}

int stats_page_read(const struct stats_page *page, struct stats_device *device, struct stats_session *sessions,
                    unsigned capacity) {
    struct stats_copy copy = {.device = device, .sessions = sessions, .capacity = capacity};
    if (!stats_page_copy(page, stats_copy_sessions, &copy))
        return -1;
    stats_terminate(device, sessions, copy.copied);
    return (int)copy.total;
}

int stats_page_read_principals(const struct stats_page *page, struct stats_principal *principals, unsigned capacity) {
    struct stats_copy copy = {.principals = principals, .capacity = capacity};
    if (!stats_page_copy(page, stats_copy_principals, &copy))
        return -1;
    for (unsigned i = 0; i < copy.copied; i++)
        principals[i].name[sizeof principals[i].name - 1] = 0;
    return (int)copy.total;
}

int stats_page_read_programs(const struct stats_page *page, struct stats_program *programs, unsigned capacity) {
    struct stats_copy copy = {.programs = programs, .capacity = capacity};
    if (!stats_page_copy(page, stats_copy_programs, &copy))
        return -1;
    for (unsigned i = 0; i < copy.copied; i++) {
        struct recorded_figures *figures = &programs[i].figures;
        principal_end_texts(&programs[i].principal);
        figures->label[sizeof figures->label - 1] = 0;
        figures->cause[sizeof figures->cause - 1] = 0;
        figures->graph_reason[sizeof figures->graph_reason - 1] = 0;
        figures->fused_reason[sizeof figures->fused_reason - 1] = 0;
    }
    return (int)copy.total;
}

/* ---- operations ---- */

static void stats_operation_write(struct stats_operation *row, struct device *device, unsigned opcode,
                                  uint32_t presented) {
    struct fault fault;
    uint32_t supported = 0;
    for (int dtype = DTYPE_INVALID + 1; dtype < DTYPE_COUNT; dtype++) {
        if (!(presented >> dtype & 1))
            continue;
        if (device_has_kernel(device, opcode, (enum dtype)dtype, &fault) == STATUS_OK)
            supported |= UINT32_C(1) << dtype;
        else if (!row->reason[0])
            snprintf(row->reason, sizeof row->reason, "%.*s", STATS_REASON_MAX - 1, fault.message);
    }
    row->supported = supported;
}

void stats_operations_write(struct stats_operations *operations, struct device *device) {
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++) {
        uint32_t presented = op_presented(opcode);
        if (presented)
            stats_operation_write(&operations->rows[opcode], device, opcode, presented);
    }
}

void stats_operations_read(const struct stats_operations *page, struct stats_operations *copy) {
    memcpy(copy, page, sizeof *copy);
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++)
        copy->rows[opcode].reason[STATS_REASON_MAX - 1] = 0;
}
