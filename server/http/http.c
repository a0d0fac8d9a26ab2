#include "server/http/http_impl.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/net/url.h"
#include "server/front/listener.h"
#include "server/process/log.h"

/* ---- the library ---- */

#define HTTP_LIBRARY_FILE "libmicrohttpd.so.12"

static int http_library_load(struct http_library *library, struct fault *fault) {
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
#define X(name) {"MHD_" #name, offsetof(struct http_library, name)},
        HTTP_LIBRARY_TABLE(X)
#undef X
    };
    void *file = dlopen(HTTP_LIBRARY_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!file)
        return fault_set(fault, STATUS_UNSUPPORTED, "http: it needs libmicrohttpd: %s", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(file, symbols[i].name);
        if (!address)
            return fault_set(fault, STATUS_UNSUPPORTED, "http: %s has no %s: it is too old", HTTP_LIBRARY_FILE,
                             symbols[i].name);
        *(void **)((char *)library + symbols[i].offset) = address;
    }
    return STATUS_OK;
}

enum {
    HTTP_PEERS_MAX = 64,
    HTTP_RESPONDING_MAX = 48,   /* connections with a response on its way that is not for health */
    HTTP_PEER_BYTES = 16 << 10, /* of the library's memory for one connection; a longer request is refused */
    HTTP_SILENCE_S = 15,
    HTTP_FIRST_S = 5,    /* for the first request of a connection to come */
    HTTP_REQUEST_S = 30, /* for one request and its response, however slow they are, and for the silence before */
    HTTP_PAUSE_MS = 100,
    HTTP_ACCEPTS_AT_ONCE = 16,
    HTTP_ADDRESSES_MAX = 8,
};
#define HTTP_SECOND_NS UINT64_C(1000000000)

/* ---- the library's turns ---- */

static void http_accept(uv_poll_t *poll, int status, int events);
static void http_timed(uv_timer_t *timer);

static bool http_is_full(const struct http *http) {
    return http->n_peers - http->n_evicted >= HTTP_PEERS_MAX;
}

static unsigned http_count(const struct http *http, const struct source *source) {
    const struct http_peer *peer;
    unsigned count = 0;
    LIST_FOREACH(peer, &http->peers, link)
        count += !peer->evicted && source_same(&peer->source, source);
    return count;
}

static void http_evict(struct http *http, struct http_peer *peer) {
    if (peer->evicted)
        return;
    peer->evicted = true;
    http->n_evicted++;
    shutdown(peer->fd, SHUT_RDWR);
}

/* The connection that gives up its place: of the connections without a response on its way, the oldest one of the
 * address with the most such connections. NULL: all have a response on its way. */
static struct http_peer *http_find_victim(struct http *http) {
    struct http_peer *peer, *victim = NULL;
    unsigned most = 0;
    LIST_FOREACH(peer, &http->peers, link) { /* newest first */
        unsigned count = peer->evicted || peer->responding ? 0 : http_count(http, &peer->source);
        if (count && count >= most) {
            most = count;
            victim = peer;
        }
    }
    return victim;
}

static bool http_make_room(struct http *http) {
    struct http_peer *victim = http_is_full(http) ? http_find_victim(http) : NULL;
    if (victim)
        http_evict(http, victim);
    return !http_is_full(http);
}

/* Polls the listening socket, unless every connection has a response on its way: then new connections wait in the
 * socket. */
static void http_listen(struct http *http) {
    if (!http_is_full(http) || http_find_victim(http))
        uv_poll_start(&http->listen, UV_READABLE, http_accept);
    else
        uv_poll_stop(&http->listen);
}

/* Lets the library work, and asks it when it wants to be called without an event. */
static void http_turn(struct http *http) {
    MHD_UNSIGNED_LONG_LONG ms;
    http->library.run(http->daemon);
    if (http->library.get_timeout(http->daemon, &ms) == MHD_YES)
        uv_timer_start(&http->timer, http_timed, ms, 0);
    else
        uv_timer_stop(&http->timer);
}

static void http_timed(uv_timer_t *timer) {
    http_turn(timer->data);
}

static void http_polled(uv_poll_t *poll, int status, int events) {
    (void)status;
    (void)events;
    http_turn(poll->data);
}

static void http_accept(uv_poll_t *poll, int status, int events) {
    struct http *http = poll->data;
    int error = status < 0 ? EIO : 0;
    (void)events;
    for (int i = 0; !error && i < HTTP_ACCEPTS_AT_ONCE && http_make_room(http); i++) {
        struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
        socklen_t length = sizeof peer;
        int fd = accept4(http->fd, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) /* the library closes what it does not take */
            http->library.add_connection(http->daemon, fd, (struct sockaddr *)&peer, length);
        else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO && errno != EPERM)
            error = errno;
    }
    if (error && error != EAGAIN && error != EWOULDBLOCK)
        uv_poll_stop(&http->listen); /* until the next tick: the socket stays readable, and polling would burn a core */
    else
        http_listen(http);
    http_turn(http);
}

