#include "server/front/control.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/wire/tensord.pb-c.h"
#include "server/front/control_impl.h"
#include "server/front/front.h"
#include "server/process/log.h"

enum {
    CONTROL_CONNECTIONS_MAX = 256,
    CONTROL_STRANGERS_MAX = 128,                         /* so that others find a place */
    CONTROL_ADMINS_KEPT = 32,                            /* of all of them: for admins alone */
    CONTROL_PRINCIPAL_MAX = CONTROL_CONNECTIONS_MAX / 4, /* of one principal, if it is no admin */
    CONTROL_IDLE_S = 60,
    CONTROL_SEND_TIMEOUT_MS = 10000,
};

/* ---- ends ---- */

static void control_closed(uv_handle_t *handle) {
    struct control *control = handle->data;
    if (--control->handles)
        return;
    frame_reader_finish(&control->reader);
    free(control->out);
    free(control);
}

void control_count_stranger(struct control *control, bool stranger) {
    struct control_list *list = &control->front->controls;
    list->strangers = list->strangers + stranger - control->stranger;
    control->stranger = stranger;
}

/* Returns the transport; the connection is dead afterwards. If a thread takes a step of the handshake, the transport is
 * left to that step, and an empty one is returned. */
static struct transport control_release(struct control *control) {
    struct transport transport = control->handshake ? (struct transport){.fd = -1} : control->transport;
    LIST_REMOVE(control, link);
    turns_leave(&control->front->turns, &control->turn);
    lobby_leave(&control->front->roster.lobby, &control->waiting);
    control->front->controls.count--;
    control->front->controls.operators -= control->reserved;
    control_count_stranger(control, false);
    if (control->killing)
        kill_forget(&control->kill);
    if (control->login == CONTROL_LOGGING_IN)
        login_forget(&control->front->login, control, 0);
    roster_leave(control->entry);
    control->entry = NULL;
    uv_close((uv_handle_t *)&control->poll, control_closed);
    uv_close((uv_handle_t *)&control->timer, control_closed);
    if (control->handshake)
        handshake_leave(&control->front->handshakes, control->handshake);
    control->handshake = NULL;
    return transport;
}

static void control_end(struct control *control) {
    struct transport transport = control_release(control);
    if (transport.fd >= 0)
        transport_end(&transport);
    transport_finish(&transport);
}

void control_refuse(struct control *control, const struct fault *fault) {
    struct front *front = control->front;
    /* Within a half-sent reply an Error frame would be garbage. */
    bool clean =
        !control->handshake && control->out_sent == control->out_size && !transport_unsent(&control->transport);
    if (!control->welcomed)
        front->rejections[fault->code]++;
    /* Failed logins have a log line of their own, with a limit on lines that strangers cause. */
    bool told = fault->code == STATUS_DENIED && !control->welcomed;
    log_event_from(told ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, PEER_SOURCE(&control->peer), "control_closed", "peer",
                   control->peer.address, "principal", control->peer.principal.name, "code",
                   status_name((int)fault->code), "cause", fault->message, NULL);
    struct transport transport = control_release(control);
    if (transport.fd >= 0)
        farewell_say_over(&front->farewells, &transport, clean ? fault : NULL);
}

/* ---- bytes in and out ---- */

static void control_polled(uv_poll_t *poll, int status, int events);

static void control_timed_out(uv_timer_t *timer) {
    struct control *control = timer->data;
    struct fault fault;
    if (control->welcomed)
        fault_set(&fault, STATUS_TIMED_OUT, "a reply was not read within %d ms", CONTROL_SEND_TIMEOUT_MS);
    else if (control->login == CONTROL_LOGGING_IN)
        fault_set(&fault, STATUS_TIMED_OUT, "the login took longer than %llu ms",
                  (unsigned long long)control->front->config->hello_timeout);
    else
        fault_set(&fault, STATUS_TIMED_OUT, "no Hello came within %llu ms",
                  (unsigned long long)control->front->config->hello_timeout);
    control_refuse(control, &fault);
}

/* 1: everything has left. 0: the socket is full. -1: the peer is gone. */
static int control_flush(struct control *control) {
    while (control->out_sent < control->out_size) {
        struct iovec part = {control->out + control->out_sent, control->out_size - control->out_sent};
        ssize_t sent = transport_write(&control->transport, &part, 1);
        if (sent < 0)
            return errno == EAGAIN ? 0 : -1;
        control->out_sent += (size_t)sent;
    }
    int error = transport_flush(&control->transport);
    if (error)
        return error == EAGAIN ? 0 : -1;
    free(control->out);
    control->out = NULL;
    control->out_size = control->out_sent = 0;
    return 1;
}

