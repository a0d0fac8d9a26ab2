#include "server/front/worker_slot.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/process/log.h"

enum {
    WORKER_BACKOFF_MAX_MS = 5000,
    WORKER_SLOT_UNDER_WAY_MAX = 128, /* connections on their way to one worker: half of its channel's queue */
    WORKER_SLOT_UNTOLD_MAX = 128,    /* connections that have ended, while the worker's messages of it are under way */
};
#define WORKER_MS_NS UINT64_C(1000000)
#define WORKER_HEALTHY_NS (30000 * WORKER_MS_NS) /* after so long without a failure the backoff begins anew */
#define WORKER_FAILURE_WINDOW_NS (60000 * WORKER_MS_NS)

static const char *const worker_state_names[] = {
    [WORKER_STARTING] = "starting",       [WORKER_READY] = "ready",
    [WORKER_RESTARTING] = "restarting",   [WORKER_LOST] = "lost",
    [WORKER_QUARANTINED] = "quarantined", [WORKER_STOPPED] = "stopped",
};

static const struct worker_process_events worker_slot_process_events;

const char *worker_state_name(enum worker_state state) {
    return worker_state_names[state];
}

static void worker_slot_enter(struct worker_slot *slot, enum worker_state state) {
    if (slot->state == state)
        return;
    slot->state = state;
    slot->events->changed(slot->owner);
}

/* ---- start ---- */

static void worker_slot_fill_start(const struct worker_slot *slot, struct channel_message *message) {
    const struct config *config = slot->config;
    struct channel_start *start = &message->start;
    memset(message, 0, sizeof *message);
    message->type = CHANNEL_START;
    snprintf(start->device, sizeof start->device, "%s", slot->device.name);
    snprintf(start->kind, sizeof start->kind, "%s", slot->device.kind);
    start->index = slot->device.index;
    start->threads = (uint32_t)config->threads;
    for (unsigned i = 0; i < config->n_devices; i++)
        start->sharers += !strcmp(config->devices[i].kind, "cpu");
    start->memory_total = config->memory;
    start->staging_total = config->staging;
    start->epoch = slot->epoch;
    start->log_level = (int32_t)log_level();
    start->log_format = (int32_t)log_format();
    snprintf(start->state_dir, sizeof start->state_dir, "%s", config->state_dir);
    snprintf(start->cache_dir, sizeof start->cache_dir, "%s", config->cache_dir);
    start->state_sync_ms = config->state_sync;
    start->state_timeout_ms = config->state_timeout;
    start->limits = (struct channel_limits){
        .each = config->limits,
        .sessions = (uint32_t)config->max_sessions,
        .hello_timeout_ms = (uint32_t)config->hello_timeout,
        .transfer_timeout_ms = (uint32_t)config->transfer_timeout,
        .device_timeout_ms = (uint32_t)config->device_timeout,
        .compile_timeout_ms = (uint32_t)config->compile_timeout,
        .compile_memory = config->compile_memory,
        .heartbeat_timeout_ms = (uint32_t)config->heartbeat_timeout,
        .drain_timeout_ms = config->drain_timeout ? (uint32_t)config->drain_timeout : 1, /* 0 means the default there */
    };
}

static void worker_slot_send_file(struct worker_slot *slot, enum channel_type type, int fd, const char *failed) {
    struct channel_message message;
    if (fd < 0)
        return;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        worker_slot_kill(slot, failed);
        return;
    }
    memset(&message, 0, sizeof message);
    message.type = type;
    if (worker_process_send(slot->process, &message, copy) == STATUS_LIMIT)
        worker_slot_kill(slot, failed);
}

/* If this fails the worker is killed: it may not continue with old credentials. */
static void worker_slot_send_credentials(struct worker_slot *slot) {
    worker_slot_send_file(slot, CHANNEL_CREDENTIALS, slot->credentials, "could not be given certificates");
}