/* Closes connections that send or read too slowly: the library itself limits only silence. */
static void http_ticked(uv_timer_t *timer) {
    struct http *http = timer->data;
    uint64_t now = uv_hrtime();
    struct http_peer *peer;
    LIST_FOREACH(peer, &http->peers, link) {
        bool first = !peer->responded && !peer->responding;
        if (now - peer->since_ns > (first ? HTTP_FIRST_S : HTTP_REQUEST_S) * HTTP_SECOND_NS)
            http_evict(http, peer);
    }
    http_history_sample(&http->history, &http->front->supervisor);
    http_listen(http);
}

/* ---- what the library calls ---- */

static void http_peer_add(struct http *http, struct MHD_Connection *connection, void **context) {
    const union MHD_ConnectionInfo *info =
        http->library.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_peer *peer = calloc(1, sizeof *peer);
    *context = peer;
    if (!peer || !info) { /* then a request gets no response */
        free(peer);
        *context = NULL;
        return;
    }
    peer->http = http;
    peer->fd = info->connect_fd;
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof address;
    if (!getpeername(peer->fd, (struct sockaddr *)&address, &length))
        source_find(&peer->source, &address);
    peer->since_ns = uv_hrtime();
    LIST_INSERT_HEAD(&http->peers, peer, link);
    http->n_peers++;
}

static void http_on_connection(void *owner, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode code) {
    struct http *http = owner;
    struct http_peer *peer = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        http_peer_add(http, connection, context);
        return;
    }
    if (!peer)
        return;
    LIST_REMOVE(peer, link);
    http->n_peers--;
    http->n_evicted -= peer->evicted;
    free(peer);
    *context = NULL;
}

