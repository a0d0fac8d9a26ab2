/* The bytes of a connection, in the clear or over TLS: what reads and writes frames does not tell the two apart. As
 * tls.h says, one thread may read while another writes. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "proto/net/tls.h"

/* ---- the socket, connected ---- */

/* Unix and TCP sockets; other families stay as they are. A setting that the system refuses is left: each only makes the
 * socket faster, or the end of its peer known sooner. */
void socket_tune(int fd);

bool socket_is_tcp(int fd);
/* Whether the other end is on this host. False for sockets that are neither Unix nor TCP. */
bool socket_is_local(int fd);

/* ---- the connection ---- */

struct transport {
    int fd;          /* a non-blocking stream socket */
    struct tls *tls; /* NULL: in the clear */
};

/* Takes over `fd`. With a context, TLS begins with the first call. */
int transport_init(struct transport *transport, int fd, struct tls_context *context, struct fault *fault);
/* Goes on over the other one's connection, under its own socket's number, so that whoever polls that in another thread
 * sees the old end or the new beginning. Nobody may be reading or writing. `fresh` is finished. */
void transport_replace(struct transport *transport, struct transport *fresh);
/* Closes the socket. Says nothing before that; see transport_end(). */
void transport_finish(struct transport *transport);

/* Whether a handshake must be done before bytes can go either way. Reading and writing continue the handshake, too, but
 * a caller that waits for room to write must know that it waits for the peer instead. */
static inline bool transport_opening(const struct transport *transport) {
    return transport->tls && tls_opening(transport->tls);
}
/* 0: done. EAGAIN: when the socket is readable, or writable where transport_unsent(). Else an errno. */
int transport_handshake(struct transport *transport);

/* As recv() and sendmsg() with MSG_DONTWAIT and without signals. EPROTO: transport_fault() tells why. */
ssize_t transport_read(struct transport *transport, void *place, size_t bytes);
ssize_t transport_write(struct transport *transport, const struct iovec *parts, size_t n);
/* Bytes may be here already that no poll will tell of: read again. */
static inline bool transport_more(const struct transport *transport) {
    return transport->tls && tls_more(transport->tls);
}
/* What was written may lie here still. 0: it has all gone. EAGAIN: when the socket is writable. Else an errno. */
static inline int transport_flush(struct transport *transport) {
    return transport->tls ? tls_flush(transport->tls) : 0;
}
static inline bool transport_unsent(const struct transport *transport) {
    return transport->tls && tls_unsent(transport->tls);
}

/* Nothing more will be written: the peer reads an orderly end. */
void transport_end(struct transport *transport);
/* The same, and nothing will be read: also whoever waits for the socket in another thread sees the end. */
void transport_hang_up(struct transport *transport);

/* Words for a failed call with this errno: what TLS knows of it, or the error's own text. */
const char *transport_reason(struct transport *transport, int error, struct fault *fault);
/* Who the peer is by its certificate; "" in the clear, before the handshake's end, and where it has shown none. */
const char *transport_peer_name(const struct transport *transport);
/* "TLS_AES_128_GCM_SHA256"; "" in the clear. And whether the session had begun on another connection. */
const char *transport_cipher(const struct transport *transport);
bool transport_resumed(const struct transport *transport);
