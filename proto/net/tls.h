/* TLS 1.3 over a connected socket, with OpenSSL. Most callers use it through transport.h; only code that makes contexts needs
 * this header.
 *
 * A context has what connections share: certificates, keys, and the authorities to trust. It is reference-counted, does not
 * change once it is made, and may be used by any thread. A connection has a lock of its own around OpenSSL's calls. No thread
 * waits for the socket while it holds this lock, so one thread may read while another writes. The socket is non-blocking;
 * no function here waits for it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "proto/ops/status.h"

struct tls_context;
struct tls;

/* ---- contexts ---- */

enum tls_client_auth {
    TLS_CLIENT_NONE,     /* clients are not asked for a certificate */
    TLS_CLIENT_OPTIONAL, /* if a client presents a certificate, it must be valid */
    TLS_CLIENT_REQUIRED,
};

/* Keys that encrypt session tickets. All processes that serve one listener have the same keys, so that a client can resume its
 * TLS session with any of them. The first key makes new tickets; both keys open tickets. */
enum { TLS_TICKET_KEYS = 2, TLS_TICKET_LIFETIME_S = 2 * 3600 };
struct tls_ticket_key {
    uint8_t name[16], cipher[32], mac[32];
};

struct tls_server_options {
    const char *certificate; /* PEM text: the certificate, and the chain of certificates from it to the root */
    const char *key;         /* PEM text: its key */
    const char *client_ca;   /* PEM text: the CAs of clients' certificates; NULL with TLS_CLIENT_NONE */
    enum tls_client_auth client_auth;
    struct tls_ticket_key tickets[TLS_TICKET_KEYS];
};
/* STATUS_INVALID_ARGUMENT says which text is refused, and why: it is malformed, the key has a passphrase, or the key belongs
 * to another certificate. */
int tls_server_create(const struct tls_server_options *options, struct tls_context **context, struct fault *fault);
/* Says why clients refuse the server's certificate now: it is not valid yet, or has expired; "": its dates are valid. */
void tls_server_check_dates(const struct tls_context *context, char *text, size_t size);
/* Makes a random key. */
int tls_ticket_key_make(struct tls_ticket_key *key, struct fault *fault);

struct tls_client_options {
    const char *host;        /* the server's certificate must be for this host: a name or an IP address */
    const char *ca;          /* PEM file of the authorities to trust; NULL: the system's */
    const char *certificate; /* PEM file to present to a server that asks; NULL: none */
    const char *key;         /* PEM file of its key; NULL: the key is in the certificate's file */
};
/* A context for connections to one server: each connection resumes the TLS session of an earlier one. */
int tls_client_create(const struct tls_client_options *options, struct tls_context **context, struct fault *fault);

struct tls_context *tls_context_hold(struct tls_context *context);
/* Takes NULL. */
void tls_context_release(struct tls_context *context);

/* ---- connections ---- */

/* A connection over `fd`, which stays the caller's. Nothing is sent before the first call below. Each of these calls continues
 * the handshake as far as the socket allows. */
int tls_create(struct tls_context *context, int fd, struct tls **tls, struct fault *fault);
/* `fd` is a new number for the same socket. Call it only while no other thread reads or writes. */
void tls_move(struct tls *tls, int fd);
/* Sends nothing to the peer. Takes NULL. */
void tls_destroy(struct tls *tls);

/* 0: done. EAGAIN: wait until the socket is readable, or also writable if tls_unsent(). Another errno: tls_fault() has the
 * reason. Bytes that a server sends instead of a TLS record stay in the socket, so that the caller can read them. */
int tls_handshake(struct tls *tls);
bool tls_ready(const struct tls *tls);
/* Whether the handshake is neither done nor failed. */
bool tls_opening(const struct tls *tls);

/* As recv(): the number of bytes, 0 at the orderly end, -1 with errno. EPROTO: tls_fault() has the reason; an end without
 * close_notify is such a failure. One call reads the bytes that have come, up to a limit; tls_more() says whether there are more. */
ssize_t tls_read(struct tls *tls, void *place, size_t bytes);
/* OpenSSL may have read more bytes already, which poll() does not report: read again without waiting for the socket. */
bool tls_more(const struct tls *tls);

/* As writev(): the number of bytes that were taken, or -1 with errno. The caller may change these bytes afterwards. A part of
 * them may stay in a buffer here until tls_flush() has returned 0. */
ssize_t tls_write(struct tls *tls, const struct iovec *parts, size_t n);
/* 0: all bytes have gone to the socket. EAGAIN: the socket is full. Otherwise an errno. */
int tls_flush(struct tls *tls);
bool tls_unsent(const struct tls *tls);
/* Tells the peer that nothing more will come, if the socket takes that. */
void tls_end(struct tls *tls);

/* What has ended the connection; code STATUS_OK: nothing has. */
void tls_fault(struct tls *tls, struct fault *fault);

/* After the handshake: the peer's name by its certificate. It is the subject's CN (of several CNs the last one, which is the most
 * specific); without a CN the first DNS name, mail address or URI, as "dns:gpu1", "email:a@b" or "uri:…", forms that no
 * user's name can have. "": the peer has shown no certificate. The name has at most TLS_NAME_MAX bytes of UTF-8, without
 * control characters or commas, and without a space at its beginning or end: the handshake refuses a certificate with any
 * other name. */
enum { TLS_NAME_MAX = 70 }; /* X.520 allows 64 bytes for a CN; the other names have their kind before them */
const char *tls_peer_name(const struct tls *tls);
/* "TLS_AES_128_GCM_SHA256" */
const char *tls_cipher(const struct tls *tls);
bool tls_resumed(const struct tls *tls);