static void worker_slot_send_users(struct worker_slot *slot) {
    worker_slot_send_file(slot, CHANNEL_USERS, slot->users, "could not be told of users");
}

void worker_slot_set_users(struct worker_slot *slot, int fd) {
    slot->users = fd;
    if (slot->process)
        worker_slot_send_users(slot);
}

void worker_slot_set_credentials(struct worker_slot *slot, int fd) {
    slot->credentials = fd;
    if (slot->process)
        worker_slot_send_credentials(slot);
}

static void worker_slot_failed(struct worker_slot *slot, const char *cause);

static void worker_slot_clear_counters(struct worker_slot *slot) {
    static const struct stats_device none;
    stats_device_copy_counters(&slot->snapshot.device, &none);
}

void worker_slot_start(struct worker_slot *slot) {
    struct channel_message message;
    struct fault fault;
    slot->epoch++;
    worker_slot_clear_counters(slot);
    slot->started_ns = slot->watched_ns = uv_hrtime();
    slot->ready_ns = 0;
    slot->taken = slot->taken_on_page = 0;
    slot->cause[0] = 0;
    slot->snapshot.written_ns = slot->started_ns;
    if (worker_process_start(slot->loop, slot->device.name, slot->device.environment, &worker_slot_process_events, slot,
                             &slot->process, &fault)) {
        worker_slot_failed(slot, fault.message);
        return;
    }
    worker_slot_fill_start(slot, &message);
    worker_process_send(slot->process, &message, -1);
    worker_slot_send_credentials(slot);
    worker_slot_send_users(slot);
    char pid[16], epoch[24];
    log_event(LOG_LEVEL_DEBUG, "worker_start", "device", slot->device.name, "pid",
              log_text(pid, sizeof pid, "%d", slot->process->process.pid), "epoch",
              log_text(epoch, sizeof epoch, "%llu", (unsigned long long)slot->epoch), NULL);
}

static void worker_slot_restart(uv_timer_t *timer) {
    struct worker_slot *slot = timer->data;
    slot->restarts++;
    worker_slot_start(slot);
}

/* ---- failure ---- */

static bool worker_slot_failed_too_often(const struct worker_slot *slot, uint64_t now) {
    uint64_t allowed = slot->config->quarantine_after;
    if (!allowed || slot->n_failures < allowed)
        return false;
    uint64_t oldest = slot->failures_ns[(slot->n_failures - allowed) % CONFIG_QUARANTINE_MAX];
    return now - oldest <= WORKER_FAILURE_WINDOW_NS;
}

static uint64_t worker_slot_next_delay(struct worker_slot *slot, uint64_t now) {
    uint64_t delay = slot->backoff_ms;
    if (slot->ready_ns && now - slot->ready_ns >= WORKER_HEALTHY_NS)
        delay = slot->config->restart_backoff;
    slot->backoff_ms = delay * 2 < WORKER_BACKOFF_MAX_MS ? delay * 2 : WORKER_BACKOFF_MAX_MS;
    return delay;
}

/* Drops the figures of the dead process. The device's description stays, and the epoch's counters stay until the next
 * epoch begins: a counter that fell to 0 earlier would seem to begin anew twice. */
static void worker_slot_clear_snapshot(struct worker_slot *slot) {
    struct stats_device last = slot->snapshot.device;
    slot->snapshot.device = (struct stats_device){.engine.device = last.engine.device};
    stats_device_copy_counters(&slot->snapshot.device, &last);
    slot->snapshot.n_sessions = slot->snapshot.n_principals = slot->snapshot.n_programs = 0;
    slot->handed = slot->handed_kept = slot->ended = 0;
}

