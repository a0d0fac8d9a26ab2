#include <errno.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/ipc/channel.h"
#include "server/process/farewell.h"
#include "server/process/log.h"
#include "server/process/loop.h"
#include "server/users/credentials.h"
#include "server/worker/connection.h"
#include "server/worker/link_in.h"
#include "server/worker/link_out.h"
#include "server/worker/worker_impl.h"

/* ---- words to the front ---- */

/* For what the front waits for. The channel may be full, but not for long. */
static void worker_tell(int channel, const struct channel_message *message) {
    struct pollfd writable = {.fd = channel, .events = POLLOUT};

    for (unsigned tries = 0; tries < 5 && channel_send(channel, message, -1) == -EAGAIN; tries++)
        poll(&writable, 1, 100);
}

/* The front still has the socket that could not be taken, and tells the client. */
static void worker_refuse(struct worker *worker, uint64_t session) {
    const struct channel_message refused = {.type = CHANNEL_REFUSED, .connection.session = session};

    channel_send(worker->channel, &refused, -1);
}

/* From here on a connection is this process's, and ends with it. */
static void worker_take(struct worker *worker) {
    const struct channel_message message = {.type = CHANNEL_TAKEN, .taken = ++worker->service.arrived};

    if (worker->stats.page)
        atomic_store_explicit(&worker->stats.page->taken, message.taken, memory_order_release);
    channel_send(worker->channel, &message, -1);
}

/* The front counts connections until it is told, so none may be forgotten where the channel is full for a while. */
void worker_on_left(void *owner, uint64_t session) {
    struct worker *worker = owner;
    const struct channel_message ended = {.type = CHANNEL_ENDED, .connection.session = session};
    uint64_t *grown;

    if (!worker->n_left && channel_send(worker->channel, &ended, -1) != -EAGAIN)
        return;
    grown = realloc(worker->left, (worker->n_left + 1) * sizeof *grown);
    if (!grown) {
        log_event(LOG_LEVEL_ERROR, "out_of_memory", "what", "the end of a connection", NULL);
        return;
    }
    worker->left = grown;
    worker->left[worker->n_left++] = session;
}

/* Where this is lost the connection may be told to go, and does not. */
void worker_on_greeted(void *owner, uint64_t session) {
    struct worker *worker = owner;
    const struct channel_message greeted = {.type = CHANNEL_GREETED, .connection.session = session};

    channel_send(worker->channel, &greeted, -1);
}

void worker_tell_left(struct worker *worker) {
    size_t told = 0;

    while (told < worker->n_left) {
        const struct channel_message ended = {.type = CHANNEL_ENDED, .connection.session = worker->left[told]};

        if (channel_send(worker->channel, &ended, -1) == -EAGAIN)
            break;
        told++;
    }
    if (told)
        memmove(worker->left, worker->left + told, (worker->n_left - told) * sizeof *worker->left);
    worker->n_left -= told;
}

/* ---- words of the front ---- */

static void worker_connection(struct worker *worker, const struct channel_message *message, int fd) {
    struct connection_options options = {
        .service = &worker->service,
        .session = message->connection.session,
        .kept = message->connection.kept,
        .peer = &message->connection.peer,
        .tls = message->connection.peer.tls ? worker->tls : NULL,
    };
    struct connection *connection;
    struct fault fault = {0};
    int error;

    if (fd < 0)
        error = fault_set(&fault, STATUS_LIMIT, "no descriptor left");
    else
        error = connection_create(&options, fd, &connection, &fault);
    if (error) {
        log_event(LOG_LEVEL_ERROR, "connection_failed", "peer", options.peer->address, "cause", fault.message, NULL);
        worker_refuse(worker, options.session);
    }
    worker_take(worker);
    if (error) {
        service_count_departed(&worker->service, options.kept);
        return worker_on_left(worker, options.session);
    }
    if (options.peer->tls && !options.tls) { /* in the clear: the client knows what that means */
        fault_set(&fault, STATUS_INTERNAL, "%s has no certificate for TLS", worker->service.device);
        connection_fail(connection, &fault);
    } else if (worker->service.failed) {
        fault_set(&fault, STATUS_DEVICE_LOST, "%s was lost", worker->service.device);
        connection_fail(connection, &fault);
    } else if (worker->service.draining) {
        fault_set(&fault, STATUS_DRAINING, "%s is shutting down", worker->service.device);
        connection_fail(connection, &fault);
    }
}

