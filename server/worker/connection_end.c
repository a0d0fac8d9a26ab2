#include "server/worker/connection_impl.h"

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
    struct account_work work;
    char number[24], operations[24], failed[24];

    trace_feed_drop(connection);
    connection->wait_room = false;
    if (!connection->session)
        return;
    compile_abandon(connection);
    session_stats(connection->session, &stats);
    work = account_work_of(&stats);
    session_notify_room(connection->session, 0, NULL, NULL);
    account_close_session(connection, &work);
    connection->service->sessions--;
    log_event_from(LOG_LEVEL_INFO, PEER_SOURCE(&connection->peer), "session_close", "session",
                   log_text(number, sizeof number, "%lu", connection->number), "peer", connection->peer.address,
                   "principal", connection->peer.principal.name, "cause", connection->reason, "operations",
                   log_text(operations, sizeof operations, "%lu", connection->operations), "failures",
                   log_text(failed, sizeof failed, "%lu", work.failures), NULL);
}

/* Nobody waits for an answer any more: all that the session has been asked for is dropped. False: the budget has ended
 * before it is. */
static bool connection_release_some(struct connection *connection) {
    return answer_cancel_some(connection) && link_drop_connection(connection) && request_drop_uploads(connection);
}

static bool connection_clear_some(struct connection *connection) {
    while (!reply_queue_empty(&connection->queue)) {
        reply_queue_clear_one(&connection->queue);
        if (budget_spent(connection->service->budget, CONNECTION_ANSWER_STEPS))
            break;
    }
    return reply_queue_empty(&connection->queue);
}

static void connection_give_session_back(struct connection *connection) {
    session_destroy(connection->session);
    connection->session = NULL;
}

static void connection_closed(uv_handle_t *handle) {
    free(handle);
}

void connection_greet(struct connection *connection) {
    struct service *service = connection->service;

    if (service->options.greeted && connection->guest)
        service->options.greeted(service->options.owner, connection->guest);
}

void connection_settle(struct connection *connection) {
    if (connection->kept)
        service_count_settled(connection->service);
    connection->kept = false;
}

void connection_leave(struct connection *connection) {
    struct service *service = connection->service;

    if (!connection->guest)
        return;
    service_count_departed(service, connection->kept);
    connection->kept = false;
    if (service->options.left)
        service->options.left(service->options.owner, connection->guest);
    connection->guest = 0;
}

/* Nothing is read or written any more. */
static void connection_close(struct connection *connection) {
    trace_feed_drop(connection);
    connection_let_rate(connection);
    frame_reader_finish(&connection->reader);
    connection->reader = (struct frame_reader){0};
    connection->put_off = NULL;
    connection_count_host(connection);
    if (!connection->poll)
        return;
    uv_close((uv_handle_t *)connection->poll, connection_closed);
    connection->poll = NULL;
    if (connection->handshake) {
        handshake_leave(&connection->service->handshakes, connection->handshake);
        connection->handshake = NULL;
        connection->transport = (struct transport){.fd = -1};
        return;
    }
    if (connection->transport.fd < 0) /* lease.scan has it */
        return;
    transport_end(&connection->transport);
    transport_finish(&connection->transport);
}

/* False: the budget has ended before all is let go of. */
static bool connection_unplug_some(struct connection *connection) {
    connection->unplugging = !answer_cancel_some(connection) || !connection_clear_some(connection);
    if (connection->unplugging)
        return false;
    connection->wait_output = false; /* nothing waits to be sent any more */
    return true;
}

void connection_unplug(struct connection *connection) {
    connection->lease.ack_due = false;
    connection->unplugging = true;
    connection_close(connection);
    if (!connection_unplug_some(connection) || connection->lease.scan.on)
        service_mark_giving_up(connection->service, connection);
}

static void connection_unmark(struct connection *connection) {
    if (connection->ends_some)
        TAILQ_REMOVE(&connection->service->giving_up, connection, end_link);
    connection->ends_some = false;
}

void connection_adopt(struct connection *connection, struct connection *fresh) {
    connection_unmark(connection);
    connection->poll = fresh->poll;
    connection->poll->data = connection;
    connection->transport = fresh->transport;
    connection->tcp = fresh->tcp;
    connection->events = fresh->events;
    connection->reader = fresh->reader;
    connection->eof = connection->blocked = false;
    connection->leave_ms = 0;
    connection->peer = fresh->peer;
    connection->guest = fresh->guest;
    fresh->guest = 0;
    connection_greet(connection);
    frame_reader_limits(&connection->reader, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX);
    fresh->poll = NULL;
    fresh->transport = (struct transport){.fd = -1};
    fresh->reader = (struct frame_reader){0};
    connection_watch(connection);
}

