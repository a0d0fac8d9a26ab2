#include "server/front/arrival.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/net/transport.h"
#include "server/front/front.h"
#include "server/process/log.h"

/* ---- the peer ---- */

/* A client has vanished if it does not acknowledge sent data for so long; keepalive does not notice that. */
enum { ARRIVAL_USER_TIMEOUT_MS = 30000 };

static void arrival_identify_unix(int fd, struct peer *peer) {
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    snprintf(peer->address, sizeof peer->address, "unix");
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size))
        return;
    peer->has_uid = true;
    peer->uid = credentials.uid;
    peer->source.kind = SOURCE_UID;
    memcpy(peer->source.bytes, &peer->uid, sizeof peer->uid);
}

static void arrival_identify_tcp(const struct sockaddr_storage *address, struct peer *peer) {
    char host[INET6_ADDRSTRLEN] = "";
    source_find(&peer->source, address);
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(peer->address, sizeof peer->address, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(peer->address, sizeof peer->address, "%s:%u", host, ntohs(in->sin_port));
    }
}

static void arrival_meet(int fd, const struct sockaddr_storage *address, struct peer *peer) {
    const int timeout = ARRIVAL_USER_TIMEOUT_MS;
    socket_tune(fd);
    if (address->ss_family == AF_INET || address->ss_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
        arrival_identify_tcp(address, peer);
    } else {
        arrival_identify_unix(fd, peer);
    }
}

/* ---- ends ---- */

static void arrival_closed(uv_handle_t *handle) {
    struct arrival *arrival = handle->data;
    if (!--arrival->handles)
        free(arrival);
}

/* Returns the socket; the arrival is dead afterwards. uv_close() removes the descriptor from the poll set at once, so
 * that nobody watches it here while it is in use elsewhere. */
static int arrival_release(struct arrival *arrival) {
    int fd = arrival->fd;
    TAILQ_REMOVE(&arrival->front->arrivals.head, arrival, link);
    lobby_leave(&arrival->front->roster.lobby, &arrival->waiting);
    if (!arrival->slot)
        arrival->front->arrivals.places[arrival->place]--;
    roster_leave(arrival->entry);
    arrival->entry = NULL;
    uv_close((uv_handle_t *)&arrival->poll, arrival_closed);
    uv_close((uv_handle_t *)&arrival->timer, arrival_closed);
    return fd;
}

static void arrival_refuse(struct arrival *arrival, const struct fault *fault) {
    struct front *front = arrival->front;
    front->rejections[fault->code]++;
    log_event_from(LOG_LEVEL_INFO, PEER_SOURCE(&arrival->peer), "connection_refused", "peer", arrival->peer.address,
                   "principal", arrival->peer.principal.name, "code", status_name((int)fault->code), "cause",
                   fault->message, NULL);
    farewell_say(&front->farewells, arrival_release(arrival), fault);
}

