#include "server/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/log.h"
#include "server/request.h"

enum { CONNECTION_SOCKET_BUFFER = 4 << 20 };

static void connection_on_poll(uv_poll_t *poll, int status, int events);

/* ---- what the poll handle watches ---- */

static void connection_watch(struct connection *connection) {
    /* A side that is shut down would be told of without end. UV_PRIORITIZED stands in for the event that cannot be asked
     * for and cannot be masked out either, the end of both sides: the poll handle reports that as what it was asked for.
     */
    int events = connection->leave_ms ? UV_PRIORITIZED : UV_DISCONNECT;

    if (!connection->poll)
        return;
    if (!connection->eof && (connection->state == CONNECTION_LINGER || transport_opening(&connection->transport) ||
                             (connection->state == CONNECTION_OPEN && !connection->draining &&
                              !connection->reader.paused && !connection->wait_rate)))
        events |= UV_READABLE;
    /* During a TLS handshake it is the client's turn, not the socket's. */
    if ((connection->blocked && !transport_opening(&connection->transport)) || transport_unsent(&connection->transport))
        events |= UV_WRITABLE;
    if (events == connection->events)
        return;
    connection->events = events;
    uv_poll_start(connection->poll, events, connection_on_poll);
}

/* ---- back-pressure ---- */

static void connection_on_room(void *owner) {
    struct connection *connection = owner;

    connection->wait_room = false;
    service_mark_more(connection->service, connection);
    account_wake(connection->account);
}

void connection_on_staging(struct connection *connection) {
    connection->wait_staging = false;
    service_mark_more(connection->service, connection);
}

void connection_denied(struct connection *connection, const struct fault *fault) {
    if (connection->login == CONNECTION_LOGGING_IN)
        connection_fail(connection, fault);
}

/* Whether the session has more in flight than it may; then something has been arranged that will mark the connection.
 */
static bool connection_over(struct connection *connection) {
    const struct limits *limits = &connection->account->limits;
    uint64_t *refusals = connection->service->refusals, queued;

    if (connection->login == CONNECTION_LOGGING_IN)
        return true; /* Hello waits for the answer */
    if (!connection->session)
        return false;
    queued = session_queued(connection->session);
    if (!connection->wait_room && queued > limits->session_operations) {
        connection->wait_room = true;
        refusals[REFUSAL_SESSION_OPERATIONS]++;
        session_notify_room(connection->session, limits->session_operations / 2, connection_on_room, connection);
    }
    if (!connection->wait_output && connection->out_cost > limits->session_out_bytes) {
        connection->wait_output = true;
        refusals[REFUSAL_SESSION_OUT_BYTES]++;
    }
    return account_over(connection, queued) || connection->wait_room || connection->wait_output ||
           connection->wait_staging;
}

uint64_t connection_fetch_cost(const struct connection *connection, uint64_t id) {
    uint64_t most = connection->account->limits.session_out_bytes / 4, bytes = 0;
    struct tensor_type type;

    if (session_type(connection->session, id, &type))
        bytes = (uint64_t)type_bytes(&type);
    return bytes < most ? bytes : most;
}

void connection_charge(struct connection *connection, uint64_t cost) {
    connection->out_cost += cost;
}

void connection_discharge(struct connection *connection, uint64_t cost) {
    connection->out_cost -= cost;
    if (connection->wait_output && connection->out_cost <= connection->account->limits.session_out_bytes / 2) {
        connection->wait_output = false;
        service_mark_more(connection->service, connection);
    }
}

/* No bytes may pass now. */
static void connection_hold_rate(struct connection *connection) {
    if (connection->wait_rate)
        return;
    connection->wait_rate = true;
    connection->account->throttled++;
    connection->service->refusals[REFUSAL_PRINCIPAL_RATE]++;
}

static void connection_let_rate(struct connection *connection) {
    connection->account->throttled -= connection->wait_rate;
    connection->wait_rate = false;
}

/* Of what the transport has read ahead no poll will tell. */
static void connection_keep_reading(struct connection *connection) {
    if (connection->state == CONNECTION_OPEN && !connection->reader.paused && !connection->wait_rate &&
        transport_more(&connection->transport))
        service_mark_more(connection->service, connection);
}

