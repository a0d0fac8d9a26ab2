#include "server/connection_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/log.h"
#include "server/request.h"

static void connection_release(struct connection *connection) {
    struct session_stats stats;
    struct account_work work;
    char number[24], operations[24], failed[24];

    answer_cancel_all(connection);
    link_drop_connection(connection);
    request_drop_uploads(connection);
    trace_feed_drop(connection);
    connection->wait_room = false;
    if (!connection->session)
        return;
    session_stats(connection->session, &stats);
    work = account_work_of(&stats);
    session_notify_room(connection->session, 0, NULL, NULL);
    session_destroy(connection->session);
    connection->session = NULL;
    account_close_session(connection, &work);
    connection->service->sessions--;
    log_event(LOG_LEVEL_INFO, "session_close", "session", log_text(number, sizeof number, "%lu", connection->number),
              "peer", connection->peer.address, "principal", connection->peer.principal.name, "reason",
              connection->reason, "operations", log_text(operations, sizeof operations, "%lu", connection->operations),
              "failures", log_text(failed, sizeof failed, "%lu", work.failures), NULL);
}

static void connection_closed(uv_handle_t *handle) {
    free(handle);
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

void connection_unplug(struct connection *connection) {
    answer_cancel_all(connection);
    reply_queue_clear(&connection->queue);
    trace_feed_drop(connection);
    connection_let_rate(connection);
    frame_reader_finish(&connection->reader);
    connection->reader = (struct frame_reader){0};
    if (!connection->poll)
        return;
    uv_close((uv_handle_t *)connection->poll, connection_closed);
    connection->poll = NULL;
    transport_end(&connection->transport);
    transport_finish(&connection->transport);
}

void connection_adopt(struct connection *connection, struct connection *fresh) {
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
    frame_reader_limits(&connection->reader, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX);
    fresh->poll = NULL;
    fresh->transport = (struct transport){.fd = -1};
    fresh->reader = (struct frame_reader){0};
    connection_watch(connection);
}

static void connection_unlist(struct connection *connection) {
    struct service *service = connection->service;
    struct connection **at;

    for (at = &service->dirty; connection->dirty && *at; at = &(*at)->next_dirty)
        if (*at == connection) {
            *at = connection->next_dirty;
            break;
        }
    for (at = &service->more; connection->more && *at; at = &(*at)->next_more)
        if (*at == connection) {
            *at = connection->next_more;
            break;
        }
    *connection->previous = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
}

void connection_destroy(struct connection *connection, const char *reason) {
    if (!connection)
        return;
    if (connection->state == CONNECTION_OPEN)
        snprintf(connection->reason, sizeof connection->reason, "%s", reason);
    connection_unplug(connection);
    connection_release(connection);
    connection_unlist(connection);
    account_leave(connection->account);
    lease_finish(connection);
    outcome_list_finish(&connection->lease.outcomes);
    connection_leave(connection);
    free(connection);
}

/* Begins the end: `fault` as the last frame, SERVICE_FLUSH_MS to send what is left. */
static void connection_finish_with(struct connection *connection, const struct fault *fault) {
    struct answer *last = answer_fault(connection, FRAME_ERROR, 0, fault);

    trace_feed_drop(connection); /* or its frames would come behind the last one */
    snprintf(connection->reason, sizeof connection->reason, "%s", fault->message);
    /* Failed logins are logged by the front, and not as often as strangers like. */
    if (!connection->session) {
        connection->service->rejections[fault->code]++;
        log_event(connection->login == CONNECTION_LOGGING_IN ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "connection_refused",
                  "peer", connection->peer.address, "principal", connection->peer.principal.name, "reason",
                  connection->reason, NULL);
    }
    connection->state = CONNECTION_CLOSING;
    connection->deadline_ms = service_now_ms() + (connection->poll ? SERVICE_FLUSH_MS : 0);
    reply_queue_end(&connection->queue, last ? &last->reply : NULL);
    service_mark_dirty(connection->service, connection);
}

void connection_fail(struct connection *connection, const struct fault *fault) {
    if (connection->state != CONNECTION_OPEN)
        return;
    answer_cancel_all(connection);
    connection_finish_with(connection, fault);
}

void connection_give_up(struct connection *connection, const struct fault *fault) {
    if (connection->state != CONNECTION_OPEN)
        return;
    answer_fail_all(connection, fault);
    connection_finish_with(connection, fault);
}

/* All is said. Closing now could destroy the last frame on its way if the client is still sending, so what comes is
 * dropped until the client closes. The session ends at once. */
void connection_linger(struct connection *connection) {
    connection_release(connection);
    connection->state = CONNECTION_LINGER;
    connection->blocked = false;
    connection->deadline_ms = service_now_ms() + CONNECTION_LINGER_MS;
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
