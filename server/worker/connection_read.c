#include "server/worker/connection.h"

#include <errno.h>

#include "server/worker/request.h"

/* Nothing more will come. False: nor is there anything to stay for, and the connection is gone. */
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

/* After each frame: pauses the reader where the session is full or its share of this turn is used up. */
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
        lease_handled(connection, header);
        connection_throttle(connection, header->message_bytes);
    }
    return error;
}

static int connection_on_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    struct connection *connection = owner;
    int error = request_payload(connection, header, fault);
    if (error == STATUS_OK) {
        lease_handled(connection, header);
        connection_throttle(connection, header->message_bytes);
    }
    return error;
}

static const struct frame_handler connection_handler = {connection_on_message, connection_on_payload};

void connection_read_on(struct connection *connection) {
    if (connection->state == CONNECTION_OPEN && !connection->in.reader.paused && !connection->hold.rate &&
        transport_more(&connection->socket.transport))
        service_mark_more(connection->service, connection);
}

/* Reads until nothing is there, or the share is used up. */
static bool connection_read_share(struct connection *connection) {
    struct budget *budget = connection->service->budget;
    size_t left = CONNECTION_READ_BYTES;
    while (left > 0 && !connection->in.reader.paused) {
        struct fault fault = {0};
        uint8_t *place;
        size_t want, most = worker_principal_allowance(connection);
        ssize_t got;
        if (most == 0) {
            throttle_hold_rate(connection);
            break;
        }
        frame_reader_want(&connection->in.reader, &place, &want);
        want = want < most ? want : most;
        want = want < left ? want : left;
        got = transport_read(&connection->socket.transport, place, want);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (got == 0)
            return connection_read_end(connection);
        if (got < 0) {
            lease_lost(connection, transport_reason(&connection->socket.transport, errno, &fault));
            return false;
        }
        worker_principal_spend(connection, (size_t)got);
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
        if ((size_t)got < want && !transport_more(&connection->socket.transport))
            break; /* that was all there is */
        left -= (size_t)got < left ? (size_t)got : left;
        if (budget_spent(budget, 1 + (int)got / CONNECTION_STEP_BYTES))
            break; /* what else there is, the next poll tells of */
    }
    connection_read_on(connection);
    return true;
}

/* What a connection has taken of the loop's time, since its share of this turn began. */
static void connection_end_share(struct connection *connection) {
    struct budget *budget = connection->service->budget;
    uint64_t began_ns = budget->until_ns - SERVICE_SHARE_NS;
    budget_look(budget);
    connection->turn.used_ns += budget->now_ns - began_ns;
}

bool connection_read(struct connection *connection) {
    connection->in.unread = false;
    budget_go_on(connection->service->budget, SERVICE_SHARE_NS);
    if (!connection_read_share(connection))
        return false;
    connection_count_host(connection);
    connection_end_share(connection);
    return true;
}

/* With what the reader has, and had put off. False: the connection is gone. */
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

void connection_resume(struct connection *connection) {
    if (connection->state != CONNECTION_OPEN || !connection->socket.poll)
        return;
    if (connection->in.reader.paused) {
        if (throttle_holds(connection) || !connection_go_on(connection))
            return;
    } else if (!connection->socket.eof && !connection->in.draining && !connection_is_opening(connection) &&
               (connection->in.unread || transport_more(&connection->socket.transport)) &&
               !connection_read(connection)) {
        return;
    }
    connection_watch(connection);
}

void connection_drain(struct connection *connection) {
    if (connection->state == CONNECTION_OPEN && connection->socket.poll && !connection->in.reader.paused &&
        !connection->socket.eof && !connection_is_opening(connection) && !connection_read(connection))
        return;
    connection->in.draining = true;
    connection_watch(connection);
}
