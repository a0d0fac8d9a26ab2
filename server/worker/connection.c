#include "server/worker/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/session/host.h"
#include "proto/net/socket.h"

/* Closes a session that nobody has used for too long: nothing has come of it but Pings, and nothing is under way. */
static void connection_check_use(struct connection *connection, uint64_t now_ms) {
    uint64_t limit = connection->principal->limits.idle_timeout;
    struct fault fault;
    if (!limit || !connection->session || connection->state != CONNECTION_OPEN)
        return;
    if (connection->in.heard || !connection->idle_ms || !connection_idle(connection) ||
        connection->service->trace.connection == connection) {
        connection->in.heard = false;
        connection->idle_ms = now_ms;
    } else if (now_ms - connection->idle_ms >= limit) {
        connection->service->refusals[REFUSAL_IDLE_TIMEOUT]++;
        fault_set(&fault, STATUS_TIMED_OUT, "the session was not used for %lu ms (idle-timeout)", (unsigned long)limit);
        connection_fail(connection, &fault);
    }
}

void connection_tick(struct connection *connection, uint64_t now_ms) {
    struct fault fault;
    connection->turn.used_ns = 0;
    if (now_ms - connection->in.large_ms >= CONNECTION_LARGE_MS)
        frame_reader_shrink(&connection->in.reader, CONNECTION_BUFFER_BYTES);
    connection_count_host(connection);
    if (!lease_tick(connection, now_ms))
        return;
    /* The engine could not promise to tell when it had no memory for that. */
    if (connection->hold.room &&
        session_queued(connection->session) <= connection->principal->limits.session_operations / 2)
        throttle_on_room(connection);
    if ((connection->hold.rate || connection->request.batch.begun) && connection->socket.leave_ms)
        connection_stay(connection); /* it is not the client that delays its replies */
    /* Its login could not be sent when it came. */
    if (!connection->session && connection->in.reader.held && connection->login == CONNECTION_STRANGER)
        service_mark_more(connection->service, connection);
    if (connection_is_over(connection, now_ms)) {
        connection_destroy(connection, "closed by the client");
        return;
    }
    connection_check_use(connection, now_ms);
    if (!connection->end.deadline_ms || now_ms < connection->end.deadline_ms)
        return;
    if (connection_is_opening(connection)) {
        connection_refused(connection, "the TLS handshake took too long");
        connection_destroy(connection, connection->end.reason);
    } else if (connection->state == CONNECTION_OPEN) {
        connection->end.deadline_ms = 0;
        connection->service->refusals[REFUSAL_HELLO_TIMEOUT]++;
        fault_set(&fault, STATUS_TIMED_OUT, "no %s within %u ms",
                  connection->login == CONNECTION_LOGGING_IN ? "answer to the login" : "Hello",
                  connection->service->limits.hello_timeout_ms);
        connection_fail(connection, &fault);
    } else {
        connection_destroy(connection, connection->end.reason);
    }
}

bool connection_idle(const struct connection *connection) {
    return !connection->out.pending && reply_queue_empty(&connection->out.queue) && !connection->in.reader.paused &&
           !link_busy(connection) && (!connection->session || session_queued(connection->session) == 0);
}
void connection_count_host(struct connection *connection) {
    uint64_t bytes = sizeof *connection + connection->in.reader.capacity + connection->lease.cut.capacity;
    if (!connection->session || bytes == connection->host)
        return;
    host_give(connection->session, connection->host);
    host_note(connection->session, bytes);
    connection->host = bytes;
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
    struct worker_principal *here;
    limits_fill(&limits);
    principal_key(principal, key);
    int error = worker_principal_join(connection->service, key, &limits, &here, fault);
    if (error)
        return error;
    if (connection->principal)
        throttle_let_rate(connection);
    worker_principal_leave(connection->principal);
    connection->principal = here;
    connection->hold.grant = here->tokens;
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

/* Undoes what connection_create() has done; `fd` -1: the transport has closed it. Returns `error`. */
static int connection_undo(struct connection *connection, uv_poll_t *poll, int fd, int error) {
    if (connection) {
        frame_reader_finish(&connection->in.reader);
        worker_principal_leave(connection->principal);
    }
    free(poll);
    free(connection);
    if (fd >= 0)
        close(fd);
    return error;
}

int connection_create(const struct connection_options *options, int fd, struct connection **out, struct fault *fault) {
    struct service *service = options->service;
    struct connection *connection = calloc(1, sizeof *connection);
    uv_poll_t *poll = malloc(sizeof *poll);
    if (!connection || !poll || frame_reader_init(&connection->in.reader, CONNECTION_BUFFER_BYTES))
        return connection_undo(connection, poll, fd,
                               fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a connection"));
    connection->service = service;
    connection->peer = *options->peer;
    int error = connection_identify(connection, &options->peer->principal, fault);
    if (error)
        return connection_undo(connection, poll, fd, error);
    connection->socket.tcp = socket_is_tcp(fd);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    error = transport_init(&connection->socket.transport, fd, options->tls, fault);
    if (error)
        return connection_undo(connection, poll, fd, error);
    error = uv_poll_init(service->loop, poll, fd);
    if (error) {
        transport_finish(&connection->socket.transport);
        return connection_undo(connection, poll, -1,
                               fault_set(fault, STATUS_CONNECTION, "cannot watch the socket: %s", uv_strerror(error)));
    }
    connection->socket.poll = poll;
    connection->socket.poll->data = connection;
    connection->number = connection->socket.guest = options->session;
    connection->socket.kept = options->kept;
    connection->started_ns = clock_now_ns();
    connection->end.deadline_ms = clock_now_ms() + service->limits.hello_timeout_ms;
    reply_queue_init(&connection->out.queue);
    lease_init(&connection->lease);
    link_ends_init(&connection->links);
    connection_list(connection);
    connection_watch(connection);
    *out = connection;
    return STATUS_OK;
}
