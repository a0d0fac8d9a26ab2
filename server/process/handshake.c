#include "server/process/handshake.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/device/thread.h"

enum { HANDSHAKE_NICE = 10 };

/* ---- on the threads ---- */

static void *handshake_main(void *argument) {
    struct handshakes *handshakes = argument;
    struct handshake *handshake;

    thread_begin("handshake");
    setpriority(PRIO_PROCESS, (id_t)gettid(), HANDSHAKE_NICE);
    pthread_mutex_lock(&handshakes->lock);
    while (!handshakes->ending) {
        handshake = TAILQ_FIRST(&handshakes->waiting);
        if (!handshake) {
            pthread_cond_wait(&handshakes->work, &handshakes->lock);
            continue;
        }
        TAILQ_REMOVE(&handshakes->waiting, handshake, link);
        handshake->taken = true;
        pthread_mutex_unlock(&handshakes->lock);
        handshake->error = transport_handshake(&handshake->transport);
        pthread_mutex_lock(&handshakes->lock);
        TAILQ_INSERT_TAIL(&handshakes->done, handshake, link);
        uv_async_send(&handshakes->async);
    }
    pthread_mutex_unlock(&handshakes->lock);
    thread_end();
    return NULL;
}

/* ---- on the loop's thread ---- */

static void handshake_over(struct handshake *handshake) {
    if (handshake->owner)
        handshake->done(handshake->owner, handshake->error);
    else
        transport_finish(&handshake->transport);
    free(handshake);
}

static void handshakes_take(struct handshakes *handshakes, struct handshake_queue *from) {
    struct handshake_queue taken = TAILQ_HEAD_INITIALIZER(taken);
    struct handshake *handshake;

    pthread_mutex_lock(&handshakes->lock);
    TAILQ_CONCAT(&taken, from, link);
    pthread_mutex_unlock(&handshakes->lock);
    while ((handshake = TAILQ_FIRST(&taken))) {
        TAILQ_REMOVE(&taken, handshake, link);
        handshake_over(handshake);
    }
}

static void handshakes_on_async(uv_async_t *async) {
    struct handshakes *handshakes = async->data;

    handshakes_take(handshakes, &handshakes->done);
}

static unsigned handshakes_threads_wanted(void) {
    cpu_set_t cpus;
    int n = sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : CPU_COUNT(&cpus) / 2;

    return n < 1 ? 1 : n > HANDSHAKE_THREADS_MAX ? HANDSHAKE_THREADS_MAX : (unsigned)n;
}

/* Starts the threads, if they do not run yet. False: no thread can be started. */
static bool handshakes_start(struct handshakes *handshakes) {
    unsigned wanted = handshakes->n_threads ? 0 : handshakes_threads_wanted();
    sigset_t before;

    if (!wanted)
        return true;
    thread_block_signals(&before);
    while (handshakes->n_threads < wanted &&
           !pthread_create(&handshakes->threads[handshakes->n_threads], NULL, handshake_main, handshakes))
        handshakes->n_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return handshakes->n_threads > 0;
}

int handshakes_init(struct handshakes *handshakes, uv_loop_t *loop) {
    *handshakes = (struct handshakes){.ending = false};
    pthread_mutex_init(&handshakes->lock, NULL);
    pthread_cond_init(&handshakes->work, NULL);
    TAILQ_INIT(&handshakes->waiting);
    TAILQ_INIT(&handshakes->done);
    handshakes->async.data = handshakes;
    return uv_async_init(loop, &handshakes->async, handshakes_on_async);
}

void handshakes_finish(struct handshakes *handshakes) {
    pthread_mutex_lock(&handshakes->lock);
    handshakes->ending = true;
    pthread_cond_broadcast(&handshakes->work);
    pthread_mutex_unlock(&handshakes->lock);
    while (handshakes->n_threads)
        pthread_join(handshakes->threads[--handshakes->n_threads], NULL);
    handshakes_take(handshakes, &handshakes->waiting);
    handshakes_take(handshakes, &handshakes->done);
    uv_close((uv_handle_t *)&handshakes->async, NULL);
    pthread_cond_destroy(&handshakes->work);
    pthread_mutex_destroy(&handshakes->lock);
}

struct handshake *handshake_begin(struct handshakes *handshakes, const struct transport *transport,
                                  void (*done)(void *owner, int error), void *owner) {
    struct handshake *handshake = handshakes_start(handshakes) ? malloc(sizeof *handshake) : NULL;

    if (!handshake)
        return NULL;
    *handshake = (struct handshake){.transport = *transport, .done = done, .owner = owner};
    pthread_mutex_lock(&handshakes->lock);
    TAILQ_INSERT_TAIL(&handshakes->waiting, handshake, link);
    pthread_cond_signal(&handshakes->work);
    pthread_mutex_unlock(&handshakes->lock);
    return handshake;
}

void handshake_leave(struct handshakes *handshakes, struct handshake *handshake) {
    handshake->owner = NULL;
    pthread_mutex_lock(&handshakes->lock);
    bool taken = handshake->taken;
    if (!taken)
        TAILQ_REMOVE(&handshakes->waiting, handshake, link);
    pthread_mutex_unlock(&handshakes->lock);
    if (!taken)
        handshake_over(handshake);
}
