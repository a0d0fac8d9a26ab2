/* TLS contexts: what the connections of a server or of a client share. Also the name of a client by its certificate. */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/net/tls_impl.h"

/* The order of the cipher suites depends on the processor: AES comes first if the processor has instructions for it. Of the AES
 * suites the 128-bit one comes first: nobody can break it, and it needs 10 rounds instead of 14. */
static const char suites_aes[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
static const char suites_chacha[] = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384";

int tls_explain(struct fault *fault, enum status code, const char *what) {
    unsigned long error = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(error);
    int status = fault_set(fault, code, "%s: %s", what, reason ? reason : "OpenSSL does not say why");
    ERR_clear_error();
    return status;
}

static bool have_aes(void) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    return __builtin_cpu_supports("aes");
#else
    return true;
#endif
}

/* ---- a client's name by its certificate ---- */

/* Whether a text can be a principal's name: lists of principals have commas between the names, and logs and tables show names. */
static bool usable(const unsigned char *text, size_t bytes) {
    if (bytes == 0 || bytes > TLS_NAME_MAX || text[0] == ' ' || text[bytes - 1] == ' ') {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < 0x20 || text[i] == 0x7f || text[i] == ',') {
            return false;
        }
    }
    return true;
}

/* Writes `kind` and the text to `name`. False: the text cannot be a name. */
static bool take(const ASN1_STRING *string, const char *kind, char name[TLS_NAME_MAX + 1]) {
    unsigned char *text = NULL;
    int bytes = string ? ASN1_STRING_to_UTF8(&text, string) : -1;
    size_t before = strlen(kind);
    bool good = bytes > 0 && usable(text, (size_t)bytes) && before + (size_t)bytes <= TLS_NAME_MAX;
    if (good) {
        memcpy(name, kind, before);
        memcpy(name + before, text, (size_t)bytes);
        name[before + (size_t)bytes] = 0;
    }
    OPENSSL_free(text);
    return good;
}

static bool take_alternative(X509 *certificate, char name[TLS_NAME_MAX + 1]) {
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool found = false;
    for (int i = 0; !found && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *entry = sk_GENERAL_NAME_value(names, i);
        const char *kind = entry->type == GEN_DNS     ? "dns:"
                           : entry->type == GEN_EMAIL ? "email:"
                           : entry->type == GEN_URI   ? "uri:"
                                                      : NULL;
        if (kind) {
            found = take(entry->d.ia5, kind, name);
        }
    }
    GENERAL_NAMES_free(names);
    return found;
}

/* Of several CNs the last one is the most specific; RFC 4514 writes it first. */
bool tls_certificate_name(X509 *certificate, char name[TLS_NAME_MAX + 1]) {
    X509_NAME *subject = X509_get_subject_name(certificate);
    int at = -1;
    for (int next; (next = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) {
        at = next;
    }
    name[0] = 0;
    if (at < 0) {
        return take_alternative(certificate, name);
    }
    return take(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), "", name);
}

/* ---- what both sides have ---- */

