#include "server/worker.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "server/channel.h"
#include "server/connection.h"
#include "server/crash.h"
#include "server/credentials.h"
#include "server/link_in.h"
#include "server/link_out.h"
#include "server/log.h"
#include "server/loop.h"
#include "server/state.h"
#include "server/worker_stats.h"

enum {
    WORKER_START_MS = 10000,    /* for the first message */
    WORKER_LAST_WORDS_MS = 500, /* for telling clients that the device is lost */
};

struct worker {
    uv_loop_t loop;
    struct service service;
    struct worker_stats stats;
    struct state state;
    unsigned held_ups; /* calls within one another that may take long */
    int channel;
    uv_poll_t poll;          /* of the channel */
    struct tls_context *tls; /* for connections over TLS; NULL: the front has sent nothing */
    uint64_t deadline_ms;    /* after a failure of the device; 0: none */
    uint64_t *left;          /* sessions whose end the front is still to be told */
    size_t n_left;
    bool done;
    int status; /* to exit with */
};

/* ---- the channel ---- */

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
static void worker_on_left(void *owner, uint64_t session) {
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

static void worker_tell_left(struct worker *worker) {
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

static void worker_connection(struct worker *worker, const struct channel_message *message, int fd) {
    struct connection_options options = {
        .service = &worker->service,
        .session = message->connection.session,
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
        log_event(LOG_LEVEL_ERROR, "connection_failed", "peer", options.peer->address, "reason", fault.message, NULL);
        worker_refuse(worker, options.session);
    }
    worker_take(worker);
    if (error) {
        if (worker->service.departed)
            atomic_fetch_add_explicit(worker->service.departed, 1, memory_order_relaxed);
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

    fault_set(&fault, STATUS_DENIED, "%s may not stay: its token or role was revoked or changed", principal->name);
    while (connection) {
        struct connection *next = connection->next;

        if (principal_same_login(&connection->peer.principal, principal))
            connection_give_up(connection, &fault);
        connection = next;
    }
}

static void worker_message(struct worker *worker, const struct channel_message *message, int fd) {
    switch (message->type) {
    case CHANNEL_CONNECTION:
        worker_connection(worker, message, fd);
        return;
    case CHANNEL_LINK_IN:
        link_in_accept(&worker->service, message->link.device, message->link.ticket, fd);
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

static void worker_on_channel(uv_poll_t *poll, int status, int events) {
    struct worker *worker = poll->data;
    struct channel_message message;
    int fd, error;

    (void)events;
    service_busy(&worker->service);
    while ((error = status < 0 ? -EPIPE : channel_receive(worker->channel, &message, &fd)) == 0)
        worker_message(worker, &message, fd);
    /* Without a front nobody restarts, watches or drains this process; the kernel gives its sockets and memory back. */
    if (error != -EAGAIN)
        _exit(1);
}

static int worker_want_link(void *owner, const char *device, const uint8_t ticket[LINK_TICKET_BYTES]) {
    struct worker *worker = owner;
    struct channel_message message = {.type = CHANNEL_LINK_WANTED};

    snprintf(message.link.device, sizeof message.link.device, "%s", device);
    memcpy(message.link.ticket, ticket, sizeof message.link.ticket);
    return channel_send(worker->channel, &message, -1);
}

static int worker_login(void *owner, const struct connection *connection, const char *token) {
    struct worker *worker = owner;
    struct channel_message message = {.type = CHANNEL_LOGIN};

    message.login.session = connection->number;
    message.login.peer = connection->peer;
    snprintf(message.login.token, sizeof message.login.token, "%s", token);
    int error = channel_send(worker->channel, &message, -1);
    OPENSSL_cleanse(&message.login.token, sizeof message.login.token);
    return error;
}

/* A fault that ends the worker, to the front and to the log. */
static void worker_report(int channel, const struct fault *fault) {
    struct channel_message message = {.type = CHANNEL_FAULT, .fault = *fault};

    log_event(LOG_LEVEL_ERROR, "device_fault", "code", status_name((int)fault->code), "message", fault->message, NULL);
    worker_tell(channel, &message);
}

/* ---- the service's calls ---- */

/* The number by which clients and operators know a session; 0 where it has ended. */
static unsigned long worker_session(const struct worker *worker, const struct session *session) {
    for (const struct connection *at = worker->service.connections; at; at = at->next)
        if (session && at->session == session)
            return at->number;
    return 0;
}

/* Gives up a device that completes nothing any more: its sessions are told, and the front starts another worker. */
static void worker_watch_device(struct worker *worker) {
    uint64_t timeout_ns = (uint64_t)worker->service.limits.device_timeout_ms * 1000000;
    struct engine_stall stall;
    struct fault fault;
    char whose[32] = "a session that has ended";
    unsigned long number;

    if (worker->service.failed || !engine_stalled(worker->service.engine, timeout_ns, &stall))
        return;
    number = worker_session(worker, stall.session);
    if (number)
        snprintf(whose, sizeof whose, "session %lu", number);
    fault_set(&fault, STATUS_DEVICE_LOST, "no progress for %.1f s in %s of %s", (double)stall.ns / 1e9,
              *stall.operation ? stall.operation : "the work", whose);
    engine_fail(worker->service.engine, &fault);
}

static void worker_on_tick(void *owner) {
    struct worker *worker = owner;

    worker_watch_device(worker);
    worker_tell_left(worker);
    worker_stats_tick(&worker->stats, &worker->service);
    if (worker->deadline_ms && service_now_ms() >= worker->deadline_ms) {
        worker->done = true;
        uv_stop(&worker->loop);
    }
}

/* So that the front has the patience with this process that it has with the device. */
static void worker_on_held_up(void *owner, bool begins) {
    struct worker *worker = (struct worker *)((char *)owner - offsetof(struct worker, service));

    if (begins ? worker->held_ups++ : --worker->held_ups)
        return; /* within a longer one */
    if (worker->stats.page)
        atomic_store_explicit(&worker->stats.page->held_up_ns, begins ? service_now_ns() : 0, memory_order_relaxed);
}

static void worker_on_failed(void *owner, const struct fault *fault) {
    struct worker *worker = owner;
    struct fault lost;

    worker_report(worker->channel, fault);
    worker->status = 1;
    worker->deadline_ms = service_now_ms() + WORKER_LAST_WORDS_MS;
    fault_set(&lost, STATUS_DEVICE_LOST, "%s was lost: %s", worker->service.device, fault->message);
    service_fail(&worker->service, &lost);
}

static void worker_on_ended(void *owner) {
    struct worker *worker = owner;

    worker->done = true;
    uv_stop(&worker->loop);
}

/* ---- named tensors on disk ---- */

static void worker_turn(void *owner, bool wait) {
    struct worker *worker = owner;

    uv_run(&worker->loop, wait ? UV_RUN_ONCE : UV_RUN_NOWAIT);
}

/* The disk may take its time; the loop turns meanwhile wherever it can. */
static void worker_keep_names(struct worker *worker, void (*how)(struct state *state)) {
    worker_on_held_up(&worker->service, true);
    how(&worker->state);
    worker_on_held_up(&worker->service, false);
}

static void worker_state_init(struct worker *worker, const char *directory) {
    worker->state = (struct state){.service = &worker->service, .turn = worker_turn, .owner = worker};
    snprintf(worker->state.directory, sizeof worker->state.directory, "%s", directory);
}

/* ---- life ---- */

static int worker_receive_start(int channel, struct channel_message *start) {
    struct pollfd readable = {.fd = channel, .events = POLLIN};
    int fd = -1, error;

    if (poll(&readable, 1, WORKER_START_MS) <= 0)
        return -ETIMEDOUT;
    error = channel_receive(channel, start, &fd);
    if (fd >= 0)
        close(fd);
    return error ? error : start->type == CHANNEL_START ? 0 : -EPROTO;
}

static int worker_open(struct worker *worker, const struct channel_message *start, struct engine **engine,
                       struct fault *fault) {
    struct device_options device_options = {
        .index = start->start.index,
        .threads = start->start.threads,
        .memory_total = start->start.memory_total,
        .readings = true,
    };
    struct engine_options engine_options = {
        .wake = service_wake,
        .held_up = worker_on_held_up,
        .owner = &worker->service,
        .staging_total = start->start.staging_total,
    };
    struct device *device;
    int status = device_open(start->start.kind, &device_options, &device, fault);

    if (status)
        return status;
    status = engine_create(device, &engine_options, engine, fault);
    if (status)
        device_close(device);
    return status;
}

static int worker_init(struct worker *worker, const struct channel_message *start, struct fault *fault) {
    struct service_options options = {
        .device = start->start.device,
        .kind = start->start.kind,
        .epoch = start->start.epoch,
        .limits = start->start.limits,
        .want_link = worker_want_link,
        .left = worker_on_left,
        .login = worker_login,
        .tick = worker_on_tick,
        .failed = worker_on_failed,
        .ended = worker_on_ended,
        .compiler = "/proc/self/exe", /* the same program even if another has been installed meanwhile */
        .owner = worker,
    };
    struct engine *engine = NULL;
    int status, error = uv_loop_init(&worker->loop);

    if (error)
        return fault_set(fault, STATUS_INTERNAL, "event loop: %s", uv_strerror(error));
    status = loop_reserve(&worker->loop, fault);
    if (status == STATUS_OK)
        status = service_init(&worker->service, &worker->loop, &options, fault);
    worker->service.departed = worker->stats.page ? &worker->stats.page->departed : NULL;
    if (status == STATUS_OK)
        status = worker_open(worker, start, &engine, fault);
    if (status == STATUS_OK)
        status = service_start(&worker->service, engine, fault);
    if (status)
        return status;
    error = uv_poll_init(&worker->loop, &worker->poll, worker->channel);
    worker->poll.data = worker;
    if (!error)
        error = uv_poll_start(&worker->poll, UV_READABLE | UV_DISCONNECT, worker_on_channel);
    return error ? fault_set(fault, STATUS_INTERNAL, "cannot watch the channel: %s", uv_strerror(error)) : STATUS_OK;
}

/* After a drain everything is given back in order. After a failure of the device nothing more is asked of it: its calls
 * may never return. */
static int worker_finish(struct worker *worker) {
    const struct channel_message drained = {.type = CHANNEL_DRAINED};

    if (worker->status)
        _exit(worker->status);
    worker_keep_names(worker, state_save);
    if (worker->status) /* the device was lost meanwhile */
        _exit(worker->status);
    crash_watch(NULL, NULL);
    service_finish(&worker->service);
    tls_context_release(worker->tls);
    uv_close((uv_handle_t *)&worker->poll, NULL);
    uv_run(&worker->loop, UV_RUN_DEFAULT);
    uv_loop_close(&worker->loop);
    worker_stats_finish(&worker->stats);
    free(worker->left);
    channel_send(worker->channel, &drained, -1);
    log_event(LOG_LEVEL_INFO, "drained", NULL);
    return 0;
}

/* The front decides about the end: a terminal's Ctrl-C or a service manager's SIGTERM reaches all processes at once,
 * and a worker that obeyed would leave its clients without answers. */
static void worker_signals(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit shall fail, and say so */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

int worker_main(int channel, int stats_page) {
    static struct worker worker;
    const struct channel_message ready = {.type = CHANNEL_READY};
    struct channel_message start;
    struct fault fault = {0};
    int error;

    worker_signals();
    error = worker_receive_start(channel, &start);
    if (error)
        return 1; /* there is no front to tell */
    log_init(start.start.log_level, start.start.device);
    crash_init();
    worker.channel = channel;
    error = worker_stats_init(&worker.stats, stats_page);
    if (error)
        fault_set(&fault, STATUS_INTERNAL, "cannot map the stats page: %s", strerror(-error));
    else
        worker_init(&worker, &start, &fault);
    if (fault.code) {
        worker_report(channel, &fault);
        return 1;
    }
    if (worker.stats.page)
        stats_operations_write(&worker.stats.page->operations, engine_device(worker.service.engine));
    worker_state_init(&worker, start.start.state_dir);
    worker_keep_names(&worker, state_restore);
    crash_watch(worker.service.engine, worker.stats.page);
    worker.service.active = true;
    worker_stats_tick(&worker.stats, &worker.service); /* so that status knows the device from its first moment */
    channel_send(channel, &ready, -1);
    log_event(LOG_LEVEL_INFO, "ready", NULL);
    while (!worker.done)
        uv_run(&worker.loop, UV_RUN_DEFAULT);
    return worker_finish(&worker);
}