static struct http_peer *http_peer_of(struct http *http, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        http->library.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void http_on_completed(void *owner, struct MHD_Connection *connection, void **context,
                              enum MHD_RequestTerminationCode code) {
    struct http_peer *peer = http_peer_of(owner, connection);
    (void)context;
    (void)code;
    if (!peer)
        return;
    peer->since_ns = uv_hrtime();
    peer->responded = true;
    peer->responding = false;
}

bool http_is_busy(const struct http *http) {
    const struct http_peer *peer;
    unsigned responding = 0;
    LIST_FOREACH(peer, &http->peers, link)
        responding += peer->responding;
    return responding > HTTP_RESPONDING_MAX; /* the present request is counted, too */
}

/* Called with the headers; and for methods that are served, once more when the request is complete. */
static enum MHD_Result http_on_request(void *owner, struct MHD_Connection *connection, const char *path,
                                       const char *method, const char *version, const char *body, size_t *body_bytes,
                                       void **context) {
    static int seen;
    struct http *http = owner;
    (void)version;
    (void)body;
    bool first = !*context;
    *context = &seen;
    struct http_peer *peer = http_peer_of(http, connection);
    if (!peer)
        return MHD_NO;
    bool reads = !strcmp(method, "GET") || !strcmp(method, "HEAD");
    if (first && reads)
        return MHD_YES;
    *body_bytes = 0; /* nothing here takes a body */
    peer->responding = true;
    return http_route_respond(http, connection, path, method);
}

static void http_on_log(void *owner, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
static void http_on_log(void *owner, const char *format, va_list arguments) {
    char text[256];
    (void)owner;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\r\n")] = 0;
    log_event(LOG_LEVEL_DEBUG, "http_library", "message", text, NULL);
}

/* ---- listening ---- */

/* Checks an address beyond loopback as for clients: it needs tokens, and an explicit permission for plaintext. */
static int http_check_address(const struct config *config, const struct url_address *address, struct fault *fault) {
    const char *missing = !*config->users            ? "a file of users (users)"
                          : !config->allow_plaintext ? "allow-plaintext, for tokens travel in the clear"
                          : !*config->http_hosts     ? "its names, as browsers and Prometheus call it (http-hosts)"
                                                     : NULL;
    if (url_is_loopback(address) || !missing)
        return STATUS_OK;
    return fault_set(fault, STATUS_DENIED, "http: %s: other hosts can reach this address, which takes %s", config->http,
                     missing);
}

static int http_resolve(const struct config *config, struct url_address addresses[HTTP_ADDRESSES_MAX], size_t *count,
                        struct fault *fault) {
    char text[CONFIG_URL_MAX + 8];
    struct url url;
    snprintf(text, sizeof text, "tcp://%s", config->http);
    int error = url_parse(text, &url, fault);
    if (!error)
        error = url_resolve(&url, true, addresses, HTTP_ADDRESSES_MAX, count, fault);
    for (size_t i = 0; !error && i < *count; i++)
        error = http_check_address(config, &addresses[i], fault);
    return error;
}

int http_check(const struct config *config, struct fault *fault) {
    struct url_address addresses[HTTP_ADDRESSES_MAX];
    size_t count = 0;
    return *config->http ? http_resolve(config, addresses, &count, fault) : STATUS_OK;
}

/* Listens on the first of the name's addresses that works. */
static int http_bind(struct http *http, const struct config *config, struct fault *fault) {
    struct url_address addresses[HTTP_ADDRESSES_MAX];
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    char text[CONFIG_URL_MAX + 8];
    size_t count = 0;
    int error = http_resolve(config, addresses, &count, fault);
    if (error)
        return error;
    for (size_t i = 0; i < count && http->fd < 0; i++)
        error = listener_bind_tcp(&addresses[i], &http->fd);
    if (http->fd < 0)
        return fault_set(fault, STATUS_CONNECTION, "http: %s: cannot listen there: %s", config->http, strerror(error));
    getsockname(http->fd, (struct sockaddr *)&bound, &length);
    listener_name_tcp(&bound, text, sizeof text);
    snprintf(http->name, sizeof http->name, "http://%.48s/", text + strlen("tcp://"));
    return STATUS_OK;
}

/* ---- life ---- */

static void http_closed(uv_handle_t *handle) {
    struct http *http = handle->data;
    if (--http->handles)
        return;
    http_history_finish(&http->history);
    free(http);
}

static int http_start_library(struct http *http, struct fault *fault) {
    int error = http_library_load(&http->library, fault);
    if (error)
        return error;
    http->daemon = http->library.start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL, NULL, http_on_request, http,
        MHD_OPTION_EXTERNAL_LOGGER, http_on_log, http, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(HTTP_PEERS_MAX + 2 * HTTP_ACCEPTS_AT_ONCE), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HTTP_PEER_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_SILENCE_S, MHD_OPTION_NOTIFY_CONNECTION,
        http_on_connection, http, MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, http, MHD_OPTION_END);
    return http->daemon ? STATUS_OK : fault_set(fault, STATUS_INTERNAL, "http: libmicrohttpd does not start");
}

static int http_watch(struct http *http, struct fault *fault) {
    uv_loop_t *loop = &http->front->loop;
    const union MHD_DaemonInfo *info = http->library.get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info || uv_poll_init(loop, &http->listen, http->fd))
        return fault_set(fault, STATUS_INTERNAL, "http: the event loop does not take the socket");
    http->handles = 1;
    http->listen.data = http->poll.data = http->timer.data = http->tick.data = http;
    if (uv_poll_init(loop, &http->poll, info->epoll_fd))
        return fault_set(fault, STATUS_INTERNAL, "http: the event loop does not take the library's descriptor");
    uv_timer_init(loop, &http->timer);
    uv_timer_init(loop, &http->tick);
    http->handles = 4;
    uv_poll_start(&http->poll, UV_READABLE, http_polled);
    uv_timer_start(&http->tick, http_ticked, HTTP_HISTORY_STEP_MS, HTTP_HISTORY_STEP_MS);
    http_listen(http);
    http_turn(http);
    return STATUS_OK;
}

static void http_stop(void *state) {
    struct http *http = state;
    if (!http)
        return;
    /* The poll handles first: uv_close() removes their descriptors from the loop while they are still open. */
    unsigned handles = http->handles;
    if (handles)
        uv_close((uv_handle_t *)&http->listen, http_closed);
    if (handles == 4) {
        uv_close((uv_handle_t *)&http->poll, http_closed);
        uv_close((uv_handle_t *)&http->timer, http_closed);
        uv_close((uv_handle_t *)&http->tick, http_closed);
    }
    if (http->daemon) {
        http_route_finish(http);
        http->library.stop_daemon(http->daemon);
    }
    if (http->fd >= 0)
        close(http->fd);
    if (!handles) {
        http_history_finish(&http->history);
        free(http);
    }
}

static int http_start(struct front *front, void **state, struct fault *fault) {
    *state = NULL;
    if (!*front->config->http)
        return STATUS_OK;
    struct http *http = calloc(1, sizeof *http);
    if (!http)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for HTTP");
    http->front = front;
    http->fd = -1;
    LIST_INIT(&http->peers);
    int error = http_history_init(&http->history, front->supervisor.n_slots, fault);
    if (!error)
        error = http_bind(http, front->config, fault);
    if (!error)
        error = http_start_library(http, fault);
    if (!error)
        error = http_watch(http, fault);
    if (error) {
        http_stop(http);
        return error;
    }
    log_event(LOG_LEVEL_INFO, "http", "url", http->name, NULL);
    *state = http;
    return STATUS_OK;
}

const struct front_extension http_extension = {.start = http_start, .stop = http_stop};
