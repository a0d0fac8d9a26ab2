#include "server/worker_stats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/counter.h"
#include "server/connection.h"

/* The front takes an old page for a hung worker. Written on a tick, so the real bound is one tick more. */
#define WORKER_STATS_QUIET_NS (150 * 1000000ull)
#define WORKER_STATS_IDLE_NS (300 * 1000000ull)

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

/* Nothing is queued, and nothing has come to its end for a while: then the rate is 0, whatever the mean says. */
static bool worker_stats_idle(struct worker_stats *stats, const struct stats_device *device, uint64_t now) {
    if (device->engine.ops_total != stats->ops || device->engine.queue_depth || !stats->moved_ns)
        stats->moved_ns = now;
    stats->ops = device->engine.ops_total;
    return now - stats->moved_ns >= WORKER_STATS_IDLE_NS;
}

/* Rates since the oldest sample there is, and the present figures in its place. */
static void worker_stats_rates(struct worker_stats *stats, struct stats_device *device, uint64_t now) {
    struct worker_stats_sample sample = {now, device->engine.ops_total, device->bytes_in, device->bytes_out};
    struct worker_stats_sample *at = &stats->samples[stats->n_samples % WORKER_STATS_SAMPLES];
    const struct worker_stats_sample *oldest = stats->n_samples < WORKER_STATS_SAMPLES ? &stats->samples[0] : at;
    double seconds = stats->n_samples ? (double)(now - oldest->at_ns) / 1e9 : 0;

    device->ops_per_s = worker_stats_idle(stats, device, now) ? 0 : counter_rate(oldest->ops, sample.ops, seconds);
    device->bytes_in_per_s = counter_rate(oldest->bytes_in, sample.bytes_in, seconds);
    device->bytes_out_per_s = counter_rate(oldest->bytes_out, sample.bytes_out, seconds);
    *at = sample;
    stats->n_samples++;
    if (stats->n_samples == 2 * WORKER_STATS_SAMPLES)
        stats->n_samples = WORKER_STATS_SAMPLES; /* the same place in the ring, and no overflow */
}

static void worker_stats_session(const struct connection *connection, struct stats_session *out) {
    struct session_stats session;

    session_stats(connection->session, &session);
    out->id = connection->number;
    out->principal = connection->peer.principal;
    memcpy(out->peer, connection->peer.address, sizeof out->peer);
    memcpy(out->client, connection->client, sizeof out->client);
    out->started_ns = connection->started_ns;
    out->tensors = session.tensors;
    out->live = session.live;
    out->peak = session.peak;
    out->ops_queued = session.ops_queued;
    out->ops_done = session.ops_done;
    memcpy(out->failures, session.failures, sizeof out->failures);
    memcpy(out->last_failure, session.last_failure, sizeof out->last_failure);
    memcpy(out->label, session.label, sizeof out->label);
    out->allow_tf32 = session.allow_tf32;
    snprintf(out->tls_cipher, sizeof out->tls_cipher, "%s", transport_cipher(&connection->transport));
    out->tls_resumed = transport_resumed(&connection->transport);
    out->lease_until_ns = connection->lease.until_ms * 1000000u;
    out->reconnects = connection->lease.reconnects;
    out->live_limit = connection->account->limits.session_bytes;
    out->tensors_limit = connection->account->limits.session_tensors;
    out->ops_limit = connection->account->limits.session_operations;
}

static void worker_stats_principal(const struct account *account, struct stats_principal *out) {
    struct tenant_stats tenant;

    tenant_stats(account->tenant, &tenant);
    /* Who has gone is told from a later user of the name. */
    memcpy(out->name, account->orphan ? account->key : account->name, sizeof out->name);
    out->connections = account->connections;
    out->sessions = account->sessions;
    out->live = tenant.live;
    out->peak = tenant.peak;
    out->staging = tenant.staging;
    out->ops_queued = account->operations;
    out->bytes = account->bytes;
    out->bytes_per_s = account->bytes_per_s;
}

static void worker_stats_refusals(const struct service *service, struct stats_device *device) {
    memcpy(device->refusals, service->refusals, sizeof device->refusals);
    refusal_add_engine(device->refusals, &device->engine);
}

static void worker_stats_write(struct worker_stats *stats, struct service *service, uint64_t now) {
    struct stats_page *page = stats->page;
    struct stats_device device = {
        .bytes_in = service->bytes_in,
        .bytes_out = service->bytes_out,
        .fetch_time = service->fetch_time,
    };
    uint32_t n = 0;

    account_measure(service, now);
    memcpy(device.rejections, service->rejections, sizeof device.rejections);
    engine_stats(service->engine, &device.engine);
    worker_stats_refusals(service, &device);
    device_readings(engine_device(service->engine), &device.readings);
    worker_stats_rates(stats, &device, now);
    names_stats(&service->names, &device.names);
    for (const struct connection *at = service->connections; at; at = at->next)
        device.connections += at->poll != NULL;
    stats_page_begin(page);
    page->device = device;
    for (const struct connection *at = service->connections; at && n < STATS_SESSIONS_MAX; at = at->next)
        if (at->session)
            worker_stats_session(at, &page->sessions[n++]);
    page->n_sessions = n;
    n = 0;
    for (const struct account *at = service->accounts; at && n < STATS_PRINCIPALS_MAX; at = at->next)
        worker_stats_principal(at, &page->principals[n++]);
    page->n_principals = n;
    stats_page_end(page);
}

void worker_stats_tick(struct worker_stats *stats, struct service *service) {
    uint64_t now = service_now_ns();

    if (!stats->page || (!service->active && now - stats->written_ns < WORKER_STATS_QUIET_NS))
        return;
    service->active = false;
    stats->written_ns = now;
    worker_stats_write(stats, service, now);
}