static void worker_slot_failed(struct worker_slot *slot, const char *cause) {
    uint64_t now = uv_hrtime();
    snprintf(slot->last_fault, sizeof slot->last_fault, "%s", cause);
    slot->last_fault_ns = now;
    slot->failures_ns[slot->n_failures++ % CONFIG_QUARANTINE_MAX] = now;
    if (worker_slot_failed_too_often(slot, now)) {
        log_event(LOG_LEVEL_ERROR, "worker_quarantined", "device", slot->device.name, "cause", cause, NULL);
        worker_slot_enter(slot, WORKER_QUARANTINED);
        return;
    }
    uint64_t delay = worker_slot_next_delay(slot, now);
    char text[24];
    log_event(LOG_LEVEL_WARNING, "worker_restart", "device", slot->device.name, "in_ms",
              log_text(text, sizeof text, "%llu", (unsigned long long)delay), NULL);
    uv_timer_start(&slot->restart, worker_slot_restart, delay, 0);
    worker_slot_enter(slot, WORKER_RESTARTING);
}

/* ---- events of the process ---- */

static void worker_slot_ready(struct worker_slot *slot) {
    char pid[16], epoch[24], ms[24];
    slot->ready_ns = uv_hrtime();
    worker_slot_refresh(slot);
    stats_operations_read(&slot->process->page->operations, slot->operations);
    slot->operations_known = true;
    log_event(LOG_LEVEL_INFO, "worker_ready", "device", slot->device.name, "pid",
              log_text(pid, sizeof pid, "%d", slot->process->process.pid), "epoch",
              log_text(epoch, sizeof epoch, "%llu", (unsigned long long)slot->epoch), "after_ms",
              log_text(ms, sizeof ms, "%.1f", (double)(slot->ready_ns - slot->started_ns) / 1e6), NULL);
    /* Once more, for copies that began to wait while the end of the last process was being reported. No session is here
     * yet. */
    if (slot->restarts)
        slot->events->lost(slot->owner, slot);
    worker_slot_enter(slot, WORKER_READY);
    /* The number may have grown since the worker was started. */
    worker_slot_offer_places(slot, slot->config->max_connections);
}

static void worker_slot_lose(struct worker_slot *slot, const char *cause) {
    if (!slot->cause[0])
        snprintf(slot->cause, sizeof slot->cause, "%s", cause);
    if (slot->state == WORKER_LOST)
        return;
    slot->lost_ns = uv_hrtime();
    worker_slot_enter(slot, WORKER_LOST);
}

static void worker_slot_count_taken(struct worker_slot *slot, uint64_t taken) {
    if (taken <= slot->taken)
        return;
    slot->taken = taken;
    slot->events->changed(slot->owner);
}

static bool worker_slot_is_behind(const struct worker_slot *slot) {
    return slot->process && atomic_load(&slot->process->page->places.departed) >= slot->ended + WORKER_SLOT_UNTOLD_MAX;
}

bool worker_slot_takes(const struct worker_slot *slot) {
    return slot->handed - slot->taken < WORKER_SLOT_UNDER_WAY_MAX && !worker_slot_is_behind(slot);
}

static void worker_slot_count_ended(struct worker_slot *slot) {
    bool behind = worker_slot_is_behind(slot);
    slot->ended++;
    if (behind && !worker_slot_is_behind(slot))
        slot->events->changed(slot->owner);
}

static uint64_t worker_slot_taken_on_page(const struct worker_slot *slot) {
    return atomic_load_explicit(&slot->process->page->taken, memory_order_acquire);
}

/* Counts connections whose CHANNEL_TAKEN was lost. The page is ahead of the messages, which may have more to say about
 * the same connection, so its number counts one tick later. */
static void worker_slot_catch_up(struct worker_slot *slot) {
    worker_slot_count_taken(slot, slot->taken_on_page);
    slot->taken_on_page = worker_slot_taken_on_page(slot);
}

