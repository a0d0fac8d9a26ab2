/* The bytes of a connection, in the clear or over TLS: code that reads and writes frames works with both. One thread may read
 * while another writes. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "proto/net/tls.h"

/* ---- the connected socket ---- */

/* Sets options of Unix and TCP sockets; sockets of other families stay as they are. An option that the system refuses stays as
 * it is: the options only make the socket faster, or show the end of the peer sooner. */
void socket_tune(int fd);

bool socket_is_tcp(int fd);
/* Whether the other end is on this host. False for sockets that are neither Unix nor TCP. */
bool socket_is_local(int fd);
/* A descriptor that becomes readable when the process, which is at the other end of a Unix socket, ends. Negative: none, and errno
 * says why: ESRCH if the process has ended already. */
int socket_watch_process(pid_t process);

/* ---- the connection ---- */

struct transport {
    int fd;          /* a non-blocking stream socket */
    struct tls *tls; /* NULL: in the clear */
};

/* Takes over `fd` on success. With a context, TLS begins with the first call. */
int transport_init(struct transport *transport, int fd, struct tls_context *context, struct fault *fault);
/* Takes the connection of `fresh`, and keeps its own descriptor number for the socket, so that a thread that polls this number
 * sees the end of the old connection or the beginning of the new one. No thread may read or write meanwhile. Finishes `fresh`. */
void transport_replace(struct transport *transport, struct transport *fresh);
/* Closes the socket. Sends nothing before that; see transport_end(). */
void transport_finish(struct transport *transport);

/* Whether a handshake must be done before bytes can go either way. Reading and writing continue the handshake, too, but
 * a caller that waits for room to write must know that it waits for the peer instead. */
static inline bool transport_opening(const struct transport *transport) {
    return transport->tls && tls_opening(transport->tls);
}
/* 0: done. EAGAIN: call again when the socket is readable, or, if transport_unsent(), writable. Otherwise an errno. */
int transport_handshake(struct transport *transport);

/* As recv() and sendmsg() with MSG_DONTWAIT and without signals. EPROTO: transport_reason() has the reason. */
ssize_t transport_read(struct transport *transport, void *place, size_t bytes);
ssize_t transport_write(struct transport *transport, const struct iovec *parts, size_t n);
/* TLS may have read more bytes already, which poll() does not report: read again. */
static inline bool transport_more(const struct transport *transport) {
    return transport->tls && tls_more(transport->tls);
}
/* Written bytes may still lie in a buffer here. 0: all have gone to the socket. EAGAIN: call again when the socket is writable.
 * Otherwise an errno. */
static inline int transport_flush(struct transport *transport) {
    return transport->tls ? tls_flush(transport->tls) : 0;
}
static inline bool transport_unsent(const struct transport *transport) {
    return transport->tls && tls_unsent(transport->tls);
}

/* Ends writing: the peer reads an orderly end. */
void transport_end(struct transport *transport);
/* Ends writing and reading: a thread that waits for the socket sees the end, too. */
void transport_hang_up(struct transport *transport);

/* The reason of a call that failed with this errno: the fault of TLS if there is one, otherwise the text of the errno. */
const char *transport_reason(struct transport *transport, int error, struct fault *fault);
/* The peer's name by its certificate; "" in the clear, before the end of the handshake, or if it has shown no certificate. */
const char *transport_peer_name(const struct transport *transport);
/* "TLS_AES_128_GCM_SHA256"; "" in the clear. */
const char *transport_cipher(const struct transport *transport);
/* Whether the TLS session began on another connection. */
bool transport_resumed(const struct transport *transport);
