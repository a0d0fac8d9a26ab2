#include "engine/cuda/cuda.h"

/* Sticky errors: after each of them, CUDA's documentation says, the process must end. */
static const cudaError_t cuda_sticky[] = {
    cudaErrorIllegalAddress,   cudaErrorLaunchFailure,       cudaErrorLaunchTimeout,
    cudaErrorAssert,           cudaErrorMisalignedAddress,   cudaErrorInvalidAddressSpace,
    cudaErrorInvalidPc,        cudaErrorIllegalInstruction,  cudaErrorHardwareStackError,
    cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorContextIsDestroyed,
    cudaErrorUnknown,          cudaErrorMpsClientTerminated, cudaErrorExternalDevice,
#if CUDART_VERSION >= 13000
    cudaErrorTensorMemoryLeak, cudaErrorContained,
#endif
};

int cuda_fault(struct fault *fault, cudaError_t error, const char *call) {
    enum status code = error == cudaErrorMemoryAllocation ? STATUS_OUT_OF_MEMORY : STATUS_INTERNAL;
    for (size_t i = 0; i < sizeof cuda_sticky / sizeof *cuda_sticky; i++)
        if (cuda_sticky[i] == error)
            code = STATUS_DEVICE_LOST;
    cudaGetLastError(); /* clears the thread's last error, so that later calls, which succeed, do not find it again */
    return fault_set(fault, code, "%s (%s) in %.120s", cudaGetErrorString(error), cudaGetErrorName(error), call);
}

int cuda_survives(const char *call, struct fault *fault) {
    size_t unused, total;
    cudaError_t error = cudaMemGetInfo(&unused, &total); /* a failure that lasts shows at every call */
    if (error == cudaSuccess)
        error = cudaGetLastError();
    if (error == cudaSuccess)
        return STATUS_OK;
    enum status code = (enum status)cuda_fault(fault, error, call);
    return code == STATUS_DEVICE_LOST ? code : STATUS_OK;
}
