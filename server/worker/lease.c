#include "server/worker/lease.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/process/log.h"
#include "server/worker/connection.h"

/* ---- outcomes ---- */

static void outcome_drop_first(struct outcome_list *list) {
    struct outcome *outcome = list->first;
    list->first = outcome->next;
    if (!list->first)
        list->last = NULL;
    list->count--;
    list->bytes -= sizeof *outcome + outcome->bytes;
    free(outcome);
}

static void outcome_forget(struct outcome_list *list, uint64_t sequence) {
    struct outcome **at = &list->first, **last = NULL, *outcome;
    while (*at && (*at)->sequence != sequence) {
        last = &(*at)->next;
        at = last;
    }
    outcome = *at;
    if (!outcome)
        return;
    *at = outcome->next;
    if (!outcome->next)
        list->last = last;
    list->count--;
    list->bytes -= sizeof *outcome + outcome->bytes;
    free(outcome);
}

static void outcome_add(struct outcome_list *list, const struct outcome *what, const void *data) {
    struct outcome *outcome = malloc(sizeof *outcome + what->bytes);
    outcome_forget(list, what->sequence);
    if (!outcome)
        return;
    *outcome = *what;
    memcpy(outcome->frame, data, what->bytes);
    *(list->last ? list->last : &list->first) = outcome;
    list->last = &outcome->next;
    list->bytes += sizeof *outcome + outcome->bytes;
    if (++list->count > OUTCOMES_MAX)
        outcome_drop_first(list);
}

void outcome_remember(struct outcome_list *list, const struct reply *reply) {
    outcome_add(list, &(struct outcome){.sequence = reply->sequence, .type = reply->type, .bytes = reply->head_bytes},
                reply->head);
}

void outcome_changed(struct outcome_list *list, uint64_t sequence, const char *principal) {
    outcome_add(list, &(struct outcome){.sequence = sequence, .changed = true, .bytes = strlen(principal) + 1},
                principal);
}

const struct outcome *outcome_find(const struct outcome_list *list, uint64_t sequence) {
    const struct outcome *outcome = list->first;
    while (outcome && outcome->sequence != sequence)
        outcome = outcome->next;
    return outcome;
}

void outcome_list_finish(struct outcome_list *list) {
    while (list->first)
        outcome_drop_first(list);
}

void lease_init(struct lease *lease) {
    *lease = (struct lease){.pidfd = -1, .scan.transport.fd = -1};
}

static void lease_scan_end(struct lease_scan *scan) {
    if (scan->on)
        frame_reader_finish(&scan->reader);
    scan->on = false;
    if (scan->transport.fd < 0)
        return;
    transport_end(&scan->transport);
    transport_finish(&scan->transport);
}

void lease_finish(struct connection *connection) {
    struct lease *lease = &connection->lease;
    if (lease->pidfd >= 0)
        close(lease->pidfd);
    lease->pidfd = -1;
    frame_reader_finish(&lease->cut);
    lease_scan_end(&lease->scan);
    if (lease->until_ms)
        service_count_detached(connection->service, false);
    lease->until_ms = 0;
}

/* ---- granting ---- */

/* The other end of a Unix socket is the client's own process only if the client says so: it may be a forwarder, which
 * may end before or after the client. */
static pid_t lease_process(int fd, uint32_t claimed) {
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    if (claimed == 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size))
        return 0;
    return credentials.pid > 0 && (uint32_t)credentials.pid == claimed ? credentials.pid : 0;
}

/* Sets what depends on the present socket. */
static void lease_meet(struct connection *connection, const Tensord__Hello *hello) {
    struct lease *lease = &connection->lease;
    lease->process = lease_process(connection->socket.transport.fd, hello->process);
    remote_find(&connection->remote, connection->socket.transport.fd, connection->socket.tcp, hello);
    lease->heartbeat_ms = hello->heartbeat_ms;
    if (lease->heartbeat_ms && lease->heartbeat_ms < LEASE_HEARTBEAT_LEAST_MS)
        lease->heartbeat_ms = LEASE_HEARTBEAT_LEAST_MS;
    lease->heard_ms = lease->said_ms = clock_now_ms();
}

void lease_grant(struct connection *connection, const Tensord__Hello *hello) {
    struct lease *lease = &connection->lease;
    if (!hello->resumable || !connection->principal->limits.session_lease)
        return;
    if (getrandom(lease->secret, sizeof lease->secret, 0) != sizeof lease->secret)
        return; /* without a secret there is no lease, and the client learns it from Welcome */
    lease->granted = true;
    lease_meet(connection, hello);
}