static int set_common(struct tls_context *context, struct fault *fault) {
    SSL_CTX *ssl = context->ssl;
    if (!SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) || !SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(ssl, have_aes() ? suites_aes : suites_chacha)) {
        return tls_explain(fault, STATUS_UNSUPPORTED, "TLS 1.3");
    }
    /* Idle connections keep no buffers. A partial write returns the number of bytes that it took, and a retry may come from
     * another address. */
    SSL_CTX_set_mode(ssl,
                     SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(ssl, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_max_early_data(ssl, 0);
    SSL_CTX_set_timeout(ssl, TLS_TICKET_LIFETIME_S);
    /* One read of the socket may bring several records. */
    SSL_CTX_set_read_ahead(ssl, 1);
    SSL_CTX_set_default_read_buffer_len(ssl, TLS_READ_AHEAD);
    SSL_CTX_set_app_data(ssl, context);
    return STATUS_OK;
}

static int make(bool server, struct tls_context **out, struct fault *fault) {
    /* The program may end while a thread of the library still uses a connection: OpenSSL must not clean up then. */
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    ERR_clear_error();
    struct tls_context *context = calloc(1, sizeof(*context));
    if (!context) {
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for TLS");
    }
    pthread_mutex_init(&context->lock, NULL);
    atomic_init(&context->holders, 1);
    context->server = server;
    context->ssl = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    int code = context->ssl ? set_common(context, fault) : tls_explain(fault, STATUS_NO_HOST_MEMORY, "TLS");
    if (code) {
        tls_context_release(context);
        return code;
    }
    *out = context;
    return STATUS_OK;
}

struct tls_context *tls_context_hold(struct tls_context *context) {
    atomic_fetch_add(&context->holders, 1);
    return context;
}

void tls_context_release(struct tls_context *context) {
    if (!context || atomic_fetch_sub(&context->holders, 1) > 1) {
        return;
    }
    SSL_SESSION_free(context->session);
    SSL_CTX_free(context->ssl);
    pthread_mutex_destroy(&context->lock);
    free(atomic_load(&context->spare));
    OPENSSL_cleanse(context->tickets, sizeof(context->tickets));
    free(context);
}

/* ---- servers ---- */

/* Nobody is there to type a passphrase. */
static int no_passphrase(char *text, int size, int writing, void *user) {
    (void)text;
    (void)size;
    (void)writing;
    (void)user;
    return -1;
}

static BIO *open_text(const char *text) {
    return BIO_new_mem_buf(text, -1);
}

static X509 *next_certificate(BIO *bio) {
    return PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
}

static int use_chain(SSL_CTX *ssl, const char *text, struct fault *fault) {
    BIO *bio = open_text(text);
    X509 *certificate = bio ? next_certificate(bio) : NULL;
    bool good = certificate && SSL_CTX_use_certificate(ssl, certificate) == 1;
    X509_free(certificate);
    while (good && (certificate = next_certificate(bio))) {
        good = SSL_CTX_add0_chain_cert(ssl, certificate) == 1;
        if (!good) {
            X509_free(certificate);
        }
    }
    BIO_free(bio);
    /* At the end of the text OpenSSL also notes an error, PEM_R_NO_START_LINE. */
    if (good && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
        good = !ERR_peek_last_error();
    }
    int code = good ? STATUS_OK : tls_explain(fault, STATUS_INVALID_ARGUMENT, "the certificate");
    ERR_clear_error();
    return code;
}

static int use_key(SSL_CTX *ssl, const char *text, struct fault *fault) {
    BIO *bio = open_text(text);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
    BIO_free(bio);
    if (!key && strstr(text, "ENCRYPTED")) {
        ERR_clear_error();
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the key: it has a passphrase, which nobody is here to type");
    }
    int code = STATUS_OK;
    if (!key) {
        code = tls_explain(fault, STATUS_INVALID_ARGUMENT, "the key");
    } else if (X509_check_private_key(SSL_CTX_get0_certificate(ssl), key) != 1) {
        code = fault_set(fault, STATUS_INVALID_ARGUMENT, "the key: it is not the certificate's");
    } else if (SSL_CTX_use_PrivateKey(ssl, key) != 1) {
        code = tls_explain(fault, STATUS_INVALID_ARGUMENT, "the key");
    }
    EVP_PKEY_free(key);
    ERR_clear_error();
    return code;
}

static int trust_clients(SSL_CTX *ssl, const char *text, struct fault *fault) {
    BIO *bio = text ? open_text(text) : NULL;
    X509_STORE *store = SSL_CTX_get_cert_store(ssl);
    X509 *certificate;
    unsigned n = 0;
    bool good = true;
    while (bio && good && (certificate = next_certificate(bio))) {
        good = X509_STORE_add_cert(store, certificate) == 1 && SSL_CTX_add_client_CA(ssl, certificate) == 1;
        X509_free(certificate);
        n++;
    }
    BIO_free(bio);
    good = good && n && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    int code = good ? STATUS_OK : tls_explain(fault, STATUS_INVALID_ARGUMENT, "the clients' CA");
    ERR_clear_error();
    return code;
}

static const struct tls_ticket_key *find_ticket_key(const struct tls_context *context, const unsigned char *name) {
    for (unsigned i = 0; i < TLS_TICKET_KEYS; i++) {
        if (memcmp(context->tickets[i].name, name, sizeof(context->tickets[i].name)) == 0) {
            return &context->tickets[i];
        }
    }
    return NULL;
}

/* OpenSSL calls this for the keys of a ticket: of a new one, or of one that a client shows. */
static int use_ticket_key(SSL *ssl, unsigned char name[16], unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
                          int making) {
    const struct tls_context *context = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const struct tls_ticket_key *key = making ? &context->tickets[0] : find_ticket_key(context, name);
    if (!key) {
        return 0; /* the key is too old: the client makes a new TLS session */
    }
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)(uintptr_t)key->mac, sizeof(key->mac)),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)(uintptr_t) "SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    if (making) {
        memcpy(name, key->name, sizeof(key->name));
        if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) != 1) {
            return -1;
        }
    }
    if (EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->cipher, iv, making) != 1 ||
        EVP_MAC_CTX_set_params(mac, parameters) != 1) {
        return -1;
    }
    return making ? 1 : 2; /* 2: also give the client a new ticket, because each ticket should be used only once */
}

