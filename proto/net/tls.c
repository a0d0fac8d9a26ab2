#include "proto/net/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/net/tls_impl.h"

/* OpenSSL reads from the socket and writes to it. Bytes that the socket does not take go to `out`, which has room for a record.
 * So every byte that OpenSSL has encrypted has been taken, and no caller must repeat a write with the same bytes. */
struct tls {
    struct tls_context *context;
    SSL *ssl;
    int fd;
    pthread_mutex_t lock; /* for all members */
    atomic_uint waiting;  /* threads that want the lock */
    uint8_t *out;         /* [TLS_OUT_BYTES]; the bytes [sent, filled) are not sent yet. NULL: there are none */
    size_t sent, filled;
    bool corked; /* another record follows at once */
    bool met;    /* the first byte that came begins a TLS record */
    bool eof;    /* the socket has ended */
    int error;   /* an errno of the socket, or EPROTO: nothing is read or written any more; 0: none */
    bool ended;
    struct fault fault;
    atomic_bool ready, over, more, unsent; /* the handshake is done, or has failed */
    char name[TLS_NAME_MAX + 1];
};

static void lock(struct tls *tls) {
    atomic_fetch_add_explicit(&tls->waiting, 1, memory_order_relaxed);
    pthread_mutex_lock(&tls->lock);
    atomic_fetch_sub_explicit(&tls->waiting, 1, memory_order_relaxed);
}

static void unlock(struct tls *tls) {
    pthread_mutex_unlock(&tls->lock);
}

/* ---- the socket ---- */

static bool out_take(struct tls *tls) {
    if (!tls->out) {
        tls->out = atomic_exchange(&tls->context->spare, NULL);
    }
    if (!tls->out) {
        tls->out = malloc(TLS_OUT_BYTES);
    }
    return tls->out != NULL;
}

static void out_give(struct tls *tls) {
    free(atomic_exchange(&tls->context->spare, tls->out));
    tls->out = NULL;
    tls->sent = tls->filled = 0;
    atomic_store_explicit(&tls->unsent, false, memory_order_relaxed);
}

/* 0: everything has been sent. Otherwise an errno. */
static int out_flush(struct tls *tls) {
    while (tls->sent < tls->filled) {
        ssize_t sent = send(tls->fd, tls->out + tls->sent, tls->filled - tls->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            tls->sent += (size_t)sent;
        } else if (errno != EINTR) {
            atomic_store_explicit(&tls->unsent, true, memory_order_relaxed);
            return errno == EWOULDBLOCK ? EAGAIN : errno;
        }
    }
    if (tls->out) {
        out_give(tls);
    }
    return 0;
}

/* The number of bytes that the socket takes. If the socket is broken this is 0, and out_flush() reports the error. */
static size_t send_some(const struct tls *tls, const char *bytes, size_t n) {
    int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (tls->corked ? MSG_MORE : 0);
    ssize_t sent;
    do {
        sent = send(tls->fd, bytes, n, flags);
    } while (sent < 0 && errno == EINTR);
    return sent > 0 ? (size_t)sent : 0;
}

static int socket_write(BIO *bio, const char *bytes, int n) {
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    size_t sent = tls->filled ? 0 : send_some(tls, bytes, (size_t)n), left = (size_t)n - sent;
    if (left == 0) {
        return n;
    }
    if (!out_take(tls)) {
        tls->error = ENOMEM;
        return -1;
    }
    size_t room = TLS_OUT_BYTES - tls->filled, kept = left < room ? left : room;
    memcpy(tls->out + tls->filled, bytes + sent, kept);
    tls->filled += kept;
    if (sent + kept == 0) {
        BIO_set_retry_write(bio);
        return -1;
    }
    return (int)(sent + kept);
}

/* Reads from the socket. Before the first byte it only peeks: a TLS record begins with its type, 20 to 23 (RFC 8446, 5.1), and
 * anything else stays in the socket. */
