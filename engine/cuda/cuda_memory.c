#include "engine/cuda/cuda_memory.h"

#include <stdlib.h>

#include "engine/cuda/cuda_device.h"

struct cuda_returned {
    void *segment;
    size_t bytes;
    bool pinned;
    STAILQ_ENTRY(cuda_returned) next;
    void (*drop)(void *segment); /* not NULL: the segment is something else, which this gives back */
};

static void memory_free(struct cuda_memory *memory, const struct cuda_returned *returned) {
    struct fault fault;
    (void)cuda_enter(memory->cuda, &fault); /* if that fails, CUDA still finds the device by the address */
    if (returned->drop) {
        returned->drop(returned->segment);
        return;
    }
    if (returned->pinned)
        cudaFreeHost(returned->segment);
    else
        cudaFree(returned->segment);
    if (returned->pinned)
        return;
    atomic_fetch_sub(&memory->reserved, returned->bytes);
    monitor_reserved(memory->monitor, -(int64_t)returned->bytes);
}

static cudaError_t memory_pin_now(void **segment, size_t bytes) {
    return cudaHostAlloc(segment, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
}

/* ---- the thread ---- */

static void memory_free_one(struct cuda_memory *memory) {
    struct cuda_returned *returned = STAILQ_FIRST(&memory->returned);
    STAILQ_REMOVE_HEAD(&memory->returned, next);
    memory->freeing = true;
    pthread_mutex_unlock(&memory->lock);
    memory_free(memory, returned);
    free(returned);
    pthread_mutex_lock(&memory->lock);
    memory->freeing = false;
    memory->freed++;
    pthread_cond_broadcast(&memory->done);
}

/* If pinning fails, the thread does not try again: reservations report the error. */
static void memory_pin_one(struct cuda_memory *memory) {
    struct fault fault;
    void *segment;
    memory->pinning = true;
    pthread_mutex_unlock(&memory->lock);
    bool pinned =
        cuda_enter(memory->cuda, &fault) == STATUS_OK && memory_pin_now(&segment, CUDA_SPARE_BYTES) == cudaSuccess;
    cudaGetLastError();
    pthread_mutex_lock(&memory->lock);
    memory->pinning = false;
    memory->ahead &= pinned;
    if (pinned)
        memory->spares[memory->n_spares++] = segment;
    pthread_cond_broadcast(&memory->done);
}

static void *memory_main(void *argument) {
    struct cuda_memory *memory = argument;
    pthread_mutex_lock(&memory->lock);
    for (;;) {
        if (!STAILQ_EMPTY(&memory->returned))
            memory_free_one(memory);
        else if (memory->stopping)
            break;
        else if (memory->ahead && memory->n_spares < CUDA_SPARES)
            memory_pin_one(memory);
        else
            pthread_cond_wait(&memory->work, &memory->lock);
    }
    pthread_mutex_unlock(&memory->lock);
    return NULL;
}

void cuda_memory_init(struct cuda_memory *memory, const struct cuda *cuda, struct monitor *monitor, bool ahead) {
    *memory = (struct cuda_memory){.cuda = cuda, .monitor = monitor, .ahead = ahead};
    STAILQ_INIT(&memory->returned);
    pthread_mutex_init(&memory->lock, NULL);
    pthread_cond_init(&memory->work, NULL);
    pthread_cond_init(&memory->done, NULL);
    memory->started = pthread_create(&memory->thread, NULL, memory_main, memory) == 0;
    if (memory->started)
        pthread_setname_np(memory->thread, "tensord memory");
    else
        memory->ahead = false;
}

/* Hands memory to the thread. False: there is no thread, or no host memory for the note. */
static bool memory_return(struct cuda_memory *memory, const struct cuda_returned *returned) {
    struct cuda_returned *copy = memory->started ? malloc(sizeof *copy) : NULL;
    if (!copy)
        return false;
    pthread_mutex_lock(&memory->lock);
    *copy = *returned;
    STAILQ_INSERT_TAIL(&memory->returned, copy, next);
    pthread_cond_signal(&memory->work);
    pthread_mutex_unlock(&memory->lock);
    return true;
}

void cuda_memory_finish(struct cuda_memory *memory) {
    memory->ahead = false;
    for (int i = 0; i < memory->n_spares; i++) {
        const struct cuda_returned spare = {.segment = memory->spares[i], .bytes = CUDA_SPARE_BYTES, .pinned = true};
        if (!memory_return(memory, &spare))
            memory_free(memory, &spare);
    }
    pthread_mutex_lock(&memory->lock);
    memory->stopping = true;
    pthread_cond_signal(&memory->work);
    pthread_mutex_unlock(&memory->lock);
    if (memory->started)
        pthread_join(memory->thread, NULL);
    pthread_cond_destroy(&memory->work);
    pthread_cond_destroy(&memory->done);
    pthread_mutex_destroy(&memory->lock);
}

void cuda_memory_drop(struct cuda_memory *memory, void (*drop)(void *what), void *what) {
    const struct cuda_returned returned = {.segment = what, .drop = drop};
    if (!memory_return(memory, &returned))
        memory_free(memory, &returned);
}

/* ---- device memory ---- */

/* Whether something is about to be freed. With the lock held. */
static bool memory_comes_back(const struct cuda_memory *memory) {
    return memory->freeing || !STAILQ_EMPTY(&memory->returned);
}

/* Whether nothing has been freed since the device was found full, and something is about to be: then it need not be asked again.
 * *freed: how many have been. */
static bool memory_still_full(struct cuda_memory *memory, uint64_t *freed) {
    pthread_mutex_lock(&memory->lock);
    *freed = memory->freed;
    bool full = memory->full && memory->full_since == memory->freed && memory_comes_back(memory);
    pthread_mutex_unlock(&memory->lock);
    return full;
}

/* The device was found full by one who began when so many had been freed. Whether asking again may help. */
static bool memory_comes(struct cuda_memory *memory, uint64_t freed) {
    pthread_mutex_lock(&memory->lock);
    bool comes = memory_comes_back(memory) || memory->freed != freed;
    memory->full = comes;
    memory->full_since = freed;
    pthread_mutex_unlock(&memory->lock);
    return comes;
}

int cuda_memory_reserve(struct cuda_memory *memory, size_t bytes, void **segment, struct fault *fault) {
    uint64_t freed;
    int code = cuda_enter(memory->cuda, fault);
    if (code != STATUS_OK)
        return code;
    if (memory_still_full(memory, &freed))
        return fault_set(fault, STATUS_AGAIN, "memory that was given back is not free yet");
    cudaError_t error = cudaMalloc(segment, bytes);
    if (error == cudaErrorMemoryAllocation && memory_comes(memory, freed)) {
        cudaGetLastError();
        return fault_set(fault, STATUS_AGAIN, "memory that was given back is not free yet");
    }
    if (error != cudaSuccess)
        return cuda_fault(fault, error, "cudaMalloc");
    atomic_fetch_add(&memory->reserved, bytes);
    monitor_reserved(memory->monitor, (int64_t)bytes);
    return STATUS_OK;
}

void cuda_memory_release(struct cuda_memory *memory, void *segment, size_t bytes) {
    const struct cuda_returned returned = {.segment = segment, .bytes = bytes};
    if (!memory_return(memory, &returned))
        memory_free(memory, &returned);
}

/* ---- pinned memory ---- */

/* A segment that is being pinned is waited for: pinning another one would take as long. Not so what is being freed, which waits for
 * the device. */
static void *memory_take_spare(struct cuda_memory *memory) {
    void *segment = NULL;
    pthread_mutex_lock(&memory->lock);
    while (memory->ahead && !memory->n_spares && (memory->pinning || !memory_comes_back(memory)))
        pthread_cond_wait(&memory->done, &memory->lock);
    if (memory->n_spares)
        segment = memory->spares[--memory->n_spares];
    pthread_cond_signal(&memory->work);
    pthread_mutex_unlock(&memory->lock);
    return segment;
}

int cuda_memory_pin(struct cuda_memory *memory, size_t bytes, void **segment, struct fault *fault) {
    int code = cuda_enter(memory->cuda, fault);
    if (code != STATUS_OK)
        return code;
    void *spare = bytes == CUDA_SPARE_BYTES ? memory_take_spare(memory) : NULL;
    if (spare)
        *segment = spare;
    else
        CUDA_TRY(fault, memory_pin_now(segment, bytes));
    return STATUS_OK;
}

void cuda_memory_unpin(struct cuda_memory *memory, void *segment, size_t bytes) {
    const struct cuda_returned returned = {.segment = segment, .bytes = bytes, .pinned = true};
    bool kept = false;
    pthread_mutex_lock(&memory->lock);
    if (bytes == CUDA_SPARE_BYTES && memory->ahead && memory->n_spares + memory->pinning < CUDA_SPARES) {
        memory->spares[memory->n_spares++] = segment;
        kept = true;
    }
    pthread_mutex_unlock(&memory->lock);
    if (!kept && !memory_return(memory, &returned))
        memory_free(memory, &returned);
}
