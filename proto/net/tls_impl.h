/* Inside of tls.h. */
#pragma once

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "proto/net/tls.h"

enum {
    TLS_RECORD = SSL3_RT_MAX_PLAIN_LENGTH,
    TLS_RECORD_SENT = TLS_RECORD + 64, /* with its header, type and tag */
    /* Room for a record that the socket did not take, and for the messages of a handshake or a change of keys. */
    TLS_OUT_BYTES = 2 * TLS_RECORD_SENT,
    /* Four records of the full size, so that a read seldom ends within a record. Each has 5 bytes of header, 1 of type and
     * 16 of tag. OpenSSL does not use the first 3 bytes, to align the data that it decrypts. */
    TLS_READ_AHEAD = 3 + 4 * (5 + TLS_RECORD + 1 + 16),
    TLS_SHARE = 256 << 10, /* after so many bytes a thread gives up the lock, so that the other direction gets a turn */
};

struct tls_context {
    SSL_CTX *ssl;
    atomic_uint holders;
    bool server;
    enum tls_client_auth client_auth;
    struct tls_ticket_key tickets[TLS_TICKET_KEYS];
    char host[256];
    bool host_is_address;
    _Atomic(uint8_t *) spare; /* an output buffer that no connection uses; NULL: none */
    pthread_mutex_t lock;     /* for `session` */
    SSL_SESSION *session;     /* of a client: the session to resume; NULL: none */
};

/* Fills `fault` with OpenSSL's last error, "WHAT: reason", and empties OpenSSL's list of errors. Returns `code`. */
int tls_explain(struct fault *fault, enum status code, const char *what);
/* The name of a certificate as in tls_peer_name(). False: it has no name that can be used. */
bool tls_certificate_name(X509 *certificate, char name[TLS_NAME_MAX + 1]);