/* Waits until the socket takes more bytes; unread requests stay in the socket meanwhile. If the peer has gone the
 * socket becomes writable and the next attempt fails; a peer that has only shut down its sending side still gets its
 * replies. */
static void control_wait_for_room(struct control *control) {
    if (!uv_is_active((uv_handle_t *)&control->timer))
        uv_timer_start(&control->timer, control_timed_out, CONTROL_SEND_TIMEOUT_MS, 0);
    control->reading = false;
    uv_poll_start(&control->poll, UV_WRITABLE, control_polled);
}

static void control_wait_for_requests(struct control *control) {
    if (control->welcomed)
        uv_timer_stop(&control->timer);
    control->reading = true;
    /* poll() reports neither data that TLS has already read nor data that TLS still has to send. If there is such data,
     * asking for UV_WRITABLE makes poll() return at once. */
    bool ahead = transport_more(&control->transport) || transport_unsent(&control->transport);
    uv_poll_start(&control->poll, UV_READABLE | (ahead ? UV_WRITABLE : 0), control_polled);
}

/* The wait is bounded: then there is a reply to send, and a peer that has gone is noticed. */
static void control_wait_for_worker(struct control *control) {
    control->reading = false;
    uv_timer_stop(&control->timer);
    uv_poll_stop(&control->poll);
}

/* There is something to read: a request, or the end. The reader may have it already. */
static void control_wait_for_turn(struct control *control) {
    control->reading = false;
    uv_timer_stop(&control->timer); /* all replies have left */
    uv_poll_stop(&control->poll);
    turns_wait(&control->front->turns, &control->entry->turns, &control->turn);
}

/* Whether the reader has bytes that it has not handled. */
static bool control_has_read(const struct control *control) {
    return control->reader.paused &&
           (control->reader.begin != control->reader.end || control->reader.state != FRAME_READER_HEADER);
}

void control_go_on(struct control *control, int error, struct fault *fault) {
    if (!error && !control_has_read(control)) /* ends the pause; there is nothing to handle */
        error = frame_reader_resume(&control->reader, &control_handler, control, fault);
    if (error) {
        control_refuse(control, fault);
        return;
    }
    int flushed = control_flush(control);
    if (flushed < 0)
        control_end(control);
    else if (!flushed)
        control_wait_for_room(control);
    else if (control->killing)
        control_wait_for_worker(control);
    else if (control->login == CONTROL_LOGGING_IN)
        uv_poll_start(&control->poll, UV_DISCONNECT, control_polled);
    else if (control->reader.paused)
        control_wait_for_turn(control);
    else
        control_wait_for_requests(control);
}

/* TLS has failed: the client made an error, or has sent an alert. The daemon's own alert may be on its way. */
static void control_fail(struct control *control, int error) {
    struct front *front = control->front;
    struct fault fault;
    log_event_from(LOG_LEVEL_INFO, PEER_SOURCE(&control->peer),
                   control->welcomed ? "control_closed" : "connection_refused", "peer", control->peer.address,
                   "principal", control->peer.principal.name, "cause",
                   transport_reason(&control->transport, error, &fault), NULL);
    struct transport transport = control_release(control);
    farewell_say_over(&front->farewells, &transport, NULL);
}

static void control_read(struct control *control) {
    struct fault fault;
    uint8_t *place;
    size_t room;
    frame_reader_want(&control->reader, &place, &room);
    ssize_t got = transport_read(&control->transport, place, room);
    if (got < 0 && errno == EAGAIN) {
        control_wait_for_requests(control);
        return;
    }
    if (got < 0 && errno == EPROTO) {
        control_fail(control, errno);
        return;
    }
    if (got == 0 && control->draining) {
        uv_poll_stop(&control->poll); /* the client sends nothing more, and waits for the end of the drain */
        return;
    }
    if (got <= 0) {
        control_end(control);
        return;
    }
    int error = frame_reader_advance(&control->reader, (size_t)got, &control_handler, control, &fault);
    control_go_on(control, error, &fault);
}

static void control_take_turn(struct turn *turn) {
    struct control *control = (struct control *)((char *)turn - offsetof(struct control, turn));
    struct fault fault;
    if (control->reader.paused)
        control_go_on(control, frame_reader_resume(&control->reader, &control_handler, control, &fault), &fault);
    else
        control_read(control);
}