static ssize_t receive(struct tls *tls, char *place, size_t n) {
    ssize_t got;
    do {
        got = recv(tls->fd, place, tls->met ? n : 1, MSG_DONTWAIT | (tls->met ? 0 : MSG_PEEK));
    } while (got < 0 && errno == EINTR);
    if (got <= 0 || tls->met) {
        return got;
    }
    tls->met = place[0] >= 20 && place[0] <= 23;
    if (tls->met) {
        return receive(tls, place, n);
    }
    errno = EPROTO;
    return -1;
}

static int socket_read(BIO *bio, char *place, int n) {
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t got = receive(tls, place, (size_t)n);
    if (got == 0) {
        tls->eof = true;
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        BIO_set_retry_read(bio);
    } else if (got < 0) {
        tls->error = errno;
    }
    return (int)got;
}

static long socket_control(BIO *bio, int command, long number, void *pointer) {
    const struct tls *tls = BIO_get_data(bio);
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH || (command == BIO_CTRL_EOF && tls->eof);
}

static BIO_METHOD *socket_method;

static void make_socket_method(void) {
    socket_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tensord");
    if (socket_method) {
        BIO_meth_set_write(socket_method, socket_write);
        BIO_meth_set_read(socket_method, socket_read);
        BIO_meth_set_ctrl(socket_method, socket_control);
    }
}

/* ---- life ---- */

static bool set_host(struct tls *tls) {
    const struct tls_context *context = tls->context;
    SSL_set_hostflags(tls->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (context->host_is_address) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), context->host) == 1;
    }
    return SSL_set1_host(tls->ssl, context->host) == 1 && SSL_set_tlsext_host_name(tls->ssl, context->host) == 1;
}

static bool set_side(struct tls *tls) {
    struct tls_context *context = tls->context;
    if (context->server) {
        SSL_set_accept_state(tls->ssl);
        return true;
    }
    SSL_set_connect_state(tls->ssl);
    pthread_mutex_lock(&context->lock);
    if (context->session) {
        SSL_set_session(tls->ssl, context->session); /* if the server does not accept it, there is a full handshake */
    }
    pthread_mutex_unlock(&context->lock);
    return set_host(tls);
}

int tls_create(struct tls_context *context, int fd, struct tls **out, struct fault *fault) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_socket_method);
    struct tls *tls = calloc(1, sizeof(*tls));
    if (!tls) {
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a TLS connection");
    }
    tls->context = tls_context_hold(context);
    tls->fd = fd;
    pthread_mutex_init(&tls->lock, NULL);
    ERR_clear_error();
    BIO *bio = socket_method ? BIO_new(socket_method) : NULL;
    tls->ssl = bio ? SSL_new(context->ssl) : NULL;
    if (!tls->ssl) {
        BIO_free(bio);
        tls_destroy(tls);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a TLS connection");
    }
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    if (!set_side(tls)) {
        int code = tls_explain(fault, STATUS_INVALID_ARGUMENT, "TLS");
        tls_destroy(tls);
        return code;
    }
    *out = tls;
    return STATUS_OK;
}

void tls_move(struct tls *tls, int fd) {
    lock(tls);
    tls->fd = fd;
    unlock(tls);
}

void tls_destroy(struct tls *tls) {
    if (!tls) {
        return;
    }
    /* Without this OpenSSL thinks that the session has failed, and does not resume it. */
    if (tls->ssl && !tls->error) {
        SSL_set_shutdown(tls->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    }
    SSL_free(tls->ssl);
    if (tls->out) {
        out_give(tls);
    }
    pthread_mutex_destroy(&tls->lock);
    tls_context_release(tls->context);
    free(tls);
}

/* ---- failures ---- */

static void explain_certificate(struct tls *tls) {
    long result = SSL_get_verify_result(tls->ssl);
    const char *reason = result == X509_V_ERR_APPLICATION_VERIFICATION
                             ? "its name is missing, too long, or holds a comma or control characters"
                             : X509_verify_cert_error_string(result);
    fault_set(&tls->fault, STATUS_DENIED, "TLS: the certificate of %s is not accepted: %s",
              tls->context->server ? "the client" : tls->context->host, reason);
}

static void explain(struct tls *tls) {
    unsigned long error = ERR_peek_last_error();
    const char *text = ERR_reason_error_string(error);
    int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    text = text ? text : "OpenSSL does not say why";
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        explain_certificate(tls);
    } else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
        fault_set(&tls->fault, STATUS_DENIED, "TLS: the client shows no certificate, and must");
    } else if (reason >= SSL_AD_REASON_OFFSET) {
        fault_set(&tls->fault, STATUS_DENIED, "TLS: %s refuses: %s", tls->context->server ? "the client" : "the daemon",
                  text);
    } else {
        fault_set(&tls->fault, STATUS_PROTOCOL, "TLS: %s", text);
    }
}

