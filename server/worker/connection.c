#include "server/worker/connection_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/net/socket.h"
#include "server/process/log.h"
#include "server/worker/request.h"

static void connection_on_poll(uv_poll_t *poll, int status, int events);

/* ---- what the poll handle watches ---- */

void connection_watch(struct connection *connection) {
    /* A side that is shut down would be told of without end. UV_PRIORITIZED stands in for the event that cannot be asked
     * for and cannot be masked out either, the end of both sides: the poll handle reports that as what it was asked for.
     */
    int events = connection->leave_ms || connection->handshake ? UV_PRIORITIZED : UV_DISCONNECT;

    if (!connection->poll)
        return;
    if (!connection->eof && !connection->handshake &&
        (connection->state == CONNECTION_LINGER || transport_opening(&connection->transport) ||
         (connection->state == CONNECTION_OPEN && !connection->draining && !connection->reader.paused &&
          !connection->wait_rate)))
        events |= UV_READABLE;
    /* During a TLS handshake it is the client's turn, not the socket's. */
    if (!connection->handshake && ((connection->blocked && !transport_opening(&connection->transport)) ||
                                   transport_unsent(&connection->transport)))
        events |= UV_WRITABLE;
    if (events == connection->events)
        return;
    connection->events = events;
    uv_poll_start(connection->poll, events, connection_on_poll);
}

/* ---- TLS ---- */

static void connection_refused(struct connection *connection, const char *reason) {
    snprintf(connection->reason, sizeof connection->reason, "%s", reason);
    log_event_from(LOG_LEVEL_INFO, PEER_SOURCE(&connection->peer), "connection_refused", "peer",
                   connection->peer.address, "principal", connection->peer.principal.name, "cause", connection->reason,
                   NULL);
}

bool connection_is_opening(const struct connection *connection) {
    return connection->handshake || transport_opening(&connection->transport);
}

/* The handshake has gone as far as what has come of it does. */
static void connection_opened(void *owner, int error) {
    struct connection *connection = owner;
    struct fault fault;

    service_busy(connection->service);
    connection->handshake = NULL;
    if (error == EAGAIN) {
        connection_watch(connection);
    } else if (error) { /* the alert says why; the client must have the time to read it */
        connection_refused(connection, transport_reason(&connection->transport, error, &fault));
        connection_linger(connection); /* it has no session, and no requests */
    } else {
        const char *name = transport_peer_name(&connection->transport);

        snprintf(connection->peer.certificate, sizeof connection->peer.certificate, "%s", name);
        connection->blocked = false;
        connection->unread = true; /* Hello may have come along, and will not show again */
        service_mark_dirty(connection->service, connection);
        service_mark_more(connection->service, connection);
        connection_watch(connection);
    }
}

/* Has the next step of the handshake taken. The connection may be gone afterwards. */
static void connection_open(struct connection *connection) {
    connection->handshake =
        handshake_begin(&connection->service->handshakes, &connection->transport, connection_opened, connection);
    if (connection->handshake)
        connection_watch(connection);
    else /* without memory for that, here */
        connection_opened(connection, transport_handshake(&connection->transport));
}

/* ---- turns ---- */

