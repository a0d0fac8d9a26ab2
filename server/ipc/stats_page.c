#include "server/ipc/stats_page.h"

#include <sched.h>
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

/* ---- reading ---- */

/* The writer is another process, so the reader does not rely on it to terminate the texts. */
static void stats_terminate_device(struct stats_device *device) {
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
}

static void stats_terminate_program(struct stats_program *program) {
    struct recorded_figures *figures = &program->figures;
    principal_end_texts(&program->principal);
    figures->label[sizeof figures->label - 1] = 0;
    figures->cause[sizeof figures->cause - 1] = 0;
    figures->graph_reason[sizeof figures->graph_reason - 1] = 0;
    figures->fused_reason[sizeof figures->fused_reason - 1] = 0;
}

static void stats_terminate_session(struct stats_session *session) {
    principal_end_texts(&session->principal);
    session->tls_cipher[sizeof session->tls_cipher - 1] = 0;
    session->peer[sizeof session->peer - 1] = 0;
    session->remote.host[sizeof session->remote.host - 1] = 0;
    session->client[sizeof session->client - 1] = 0;
    session->last_failure[sizeof session->last_failure - 1] = 0;
    session->label[sizeof session->label - 1] = 0;
}

static unsigned stats_least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

static void stats_terminate(struct stats_copy *copy) {
    stats_terminate_device(&copy->device);
    for (unsigned i = 0; i < stats_least(copy->n_sessions, copy->sessions_room); i++)
        stats_terminate_session(&copy->sessions[i]);
    for (unsigned i = 0; i < stats_least(copy->n_principals, copy->principals_room); i++)
        copy->principals[i].name[sizeof copy->principals[i].name - 1] = 0;
    for (unsigned i = 0; i < stats_least(copy->n_programs, copy->programs_room); i++)
        stats_terminate_program(&copy->programs[i]);
}

/* Copies as many rows as there is room for; returns how many there are. */
static unsigned stats_take(void *rows, unsigned room, const void *from, uint32_t n, unsigned most, size_t size) {
    unsigned total = stats_least(n, most), copied = stats_least(total, room);
    if (copied)
        memcpy(rows, from, copied * size);
    return total;
}

static void stats_take_all(const struct stats_page *page, struct stats_copy *copy) {
    copy->written_ns = atomic_load_explicit(&page->written_ns, memory_order_relaxed);
    copy->device = page->device;
    copy->n_sessions = stats_take(copy->sessions, copy->sessions_room, page->sessions, page->n_sessions,
                                  STATS_SESSIONS_MAX, sizeof *copy->sessions);
    copy->n_principals = stats_take(copy->principals, copy->principals_room, page->principals, page->n_principals,
                                    STATS_PRINCIPALS_MAX, sizeof *copy->principals);
    copy->n_programs = stats_take(copy->programs, copy->programs_room, page->programs, page->n_programs,
                                  STATS_PROGRAMS_MAX, sizeof *copy->programs);
}

bool stats_page_read(const struct stats_page *page, struct stats_copy *copy) {
    uint64_t deadline = clock_now_ns() + STATS_READ_PATIENCE_NS;
    do {
        uint32_t before = atomic_load_explicit(&page->sequence, memory_order_acquire);
        if (!(before & 1)) {
            stats_take_all(page, copy);
            /* The copies must be done before the number is looked at again. */
            atomic_thread_fence(memory_order_acquire);
            if (atomic_load_explicit(&page->sequence, memory_order_relaxed) == before) {
                stats_terminate(copy);
                return true;
            }
        }
        sched_yield();
    } while (clock_now_ns() < deadline);
    return false;
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
