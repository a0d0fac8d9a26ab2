#include "server/front/front.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/process/log.h"
#include "server/process/loop.h"
#include "server/process/state_directory.h"

enum { FRONT_LEAVE_MS = 20, FRONT_LEAVE_TRIES = 50, FRONT_EXIT_FAILURE = 1, FRONT_EXIT_USAGE = 2 };

/* ---- the end ---- */

static void front_finish_handles(struct front *front) {
    login_finish(&front->login);
    listener_list_finish(&front->listeners);
    struct fault fault;
    fault_set(&fault, STATUS_DRAINING, "the daemon is shutting down");
    arrival_refuse_all(front, &fault);
    arrival_list_finish(front);
    control_list_finish(&front->controls);
    handshakes_finish(&front->handshakes);
    farewell_list_finish(&front->farewells);
    if (front->extension)
        front->extension->stop(front->extension_state);
    supervisor_finish(&front->supervisor);
    front_tls_finish(front);
    uv_close((uv_handle_t *)&front->leaving, NULL);
    for (int i = 0; i < FRONT_SIGNALS; i++)
        uv_close((uv_handle_t *)&front->signals[i], NULL);
}

static void front_leave(struct front *front) {
    log_event(LOG_LEVEL_INFO, "stopped", NULL);
    uv_stop(&front->loop);
}

/* Those who asked for the drain are answered, and their replies get a moment to leave. */
static void front_try_leave(uv_timer_t *timer) {
    struct front *front = timer->data;
    if (!front->leave_tries++)
        control_drained(front);
    if (control_busy(front) && front->leave_tries < FRONT_LEAVE_TRIES)
        return;
    uv_timer_stop(timer);
    front_leave(front);
}

/* From a timer of its own: this may be said in the middle of a Drain request's handling. */
static void front_all_stopped(struct front *front) {
    front->stopped = true;
    uv_timer_start(&front->leaving, front_try_leave, 0, FRONT_LEAVE_MS);
}

void front_drain(struct front *front, const char *why) {
    struct fault fault;
    if (front->draining)
        return;
    front->draining = true;
    log_event(LOG_LEVEL_INFO, "draining", "cause", why, NULL);
    notify_send(&front->notify, "STOPPING=1");
    listener_list_finish(&front->listeners);
    fault_set(&fault, STATUS_DRAINING, "the daemon is shutting down");
    arrival_refuse_all(front, &fault);
    supervisor_drain(&front->supervisor);
}

/* ---- events ---- */

static void front_workers_changed(void *owner) {
    struct front *front = owner;
    char text[64];
    arrival_retry(front);
    if (!front->ready && !front->draining && supervisor_settled(&front->supervisor)) {
        front->ready = true;
        log_event(LOG_LEVEL_INFO, "ready", "after_ms",
                  log_text(text, sizeof text, "%.1f", (double)(uv_hrtime() - front->started_ns) / 1e6), NULL);
        notify_send(&front->notify, "READY=1");
    }
    if (front->draining && !front->stopped && supervisor_stopped(&front->supervisor))
        front_all_stopped(front);
}

static void front_worker_lost(void *owner, const struct worker_slot *slot) {
    struct front *front = owner;
    supervisor_lost(&front->supervisor, slot);
    kill_lost(front, slot);
}

static void front_link_wanted(void *owner, struct worker_slot *slot, const struct channel_message *message) {
    struct front *front = owner;
    supervisor_answer_link(&front->supervisor, slot, message);
}

static void front_ticked(void *owner) {
    log_tick();
    control_tick(owner);
    login_tick(&((struct front *)owner)->login, front_revoke, owner);
    kill_tick(owner);
}

static void front_connection_greeted(void *owner, const struct worker_slot *slot, uint64_t session) {
    struct front *front = owner;
    roster_greet(&front->roster, slot, session);
}

static void front_connection_ended(void *owner, const struct worker_slot *slot, uint64_t session) {
    struct front *front = owner;
    roster_gone(&front->roster, slot, session);
}

static const struct worker_slot_events front_worker_events = {
    .changed = front_workers_changed,
    .lost = front_worker_lost,
    .refused = arrival_refused,
    .killed = kill_answered,
    .ended = front_connection_ended,
    .greeted = front_connection_greeted,
    .login = front_login,
    .link_wanted = front_link_wanted,
};

static void front_signalled(uv_signal_t *handle, int number) {
    struct front *front = handle->data;
    if (number == SIGHUP) {
        front_reload(front);
        return;
    }
    if (front->draining) {
        /* Asked twice: whoever asks does not want to wait. */
        log_event(LOG_LEVEL_WARNING, "killed", "cause", strsignal(number), NULL);
        supervisor_kill(&front->supervisor);
    }
    front_drain(front, strsignal(number));
}

