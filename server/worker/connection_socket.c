#include "server/worker/connection_socket.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/process/log.h"
#include "server/worker/connection.h"

static void connection_on_poll(uv_poll_t *poll, int status, int events);

/* ---- what the poll handle watches ---- */

void connection_watch(struct connection *connection) {
    /* A side that is shut down would be told of without end. UV_PRIORITIZED stands in for the event that cannot be
     * asked for and cannot be masked out either, the end of both sides: the poll handle reports that as what it was
     * asked for.
     *  */
    int events = connection->socket.leave_ms || connection->socket.handshake ? UV_PRIORITIZED : UV_DISCONNECT;
    if (!connection->socket.poll)
        return;
    if (!connection->socket.eof && !connection->socket.handshake &&
        (connection->state == CONNECTION_LINGER || transport_opening(&connection->socket.transport) ||
         (connection->state == CONNECTION_OPEN && !connection->in.draining && !connection->in.reader.paused &&
          !connection->hold.rate)))
        events |= UV_READABLE;
    /* During a TLS handshake it is the client's turn, not the socket's. */
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

/* The handshake has gone as far as what has come of it does. */
static void connection_opened(void *owner, int error) {
    struct connection *connection = owner;
    struct fault fault;
    service_busy(connection->service);
    connection->socket.handshake = NULL;
    if (error == EAGAIN) {
        connection_watch(connection);
    } else if (error) { /* the alert says why; the client must have the time to read it */
        connection_refused(connection, transport_reason(&connection->socket.transport, error, &fault));
        connection_linger(connection); /* it has no session, and no requests */
    } else {
        const char *name = transport_peer_name(&connection->socket.transport);
        snprintf(connection->peer.certificate, sizeof connection->peer.certificate, "%s", name);
        connection->socket.blocked = false;
        connection->in.unread = true; /* Hello may have come along, and will not show again */
        service_mark_dirty(connection->service, connection);
        service_mark_more(connection->service, connection);
        connection_watch(connection);
    }
}

/* Has the next step of the handshake taken. The connection may be gone afterwards. */
static void connection_open(struct connection *connection) {
    connection->socket.handshake =
        handshake_begin(&connection->service->handshakes, &connection->socket.transport, connection_opened, connection);
    if (connection->socket.handshake)
        connection_watch(connection);
    else /* without memory for that, here */
        connection_opened(connection, transport_handshake(&connection->socket.transport));
}

/* ---- a client that has shut down its sending side ---- */

bool connection_owes(const struct connection *connection) {
    return connection->out.pending || !reply_queue_empty(&connection->out.queue) ||
           transport_unsent(&connection->socket.transport) || connection->request.batch.begun || link_busy(connection);
}

bool connection_is_dead(const struct connection *connection) {
    struct pollfd state = {.fd = connection->socket.transport.fd};
    return poll(&state, 1, 0) > 0 && state.revents & (POLLHUP | POLLERR);
}

void connection_stay(struct connection *connection) {
    connection->socket.leave_ms = clock_now_ms() + (connection->socket.tcp && !connection->socket.blocked
                                                        ? (uint64_t)CONNECTION_LEAVE_TCP_MS
                                                        : connection->service->limits.drain_timeout_ms);
}

void connection_half_close(struct connection *connection) {
    if (!connection->socket.leave_ms)
        connection_stay(connection);
}

bool connection_is_over(const struct connection *connection, uint64_t now_ms) {
    if (connection->state != CONNECTION_OPEN || !connection->socket.leave_ms)
        return false;
    return now_ms >= connection->socket.leave_ms || (connection->socket.eof && !connection_owes(connection));
}

/* ---- writing, and events ---- */

void connection_flush(struct connection *connection) {
    size_t budget = worker_principal_allowance(connection);
    uint64_t before = connection->out.queue.written;
    struct fault fault;
    if (connection->socket.blocked || !connection->socket.poll || connection_is_opening(connection))
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
        lease_lost(connection, transport_reason(&connection->socket.transport, -left, &fault));
        return;
    }
    worker_principal_spend(connection, (size_t)(connection->out.queue.written - before));
    connection->lease.said |= connection->out.queue.written != before;
    connection->socket.blocked = left > 0;
    if (connection->socket.blocked && worker_principal_allowance(connection) == 0) {
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

static void connection_on_poll(uv_poll_t *poll, int status, int events) {
    struct connection *connection = poll->data;
    service_busy(connection->service);
    if (status < 0) {
        lease_lost(connection, "the connection was reset");
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
        if (!(events & UV_READABLE) || connection->in.reader.paused) { /* else its end is found by reading */
            lease_lost(connection, "closed by the client");
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
        if (service_is_late(connection->service)) {
            connection->in.unread = true;
            service_mark_more(connection->service, connection);
        } else if (!connection_read(connection)) {
            return;
        }
    }
    connection_watch(connection);
}

/* ---- the front, and another socket ---- */

void connection_greet(struct connection *connection) {
    struct service *service = connection->service;
    if (service->options.greeted && connection->socket.guest)
        service->options.greeted(service->options.owner, connection->socket.guest);
}

void connection_settle(struct connection *connection) {
    if (connection->socket.kept)
        service_count_settled(connection->service);
    connection->socket.kept = false;
}

void connection_leave(struct connection *connection) {
    struct service *service = connection->service;
    if (!connection->socket.guest)
        return;
    service_count_departed(service, connection->socket.kept);
    connection->socket.kept = false;
    if (service->options.left)
        service->options.left(service->options.owner, connection->socket.guest);
    connection->socket.guest = 0;
}

static void connection_closed(uv_handle_t *handle) {
    free(handle);
}

void connection_close(struct connection *connection) {
    trace_feed_drop(connection);
    throttle_let_rate(connection);
    frame_reader_finish(&connection->in.reader);
    connection->in.reader = (struct frame_reader){0};
    connection->request.message = NULL;
    connection_count_host(connection);
    if (!connection->socket.poll)
        return;
    uv_close((uv_handle_t *)connection->socket.poll, connection_closed);
    connection->socket.poll = NULL;
    if (connection->socket.handshake) {
        handshake_leave(&connection->service->handshakes, connection->socket.handshake);
        connection->socket.handshake = NULL;
        connection->socket.transport = (struct transport){.fd = -1};
        return;
    }
    if (connection->socket.transport.fd < 0) /* lease.scan has it */
        return;
    transport_end(&connection->socket.transport);
    transport_finish(&connection->socket.transport);
}

void connection_adopt(struct connection *connection, struct connection *fresh) {
    connection_unmark(connection);
    connection->socket.poll = fresh->socket.poll;
    connection->socket.poll->data = connection;
    connection->socket.transport = fresh->socket.transport;
    connection->socket.tcp = fresh->socket.tcp;
    connection->socket.events = fresh->socket.events;
    connection->in.reader = fresh->in.reader;
    connection->socket.eof = connection->socket.blocked = false;
    connection->socket.leave_ms = 0;
    connection->peer = fresh->peer;
    connection->socket.guest = fresh->socket.guest;
    fresh->socket.guest = 0;
    connection_greet(connection);
    frame_reader_limits(&connection->in.reader, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX);
    fresh->socket.poll = NULL;
    fresh->socket.transport = (struct transport){.fd = -1};
    fresh->in.reader = (struct frame_reader){0};
    connection_watch(connection);
}
