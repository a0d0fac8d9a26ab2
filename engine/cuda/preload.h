/* Loads the module's kernels before they are needed.
 *
 * CUDA loads a kernel when it is first launched, and for that it may have to wait until the device has nothing to do. With one client's
 * endless kernel and another client's first sigmoid of f16, the submitter would wait for the device, and with it all clients. So
 * when the device has been opened, a thread asks for each kernel's attributes, which loads the kernel; common kernels come first.
 * Kernels that are not known beforehand are still loaded by their first launch: those of CUB, for whole tensors, and of
 * cublasLt. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "engine/cuda/cuda.h"

struct preload {
    const struct cuda *cuda;
    pthread_t thread;
    bool started;
    bool others; /* the thread's: it is at the kernels after the common ones */
    atomic_bool stopped;
};

/* If there is no thread, that does no harm: kernels are loaded as they are launched. */
void preload_start(struct preload *preload, const struct cuda *cuda);
/* Returns after one kernel at most. Does nothing if it has not been started. */
void preload_stop(struct preload *preload);
