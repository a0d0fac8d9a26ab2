#include "server/worker/worker_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "server/ipc/channel.h"
#include "server/process/log.h"
#include "server/process/loop.h"
#include "server/worker/connection.h"
#include "server/worker/crash.h"

enum {
    WORKER_OOM_SCORE = 300,     /* above the front's */
    WORKER_START_MS = 10000,    /* for the first message */
    WORKER_LAST_WORDS_MS = 500, /* for telling clients that the device is lost */
};

/* ---- the service's calls ---- */

/* NULL where it has ended. */
static struct connection *worker_connection(const struct worker *worker, const struct session *session) {
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
    struct connection *connection;
    char seconds[32];

    if (worker->service.failed || !engine_stalled(worker->service.engine, timeout_ns, &stall))
        return;
    if (!*stall.operation)
        snprintf(stall.operation, sizeof stall.operation, "the work");
    connection = worker_connection(worker, stall.session);
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

/* Tells the front that the device holds this process up: then the front gives the process as much time as the device.
 */
static void worker_on_held_up(void *owner, bool begins) {
    struct worker *worker = (struct worker *)((char *)owner - offsetof(struct worker, service));

    if (begins ? worker->held_ups++ : --worker->held_ups)
        return; /* within a longer one */
    if (!worker->stats.page)
        return;
    if (!begins)
        atomic_store_explicit(&worker->stats.page->let_go_ns, clock_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&worker->stats.page->held_up_ns, begins ? clock_now_ns() : 0, memory_order_release);
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

/* The disk may take its time; the loop turns meanwhile wherever it can. */
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

/* Where the system's memory runs out a worker goes before the front, which starts another one. Where this cannot be
 * said it is as it was. */
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
        .held_up = worker_on_held_up,
        .owner = &worker->service,
        .staging_total = start->staging_total,
    };
    struct device *device;
    int status = device_open(start->kind, &device_options, &device, fault);

    if (status)
        return status;
    status = engine_create(device, &engine_options, engine, fault);
    if (status)
        device_close(device);
    return status;
}

static int worker_init(struct worker *worker, const struct channel_start *start, struct fault *fault) {
    struct service_options options = {
        .device = start->device,
        .kind = start->kind,
        .epoch = start->epoch,
        .limits = start->limits,
        .want_link = worker_want_link,
        .left = worker_on_left,
        .greeted = worker_on_greeted,
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

/* After a drain everything is given back in order. After a failure of the device nothing more is asked of it: its calls
 * may never return. */
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
    struct channel_message message;
    struct fault fault = {0};
    int error;

    worker_signals();
    error = worker_receive_start(channel, &message);
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
    worker_stats_tick(&worker.stats, &worker.service); /* so that status knows the device from its first moment */
    channel_send(channel, &ready, -1);
    log_event(LOG_LEVEL_INFO, "ready", NULL);
    while (!worker.done)
        uv_run(&worker.loop, UV_RUN_DEFAULT);
    return worker_finish(&worker);
}
