#include "server/front/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/process/farewell.h"
#include "server/process/log.h"

/* ---- Unix sockets ---- */

static int listener_unix_refuse(struct fault *fault, const char *path, const char *what, int error) {
    return fault_set(fault, STATUS_CONNECTION, "unix:%s: %s: %s", path, what, strerror(error));
}

enum { LISTENER_LOCK_TRIES = 100, LISTENER_LOCK_PAUSE_MS = 10 };

/* Locks the directory: two daemons that start at once must not both take the same socket for a dead daemon's. But
 * everybody who may read the directory can lock it, and must not keep the daemon from starting, so after a second it
 * continues without the lock. flock() has no time limit. */
static int listener_unix_lock_directory(int fd) {
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB); tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return errno;
        if (tries == LISTENER_LOCK_TRIES) {
            log_event(LOG_LEVEL_WARNING, "lock_ignored", "cause", "another process keeps the directory locked", NULL);
            return 0;
        }
        poll(NULL, 0, LISTENER_LOCK_PAUSE_MS);
    }
    return 0;
}

static int listener_unix_lock(const char *path, int *lock, struct fault *fault) {
    char directory[128];
    const char *slash = strrchr(path, '/');
    int length = slash && slash != path ? (int)(slash - path) : 1;
    snprintf(directory, sizeof directory, "%.*s", length, path);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return listener_unix_refuse(fault, path, directory, errno);
    int error = listener_unix_lock_directory(fd);
    if (error) {
        close(fd);
        return listener_unix_refuse(fault, path, "cannot lock its directory", error);
    }
    *lock = fd;
    return STATUS_OK;
}

/* A socket that refuses connections belongs to a dead daemon. */
static bool listener_unix_is_dead(const struct sockaddr_un *address) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    int failed = connect(fd, (const struct sockaddr *)address, sizeof *address);
    bool dead = failed && errno == ECONNREFUSED;
    close(fd);
    return dead;
}

static int listener_unix_clear(const struct sockaddr_un *address, struct fault *fault) {
    struct stat file;
    const char *path = address->sun_path;
    if (lstat(path, &file))
        return errno == ENOENT ? STATUS_OK : listener_unix_refuse(fault, path, "cannot look at it", errno);
    if (!S_ISSOCK(file.st_mode))
        return fault_set(fault, STATUS_CONNECTION, "unix:%s: the file there is no socket", path);
    if (!listener_unix_is_dead(address))
        return fault_set(fault, STATUS_CONNECTION, "unix:%s: already running: another process listens there", path);
    if (unlink(path) && errno != ENOENT)
        return listener_unix_refuse(fault, path, "cannot remove the socket of a dead daemon", errno);
    return STATUS_OK;
}

static int listener_unix_make(const struct sockaddr_un *address, mode_t mode, int *result, struct stat *file,
                              struct fault *fault) {
    const char *path = address->sun_path;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return listener_unix_refuse(fault, path, "socket", errno);
    /* The file must not be open to more than `mode` allows, not even for a moment. */
    mode_t before = umask(0777);
    int failed = bind(fd, (const struct sockaddr *)address, sizeof *address);
    int error = errno;
    umask(before);
    if (!failed && (chmod(path, mode) || listen(fd, SOMAXCONN) || lstat(path, file))) {
        failed = -1;
        error = errno;
        unlink(path);
    }
    if (failed) {
        close(fd);
        return listener_unix_refuse(fault, path, "cannot listen there", error);
    }
    *result = fd;
    return STATUS_OK;
}

static int listener_unix_bind(const char *path, mode_t mode, int *fd, struct stat *file, struct fault *fault) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int lock = -1;
    if (strlen(path) >= sizeof address.sun_path)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "unix:%s: the path is too long", path);
    memcpy(address.sun_path, path, strlen(path));
    int error = listener_unix_lock(path, &lock, fault);
    if (error)
        return error;
    error = listener_unix_clear(&address, fault);
    if (!error)
        error = listener_unix_make(&address, mode, fd, file, fault);
    close(lock);
    return error;
}

