#include "server/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "server/ipc/channel.h"
#include "server/process/farewell.h"
#include "server/process/log.h"
#include "server/process/loop.h"
#include "server/worker/connection.h"
#include "server/worker/crash.h"
#include "server/worker/service.h"
#include "server/worker/state.h"
#include "server/worker/worker_stats.h"

struct worker {
    uv_loop_t loop;
    struct service service;
    struct worker_stats stats;
    struct state state;
    unsigned device_calls; /* nested calls that may take long */
    int channel;
    uv_poll_t poll;          /* of the channel */
    struct tls_context *tls; /* for connections over TLS; NULL: the front has sent nothing */
    uint64_t deadline_ms;    /* after a failure of the device; 0: none */
    uint64_t *left;          /* sessions whose end the front has not been told yet, */
    size_t n_left, left_room;
    size_t n_open; /* and those that have not ended */
    bool done;
    int status; /* the exit status */
};

/* ---- messages to the front ---- */

/* For messages that the front waits for. The channel may be full, but not for long. */
static void worker_tell(int channel, const struct channel_message *message) {
    struct pollfd writable = {.fd = channel, .events = POLLOUT};
    for (unsigned tries = 0; tries < 5 && channel_send(channel, message, -1) == -EAGAIN; tries++)
        poll(&writable, 1, 100);
}

/* The worker could not take the socket. The front still has it, and tells the client. */
static void worker_refuse(struct worker *worker, uint64_t session) {
    const struct channel_message refused = {.type = CHANNEL_REFUSED, .connection.session = session};
    channel_send(worker->channel, &refused, -1);
}

/* Counts a connection as taken: from here on it ends with this process. */
static void worker_take(struct worker *worker) {
    const struct channel_message message = {.type = CHANNEL_TAKEN, .taken = ++worker->service.arrived};
    if (worker->stats.page)
        atomic_store_explicit(&worker->stats.page->taken, message.taken, memory_order_release);
    channel_send(worker->channel, &message, -1);
}

/* The front counts a connection until it is told of its end, so no end may be forgotten while the channel is full, or the system has no
 * memory for a message. False: not now. */
static bool worker_tell_end(const struct worker *worker, uint64_t session) {
    const struct channel_message ended = {.type = CHANNEL_ENDED, .connection.session = session};
    int error = channel_send(worker->channel, &ended, -1);
    return error != -EAGAIN && error != -ENOBUFS && error != -ENOMEM;
}

/* Room for the ends of all connections. False: no memory. */
static bool worker_reserve_left(struct worker *worker) {
    size_t wanted = worker->n_left + worker->n_open;
    if (wanted <= worker->left_room)
        return true;
    size_t room = 2 * wanted;
    uint64_t *grown = realloc(worker->left, room * sizeof *grown);
    if (!grown)
        return false;
    worker->left = grown;
    worker->left_room = room;
    return true;
}

static void worker_on_left(void *owner, uint64_t session) {
    struct worker *worker = owner;
    worker->n_open--;
    if (!worker->n_left && worker_tell_end(worker, session))
        return;
    if (worker->n_left < worker->left_room)
        worker->left[worker->n_left++] = session;
    else /* a connection that was refused because there was no memory for this */
        log_event_from(LOG_LEVEL_ERROR, "ends", "out_of_memory", "what", "the end of a connection", NULL);
}

/* If this message is lost, the front may tell the connection to end; then worker_evict() sends it again. */
static void worker_on_greeted(void *owner, uint64_t session) {
    struct worker *worker = owner;
    const struct channel_message greeted = {.type = CHANNEL_GREETED, .connection.session = session};
    channel_send(worker->channel, &greeted, -1);
}

static void worker_tell_left(struct worker *worker) {
    size_t told = 0;
    while (told < worker->n_left) {
        if (!worker_tell_end(worker, worker->left[told]))
            break;
        told++;
    }
    if (told)
        memmove(worker->left, worker->left + told, (worker->n_left - told) * sizeof *worker->left);
    worker->n_left -= told;
}

/* ---- messages of the front ---- */

