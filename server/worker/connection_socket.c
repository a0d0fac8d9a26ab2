/* The socket of a connection: what its poll handle watches, the TLS handshake, reading, writing, and what makes frames wait. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "engine/session/host.h"
#include "server/process/log.h"
#include "server/worker/connection.h"

enum {
    CONNECTION_READ_BYTES = 1 << 20, /* read in one turn */
    CONNECTION_FRAME_STEPS = 16,     /* of the budget, for each frame, */
    CONNECTION_STEP_BYTES = 1024,    /* and one for so many bytes */
    /* For the next reply to leave over TCP, where a dead client looks like a client that still reads. It is short, because a
     * dead client's memory is wanted back within a second. Over a Unix socket, which tells the two apart, it is
     * limits.drain_timeout_ms. */
    CONNECTION_LEAVE_TCP_MS = 500,
    CONNECTION_OUT_LEAST =
        256 << 10,                   /* bytes of replies that may be on their way however little host memory there is */
    CONNECTION_TLS_BYTES = 64 << 10, /* that OpenSSL takes for a connection; measured: 58 KiB with data in both ways */
};

static void connection_on_poll(uv_poll_t *poll, int status, int events);

/* ---- what the poll handle watches ---- */

void connection_watch(struct connection *connection) {
    /* poll() would report a client that has shut down its sending side again and again, so UV_DISCONNECT is not asked for
     * then. poll() reports the end of both sides in any case, and libuv passes it on as the event that was asked for:
     * UV_PRIORITIZED, which no socket here has, stands for it. */
    int events = connection->socket.leave_ms || connection->socket.handshake ? UV_PRIORITIZED : UV_DISCONNECT;
    if (!connection->socket.poll || connection->socket.ended)
        return;
    if (!connection->socket.eof && !connection->socket.handshake &&
        (connection->state == CONNECTION_LINGER || transport_opening(&connection->socket.transport) ||
         (connection->state == CONNECTION_OPEN && !connection->in.draining && !connection->in.reader.paused &&
          !connection->hold.rate)))
        events |= UV_READABLE;
    /* During a TLS handshake the next bytes come from the client, unless some of ours have not left yet. */
    if (!connection->socket.handshake &&
        ((connection->socket.blocked && !transport_opening(&connection->socket.transport)) ||
         transport_unsent(&connection->socket.transport)))
        events |= UV_WRITABLE;
    if (events == connection->socket.events)
        return;
    connection->socket.events = events;
    uv_poll_start(connection->socket.poll, events, connection_on_poll);
}

/* ---- TLS ---- */

void connection_refused(struct connection *connection, const char *reason) {
    snprintf(connection->end.reason, sizeof connection->end.reason, "%s", reason);
    log_event_from(LOG_LEVEL_INFO, PEER_SOURCE(&connection->peer), "connection_refused", "peer",
                   connection->peer.address, "principal", connection->peer.principal.name, "cause",
                   connection->end.reason, NULL);
}

bool connection_is_opening(const struct connection *connection) {
    return connection->socket.handshake || transport_opening(&connection->socket.transport);
}

/* The handshake has gone as far as the received bytes allow. */
static void connection_opened(void *owner, int error) {
    struct connection *connection = owner;
    struct fault fault;
    service_busy(connection->service);
    connection->socket.handshake = NULL;
    if (error == EAGAIN) {
        connection_watch(connection);
    } else if (error) { /* the alert says why; the client must have the time to read it */
        connection_refused(connection, transport_reason(&connection->socket.transport, error, &fault));
        connection_linger(connection); /* there is neither a session nor a request */
    } else {
        const char *name = transport_peer_name(&connection->socket.transport);
        snprintf(connection->peer.certificate, sizeof connection->peer.certificate, "%s", name);
        connection->socket.blocked = false;
        connection->in.unread =
            true; /* Hello may have come with the handshake's last bytes, and poll() does not report it */
        service_mark_dirty(connection->service, connection);
        service_mark_more(connection->service, connection);
        connection_watch(connection);
    }
}

/* Lets a thread take the next step of the handshake. The connection may be gone afterwards. */
static void connection_open(struct connection *connection) {
    connection->socket.handshake =
        handshake_begin(&connection->service->handshakes, &connection->socket.transport, connection_opened, connection);
    if (connection->socket.handshake)
        connection_watch(connection);
    else /* no memory or no thread: the loop takes the step */
        connection_opened(connection, transport_handshake(&connection->socket.transport));
}

