#include "server/arrival_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

enum {
    ARRIVAL_SOCKET_BUFFER = 4 << 20,
    /* A silent peer is asked after 15 s, and given up when three questions 5 s apart have gone unanswered. */
    ARRIVAL_KEEPALIVE_IDLE_S = 15,
    ARRIVAL_KEEPALIVE_INTERVAL_S = 5,
    ARRIVAL_KEEPALIVE_COUNT = 3,
    ARRIVAL_USER_TIMEOUT_MS = 30000, /* the same bound while data is on its way, where keepalive does not look */
};

static void arrival_set(int fd, int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof value);
}

static void arrival_tune_unix(int fd) {
    /* FORCE passes net.core.wmem_max, for a daemon that may. */
    int size = ARRIVAL_SOCKET_BUFFER;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size))
        arrival_set(fd, SOL_SOCKET, SO_SNDBUF, size);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size))
        arrival_set(fd, SOL_SOCKET, SO_RCVBUF, size);
}

static void arrival_tune_tcp(int fd) {
    arrival_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    arrival_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    arrival_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, ARRIVAL_KEEPALIVE_IDLE_S);
    arrival_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, ARRIVAL_KEEPALIVE_INTERVAL_S);
    arrival_set(fd, IPPROTO_TCP, TCP_KEEPCNT, ARRIVAL_KEEPALIVE_COUNT);
    arrival_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ARRIVAL_USER_TIMEOUT_MS);
}

static void arrival_identify_unix(int fd, struct peer *peer) {
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    snprintf(peer->address, sizeof peer->address, "unix");
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size))
        return;
    peer->has_uid = true;
    peer->uid = credentials.uid;
    peer->source.kind = SOURCE_UID;
    memcpy(peer->source.bytes, &peer->uid, sizeof peer->uid);
}

static void arrival_identify_tcp(const struct sockaddr_storage *address, struct peer *peer) {
    char host[INET6_ADDRSTRLEN] = "";
    source_find(&peer->source, address);
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(peer->address, sizeof peer->address, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(peer->address, sizeof peer->address, "%s:%u", host, ntohs(in->sin_port));
    }
}

void arrival_meet(int fd, const struct sockaddr_storage *address, struct peer *peer) {
    if (address->ss_family == AF_INET || address->ss_family == AF_INET6) {
        arrival_tune_tcp(fd);
        arrival_identify_tcp(address, peer);
    } else {
        arrival_tune_unix(fd);
        arrival_identify_unix(fd, peer);
    }
}