/* Hello is handled at once: it is the only request of a stranger, and cheap. */
static void control_may_read(struct control *control) {
    if (control->welcomed)
        control_wait_for_turn(control);
    else
        control_read(control);
}

/* The handshake may have brought a certificate: finds its principal. */
static void control_meet(struct control *control) {
    const char *name = transport_peer_name(&control->transport);
    if (!*name)
        return;
    snprintf(control->peer.certificate, sizeof control->peer.certificate, "%s", name);
    login_certify(&control->front->login, &control->peer);
}

/* The handshake has gone as far as the received bytes allow. */
static void control_opened(void *owner, int error) {
    struct control *control = owner;
    control->handshake = NULL;
    if (error == EAGAIN) {
        control_wait_for_requests(control);
    } else if (error == EPROTO) {
        control_fail(control, error);
    } else if (error) {
        control_end(control);
    } else {
        control_meet(control);
        control_read(control); /* Hello may have come with the handshake's last bytes, and poll() does not report it */
    }
}

/* Lets a thread take the next step of the handshake. Meanwhile the poll handle reports only the end of both sides. */
static void control_open(struct control *control) {
    uv_poll_start(&control->poll, UV_PRIORITIZED, control_polled);
    control->handshake = handshake_begin(&control->front->handshakes, &control->transport, control_opened, control);
    if (!control->handshake) /* no memory or no thread: the loop takes the step */
        control_opened(control, transport_handshake(&control->transport));
}

static void control_polled(uv_poll_t *poll, int status, int events) {
    struct control *control = poll->data;
    struct fault fault;
    if (status == 0 && !control->handshake && transport_opening(&control->transport) && !(events & UV_PRIORITIZED))
        control_open(control);
    else if (status == 0 && control->login == CONTROL_LOGGING_IN && !(events & UV_PRIORITIZED))
        /* The client has shut down its sending side, which poll() would report again and again. The end of both sides
         * is reported in any case, as the event that was asked for. */
        uv_poll_start(poll, UV_PRIORITIZED, control_polled);
    else if (status == 0 && (events & UV_READABLE || (events & UV_WRITABLE && control->reading)))
        control_may_read(control);
    else if (status == 0 && events & UV_WRITABLE)
        control_go_on(control, STATUS_OK, &fault);
    else
        control_end(control);
}

/* ---- places ---- */

static bool control_is_idle(const struct control *control) {
    return control->welcomed && !control->draining && !control->killing && !control->turn.queue &&
           control->out_sent == control->out_size;
}

/* The connection whose last request is longest ago: of this principal (NULL: of all), and of admins only if
 * `admins`. */
static struct control *control_find_idle(struct front *front, const char *principal, bool admins) {
    struct control *control, *found = NULL;
    LIST_FOREACH(control, &front->controls.head, link)
        if (control_is_idle(control) && (!principal || !strcmp(principal, control->peer.principal.name)) &&
            (admins || control->peer.principal.role != ROLE_ADMIN) && (!found || control->used_ns < found->used_ns))
            found = control;
    return found;
}

static unsigned control_count(const struct front *front, const struct control *but, const char *principal) {
    const struct control *control;
    unsigned count = 0;
    LIST_FOREACH(control, &front->controls.head, link)
        count += control != but && control->welcomed && !strcmp(principal, control->peer.principal.name);
    return count;
}

int control_find_place(struct control *control, const struct principal *principal, struct fault *fault) {
    struct front *front = control->front;
    bool admin = principal->role == ROLE_ADMIN;
    unsigned most = CONTROL_CONNECTIONS_MAX - (admin ? 0 : CONTROL_ADMINS_KEPT);
    struct control *idle = NULL;
    if (control->reserved && !admin && !places_open(front, principal->role))
        return fault_set(fault, STATUS_LIMIT,
                         "all of the daemon's %llu places for connections are taken (max-connections)",
                         (unsigned long long)front->config->max_connections);
    if (!admin && control_count(front, control, principal->name) >= CONTROL_PRINCIPAL_MAX) {
        idle = control_find_idle(front, principal->name, false);
        if (!idle)
            return fault_set(fault, STATUS_LIMIT, "%s has %d control connections, and may have no more",
                             principal->name, CONTROL_PRINCIPAL_MAX);
    } else if (front->controls.count > most) {
        idle = control_find_idle(front, NULL, false);
        if (!idle && admin)
            idle = control_find_idle(front, NULL, true);
        if (!idle)
            return fault_set(fault, STATUS_LIMIT, "the daemon has %u control connections", front->controls.count);
    }
    if (idle)
        control_end(idle);
    return STATUS_OK;
}