void lease_welcome(const struct connection *connection, Tensord__Welcome *welcome) {
    const struct lease *lease = &connection->lease;
    const struct channel_limits *limits = &connection->service->limits;
    if (!lease->granted)
        return;
    welcome->resume_secret = (ProtobufCBinaryData){sizeof lease->secret, (uint8_t *)lease->secret};
    welcome->process = (uint32_t)getppid(); /* the worker is the front's child, and ends with it */
    welcome->lease_ms = (uint32_t)connection->principal->limits.session_lease; /* a week at most */
    welcome->heartbeat_ms = limits->heartbeat_timeout_ms;
    welcome->frames = lease->frames;
    welcome->frame_bytes = lease->cut_bytes;
}

/* ---- counting ---- */

static void lease_acked(struct reply *reply) {
    struct lease *lease = (struct lease *)((char *)reply - offsetof(struct lease, ack));
    struct connection *connection = (struct connection *)((char *)lease - offsetof(struct connection, lease));
    lease->acking = false;
    if (lease->ack_due && connection->socket.poll && connection->state == CONNECTION_OPEN)
        lease_ack(connection);
}

/* A client that does not read gets no second Ack: the next one carries the newer count. */
void lease_ack(struct connection *connection) {
    struct lease *lease = &connection->lease;
    Tensord__Ack ack = TENSORD__ACK__INIT;
    lease->ack_due = lease->acking;
    if (lease->acking)
        return;
    lease->unacked = 0;
    lease->acking = true;
    ack.frames = lease->frames;
    lease->ack.sent = lease_acked;
    reply_message(&lease->ack, FRAME_ACK, 0, &ack.base);
    pending_reply_print(connection, &lease->ack);
    reply_queue_add(&connection->out.queue, &lease->ack);
    service_mark_dirty(connection->service, connection);
}

void lease_handled(struct connection *connection, const struct frame_header *header) {
    struct lease *lease = &connection->lease;
    if (!request_counted(header->type))
        return;
    lease->frames++;
    lease->unacked += FRAME_HEADER_BYTES + header->message_bytes;
    if (header->payload_bytes <= LEASE_ACK_BYTES)
        lease->unacked += header->payload_bytes;
    if (lease->unacked >= LEASE_ACK_BYTES)
        lease_ack(connection);
}

/* ---- losing a connection ---- */

static int lease_scan_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                              struct fault *fault) {
    struct connection *connection = owner;
    (void)message, (void)sink, (void)fault;
    if (header->type == FRAME_GOODBYE)
        connection->lease.goodbye = true;
    return STATUS_OK;
}

static const struct frame_handler lease_scan_handler = {lease_scan_message, NULL};

/* The number of bytes that have come from the client and are unread. Later bytes are not waited for. */
static size_t lease_left(const struct connection *connection) {
    int bytes = 0;
    if (ioctl(connection->socket.transport.fd, FIONREAD, &bytes) || bytes < 0 || bytes > LEASE_SCAN_BYTES)
        bytes = LEASE_SCAN_BYTES;
    return (size_t)bytes + (connection->socket.transport.tls ? LEASE_SCAN_AHEAD : 0);
}

/* Data that the client sent before its end may still lie in the socket, if reading had paused. None of it will be
 * handled: a client that comes back sends it again, and after a Goodbye it is not wanted. The scan reads it, now or as
 * soon as there is time, and charges it to the principal's rate afterwards. The session's own reader keeps its state
 * within the present frame. */
static void lease_scan_begin(struct connection *connection) {
    struct lease_scan *scan = &connection->lease.scan;
    if (connection->socket.eof || frame_reader_copy(&connection->in.reader, &scan->reader))
        return;
    scan->on = true;
    scan->left = lease_left(connection);
    if (frame_reader_resume(&scan->reader, &lease_scan_handler, connection, NULL))
        scan->left = 0;
}

/* One read. */
static void lease_scan_read(struct connection *connection) {
    struct lease_scan *scan = &connection->lease.scan;
    uint8_t *place;
    size_t want;
    frame_reader_want(&scan->reader, &place, &want);
    ssize_t got =
        transport_read(connection->socket.poll ? &connection->socket.transport : &scan->transport, place, want);
    if (got > 0)
        worker_principal_spend(connection, (size_t)got);
    if (got <= 0 || frame_reader_advance(&scan->reader, (size_t)got, &lease_scan_handler, connection, NULL))
        scan->left = 0;
    else
        scan->left -= (size_t)got < scan->left ? (size_t)got : scan->left;
}

