#include "server/front_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/credentials.h"
#include "server/front.h"
#include "server/log.h"

/* A ticket lives for one turn, and its key for two: it can be used as long as it lives. */
#define FRONT_TLS_ROTATION_MS (TLS_TICKET_LIFETIME_S * UINT64_C(1000))

/* ---- files ---- */

/* A key that others can read is nobody's secret. */
static int front_tls_check_file(int fd, const char *path, bool secret, size_t *size, struct fault *fault) {
    struct stat file;
    if (fstat(fd, &file) || !S_ISREG(file.st_mode))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: not a file", path);
    if (secret && file.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))
        return fault_set(fault, STATUS_DENIED, "%s: others may %s this key; chmod 600 makes it the owner's alone", path,
                         file.st_mode & S_IROTH ? "read" : "change");
    if (file.st_size > CREDENTIALS_TEXT_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: larger than %d bytes", path, CREDENTIALS_TEXT_MAX);
    *size = (size_t)file.st_size;
    return STATUS_OK;
}

static int front_tls_read_open(int fd, const char *path, bool secret, char **text, struct fault *fault) {
    size_t size = 0, have = 0;
    ssize_t got = 1;
    int code = front_tls_check_file(fd, path, secret, &size, fault);
    if (code)
        return code;
    char *bytes = malloc(size + 1);
    if (!bytes)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "%s: no memory for it", path);
    while (have < size && got > 0) {
        got = read(fd, bytes + have, size - have);
        have += got > 0 ? (size_t)got : 0;
    }
    bytes[have] = 0;
    if (got < 0 || strlen(bytes) != have) {
        code = fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s", path, got < 0 ? strerror(errno) : "not a PEM file");
        explicit_bzero(bytes, size);
        free(bytes);
        return code;
    }
    *text = bytes;
    return STATUS_OK;
}

static int front_tls_read(const char *path, bool secret, const char **text, struct fault *fault) {
    char *bytes = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
    int code = front_tls_read_open(fd, path, secret, &bytes, fault);
    close(fd);
    *text = bytes;
    return code;
}

static void front_tls_forget(struct tls_server_options *options) {
    if (options->key)
        explicit_bzero((char *)(uintptr_t)options->key, strlen(options->key));
    free((char *)(uintptr_t)options->certificate);
    free((char *)(uintptr_t)options->key);
    free((char *)(uintptr_t)options->client_ca);
    explicit_bzero(options, sizeof *options);
}

/* ---- what the configuration says ---- */

static int front_tls_client_auth(const struct config *config, enum tls_client_auth *auth, struct fault *fault) {
    static const enum tls_client_auth meanings[] = {
        [CONFIG_CLIENT_NONE] = TLS_CLIENT_NONE,
        [CONFIG_CLIENT_OPTIONAL] = TLS_CLIENT_OPTIONAL,
        [CONFIG_CLIENT_REQUIRED] = TLS_CLIENT_REQUIRED,
    };
    bool ca = *config->tls_client_ca;
    if (config->tls_client_auth == CONFIG_CLIENT_UNSAID)
        *auth = ca ? TLS_CLIENT_REQUIRED : TLS_CLIENT_NONE;
    else
        *auth = meanings[config->tls_client_auth];
    if (*auth != TLS_CLIENT_NONE && !ca)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "tls-client-auth: without tls-client-ca no certificate of a client can be checked");
    return STATUS_OK;
}

static int front_tls_load(const struct config *config, struct tls_server_options *options, struct fault *fault) {
    const char *key = *config->tls_key ? config->tls_key : config->tls_certificate;
    int code = front_tls_client_auth(config, &options->client_auth, fault);
    if (!code)
        code = front_tls_read(config->tls_certificate, false, &options->certificate, fault);
    if (!code)
        code = front_tls_read(key, true, &options->key, fault);
    if (!code && options->client_auth != TLS_CLIENT_NONE)
        code = front_tls_read(config->tls_client_ca, false, &options->client_ca, fault);
    for (unsigned i = 0; i < TLS_TICKET_KEYS && !code; i++)
        code = tls_ticket_key_make(&options->tickets[i], fault);
    return code;
}