/* ---- start ---- */

static int front_listen(struct front *front, struct fault *fault) {
    const struct config *config = front->config;
    unsigned inherited = notify_listen_fds();
    front->listeners.authenticated = front->login.users;
    front->listeners.plaintext = config->allow_plaintext;
    for (unsigned i = 0; i < inherited; i++) {
        int error = listener_inherit(&front->listeners, NOTIFY_FD_FIRST + (int)i, fault);
        if (error)
            return error;
    }
    for (unsigned i = 0; i < config->n_listen; i++) {
        int error = listener_open(&front->listeners, config->listen[i], fault);
        if (error)
            return error;
    }
    return inherited || config->n_listen ? STATUS_OK : listener_open_default(&front->listeners, fault);
}

void front_set_places(struct front *front) {
    front->roster.places = front->config->max_connections;
    front->roster.session_places = front->config->max_sessions * front->config->n_devices;
}

static void front_watch_signals(struct front *front) {
    static const int numbers[FRONT_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < FRONT_SIGNALS; i++) {
        uv_signal_init(&front->loop, &front->signals[i]);
        front->signals[i].data = front;
        uv_signal_start(&front->signals[i], front_signalled, numbers[i]);
    }
}

static int front_init(struct front *front, struct config *config, struct fault *fault) {
    front->config = config;
    front->users = -1;
    front->started_ns = uv_hrtime();
    notify_init(&front->notify);
    LIST_INIT(&front->arrivals.head);
    LIST_INIT(&front->controls.head);
    handshakes_init(&front->handshakes, &front->loop);
    LIST_INIT(&front->kills.head);
    roster_init(&front->roster);
    front_set_places(front);
    farewell_list_init(&front->farewells, &front->loop);
    listener_list_init(&front->listeners, &front->loop, (mode_t)config->socket_mode, arrival_start, front);
    uv_timer_init(&front->loop, &front->leaving);
    front->leaving.data = front;
    front_watch_signals(front);
    front_tls_init(front);
    int error = supervisor_init(&front->supervisor, &front->loop, config, &front_worker_events, front, fault);
    front->supervisor.ticked = front_ticked;
    if (!error)
        error = front_tls_start(front, fault);
    if (!error)
        error = login_init(&front->login, &front->loop, config, fault);
    if (!error && front->login.users)
        front_tell_users(front);
    return error;
}

static void front_finish(struct front *front) {
    front_finish_handles(front);
    uv_run(&front->loop, UV_RUN_DEFAULT);
    uv_loop_close(&front->loop);
    roster_finish(&front->roster);
    if (front->users >= 0)
        close(front->users);
    supervisor_free(&front->supervisor);
}

int front_run(struct config *config, const struct front_extension *extension, int count, char **arguments) {
    static struct front front;
    struct fault fault;
    int error = *config->state_dir ? state_directory_take(config->state_dir, &fault) : STATUS_OK;
    if (error) {
        fprintf(stderr, "tensord: %s\n", fault.message);
        return FRONT_EXIT_USAGE;
    }
    error = uv_loop_init(&front.loop);
    if (error) {
        fprintf(stderr, "tensord: no event loop: %s\n", uv_strerror(error));
        return FRONT_EXIT_FAILURE;
    }
    error = loop_reserve(&front.loop, &fault);
    if (error) {
        fprintf(stderr, "tensord: %s\n", fault.message);
        return FRONT_EXIT_FAILURE;
    }
    front.n_arguments = count;
    front.arguments = arguments;
    error = front_init(&front, config, &fault);
    if (!error)
        error = front_listen(&front, &fault);
    if (!error) {
        front.extension = extension;
        error = extension->start(&front, &front.extension_state, &fault);
    }
    if (!error) {
        if (config->devices_why[0])
            log_event(LOG_LEVEL_INFO, "devices_auto", "devices", "cpu:0", "cause", config->devices_why, NULL);
        supervisor_start(&front.supervisor);
        uv_run(&front.loop, UV_RUN_DEFAULT);
    }
    bool unsaved = !error && supervisor_unsaved(&front.supervisor);
    front_finish(&front);
    if (!error)
        return unsaved ? FRONT_EXIT_FAILURE : 0; /* the log has told which */
    fprintf(stderr, "tensord: %s\n", fault.message);
    return error == STATUS_INVALID_ARGUMENT || error == STATUS_DENIED ? FRONT_EXIT_USAGE : FRONT_EXIT_FAILURE;
}
