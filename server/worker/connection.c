#include "server/worker/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/net/transport.h"
#include "server/process/log.h"
#include "server/worker/compile.h"

enum {
    CONNECTION_LINGER_MS = 1000, /* for the client to take its last frame */
    CONNECTION_LARGE_MS = 1000, /* after the last message that needed a larger buffer, the buffer becomes small again */
};

/* ---- the beginning ---- */

static void connection_list(struct connection *connection) {
    struct service *service = connection->service;
    connection->next = service->connections;
    connection->previous = &service->connections;
    if (connection->next)
        connection->next->previous = &connection->next;
    service->connections = connection;
}

/* From now on the connection belongs to this principal. */
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

/* Closes the socket, and drops the data that the reader holds; nothing is read or written any more. */
static void connection_close(struct connection *connection) {
    trace_feed_drop(connection);
    throttle_let_rate(connection);
    frame_reader_finish(&connection->in.reader);
    connection->in.reader = (struct frame_reader){0};
    connection->request.message = NULL;
    connection->socket.ended = false;
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
    if (connection->socket.transport.fd < 0) /* lease.scan has the transport */
        return;
    transport_end(&connection->socket.transport);
    transport_finish(&connection->socket.transport);
}

/* Takes the connection out of service->giving_up, if it is there. */
static void connection_unmark(struct connection *connection) {
    if (connection->end.listed)
        TAILQ_REMOVE(&connection->service->giving_up, connection, turn.end_link);
    connection->end.listed = false;
}

