#include "server/front/supervisor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/wire/frame.h"
#include "server/process/clock.h"
#include "server/process/log.h"

enum {
    SUPERVISOR_TICK_MS = 250,
    SUPERVISOR_LATE_MS = 1000, /* a tick this late means that the front itself stood still */
    /* In addition to drain-timeout, which the workers measure themselves: for SERVICE_FLUSH_MS, CONNECTION_LINGER_MS,
     * and a reserve. */
    SUPERVISOR_GRACE_MS = 4000,
    SUPERVISOR_LINK_BUFFER = 4 << 20,
};

/* ---- sessions that an operator ends ---- */

static void kill_finish(struct kill *kill, const struct fault *fault) {
    LIST_REMOVE(kill, link);
    kill->done(kill, fault);
}

static void kill_finish_unknown(struct kill *kill) {
    struct fault fault;
    if (kill->deaf)
        fault_set(&fault, STATUS_AGAIN,
                  "%s could not be asked whether it has session %llu, and no other device has it: "
                  "the daemon has no memory for a message to its worker; try again",
                  kill->deaf->device.name, (unsigned long long)kill->session);
    else
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "there is no session %llu (it may just have ended)",
                  (unsigned long long)kill->session);
    kill_finish(kill, &fault);
}

/* The first device that has not replied; NULL: all have. */
static const struct worker_slot *kill_missing(const struct supervisor *supervisor, const struct kill *kill) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        if (kill->asked[i])
            return &supervisor->slots[i];
    return NULL;
}

void kill_start(struct supervisor *supervisor, struct kill *kill, uint64_t session, const char *by,
                const char *reason) {
    struct channel_message message;
    memset(&message, 0, sizeof message);
    message.type = CHANNEL_KILL;
    message.kill.session = session;
    snprintf(message.kill.by, sizeof message.kill.by, "%s", by);
    snprintf(message.kill.reason, sizeof message.kill.reason, "%s", reason);
    kill->session = session;
    kill->deadline_ms = clock_now_ms() + KILL_TIMEOUT_MS;
    LIST_INSERT_HEAD(&supervisor->kills, kill, link);
    kill->deaf = NULL;
    for (unsigned i = 0; i < supervisor->n_slots; i++) {
        int error = worker_slot_send(&supervisor->slots[i], &message, -1);
        kill->asked[i] = error == STATUS_OK;
        if (error == STATUS_LIMIT)
            kill->deaf = &supervisor->slots[i];
    }
    if (!kill_missing(supervisor, kill))
        kill_finish_unknown(kill);
}

void kill_forget(struct kill *kill) {
    LIST_REMOVE(kill, link);
}

void kill_replied(struct supervisor *supervisor, const struct worker_slot *slot, const struct channel_message *reply) {
    const struct fault ended = {0};
    struct kill *next;
    for (struct kill *kill = LIST_FIRST(&supervisor->kills); kill; kill = next) {
        next = LIST_NEXT(kill, link);
        if (kill->session != reply->kill.session || !kill->asked[slot->target])
            continue;
        kill->asked[slot->target] = false;
        if (reply->kill.found)
            kill_finish(kill, &ended);
        else if (!kill_missing(supervisor, kill))
            kill_finish_unknown(kill);
    }
}

static void kill_lost(struct supervisor *supervisor, const struct worker_slot *slot) {
    struct kill *next;
    for (struct kill *kill = LIST_FIRST(&supervisor->kills); kill; kill = next) {
        next = LIST_NEXT(kill, link);
        bool asked = kill->asked[slot->target];
        kill->asked[slot->target] = false;
        if (asked && !kill_missing(supervisor, kill))
            kill_finish_unknown(kill);
    }
}

static void kill_tick(struct supervisor *supervisor) {
    uint64_t now = clock_now_ms();
    struct fault fault;
    struct kill *next;
    for (struct kill *kill = LIST_FIRST(&supervisor->kills); kill; kill = next) {
        next = LIST_NEXT(kill, link);
        if (now < kill->deadline_ms)
            continue;
        fault_set(&fault, STATUS_TIMED_OUT,
                  "%s does not answer; if it has session %llu, the session ends as soon as it answers",
                  kill_missing(supervisor, kill)->device.name, (unsigned long long)kill->session);
        kill_finish(kill, &fault);
    }
}

/* ---- links ---- */

static struct worker_slot *supervisor_find_device(struct supervisor *supervisor, const char *name) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        if (!strcmp(supervisor->slots[i].device.name, name))
            return &supervisor->slots[i];
    return NULL;
}

static int supervisor_make_link(int ends[2]) {
    int size = SUPERVISOR_LINK_BUFFER;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends))
        return -errno;
    for (int i = 0; i < 2; i++)
        if (setsockopt(ends[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size))
            setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return 0;
}

