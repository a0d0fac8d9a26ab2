/* The front's certificate, its key and those of tickets: read from their files at the start and whenever asked, checked,
 * and given to all workers. Front thread only. */
#pragma once

#include <uv.h>

#include "proto/tls.h"

struct front;

struct front_tls {
    struct tls_context *context;       /* for control connections; NULL: no TLS here */
    int credentials;                   /* the same for workers; -1: none */
    struct tls_server_options options; /* what both were made of */
    uv_timer_t rotation;               /* of the tickets' keys */
};

void front_tls_init(struct front *front);
/* Closes the handle; the caller runs the loop. */
void front_tls_finish(struct front *front);
/* Reads the files that the configuration names, none where it names none. New connections get what they hold now; those
 * that are open go on with what they began with. Sessions begun before are not resumed: clients may have lost their
 * right to them. On failure all stays as it is, and `fault` names the file and what is wrong with it. */
int front_tls_reload(struct front *front, struct fault *fault);