static void arrival_refuse_with(struct arrival *arrival, enum status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void arrival_refuse_with(struct arrival *arrival, enum status code, const char *format, ...) {
    struct fault fault;
    va_list arguments;
    va_start(arguments, format);
    fault_set_list(&fault, code, format, arguments);
    va_end(arguments);
    arrival_refuse(arrival, &fault);
}

/* Counts and logs a refusal for want of places. It is logged at a lower level than others: a full daemon has no time
 * for its log. */
static void arrival_tell_full(struct front *front, struct fault *fault) {
    front->refusals[REFUSAL_MAX_CONNECTIONS]++;
    front->rejections[STATUS_LIMIT]++;
    fault_set(fault, STATUS_LIMIT, "all of the daemon's %llu places for connections are taken (max-connections)",
              (unsigned long long)front->config->max_connections);
    log_event(LOG_LEVEL_DEBUG, "connection_refused", "code", status_name(STATUS_LIMIT), NULL);
}

static void arrival_refuse_full(struct arrival *arrival) {
    struct front *front = arrival->front;
    struct fault fault;
    arrival_tell_full(front, &fault);
    farewell_say(&front->farewells, arrival_release(arrival), &fault);
}

/* ---- handing over ---- */

static void arrival_timed_out(uv_timer_t *timer);
static void arrival_polled(uv_poll_t *poll, int status, int events);

/* The arrival waits, because its worker will be ready soon or is busy with earlier arrivals. Meanwhile only the end of
 * the client's socket is watched. */
static void arrival_hold(struct arrival *arrival) {
    if (arrival->parked)
        return;
    arrival->parked = true;
    uv_timer_start(&arrival->timer, arrival_timed_out, arrival->front->config->hold_timeout, 0);
    uv_poll_start(&arrival->poll, UV_DISCONNECT, arrival_polled);
}

/* The socket is on its way to the worker; the arrival waits until the worker has taken it. */
static void arrival_sent(struct arrival *arrival, struct worker_slot *slot) {
    arrival->parked = false;
    arrival->slot = slot;
    arrival->handed = slot->handed;
    arrival->front->arrivals.places[arrival->place]--;
    uv_timer_stop(&arrival->timer);
    uv_poll_stop(&arrival->poll);
}

/* The limits that count before the login: clients that have not logged in share the places for strangers, and have no
 * limit as one principal. */
static const struct limits *arrival_limits(const struct arrival *arrival) {
    return arrival->peer.principal.role == ROLE_NONE ? NULL : &arrival->peer.principal.limits;
}

/* Counts the arrival for its principal, if it is not counted yet. False: it has been refused. */
static bool arrival_enter(struct arrival *arrival) {
    struct front *front = arrival->front;
    const char *name = arrival->peer.principal.name;
    struct fault fault;
    int error = roster_move(&front->roster, &arrival->entry, name, arrival_limits(arrival), &fault);
    if (error == STATUS_LIMIT && places_evict(front, &arrival->peer.source, LOBBY_NOT_HERE))
        error = roster_move(&front->roster, &arrival->entry, name, arrival_limits(arrival), &fault);
    if (!error)
        return true;
    front->refusals[REFUSAL_PRINCIPAL_CONNECTIONS] += fault.code == STATUS_LIMIT;
    arrival_refuse(arrival, &fault);
    return false;
}

static void arrival_connect(struct arrival *arrival, struct worker_slot *slot) {
    /* Sends a copy of the descriptor: the front still has the socket if the channel or the worker does not take it. */
    int copy = fcntl(arrival->fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        arrival_refuse_with(arrival, STATUS_LIMIT, "the daemon takes no connection now: %s", strerror(errno));
        return;
    }
    struct front *front = arrival->front;
    struct fault fault;
    arrival->session = ++front->arrivals.last_session;
    if (roster_host(&front->roster, &arrival->entry, arrival_limits(arrival), arrival->session, slot, &fault)) {
        front->refusals[REFUSAL_PRINCIPAL_SESSIONS] += fault.code == STATUS_LIMIT;
        close(copy);
        arrival_refuse(arrival, &fault);
        return;
    }
    int error = worker_slot_connect(slot, copy, arrival->session, arrival->place == PLACE_KEPT, &arrival->peer);
    if (error)
        arrival->entry = roster_take_back(&front->roster, arrival->session);
    else
        roster_await(&front->roster, arrival->session, &arrival->peer.source, arrival->place == PLACE_KEPT);
    if (!error)
        arrival_sent(arrival, slot);
    else if (error == STATUS_DEVICE_LOST)
        arrival_hold(arrival); /* the worker has just died, and the front does not know it yet */
    else
        arrival_refuse_with(arrival, (enum status)error, "too many connections wait for %s", slot->device.name);
}

/* Whether its worker runs, and takes nobody now. */
static bool arrival_must_wait(const struct arrival *arrival) {
    const struct worker_slot *slot = arrival->target == PREAMBLE_TARGET_CONTROL
                                         ? NULL
                                         : supervisor_find(&arrival->front->supervisor, arrival->target);
    return slot && slot->state == WORKER_READY && !worker_slot_takes(slot);
}

/* Whether another one waits for the same worker, and came before. */
static bool arrival_is_behind(const struct arrival *arrival) {
    const struct arrival *other = TAILQ_FIRST(&arrival->front->arrivals.head);
    while (other != arrival && !(other->parked && !other->slot && other->target == arrival->target))
        other = TAILQ_NEXT(other, link);
    return other != arrival;
}

static void arrival_place(struct arrival *arrival) {
    struct front *front = arrival->front;
    char names[160];
    lobby_leave(&front->roster.lobby, &arrival->waiting); /* from here on the client does not cause any delay */
    /* Again, because the users may have changed since the connection came. */
    login_identify(&front->login, &arrival->peer);
    if (!arrival_enter(arrival))
        return;
    if (arrival->target == PREAMBLE_TARGET_CONTROL) {
        struct peer peer = arrival->peer;
        bool reserved = arrival->place == PLACE_OPERATOR;
        struct roster_entry *entry = arrival->entry;
        arrival->entry = NULL;
        control_start(front, arrival_release(arrival), &peer, entry, reserved);
        return;
    }
    struct worker_slot *slot = supervisor_find(&front->supervisor, arrival->target);
    bool stranger = arrival->peer.principal.role == ROLE_NONE; /* a stranger does not learn which devices there are */
    if (!slot && stranger) {
        arrival_refuse_with(arrival, STATUS_NO_DEVICE, "no device has number %u", arrival->target);
    } else if (!slot) {
        supervisor_names(&front->supervisor, names, sizeof names);
        arrival_refuse_with(arrival, STATUS_NO_DEVICE, "no device has number %u; from 0 on there are: %s",
                            arrival->target, names);
    } else if (slot->state == WORKER_READY && worker_slot_takes(slot) && !arrival_is_behind(arrival)) {
        arrival_connect(arrival, slot);
    } else if (slot->state == WORKER_QUARANTINED || slot->state == WORKER_STOPPED) {
        arrival_refuse_with(arrival, STATUS_DEVICE_LOST, "%s is %s: %s", slot->device.name,
                            worker_state_name(slot->state), stranger ? "see the daemon's log" : slot->last_fault);
    } else {
        arrival_hold(arrival);
    }
}

/* ---- events ---- */

static void arrival_timed_out(uv_timer_t *timer) {
    struct arrival *arrival = timer->data;
    struct front *front = arrival->front;
    if (arrival->place == PLACE_UNDECIDED) {
        arrival_refuse_full(arrival);
        return;
    }
    if (!arrival->parked) {
        arrival_refuse_with(arrival, STATUS_TIMED_OUT, "%zu of %d preamble bytes came within %llu ms",
                            arrival->received, PREAMBLE_BYTES, (unsigned long long)front->config->hello_timeout);
        return;
    }
    struct worker_slot *slot = supervisor_find(&front->supervisor, arrival->target);
    if (slot->state == WORKER_READY) {
        arrival_refuse_with(arrival, STATUS_LIMIT, "too many connections wait for %s", slot->device.name);
        return;
    }
    const char *cause = arrival->peer.principal.role == ROLE_NONE ? "" : slot->last_fault;
    arrival_refuse_with(arrival, STATUS_DEVICE_LOST, "%s was not ready within %llu ms; it is %s%s%s", slot->device.name,
                        (unsigned long long)front->config->hold_timeout, worker_state_name(slot->state),
                        *cause ? ": " : "", cause);
}

/* Finds a place for a connection that came when all places were taken. False: it has been refused. */
static bool arrival_decide(struct arrival *arrival) {
    unsigned *places = arrival->front->arrivals.places;
    if (arrival->place != PLACE_UNDECIDED)
        return true;
    bool control = arrival->target == PREAMBLE_TARGET_CONTROL;
    lobby_leave(&arrival->front->roster.lobby,
                &arrival->waiting); /* otherwise it could be evicted to make room for itself */
    enum place place =
        places_decide(arrival->front, &arrival->peer, preamble_resumes(arrival->preamble) && !control, control);
    if (place == PLACE_NONE) {
        arrival_refuse_full(arrival);
        return false;
    }
    places[PLACE_UNDECIDED]--;
    places[place]++;
    arrival->place = place;
    return true;
}

static void arrival_read(struct arrival *arrival) {
    struct fault fault;
    ssize_t got =
        recv(arrival->fd, arrival->preamble + arrival->received, PREAMBLE_BYTES - arrival->received, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        close(arrival_release(arrival));
        return;
    }
    arrival->received += (size_t)got;
    if (arrival->received < PREAMBLE_BYTES)
        return;
    if (preamble_decode(arrival->preamble, &arrival->target, &fault))
        arrival_refuse(arrival, &fault);
    else if (arrival->peer.tls && !preamble_has_tls(arrival->preamble))
        arrival_refuse_with(arrival, STATUS_DENIED, "this address takes TLS only: use tls:// in place of tcp://");
    else if (!arrival->peer.tls && preamble_has_tls(arrival->preamble))
        arrival_refuse_with(arrival, STATUS_PROTOCOL, "this address does not speak TLS: use tcp:// or unix:");
    else if (arrival_decide(arrival))
        arrival_place(arrival);
}

static void arrival_polled(uv_poll_t *poll, int status, int events) {
    struct arrival *arrival = poll->data;
    if (arrival->parked && status == 0 && !(events & UV_PRIORITIZED))
        /* The client has shut down one side, which poll() would report again and again. The end of both sides is
         * reported in any case, as the event that was asked for. */
        uv_poll_start(poll, UV_PRIORITIZED, arrival_polled);
    else if (arrival->parked || status < 0)
        close(arrival_release(arrival));
    else
        arrival_read(arrival);
}

/* ---- start ---- */

unsigned arrival_count(const struct front *front) {
    unsigned sum = 0;
    for (unsigned i = 0; i < PLACE_KINDS; i++)
        sum += front->arrivals.places[i];
    return sum;
}

static struct arrival *arrival_create(struct front *front, int fd, enum place place) {
    struct arrival *arrival = calloc(1, sizeof *arrival);
    if (!arrival)
        return NULL;
    if (uv_poll_init(&front->loop, &arrival->poll, fd)) {
        free(arrival);
        return NULL;
    }
    uv_timer_init(&front->loop, &arrival->timer);
    arrival->poll.data = arrival->timer.data = arrival;
    arrival->handles = 2;
    arrival->front = front;
    arrival->fd = fd;
    arrival->place = place;
    TAILQ_INSERT_TAIL(&front->arrivals.head, arrival, link);
    front->arrivals.places[place]++;
    return arrival;
}

/* Refuses a new connection: there is no place, or (`full` false) no memory. */
static void arrival_turn_away(struct front *front, int fd, bool full) {
    struct fault fault;
    if (full) {
        arrival_tell_full(front, &fault);
    } else {
        front->rejections[STATUS_NO_HOST_MEMORY]++;
        fault_set(&fault, STATUS_NO_HOST_MEMORY, "the daemon has no memory for another connection");
    }
    farewell_say(&front->farewells, fd, &fault);
}

/* How long the preamble may take. */
static uint64_t arrival_patience_ms(const struct arrival *arrival) {
    uint64_t ms = arrival->front->config->hello_timeout;
    return arrival->place == PLACE_UNDECIDED && ms > PLACES_UNDECIDED_MS ? PLACES_UNDECIDED_MS : ms;
}

void arrival_start(void *owner, int fd, const struct sockaddr_storage *address, bool tls) {
    struct front *front = owner;
    struct peer peer = {.tls = tls};
    arrival_meet(fd, address, &peer);
    login_identify(&front->login, &peer);
    enum place place = places_find(front, &peer);
    front->accepted++;
    struct arrival *arrival = place == PLACE_NONE ? NULL : arrival_create(front, fd, place);
    if (!arrival) {
        arrival_turn_away(front, fd, place == PLACE_NONE);
        return;
    }
    arrival->peer = peer;
    if (!arrival_enter(arrival))
        return;
    lobby_enter(&front->roster.lobby, &arrival->waiting, LOBBY_ARRIVAL, &peer.source);
    uv_timer_start(&arrival->timer, arrival_timed_out, arrival_patience_ms(arrival), 0);
    uv_poll_start(&arrival->poll, UV_READABLE, arrival_polled);
    arrival_read(arrival); /* the preamble usually comes with the connection */
}

void arrival_evict(struct lobby_entry *waiting) {
    struct arrival *arrival = (struct arrival *)((char *)waiting - offsetof(struct arrival, waiting));
    struct fault fault;
    fault_set(&fault, STATUS_LIMIT, "%s", CHANNEL_EVICTED);
    arrival->front->rejections[STATUS_LIMIT]++;
    farewell_say(&arrival->front->farewells, arrival_release(arrival), &fault);
}

/* For an arrival on its way to a worker: whether the worker has taken it, or has died before. */
static void arrival_settle(struct arrival *arrival) {
    if (arrival->handed <= arrival->slot->taken) {
        close(arrival_release(arrival));
    } else if (!arrival->slot->process) {
        arrival->slot = NULL;
        arrival->front->arrivals.places[arrival->place]++;
        arrival_place(arrival);
    }
}

void arrival_retry(struct front *front) {
    struct arrival *next;
    for (struct arrival *arrival = TAILQ_FIRST(&front->arrivals.head); arrival; arrival = next) {
        next = TAILQ_NEXT(arrival, link);
        if (arrival->slot)
            arrival_settle(arrival);
        else if (arrival->parked && !arrival_must_wait(arrival))
            arrival_place(arrival);
    }
}

void arrival_refused(void *owner, const struct worker_slot *slot, uint64_t session) {
    struct front *front = owner;
    struct arrival *arrival;
    TAILQ_FOREACH(arrival, &front->arrivals.head, link) {
        if (arrival->slot != slot || arrival->session != session)
            continue;
        arrival_refuse_with(arrival, STATUS_LIMIT, "%s has no descriptor or no memory left for another connection",
                            slot->device.name);
        return;
    }
}

void arrival_refuse_all(struct front *front, const struct fault *fault) {
    struct arrival *next;
    for (struct arrival *arrival = TAILQ_FIRST(&front->arrivals.head); arrival; arrival = next) {
        next = TAILQ_NEXT(arrival, link);
        if (!arrival->slot)
            arrival_refuse(arrival, fault);
    }
}

void arrival_list_finish(struct front *front) {
    while (!TAILQ_EMPTY(&front->arrivals.head))
        close(arrival_release(TAILQ_FIRST(&front->arrivals.head)));
}