bool lease_scan_some(struct connection *connection) {
    struct lease_scan *scan = &connection->lease.scan;
    while (scan->on && scan->left > 0 && !connection->lease.goodbye) {
        size_t before = scan->left;
        lease_scan_read(connection);
        if (budget_spent(connection->service->budget, 1 + (int)((before - scan->left) / LEASE_SCAN_STEP_BYTES)))
            break;
    }
    if (scan->on && scan->left > 0 && !connection->lease.goodbye)
        return false;
    lease_scan_end(scan);
    return true;
}

/* If the frame in the reader counts for the lease, keeps the part of it that has come: the client may continue within
 * the frame. */
static void lease_cut(struct connection *connection) {
    struct lease *lease = &connection->lease;
    struct frame_reader *reader = &connection->in.reader;
    lease->cut_bytes = frame_reader_begun(reader);
    if (lease->cut_bytes == 0 || !request_counted(reader->header.type) || reader->stopped)
        return;
    frame_reader_cut(reader);
    lease->cut = *reader;
    *reader = (struct frame_reader){0};
}

/* Takes the socket from the session, and drops the work that was in progress on it. */
static void lease_unplug(struct connection *connection) {
    lease_cut(connection);
    connection_unplug(connection);
    connection_leave(connection); /* otherwise its own limits could keep the client from coming back */
}

static void lease_log(const struct connection *connection, const char *event, const char *reason) {
    char number[24], left[24];
    log_event_from(LOG_LEVEL_INFO, PEER_SOURCE(&connection->peer), event, "session",
                   log_text(number, sizeof number, "%lu", connection->number), "peer", connection->peer.address,
                   "principal", connection->peer.principal.name, "cause", reason, "frames",
                   log_text(left, sizeof left, "%lu", connection->lease.frames), NULL);
}

/* Whether the client's process is known to have ended. */
static bool lease_orphaned(struct lease *lease) {
    struct pollfd end = {.fd = lease->pidfd, .events = POLLIN};
    return lease->pidfd >= 0 && poll(&end, 1, 0) > 0;
}

static void lease_detach(struct connection *connection, const char *reason) {
    struct lease *lease = &connection->lease;
    service_count_detached(connection->service, true); /* first the session keeps a place, */
    lease->until_ms = clock_now_ms() + connection->principal->limits.session_lease;
    if (lease->scan.on) {
        lease->scan.transport = connection->socket.transport;
        connection->socket.transport = (struct transport){.fd = -1};
    }
    lease_unplug(connection); /* and then the connection's place is given back */
    link_in_extend(connection);
    if (lease->process > 0) {
        lease->pidfd = socket_watch_process(lease->process);
        if (lease->pidfd < 0 && errno == ESRCH)
            lease->until_ms = 1; /* the process has ended already: the next tick ends the lease */
    }
    lease_log(connection, "session_detach", reason);
}

void lease_lost(struct connection *connection, const char *reason) {
    struct lease *lease = &connection->lease;
    if (connection->state == CONNECTION_OPEN && lease->granted && !lease->goodbye) {
        lease_scan_begin(connection);
        lease_scan_some(connection);
    }
    if (connection->state != CONNECTION_OPEN || !lease->granted || lease->goodbye)
        connection_destroy(connection, reason);
    else
        lease_detach(connection, reason);
}

/* ---- coming back ---- */

static struct connection *lease_find(const struct service *service, uint64_t session) {
    struct connection *at = service->connections;
    while (at && (at->number != session || !at->session || !at->lease.granted || at->lease.goodbye ||
                  at->state != CONNECTION_OPEN))
        at = at->next;
    return at;
}

/* Takes the same time for all secrets. */
static bool lease_presented(const struct connection *connection, const struct connection *fresh,
                            const ProtobufCBinaryData *secret) {
    unsigned difference = 0;
    if (secret->len != LEASE_SECRET_BYTES || strcmp(connection->peer.principal.name, fresh->peer.principal.name) != 0)
        return false;
    for (unsigned i = 0; i < LEASE_SECRET_BYTES; i++)
        difference |= connection->lease.secret[i] ^ secret->data[i];
    return difference == 0;
}

