/* The front's certificate, its key and those of tickets: read from their files at the start and whenever asked, checked,
 * and given to all workers. Front thread only. */
#pragma once

#include <uv.h>

#include "proto/net/tls.h"
#include "server/front/config.h"

struct front;

/* What has been read and checked. */
struct front_tls_fresh {
    struct tls_context *context;       /* for control connections; NULL: the configuration names no certificate */
    int credentials;                   /* the same for workers (credentials.h); -1: none */
    struct tls_server_options options; /* what both were made of */
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
/* New connections get what was read, which is the front's from now on; those that are open go on with what they began
 * with. Sessions begun before are not resumed: clients may have lost their right to them. */
void front_tls_take(struct front *front, struct front_tls_fresh *fresh);
/* For what is not taken. */
void front_tls_drop(struct front_tls_fresh *fresh);