/* Gives the far end of a new link to the worker of `to`, and sets *fd to the near one. */
static int supervisor_link(struct supervisor *supervisor, const struct worker_slot *from, const char *to,
                           const struct channel_message *wanted, int *fd, struct fault *fault) {
    struct channel_message message;
    char names[160];
    int ends[2];
    struct worker_slot *slot = supervisor_find_device(supervisor, to);
    if (!slot) {
        supervisor_names(supervisor, names, sizeof names);
        return fault_set(fault, STATUS_NO_DEVICE, "no device \"%s\" here; there are: %s", to, names);
    }
    if (slot->state != WORKER_READY)
        return fault_set(fault, STATUS_DEVICE_LOST, "the worker of %s is %s", to, worker_state_name(slot->state));
    int error = supervisor_make_link(ends);
    if (error)
        return fault_set(fault, STATUS_INTERNAL, "no link to %s: %s", to, strerror(-error));
    memset(&message, 0, sizeof message);
    message.type = CHANNEL_LINK_IN;
    message.link = wanted->link;
    snprintf(message.link.device, sizeof message.link.device, "%s", from->device.name);
    error = worker_slot_send(slot, &message, ends[0]);
    if (error) {
        close(ends[1]);
        return fault_set(fault, (enum status)error, "the worker of %s takes no link now", to);
    }
    *fd = ends[1];
    return STATUS_OK;
}

void supervisor_reply_link(struct supervisor *supervisor, struct worker_slot *from,
                           const struct channel_message *wanted) {
    struct channel_message reply;
    char to[sizeof wanted->link.device];
    int fd = -1;
    snprintf(to, sizeof to, "%.*s", (int)sizeof to - 1, wanted->link.device);
    memset(&reply, 0, sizeof reply);
    reply.type = CHANNEL_LINK_OUT;
    reply.link = wanted->link;
    int error = supervisor_link(supervisor, from, to, wanted, &fd, &reply.link_fault);
    if (error == STATUS_LIMIT) /* the worker asks again */
        log_event(LOG_LEVEL_DEBUG, "link_later", "from", from->device.name, "to", to, NULL);
    else if (error)
        log_event_from(LOG_LEVEL_WARNING, from->device.name, "link_refused", "from", from->device.name, "to", to,
                       "cause", reply.link_fault.message, NULL);
    else
        log_event(LOG_LEVEL_DEBUG, "link", "from", from->device.name, "to", to, NULL);
    worker_slot_send(from, &reply, fd);
}

void supervisor_link_room(struct supervisor *supervisor, const struct worker_slot *to,
                          const struct channel_message *message) {
    struct channel_message room;
    char from[sizeof message->link.device];
    snprintf(from, sizeof from, "%.*s", (int)sizeof from - 1, message->link.device);
    struct worker_slot *slot = supervisor_find_device(supervisor, from);
    if (!slot || slot->state != WORKER_READY)
        return;
    memset(&room, 0, sizeof room);
    room.type = CHANNEL_LINK_ROOM;
    snprintf(room.link.device, sizeof room.link.device, "%s", to->device.name);
    worker_slot_send(slot, &room, -1); /* if it is lost, that worker asks after a while */
}

void supervisor_lost(struct supervisor *supervisor, const struct worker_slot *lost) {
    struct channel_message message;
    memset(&message, 0, sizeof message);
    message.type = CHANNEL_PEER_LOST;
    snprintf(message.link.device, sizeof message.link.device, "%s", lost->device.name);
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        if (&supervisor->slots[i] != lost)
            worker_slot_send(&supervisor->slots[i], &message, -1);
    kill_lost(supervisor, lost);
}

/* ---- watchdog ---- */

static void supervisor_ticked(uv_timer_t *timer) {
    struct supervisor *supervisor = timer->data;
    uint64_t now = uv_hrtime();
    bool late = now - supervisor->ticked_ns > (uint64_t)SUPERVISOR_LATE_MS * 1000000;
    supervisor->ticked_ns = now;
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        worker_slot_tick(&supervisor->slots[i], late);
    kill_tick(supervisor);
    if (supervisor->ticked)
        supervisor->ticked(supervisor->owner);
}

/* ---- life ---- */

int supervisor_init(struct supervisor *supervisor, uv_loop_t *loop, const struct config *config,
                    const struct worker_slot_events *events, void *owner, struct fault *fault) {
    *supervisor = (struct supervisor){.loop = loop, .config = config, .owner = owner};
    uv_timer_init(loop, &supervisor->tick);
    uv_timer_init(loop, &supervisor->patience);
    supervisor->tick.data = supervisor->patience.data = supervisor;
    supervisor->slots = calloc(config->n_devices, sizeof *supervisor->slots);
    if (!supervisor->slots)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u devices", config->n_devices);
    for (; supervisor->n_slots < config->n_devices; supervisor->n_slots++) {
        int error = worker_slot_init(&supervisor->slots[supervisor->n_slots], loop, config, supervisor->n_slots, events,
                                     owner, fault);
        if (error)
            return error;
    }
    return STATUS_OK;
}