int lease_claim(struct connection *fresh, const Tensord__Hello *hello, uint64_t sequence, struct fault *fault) {
    struct service *service = fresh->service;
    struct connection *connection = lease_find(service, hello->resume_session);
    if (hello->resume_epoch != service->epoch)
        return fault_set(fault, STATUS_DEVICE_LOST, "device %s was restarted; session %lu and its tensors are lost",
                         service->device, hello->resume_session);
    if (!connection)
        return fault_set(fault, STATUS_DEVICE_LOST,
                         "session %lu has ended: its lease of %lu ms is over, or the daemon ended it",
                         hello->resume_session, fresh->principal->limits.session_lease);
    if (!lease_presented(connection, fresh, &hello->resume_secret))
        return fault_set(fault, STATUS_DENIED, "session %lu is another's: the secret or the user is not its own",
                         hello->resume_session);
    if (connection->socket.poll) /* the client knows that this connection is of no use any more */
        lease_detach(connection, "its client has another connection");
    if (connection->end.unplugging) {
        service_mark_more(service, fresh);
        return STATUS_AGAIN;
    }
    lease_meet(fresh, hello);
    fresh->lease.claimed = connection;
    fresh->lease.claim_sequence = sequence;
    fresh->lease.version = hello->version_max;
    fresh->lease.within = hello->resume_within;
    frame_reader_pause(&fresh->in.reader);
    return STATUS_OK;
}

/* The session has a socket again: its reader continues within the frame that was cut, or waits for the whole frame
 * again. */
static void lease_go_on(struct connection *connection, struct frame_reader *cut, bool within) {
    if (within && cut->buffer && frame_reader_follow(cut, &connection->in.reader) == STATUS_OK) {
        frame_reader_finish(&connection->in.reader);
        connection->in.reader = *cut;
        return;
    }
    connection->lease.cut_bytes = 0;
    frame_reader_finish(cut);
    request_cut(connection);
}

void lease_take_over(struct connection *fresh) {
    struct connection *connection = fresh->lease.claimed;
    struct lease *lease = &connection->lease;
    char reason[64];
    /* Before the place of the lease is given back: otherwise one place too many would seem free for a moment. */
    connection_settle(fresh);
    struct frame_reader cut = lease->cut;
    lease->cut = (struct frame_reader){0};
    lease_finish(connection);
    lease->reconnects++;
    lease->process = fresh->lease.process;
    connection->remote = fresh->remote;
    lease->heartbeat_ms = fresh->lease.heartbeat_ms;
    lease->heard_ms = lease->said_ms = clock_now_ms();
    connection_adopt(connection, fresh);
    lease_go_on(connection, &cut, fresh->lease.within);
    link_in_extend(connection);
    lease_log(connection, "session_resume", "");
    request_welcome(connection, fresh->lease.version, fresh->lease.claim_sequence);
    snprintf(reason, sizeof reason, "it went on as session %lu", connection->number);
    connection_destroy(fresh, reason);
    service_mark_more(connection->service, connection);
}

/* ---- time ---- */

/* Ends the connection of a client that sends nothing, and sends an Ack to a client that has received nothing for a
 * while. */
static bool lease_heartbeat(struct connection *connection, uint64_t now_ms) {
    struct lease *lease = &connection->lease;
    uint32_t timeout_ms = connection->service->limits.heartbeat_timeout_ms;
    char reason[64];
    /* While the connection reads nothing, it cannot notice what the client sends. */
    if (lease->heard || connection->in.reader.paused || connection->in.draining || connection->hold.rate)
        lease->heard_ms = now_ms;
    if (lease->said || connection->socket.blocked)
        lease->said_ms = now_ms;
    lease->heard = lease->said = false;
    if (timeout_ms && now_ms - lease->heard_ms >= timeout_ms) {
        snprintf(reason, sizeof reason, "the client said nothing for %u ms", timeout_ms);
        lease_lost(connection, reason);
        return false;
    }
    if (lease->heartbeat_ms && now_ms - lease->said_ms >= lease->heartbeat_ms / 3) {
        lease_ack(connection);
        lease->said_ms = now_ms;
    }
    return true;
}

bool lease_tick(struct connection *connection, uint64_t now_ms) {
    struct lease *lease = &connection->lease;
    if (!lease->granted || connection->state != CONNECTION_OPEN)
        return true;
    if (connection->socket.poll)
        return lease_heartbeat(connection, now_ms);
    if (lease_orphaned(lease))
        connection_destroy(connection, "the client's process has ended");
    else if (now_ms >= lease->until_ms)
        connection_destroy(connection, lease->until_ms > 1 ? "its lease is over" : "the client's process has ended");
    else {
        service_at(connection->service, lease->until_ms);
        return true;
    }
    return false;
}
