#include "proto/net/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the socket ---- */

enum {
    /* A large buffer multiplies the throughput between processes that take turns on one core. */
    UNIX_BYTES = 4 << 20,
    /* TCP chooses large buffers for long distances. Within a host they only do harm: bytes that wait in a buffer of some
     * megabytes have left the processor's caches when the other end reads them. */
    LOCAL_SEND_BYTES = 256 << 10,
    /* The end of a host that disappears without a message is noticed after half a minute. */
    KEEPALIVE_IDLE_S = 15,
    KEEPALIVE_INTERVAL_S = 5,
    KEEPALIVE_COUNT = 3,
};

static void set(int fd, int level, int option, int value) {
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

static void tune_unix(int fd) {
    /* With CAP_NET_ADMIN, SO_SNDBUFFORCE may exceed net.core.wmem_max. */
    int bytes = UNIX_BYTES;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes))
        set(fd, SOL_SOCKET, SO_SNDBUF, bytes);
}

static void tune_tcp(int fd) {
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
    if (socket_is_local(fd))
        set(fd, SOL_SOCKET, SO_SNDBUF, LOCAL_SEND_BYTES);
}

static int family_of(int fd) {
    int family = AF_UNSPEC;
    socklen_t length = sizeof family;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) ? AF_UNSPEC : family;
}

bool socket_is_tcp(int fd) {
    int family = family_of(fd);
    return family == AF_INET || family == AF_INET6;
}

void socket_tune(int fd) {
    if (socket_is_tcp(fd))
        tune_tcp(fd);
    else if (family_of(fd) == AF_UNIX)
        tune_unix(fd);
}

/* The bytes of an address without its port, and their number; 0: another family. */
static size_t host_of(const struct sockaddr_storage *address, const void **bytes) {
    if (address->ss_family == AF_INET) {
        *bytes = &((const struct sockaddr_in *)address)->sin_addr;
        return sizeof(struct in_addr);
    }
    *bytes = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return address->ss_family == AF_INET6 ? sizeof(struct in6_addr) : 0;
}

bool socket_is_local(int fd) {
    struct sockaddr_storage here, there;
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
    const void *one = NULL, *other = NULL;
    if (family_of(fd) == AF_UNIX)
        return true;
    if (getsockname(fd, (struct sockaddr *)&here, &here_bytes) ||
        getpeername(fd, (struct sockaddr *)&there, &there_bytes))
        return false;
    size_t bytes = host_of(&here, &one);
    return bytes && host_of(&there, &other) == bytes && !memcmp(one, other, bytes);
}

int socket_watch_process(pid_t process) {
    /* pidfd_open() is in the C library since 2.36 only, and hosts with GPUs often have 2.35. */
    return (int)syscall(SYS_pidfd_open, process, 0);
}

/* ---- the connection ---- */

int transport_init(struct transport *transport, int fd, struct tls_context *context, struct fault *fault) {
    struct transport made = {.fd = fd};
    int code = context ? tls_create(context, fd, &made.tls, fault) : STATUS_OK;
    if (!code) {
        *transport = made;
    }
    return code;
}

void transport_replace(struct transport *transport, struct transport *fresh) {
    tls_destroy(transport->tls);
    transport->tls = fresh->tls;
    fresh->tls = NULL;
    dup3(fresh->fd, transport->fd, O_CLOEXEC);
    if (transport->tls) {
        tls_move(transport->tls, transport->fd);
    }
    transport_finish(fresh);
}

void transport_finish(struct transport *transport) {
    tls_destroy(transport->tls);
    transport->tls = NULL;
    if (transport->fd >= 0) {
        close(transport->fd);
    }
    transport->fd = -1;
}

int transport_handshake(struct transport *transport) {
    return transport->tls ? tls_handshake(transport->tls) : 0;
}

ssize_t transport_read(struct transport *transport, void *place, size_t bytes) {
    ssize_t got;
    if (transport->tls) {
        return tls_read(transport->tls, place, bytes);
    }
    do {
        got = recv(transport->fd, place, bytes, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got;
}

ssize_t transport_write(struct transport *transport, const struct iovec *parts, size_t n) {
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = n};
    ssize_t sent;
    if (transport->tls) {
        return tls_write(transport->tls, parts, n);
    }
    do {
        sent = sendmsg(transport->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

void transport_end(struct transport *transport) {
    if (transport->tls) {
        tls_end(transport->tls);
    }
    shutdown(transport->fd, SHUT_WR);
}

void transport_hang_up(struct transport *transport) {
    if (transport->tls) {
        tls_end(transport->tls);
    }
    shutdown(transport->fd, SHUT_RDWR);
}

const char *transport_reason(struct transport *transport, int error, struct fault *fault) {
    if (transport->tls) {
        tls_fault(transport->tls, fault);
        if (fault->code) {
            return fault->message;
        }
    }
    snprintf(fault->message, sizeof(fault->message), "%s",
             strerrordesc_np(error) ? strerrordesc_np(error) : "an error");
    return fault->message;
}

const char *transport_peer_name(const struct transport *transport) {
    return transport->tls && tls_ready(transport->tls) ? tls_peer_name(transport->tls) : "";
}

const char *transport_cipher(const struct transport *transport) {
    return transport->tls ? tls_cipher(transport->tls) : "";
}

bool transport_resumed(const struct transport *transport) {
    return transport->tls && tls_resumed(transport->tls);
}
