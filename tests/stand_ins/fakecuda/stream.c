/* Streams, each with a thread that does what was put on it, in order; events; launches.
 *
 * One lock and one condition serve them all: nothing here is about speed. */
#include "tests/stand_ins/fakecuda/fakecuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct CUstream_st {
    int device;
    pthread_t thread;
    struct fakecuda_item *first, **last;
    bool busy; /* with one that is no longer in the list */
    struct CUstream_st *next;
};

/* Record number n has been reached when `reached` says so or more. */
struct CUevent_st {
    int device;
    uint64_t recorded, reached;
    bool timed;
    struct timespec at; /* reached */
    unsigned pending;   /* items that mention it */
    bool destroyed;
    struct CUevent_st *next, **previous; /* of those that have not been destroyed */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static struct CUstream_st *streams;
static struct CUevent_st *events;

/* ---- what a stream does ---- */

static void item_move(const struct CUstream_st *stream, const struct fakecuda_item *item) {
    void *to = fakecuda_reach(item->to, item->bytes, stream->device);
    void *from = item->kind == ITEM_COPY ? fakecuda_reach(item->from, item->bytes, stream->device) : to;
    if (!to || !from)
        fakecuda_lose(cudaErrorIllegalAddress);
    else if (item->kind == ITEM_STORE)
        memcpy(to, &item->value, item->bytes);
    else if (item->kind == ITEM_COPY)
        memmove(to, from, item->bytes);
    else
        memset(to, item->value, item->bytes);
}

/* With the lock held. */
static void event_unref(struct CUevent_st *event) {
    event->pending--;
    if (event->destroyed && !event->pending)
        free(event);
}

static void item_hang(void) {
    static _Atomic long kernels;
    if (++kernels == fakecuda_setting("FAKECUDA_HANG", 0))
        for (;;)
            pause();
}

/* FAKECUDA_SLOW: so many microseconds for each launch of a graph. */
static void item_wait(const struct fakecuda_item *item) {
    long us = item->under_way && !fakecuda_lost() ? fakecuda_setting("FAKECUDA_SLOW", 0) : 0;
    if (us)
        nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void item_run(const struct CUstream_st *stream, const struct fakecuda_item *item) {
    item_wait(item);
    switch (item->kind) {
    case ITEM_KERNEL:
        item_hang();
        break;
    case ITEM_COPY:
    case ITEM_SET:
    case ITEM_STORE:
        if (!fakecuda_lost())
            item_move(stream, item);
        break;
    case ITEM_TRAP:
        fakecuda_lose(cudaErrorIllegalAddress);
        break;
    case ITEM_FREE:
        fakecuda_free_now(item->to);
        break;
    default:
        break;
    }
    if (item->under_way)
        (*item->under_way)--;
}

/* What is about events happens with the lock held. On a lost device nothing waits. */
static void item_mark(const struct fakecuda_item *item) {
    if (item->kind == ITEM_WAIT)
        while (item->event->reached < item->number && !fakecuda_lost())
            pthread_cond_wait(&moved, &lock);
    if (item->kind == ITEM_RECORD && item->event->reached < item->number) {
        item->event->reached = item->number;
        clock_gettime(CLOCK_MONOTONIC, &item->event->at);
    }
    if (item->event)
        event_unref(item->event);
}

static void *stream_main(void *argument) {
    struct CUstream_st *stream = argument;
    bool end = false;
    pthread_mutex_lock(&lock);
    while (!end) {
        struct fakecuda_item *item = stream->first;
        if (!item) {
            pthread_cond_wait(&moved, &lock);
            continue;
        }
        stream->first = item->next;
        if (!stream->first)
            stream->last = &stream->first;
        stream->busy = true;
        pthread_mutex_unlock(&lock);
        item_run(stream, item);
        pthread_mutex_lock(&lock);
        item_mark(item);
        end = item->kind == ITEM_END;
        free(item);
        stream->busy = false;
        pthread_cond_broadcast(&moved);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* With the lock held. */
static cudaError_t stream_put(struct CUstream_st *stream, const struct fakecuda_item *filled) {
    struct fakecuda_item *item = malloc(sizeof *item);
    *item = *filled;
    item->next = NULL;
    if (item->event)
        item->event->pending++;
    *stream->last = item;
    stream->last = &item->next;
    pthread_cond_broadcast(&moved);
    return cudaSuccess;
}

cudaError_t fakecuda_put(cudaStream_t stream, const struct fakecuda_item *item) {
    if (!stream || stream->device != fakecuda_device())
        return fakecuda_error(cudaErrorInvalidResourceHandle);
    cudaError_t error;
    if (fakecuda_capture(stream, item, &error))
        return error;
    pthread_mutex_lock(&lock);
    error = stream_put(stream, item);
    pthread_mutex_unlock(&lock);
    return error;
}

/* With the lock held. */
static bool streams_dry(void) {
    for (const struct CUstream_st *stream = streams; stream; stream = stream->next)
        if (stream->first || stream->busy)
            return false;
    return true;
}

void fakecuda_drain(void) {
    pthread_mutex_lock(&lock);
    while (!streams_dry())
        pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
}

void fakecuda_stream_figures(struct fakecuda_figures *figures) {
    pthread_mutex_lock(&lock);
    figures->events = figures->streams = 0;
    for (const struct CUevent_st *event = events; event; event = event->next)
        figures->events++;
    for (const struct CUstream_st *stream = streams; stream; stream = stream->next)
        figures->streams++;
    pthread_mutex_unlock(&lock);
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *result, unsigned int flags, int priority) {
    cudaError_t error = fakecuda_call(__func__);
    (void)flags, (void)priority;
    if (error != cudaSuccess)
        return error;
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    stream->device = fakecuda_device();
    stream->last = &stream->first;
    pthread_mutex_lock(&lock);
    stream->next = streams;
    streams = stream;
    pthread_create(&stream->thread, NULL, stream_main, stream);
    pthread_mutex_unlock(&lock);
    *result = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    error = fakecuda_put(stream, &(struct fakecuda_item){.kind = ITEM_END});
    if (error != cudaSuccess)
        return error;
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&lock);
    struct CUstream_st **link = &streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    pthread_mutex_unlock(&lock);
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (fakecuda_captures())
        return fakecuda_spoil();
    if (!stream || stream->device != fakecuda_device())
        return fakecuda_error(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&lock);
    while (stream->first || stream->busy)
        pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
    return fakecuda_call(__func__);
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *result, unsigned int flags) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    struct CUevent_st *event = calloc(1, sizeof *event);
    event->device = fakecuda_device();
    event->timed = !(flags & cudaEventDisableTiming);
    pthread_mutex_lock(&lock);
    event->next = events;
    event->previous = &events;
    if (events)
        events->previous = &event->next;
    events = event;
    pthread_mutex_unlock(&lock);
    *result = event;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&lock);
    *event->previous = event->next;
    if (event->next)
        event->next->previous = event->previous;
    event->destroyed = true;
    bool now = !event->pending;
    pthread_mutex_unlock(&lock);
    if (now)
        free(event);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (fakecuda_captures())
        return fakecuda_spoil();
    pthread_mutex_lock(&lock);
    bool reached = event->reached >= event->recorded;
    pthread_mutex_unlock(&lock);
    if (!reached && !fakecuda_lost())
        return fakecuda_error(cudaErrorNotReady);
    return fakecuda_call(__func__);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (fakecuda_captures())
        return fakecuda_spoil();
    pthread_mutex_lock(&lock);
    while (event->reached < event->recorded && !fakecuda_lost())
        pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
    return fakecuda_call(__func__);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    if (!stream || stream->device != fakecuda_device() || event->device != stream->device)
        return fakecuda_error(cudaErrorInvalidResourceHandle);
    if (fakecuda_captures())
        return fakecuda_spoil();
    pthread_mutex_lock(&lock);
    error =
        stream_put(stream, &(struct fakecuda_item){.kind = ITEM_RECORD, .event = event, .number = ++event->recorded});
    pthread_mutex_unlock(&lock);
    return error;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    cudaError_t error = fakecuda_call(__func__);
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&lock);
    bool timed = start->timed && end->timed && start->recorded && end->recorded;
    bool reached = start->reached >= start->recorded && end->reached >= end->recorded;
    *ms = (float)((double)(end->at.tv_sec - start->at.tv_sec) * 1e3 +
                  (double)(end->at.tv_nsec - start->at.tv_nsec) / 1e6);
    pthread_mutex_unlock(&lock);
    return !timed ? fakecuda_error(cudaErrorInvalidResourceHandle)
                  : fakecuda_error(reached ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    cudaError_t error = fakecuda_call(__func__);
    (void)flags;
    if (error != cudaSuccess)
        return error;
    if (!stream || stream->device != fakecuda_device())
        return fakecuda_error(cudaErrorInvalidResourceHandle);
    if (fakecuda_captures())
        return fakecuda_spoil();
    pthread_mutex_lock(&lock);
    error = stream_put(stream, &(struct fakecuda_item){.kind = ITEM_WAIT, .event = event, .number = event->recorded});
    pthread_mutex_unlock(&lock);
    return error;
}