/* ---- accepting ---- */

enum { LISTENER_ACCEPTS_AT_ONCE = 64, LISTENER_PAUSE_MS = 100, LISTENER_ADDRESSES_MAX = 16 };
#define LISTENER_COMPLAINT_NS UINT64_C(1000000000)

static void listener_resume(uv_timer_t *timer);
static void listener_polled(uv_poll_t *poll, int status, int events);

/* Tells one waiting client that it is refused, with the reserve as its descriptor. */
static void listener_refuse_one(struct listener *listener, int error) {
    struct fault fault;
    if (listener->reserve >= 0)
        close(listener->reserve);
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        fault_set(&fault, STATUS_LIMIT, "the daemon takes no connection now: %s", strerror(error));
        farewell_send(fd, &fault);
        close(fd);
    }
    listener->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Stops polling for a while: no descriptor or memory is left, or something is wrong with the socket, for example if the
 * process that passed it has shut it down. The socket stays readable while nothing can be accepted, so polling it would
 * use all of a core. */
static void listener_pause(struct listener *listener, int error) {
    uint64_t now = uv_hrtime();
    listener_refuse_one(listener, error);
    uv_poll_stop(&listener->poll);
    uv_timer_start(&listener->pause, listener_resume, LISTENER_PAUSE_MS, 0);
    if (listener->complained_ns && now - listener->complained_ns < LISTENER_COMPLAINT_NS)
        return;
    listener->complained_ns = now;
    log_event(LOG_LEVEL_WARNING, "accept_paused", "url", listener->url, "cause", strerror(error), NULL);
}

static void listener_resume(uv_timer_t *timer) {
    struct listener *listener = timer->data;
    uv_poll_start(&listener->poll, UV_READABLE, listener_polled);
}

/* A Unix socket that has been shut down returns EAGAIN from accept(), and stays readable. */
static bool listener_is_shut_down(const struct listener *listener) {
    struct pollfd state = {.fd = listener->fd};
    return poll(&state, 1, 0) > 0;
}

static void listener_polled(uv_poll_t *poll, int status, int events) {
    struct listener *listener = poll->data;
    (void)events;
    if (status < 0) { /* the poll handle has stopped itself */
        listener_pause(listener, EIO);
        return;
    }
    for (int i = 0; i < LISTENER_ACCEPTS_AT_ONCE; i++) {
        struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
        socklen_t length = sizeof peer;
        int fd = accept4(listener->fd, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            listener->list->accepted(listener->list->owner, fd, &peer, listener->tls);
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR || errno == EPROTO || errno == EPERM)
            continue; /* only this client is affected */
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            listener_pause(listener, errno);
        else if (i == 0 && listener_is_shut_down(listener))
            listener_pause(listener, EPIPE);
        return;
    }
}

/* ---- opening ---- */

static void listener_closed(uv_handle_t *handle) {
    struct listener *listener = handle->data;
    if (!--listener->handles)
        free(listener);
}

static int listener_add(struct listener_list *list, int fd, const char *url, const char *path, const struct stat *file,
                        bool tls, struct fault *fault) {
    struct listener *listener = calloc(1, sizeof *listener);
    if (!listener)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to listen on %s", url);
    int error = uv_poll_init(list->loop, &listener->poll, fd);
    if (error) {
        free(listener);
        return fault_set(fault, STATUS_INTERNAL, "%s: %s", url, uv_strerror(error));
    }
    uv_timer_init(list->loop, &listener->pause);
    listener->poll.data = listener->pause.data = listener;
    listener->handles = 2;
    listener->fd = fd;
    listener->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    listener->list = list;
    listener->tls = tls;
    snprintf(listener->url, sizeof listener->url, "%s", url);
    if (path) {
        snprintf(listener->path, sizeof listener->path, "%s", path);
        listener->device = file->st_dev;
        listener->inode = file->st_ino;
    }
    LIST_INSERT_HEAD(&list->head, listener, link);
    list->count++;
    uv_poll_start(&listener->poll, UV_READABLE, listener_polled);
    log_event(LOG_LEVEL_INFO, "listening", "url", listener->url, NULL);
    return STATUS_OK;
}

