#include "proto/net/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