/* A resumed TLS session does not check the client's certificate again, so this refuses it once the certificate has expired. */
static SSL_TICKET_RETURN accept_ticket(SSL *ssl, SSL_SESSION *session, const unsigned char *name, size_t bytes,
                                       SSL_TICKET_STATUS status, void *user) {
    (void)ssl;
    (void)name;
    (void)bytes;
    (void)user;
    if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW) {
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    }
    const X509 *client = SSL_SESSION_get0_peer(session);
    if (client && X509_cmp_current_time(X509_get0_notAfter(client)) < 0) {
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    }
    return SSL_TICKET_RETURN_USE_RENEW;
}

/* The certificate's name is the client's name, so a certificate without a name is refused. */
static int check_client(int good, X509_STORE_CTX *store) {
    char name[TLS_NAME_MAX + 1];
    if (!good || X509_STORE_CTX_get_error_depth(store) > 0 ||
        tls_certificate_name(X509_STORE_CTX_get_current_cert(store), name)) {
        return good;
    }
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}

static int set_server(struct tls_context *context, const struct tls_server_options *options, struct fault *fault) {
    static const unsigned char name[] = "tensord";
    SSL_CTX *ssl = context->ssl;
    int code = use_chain(ssl, options->certificate, fault);
    if (!code) {
        code = use_key(ssl, options->key, fault);
    }
    if (!code && options->client_auth != TLS_CLIENT_NONE) {
        code = trust_clients(ssl, options->client_ca, fault);
        SSL_CTX_set_verify(
            ssl, SSL_VERIFY_PEER | (options->client_auth == TLS_CLIENT_REQUIRED ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
            check_client);
    }
    if (code) {
        return code;
    }
    context->client_auth = options->client_auth;
    memcpy(context->tickets, options->tickets, sizeof(context->tickets));
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF); /* a ticket has everything that any process needs */
    SSL_CTX_set_num_tickets(ssl, 1);
    if (SSL_CTX_set_session_id_context(ssl, name, sizeof(name) - 1) != 1 ||
        SSL_CTX_set_tlsext_ticket_key_evp_cb(ssl, use_ticket_key) != 1 ||
        SSL_CTX_set_session_ticket_cb(ssl, NULL, accept_ticket, NULL) != 1) {
        return tls_explain(fault, STATUS_INTERNAL, "session tickets");
    }
    return STATUS_OK;
}

int tls_server_create(const struct tls_server_options *options, struct tls_context **out, struct fault *fault) {
    struct tls_context *context;
    int code = make(true, &context, fault);
    if (code) {
        return code;
    }
    code = set_server(context, options, fault);
    if (code) {
        tls_context_release(context);
        return code;
    }
    *out = context;
    return STATUS_OK;
}