static int listener_open_unix(struct listener_list *list, const char *path, struct fault *fault) {
    char url[128];
    struct stat file;
    int fd = -1, error = listener_unix_bind(path, list->socket_mode, &fd, &file, fault);
    if (error)
        return error;
    snprintf(url, sizeof url, "unix:%s", path);
    error = listener_add(list, fd, url, path, &file, false, fault);
    if (error) {
        close(fd);
        unlink(path);
    }
    return error;
}

static void listener_name(const struct sockaddr_storage *address, const char *scheme, char *text, size_t size) {
    char host[INET6_ADDRSTRLEN];
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(text, size, "%s://[%s]:%u", scheme, host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(text, size, "%s://%s:%u", scheme, host, ntohs(in->sin_port));
    }
}

void listener_name_tcp(const struct sockaddr_storage *address, char *text, size_t size) {
    listener_name(address, "tcp", text, size);
}

int listener_bind_tcp(const struct url_address *address, int *result) {
    int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->address.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&address->address, address->length) || listen(fd, SOMAXCONN)) {
        int error = errno;
        close(fd);
        return error;
    }
    *result = fd;
    return 0;
}

static int listener_open_address(struct listener_list *list, const struct url_address *address, bool tls,
                                 struct fault *fault) {
    char url[96];
    struct sockaddr_storage bound = address->address;
    socklen_t length = sizeof bound;
    int fd = -1, error = listener_bind_tcp(address, &fd);
    if (error) {
        listener_name(&address->address, tls ? "tls" : "tcp", url, sizeof url);
        return fault_set(fault, STATUS_CONNECTION, "%s: cannot listen there: %s", url, strerror(error));
    }
    getsockname(fd, (struct sockaddr *)&bound, &length);
    listener_name(&bound, tls ? "tls" : "tcp", url, sizeof url);
    error = listener_add(list, fd, url, NULL, NULL, tls, fault);
    if (error)
        close(fd);
    return error;
}

/* Whether an address that other hosts can reach may be listened on. */
static int listener_check_reach(const struct listener_list *list, const char *url, bool tls, struct fault *fault) {
    if (!list->authenticated && !(tls && list->clients_show_certificates))
        return fault_set(fault, STATUS_DENIED,
                         "%.100s: other hosts can reach this address, and there is no authentication: name a file of "
                         "users, use tls:// with tls-client-ca, or listen on 127.0.0.1, [::1] or a Unix socket",
                         url);
    if (!list->plaintext && !tls)
        return fault_set(fault, STATUS_DENIED,
                         "%.100s: other hosts can reach this address, and tokens would travel in the clear: use "
                         "tls://, or say allow-plaintext = yes",
                         url);
    return STATUS_OK;
}

static int listener_resolve(const struct listener_list *list, const struct url *url, const char *text,
                            struct url_address addresses[LISTENER_ADDRESSES_MAX], size_t *count, struct fault *fault) {
    int error = url_resolve(url, true, addresses, LISTENER_ADDRESSES_MAX, count, fault);
    for (size_t i = 0; !error && i < *count; i++)
        if (!url_is_loopback(&addresses[i]))
            error = listener_check_reach(list, text, url->kind == URL_TLS, fault);
    return error;
}

static int listener_parse(const struct listener_list *list, const char *text, struct url *url, struct fault *fault) {
    int error = url_parse(text, url, fault);
    if (error)
        return error;
    if (url->kind == URL_TLS && !list->have_certificate)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: no certificate to show there: set tls-certificate", text);
    return STATUS_OK;
}

int listener_check(const struct listener_list *list, const char *text, struct fault *fault) {
    struct url_address addresses[LISTENER_ADDRESSES_MAX];
    struct url url = {.kind = URL_UNIX};
    size_t count = 0;
    int error = listener_parse(list, text, &url, fault);
    return error || url.kind == URL_UNIX ? error : listener_resolve(list, &url, text, addresses, &count, fault);
}