/* ---- putting it to use ---- */

/* Takes over the options, also on failure. */
static int front_tls_apply(struct front *front, struct tls_server_options *options, struct fault *fault) {
    struct front_tls *tls = &front->tls;
    struct tls_context *context = NULL;
    int credentials = -1, code = tls_server_create(options, &context, fault);
    if (!code)
        code = credentials_seal(options, &credentials, fault);
    if (code) {
        tls_context_release(context);
        front_tls_forget(options);
        return code;
    }
    supervisor_set_credentials(&front->supervisor, credentials);
    if (tls->credentials >= 0)
        close(tls->credentials);
    tls_context_release(tls->context);
    front_tls_forget(&tls->options);
    tls->context = context;
    tls->credentials = credentials;
    tls->options = *options;
    explicit_bzero(options, sizeof *options);
    return STATUS_OK;
}

static char *front_tls_copy(const char *text) {
    return text ? strdup(text) : NULL;
}

static void front_tls_rotate(uv_timer_t *timer) {
    struct front *front = timer->data;
    const struct tls_server_options *now = &front->tls.options;
    struct tls_server_options next = {
        .certificate = front_tls_copy(now->certificate),
        .key = front_tls_copy(now->key),
        .client_ca = front_tls_copy(now->client_ca),
        .client_auth = now->client_auth,
    };
    struct fault fault;
    memcpy(&next.tickets[1], &now->tickets[0], (TLS_TICKET_KEYS - 1) * sizeof next.tickets[0]);
    int code = next.certificate && next.key ? tls_ticket_key_make(&next.tickets[0], &fault)
                                            : fault_set(&fault, STATUS_NO_HOST_MEMORY, "no memory for certificates");
    if (code)
        front_tls_forget(&next);
    else
        code = front_tls_apply(front, &next, &fault);
    if (code)
        log_event(LOG_LEVEL_WARNING, "tls_rotation_failed", "cause", fault.message, NULL);
}

int front_tls_reload(struct front *front, struct fault *fault) {
    const struct config *config = front->config;
    struct tls_server_options options = {0};
    char text[128];
    if (!*config->tls_certificate)
        return *config->tls_key || *config->tls_client_ca || config->tls_client_auth > CONFIG_CLIENT_NONE
                   ? fault_set(fault, STATUS_INVALID_ARGUMENT, "tls-…: of no use without tls-certificate")
                   : STATUS_OK;
    struct fault cause;
    int code = front_tls_load(config, &options, &cause);
    if (code)
        front_tls_forget(&options);
    else
        code = front_tls_apply(front, &options, &cause);
    if (code)
        return fault_set(fault, (enum status)code, "tls-certificate %.60s: %.180s", config->tls_certificate,
                         cause.message);
    tls_server_check_dates(front->tls.context, text, sizeof text);
    if (*text)
        log_event(LOG_LEVEL_WARNING, "tls_certificate", "file", config->tls_certificate, "cause", text, NULL);
    log_event(LOG_LEVEL_INFO, "tls_loaded", "certificate", config->tls_certificate, NULL);
    front->listeners.have_certificate = true;
    front->listeners.clients_show_certificates = front->tls.options.client_auth == TLS_CLIENT_REQUIRED;
    uv_timer_start(&front->tls.rotation, front_tls_rotate, FRONT_TLS_ROTATION_MS, FRONT_TLS_ROTATION_MS);
    uv_unref((uv_handle_t *)&front->tls.rotation);
    return STATUS_OK;
}

/* ---- life ---- */

void front_tls_init(struct front *front) {
    front->tls = (struct front_tls){.credentials = -1};
    uv_timer_init(&front->loop, &front->tls.rotation);
    front->tls.rotation.data = front;
}

void front_tls_finish(struct front *front) {
    struct front_tls *tls = &front->tls;
    uv_close((uv_handle_t *)&tls->rotation, NULL);
    tls_context_release(tls->context);
    tls->context = NULL;
    front_tls_forget(&tls->options);
    if (tls->credentials >= 0)
        close(tls->credentials);
    tls->credentials = -1;
}
