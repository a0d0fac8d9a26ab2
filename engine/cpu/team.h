/* A device's threads, for loops whose parts do not depend on each other.
 *
 * Threads: one thread at a time may call team_run(); it takes part in the work. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct team {
    unsigned threads; /* the caller of team_run() included */
    pthread_t *workers;
    /* The job. The upper half of `ticket` is its number, the lower half the number of parts that no thread has taken yet. A worker takes a
     * part by a compare-exchange, which fails if the worker has read an older job. */
    _Atomic(void (*)(void *context, unsigned part)) body;
    _Atomic(void *) context;
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic uint32_t unfinished; /* parts; futex of the caller */
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t posts; /* jobs posted; futex of the workers */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
};

/* Starts threads - 1 workers, or fewer if the system refuses. */
void team_init(struct team *team, unsigned threads);
void team_finish(struct team *team);

/* Calls body(context, 0) … body(context, parts - 1), in any order and on several threads, and returns when all calls have returned. It
 * pays from some 20 µs of work on: waking a sleeping core takes that long, though the caller works meanwhile. */
void team_run(struct team *team, unsigned parts, void (*body)(void *context, unsigned part), void *context);