/* The meaning of a call of OpenSSL that returned `result`: 0: the orderly end; EAGAIN; or the errno that ends the connection. */
static int note(struct tls *tls, int result) {
    int kind = SSL_get_error(tls->ssl, result);
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) {
        return EAGAIN;
    }
    if (kind == SSL_ERROR_ZERO_RETURN) {
        tls->ended = true;
        return 0;
    }
    if (tls->error == EPROTO && !tls->met) {
        fault_set(&tls->fault, STATUS_PROTOCOL, "TLS: the other side does not speak it");
    } else if (!tls->error && tls->eof) {
        tls->error = EPROTO;
        fault_set(&tls->fault, STATUS_CONNECTION, "TLS: the connection was cut off %s",
                  tls->ready ? "without an orderly end" : "in the handshake");
    } else if (!tls->error) {
        tls->error = EPROTO;
        explain(tls);
    }
    ERR_clear_error();
    return tls->error;
}

void tls_fault(struct tls *tls, struct fault *fault) {
    lock(tls);
    *fault = tls->fault;
    unlock(tls);
}

/* ---- the handshake ---- */

static int step(struct tls *tls) {
    if (tls->ready || tls->error) {
        return tls->error;
    }
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl), error = result == 1 ? 0 : note(tls, result);
    if (result == 1) {
        X509 *certificate = SSL_get0_peer_certificate(tls->ssl);
        if (tls->context->server && certificate) {
            tls_certificate_name(certificate, tls->name);
        }
        tls->ready = true;
    } else if (error == 0) {
        tls->error = error = EPROTO;
        fault_set(&tls->fault, STATUS_CONNECTION, "TLS: the other side ended the handshake");
    }
    tls->over = error && error != EAGAIN;
    out_flush(tls); /* also sends an alert; if the socket is full or broken, the next call will notice it */
    return error;
}

int tls_handshake(struct tls *tls) {
    lock(tls);
    int error = step(tls);
    unlock(tls);
    return error;
}

bool tls_ready(const struct tls *tls) {
    return tls->ready;
}

bool tls_opening(const struct tls *tls) {
    return !tls->ready && !tls->over;
}

/* ---- reading ---- */

static int read_some(struct tls *tls, uint8_t *place, size_t bytes, size_t *got) {
    int error = 0;
    ERR_clear_error();
    while (*got < bytes && !error) {
        size_t n = 0;
        int result = SSL_read_ex(tls->ssl, place + *got, bytes - *got, &n);
        *got += n;
        if (result != 1) {
            error = note(tls, result);
            if (!error) {
                break; /* the end */
            }
        }
    }
    return error;
}

ssize_t tls_read(struct tls *tls, void *place, size_t bytes) {
    size_t got = 0;
    bytes = bytes < TLS_SHARE ? bytes : TLS_SHARE;
    lock(tls);
    int error = step(tls);
    if (!error && !tls->ended) {
        error = read_some(tls, place, bytes, &got);
    }
    if (tls->filled > tls->sent) {
        out_flush(tls); /* reading may make OpenSSL send something, such as a change of keys */
    }
    /* If the place is full, OpenSSL may have more; and poll() does not report an end that has been read already. */
    atomic_store_explicit(&tls->more, got > 0 && (got == bytes || error != EAGAIN), memory_order_relaxed);
    unlock(tls);
    if (got > 0 || !error) {
        return (ssize_t)got;
    }
    errno = error;
    return -1;
}