static int listener_open_tcp(struct listener_list *list, const struct url *url, const char *text, struct fault *fault) {
    struct url_address addresses[LISTENER_ADDRESSES_MAX];
    size_t count = 0;
    int error = listener_resolve(list, url, text, addresses, &count, fault);
    if (error)
        return error;
    /* With port 0 each address of a name would get another port, so only one address is used. */
    if (!url->port && count > 1)
        count = 1;
    unsigned opened = 0;
    for (size_t i = 0; i < count; i++) {
        error = listener_open_address(list, &addresses[i], url->kind == URL_TLS, fault);
        opened += !error;
    }
    /* "localhost" may mean ::1 on a host whose kernel has no IPv6: one address that works is enough. */
    return opened ? STATUS_OK : error ? error : fault_set(fault, STATUS_CONNECTION, "%s: no address", text);
}

int listener_open(struct listener_list *list, const char *text, struct fault *fault) {
    struct url url = {.kind = URL_UNIX};
    int error = listener_parse(list, text, &url, fault);
    if (error)
        return error;
    return url.kind == URL_UNIX ? listener_open_unix(list, url.path, fault)
                                : listener_open_tcp(list, &url, text, fault);
}

int listener_open_default(struct listener_list *list, struct fault *fault) {
    char text[128], directory[108];
    struct url url;
    int error = url_default(text, sizeof text, fault);
    if (!error)
        error = url_parse(text, &url, fault);
    if (error)
        return error;
    char *slash = strrchr(url.path, '/');
    snprintf(directory, sizeof directory, "%.*s", (int)(slash - url.path), url.path);
    if (*directory)
        mkdir(directory, 0755); /* if this fails, bind() says why */
    return listener_open(list, text, fault);
}

int listener_inherit(struct listener_list *list, int fd, struct fault *fault) {
    struct url_address bound = {.length = sizeof bound.address};
    int listens = 0, type = 0;
    socklen_t size = sizeof listens;
    char url[128];
    if (getsockname(fd, (struct sockaddr *)&bound.address, &bound.length) ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) || !listens || type != SOCK_STREAM)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "descriptor %d, passed to listen on, is no listening socket",
                         fd);
    int family = bound.address.ss_family;
    if (family == AF_UNIX) {
        const struct sockaddr_un *local = (const struct sockaddr_un *)&bound.address;
        snprintf(url, sizeof url, "unix:%.*s", (int)sizeof local->sun_path, local->sun_path);
    } else if (family == AF_INET || family == AF_INET6) {
        listener_name_tcp(&bound.address, url, sizeof url);
        int error = url_is_loopback(&bound) ? STATUS_OK : listener_check_reach(list, url, false, fault);
        if (error)
            return error;
    } else {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "descriptor %d, passed to listen on, is neither Unix nor TCP",
                         fd);
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return listener_add(list, fd, url, NULL, NULL, false, fault);
}

/* ---- the list ---- */

void listener_list_init(struct listener_list *list, uv_loop_t *loop, mode_t socket_mode,
                        void (*accepted)(void *owner, int fd, const struct sockaddr_storage *peer, bool tls),
                        void *owner) {
    *list = (struct listener_list){.loop = loop, .socket_mode = socket_mode, .accepted = accepted, .owner = owner};
    LIST_INIT(&list->head);
}

static void listener_end(struct listener *listener) {
    struct stat file;
    LIST_REMOVE(listener, link);
    listener->list->count--;
    uv_close((uv_handle_t *)&listener->poll, listener_closed);
    uv_close((uv_handle_t *)&listener->pause, listener_closed);
    /* Another daemon may have taken the path over meanwhile. */
    if (listener->path[0] && !lstat(listener->path, &file) && file.st_dev == listener->device &&
        file.st_ino == listener->inode)
        unlink(listener->path);
    close(listener->fd);
    if (listener->reserve >= 0)
        close(listener->reserve);
}

void listener_list_finish(struct listener_list *list) {
    while (!LIST_EMPTY(&list->head))
        listener_end(LIST_FIRST(&list->head));
}