/* ---- a client that has shut down its sending side ---- */

/* Whether somebody may still wait for something: the client itself, or a device to which a copy is on its way. */
static bool connection_owes(const struct connection *connection) {
    return connection->out.pending || !reply_queue_empty(&connection->out.queue) ||
           transport_unsent(&connection->socket.transport) || request_is_put_off(&connection->request) ||
           link_busy(&connection->links);
}

/* Whether both sides of the socket have ended. A TCP socket knows it only after it has sent bytes that nobody takes. */
static bool connection_is_dead(const struct connection *connection) {
    struct pollfd state = {.fd = connection->socket.transport.fd};
    return poll(&state, 1, 0) > 0 && state.revents & (POLLHUP | POLLERR);
}

void connection_stay(struct connection *connection) {
    connection->socket.leave_ms = clock_now_ms() + (connection->socket.tcp && !connection->socket.blocked
                                                        ? (uint64_t)CONNECTION_LEAVE_TCP_MS
                                                        : connection->service->limits.drain_timeout_ms);
}

/* The client has shut down its sending side. */
static void connection_half_close(struct connection *connection) {
    if (!connection->socket.leave_ms)
        connection_stay(connection);
}

bool connection_is_over(const struct connection *connection, uint64_t now_ms) {
    if (connection->state != CONNECTION_OPEN || !connection->socket.leave_ms)
        return false;
    return now_ms >= connection->socket.leave_ms || (connection->socket.eof && !connection_owes(connection));
}

/* ---- what makes frames wait ---- */

void throttle_on_room(void *owner) {
    struct connection *connection = owner;
    connection->hold.room = false;
    service_mark_more(connection->service, connection);
    worker_principal_wake(connection->principal);
}

void throttle_on_staging(struct connection *connection) {
    connection->hold.staging = false;
    service_mark_more(connection->service, connection);
}

bool throttle_crowded(struct connection *connection) {
    uint64_t operations = connection->principal->limits.session_operations, low;
    if (connection->hold.room || !session_is_crowded(connection->session, operations, &low))
        return connection->hold.room;
    connection->hold.room = true;
    connection->service->refusals[REFUSAL_SESSION_OPERATIONS]++;
    session_notify_drained(connection->session, low, throttle_on_room, connection);
    return true;
}

/* Whether reading must pause, because the connection has more in flight than it may, or waits for its login. If so, it is
 * marked again when the cause has ended. */
static bool throttle_holds(struct connection *connection) {
    struct worker_principal *principal = connection->principal;
    const struct limits *limits = &principal->limits;
    uint64_t *refusals = connection->service->refusals;
    if (connection->login == CONNECTION_LOGGING_IN)
        return true;
    if (!connection->session)
        return false;
    throttle_crowded(connection);
    if (!connection->hold.output && (connection->out.cost > limits->session_out_bytes ||
                                     (connection->out.cost - connection->out.values > CONNECTION_OUT_LEAST &&
                                      session_host_is_full(connection->session)))) {
        connection->hold.output = true;
        refusals[REFUSAL_SESSION_OUT_BYTES]++;
    }
    if (!connection->hold.copies && link_in_full(connection)) {
        connection->hold.copies = true;
        refusals[REFUSAL_SESSION_OPERATIONS]++;
    }
    worker_principal_count(principal, &connection->hold.operations, session_queued(connection->session));
    if (principal->operations > limits->principal_operations || connection->hold.principal)
        worker_principal_hold_back(connection);
    return connection->hold.principal || connection->hold.room || connection->hold.output || connection->hold.staging ||
           connection->hold.copies;
}

static void throttle_hold_rate(struct connection *connection) {
    if (connection->hold.rate)
        return;
    connection->hold.rate = true;
    connection->principal->throttled++;
    connection->service->refusals[REFUSAL_PRINCIPAL_RATE]++;
}

void throttle_let_rate(struct connection *connection) {
    connection->principal->throttled -= connection->hold.rate;
    connection->hold.rate = false;
}

/* ---- reading ---- */