/* Takes over `fd`, also on failure. */
static int worker_accept(struct worker *worker, const struct connection_options *options, int fd,
                         struct connection **connection, struct fault *fault) {
    worker->n_open++;
    bool room = worker_reserve_left(worker); /* for its end, also if it is refused now */
    if (fd < 0)
        return fault_set(fault, STATUS_LIMIT, "no descriptor left");
    if (room)
        return connection_create(options, fd, connection, fault);
    close(fd);
    return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a connection");
}

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
    int error = worker_accept(worker, &options, fd, &connection, &fault);
    if (error) {
        log_event_from(LOG_LEVEL_ERROR, PEER_SOURCE(options.peer), "connection_failed", "peer", options.peer->address,
                       "cause", fault.message, NULL);
        worker_refuse(worker, options.session);
    }
    worker_take(worker);
    if (error) {
        service_count_departed(&worker->service, options.kept);
        return worker_on_left(worker, options.session);
    }
    if (options.peer->tls && !options.tls) { /* the Error goes out in the clear, which the client understands */
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

/* Another connection gets this one's place, if it still has not said Hello. */
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
    /* Ends it at once: the connection that gets the place does not wait until this client reads. */
    fault_set(&fault, STATUS_LIMIT, "%s", CHANNEL_EVICTED);
    worker->service.rejections[STATUS_LIMIT]++;
    if (!connection->peer.tls)
        farewell_send(connection->socket.transport.fd, &fault);
    connection_destroy(connection, fault.message);
}

/* For new connections; open ones keep the certificates that they began with. */
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

/* Without the list of users only the names of owners are shown differently, and admins find them differently. */
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

/* A session has its number before Hello, too. */
static void worker_kill(struct worker *worker, const struct channel_message *message) {
    struct channel_message pending = {.type = CHANNEL_KILLED, .kill.session = message->kill.session};
    struct fault fault;
    fault_set(&fault, STATUS_CANCELLED, "session %lu was ended by %s%s%s", message->kill.session, message->kill.by,
              *message->kill.reason ? ": " : "", message->kill.reason);
    for (struct connection *at = worker->service.connections; at; at = at->next)
        if (at->number == message->kill.session && at->state == CONNECTION_OPEN) {
            pending.kill.found = true;
            connection_give_up(at, &fault);
            break;
        }
    worker_tell(worker->channel, &pending);
}

/* The front's reply to a login; the client may be gone by now. */
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

/* Launches that are queued already continue. */
static void worker_kernels(struct worker *worker, const char *list) {
    for (struct connection *at = worker->service.connections; at; at = at->next)
        at->peer.principal.user_kernels = principal_is_listed(list, at->peer.principal.name);
}

/* If this fails, the worker refuses connections for which it has no descriptors. */
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
    case CHANNEL_LINK_ROOM:
        link_out_room(&worker->service, message->link.device);
        break;
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
        worker_principal_change_limits(&worker->service, message->principal.name, &message->principal.limits);
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

static void worker_on_channel(uv_poll_t *poll, int status, int events) {
    struct worker *worker = poll->data;
    struct channel_message message;
    int fd, error;
    (void)events;
    service_busy(&worker->service);
    while ((error = status < 0 ? -EPIPE : channel_receive(worker->channel, &message, &fd)) == 0) {
        worker_message(worker, &message, fd);
        budget_look(worker->service.budget);
        if (service_is_late(&worker->service))
            return; /* the next poll reports the rest */
    }
    /* Without a front nobody restarts, watches or drains this process; the kernel frees its sockets and memory. */
    if (error != -EAGAIN)
        _exit(1);
}

/* ---- requests to the front ---- */

static int worker_want_link(void *owner, const char *device, const char *principal,
                            const uint8_t ticket[LINK_TICKET_BYTES]) {
    struct worker *worker = owner;
    struct channel_message message = {.type = CHANNEL_LINK_WANTED};
    snprintf(message.link.device, sizeof message.link.device, "%s", device);
    snprintf(message.link.principal, sizeof message.link.principal, "%s", principal);
    memcpy(message.link.ticket, ticket, sizeof message.link.ticket);
    return channel_send(worker->channel, &message, -1);
}