void control_evict(struct lobby_entry *waiting) {
    struct control *control = (struct control *)((char *)waiting - offsetof(struct control, waiting));
    struct fault fault;
    fault_set(&fault, STATUS_LIMIT, "%s", CHANNEL_EVICTED);
    control_refuse(control, &fault);
}

/* ---- start, drain, end ---- */

static struct control *control_create(struct front *front, int fd, const struct peer *peer, struct roster_entry *entry,
                                      bool reserved, struct fault *fault) {
    struct control *control = calloc(1, sizeof *control);
    fault_set(fault, STATUS_NO_HOST_MEMORY, "the daemon has no memory for another control connection");
    if (!control)
        return NULL;
    if (transport_init(&control->transport, fd, peer->tls ? front->tls.now.context : NULL, fault) ||
        frame_reader_init(&control->reader, FRAME_HEADER_BYTES + CONTROL_MESSAGE_MAX) ||
        uv_poll_init(&front->loop, &control->poll, fd)) {
        frame_reader_finish(&control->reader);
        control->transport.fd = -1; /* `fd` is still the caller's */
        transport_finish(&control->transport);
        free(control);
        return NULL;
    }
    uv_timer_init(&front->loop, &control->timer);
    control->poll.data = control->timer.data = control;
    control->handles = 2;
    control->front = front;
    control->peer = *peer;
    control->entry = entry;
    control->turn.take = control_take_turn;
    control_count_stranger(control, peer->principal.role == ROLE_NONE);
    LIST_INSERT_HEAD(&front->controls.head, control, link);
    front->controls.count++;
    control->reserved = reserved;
    front->controls.operators += reserved;
    control->used_ns = uv_hrtime();
    lobby_enter(&front->roster.lobby, &control->waiting, LOBBY_CONTROL, &peer->source);
    return control;
}

/* Sends no Error frame, because the client might take it for the reply to its next request. */
void control_tick(struct front *front) {
    struct control *control;
    while ((control = control_find_idle(front, NULL, true)) &&
           uv_hrtime() - control->used_ns > CONTROL_IDLE_S * UINT64_C(1000000000))
        control_end(control);
}

void control_start(struct front *front, int fd, const struct peer *peer, struct roster_entry *entry, bool reserved) {
    struct fault fault;
    struct control *control = control_create(front, fd, peer, entry, reserved, &fault);
    if (!control) {
        roster_leave(entry);
        front->rejections[fault.code]++;
        farewell_say(&front->farewells, fd, &fault);
        return;
    }
    if (front->controls.strangers > CONTROL_STRANGERS_MAX) {
        struct lobby_entry *oldest = lobby_oldest(&front->roster.lobby, NULL, LOBBY_CONTROL);
        if (oldest && oldest != &control->waiting)
            control_evict(oldest);
    }
    uv_timer_start(&control->timer, control_timed_out, front->config->hello_timeout, 0);
    control_wait_for_requests(control);
}

void control_revoke(struct front *front, const struct principal *principal) {
    struct control *next;
    struct fault fault;
    fault_set(&fault, STATUS_DENIED, "%s's token or role was revoked or changed", principal->name);
    for (struct control *control = LIST_FIRST(&front->controls.head); control; control = next) {
        next = LIST_NEXT(control, link);
        if (principal_same_login(&control->peer.principal, principal))
            control_refuse(control, &fault);
    }
}

void control_drained(struct front *front) {
    Tensord__Done done = TENSORD__DONE__INIT;
    struct fault fault;
    struct control *next;
    for (struct control *control = LIST_FIRST(&front->controls.head); control; control = next) {
        next = LIST_NEXT(control, link);
        if (!control->draining)
            continue;
        control->draining = false;
        control_go_on(control, control_reply(control, FRAME_DONE, control->drain_sequence, &done.base, &fault), &fault);
    }
}

bool control_busy(const struct front *front) {
    const struct control *control;
    LIST_FOREACH(control, &front->controls.head, link)
        if (control->out_sent < control->out_size)
            return true;
    return false;
}

void control_list_finish(struct control_list *list) {
    while (!LIST_EMPTY(&list->head))
        control_end(LIST_FIRST(&list->head));
}
