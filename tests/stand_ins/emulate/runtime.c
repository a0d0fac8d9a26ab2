/* As much of the CUDA runtime as the CUDA device calls. Device memory is the host's; whatever is put on a stream has run
 * when the call returns, so that streams and events have nothing to do. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/emulate/block.h"
#include "tests/stand_ins/emulate/graph.h"

enum { PROCESSORS = 1 }; /* few, so that grids are smaller than what is to be done */
static const size_t memory_bytes = (size_t)4 << 30;
static const size_t address_step = 4096;

/* ---- the device ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    memset(properties, 0, sizeof *properties);
    properties->multiProcessorCount = PROCESSORS;
    properties->major = 9;
    properties->sharedMemPerBlockOptin = 227 << 10;
    snprintf(properties->name, sizeof properties->name, "emulated");
    return cudaSetDevice(device);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device) {
    snprintf(id, (size_t)bytes, "0000:00:00.0");
    return cudaSetDevice(device);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* No call fails but those that say so at once. */
cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void) {
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "an error";
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the emulated device";
}

/* Of the driver there is what graphs need. */
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {
    (void)version, (void)flags, (void)status;
    *function = emulated_driver(name);
    return cudaSuccess;
}
#else
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
    (void)flags, (void)status;
    *function = emulated_driver(name);
    return cudaSuccess;
}
#endif

/* ---- memory ---- */

cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
    *left = *total = memory_bytes;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    *memory = bytes <= memory_bytes ? aligned_alloc(address_step, (bytes + address_step - 1) & -address_step) : NULL;
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory) {
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    return cudaMalloc(memory, bytes);
}

cudaError_t cudaFreeHost(void *memory) {
    return cudaFree(memory);
}

/* Scratch memory. What kernels read there without having written it is nothing that a result could be made of. While the environment has
 * EMULATED_NO_SCRATCH, there is none. */
cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream) {
    if (getenv("EMULATED_NO_SCRATCH"))
        return cudaErrorMemoryAllocation;
    if (stream->captured)
        return cudaErrorStreamCaptureUnsupported;
    cudaError_t error = cudaMalloc(memory, bytes);
    if (error == cudaSuccess)
        memset(*memory, 0xee, bytes);
    return error;
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) {
    (void)stream;
    return cudaFree(memory);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    *pool = NULL;
    return cudaSetDevice(device);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    (void)pool;
    (void)attribute;
    (void)value;
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
    (void)pool;
    (void)bytes;
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    if (!emulated_capture_set(stream, memory, value, bytes))
        memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    if (!emulated_capture_copy(stream, to, from, bytes))
        memmove(to, from, bytes);
    return cudaSuccess;
}

/* ---- events; graph.cpp has the streams ---- */

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)stream;
    (void)event;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    *event = NULL;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)event;
    (void)stream;
    return cudaSuccess;
}

/* Everything has happened when its launch returns, and nobody looks at the time. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
    (void)begin;
    (void)end;
    *ms = 0;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

/* ---- launches ---- */

/* Kernels that are launched by their address take one struct by value, whose type is not known here. x86-64 and AArch64
 * pass structs of more than 16 bytes in memory, the one as a copy on the stack, the other by its address: a kernel that
 * expects a smaller one finds it at the beginning of this. */
struct arguments {
    char bytes[1024];
};

struct kernel_call {
    void (*kernel)(struct arguments arguments);
    struct arguments arguments;
};

static void kernel_thread(void *argument) {
    const struct kernel_call *call = argument;
    call->kernel(call->arguments);
}

/* Of kernels that may have other dynamic shared memory than from the start. */
static struct {
    pthread_mutex_t lock;
    unsigned n;
    struct {
        const void *kernel;
        int bytes;
    } of[256];
} shared_limits = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock held. */
static int shared_limit(const void *kernel, unsigned *place) {
    *place = 0;
    while (*place < shared_limits.n && shared_limits.of[*place].kernel != kernel)
        ++*place;
    return *place < shared_limits.n ? shared_limits.of[*place].bytes : 48 << 10;
}

/* A limit that falls is an error: a graph may have a launch that needs more. */
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaErrorInvalidValue;
    pthread_mutex_lock(&shared_limits.lock);
    unsigned place;
    int limit = shared_limit(kernel, &place);
    if (value < limit)
        block_die("the limit of %d bytes of a kernel's shared memory is lowered to %d", limit, value);
    if (place == sizeof shared_limits.of / sizeof *shared_limits.of)
        block_die("more kernels with much shared memory than there is room for here");
    shared_limits.of[place].kernel = kernel;
    shared_limits.of[place].bytes = value;
    shared_limits.n += place == shared_limits.n;
    pthread_mutex_unlock(&shared_limits.lock);
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    memset(attributes, 0, sizeof *attributes);
    unsigned place;
    pthread_mutex_lock(&shared_limits.lock);
    attributes->maxDynamicSharedSizeBytes = shared_limit(kernel, &place);
    pthread_mutex_unlock(&shared_limits.lock);
    return cudaSuccess;
}

static void kernel_run(dim3 grid, dim3 block, size_t shared, const void *const *arguments) {
    struct kernel_call call;
    (void)shared;
    memcpy(&call.kernel, arguments[0], sizeof call.kernel);
    memcpy(&call.arguments, arguments[1], sizeof call.arguments);
    block_launch(grid, block, kernel_thread, &call);
}

static const struct emulated_kernel kernel_by_address = {2, (const size_t[]){sizeof(void *), sizeof(struct arguments)},
                                                         kernel_run};

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
    const void *const list[] = {&kernel, arguments[0] /* and what lies behind them on the stack */};
    if (shared)
        block_die("a launch asks for %zu bytes of shared memory, for which there is no code here", shared);
    emulated_put(stream, &kernel_by_address, grid, block, shared, list);
    return cudaSuccess;
}
