/* Segments of device memory and of pinned host memory, taken and given back without holding up the caller.
 *
 * cudaFree() and cudaFreeHost() wait until the device has nothing to do, and pinning 32 MiB takes about 10 ms: a thread does
 * all three. What is given back is free a little later, so that a reservation which finds no memory waits for what is on its
 * way and tries again. With `ahead` some pinned memory is always ready: two segments, as large as the pool of staging
 * memory takes them, which are also kept when they come back.
 *
 * Any thread. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "engine/cuda/cuda.h"
#include "engine/cuda/monitor.h"

enum { CUDA_SPARES = 2, CUDA_SPARE_BYTES = 32 << 20 };

struct cuda_returned;

struct cuda_memory {
    const struct cuda *cuda;
    struct monitor *monitor; /* that is told; may be NULL */
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* for the thread; for those who wait for it */
    pthread_t thread;
    bool started, stopping, ahead, pinning, freeing;
    struct cuda_returned *returned; /* to be freed */
    void *spares[CUDA_SPARES];
    int n_spares;
};

/* Without a thread everything is done at once, by the caller. */
void cuda_memory_init(struct cuda_memory *memory, const struct cuda *cuda, struct monitor *monitor, bool ahead);
/* Frees what has been given back and what was kept. */
void cuda_memory_finish(struct cuda_memory *memory);

int cuda_memory_reserve(struct cuda_memory *memory, size_t bytes, void **segment, struct fault *fault);
void cuda_memory_release(struct cuda_memory *memory, void *segment, size_t bytes);
/* Pinned, and at the same address for the device. */
int cuda_memory_pin(struct cuda_memory *memory, size_t bytes, void **segment, struct fault *fault);
void cuda_memory_unpin(struct cuda_memory *memory, void *segment, size_t bytes);
