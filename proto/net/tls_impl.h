/* Inside of tls.h. */
#pragma once

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "proto/net/tls.h"

enum {
    TLS_RECORD = SSL3_RT_MAX_PLAIN_LENGTH,
    TLS_RECORD_SENT = TLS_RECORD + 64, /* and its header, type and tag */
    /* A record that the socket did not take, and what a handshake or a change of keys may add. */
    TLS_OUT_BYTES = 2 * TLS_RECORD_SENT,
    /* Whole records of the full size, so that a read seldom ends within one: 5 bytes of header, 1 of type, 16 of tag
     * each. OpenSSL leaves out the first 3 bytes, to align what it decrypts. */
    TLS_READ_AHEAD = 3 + 4 * (5 + TLS_RECORD + 1 + 16),
    TLS_SHARE = 256 << 10, /* with the lock, which is then free for the other direction */
};

struct tls_context {
    SSL_CTX *ssl;
    atomic_uint holders;
    bool server;
    enum tls_client_auth client_auth;
    struct tls_ticket_key tickets[TLS_TICKET_KEYS];
    char host[256];
    bool host_is_address;
    _Atomic(uint8_t *) spare; /* an output buffer that nobody uses */
    pthread_mutex_t lock;     /* of a client, for: */
    SSL_SESSION *session;     /* to be resumed; NULL: none */
};

/* Fills `fault` with what OpenSSL noted last, and empties its list: "WHAT: reason". Returns `code`. */
int tls_explain(struct fault *fault, enum status code, const char *what);
/* False: it has no name that can be used. */
bool tls_certificate_name(X509 *certificate, char name[TLS_NAME_MAX + 1]);