void connection_flush(struct connection *connection) {
    size_t budget = account_allowance(connection);
    uint64_t before = connection->queue.written;
    struct fault fault;
    int left;

    if (connection->blocked || !connection->poll || connection_is_opening(connection))
        return;
    if (budget == 0 && !reply_queue_empty(&connection->queue)) {
        connection_hold_rate(connection);
        connection_watch(connection);
        return;
    }
    left = reply_queue_write(&connection->queue, &connection->transport,
                             budget < CONNECTION_WRITE_BYTES ? budget : CONNECTION_WRITE_BYTES,
                             &connection->service->bytes_out);
    if (left < 0) {
        lease_lost(connection, transport_reason(&connection->transport, -left, &fault));
        return;
    }
    account_spend(connection, (size_t)(connection->queue.written - before));
    connection->lease.said |= connection->queue.written != before;
    connection->blocked = left > 0;
    if (connection->blocked && account_allowance(connection) == 0) {
        connection->blocked = false;
        connection_hold_rate(connection);
    }
    if (connection->leave_ms)
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
        else if (!connection->handshake)
            connection_open(connection);
        return;
    }
    if (events & UV_WRITABLE) {
        connection->blocked = false;
        service_mark_dirty(connection->service, connection);
    }
    if (events & (UV_DISCONNECT | UV_PRIORITIZED) && connection->lease.granted && !connection->lease.goodbye) {
        if (!(events & UV_READABLE) || connection->reader.paused) { /* else its end is found by reading */
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
    if (events & UV_READABLE && connection->state == CONNECTION_OPEN && !connection->reader.paused &&
        !connection->eof) {
        if (service_is_late(connection->service)) {
            connection->unread = true;
            service_mark_more(connection->service, connection);
        } else if (!connection_read(connection)) {
            return;
        }
    }
    connection_watch(connection);
}

/* Closes a session that nobody has used for too long: nothing has come of it but Pings, and nothing is under way. */
static void connection_check_use(struct connection *connection, uint64_t now_ms) {
    uint64_t limit = connection->account->limits.idle_timeout;
    struct fault fault;

    if (!limit || !connection->session || connection->state != CONNECTION_OPEN)
        return;
    if (connection->heard || !connection->idle_ms || !connection_idle(connection) ||
        connection->service->trace.connection == connection) {
        connection->heard = false;
        connection->idle_ms = now_ms;
    } else if (now_ms - connection->idle_ms >= limit) {
        connection->service->refusals[REFUSAL_IDLE_TIMEOUT]++;
        fault_set(&fault, STATUS_TIMED_OUT, "the session was not used for %lu ms (idle-timeout)", (unsigned long)limit);
        connection_fail(connection, &fault);
    }
}

void connection_tick(struct connection *connection, uint64_t now_ms) {
    struct fault fault;

    connection->used_ns = 0;
    if (now_ms - connection->large_ms >= CONNECTION_LARGE_MS)
        frame_reader_shrink(&connection->reader, CONNECTION_BUFFER_BYTES);
    connection_count_host(connection);
    if (!lease_tick(connection, now_ms))
        return;
    /* The engine could not promise to tell when it had no memory for that. */
    if (connection->wait_room &&
        session_queued(connection->session) <= connection->account->limits.session_operations / 2)
        connection_on_room(connection);
    if ((connection->wait_rate || connection->batch.begun) && connection->leave_ms)
        connection_stay(connection); /* it is not the client that keeps its answers waiting */
    /* Its login could not be sent when it came. */
    if (!connection->session && connection->reader.held && connection->login == CONNECTION_STRANGER)
        service_mark_more(connection->service, connection);
    if (connection_is_over(connection, now_ms)) {
        connection_destroy(connection, "closed by the client");
        return;
    }
    connection_check_use(connection, now_ms);
    if (!connection->deadline_ms || now_ms < connection->deadline_ms)
        return;
    if (connection_is_opening(connection)) {
        connection_refused(connection, "the TLS handshake took too long");
        connection_destroy(connection, connection->reason);
    } else if (connection->state == CONNECTION_OPEN) {
        connection->deadline_ms = 0;
        connection->service->refusals[REFUSAL_HELLO_TIMEOUT]++;
        fault_set(&fault, STATUS_TIMED_OUT, "no %s within %u ms",
                  connection->login == CONNECTION_LOGGING_IN ? "answer to the login" : "Hello",
                  connection->service->limits.hello_timeout_ms);
        connection_fail(connection, &fault);
    } else {
        connection_destroy(connection, connection->reason);
    }
}

/* ---- the beginning ---- */

static void connection_list(struct connection *connection) {
    struct service *service = connection->service;

    connection->next = service->connections;
    connection->previous = &service->connections;
    if (connection->next)
        connection->next->previous = &connection->next;
    service->connections = connection;
}

/* The connection is this principal's from now on. */
static int connection_identify(struct connection *connection, const struct principal *principal, struct fault *fault) {
    struct limits limits = principal->limits;
    char key[PRINCIPAL_NAME_BYTES];
    struct account *account;
    int status;

    limits_fill(&limits);
    principal_key(principal, key);
    status = account_join(connection->service, key, &limits, &account, fault);
    if (status)
        return status;
    if (connection->account)
        connection_let_rate(connection);
    account_leave(connection->account);
    connection->account = account;
    connection->grant = account->tokens;
    connection->peer.principal = *principal;
    return STATUS_OK;
}

void connection_granted(struct connection *connection, const struct principal *principal) {
    struct fault fault;

    if (connection->state != CONNECTION_OPEN || connection->login != CONNECTION_LOGGING_IN)
        return;
    connection->login = CONNECTION_LOGGED_IN;
    if (connection_identify(connection, principal, &fault))
        connection_fail(connection, &fault);
    else
        service_mark_more(connection->service, connection);
}

void connection_denied(struct connection *connection, const struct fault *fault) {
    if (connection->login == CONNECTION_LOGGING_IN)
        connection_fail(connection, fault);
}

int connection_create(const struct connection_options *options, int fd, struct connection **out, struct fault *fault) {
    struct service *service = options->service;
    struct connection *connection = calloc(1, sizeof *connection);
    uv_poll_t *poll = malloc(sizeof *poll);
    int error;

    if (!connection || !poll || frame_reader_init(&connection->reader, CONNECTION_BUFFER_BYTES)) {
        free(poll);
        free(connection);
        close(fd);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a connection");
    }
    connection->service = service;
    connection->peer = *options->peer;
    error = connection_identify(connection, &options->peer->principal, fault);
    if (error) {
        frame_reader_finish(&connection->reader);
        free(poll);
        free(connection);
        close(fd);
        return error;
    }
    connection->tcp = socket_is_tcp(fd);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    error = transport_init(&connection->transport, fd, options->tls, fault);
    if (error) {
        account_leave(connection->account);
        frame_reader_finish(&connection->reader);
        free(poll);
        free(connection);
        close(fd);
        return error;
    }
    error = uv_poll_init(service->loop, poll, fd);
    if (error) {
        frame_reader_finish(&connection->reader);
        account_leave(connection->account);
        transport_finish(&connection->transport);
        free(poll);
        free(connection);
        return fault_set(fault, STATUS_CONNECTION, "cannot watch the socket: %s", uv_strerror(error));
    }
    connection->poll = poll;
    connection->poll->data = connection;
    connection->number = connection->guest = options->session;
    connection->kept = options->kept;
    connection->started_ns = clock_now_ns();
    connection->deadline_ms = clock_now_ms() + service->limits.hello_timeout_ms;
    reply_queue_init(&connection->queue);
    lease_init(&connection->lease);
    link_ends_init(&connection->links);
    connection_list(connection);
    connection_watch(connection);
    *out = connection;
    return STATUS_OK;
}
