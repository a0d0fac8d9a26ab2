#include "server/worker/connection_impl.h"

#include <errno.h>
#include <poll.h>

#include "server/worker/request.h"

/* ---- a client that has shut down its side ---- */

/* Whether somebody may still wait for something: the client itself, or a device to which a copy is on its way. */
static bool connection_owes(const struct connection *connection) {
    return connection->pending || !reply_queue_empty(&connection->queue) || transport_unsent(&connection->transport) ||
           connection->batch.begun || link_busy(connection);
}

bool connection_is_dead(const struct connection *connection) {
    struct pollfd state = {.fd = connection->transport.fd};

    return poll(&state, 1, 0) > 0 && state.revents & (POLLHUP | POLLERR);
}

/* Gives the client time for what it is owed. Over TCP that is long only while bytes are under way: a dead client's host
 * would have reset the connection for them. */
void connection_stay(struct connection *connection) {
    connection->leave_ms =
        clock_now_ms() + (connection->tcp && !connection->blocked ? (uint64_t)CONNECTION_LEAVE_TCP_MS
                                                                  : connection->service->limits.drain_timeout_ms);
}

void connection_half_close(struct connection *connection) {
    if (!connection->leave_ms)
        connection_stay(connection);
}

/* Nothing more will come. False: nor is there anything to stay for, and the connection is gone. */
static bool connection_read_end(struct connection *connection) {
    connection->eof = true;
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

bool connection_is_over(const struct connection *connection, uint64_t now_ms) {
    if (connection->state != CONNECTION_OPEN || !connection->leave_ms)
        return false;
    return now_ms >= connection->leave_ms || (connection->eof && !connection_owes(connection));
}

/* ---- frames ---- */

/* After each frame: pauses the reader where the session is full or its share of this turn is used up. */
static void connection_throttle(struct connection *connection, uint32_t message_bytes) {
    if (connection_over(connection)) {
        frame_reader_pause(&connection->reader);
    } else if (budget_spent(connection->service->budget,
                            CONNECTION_FRAME_STEPS + (int)(message_bytes / CONNECTION_STEP_BYTES))) {
        frame_reader_pause(&connection->reader);
        service_mark_more(connection->service, connection);
    }
}

static int connection_on_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                                 struct fault *fault) {
    struct connection *connection = owner;
    int status = request_handle(connection, header, message, sink, fault);

    connection->heard |= header->type != FRAME_PING;
    if (header->message_bytes > CONNECTION_BUFFER_BYTES)
        connection->large_ms = clock_now_ms();
    if (status == STATUS_OK && header->payload_bytes == 0) {
        lease_handled(connection, header);
        connection_throttle(connection, header->message_bytes);
    }
    return status;
}

static int connection_on_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    struct connection *connection = owner;
    int status = request_payload(connection, header, fault);

    if (status == STATUS_OK) {
        lease_handled(connection, header);
        connection_throttle(connection, header->message_bytes);
    }
    return status;
}

static const struct frame_handler connection_handler = {connection_on_message, connection_on_payload};

/* Reads until nothing is there, or the share is used up. */
static bool connection_read_share(struct connection *connection) {
    struct budget *budget = connection->service->budget;
    size_t left = CONNECTION_READ_BYTES;

    while (left > 0 && !connection->reader.paused) {
        struct fault fault = {0};
        uint8_t *place;
        size_t want, most = account_allowance(connection);
        ssize_t got;

        if (most == 0) {
            connection_hold_rate(connection);
            break;
        }
        frame_reader_want(&connection->reader, &place, &want);
        want = want < most ? want : most;
        want = want < left ? want : left;
        got = transport_read(&connection->transport, place, want);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (got == 0)
            return connection_read_end(connection);
        if (got < 0) {
            lease_lost(connection, transport_reason(&connection->transport, errno, &fault));
            return false;
        }
        account_spend(connection, (size_t)got);
        connection->heard |= connection->reader.state == FRAME_READER_PAYLOAD;
        connection->lease.heard = true;
        if (frame_reader_advance(&connection->reader, (size_t)got, &connection_handler, connection, &fault)) {
            connection_fail(connection, &fault);
            break;
        }
        if (connection->lease.claimed) {
            lease_take_over(connection);
            return false;
        }
        if ((size_t)got < want && !transport_more(&connection->transport))
            break; /* that was all there is */
        left -= (size_t)got < left ? (size_t)got : left;
        if (budget_spent(budget, 1 + (int)got / CONNECTION_STEP_BYTES))
            break; /* what else there is, the next poll tells of */
    }
    connection_keep_reading(connection);
    return true;
}

/* What a connection has taken of the loop's time, since its share of this turn began. */
static void connection_end_share(struct connection *connection) {
    struct budget *budget = connection->service->budget;
    uint64_t began_ns = budget->until_ns - SERVICE_SHARE_NS;

    budget_look(budget);
    connection->used_ns += budget->now_ns - began_ns;
}

bool connection_read(struct connection *connection) {
    connection->unread = false;
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
    if (frame_reader_resume(&connection->reader, &connection_handler, connection, &fault))
        connection_fail(connection, &fault);
    if (connection->lease.claimed) {
        lease_take_over(connection);
        return false;
    }
    connection_keep_reading(connection);
    connection_end_share(connection);
    return true;
}

void connection_resume(struct connection *connection) {
    if (connection->state != CONNECTION_OPEN || !connection->poll)
        return;
    if (connection->reader.paused) {
        if (connection_over(connection) || !connection_go_on(connection))
            return;
    } else if (!connection->eof && !connection->draining && !connection_is_opening(connection) &&
               (connection->unread || transport_more(&connection->transport)) && !connection_read(connection)) {
        return;
    }
    connection_watch(connection);
}

void connection_drain(struct connection *connection) {
    if (connection->state == CONNECTION_OPEN && connection->poll && !connection->reader.paused && !connection->eof &&
        !connection_is_opening(connection) && !connection_read(connection))
        return;
    connection->draining = true;
    connection_watch(connection);
}

bool connection_idle(const struct connection *connection) {
    return !connection->pending && reply_queue_empty(&connection->queue) && !connection->reader.paused &&
           !link_busy(connection) && (!connection->session || session_queued(connection->session) == 0);
}
