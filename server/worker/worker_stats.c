#include "server/worker/worker_stats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/ops/counter.h"
#include "server/process/log.h"
#include "server/worker/connection.h"

/* The longest time without a write: the front takes a worker with an old page for hung. The page is written on a tick,
 * so the real bound is one tick more. */
#define WORKER_STATS_QUIET_NS (150 * 1000000ull)
#define WORKER_STATS_SECOND_NS (1000 * 1000000ull)

int worker_stats_init(struct worker_stats *stats, int file) {
    void *page;
    *stats = (struct worker_stats){0};
    if (file < 0)
        return 0;
    page = mmap(NULL, sizeof *stats->page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        return -errno;
    stats->page = page;
    return 0;
}

void worker_stats_finish(struct worker_stats *stats) {
    if (stats->page)
        munmap(stats->page, sizeof *stats->page);
    stats->page = NULL;
}

/* The newest sample that is a second old; if none is, the oldest. Pages are written at different intervals, so it is not always
 * the oldest one of the ring. */
static const struct worker_stats_sample *worker_stats_second_ago(const struct worker_stats *stats, uint64_t now) {
    unsigned kept = stats->n_samples < WORKER_STATS_SAMPLES ? stats->n_samples : WORKER_STATS_SAMPLES;
    for (unsigned back = 1; back < kept; back++) {
        const struct worker_stats_sample *at = &stats->samples[(stats->n_samples - back) % WORKER_STATS_SAMPLES];
        if (now - at->at_ns >= WORKER_STATS_SECOND_NS)
            return at;
    }
    return &stats->samples[(stats->n_samples - kept) % WORKER_STATS_SAMPLES];
}

/* Sets the rates of about the last second, and adds the present figures to the samples. Without a session nobody works: 0 op/s, at
 * once. */
static void worker_stats_rates(struct worker_stats *stats, struct stats_device *device, uint64_t now) {
    const struct worker_stats_sample *since = worker_stats_second_ago(stats, now);
    double seconds = stats->n_samples ? (double)(now - since->at_ns) / 1e9 : 0;
    device->ops_per_s = device->engine.sessions ? counter_rate(since->ops, device->engine.ops_total, seconds) : 0;
    device->busy_ratio = counter_rate(since->busy_ns, device->engine.busy_ns, seconds) / 1e9;
    if (device->busy_ratio > 1) /* the two clocks are read at different times */
        device->busy_ratio = 1;
    device->bytes_in_per_s = counter_rate(since->bytes_in, device->bytes_in, seconds);
    device->bytes_out_per_s = counter_rate(since->bytes_out, device->bytes_out, seconds);
    stats->samples[stats->n_samples % WORKER_STATS_SAMPLES] = (struct worker_stats_sample){
        now, device->engine.ops_total, device->bytes_in, device->bytes_out, device->engine.busy_ns};
    stats->n_samples++;
    if (stats->n_samples == 2 * WORKER_STATS_SAMPLES)
        stats->n_samples = WORKER_STATS_SAMPLES; /* the same place in the ring, and no overflow */
}

/* Reads host memory and processor time of this process, about once a second. */
static void worker_stats_process(struct worker_stats *stats, struct stats_device *device, uint64_t now) {
    struct rusage usage;
    unsigned long long pages, resident;
    FILE *file;
    if (!stats->process_ns || now - stats->process_ns >= WORKER_STATS_SECOND_NS) {
        stats->process_ns = now;
        if (getrusage(RUSAGE_SELF, &usage) == 0)
            stats->cpu_ns = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
                            (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
        file = fopen("/proc/self/statm", "re");
        if (file && fscanf(file, "%llu %llu", &pages, &resident) == 2)
            stats->memory = resident * (uint64_t)sysconf(_SC_PAGESIZE);
        if (file)
            fclose(file);
    }
    device->worker_memory = stats->memory;
    device->worker_cpu_ns = stats->cpu_ns;
}

static void worker_stats_session(struct connection *connection, uint64_t now, struct stats_session *out) {
    struct session_stats session;
    session_stats(connection->session, &session);
    struct work_done work = work_done_of(&session);
    work_rates_measure(&connection->rates, &work, now);
    out->device_ns = work.device_ns;
    out->ops_per_s = connection->rates.ops_per_s;
    out->device_ratio = connection->rates.device_ratio;
    out->remote = connection->remote;
    out->id = connection->number;
    out->principal = connection->peer.principal;
    memcpy(out->peer, connection->peer.address, sizeof out->peer);
    memcpy(out->client, connection->client, sizeof out->client);
    out->started_ns = connection->started_ns;
    out->tensors = session.tensors;
    out->programs = session_programs(connection->session);
    out->live = session.live;
    out->host = session.host;
    out->host_limit = connection->principal->limits.session_host_bytes;
    out->peak = session.peak;
    out->ops_queued = session.ops_queued;
    out->ops_done = session.ops_done;
    memcpy(out->failures, session.failures, sizeof out->failures);
    memcpy(out->last_failure, session.last_failure, sizeof out->last_failure);
    memcpy(out->label, session.label, sizeof out->label);
    out->allow_tf32 = session.allow_tf32;
    snprintf(out->tls_cipher, sizeof out->tls_cipher, "%s", transport_cipher(&connection->socket.transport));
    out->tls_resumed = transport_resumed(&connection->socket.transport);
    out->lease_until_ns = connection->lease.until_ms * 1000000u;
    out->reconnects = connection->lease.reconnects;
    out->live_limit = connection->principal->limits.session_bytes;
    out->tensors_limit = connection->principal->limits.session_tensors;
    out->ops_limit = connection->principal->limits.session_operations;
}

/* Sums the work of each principal's sessions, also of sessions without a row on the page. */
static void worker_stats_work(struct service *service, uint64_t now) {
    for (struct worker_principal *at = service->principals; at; at = at->next)
        at->work = at->ended, at->ops_queued = 0;
    for (const struct connection *at = service->connections; at; at = at->next) {
        struct session_stats session;
        struct work_done work;
        if (!at->session)
            continue;
        session_stats(at->session, &session);
        work = work_done_of(&session);
        at->principal->ops_queued += session.ops_queued;
        at->principal->work.ops += work.ops;
        at->principal->work.device_ns += work.device_ns;
        at->principal->work.failures += work.failures;
    }
    for (struct worker_principal *at = service->principals; at; at = at->next)
        work_rates_measure(&at->rates, &at->work, now);
}

static void worker_stats_principal(const struct worker_principal *principal, struct stats_principal *out) {
    struct tenant_stats tenant;
    tenant_stats(principal->tenant, &tenant);
    /* A removed user is shown by its key, to tell it from a later user of the same name. */
    memcpy(out->name, principal->orphan ? principal->key : principal->name, sizeof out->name);
    out->connections = principal->connections;
    out->sessions = principal->sessions;
    out->live = tenant.live;
    out->peak = tenant.peak;
    out->staging = tenant.staging;
    out->host = tenant.host;
    out->ops_queued = principal->ops_queued;
    out->bytes = principal->bytes;
    out->bytes_per_s = principal->bytes_per_s;
    out->ops_done = principal->work.ops;
    out->device_ns = principal->work.device_ns;
    out->failures = principal->work.failures;
    out->ops_per_s = principal->rates.ops_per_s;
    out->device_ratio = principal->rates.device_ratio;
}

/* The programs of a session, behind those of other sessions. */
static void worker_stats_programs(const struct connection *connection, struct stats_page *page) {
    struct recorded_figures figures[STATS_SESSION_PROGRAMS_MAX];
    unsigned n = session_programs_figures(connection->session, figures, STATS_SESSION_PROGRAMS_MAX);
    for (unsigned i = 0; i < n && page->n_programs < STATS_PROGRAMS_MAX; i++)
        page->programs[page->n_programs++] = (struct stats_program){
            .session = connection->number, .principal = connection->peer.principal, .figures = figures[i]};
}

static void worker_stats_refusals(const struct service *service, struct stats_device *device) {
    memcpy(device->refusals, service->refusals, sizeof device->refusals);
    refusal_add_engine(device->refusals, &device->engine);
}

/* A line for a library that is missing, and for each new reason of a refusal, but no more of these than a few for a library: what it
 * refuses, it may refuse at each shape. */
static void worker_stats_libraries(struct worker_stats *stats, const struct device_info *info) {
    enum { LINES_MOST = 8 };
    for (unsigned i = 0; i < DEVICE_LIBRARIES_MAX; i++) {
        const struct device_library *now = &info->libraries[i];
        struct worker_library *told = &stats->libraries[i];
        char launches[24], refused[24];
        bool missing = now->state == DEVICE_LIBRARY_MISSING;
        if (!*now->reason || !strcmp(now->reason, told->reason) || told->lines == LINES_MOST)
            continue;
        told->lines++;
        snprintf(told->reason, sizeof told->reason, "%s", now->reason);
        log_event(missing ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, missing ? "library_missing" : "library_refused",
                  "library", now->name, "cause", now->reason, "launches",
                  log_text(launches, sizeof launches, "%lu", now->launches), "refused",
                  log_text(refused, sizeof refused, "%lu", now->refused), NULL);
    }
}

static void worker_stats_write(struct worker_stats *stats, struct service *service, uint64_t now) {
    struct stats_page *page = stats->page;
    struct stats_device device = {
        .bytes_in = service->bytes_in,
        .bytes_out = service->bytes_out,
        .fetch_time = service->fetch_time,
    };
    uint32_t n = 0;
    worker_principal_measure(service, now);
    memcpy(device.rejections, service->rejections, sizeof device.rejections);
    engine_stats(service->engine, &device.engine);
    worker_stats_refusals(service, &device);
    worker_stats_libraries(stats, &device.engine.device);
    device_readings(engine_device(service->engine), &device.readings);
    worker_stats_rates(stats, &device, now);
    worker_stats_process(stats, &device, now);
    worker_stats_work(service, now);
    names_stats(&service->names, &device.names);
    for (const struct connection *at = service->connections; at; at = at->next)
        device.connections += at->socket.poll != NULL;
    stats_page_begin(page);
    page->device = device;
    page->n_programs = 0;
    for (struct connection *at = service->connections; at && n < STATS_SESSIONS_MAX; at = at->next) {
        if (!at->session)
            continue;
        worker_stats_session(at, now, &page->sessions[n++]);
        if (page->n_programs < STATS_PROGRAMS_MAX)
            worker_stats_programs(at, page);
    }
    page->n_sessions = n;
    n = 0;
    for (const struct worker_principal *at = service->principals; at && n < STATS_PRINCIPALS_MAX; at = at->next)
        worker_stats_principal(at, &page->principals[n++]);
    page->n_principals = n;
    stats_page_end(page);
}

void worker_stats_tick(struct worker_stats *stats, struct service *service) {
    uint64_t now = clock_now_ns();
    if (!stats->page || (!service->active && now - stats->written_ns < WORKER_STATS_QUIET_NS))
        return;
    service->active = false;
    stats->written_ns = now;
    worker_stats_write(stats, service, now);
}
