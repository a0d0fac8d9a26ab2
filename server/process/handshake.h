/* TLS handshakes on threads of their own: the signature of one handshake takes as long as tens of thousands of small
 * operations, and strangers decide how many handshakes there are. The threads have a lower priority than the loop.
 *
 * Loop thread only, except where handshake.c says otherwise. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

#include "proto/net/transport.h"

enum { HANDSHAKE_THREADS_MAX = 4 };

/* One step of a handshake: it goes as far as the received bytes allow. */
struct handshake {
    TAILQ_ENTRY(handshake) link;
    /* The owner's transport, which the owner does not touch during the step; or left behind by an owner that is
     * gone. */
    struct transport transport;
    void (*done)(void *owner, int error);
    void *owner; /* NULL: the owner is gone */
    int error;
    bool taken; /* a thread has begun the step; under the lock */
};

TAILQ_HEAD(handshake_queue, handshake);

struct handshakes {
    uv_async_t async;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct handshake_queue waiting, done; /* under the lock */
    bool ending;                          /* under the lock */
    unsigned n_threads;
    pthread_t threads[HANDSHAKE_THREADS_MAX];
};

int handshakes_init(struct handshakes *handshakes, uv_loop_t *loop);
/* No `done` is called any more. The loop must run once more to close the handle. */
void handshakes_finish(struct handshakes *handshakes);

/* Takes the next step on a thread; then the loop calls `done` with the result of transport_handshake(). The first call
 * starts the threads. NULL: there is no memory or no thread for it. */
struct handshake *handshake_begin(struct handshakes *handshakes, const struct transport *transport,
                                  void (*done)(void *owner, int error), void *owner);
/* The owner goes: `done` is not called. If no thread has begun the step the transport is finished at once, so that
 * never more steps wait than there are owners; otherwise it is finished after the step. */
void handshake_leave(struct handshakes *handshakes, struct handshake *handshake);