static void worker_slot_message(void *owner, const struct channel_message *message, int fd) {
    struct worker_slot *slot = owner;
    if (fd >= 0)
        close(fd); /* no worker sends a descriptor */
    switch ((int)message->type) {
    case CHANNEL_READY:
        if (slot->state == WORKER_STARTING || slot->state == WORKER_RESTARTING)
            worker_slot_ready(slot);
        break;
    case CHANNEL_FAULT: {
        char cause[256];
        snprintf(cause, sizeof cause, "%.*s", (int)sizeof message->fault.message - 1, message->fault.message);
        log_event(LOG_LEVEL_ERROR, "worker_fault", "device", slot->device.name, "code",
                  status_name((int)message->fault.code), "cause", cause, NULL);
        worker_slot_lose(slot, cause);
        break;
    }
    case CHANNEL_LINK_WANTED:
        slot->events->link_wanted(slot->owner, slot, message);
        break;
    case CHANNEL_LINK_ROOM:
        slot->events->link_room(slot->owner, slot, message);
        break;
    case CHANNEL_KILLED:
        slot->events->killed(slot->owner, slot, message);
        break;
    case CHANNEL_LOGIN:
        slot->events->login(slot->owner, slot, message);
        break;
    case CHANNEL_REFUSED:
        slot->events->refused(slot->owner, slot, message->connection.session);
        break;
    case CHANNEL_TAKEN:
        worker_slot_count_taken(slot, message->taken);
        break;
    case CHANNEL_GREETED:
        slot->events->greeted(slot->owner, slot, message->connection.session);
        break;
    case CHANNEL_ENDED:
        slot->events->ended(slot->owner, slot, message->connection.session);
        worker_slot_count_ended(slot);
        break;
    case CHANNEL_DRAINED:
        log_event(LOG_LEVEL_DEBUG, "worker_drained", "device", slot->device.name, NULL);
        break;
    default:
        log_event(LOG_LEVEL_WARNING, "worker_message_unknown", "device", slot->device.name, NULL);
    }
}

static void worker_slot_hung_up(void *owner) {
    struct worker_slot *slot = owner;
    if (!slot->draining)
        worker_slot_lose(slot, "");
}

static void worker_slot_describe_exit(const struct worker_slot *slot, int64_t status, int signal, char *text,
                                      size_t size) {
    if (slot->cause[0])
        snprintf(text, size, "%s", slot->cause);
    else if (signal)
        snprintf(text, size, "the worker was killed by signal %d (%s)%s%.*s", signal, strsignal(signal),
                 *slot->process->page->crash ? "; its last operation was " : "",
                 (int)sizeof slot->process->page->crash - 1, slot->process->page->crash);
    else
        snprintf(text, size, "the worker exited with status %lld", (long long)status);
}

/* Reports names that are not saved. A worker that ends in order says so by its exit status; for any other end the last
 * stats page says it. */
static void worker_slot_tell_unsaved(struct worker_slot *slot, bool meant, int64_t status) {
    const struct stats_names *names = &slot->snapshot.device.names;
    char count[24], bytes[24];
    bool told = slot->draining && status == WORKER_EXIT_UNSAVED;
    bool lost = told || (!meant && atomic_load_explicit(&slot->process->page->names_dirty, memory_order_relaxed));
    slot->unsaved |= lost;
    if (!lost || told)
        return;
    if (!names->unsaved) /* the changes are so recent that the page does not name the owners */
        log_event(LOG_LEVEL_ERROR, "names_lost", "device", slot->device.name, "cause",
                  "the worker ended before the last changes were on the disk", NULL);
    for (unsigned i = 0; i < names->n_owners && i < STATS_OWNERS_MAX; i++)
        if (names->owners[i].unsaved)
            log_event(LOG_LEVEL_ERROR, "names_lost", "device", slot->device.name, "principal",
                      names->owners[i].principal, "changes",
                      log_text(count, sizeof count, "%llu", (unsigned long long)names->owners[i].unsaved),
                      "bytes_named", log_text(bytes, sizeof bytes, "%llu", (unsigned long long)names->owners[i].bytes),
                      "cause", "the worker ended before they were on the disk", NULL);
}