/* Its place is wanted, if it still has not said Hello. */
static void worker_evict(struct worker *worker, uint64_t session) {
    struct connection *connection = worker->service.connections;
    struct fault fault;

    while (connection && connection->socket.guest != session)
        connection = connection->next;
    if (!connection)
        return;
    if (connection->session) {
        worker_on_greeted(worker, session);
        return;
    }
    /* At once: whoever wants the place does not wait for this one's client to read. */
    fault_set(&fault, STATUS_LIMIT, "%s", CHANNEL_EVICTED);
    worker->service.rejections[STATUS_LIMIT]++;
    if (!connection->peer.tls)
        farewell_send(connection->socket.transport.fd, &fault);
    connection_destroy(connection, fault.message);
}

/* Connections that are open go on with what they began with. */
static void worker_credentials(struct worker *worker, int fd) {
    struct tls_context *context = NULL;
    struct fault fault;

    if (fd < 0)
        fault_set(&fault, STATUS_LIMIT, "no descriptor left");
    if (fd < 0 || credentials_open(fd, &context, &fault)) {
        log_event(LOG_LEVEL_ERROR, "tls_failed", "cause", fault.message, NULL);
        return;
    }
    tls_context_release(worker->tls);
    worker->tls = context;
}

/* Without it names are only shown, and found, by other words. */
static void worker_users(struct worker *worker, int fd) {
    struct stat stat_now;
    char *text = fd >= 0 && !fstat(fd, &stat_now) ? malloc((size_t)stat_now.st_size + 1) : NULL;
    ssize_t bytes = text ? pread(fd, text, (size_t)stat_now.st_size, 0) : -1;

    if (bytes < 0) {
        log_event(LOG_LEVEL_ERROR, "users_unknown", "cause", "no descriptor or no memory left", NULL);
        free(text);
        return;
    }
    text[bytes] = 0;
    names_set_users(&worker->service.names, text);
}

/* Before its Hello a session has no tensors, but it has its number. */
static void worker_kill(struct worker *worker, const struct channel_message *message) {
    struct channel_message answer = {.type = CHANNEL_KILLED, .kill.session = message->kill.session};
    struct fault fault;

    fault_set(&fault, STATUS_CANCELLED, "session %lu was ended by %s%s%s", message->kill.session, message->kill.by,
              *message->kill.reason ? ": " : "", message->kill.reason);
    for (struct connection *at = worker->service.connections; at; at = at->next)
        if (at->number == message->kill.session && at->state == CONNECTION_OPEN) {
            answer.kill.found = true;
            connection_give_up(at, &fault);
            break;
        }
    worker_tell(worker->channel, &answer);
}

/* What the front says of a client that wanted to log in, and may be gone by now. */
static void worker_logged_in(struct worker *worker, const struct channel_message *message) {
    struct connection *connection = worker->service.connections;

    while (connection && connection->number != message->login.session)
        connection = connection->next;
    if (!connection)
        return;
    if (message->type == CHANNEL_GRANTED)
        connection_granted(connection, &message->login.principal);
    else
        connection_denied(connection, &message->login.fault);
}

static void worker_revoke(struct worker *worker, const struct principal *principal) {
    struct connection *connection = worker->service.connections;
    struct fault fault;

    fault_set(&fault, STATUS_DENIED, "%s's token or role was revoked or changed", principal->name);
    while (connection) {
        struct connection *next = connection->next;

        if (principal_same_login(&connection->peer.principal, principal))
            connection_give_up(connection, &fault);
        connection = next;
    }
}

/* What is queued already goes on. */
static void worker_kernels(struct worker *worker, const char *list) {
    for (struct connection *at = worker->service.connections; at; at = at->next)
        at->peer.principal.user_kernels = principal_is_listed(list, at->peer.principal.name);
}