void connection_on_rate(struct connection *connection) {
    connection_let_rate(connection);
    connection_keep_reading(connection);
    connection_watch(connection);
    connection_flush(connection); /* before reading takes all of it, or its client would hear nothing */
}

/* ---- a client that has shut down its side ---- */

/* Whether somebody may still wait for something: the client itself, or a device to which a copy is on its way. */
static bool connection_owes(const struct connection *connection) {
    return connection->pending || !reply_queue_empty(&connection->queue) || transport_unsent(&connection->transport) ||
           link_busy(connection);
}

/* Whether the client is gone altogether. A TCP socket knows only after sending something in vain. */
static bool connection_is_dead(const struct connection *connection) {
    struct pollfd state = {.fd = connection->transport.fd};

    return poll(&state, 1, 0) > 0 && state.revents & (POLLHUP | POLLERR);
}

/* Gives the client time for what it is owed. Over TCP that is long only while bytes are under way: a dead client's host
 * would have reset the connection for them. */
static void connection_stay(struct connection *connection) {
    connection->leave_ms =
        service_now_ms() + (connection->tcp && !connection->blocked ? (uint64_t)CONNECTION_LEAVE_TCP_MS
                                                                    : connection->service->limits.drain_timeout_ms);
}

static void connection_half_close(struct connection *connection) {
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

/* Whether all has been said to a client that says nothing more, or its time is up. */
static bool connection_is_over(const struct connection *connection, uint64_t now_ms) {
    if (connection->state != CONNECTION_OPEN || !connection->leave_ms)
        return false;
    return now_ms >= connection->leave_ms || (connection->eof && !connection_owes(connection));
}

/* ---- frames ---- */

/* After each frame: pauses the reader where the session is full or this turn's share is used up. */
static void connection_throttle(struct connection *connection) {
    if (connection_over(connection)) {
        frame_reader_pause(&connection->reader);
    } else if (++connection->turn_frames >= CONNECTION_READ_FRAMES) {
        frame_reader_pause(&connection->reader);
        service_mark_more(connection->service, connection);
    }
}

static int connection_on_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                                 struct fault *fault) {
    struct connection *connection = owner;
    int status = request_handle(connection, header, message, sink, fault);

    connection->heard |= header->type != FRAME_PING;
    if (status == STATUS_OK && header->payload_bytes == 0) {
        lease_handled(connection, header);
        connection_throttle(connection);
    }
    return status;
}

static int connection_on_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    struct connection *connection = owner;
    int status = request_payload(connection, header, fault);

    if (status == STATUS_OK) {
        lease_handled(connection, header);
        connection_throttle(connection);
    }
    return status;
}

static const struct frame_handler connection_handler = {connection_on_message, connection_on_payload};

/* Reads this turn's share. False: the connection is gone. */
static bool connection_read(struct connection *connection) {
    size_t left = CONNECTION_READ_BYTES;

    connection->turn_frames = 0;
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
    }
    connection_keep_reading(connection);
    return true;
}

void connection_resume(struct connection *connection) {
    struct fault fault = {0};

    if (connection->state != CONNECTION_OPEN || !connection->poll)
        return;
    if (connection->reader.paused) {
        if (connection_over(connection))
            return;
        connection->turn_frames = 0;
        if (frame_reader_resume(&connection->reader, &connection_handler, connection, &fault))
            connection_fail(connection, &fault);
        if (connection->lease.claimed) {
            lease_take_over(connection);
            return;
        }
        connection_keep_reading(connection);
    } else if (!connection->eof && !connection->draining && transport_more(&connection->transport) &&
               !connection_read(connection)) {
        return;
    }
    connection_watch(connection);
}

void connection_drain(struct connection *connection) {
    if (connection->state == CONNECTION_OPEN && connection->poll && !connection->reader.paused && !connection->eof &&
        !transport_opening(&connection->transport) && !connection_read(connection))
        return;
    connection->draining = true;
    connection_watch(connection);
}

bool connection_idle(const struct connection *connection) {
    return !connection->pending && reply_queue_empty(&connection->queue) && !connection->reader.paused &&
           !link_busy(connection) && (!connection->session || session_queued(connection->session) == 0);
}

/* ---- the end ---- */

