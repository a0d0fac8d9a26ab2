#include "proto/net/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* Large buffers are worth a factor in throughput between processes that take turns on a core. */
    UNIX_BYTES = 4 << 20,
    /* TCP sizes its buffers by the way that bytes have to go. On one host there is none, and what lies in a socket of
     * some megabytes has left the processor's caches when the other end reads it. */
    LOCAL_SEND_BYTES = 256 << 10,
    /* A host that vanishes without a word is noticed after half a minute. */
    KEEPALIVE_IDLE_S = 15,
    KEEPALIVE_INTERVAL_S = 5,
    KEEPALIVE_COUNT = 3,
};

static void set(int fd, int level, int option, int value) {
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

static void tune_unix(int fd) {
    /* FORCE passes net.core.wmem_max, for who may. */
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

/* The bytes of an address without its port; 0: of another family. */
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
