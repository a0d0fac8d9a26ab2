/* TLS handshakes on threads of their own: to sign for one takes as long as tens of thousands of small operations, and how many
 * are asked for strangers decide. The threads have a lower priority than the loop.
 *
 * Loop thread only, but for what handshake.c says of its own threads. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

#include "proto/net/transport.h"

enum { HANDSHAKE_THREADS_MAX = 4 };

/* One step of a handshake: as far as what has come of it goes. */
struct handshake {
    TAILQ_ENTRY(handshake) link;
    struct transport transport; /* the owner's, who leaves it alone meanwhile; or what it has left behind */
    void (*done)(void *owner, int error);
    void *owner; /* NULL: it has left */
    int error;
    bool taken; /* a thread has it, or has had it; under the lock */
};

TAILQ_HEAD(handshake_queue, handshake);

struct handshakes {
    uv_async_t async;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct handshake_queue waiting, done; /* under the lock, */
    bool ending;                          /* too */
    unsigned n_threads;
    pthread_t threads[HANDSHAKE_THREADS_MAX];
};

int handshakes_init(struct handshakes *handshakes, uv_loop_t *loop);
/* Nobody waits for one any more. The loop must run once more to close the handle. */
void handshakes_finish(struct handshakes *handshakes);

/* Takes the next step; `done` is called from the loop, with what transport_handshake() returned. Threads are started with the
 * first one. NULL: there is no memory, or no thread, for it. */
struct handshake *handshake_begin(struct handshakes *handshakes, const struct transport *transport,
                                  void (*done)(void *owner, int error), void *owner);
/* The owner goes: `done` is not called, and the transport is finished: at once where no thread has begun with the step, so
 * that no more wait than there are owners, and else when it has been taken. */
void handshake_leave(struct handshakes *handshakes, struct handshake *handshake);