void supervisor_finish(struct supervisor *supervisor) {
    uv_close((uv_handle_t *)&supervisor->tick, NULL);
    uv_close((uv_handle_t *)&supervisor->patience, NULL);
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        worker_slot_finish(&supervisor->slots[i]);
}

void supervisor_free(struct supervisor *supervisor) {
    free(supervisor->slots);
    supervisor->slots = NULL;
}

void supervisor_start(struct supervisor *supervisor) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        worker_slot_start(&supervisor->slots[i]);
    supervisor->ticked_ns = uv_hrtime();
    uv_timer_start(&supervisor->tick, supervisor_ticked, SUPERVISOR_TICK_MS, SUPERVISOR_TICK_MS);
}

void supervisor_set_credentials(struct supervisor *supervisor, int fd) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        worker_slot_set_credentials(&supervisor->slots[i], fd);
}

void supervisor_set_users(struct supervisor *supervisor, int fd) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        worker_slot_set_users(&supervisor->slots[i], fd);
}

void supervisor_kill(struct supervisor *supervisor) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        worker_slot_kill(&supervisor->slots[i], "killed at the end of the daemon");
}

static void supervisor_out_of_patience(uv_timer_t *timer) {
    struct supervisor *supervisor = timer->data;
    log_event(LOG_LEVEL_WARNING, "drain_timeout", NULL);
    supervisor_kill(supervisor);
}

/* Time for queued work, and then for saving names; the worker itself gives up after that time and logs which names are
 * not saved. */
static uint64_t supervisor_drain_ms(const struct config *config) {
    uint64_t names = *config->state_dir ? config->state_timeout + SUPERVISOR_GRACE_MS : 0;
    return config->drain_timeout + SUPERVISOR_GRACE_MS + names;
}

void supervisor_drain(struct supervisor *supervisor) {
    uv_timer_start(&supervisor->patience, supervisor_out_of_patience, supervisor_drain_ms(supervisor->config), 0);
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        worker_slot_drain(&supervisor->slots[i]);
}

/* Tells all workers a change of somebody's rights. */
static void supervisor_tell(struct supervisor *supervisor, const struct channel_message *message) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        if (worker_slot_send(&supervisor->slots[i], message, -1) == STATUS_LIMIT)
            /* There is no memory for the message: ends the worker, so that no revoked connection stays. */
            worker_slot_kill(&supervisor->slots[i], "could not be told of changed rights");
}

void supervisor_revoke(struct supervisor *supervisor, const struct principal *principal) {
    const struct channel_message message = {.type = CHANNEL_REVOKED, .principal = *principal};
    supervisor_tell(supervisor, &message);
}

void supervisor_set_limits(struct supervisor *supervisor, const char *name, const struct limits *limits) {
    struct channel_message message = {.type = CHANNEL_LIMITS, .principal.limits = *limits};
    snprintf(message.principal.name, sizeof message.principal.name, "%s", name);
    supervisor_tell(supervisor, &message);
}

void supervisor_set_kernels(struct supervisor *supervisor, const char *list) {
    struct channel_message message = {.type = CHANNEL_KERNELS};
    snprintf(message.kernels, sizeof message.kernels, "%s", list);
    supervisor_tell(supervisor, &message);
}

void supervisor_set_places(struct supervisor *supervisor, uint64_t places) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        worker_slot_offer_places(&supervisor->slots[i], places);
}

bool supervisor_settled(const struct supervisor *supervisor) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        if (supervisor->slots[i].state != WORKER_READY && supervisor->slots[i].state != WORKER_QUARANTINED)
            return false;
    return true;
}

bool supervisor_stopped(const struct supervisor *supervisor) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        if (supervisor->slots[i].process || supervisor->slots[i].state != WORKER_STOPPED)
            return false;
    return true;
}

bool supervisor_unsaved(const struct supervisor *supervisor) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        if (supervisor->slots[i].unsaved)
            return true;
    return false;
}

struct worker_slot *supervisor_find(struct supervisor *supervisor, unsigned target) {
    if (target == PREAMBLE_TARGET_DEFAULT)
        target = 0;
    return target < supervisor->n_slots ? &supervisor->slots[target] : NULL;
}

void supervisor_refresh(struct supervisor *supervisor) {
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        worker_slot_refresh(&supervisor->slots[i]);
}

unsigned supervisor_connections(const struct supervisor *supervisor) {
    unsigned sum = 0;
    for (unsigned i = 0; i < supervisor->n_slots; i++)
        sum += worker_slot_connections(&supervisor->slots[i]);
    return sum;
}

void supervisor_names(const struct supervisor *supervisor, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (unsigned i = 0; i < supervisor->n_slots && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", supervisor->slots[i].device.name);
}