static void connection_unlist(struct connection *connection) {
    struct service *service = connection->service;

    if (connection->dirty)
        TAILQ_REMOVE(&service->dirty, connection, dirty_link);
    if (connection->more)
        TAILQ_REMOVE(connection->more, connection, more_link);
    connection_unmark(connection);
    connection->dirty = false;
    connection->more = NULL;
    *connection->previous = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
}

void connection_destroy(struct connection *connection, const char *reason) {
    if (!connection)
        return;
    if (connection->state == CONNECTION_OPEN)
        snprintf(connection->reason, sizeof connection->reason, "%s", reason);
    connection_close(connection);
    connection_end_session(connection);
    connection_unlist(connection);
    account_retire(connection->account);
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
    account_let_go(connection->account);
    free(connection);
    return true;
}

/* Begins the end: `fault` as the last frame, SERVICE_FLUSH_MS to send what is left. */
static void connection_finish_with(struct connection *connection, const struct fault *fault) {
    struct answer *last = answer_fault(connection, FRAME_ERROR, 0, fault);

    trace_feed_drop(connection); /* or its frames would come behind the last one */
    snprintf(connection->reason, sizeof connection->reason, "%s", fault->message);
    /* Failed logins are logged by the front, and not as often as strangers like. */
    if (!connection->session) {
        connection->service->rejections[fault->code]++;
        log_event_from(connection->login == CONNECTION_LOGGING_IN ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
                       PEER_SOURCE(&connection->peer), "connection_refused", "peer", connection->peer.address,
                       "principal", connection->peer.principal.name, "cause", connection->reason, NULL);
    }
    connection->state = CONNECTION_CLOSING;
    connection->deadline_ms = clock_now_ms() + (connection->poll ? SERVICE_FLUSH_MS : 0);
    reply_queue_end(&connection->queue, last ? &last->reply : NULL);
    service_mark_dirty(connection->service, connection);
}

void connection_fail(struct connection *connection, const struct fault *fault) {
    if (connection->state != CONNECTION_OPEN)
        return;
    connection->silent = true;
    if (answer_cancel_some(connection))
        connection_finish_with(connection, fault);
    else
        connection_give_up(connection, fault);
}

void connection_give_up(struct connection *connection, const struct fault *fault) {
    if (connection->state != CONNECTION_OPEN)
        return;
    connection->state = CONNECTION_GIVING_UP;
    connection->verdict = *fault;
    service_mark_giving_up(connection->service, connection);
    connection_watch(connection);
}

static bool connection_fail_some(struct connection *connection) {
    while (connection->pending) {
        answer_fail(connection, &connection->verdict);
        if (budget_spent(connection->service->budget, CONNECTION_ANSWER_STEPS))
            break;
    }
    return !connection->pending;
}

bool connection_give_up_some(struct connection *connection) {
    if (connection->state == CONNECTION_OPEN) {
        if (!connection_unplug_some(connection) || !lease_scan_some(connection))
            return false;
        connection_unmark(connection);
        if (connection->lease.goodbye)
            connection_destroy(connection, "closed by the client");
    } else if (connection->state == CONNECTION_GIVING_UP) {
        if (connection->silent ? !answer_cancel_some(connection) : !connection_fail_some(connection))
            return false;
        connection_unmark(connection);
        connection_finish_with(connection, &connection->verdict);
    } else {
        if (!connection_release_some(connection) || !connection_clear_some(connection))
            return false;
        connection_unmark(connection);
        connection_linger(connection);
    }
    return true;
}

/* Closing now could destroy the last frame on its way if the client is still sending, so what comes is dropped until the
 * client closes. */
void connection_linger(struct connection *connection) {
    if (connection->ends_some)
        return;
    if (!connection_release_some(connection) || !connection_clear_some(connection)) {
        service_mark_giving_up(connection->service, connection);
        connection_watch(connection);
        return;
    }
    connection_end_session(connection);
    connection_give_session_back(connection);
    connection->state = CONNECTION_LINGER;
    connection->blocked = false;
    connection->deadline_ms = clock_now_ms() + CONNECTION_LINGER_MS;
    transport_end(&connection->transport);
    if (connection->eof)
        connection_destroy(connection, connection->reason);
    else
        connection_watch(connection);
}

void connection_discard(struct connection *connection) {
    static uint8_t nowhere[64 << 10];

    for (unsigned i = 0; i < 16; i++) {
        ssize_t got = recv(connection->transport.fd, nowhere, sizeof nowhere, MSG_DONTWAIT);

        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            connection_destroy(connection, connection->reason);
            return;
        }
        if (got < (ssize_t)sizeof nowhere)
            return;
    }
}
