#include "server/front/front.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/process/log.h"
#include "server/process/loop.h"
#include "server/process/state_directory.h"

/* ---- the service manager: sd_notify(3) and sd_listen_fds(3), without the library ---- */

enum { NOTIFY_FD_FIRST = 3, NOTIFY_FDS_MAX = 64 };

/* Takes the variable out of the environment, so that no worker inherits it. */
static void notify_init(struct notify *notify) {
    const char *path = getenv("NOTIFY_SOCKET");
    notify->path[0] = 0;
    if (path && (path[0] == '/' || path[0] == '@') && strlen(path) < sizeof notify->path)
        snprintf(notify->path, sizeof notify->path, "%s", path);
    unsetenv("NOTIFY_SOCKET");
}

/* "READY=1", "STOPPING=1". Failures have no consequence. */
static void notify_send(const struct notify *notify, const char *state) {
    size_t length = strlen(notify->path);
    if (!length)
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, notify->path, length);
    if (address.sun_path[0] == '@')
        address.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    close(fd);
}

static long notify_number(const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return -1;
    long number = strtol(text, &end, 10);
    return *end ? -1 : number;
}

/* The number of listening sockets that the service manager has passed, from NOTIFY_FD_FIRST on; makes them close-on-exec. */
static unsigned notify_listen_fds(void) {
    long pid = notify_number("LISTEN_PID"), count = notify_number("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (pid != getpid() || count <= 0 || count > NOTIFY_FDS_MAX)
        return 0;
    for (int fd = NOTIFY_FD_FIRST; fd < NOTIFY_FD_FIRST + count; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    return (unsigned)count;
}

/* ---- what the workers know of users ---- */

/* The text that workers get: an empty line, and then a line with the key of each user (principal_key()). A user with
 * its own limits of names has one more line, " KEY NAMED-BYTES NAMED-TENSORS": an admin may give names to a user that
 * has never been connected to the worker. */
static char *front_users_text(const struct users *users, const struct limits *everybody, size_t *bytes) {
    char *text = NULL, key[PRINCIPAL_NAME_BYTES];
    struct limits limits;
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    fputc('\n', out);
    for (unsigned i = 0; users && i < users->n_users; i++) {
        struct principal principal = {.role = ROLE_NONE};
        snprintf(principal.name, sizeof principal.name, "%s", users->users[i].name);
        snprintf(principal.id, sizeof principal.id, "%s", users->users[i].id);
        principal_key(&principal, key);
        fprintf(out, "%s\n", key);
        users_limits(users, principal.name, everybody, &limits);
        if (limits.named_bytes != everybody->named_bytes || limits.named_tensors != everybody->named_tensors)
            fprintf(out, " %s %" PRIu64 " %" PRIu64 "\n", key, limits.named_bytes, limits.named_tensors);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

static void front_tell_users(struct front *front) {
    size_t bytes = 0;
    char *text = front_users_text(front->login.users, &front->config->limits, &bytes);
    int fd = text ? memfd_create("tensord-users", MFD_CLOEXEC) : -1;
    if (fd < 0 || write(fd, text, bytes) != (ssize_t)bytes) {
        log_event(LOG_LEVEL_ERROR, "users_untold", "cause", strerror(errno), NULL);
    } else {
        int before = front->users;
        front->users = fd;
        supervisor_set_users(&front->supervisor, fd);
        fd = before;
    }
    if (fd >= 0)
        close(fd);
    free(text);
}

/* ---- logins ---- */

/* From here on the connection counts for the principal that has logged in. */
static int front_count_login(struct front *front, uint64_t session, const struct principal *principal,
                             struct fault *fault) {
    int error = roster_identify(&front->roster, session, principal->name, &principal->limits, fault);
    if (error == STATUS_LIMIT)
        front->refusals[strstr(fault->message, "principal-sessions") ? REFUSAL_PRINCIPAL_SESSIONS
                                                                     : REFUSAL_PRINCIPAL_CONNECTIONS]++;
    return error;
}

static void front_reply_login(void *owner, uint64_t session, int status, const struct principal *principal,
                              const struct fault *fault) {
    struct worker_slot *slot = owner;
    struct front *front = slot->owner;
    struct channel_message message;
    struct fault over;
    if (!status && (status = front_count_login(front, session, principal, &over)))
        fault = &over;
    memset(&message, 0, sizeof message);
    message.type = status ? CHANNEL_DENIED : CHANNEL_GRANTED;
    message.login.session = session;
    if (status)
        message.login.fault = *fault;
    else
        message.login.principal = *principal;
    /* This may fail or reach the next worker: then the connection is gone, or ends when its time for Hello is over. */
    worker_slot_send(slot, &message, -1);
}

static void front_login(void *owner, struct worker_slot *slot, const struct channel_message *message) {
    struct front *front = owner;
    struct peer peer = message->login.peer;
    struct principal principal;
    struct fault fault = {0};
    char token[sizeof message->login.token];
    memcpy(token, message->login.token, sizeof token);
    token[sizeof token - 1] = 0;
    peer.address[sizeof peer.address - 1] = 0;
    principal_end_texts(&peer.principal);
    peer.certificate[sizeof peer.certificate - 1] = 0;
    if (peer.tls && *peer.certificate)
        login_certify(&front->login, &peer);
    struct login_request request = {
        .peer = &peer,
        .token = token,
        .done = front_reply_login,
        .owner = slot,
        .number = message->login.session,
    };
    int error = login_check(&front->login, &request, &principal, &fault);
    if (error != STATUS_AGAIN)
        front_reply_login(slot, request.number, error, &principal, &fault);
    OPENSSL_cleanse(token, sizeof token);
}

static void front_revoke(void *owner, const struct principal *was, const struct principal *is) {
    struct front *front = owner;
    bool same = is && !strcmp(is->name, was->name);
    if (same)
        log_event(LOG_LEVEL_INFO, "role_changed", "principal", was->name, "credential", was->credential, "from",
                  role_name(was->role), "to", role_name(is->role), NULL);
    else
        log_event(LOG_LEVEL_INFO, "revoked", "principal", was->name, "credential", was->credential,
                  is ? "means_now" : NULL, is ? is->name : NULL, NULL);
    supervisor_revoke(&front->supervisor, was);
    control_revoke(front, was);
}

/* ---- reload ---- */

/* Sets the numbers of places of which a principal may have a quarter by default. */
static void front_set_places(struct front *front) {
    front->roster.places = front->config->max_connections;
    front->roster.session_places = front->config->max_sessions * front->config->n_devices;
}

/* All that a reload reads: reload_read() fills it, and reload_apply() puts it into force. */
struct reload {
    struct config config;
    struct users *users; /* NULL: the configuration names no file of users */
    struct front_tls_fresh tls;
};

/* Changes nothing except the limit of descriptors. The fault says what is wrong. */
static int reload_read(struct front *front, struct reload *reload, struct fault *fault) {
    enum config_action action;
    config_init(&reload->config);
    reload->config.ignore_devices = true;
    reload->users = NULL;
    int error = config_read_flags(&reload->config, front->n_arguments, front->arguments, &action, fault);
    /* The path of the file of users changes only by a restart, so this reads the path of the present configuration. */
    if (!error && *front->config->users)
        error = users_read(front->config->users, &reload->users, fault);
    if (!error && reload->users && front->login.users)
        error = users_check_loss(front->config->users, front->login.users, reload->users, fault);
    /* The paths of certificates change only by a restart, too. */
    if (!error)
        error = front_tls_read(front->config, &reload->tls, fault);
    if (!error) {
        error = loop_raise_descriptors(&front->loop, reload->config.max_connections, fault);
        if (error)
            front_tls_drop(&reload->tls);
    }
    if (error) {
        users_destroy(reload->users);
        reload->users = NULL;
    }
    return error;
}

static void reload_tell(void *owner, const char *key, bool taken) {
    (void)owner;
    if (taken)
        log_event(LOG_LEVEL_INFO, "config_changed", "key", key, NULL);
    else
        log_event(LOG_LEVEL_WARNING, "config_ignored", "key", key, "cause", "it takes a restart to change", NULL);
}

/* Tells the workers of each principal whose limits have changed. */
static void reload_tell_limits(struct front *front, const struct users *before, const struct limits *everybody) {
    const struct users *users = front->login.users;
    const struct limits *now = &front->config->limits;
    struct limits was, is;
    if (memcmp(everybody, now, sizeof *now) != 0)
        supervisor_set_limits(&front->supervisor, "", now);
    for (unsigned i = 0; users && i < users->n_users; i++) {
        const char *name = users->users[i].name;
        users_limits(before, name, everybody, &was);
        users_limits(users, name, now, &is);
        if (!memcmp(&was, &is, sizeof is))
            continue;
        supervisor_set_limits(&front->supervisor, name, &is);
        log_event(LOG_LEVEL_INFO, "limits_changed", "principal", name, NULL);
    }
}

/* Cannot fail. The configuration comes first, because the rights of users follow from it. Connections of revoked users
 * end before any limits change. */
static void reload_apply(struct front *front, struct reload *reload) {
    struct config *config = front->config;
    struct limits everybody = config->limits;
    struct users *before = NULL;
    bool more = reload->config.max_connections > config->max_connections;
    bool other_kernels = strcmp(reload->config.user_kernels, config->user_kernels) != 0;
    config_take(config, &reload->config, reload_tell, NULL);
    front_set_places(front);
    if (more)
        supervisor_set_places(&front->supervisor, config->max_connections);
    if (other_kernels)
        supervisor_set_kernels(&front->supervisor, config->user_kernels);
    if (reload->users) {
        before = login_replace_users(&front->login, reload->users);
        users_compare(before, reload->users, front->login.expired, front_revoke, front);
        front_tell_users(front);
    }
    reload_tell_limits(front, before, &everybody);
    users_destroy(before);
    front_tls_take(front, &reload->tls);
}

static void front_reload(struct front *front) {
    static struct reload reload; /* static because it is large; there is one thread */
    struct fault fault;
    char users[24];
    if (reload_read(front, &reload, &fault)) {
        log_event(LOG_LEVEL_ERROR, "reload_failed", "cause", fault.message, "kept", "the old settings", NULL);
    } else {
        reload_apply(front, &reload);
        log_event(LOG_LEVEL_INFO, "reloaded", "users",
                  log_text(users, sizeof users, "%u", front->login.users ? front->login.users->n_users : 0), NULL);
    }
}

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
    turns_finish(&front->turns);
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

/* Replies to the clients that asked for the drain, and gives the replies a moment to leave. */
static void front_try_leave(uv_timer_t *timer) {
    struct front *front = timer->data;
    if (!front->leave_tries++)
        control_drained(front);
    if (control_busy(front) && front->leave_tries < FRONT_LEAVE_TRIES)
        return;
    uv_timer_stop(timer);
    front_leave(front);
}

/* Uses a timer, because this may be called while a Drain request is being handled. */
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
}

static void front_link_wanted(void *owner, struct worker_slot *slot, const struct channel_message *message) {
    struct front *front = owner;
    supervisor_reply_link(&front->supervisor, slot, message);
}

static void front_link_room(void *owner, struct worker_slot *slot, const struct channel_message *message) {
    struct front *front = owner;
    supervisor_link_room(&front->supervisor, slot, message);
}

static void front_session_killed(void *owner, const struct worker_slot *slot, const struct channel_message *message) {
    struct front *front = owner;
    kill_replied(&front->supervisor, slot, message);
}

static void front_ticked(void *owner) {
    log_tick();
    control_tick(owner);
    login_tick(&((struct front *)owner)->login, front_revoke, owner);
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
    .killed = front_session_killed,
    .ended = front_connection_ended,
    .greeted = front_connection_greeted,
    .login = front_login,
    .link_wanted = front_link_wanted,
    .link_room = front_link_room,
};

static void front_signalled(uv_signal_t *handle, int number) {
    struct front *front = handle->data;
    if (number == SIGHUP) {
        front_reload(front);
        return;
    }
    if (front->draining) {
        /* The second signal: the operator does not want to wait. */
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
    TAILQ_INIT(&front->arrivals.head);
    LIST_INIT(&front->controls.head);
    turns_init(&front->turns, &front->loop);
    handshakes_init(&front->handshakes, &front->loop);
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
        log_start_failed(fault.message);
        return FRONT_EXIT_USAGE;
    }
    error = uv_loop_init(&front.loop);
    if (error) {
        fault_set(&fault, STATUS_INTERNAL, "no event loop: %s", uv_strerror(error));
        log_start_failed(fault.message);
        return FRONT_EXIT_FAILURE;
    }
    error = loop_reserve(&front.loop, &fault);
    if (error) {
        log_start_failed(fault.message);
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
        return unsaved ? FRONT_EXIT_FAILURE : 0; /* the log says which names are not saved */
    log_start_failed(fault.message);
    return error == STATUS_INVALID_ARGUMENT || error == STATUS_DENIED ? FRONT_EXIT_USAGE : FRONT_EXIT_FAILURE;
}
