#include "engine/cuda/preload.h"

#include "engine/cuda/cuda_device.h"

/* An error is ignored here, and the next kernel may have none: the next launch will find a failure of the device, and the kernel's own launch one of the kernel. */
static bool preload_kernel(void *context, bool common, const void *kernel) {
    struct preload *preload = context;
    struct cudaFuncAttributes attributes;
    if (common == preload->others)
        return true;
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess)
        cudaGetLastError();
    return !atomic_load(&preload->stopped);
}

/* NULL: the operation has no kernel of its own, or the kernel belongs to a lower opcode, too. */
static cuda_kernel_walk *preload_walk(unsigned opcode) {
    const struct cuda_kernel *kernel = (const struct cuda_kernel *)cuda_operations[opcode];
    for (unsigned lower = 0; kernel && lower < opcode; lower++) {
        const struct cuda_kernel *before = (const struct cuda_kernel *)cuda_operations[lower];
        if (before && before->walk == kernel->walk)
            return NULL;
    }
    return kernel ? kernel->walk : NULL;
}

static void *preload_main(void *argument) {
    struct preload *preload = argument;
    struct fault fault;
    bool more = cuda_enter(preload->cuda, &fault) == STATUS_OK;
    for (int others = 0; others < 2; others++) {
        preload->others = others;
        for (unsigned opcode = 0; opcode < OP_CODE_MAX && more; opcode++) {
            cuda_kernel_walk *walk = preload_walk(opcode);
            more = !walk || walk(preload_kernel, preload);
        }
    }
    return NULL;
}

void preload_start(struct preload *preload, const struct cuda *cuda) {
    preload->cuda = cuda;
    atomic_init(&preload->stopped, false);
    preload->started = pthread_create(&preload->thread, NULL, preload_main, preload) == 0;
    if (preload->started)
        pthread_setname_np(preload->thread, "tensord kernels");
}

void preload_stop(struct preload *preload) {
    if (!preload->started)
        return;
    atomic_store(&preload->stopped, true);
    pthread_join(preload->thread, NULL);
    preload->started = false;
}