void connection_adopt(struct connection *connection, struct connection *fresh) {
    connection_unmark(connection);
    connection->socket.poll = fresh->socket.poll;
    connection->socket.poll->data = connection;
    connection->socket.transport = fresh->socket.transport;
    connection->socket.tcp = fresh->socket.tcp;
    connection->socket.events = fresh->socket.events;
    connection->in.reader = fresh->in.reader;
    connection->socket.eof = connection->socket.blocked = connection->socket.ended = false;
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

/* ---- the end ---- */

/* The session ends for everybody else: for its principal, for the log, and for kernels that are being compiled. */
static void connection_end_session(struct connection *connection) {
    struct session_stats stats;
    char number[24], operations[24], failed[24];
    trace_feed_drop(connection);
    connection->hold.room = false;
    if (!connection->session)
        return;
    compile_abandon(connection);
    session_stats(connection->session, &stats);
    struct work_done work = work_done_of(&stats);
    session_notify_drained(connection->session, 0, NULL, NULL);
    worker_principal_close_session(connection, &work);
    connection->service->sessions--;
    log_event_from(LOG_LEVEL_INFO, PEER_SOURCE(&connection->peer), "session_close", "session",
                   log_text(number, sizeof number, "%lu", connection->number), "peer", connection->peer.address,
                   "principal", connection->peer.principal.name, "cause", connection->end.reason, "operations",
                   log_text(operations, sizeof operations, "%lu", connection->operations), "failures",
                   log_text(failed, sizeof failed, "%lu", work.failures), NULL);
}

/* Nobody waits for a reply any more: drops the requests in progress. False: the budget has ended before all are dropped. */
static bool connection_release_some(struct connection *connection) {
    return pending_reply_cancel_some(connection) && link_in_drop_connection(connection) &&
           link_out_drop_connection(connection) && request_drop_uploads(connection);
}

static bool connection_clear_some(struct connection *connection) {
    while (!reply_queue_empty(&connection->out.queue)) {
        reply_queue_clear_one(&connection->out.queue);
        if (budget_spent(connection->service->budget, CONNECTION_REPLY_STEPS))
            break;
    }
    return reply_queue_empty(&connection->out.queue);
}

static void connection_give_session_back(struct connection *connection) {
    session_destroy(connection->session);
    connection->session = NULL;
}

/* False: the budget has ended before all is dropped. */
static bool connection_unplug_some(struct connection *connection) {
    connection->end.unplugging = !pending_reply_cancel_some(connection) || !connection_clear_some(connection);
    if (connection->end.unplugging)
        return false;
    connection->hold.output = false; /* nothing waits to be sent any more */
    return true;
}

void connection_unplug(struct connection *connection) {
    connection->lease.ack_due = false;
    connection->end.unplugging = true;
    connection_close(connection);
    if (!connection_unplug_some(connection) || connection->lease.scan.on)
        service_mark_giving_up(connection->service, connection);
}

static void connection_unlist(struct connection *connection) {
    struct service *service = connection->service;
    if (connection->turn.dirty)
        TAILQ_REMOVE(&service->dirty, connection, turn.dirty_link);
    if (connection->turn.more)
        TAILQ_REMOVE(connection->turn.more, connection, turn.more_link);
    connection_unmark(connection);
    connection->turn.dirty = false;
    connection->turn.more = NULL;
    *connection->previous = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
}

void connection_destroy(struct connection *connection, const char *reason) {
    if (!connection)
        return;
    if (connection->state == CONNECTION_OPEN && reason != connection->end.reason)
        snprintf(connection->end.reason, sizeof connection->end.reason, "%s", reason);
    connection_close(connection);
    connection_end_session(connection);
    connection_unlist(connection);
    worker_principal_retire(connection->principal);
    lease_finish(connection);
    connection_leave(connection);
    connection->state = CONNECTION_ENDED;
    service_mark_ending(connection->service, connection);
}

bool connection_end_some(struct connection *connection) {
    if (!connection_release_some(connection) || !connection_clear_some(connection))
        return false;
    connection_give_session_back(connection);
    outcome_list_finish(&connection->lease.outcomes);
    worker_principal_let_go(connection->principal);
    free(connection);
    return true;
}

/* Begins the end: `fault` as the last frame, SERVICE_FLUSH_MS to send what is left. */
static void connection_finish_with(struct connection *connection, const struct fault *fault) {
    struct pending_reply *last = pending_reply_last(connection, fault);
    trace_feed_drop(connection); /* otherwise its frames would follow the last one */
    snprintf(connection->end.reason, sizeof connection->end.reason, "%s", fault->message);
    /* The front logs failed logins, and limits how many lines strangers cause. */
    if (!connection->session) {
        connection->service->rejections[fault->code]++;
        log_event_from(connection->login == CONNECTION_LOGGING_IN ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
                       PEER_SOURCE(&connection->peer), "connection_refused", "peer", connection->peer.address,
                       "principal", connection->peer.principal.name, "cause", connection->end.reason, NULL);
    }
    connection->state = CONNECTION_CLOSING;
    connection->end.deadline_ms = clock_now_ms() + (connection->socket.poll ? SERVICE_FLUSH_MS : 0);
    reply_queue_end(&connection->out.queue, last ? &last->reply : NULL);
    service_mark_dirty(connection->service, connection);
}

void connection_fail(struct connection *connection, const struct fault *fault) {
    if (connection->state != CONNECTION_OPEN)
        return;
    connection->end.silent = true;
    if (pending_reply_cancel_some(connection))
        connection_finish_with(connection, fault);
    else
        connection_give_up(connection, fault);
}

void connection_give_up(struct connection *connection, const struct fault *fault) {
    if (connection->state != CONNECTION_OPEN)
        return;
    connection->state = CONNECTION_GIVING_UP;
    connection->end.verdict = *fault;
    service_mark_giving_up(connection->service, connection);
    connection_watch(connection);
}

static bool connection_fail_some(struct connection *connection) {
    while (connection->out.pending) {
        pending_reply_fail(connection, &connection->end.verdict);
        if (budget_spent(connection->service->budget, CONNECTION_REPLY_STEPS))
            break;
    }
    return !connection->out.pending;
}

bool connection_give_up_some(struct connection *connection) {
    if (connection->state == CONNECTION_OPEN) {
        if (!connection_unplug_some(connection) || !lease_scan_some(connection))
            return false;
        connection_unmark(connection);
        if (connection->lease.goodbye)
            connection_destroy(connection, "closed by the client");
    } else if (connection->state == CONNECTION_GIVING_UP) {
        if (connection->end.silent ? !pending_reply_cancel_some(connection) : !connection_fail_some(connection))
            return false;
        connection_unmark(connection);
        connection_finish_with(connection, &connection->end.verdict);
    } else {
        if (!connection_release_some(connection) || !connection_clear_some(connection))
            return false;
        connection_unmark(connection);
        connection_linger(connection);
    }
    return true;
}

void connection_linger(struct connection *connection) {
    if (connection->end.listed)
        return;
    if (!connection_release_some(connection) || !connection_clear_some(connection)) {
        service_mark_giving_up(connection->service, connection);
        connection_watch(connection);
        return;
    }
    connection_end_session(connection);
    connection_give_session_back(connection);
    connection->state = CONNECTION_LINGER;
    connection->socket.blocked = false;
    connection->end.deadline_ms = clock_now_ms() + CONNECTION_LINGER_MS;
    transport_end(&connection->socket.transport);
    if (connection->socket.eof)
        connection_destroy(connection, connection->end.reason);
    else
        connection_watch(connection);
}

/* ---- time ---- */

/* Ends a session that was not used for too long: the client has sent Pings only, and nothing is in progress. */
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
    /* Without memory the engine could not promise a call of throttle_on_room(). */
    if (connection->hold.room &&
        session_queued(connection->session) <= connection->principal->limits.session_operations / 2)
        throttle_on_room(connection);
    if ((connection->hold.rate || request_is_put_off(&connection->request)) && connection->socket.leave_ms)
        connection_stay(connection); /* the client does not cause the delay of its replies */
    /* The login could not be sent to the front when Hello came. */
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
                  connection->login == CONNECTION_LOGGING_IN ? "reply to the login" : "Hello",
                  connection->service->limits.hello_timeout_ms);
        connection_fail(connection, &fault);
    } else {
        connection_destroy(connection, connection->end.reason);
    }
}

bool connection_idle(const struct connection *connection) {
    return !connection->out.pending && reply_queue_empty(&connection->out.queue) && !connection->in.reader.paused &&
           !link_busy(&connection->links) && (!connection->session || session_queued(connection->session) == 0);
}