/* The client sends nothing more. False: there is nothing to stay for, either, and the connection is gone. */
static bool connection_read_end(struct connection *connection) {
    connection->socket.eof = true;
    if (connection->lease.granted && !connection->lease.goodbye) {
        lease_lost(connection, "the connection ended");
        return false;
    }
    if (connection_owes(connection) && !connection_is_dead(connection)) {
        connection_half_close(connection);
        return true;
    }
    connection_destroy(connection, "closed by the client");
    return false;
}

/* After each frame: pauses the reader if the session has too much in flight, or its share of this turn is used up. */
static void connection_throttle(struct connection *connection, uint32_t message_bytes) {
    if (throttle_holds(connection)) {
        frame_reader_pause(&connection->in.reader);
    } else if (budget_spent(connection->service->budget,
                            CONNECTION_FRAME_STEPS + (int)(message_bytes / CONNECTION_STEP_BYTES))) {
        frame_reader_pause(&connection->in.reader);
        service_mark_more(connection->service, connection);
    }
}

static int connection_on_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                                 struct fault *fault) {
    struct connection *connection = owner;
    int error = request_handle(connection, header, message, sink, fault);
    connection->in.heard |= header->type != FRAME_PING;
    if (header->message_bytes > CONNECTION_BUFFER_BYTES)
        connection->in.large_ms = clock_now_ms();
    if (error == STATUS_OK && header->payload_bytes == 0) {
        if (connection->lease.granted)
            lease_handled(connection, header);
        connection_throttle(connection, header->message_bytes);
    }
    return error;
}

static int connection_on_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    struct connection *connection = owner;
    int error = request_payload(connection, header, fault);
    if (error == STATUS_OK) {
        if (connection->lease.granted)
            lease_handled(connection, header);
        connection_throttle(connection, header->message_bytes);
    }
    return error;
}

static const struct frame_handler connection_handler = {connection_on_message, connection_on_payload};

/* Marks the connection for the next turn if the transport holds data that TLS has already read: poll() does not report
 * it. */
static void connection_read_on(struct connection *connection) {
    if (connection->state == CONNECTION_OPEN && !connection->in.reader.paused && !connection->hold.rate &&
        transport_more(&connection->socket.transport))
        service_mark_more(connection->service, connection);
}

void connection_count_host(struct connection *connection) {
    uint64_t bytes = sizeof *connection + connection->in.reader.capacity + connection->lease.cut.capacity +
                     connection->lease.outcomes.bytes + connection->out.cost - connection->out.values +
                     (connection->socket.transport.tls ? CONNECTION_TLS_BYTES : 0);
    if (!connection->session || bytes == connection->host)
        return;
    host_give(connection->session, connection->host);
    host_note(connection->session, bytes);
    connection->host = bytes;
}

/* Most principals have no limit. */
static inline size_t connection_allowance(const struct connection *connection) {
    return connection->principal->limits.principal_rate ? worker_principal_allowance(connection) : SIZE_MAX;
}

static inline void connection_spend(struct connection *connection, size_t bytes) {
    if (connection->principal->limits.principal_rate)
        worker_principal_spend(connection, bytes);
    else
        connection->principal->bytes += bytes;
}

