#include "server/front/front_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/ops/cleanup.h"
#include "server/front/front.h"
#include "server/process/log.h"

/* A ticket is valid for one rotation, and its key is kept for two, so a ticket can be used as long as it is valid. */
#define FRONT_TLS_ROTATION_MS (TLS_TICKET_LIFETIME_S * UINT64_C(1000))

/* ---- files ---- */

/* Refuses a secret file that other users may read or change. */
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

static int front_tls_read_file(const char *path, bool secret, const char **text, struct fault *fault) {
    CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    size_t size = 0, have = 0;
    ssize_t got = 1;
    if (fd < 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
    int error = front_tls_check_file(fd, path, secret, &size, fault);
    if (error)
        return error;
    char *bytes = malloc(size + 1);
    if (!bytes)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "%s: no memory for it", path);
    while (have < size && got > 0) {
        got = read(fd, bytes + have, size - have);
        have += got > 0 ? (size_t)got : 0;
    }
    bytes[have] = 0;
    if (got < 0 || strlen(bytes) != have) {
        error = fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s", path, got < 0 ? strerror(errno) : "not a PEM file");
        explicit_bzero(bytes, size);
        free(bytes);
        return error;
    }
    *text = bytes;
    return STATUS_OK;
}

static void front_tls_forget(struct tls_server_options *options) {
    if (options->key)
        explicit_bzero((char *)(uintptr_t)options->key, strlen(options->key));
    free((char *)(uintptr_t)options->certificate);
    free((char *)(uintptr_t)options->key);
    free((char *)(uintptr_t)options->client_ca);
    explicit_bzero(options->tickets, sizeof options->tickets);
    *options = (struct tls_server_options){0};
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
    int error = front_tls_client_auth(config, &options->client_auth, fault);
    if (!error)
        error = front_tls_read_file(config->tls_certificate, false, &options->certificate, fault);
    if (!error)
        error = front_tls_read_file(key, true, &options->key, fault);
    if (!error && options->client_auth != TLS_CLIENT_NONE)
        error = front_tls_read_file(config->tls_client_ca, false, &options->client_ca, fault);
    for (unsigned i = 0; i < TLS_TICKET_KEYS && !error; i++)
        error = tls_ticket_key_make(&options->tickets[i], fault);
    return error;
}

/* ---- putting it to use ---- */

void front_tls_drop(struct front_tls_fresh *fresh) {
    tls_context_release(fresh->context);
    if (fresh->credentials >= 0)
        close(fresh->credentials);
    front_tls_forget(&fresh->options);
    *fresh = (struct front_tls_fresh){.credentials = -1};
}

/* Makes context and credentials from fresh->options. */
static int front_tls_make(struct front_tls_fresh *fresh, struct fault *fault) {
    int error = tls_server_create(&fresh->options, &fresh->context, fault);
    return error ? error : credentials_seal(&fresh->options, &fresh->credentials, fault);
}

int front_tls_read(const struct config *config, struct front_tls_fresh *fresh, struct fault *fault) {
    *fresh = (struct front_tls_fresh){.credentials = -1};
    if (!*config->tls_certificate)
        return *config->tls_key || *config->tls_client_ca || config->tls_client_auth > CONFIG_CLIENT_NONE
                   ? fault_set(fault, STATUS_INVALID_ARGUMENT, "tls-…: of no use without tls-certificate")
                   : STATUS_OK;
    struct fault cause;
    int code = front_tls_load(config, &fresh->options, &cause);
    if (!code)
        code = front_tls_make(fresh, &cause);
    if (code) {
        front_tls_drop(fresh);
        return fault_set(fault, (enum status)code, "tls-certificate %.60s: %.180s", config->tls_certificate,
                         cause.message);
    }
    return STATUS_OK;
}

/* Puts `fresh` into force and drops the old one. */
static void front_tls_replace(struct front *front, struct front_tls_fresh *fresh) {
    struct front_tls_fresh before = front->tls.now;
    front->tls.now = *fresh;
    *fresh = (struct front_tls_fresh){.credentials = -1};
    supervisor_set_credentials(&front->supervisor, front->tls.now.credentials);
    front_tls_drop(&before);
}

static char *front_tls_copy(const char *text) {
    return text ? strdup(text) : NULL;
}

static void front_tls_rotate(uv_timer_t *timer) {
    struct front *front = timer->data;
    const struct tls_server_options *now = &front->tls.now.options;
    struct front_tls_fresh fresh = {
        .credentials = -1,
        .options =
            {
                .certificate = front_tls_copy(now->certificate),
                .key = front_tls_copy(now->key),
                .client_ca = front_tls_copy(now->client_ca),
                .client_auth = now->client_auth,
            },
    };
    struct fault fault;
    memcpy(&fresh.options.tickets[1], &now->tickets[0], (TLS_TICKET_KEYS - 1) * sizeof now->tickets[0]);
    int error = fresh.options.certificate && fresh.options.key && (fresh.options.client_ca || !now->client_ca)
                    ? tls_ticket_key_make(&fresh.options.tickets[0], &fault)
                    : fault_set(&fault, STATUS_NO_HOST_MEMORY, "no memory for certificates");
    if (!error)
        error = front_tls_make(&fresh, &fault);
    if (!error)
        front_tls_replace(front, &fresh);
    else
        log_event(LOG_LEVEL_WARNING, "tls_rotation_failed", "cause", fault.message, NULL);
    front_tls_drop(&fresh);
}

void front_tls_take(struct front *front, struct front_tls_fresh *fresh) {
    const char *file = front->config->tls_certificate;
    char text[128];
    if (!fresh->context)
        return;
    front_tls_replace(front, fresh);
    tls_server_check_dates(front->tls.now.context, text, sizeof text);
    if (*text)
        log_event(LOG_LEVEL_WARNING, "tls_certificate", "file", file, "cause", text, NULL);
    log_event(LOG_LEVEL_INFO, "tls_loaded", "certificate", file, NULL);
    uv_timer_start(&front->tls.rotation, front_tls_rotate, FRONT_TLS_ROTATION_MS, FRONT_TLS_ROTATION_MS);
}

/* ---- life ---- */

void front_tls_init(struct front *front) {
    front->tls = (struct front_tls){.now.credentials = -1};
    uv_timer_init(&front->loop, &front->tls.rotation);
    front->tls.rotation.data = front;
}

int front_tls_start(struct front *front, struct fault *fault) {
    struct front_tls_fresh fresh;
    int error = front_tls_read(front->config, &fresh, fault);
    if (error)
        return error;
    front_tls_take(front, &fresh);
    front->listeners.have_certificate = front->tls.now.context;
    front->listeners.clients_show_certificates = front->tls.now.options.client_auth == TLS_CLIENT_REQUIRED;
    return STATUS_OK;
}

void front_tls_finish(struct front *front) {
    uv_close((uv_handle_t *)&front->tls.rotation, NULL);
    front_tls_drop(&front->tls.now);
}