bool tls_more(const struct tls *tls) {
    return atomic_load_explicit(&tls->more, memory_order_relaxed);
}

/* ---- writing ---- */

struct source {
    const struct iovec *parts;
    size_t n, skip; /* of the first part */
};

/* The bytes of the next record. If one part fills the record, or is the last part, they stay where they lie; otherwise they are
 * copied together into `place`. */
static const uint8_t *source_peek(const struct source *source, uint8_t place[TLS_RECORD], size_t *bytes) {
    const uint8_t *first = (const uint8_t *)source->parts->iov_base + source->skip;
    size_t left = source->parts->iov_len - source->skip, filled = 0, skip = source->skip;
    if (left >= TLS_RECORD || source->n == 1) {
        *bytes = left < TLS_RECORD ? left : TLS_RECORD;
        return first;
    }
    for (size_t i = 0; i < source->n && filled < TLS_RECORD; i++, skip = 0) {
        size_t part = source->parts[i].iov_len - skip, room = TLS_RECORD - filled;
        part = part < room ? part : room;
        memcpy(place + filled, (const uint8_t *)source->parts[i].iov_base + skip, part);
        filled += part;
    }
    *bytes = filled;
    return place;
}

static void source_skip(struct source *source, size_t bytes) {
    source->skip += bytes;
    while (source->n && source->skip >= source->parts->iov_len) {
        source->skip -= source->parts->iov_len;
        source->parts++;
        source->n--;
    }
}

/* Writes one record; the socket and the buffer together take all of it. */
static int write_record(struct tls *tls, struct source *source, size_t *taken) {
    uint8_t place[TLS_RECORD];
    size_t bytes, n = 0;
    const uint8_t *record = source_peek(source, place, &bytes);
    source_skip(source, bytes);
    tls->corked = source->n > 0;
    ERR_clear_error();
    int result = SSL_write_ex(tls->ssl, record, bytes, &n);
    *taken += n;
    return result == 1 ? 0 : note(tls, result);
}

ssize_t tls_write(struct tls *tls, const struct iovec *parts, size_t n) {
    struct source source = {parts, n, 0};
    size_t taken = 0, share = TLS_SHARE;
    source_skip(&source, 0);
    lock(tls);
    int error = step(tls);
    while (!error && source.n) {
        error = out_flush(tls);
        if (!error) {
            error = write_record(tls, &source, &taken);
        }
        if (taken >= share && atomic_load_explicit(&tls->waiting, memory_order_relaxed)) {
            unlock(tls);
            sched_yield(); /* a mutex has no queue: give the reader a chance to take it */
            lock(tls);
            share = taken + TLS_SHARE;
        }
    }
    if (tls->filled > tls->sent) {
        out_flush(tls);
    }
    unlock(tls);
    if (taken > 0 || !error) {
        return (ssize_t)taken;
    }
    errno = error;
    return -1;
}

int tls_flush(struct tls *tls) {
    lock(tls);
    int error = out_flush(tls);
    unlock(tls);
    return error;
}

bool tls_unsent(const struct tls *tls) {
    return atomic_load_explicit(&tls->unsent, memory_order_relaxed);
}

void tls_end(struct tls *tls) {
    lock(tls);
    if (tls->ready && !tls->error) {
        ERR_clear_error();
        SSL_shutdown(tls->ssl);
        ERR_clear_error();
    }
    out_flush(tls);
    unlock(tls);
}

/* ---- the peer and the cipher ---- */

const char *tls_peer_name(const struct tls *tls) {
    return tls->name;
}

const char *tls_cipher(const struct tls *tls) {
    return SSL_get_cipher_name(tls->ssl);
}

bool tls_resumed(const struct tls *tls) {
    return SSL_session_reused(tls->ssl);
}