/* Reads until there is no more data, or the share of this turn is used up. False: the connection is gone. */
static bool connection_read_share(struct connection *connection) {
    struct budget *budget = connection->service->budget;
    size_t left = CONNECTION_READ_BYTES;
    while (left > 0 && !connection->in.reader.paused) {
        struct fault fault = {0};
        uint8_t *place;
        size_t want, most = connection_allowance(connection);
        ssize_t got;
        if (most == 0) {
            throttle_hold_rate(connection);
            break;
        }
        frame_reader_want(&connection->in.reader, &place, &want);
        want = want < most ? want : most;
        want = want < left ? want : left;
        got = transport_read(&connection->socket.transport, place, want);
        if (got < 0 && !connection->socket.ended && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (got == 0)
            return connection_read_end(connection);
        if (got < 0) {
            lease_lost(connection, transport_reason(&connection->socket.transport, errno, &fault));
            return false;
        }
        connection_spend(connection, (size_t)got);
        connection->in.heard |= connection->in.reader.state == FRAME_READER_PAYLOAD;
        connection->lease.heard = true;
        if (frame_reader_advance(&connection->in.reader, (size_t)got, &connection_handler, connection, &fault)) {
            connection_fail(connection, &fault);
            break;
        }
        if (connection->lease.claimed) {
            lease_take_over(connection);
            return false;
        }
        if ((size_t)got < want && !connection->socket.ended && !transport_more(&connection->socket.transport))
            break; /* the socket is empty */
        left -= (size_t)got < left ? (size_t)got : left;
        if (budget_spent(budget, 1 + (int)got / CONNECTION_STEP_BYTES))
            break; /* the next poll reports the rest */
    }
    connection_read_on(connection);
    return true;
}

/* Adds the time of the loop that the connection has used since its share of this turn began. */
static void connection_end_share(struct connection *connection) {
    struct budget *budget = connection->service->budget;
    uint64_t began_ns = budget->until_ns - SERVICE_SHARE_NS;
    budget_look(budget);
    connection->turn.used_ns += budget->now_ns - began_ns;
}

/* False: the connection is gone. */
static bool connection_read(struct connection *connection) {
    connection->in.unread = false;
    budget_go_on(connection->service->budget, SERVICE_SHARE_NS);
    if (!connection_read_share(connection))
        return false;
    connection_count_host(connection);
    connection_end_share(connection);
    return true;
}

/* Continues with the frames that the reader holds. False: the connection is gone. */
static bool connection_go_on(struct connection *connection) {
    struct fault fault = {0};
    budget_go_on(connection->service->budget, SERVICE_SHARE_NS);
    if (frame_reader_resume(&connection->in.reader, &connection_handler, connection, &fault))
        connection_fail(connection, &fault);
    if (connection->lease.claimed) {
        lease_take_over(connection);
        return false;
    }
    connection_read_on(connection);
    connection_end_share(connection);
    return true;
}

/* ---- a socket that has ended ---- */

/* After a share of what came before the end. What reading would have to wait for is left to the client, which sends it again. */
static void connection_end_on(struct connection *connection) {
    if (connection->state != CONNECTION_OPEN || connection->in.draining || connection->hold.rate ||
        (connection->in.reader.paused && throttle_holds(connection))) {
        lease_lost(connection, connection->end.reason);
        return;
    }
    connection->in.unread = true;
    service_mark_more(connection->service, connection);
}

/* The client has closed the socket, or the socket has failed, for example because the client's host has reset it. A session
 * with a lease first handles what had come before, in as many turns as that takes: it runs while the client is away, and
 * need not be sent again. Nothing is written any more. The connection may be gone afterwards. */
static void connection_ended(struct connection *connection, const char *reason) {
    if (connection->socket.ended)
        return;
    if (connection->state != CONNECTION_OPEN || !connection->lease.granted || connection->lease.goodbye ||
        connection->socket.eof) {
        lease_lost(connection, reason);
        return;
    }
    connection->socket.ended = true;
    uv_poll_stop(connection->socket.poll); /* which would report the end again and again */
    connection->socket.events = 0;
    snprintf(connection->end.reason, sizeof connection->end.reason, "%s", reason);
    connection_end_on(connection);
}

void connection_resume(struct connection *connection) {
    if (connection->state != CONNECTION_OPEN || !connection->socket.poll)
        return;
    if (connection->in.reader.paused) {
        if (throttle_holds(connection)) {
            if (connection->socket.ended)
                lease_lost(connection, connection->end.reason);
            return;
        }
        if (!connection_go_on(connection))
            return;
    } else if (!connection->socket.eof && !connection->in.draining && !connection_is_opening(connection) &&
               (connection->in.unread || transport_more(&connection->socket.transport)) &&
               !connection_read(connection)) {
        return;
    }
    if (connection->socket.ended)
        connection_end_on(connection);
    else
        connection_watch(connection);
}

void connection_drain(struct connection *connection) {
    if (connection->state == CONNECTION_OPEN && connection->socket.poll && !connection->in.reader.paused &&
        !connection->socket.eof && !connection_is_opening(connection) && !connection_read(connection))
        return;
    connection->in.draining = true;
    if (connection->socket.ended)
        connection_end_on(connection);
    else
        connection_watch(connection);
}

/* ---- writing, and events ---- */

void connection_flush(struct connection *connection) {
    size_t budget = connection_allowance(connection);
    uint64_t before = connection->out.queue.written;
    struct fault fault;
    if (connection->socket.ended && connection->state != CONNECTION_OPEN) {
        connection_destroy(connection, connection->end.reason);
        return;
    }
    if (connection->socket.blocked || !connection->socket.poll || connection->socket.ended ||
        connection_is_opening(connection))
        return;
    if (budget == 0 && !reply_queue_empty(&connection->out.queue)) {
        throttle_hold_rate(connection);
        connection_watch(connection);
        return;
    }
    int left = reply_queue_write(&connection->out.queue, &connection->socket.transport,
                                 budget < CONNECTION_WRITE_BYTES ? budget : CONNECTION_WRITE_BYTES,
                                 &connection->service->bytes_out);
    if (left < 0) {
        connection_ended(connection, left == -EPIPE ? "closed by the client"
                                                    : transport_reason(&connection->socket.transport, -left, &fault));
        return;
    }
    connection_spend(connection, (size_t)(connection->out.queue.written - before));
    connection->lease.said |= connection->out.queue.written != before;
    connection->socket.blocked = left > 0;
    if (connection->socket.blocked && connection_allowance(connection) == 0) {
        connection->socket.blocked = false;
        throttle_hold_rate(connection);
    }
    if (connection->socket.leave_ms)
        connection_stay(connection);
    if (left == 0 && connection->state == CONNECTION_CLOSING)
        connection_linger(connection);
    else if (connection_is_over(connection, 0))
        connection_destroy(connection, "closed by the client");
    else
        connection_watch(connection);
}

void throttle_on_rate(struct connection *connection) {
    throttle_let_rate(connection);
    connection_read_on(connection);
    connection_watch(connection);
    connection_flush(connection); /* before reading uses up the rate: otherwise the client would get no reply */
}

/* Whether this connection must wait for others that wait with frames: otherwise the connection that is polled first
 * would be served twice. */
static bool connection_comes_later(const struct connection *connection) {
    const struct service *service = connection->service;
    return !TAILQ_EMPTY(&service->light) ||
           (connection->turn.used_ns >= SERVICE_LIGHT_NS && !TAILQ_EMPTY(&service->heavy));
}

/* Drops the bytes that come while the connection lingers. The connection may be gone afterwards. */
static void connection_discard(struct connection *connection) {
    static uint8_t nowhere[64 << 10];
    for (unsigned i = 0; i < 16; i++) {
        ssize_t got = recv(connection->socket.transport.fd, nowhere, sizeof nowhere, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            connection_destroy(connection, connection->end.reason);
            return;
        }
        if (got < (ssize_t)sizeof nowhere)
            return;
    }
}

static void connection_on_poll(uv_poll_t *poll, int status, int events) {
    struct connection *connection = poll->data;
    service_busy(connection->service);
    if (status < 0) {
        connection_ended(connection, "the connection was reset");
        return;
    }
    if (connection->state == CONNECTION_LINGER) {
        connection_discard(connection);
        return;
    }
    if (connection_is_opening(connection)) {
        if (events & UV_PRIORITIZED)
            connection_destroy(connection, "closed by the client");
        else if (!connection->socket.handshake)
            connection_open(connection);
        return;
    }
    if (events & UV_WRITABLE) {
        connection->socket.blocked = false;
        service_mark_dirty(connection->service, connection);
    }
    if (events & (UV_DISCONNECT | UV_PRIORITIZED) && connection->lease.granted && !connection->lease.goodbye) {
        if (!(events & UV_READABLE) || connection->in.reader.paused) { /* otherwise reading finds the end */
            connection_ended(connection, "closed by the client");
            return;
        }
    } else if (events & (UV_DISCONNECT | UV_PRIORITIZED)) {
        if (events & UV_PRIORITIZED || connection_is_dead(connection)) {
            lease_lost(connection, "closed by the client");
            return;
        }
        connection_half_close(connection);
    }
    if (events & UV_READABLE && connection->state == CONNECTION_OPEN && !connection->in.reader.paused &&
        !connection->socket.eof) {
        if (service_is_late(connection->service) || connection_comes_later(connection)) {
            connection->in.unread = true;
            service_mark_more(connection->service, connection);
        } else if (!connection_read(connection)) {
            return;
        }
    }
    connection_watch(connection);
}
