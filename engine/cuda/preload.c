#include "engine/cuda/preload.h"

#include "engine/cuda/cuda_device.h"

static cuda_kernel_walk *const preload_walks[] = {
    cuda_elementwise_walk, cuda_create_walk, cuda_copy_walk, cuda_cast_walk,     cuda_reduce_walk,
    cuda_softmax_walk,     cuda_random_walk, cuda_take_walk, cuda_topk_walk, matmul_finish_walk, matmul_tiled_walk,
};

/* An error is the device's, as the next launch will find, or that kernel's own, whom its launch will tell. */
static bool preload_kernel(void *context, bool common, const void *kernel) {
    struct preload *preload = context;
    struct cudaFuncAttributes attributes;
    if (common == preload->others)
        return true;
    if (atomic_load(&preload->stopped) || cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return true;
}

static void *preload_main(void *argument) {
    struct preload *preload = argument;
    struct fault fault;
    bool more = cuda_enter(preload->cuda, &fault) == STATUS_OK;
    for (int others = 0; others < 2; others++) {
        preload->others = others;
        for (size_t i = 0; i < sizeof preload_walks / sizeof *preload_walks && more; i++)
            more = preload_walks[i](preload_kernel, preload);
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