static void connection_release(struct connection *connection) {
    struct session_stats stats;
    uint64_t failures = 0;
    char number[24], operations[24], failed[24];

    answer_cancel_all(connection);
    link_drop_connection(connection);
    request_drop_uploads(connection);
    trace_feed_drop(connection);
    connection->wait_room = false;
    if (!connection->session)
        return;
    session_stats(connection->session, &stats);
    for (unsigned i = 0; i < STATUS_COUNT; i++)
        failures += stats.failures[i];
    session_notify_room(connection->session, 0, NULL, NULL);
    session_destroy(connection->session);
    connection->session = NULL;
    account_close_session(connection);
    connection->service->sessions--;
    log_event(LOG_LEVEL_INFO, "session_close", "session", log_text(number, sizeof number, "%lu", connection->number),
              "peer", connection->peer.address, "principal", connection->peer.principal.name, "reason",
              connection->reason, "operations", log_text(operations, sizeof operations, "%lu", connection->operations),
              "failures", log_text(failed, sizeof failed, "%lu", failures), NULL);
}

static void connection_closed(uv_handle_t *handle) {
    free(handle);
}

void connection_leave(struct connection *connection) {
    struct service *service = connection->service;

    if (!connection->guest)
        return;
    if (service->departed)
        atomic_fetch_add_explicit(service->departed, 1, memory_order_relaxed);
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
    lease_finish(&connection->lease);
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
static void connection_linger(struct connection *connection) {
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

static void connection_discard(struct connection *connection) {
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

/* ---- TLS ---- */

static void connection_refused(struct connection *connection, const char *reason) {
    snprintf(connection->reason, sizeof connection->reason, "%s", reason);
    log_event(LOG_LEVEL_INFO, "connection_refused", "peer", connection->peer.address, "principal",
              connection->peer.principal.name, "reason", connection->reason, NULL);
}

/* Goes on with the handshake. True: it is done. */
static bool connection_open(struct connection *connection) {
    int error = transport_handshake(&connection->transport);
    struct fault fault;

    if (error == EAGAIN) {
        connection_watch(connection);
    } else if (error) { /* the alert says why; the client must have the time to read it */
        connection_refused(connection, transport_reason(&connection->transport, error, &fault));
        answer_cancel_all(connection);
        reply_queue_clear(&connection->queue);
        connection_linger(connection);
    } else {
        const char *name = transport_peer_name(&connection->transport);

        snprintf(connection->peer.certificate, sizeof connection->peer.certificate, "%s", name);
        connection->blocked = false;
        service_mark_dirty(connection->service, connection);
    }
    return !error;
}

/* ---- turns ---- */

void connection_flush(struct connection *connection) {
    size_t budget = account_allowance(connection);
    uint64_t before = connection->queue.written;
    struct fault fault;
    int left;

    if (connection->blocked || !connection->poll || transport_opening(&connection->transport))
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
    if (transport_opening(&connection->transport)) {
        if (events & UV_PRIORITIZED) {
            connection_destroy(connection, "closed by the client");
            return;
        }
        if (!connection_open(connection))
            return;
        events |= UV_READABLE; /* Hello may have come along, and will not show again */
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
        !connection->eof && !connection_read(connection))
        return;
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

    if (!lease_tick(connection, now_ms))
        return;
    /* The engine could not promise to tell when it had no memory for that. */
    if (connection->wait_room &&
        session_queued(connection->session) <= connection->account->limits.session_operations / 2)
        connection_on_room(connection);
    if (connection->wait_rate && connection->leave_ms)
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
    if (transport_opening(&connection->transport)) {
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

/* Small frames must not wait for one another, and a Unix socket's default buffer halves the rate of large ones. */
static void connection_tune(int fd, bool *tcp) {
    int family = 0, on = 1, bytes = CONNECTION_SOCKET_BUFFER;
    socklen_t length = sizeof family;

    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
    *tcp = family != AF_UNIX;
    if (*tcp)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    else if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) < 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

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
    struct account *account;
    int status;

    limits_fill(&limits);
    status = account_join(connection->service, principal->name, &limits, &account, fault);
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
    connection_tune(fd, &connection->tcp);
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
    connection->started_ns = service_now_ns();
    connection->deadline_ms = service_now_ms() + service->limits.hello_timeout_ms;
    reply_queue_init(&connection->queue);
    lease_init(&connection->lease);
    connection_list(connection);
    connection_watch(connection);
    *out = connection;
    return STATUS_OK;
}
