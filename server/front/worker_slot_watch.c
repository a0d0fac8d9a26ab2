/* What is seen of a worker from outside: its stats page, and whether it still lives. */
#include <stdio.h>
#include <string.h>

#include "server/front/worker_slot_impl.h"
#include "server/process/log.h"

enum { WORKER_LOST_GRACE_MS = 1000 /* for a worker that gave its device up to tell its clients and exit */ };
#define WORKER_MS_NS UINT64_C(1000000)

/* An Xid often ends the process that is told of it. */
static void worker_slot_keep_xid(struct worker_slot *slot) {
    const struct device_readings *readings = &slot->snapshot.device.readings;
    if (!device_readings_has(readings, READING_XID) || !readings->xid_at_ns)
        return;
    slot->xid = readings->values[READING_XID];
    slot->xid_ns = readings->xid_at_ns;
}

static void worker_slot_refresh_principals(struct worker_slot *slot) {
    static struct stats_principal scratch[STATS_PRINCIPALS_MAX];
    int principals = stats_page_read_principals(slot->process->page, scratch, STATS_PRINCIPALS_MAX);
    if (principals < 0)
        return;
    memcpy(slot->snapshot.principals, scratch, (size_t)principals * sizeof *scratch);
    slot->snapshot.n_principals = (unsigned)principals;
}

void worker_slot_refresh(struct worker_slot *slot) {
    static struct stats_session scratch[STATS_SESSIONS_MAX]; /* a torn copy must not replace a good one */
    struct stats_device device;
    if (!slot->process)
        return;
    const struct stats_page *page = slot->process->page;
    uint64_t written = atomic_load_explicit(&page->written_ns, memory_order_relaxed);
    if (!written)
        return;
    int sessions = stats_page_read(page, &device, scratch, STATS_SESSIONS_MAX);
    if (sessions < 0)
        return;
    slot->snapshot.device = device;
    worker_slot_keep_xid(slot);
    slot->snapshot.n_sessions = (unsigned)sessions;
    slot->snapshot.written_ns = written;
    memcpy(slot->snapshot.sessions, scratch, (size_t)sessions * sizeof *scratch);
    worker_slot_refresh_principals(slot);
}

/* How long the worker may keep silent; 0: for ever. Where it waits for its device, that has its own time besides. */
static uint64_t worker_slot_patience(const struct worker_slot *slot) {
    const struct config *config = slot->config;
    if (!atomic_load_explicit(&slot->process->page->held_up_ns, memory_order_acquire))
        return config->watchdog_timeout;
    return config->watchdog_timeout && config->device_timeout ? config->watchdog_timeout + config->device_timeout : 0;
}

static void worker_slot_watch(struct worker_slot *slot, uint64_t now, bool late) {
    char cause[128];
    if (late)
        slot->watched_ns = now;
    uint64_t since = slot->watched_ns, patience = worker_slot_patience(slot); /* before the signs: see let_go_ns */
    uint64_t written = atomic_load_explicit(&slot->process->page->written_ns, memory_order_relaxed);
    uint64_t let_go = atomic_load_explicit(&slot->process->page->let_go_ns, memory_order_relaxed);
    since = written > since ? written : since;
    uint64_t alive = atomic_load_explicit(&slot->process->page->alive_ns, memory_order_relaxed);
    since = let_go > since ? let_go : since;
    since = alive > since ? alive : since;
    uint64_t silent_ms = now > since ? (now - since) / WORKER_MS_NS : 0;
    if (slot->state == WORKER_LOST && (now - slot->lost_ns) / WORKER_MS_NS > WORKER_LOST_GRACE_MS) {
        worker_process_kill(slot->process);
    } else if (patience && silent_ms > patience && slot->state != WORKER_LOST) {
        log_text(cause, sizeof cause, "the worker gave no sign of life for %.1f s", (double)silent_ms / 1e3);
        log_event(LOG_LEVEL_ERROR, "worker_hung", "device", slot->device.name, "cause", cause, NULL);
        worker_slot_kill(slot, cause);
    }
}

void worker_slot_tick(struct worker_slot *slot, bool late) {
    if (!slot->process)
        return;
    worker_slot_refresh(slot);
    worker_slot_catch_up(slot);
    worker_slot_watch(slot, uv_hrtime(), late);
}

unsigned worker_slot_connections(const struct worker_slot *slot) {
    if (!slot->process)
        return 0;
    return (unsigned)(slot->handed - atomic_load(&slot->process->page->places.departed));
}