void tls_server_check_dates(const struct tls_context *context, char *text, size_t size) {
    const X509 *certificate = SSL_CTX_get0_certificate(context->ssl);
    *text = 0;
    if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
        snprintf(text, size, "the certificate is not valid yet");
    } else if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
        snprintf(text, size, "the certificate has expired");
    }
}

int tls_ticket_key_make(struct tls_ticket_key *key, struct fault *fault) {
    if (RAND_bytes((unsigned char *)key, sizeof(*key)) != 1) {
        return tls_explain(fault, STATUS_INTERNAL, "no random numbers");
    }
    return STATUS_OK;
}

/* ---- clients ---- */

/* A ticket has come: keeps the newest one for the next connection. */
static int keep_session(SSL *ssl, SSL_SESSION *session) {
    struct tls_context *context = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    pthread_mutex_lock(&context->lock);
    SSL_SESSION *before = context->session;
    context->session = session;
    pthread_mutex_unlock(&context->lock);
    SSL_SESSION_free(before);
    return 1;
}

/* Whether a line of the file begins a key in PEM, with or without a passphrase. */
static bool has_key(FILE *file) {
    char line[128];
    while (fgets(line, sizeof(line), file)) {
        if (strncmp(line, "-----BEGIN ", 11) == 0 && strstr(line, "PRIVATE KEY-----")) {
            return true;
        }
    }
    return false;
}

/* OpenSSL would say "system lib" if the file cannot be opened, and "PEM lib" if there is no key in it. `missing`: what to say
 * then; NULL: the file is not for a key. */
static int file_fault(struct fault *fault, const char *what, const char *path, const char *missing) {
    char text[200];
    FILE *file = fopen(path, "re");
    snprintf(text, sizeof(text), "%s %.120s", what, path);
    if (!file) {
        int error = errno;
        ERR_clear_error();
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s", text,
                         strerrordesc_np(error) ? strerrordesc_np(error) : "it cannot be opened");
    }
    bool empty = missing && !has_key(file);
    fclose(file);
    if (empty) {
        ERR_clear_error();
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s", text, missing);
    }
    return tls_explain(fault, STATUS_INVALID_ARGUMENT, text);
}

static int set_files(SSL_CTX *ssl, const struct tls_client_options *options, struct fault *fault) {
    const char *key = options->key ? options->key : options->certificate;
    if (!options->ca && SSL_CTX_set_default_verify_paths(ssl) != 1) {
        return tls_explain(fault, STATUS_INVALID_ARGUMENT, "the CA's certificates, the system's");
    }
    if (options->ca && SSL_CTX_load_verify_file(ssl, options->ca) != 1) {
        return file_fault(fault, "the CA's certificates,", options->ca, NULL);
    }
    if (!key) {
        return STATUS_OK;
    }
    if (!options->certificate) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a client's key, %.120s, without its certificate", key);
    }
    SSL_CTX_set_default_passwd_cb(ssl, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(ssl, options->certificate) != 1) {
        return file_fault(fault, "the client's certificate,", options->certificate, NULL);
    }
    if (SSL_CTX_use_PrivateKey_file(ssl, key, SSL_FILETYPE_PEM) != 1) {
        return file_fault(fault, "the client's key,", key,
                          options->key ? "there is no key in it"
                                       : "there is no key in it, and no other file is named for the key");
    }
    return STATUS_OK;
}

int tls_client_create(const struct tls_client_options *options, struct tls_context **out, struct fault *fault) {
    struct tls_context *context;
    struct in6_addr address;
    int code = make(false, &context, fault);
    if (code) {
        return code;
    }
    snprintf(context->host, sizeof(context->host), "%s", options->host);
    context->host_is_address =
        inet_pton(AF_INET, options->host, &address) == 1 || inet_pton(AF_INET6, options->host, &address) == 1;
    code = set_files(context->ssl, options, fault);
    if (code) {
        tls_context_release(context);
        return code;
    }
    SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context->ssl, keep_session);
    *out = context;
    return STATUS_OK;
}
