/* Dynamic shared memory. */
#pragma once

#include "engine/cuda/cuda.h"

/* More than 48 KiB in one launch has to be asked for, and the limit is the kernel's, not the launch's: so it only ever grows, since a
 * graph may have launches that need more. */
static inline cudaError_t shared_allow(const void *kernel, int bytes) {
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess || bytes <= attributes.maxDynamicSharedSizeBytes) {
        return error;
    }
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
