#include "tests/unit/tls_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void require(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "tls_pair: %s\n", what);
    abort();
}

static X509 *make_certificate(EVP_PKEY *key) {
    X509 *certificate = X509_new();
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "DNS:here.example");
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"here.example", -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    X509_set_pubkey(certificate, key);
    X509_add_ext(certificate, san, -1);
    X509_EXTENSION_free(san);
    require(X509_sign(certificate, key, EVP_sha256()) > 0, "sign");
    return certificate;
}

static char *text_of(BIO *bio) {
    char *data;
    long n = BIO_get_mem_data(bio, &data);
    char *text = strndup(data, (size_t)n);
    BIO_free(bio);
    return text;
}

static void make_texts(char **certificate, char **key) {
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *x509 = make_certificate(pair);
    BIO *first = BIO_new(BIO_s_mem()), *second = BIO_new(BIO_s_mem());
    require(PEM_write_bio_X509(first, x509) && PEM_write_bio_PrivateKey(second, pair, NULL, NULL, 0, NULL, NULL),
            "PEM");
    *certificate = text_of(first);
    *key = text_of(second);
    X509_free(x509);
    EVP_PKEY_free(pair);
}

static void make_contexts(struct tls_pair *pair) {
    struct fault fault = {0};
    struct tls_server_options server = {.client_auth = TLS_CLIENT_NONE};
    char *certificate, *key, path[64];
    make_texts(&certificate, &key);
    server.certificate = certificate;
    server.key = key;
    for (int i = 0; i < TLS_TICKET_KEYS; i++)
        require(!tls_ticket_key_make(&server.tickets[i], &fault), fault.message);
    require(!tls_server_create(&server, &pair->server_context, &fault), fault.message);
    snprintf(pair->directory, sizeof pair->directory, "/tmp/tls-pair.XXXXXX");
    require(mkdtemp(pair->directory), "mkdtemp");
    snprintf(path, sizeof path, "%s/ca.pem", pair->directory);
    FILE *file = fopen(path, "we");
    require(file && fputs(certificate, file) >= 0 && !fclose(file), path);
    struct tls_client_options client = {.host = "here.example", .ca = path};
    require(!tls_client_create(&client, &pair->client_context, &fault), fault.message);
    unlink(path);
    rmdir(pair->directory);
    free(certificate);
    free(key);
}

static void make_ends(struct tls_pair *pair, int buffer) {
    struct fault fault = {0};
    int fds[2];
    require(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), "socketpair");
    for (int i = 0; i < 2 && buffer; i++)
        setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    require(!transport_init(&pair->server, fds[0], pair->server_context, &fault), fault.message);
    require(!transport_init(&pair->client, fds[1], pair->client_context, &fault), fault.message);
}

void tls_pair_make(struct tls_pair *pair, int buffer) {
    *pair = (struct tls_pair){0};
    make_contexts(pair);
    make_ends(pair, buffer);
}

void tls_pair_again(struct tls_pair *pair, int buffer) {
    transport_finish(&pair->client);
    transport_finish(&pair->server);
    make_ends(pair, buffer);
}

void tls_pair_shake(struct tls_pair *pair) {
    int client, server;
    do {
        client = transport_handshake(&pair->client);
        server = transport_handshake(&pair->server);
        require((!client || client == EAGAIN) && (!server || server == EAGAIN), "handshake");
    } while (client || server);
}

void tls_pair_finish(struct tls_pair *pair) {
    transport_finish(&pair->client);
    transport_finish(&pair->server);
    tls_context_release(pair->client_context);
    tls_context_release(pair->server_context);
}