static void worker_slot_exited(void *owner, int64_t status, int signal) {
    struct worker_slot *slot = owner;
    char cause[256], pid[16], code[24], number[16];
    worker_slot_describe_exit(slot, status, signal, cause, sizeof cause);
    bool meant = slot->draining && !status && !signal;
    log_event(meant ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, "worker_exit", "device", slot->device.name, "pid",
              log_text(pid, sizeof pid, "%d", slot->process->process.pid), "status",
              log_text(code, sizeof code, "%lld", (long long)status), "signal",
              log_text(number, sizeof number, "%d", signal), "cause", meant ? "drained" : cause, NULL);
    slot->taken = worker_slot_taken_on_page(slot); /* its messages have all been read */
    worker_slot_refresh(slot);                     /* it may have reported an Xid last */
    worker_slot_tell_unsaved(slot, meant, status);
    worker_process_destroy(slot->process);
    slot->process = NULL;
    worker_slot_clear_snapshot(slot);
    slot->events->ended(slot->owner, slot, 0);
    slot->events->lost(slot->owner, slot);
    if (slot->draining)
        worker_slot_enter(slot, WORKER_STOPPED);
    else
        worker_slot_failed(slot, cause);
}

static const struct worker_process_events worker_slot_process_events = {
    .message = worker_slot_message,
    .hung_up = worker_slot_hung_up,
    .exited = worker_slot_exited,
};

/* ---- requests of the front ---- */

int worker_slot_send(struct worker_slot *slot, const struct channel_message *message, int fd) {
    if (slot->state == WORKER_READY && slot->process)
        return worker_process_send(slot->process, message, fd);
    if (fd >= 0)
        close(fd);
    return STATUS_DEVICE_LOST;
}

void worker_slot_offer_places(struct worker_slot *slot, uint64_t places) {
    const struct channel_message message = {.type = CHANNEL_PLACES, .places = places};
    (void)worker_slot_send(slot, &message, -1);
}

int worker_slot_connect(struct worker_slot *slot, int fd, uint64_t session, bool kept, const struct peer *peer) {
    struct channel_message message;
    memset(&message, 0, sizeof message);
    message.type = CHANNEL_CONNECTION;
    message.connection.session = session;
    message.connection.kept = kept;
    message.connection.peer = *peer;
    int error = worker_slot_send(slot, &message, fd);
    if (error)
        return error;
    slot->handed++;
    slot->handed_kept += kept;
    return STATUS_OK;
}

void worker_slot_kill(struct worker_slot *slot, const char *cause) {
    if (!slot->process)
        return;
    worker_slot_lose(slot, cause);
    worker_process_kill(slot->process);
}

void worker_slot_drain(struct worker_slot *slot) {
    struct channel_message message;
    slot->draining = true;
    uv_timer_stop(&slot->restart);
    if (!slot->process) {
        worker_slot_enter(slot, WORKER_STOPPED);
        return;
    }
    memset(&message, 0, sizeof message);
    message.type = CHANNEL_DRAIN;
    if (worker_slot_send(slot, &message, -1))
        worker_slot_kill(slot, "not ready when the daemon stopped");
}

/* ---- life ---- */

int worker_slot_init(struct worker_slot *slot, uv_loop_t *loop, const struct config *config, unsigned number,
                     const struct worker_slot_events *events, void *owner, struct fault *fault) {
    *slot = (struct worker_slot){
        .loop = loop,
        .config = config,
        .device = config->devices[number],
        .target = (uint16_t)number,
        .events = events,
        .owner = owner,
        .state = WORKER_STARTING,
        .backoff_ms = config->restart_backoff,
        .credentials = -1,
        .users = -1,
    };
    /* Pages of these arrays that are never touched cost no memory. */
    slot->snapshot.sessions = calloc(STATS_SESSIONS_MAX, sizeof *slot->snapshot.sessions);
    slot->operations = calloc(1, sizeof *slot->operations);
    slot->snapshot.principals = calloc(STATS_PRINCIPALS_MAX, sizeof *slot->snapshot.principals);
    slot->snapshot.programs = calloc(STATS_PROGRAMS_MAX, sizeof *slot->snapshot.programs);
    if (!slot->snapshot.sessions || !slot->snapshot.principals || !slot->snapshot.programs || !slot->operations)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the sessions of %s", slot->device.name);
    uv_timer_init(loop, &slot->restart);
    slot->restart.data = slot;
    return STATUS_OK;
}

