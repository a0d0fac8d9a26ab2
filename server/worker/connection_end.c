#include "server/worker/connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/process/log.h"
#include "server/worker/compile.h"
#include "server/worker/request.h"

/* The session is gone for everybody. */
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

/* Nobody waits for a reply any more: drops all that the session has been asked for. False: the budget has ended
 * before it is. */
static bool connection_release_some(struct connection *connection) {
    return pending_reply_cancel_some(connection) && link_drop_connection(connection) &&
           request_drop_uploads(connection);
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

/* False: the budget has ended before all is let go of. */
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

void connection_unmark(struct connection *connection) {
    if (connection->end.listed)
        TAILQ_REMOVE(&connection->service->giving_up, connection, turn.end_link);
    connection->end.listed = false;
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
    if (connection->state == CONNECTION_OPEN)
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
    struct pending_reply *last = pending_reply_fault(connection, FRAME_ERROR, 0, fault);
    trace_feed_drop(connection); /* or its frames would come behind the last one */
    snprintf(connection->end.reason, sizeof connection->end.reason, "%s", fault->message);
    /* Failed logins are logged by the front, and not as often as strangers like. */
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

/* Closing now could destroy the last frame on its way if the client is still sending, so what comes is dropped until
 * the client closes. */
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

void connection_discard(struct connection *connection) {
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