static void worker_link_room(void *owner, const char *device) {
    struct worker *worker = owner;
    struct channel_message message = {.type = CHANNEL_LINK_ROOM};
    snprintf(message.link.device, sizeof message.link.device, "%s", device);
    channel_send(worker->channel, &message, -1);
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

static void worker_report(int channel, const struct fault *fault) {
    struct channel_message message = {.type = CHANNEL_FAULT, .fault = *fault};
    log_event(LOG_LEVEL_ERROR, "device_fault", "code", status_name((int)fault->code), "cause", fault->message, NULL);
    worker_tell(channel, &message);
}

enum {
    WORKER_OOM_SCORE = 300,     /* above the front's */
    WORKER_START_MS = 10000,    /* for the first message */
    WORKER_LAST_WORDS_MS = 500, /* for telling clients that the device is lost */
};

/* ---- the service's calls ---- */

/* NULL: the session has ended. */
static struct connection *worker_find_connection(const struct worker *worker, const struct session *session) {
    for (struct connection *at = worker->service.connections; at; at = at->next)
        if (session && at->session == session)
            return at;
    return NULL;
}

/* If the device completes no work any more, this ends the session whose work runs. Kernels on a GPU cannot be stopped,
 * so this may not help; then the device counts as failed: all sessions are told, and the front starts another worker.
 */
static void worker_watch_device(struct worker *worker) {
    uint64_t timeout_ns = (uint64_t)worker->service.limits.device_timeout_ms * 1000000;
    struct engine_stall stall;
    struct fault fault;
    char seconds[32];
    if (worker->service.failed || !engine_stalled(worker->service.engine, timeout_ns, &stall))
        return;
    if (!*stall.operation)
        snprintf(stall.operation, sizeof stall.operation, "the work");
    struct connection *connection = worker_find_connection(worker, stall.session);
    if (connection && connection->state == CONNECTION_OPEN) {
        fault_set(&fault, STATUS_TIMED_OUT,
                  "no progress for %.1f s in %s of session %lu, which was ended for it (device-timeout)",
                  (double)stall.ns / 1e9, stall.operation, (unsigned long)connection->number);
        snprintf(seconds, sizeof seconds, "%.1f", (double)stall.ns / 1e9);
        log_event(LOG_LEVEL_WARNING, "session_stalls_device", "cause", fault.message, "seconds", seconds, NULL);
        engine_stall_again(worker->service.engine);
        connection_give_up(connection, &fault);
        return;
    }
    fault_set(&fault, STATUS_DEVICE_LOST, "no progress for %.1f s in %s of a session that has ended",
              (double)stall.ns / 1e9, stall.operation);
    engine_fail(worker->service.engine, &fault);
}

static void worker_on_tick(void *owner) {
    struct worker *worker = owner;
    log_tick();
    worker_watch_device(worker);
    worker_tell_left(worker);
    state_tick(&worker->state);
    worker_stats_tick(&worker->stats, &worker->service);
    if (worker->deadline_ms && clock_now_ms() >= worker->deadline_ms) {
        worker->done = true;
        uv_stop(&worker->loop);
    }
}

/* Tells the front that this process waits for the device: then the front gives the process as much time as the
 * device. */
static void worker_on_held_up(void *owner, bool begins) {
    struct worker *worker = (struct worker *)((char *)owner - offsetof(struct worker, service));
    if (begins ? worker->device_calls++ : --worker->device_calls)
        return; /* within another call */
    if (!worker->stats.page)
        return;
    if (!begins)
        atomic_store_explicit(&worker->stats.page->device_called_ns, clock_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&worker->stats.page->device_call_ns, begins ? clock_now_ns() : 0, memory_order_release);
}

static void worker_on_failed(void *owner, const struct fault *fault) {
    struct worker *worker = owner;
    struct fault lost;
    worker_report(worker->channel, fault);
    worker->status = 1;
    worker->deadline_ms = clock_now_ms() + WORKER_LAST_WORDS_MS;
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

/* The disk may be slow; the loop turns meanwhile wherever it can. */
static void worker_restore_names(struct worker *worker) {
    worker_on_held_up(&worker->service, true);
    state_restore(&worker->state);
    worker_on_held_up(&worker->service, false);
}

static int worker_state_init(struct worker *worker, const struct channel_start *start, struct fault *fault) {
    worker->state = (struct state){
        .sync_ms = start->state_sync_ms,
        .timeout_ms = start->state_timeout_ms,
        .turn = worker_turn,
        .owner = worker,
        .dirty_page = worker->stats.page ? &worker->stats.page->names_dirty : NULL,
    };
    return state_init(&worker->state, &worker->service, start->state_dir, fault);
}

/* ---- life ---- */

/* When the system has no memory left, a worker is killed before the front, which starts another one. If this cannot be
 * set nothing changes. */
static void worker_yield_memory(void) {
    char text[16] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read(fd, text, sizeof text - 1) > 0) {
        int score = atoi(text) + WORKER_OOM_SCORE;
        int n = snprintf(text, sizeof text, "%d", score < 1000 ? score : 1000);
        ssize_t written = pwrite(fd, text, (size_t)n, 0);
        (void)written;
    }
    close(fd);
}

static int worker_receive_start(int channel, struct channel_message *message) {
    struct pollfd readable = {.fd = channel, .events = POLLIN};
    int fd = -1, error;
    if (poll(&readable, 1, WORKER_START_MS) <= 0)
        return -ETIMEDOUT;
    error = channel_receive(channel, message, &fd);
    if (fd >= 0)
        close(fd);
    return error ? error : message->type == CHANNEL_START ? 0 : -EPROTO;
}

static int worker_open(struct worker *worker, const struct channel_start *start, struct engine **engine,
                       struct fault *fault) {
    struct device_options device_options = {
        .index = start->index,
        .threads = start->threads,
        .memory_total = start->memory_total,
        .sharers = start->sharers,
        .readings = true,
        .preload = true,
        .measure = true,
    };
    struct engine_options engine_options = {
        .wake = service_wake,
        .blocks = worker_on_held_up,
        .owner = &worker->service,
        .staging_total = start->staging_total,
    };
    struct device *device;
    int error = device_open(start->kind, &device_options, &device, fault);
    if (error)
        return error;
    error = engine_create(device, &engine_options, engine, fault);
    if (error)
        device_close(device);
    return error;
}

static int worker_init(struct worker *worker, const struct channel_start *start, struct fault *fault) {
    struct service_options options = {
        .device = start->device,
        .kind = start->kind,
        .epoch = start->epoch,
        .limits = start->limits,
        .want_link = worker_want_link,
        .link_room = worker_link_room,
        .left = worker_on_left,
        .greeted = worker_on_greeted,
        .login = worker_login,
        .tick = worker_on_tick,
        .failed = worker_on_failed,
        .ended = worker_on_ended,
        .cache_dir = start->cache_dir,
        .compiler = "/proc/self/exe", /* the same program even if another one has been installed meanwhile */
        .owner = worker,
    };
    struct engine *engine = NULL;
    int status, error = uv_loop_init(&worker->loop);
    if (error)
        return fault_set(fault, STATUS_INTERNAL, "event loop: %s", uv_strerror(error));
    status = loop_reserve(&worker->loop, fault);
    if (status == STATUS_OK)
        status = service_init(&worker->service, &worker->loop, &options, fault);
    worker->service.places = worker->stats.page ? &worker->stats.page->places : NULL;
    if (status == STATUS_OK)
        status = worker_open(worker, start, &engine, fault);
    if (status == STATUS_OK)
        status = service_start(&worker->service, engine, fault);
    if (status == STATUS_OK)
        status = worker_state_init(worker, start, fault);
    if (status)
        return status;
    error = uv_poll_init(&worker->loop, &worker->poll, worker->channel);
    worker->poll.data = worker;
    if (!error)
        error = uv_poll_start(&worker->poll, UV_READABLE | UV_DISCONNECT, worker_on_channel);
    return error ? fault_set(fault, STATUS_INTERNAL, "cannot watch the channel: %s", uv_strerror(error)) : STATUS_OK;
}

/* After a drain everything is freed in order. After a failure the device is not asked for anything: its calls may never
 * return. */
static int worker_finish(struct worker *worker) {
    const struct channel_message drained = {.type = CHANNEL_DRAINED};
    if (worker->status)
        _exit(worker->status);
    bool saved = state_save(&worker->state);
    if (worker->status) /* the device was lost meanwhile */
        _exit(worker->status);
    if (!saved) /* the disk's thread may never come back */
        _exit(WORKER_EXIT_UNSAVED);
    crash_watch(NULL, NULL);
    service_finish(&worker->service);
    state_finish(&worker->state);
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

/* Ignores SIGINT and SIGTERM, which a terminal's Ctrl-C or a service manager sends to all processes: the front alone
 * decides about the end, and a worker that ended at once would leave its clients without replies. */
static void worker_signals(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* so that a write beyond the limit fails with an error */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

int worker_main(int channel, int stats_page) {
    static struct worker worker;
    const struct channel_message ready = {.type = CHANNEL_READY};
    struct channel_message message;
    struct fault fault = {0};
    worker_signals();
    int error = worker_receive_start(channel, &message);
    if (error)
        return 1; /* there is no front to tell */
    worker_yield_memory();
    log_init(message.start.log_level, message.start.device);
    log_set_format((enum log_format)message.start.log_format);
    crash_init();
    worker.channel = channel;
    error = worker_stats_init(&worker.stats, stats_page);
    if (error)
        fault_set(&fault, STATUS_INTERNAL, "cannot map the stats page: %s", strerror(-error));
    else
        worker_init(&worker, &message.start, &fault);
    if (fault.code) {
        worker_report(channel, &fault);
        return 1;
    }
    if (worker.stats.page) {
        engine_budget(worker.service.engine)->alive = &worker.stats.page->alive_ns;
        stats_operations_write(&worker.stats.page->operations, engine_device(worker.service.engine));
    }
    worker_restore_names(&worker);
    crash_watch(worker.service.engine, worker.stats.page);
    worker.service.active = true;
    worker_stats_tick(&worker.stats, &worker.service); /* so that the status knows the device from the first moment */
    channel_send(channel, &ready, -1);
    log_event(LOG_LEVEL_INFO, "ready", NULL);
    while (!worker.done)
        uv_run(&worker.loop, UV_RUN_DEFAULT);
    return worker_finish(&worker);
}