void worker_slot_finish(struct worker_slot *slot) {
    worker_process_destroy(slot->process);
    slot->process = NULL;
    uv_close((uv_handle_t *)&slot->restart, NULL);
    free(slot->snapshot.sessions);
    slot->snapshot.sessions = NULL;
    free(slot->snapshot.principals);
    slot->snapshot.principals = NULL;
    free(slot->snapshot.programs);
    slot->snapshot.programs = NULL;
    free(slot->operations);
    slot->operations = NULL;
}

/* ---- the stats page, and signs of life ---- */

enum { WORKER_LOST_GRACE_MS = 1000 /* for a worker that has lost its device: it tells its clients and exits */ };
#define WORKER_MS_NS UINT64_C(1000000)

/* Keeps the last Xid: the process that reports one often ends soon. */
static void worker_slot_keep_xid(struct worker_slot *slot) {
    const struct device_readings *readings = &slot->snapshot.device.readings;
    if (!device_readings_has(readings, READING_XID) || !readings->xid_at_ns)
        return;
    slot->xid = readings->values[READING_XID];
    slot->xid_ns = readings->xid_at_ns;
}

void worker_slot_refresh(struct worker_slot *slot) {
    /* A torn copy must not replace a good one. */
    static struct stats_session sessions[STATS_SESSIONS_MAX];
    static struct stats_principal principals[STATS_PRINCIPALS_MAX];
    static struct stats_program programs[STATS_PROGRAMS_MAX];
    struct stats_copy copy = {.sessions = sessions,
                              .principals = principals,
                              .programs = programs,
                              .sessions_room = STATS_SESSIONS_MAX,
                              .principals_room = STATS_PRINCIPALS_MAX,
                              .programs_room = STATS_PROGRAMS_MAX};
    if (!slot->process || !stats_page_read(slot->process->page, &copy) || !copy.written_ns)
        return;
    slot->snapshot.device = copy.device;
    worker_slot_keep_xid(slot);
    slot->snapshot.written_ns = copy.written_ns;
    slot->snapshot.n_sessions = copy.n_sessions;
    slot->snapshot.n_principals = copy.n_principals;
    slot->snapshot.n_programs = copy.n_programs;
    memcpy(slot->snapshot.sessions, sessions, copy.n_sessions * sizeof *sessions);
    memcpy(slot->snapshot.principals, principals, copy.n_principals * sizeof *principals);
    memcpy(slot->snapshot.programs, programs, copy.n_programs * sizeof *programs);
}

/* How long the worker may give no sign of life; 0: for ever. While it waits for its device, device-timeout is added. */
static uint64_t worker_slot_patience(const struct worker_slot *slot) {
    const struct config *config = slot->config;
    if (!atomic_load_explicit(&slot->process->page->device_call_ns, memory_order_acquire))
        return config->watchdog_timeout;
    return config->watchdog_timeout && config->device_timeout ? config->watchdog_timeout + config->device_timeout : 0;
}

static void worker_slot_watch(struct worker_slot *slot, uint64_t now, bool late) {
    char cause[128];
    if (late)
        slot->watched_ns = now;
    uint64_t since = slot->watched_ns,
             patience = worker_slot_patience(slot); /* read before the signs of life: see device_called_ns */
    uint64_t written = atomic_load_explicit(&slot->process->page->written_ns, memory_order_relaxed);
    uint64_t let_go = atomic_load_explicit(&slot->process->page->device_called_ns, memory_order_relaxed);
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
