/* Functions of the driver, for what the runtime cannot do. They are found by name, so that the module is not linked with libcuda. Their errors
 * have the same numbers as the runtime's. */
#pragma once

#include <cuda.h>

#include "engine/cuda/cuda.h"

/* `version`: of the function, as a version of CUDA. *function NULL: this driver has no such function. */
static inline cudaError_t cuda_driver_find(const char *name, unsigned version, void **function) {
    *function = NULL;
#if CUDART_VERSION >= 12050
    return cudaGetDriverEntryPointByVersion(name, function, version, cudaEnableDefault, NULL);
#else
    (void)version;
    return cudaGetDriverEntryPoint(name, function, cudaEnableDefault, NULL);
#endif
}
