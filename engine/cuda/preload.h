/* Brings the module's kernels to the device before somebody wants them.
 *
 * CUDA loads a kernel when it is first launched, and that may have to wait until the device has nothing to do: one client's
 * endless kernel and another's first sigmoid of f16, and the submitter would wait for the device, and with it everybody. So a
 * thread asks for each kernel's attributes once the device has been opened, which loads it, common ones first. What is not
 * known beforehand is still loaded by its first launch: CUB's kernels, for whole tensors, and cublasLt's. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "engine/cuda/cuda.h"

struct preload {
    const struct cuda *cuda;
    pthread_t thread;
    bool started, others; /* the thread's: after the common ones */
    atomic_bool stopped;
};

/* Without a thread there is no harm: kernels are loaded as they are launched. */
void preload_start(struct preload *preload, const struct cuda *cuda);
/* Comes back after one kernel at most. Does nothing where it has not been started. */
void preload_stop(struct preload *preload);
