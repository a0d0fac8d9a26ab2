/* Between the files of a worker: worker.c has its life and its service's calls, worker_channel.c its words with the front.
 * Loop thread only. */
#pragma once

#include <stddef.h>
#include <uv.h>

#include "server/worker/service.h"
#include "server/worker/state.h"
#include "server/worker/worker.h"
#include "server/worker/worker_stats.h"

struct worker {
    uv_loop_t loop;
    struct service service;
    struct worker_stats stats;
    struct state state;
    unsigned held_ups; /* calls within one another that may take long */
    int channel;
    uv_poll_t poll;          /* of the channel */
    struct tls_context *tls; /* for connections over TLS; NULL: the front has sent nothing */
    uint64_t deadline_ms;    /* after a failure of the device; 0: none */
    uint64_t *left;          /* sessions whose end the front is still to be told */
    size_t n_left;
    bool done;
    int status; /* to exit with */
};

/* worker_channel.c */
/* The poll handle's callback, whose data is the worker. */
void worker_on_channel(uv_poll_t *poll, int status, int events);
/* Calls of struct service_options; the owner is the worker. */
void worker_on_left(void *owner, uint64_t session);
void worker_on_greeted(void *owner, uint64_t session);
int worker_want_link(void *owner, const char *device, const char *principal, const uint8_t ticket[LINK_TICKET_BYTES]);
int worker_login(void *owner, const struct connection *connection, const char *token);
/* Ends that could not be told when they came. */
void worker_tell_left(struct worker *worker);
/* A fault that ends the worker, to the front and to the log. */
void worker_report(int channel, const struct fault *fault);