/* Without room for so many the worker refuses those for whom there is none. */
static void worker_places(struct worker *worker, uint64_t places) {
    struct fault fault;

    if (loop_raise_descriptors(&worker->loop, places, &fault))
        log_event(LOG_LEVEL_ERROR, "descriptors", "cause", fault.message, NULL);
}

static void worker_message(struct worker *worker, const struct channel_message *message, int fd) {
    switch (message->type) {
    case CHANNEL_CONNECTION:
        worker_connection(worker, message, fd);
        return;
    case CHANNEL_LINK_IN:
        link_in_accept(&worker->service, message->link.device, message->link.principal, message->link.ticket, fd);
        return;
    case CHANNEL_LINK_OUT:
        link_out_granted(&worker->service, message->link.ticket, fd, &message->link_fault);
        return;
    case CHANNEL_PEER_LOST:
        link_in_peer_lost(&worker->service, message->link.device);
        break;
    case CHANNEL_CREDENTIALS:
        worker_credentials(worker, fd);
        break;
    case CHANNEL_USERS:
        worker_users(worker, fd);
        break;
    case CHANNEL_KILL:
        worker_kill(worker, message);
        break;
    case CHANNEL_GRANTED:
    case CHANNEL_DENIED:
        worker_logged_in(worker, message);
        break;
    case CHANNEL_REVOKED:
        worker_revoke(worker, &message->principal);
        break;
    case CHANNEL_LIMITS:
        account_change_limits(&worker->service, message->principal.name, &message->principal.limits);
        break;
    case CHANNEL_KERNELS:
        worker_kernels(worker, message->kernels);
        break;
    case CHANNEL_EVICT:
        worker_evict(worker, message->connection.session);
        break;
    case CHANNEL_PLACES:
        worker_places(worker, message->places);
        break;
    case CHANNEL_DRAIN:
        log_event(LOG_LEVEL_INFO, "drain", NULL);
        service_drain(&worker->service);
        break;
    default:
        break;
    }
    if (fd >= 0)
        close(fd);
}

void worker_on_channel(uv_poll_t *poll, int status, int events) {
    struct worker *worker = poll->data;
    struct channel_message message;
    int fd, error;

    (void)events;
    service_busy(&worker->service);
    while ((error = status < 0 ? -EPIPE : channel_receive(worker->channel, &message, &fd)) == 0) {
        worker_message(worker, &message, fd);
        budget_look(worker->service.budget);
        if (service_is_late(&worker->service))
            return; /* what else there is, the next poll tells of */
    }
    /* Without a front nobody restarts, watches or drains this process; the kernel gives its sockets and memory back. */
    if (error != -EAGAIN)
        _exit(1);
}

/* ---- questions ---- */

int worker_want_link(void *owner, const char *device, const char *principal, const uint8_t ticket[LINK_TICKET_BYTES]) {
    struct worker *worker = owner;
    struct channel_message message = {.type = CHANNEL_LINK_WANTED};

    snprintf(message.link.device, sizeof message.link.device, "%s", device);
    snprintf(message.link.principal, sizeof message.link.principal, "%s", principal);
    memcpy(message.link.ticket, ticket, sizeof message.link.ticket);
    return channel_send(worker->channel, &message, -1);
}

int worker_login(void *owner, const struct connection *connection, const char *token) {
    struct worker *worker = owner;
    struct channel_message message = {.type = CHANNEL_LOGIN};

    message.login.session = connection->number;
    message.login.peer = connection->peer;
    snprintf(message.login.token, sizeof message.login.token, "%s", token);
    int error = channel_send(worker->channel, &message, -1);
    OPENSSL_cleanse(&message.login.token, sizeof message.login.token);
    return error;
}

void worker_report(int channel, const struct fault *fault) {
    struct channel_message message = {.type = CHANNEL_FAULT, .fault = *fault};

    log_event(LOG_LEVEL_ERROR, "device_fault", "code", status_name((int)fault->code), "cause", fault->message, NULL);
    worker_tell(channel, &message);
}
