/* TLS 1.3 over a connected socket, with OpenSSL. Callers see it through transport.h; only those who make contexts and
 * connections need this.
 *
 * A context is what connections share: certificates, keys, whom to trust. It is counted, constant once made, and may be
 * used by any thread. A connection has a lock of its own around OpenSSL's calls, which is never held while waiting, so
 * that one thread may read while another writes. The socket is non-blocking; nothing here ever waits for it. */
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
    TLS_CLIENT_OPTIONAL, /* one that they present must be good */
    TLS_CLIENT_REQUIRED,
};

/* Keys that encrypt session tickets. All processes that serve one listener have the same, so that a client resumes
 * wherever it comes. The first makes new tickets, both open old ones. */
enum { TLS_TICKET_KEYS = 2, TLS_TICKET_LIFETIME_S = 2 * 3600 };
struct tls_ticket_key {
    uint8_t name[16], cipher[32], mac[32];
};

struct tls_server_options {
    const char *certificate; /* PEM texts: the certificate and what leads from it to the root, */
    const char *key;         /* its key, */
    const char *client_ca;   /* and the CAs of clients' certificates; NULL with TLS_CLIENT_NONE */
    enum tls_client_auth client_auth;
    struct tls_ticket_key tickets[TLS_TICKET_KEYS];
};
/* STATUS_INVALID_ARGUMENT says which text is no good, and why: malformed, a key with a passphrase, or of another
 * certificate. */
int tls_server_create(const struct tls_server_options *options, struct tls_context **context, struct fault *fault);
/* Why the server's certificate is of no use to clients at this time of day; "" where it is. */
void tls_server_check_dates(const struct tls_context *context, char *text, size_t size);
/* A key that nobody can guess. */
int tls_ticket_key_make(struct tls_ticket_key *key, struct fault *fault);

struct tls_client_options {
    const char *host;        /* that the server's certificate must be for: a name or an IP address */
    const char *ca;          /* PEM file of those to trust; NULL: the system's */
    const char *certificate; /* PEM file to present to servers that ask; NULL: none */
    const char *key;         /* its key's file; NULL: in the same file */
};
/* For connections to one server: they resume one another's sessions. */
int tls_client_create(const struct tls_client_options *options, struct tls_context **context, struct fault *fault);

struct tls_context *tls_context_hold(struct tls_context *context);
/* Takes NULL. */
void tls_context_release(struct tls_context *context);

/* ---- connections ---- */

/* Over `fd`, which stays the caller's. Nothing is sent before the first call below, each of which drives the handshake
 * as far as it goes. */
int tls_create(struct tls_context *context, int fd, struct tls **tls, struct fault *fault);
/* `fd` is another number of the same socket. Not while another thread reads or writes. */
void tls_move(struct tls *tls, int fd);
/* Says nothing to the peer. Takes NULL. */
void tls_destroy(struct tls *tls);

/* 0: done. EAGAIN: wait for the socket, to write where tls_unsent(). Another errno: tls_fault() tells. What a server
 * answers in place of a TLS record is left in the socket, for who understands it. */
int tls_handshake(struct tls *tls);
bool tls_ready(const struct tls *tls);
/* Neither done nor failed. */
bool tls_opening(const struct tls *tls);

/* As recv(): some bytes, 0 at the orderly end, -1 with errno. EPROTO: tls_fault() tells, of an end without close_notify
 * too. As many bytes as there are, up to a share, and tls_more() says whether that was all. */
ssize_t tls_read(struct tls *tls, void *place, size_t bytes);
/* Bytes may be here already that the socket will not tell of: read again without waiting for it. */
bool tls_more(const struct tls *tls);

/* As writev(): how many bytes have been taken, or -1 with errno. They may change afterwards, but lie here in part until
 * tls_flush() has returned 0. */
ssize_t tls_write(struct tls *tls, const struct iovec *parts, size_t n);
/* 0: all has gone to the socket. EAGAIN: it is full. Else an errno. */
int tls_flush(struct tls *tls);
bool tls_unsent(const struct tls *tls);
/* Tells the peer that nothing more will come, as far as the socket takes that. */
void tls_end(struct tls *tls);

/* What ended the connection; code STATUS_OK where nothing has. */
void tls_fault(struct tls *tls, struct fault *fault);

/* After the handshake. The peer's name by its certificate: the subject's CN (of several the last, which is the most
 * specific), else its first DNS name, address of mail or URI, as "dns:gpu1", "email:a@b" or "uri:…", which no user's name
 * can be; "" where it showed none. At most TLS_NAME_MAX bytes of UTF-8 without control characters, commas and spaces at
 * its ends: a certificate with another name is refused in the handshake. */
enum { TLS_NAME_MAX = 70 }; /* X.520 allows a CN 64, and before other names stands their kind */
const char *tls_peer_name(const struct tls *tls);
/* "TLS_AES_128_GCM_SHA256" */
const char *tls_cipher(const struct tls *tls);
bool tls_resumed(const struct tls *tls);
