#include "engine/cuda/aside.h"

#include <stdlib.h>

#include "engine/cuda/cuda_device.h"
#include "engine/cuda/library.h"

struct device_aside {
    struct device_aside *next;
    struct device *device;
    struct device_stream *stream;
    const struct launch *launch;
    void (*moved)(void *context);
    void *context;
    /* under the lock */
    bool returned;
    int code;
    struct fault fault;
};

void asides_init(struct asides *asides, unsigned most) {
    *asides = (struct asides){.last = &asides->first, .most = most};
    pthread_mutex_init(&asides->lock, NULL);
    pthread_cond_init(&asides->work, NULL);
}

void asides_finish(struct asides *asides) {
    pthread_mutex_lock(&asides->lock);
    asides->stopping = true;
    pthread_cond_broadcast(&asides->work);
    pthread_mutex_unlock(&asides->lock);
    for (unsigned i = 0; i < asides->n_threads; i++)
        pthread_join(asides->threads[i], NULL);
    pthread_cond_destroy(&asides->work);
    pthread_mutex_destroy(&asides->lock);
}

/* With the lock held. */
static struct device_aside *asides_take(struct asides *asides) {
    struct device_aside *aside = asides->first;
    asides->first = aside->next;
    if (!asides->first)
        asides->last = &asides->first;
    asides->waiting--;
    return aside;
}

/* The library that the launch's kernel calls. */
static enum cuda_library aside_library(const struct device *device, const struct launch *launch) {
    return ((const struct cuda_kernel *)device->vtable->operations[launch->opcode])->library;
}

/* The aside may be gone when `moved` is called: its outcome can be asked for as soon as it is there. */
static void aside_call(struct asides *asides, struct device_aside *aside) {
    struct fault fault = {0};
    void (*moved)(void *context) = aside->moved;
    void *context = aside->context;
    enum cuda_library library = aside_library(aside->device, aside->launch);
    int code = aside->device->vtable->launch(aside->device, aside->stream, aside->launch, &fault);
    cuda_library_aside(cuda_of(aside->device), library, -1);
    pthread_mutex_lock(&asides->lock);
    aside->code = code;
    aside->fault = fault;
    aside->returned = true;
    pthread_mutex_unlock(&asides->lock);
    moved(context);
}

static void *asides_main(void *argument) {
    struct asides *asides = argument;
    pthread_mutex_lock(&asides->lock);
    while (asides->first || !asides->stopping) {
        if (!asides->first) {
            asides->idle++;
            pthread_cond_wait(&asides->work, &asides->lock);
            asides->idle--;
            continue;
        }
        struct device_aside *aside = asides_take(asides);
        pthread_mutex_unlock(&asides->lock);
        aside_call(asides, aside);
        pthread_mutex_lock(&asides->lock);
    }
    pthread_mutex_unlock(&asides->lock);
    return NULL;
}

/* Makes another thread if all have something to do, and there may be more. Whether there is a thread. */
static bool asides_have_thread(struct asides *asides) {
    pthread_mutex_lock(&asides->lock);
    bool needed = asides->idle <= asides->waiting;
    pthread_mutex_unlock(&asides->lock);
    if (needed && asides->n_threads < asides->most &&
        pthread_create(&asides->threads[asides->n_threads], NULL, asides_main, asides) == 0) {
        pthread_setname_np(asides->threads[asides->n_threads], "tensord library");
        asides->n_threads++;
    }
    return asides->n_threads;
}

static void asides_put(struct asides *asides, struct device_aside *aside) {
    pthread_mutex_lock(&asides->lock);
    *asides->last = aside;
    asides->last = &aside->next;
    asides->waiting++;
    pthread_cond_signal(&asides->work);
    pthread_mutex_unlock(&asides->lock);
}

static bool aside_returned(struct asides *asides, const struct device_aside *aside) {
    pthread_mutex_lock(&asides->lock);
    bool returned = aside->returned;
    pthread_mutex_unlock(&asides->lock);
    return returned;
}

int cuda_launch_aside(struct device *device, struct device_stream *stream, const struct launch *launch,
                      void (*moved)(void *context), void *context, struct device_aside **result, struct fault *fault) {
    enum cuda_library library = aside_library(device, launch);
    struct asides *asides = &((struct cuda_device *)device)->asides[library];
    struct device_aside *aside = *result;
    if (!aside) {
        aside = asides_have_thread(asides) ? calloc(1, sizeof *aside) : NULL;
        if (!aside)
            return device->vtable->launch(device, stream, launch, fault);
        aside->device = device;
        aside->stream = stream;
        aside->launch = launch;
        aside->moved = moved;
        aside->context = context;
        *result = aside;
        cuda_library_aside(cuda_of(device), library, 1);
        asides_put(asides, aside);
    }
    if (!aside_returned(asides, aside))
        return fault_set(fault, STATUS_AGAIN, "the call has not returned");
    int code = aside->code;
    if (code != STATUS_OK)
        *fault = aside->fault;
    free(aside);
    *result = NULL;
    return code;
}
