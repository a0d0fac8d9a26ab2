/* Segments of device memory and of pinned host memory, taken and given back without delaying the caller.
 *
 * cudaFree() and cudaFreeHost() wait until the device has nothing to do, and pinning 32 MiB takes about 10 ms: so a thread does all three.
 * Memory that is given back is free later, when what was on the device has run; until then a reservation that finds no memory says
 * STATUS_AGAIN, at once. With `ahead`, two segments of pinned memory are always ready, of the size that the pool of staging memory
 * takes; when they come back they are kept.
 *
 * Any thread. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "engine/cuda/cuda.h"
#include "engine/cuda/monitor.h"

enum { CUDA_SPARES = 2, CUDA_SPARE_BYTES = 32 << 20 };

struct cuda_returned;
STAILQ_HEAD(cuda_returns, cuda_returned);

struct cuda_memory {
    const struct cuda *cuda;
    struct monitor *monitor; /* is told of memory that is taken and given back; may be NULL */
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* the thread sleeps on `work`; callers that wait for it on `done` */
    pthread_t thread;
    bool started, stopping, ahead, pinning, freeing;
    _Atomic uint64_t reserved;    /* bytes of device memory that are taken, with those that are to be freed */
    struct cuda_returns returned; /* to be freed, the oldest first */
    uint64_t freed;               /* how many have been, ever */
    bool full;                    /* at the last look device memory was full, and some was on its way back, */
    uint64_t full_since;          /* when so many had been freed */
    void *spares[CUDA_SPARES];
    int n_spares;
};

/* If the thread cannot be started, the caller does everything at once. */
void cuda_memory_init(struct cuda_memory *memory, const struct cuda *cuda, struct monitor *monitor, bool ahead);
/* Frees the memory that has been given back, and the kept segments. */
void cuda_memory_finish(struct cuda_memory *memory);

int cuda_memory_reserve(struct cuda_memory *memory, size_t bytes, void **segment, struct fault *fault);
void cuda_memory_release(struct cuda_memory *memory, void *segment, size_t bytes);
/* Pinned host memory, which has the same address on the device. */
int cuda_memory_pin(struct cuda_memory *memory, size_t bytes, void **segment, struct fault *fault);
void cuda_memory_unpin(struct cuda_memory *memory, void *segment, size_t bytes);
/* Has the thread call drop(what). */
void cuda_memory_drop(struct cuda_memory *memory, void (*drop)(void *what), void *what);
