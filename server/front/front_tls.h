/* The front's certificate and its key, read from their files at the start and on each reload, and the keys of TLS
 * tickets. They are checked and sent to the workers. Front thread only. */
#pragma once

#include <uv.h>

#include "proto/net/tls.h"
#include "server/front/config.h"

struct front;

/* Certificates that have been read and checked. */
struct front_tls_fresh {
    struct tls_context *context;       /* for control connections; NULL: the configuration names no certificate */
    int credentials;                   /* a descriptor with the same for workers (credentials_open()); -1: none */
    struct tls_server_options options; /* from which both were made */
};

struct front_tls {
    struct front_tls_fresh now;
    uv_timer_t rotation; /* of the tickets' keys */
};

void front_tls_init(struct front *front);
/* The first read. */
int front_tls_start(struct front *front, struct fault *fault);
/* Closes the handle; the caller runs the loop. */
void front_tls_finish(struct front *front);

/* Reads the files that the configuration names, and changes nothing. The fault names the file and what is wrong. */
int front_tls_read(const struct config *config, struct front_tls_fresh *fresh, struct fault *fault);
/* Puts `fresh` into force, and takes it over: new connections use it, and open ones keep their certificates. TLS
 * sessions from before are not resumed, because their clients may have lost their right to them. */
void front_tls_take(struct front *front, struct front_tls_fresh *fresh);
/* Frees a `fresh` that was not taken. */
void front_tls_drop(struct front_tls_fresh *fresh);
