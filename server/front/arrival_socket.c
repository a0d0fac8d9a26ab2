#include "server/front/arrival_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "proto/net/socket.h"

/* A vanished client's time while data is on its way to it, where keepalive does not look. */
enum { ARRIVAL_USER_TIMEOUT_MS = 30000 };

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
    const int timeout = ARRIVAL_USER_TIMEOUT_MS;
    socket_tune(fd);
    if (address->ss_family == AF_INET || address->ss_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
        arrival_identify_tcp(address, peer);
    } else {
        arrival_identify_unix(fd, peer);
    }
}
