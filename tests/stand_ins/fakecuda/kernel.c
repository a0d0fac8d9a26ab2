/* Launches, and what nvcc puts around kernels: registration, and the configuration between <<< and >>>. */
#include <pthread.h>

#include "tests/stand_ins/fakecuda/fakecuda.h"

enum { KERNELS_MAX = 2048 };

/* nvcc declares these for the code that it generates. */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, uint3 *thread,
                            uint3 *block, dim3 *block_size, dim3 *grid_size, int *size);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size,
                       int constant, int global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream);

static struct {
    pthread_mutex_t lock;
    const void *kernels[KERNELS_MAX];
    unsigned count;
    unsigned long loaded, late;
} loading = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* As CUDA does lazily. */
static void load(const void *kernel, unsigned long *counter) {
    unsigned i = 0;
    pthread_mutex_lock(&loading.lock);
    while (i < loading.count && loading.kernels[i] != kernel)
        i++;
    if (i == loading.count && i < KERNELS_MAX) {
        loading.kernels[loading.count++] = kernel;
        ++*counter;
    }
    pthread_mutex_unlock(&loading.lock);
}

void fakecuda_kernel_figures(struct fakecuda_figures *figures) {
    pthread_mutex_lock(&loading.lock);
    figures->loaded = loading.loaded;
    figures->late = loading.late;
    pthread_mutex_unlock(&loading.lock);
}

static _Thread_local struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} configuration;

void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    (void)binary;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle) {
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, uint3 *thread,
                            uint3 *block, dim3 *block_size, dim3 *grid_size, int *size) {
    (void)handle, (void)host, (void)device, (void)name, (void)threads, (void)thread, (void)block;
    (void)block_size, (void)grid_size, (void)size;
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size,
                       int constant, int global) {
    (void)handle, (void)host, (void)device, (void)name, (void)external, (void)size, (void)constant, (void)global;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return fakecuda_call(__func__);
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *(cudaStream_t *)stream = configuration.stream;
    return fakecuda_call(__func__);
}

/* The caller asks once for each kernel, and keeps what it was given. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess)
        *kernel = (cudaKernel_t)(uintptr_t)function;
    return error;
}

bool fakecuda_extents_fit(dim3 grid, dim3 block) {
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    return threads >= 1 && threads <= 1024 && block.z <= 64 && grid.x >= 1 && grid.x <= INT32_MAX && grid.y >= 1 &&
           grid.y <= 65535 && grid.z >= 1 && grid.z <= 65535;
}

/* ---- what CUB asks before it launches ---- */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess && !function)
        error = fakecuda_error(cudaErrorInvalidDeviceFunction);
    if (error == cudaSuccess)
        load(function, &loading.loaded);
    if (error == cudaSuccess)
        *attributes = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024, .ptxVersion = 90, .binaryVersion = 90};
    return error;
}

/* Dynamic shared memory beyond 48 KiB has to be asked for. */
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
    cudaError_t error = fakecuda_call(__func__);
    if (error == cudaSuccess && !function)
        error = fakecuda_error(cudaErrorInvalidDeviceFunction);
    if (error == cudaSuccess && (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value > 227 << 10))
        error = fakecuda_error(cudaErrorInvalidValue);
    return error;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                   size_t shared, unsigned flags) {
    cudaError_t error = fakecuda_call(__func__);
    (void)shared, (void)flags;
    if (error == cudaSuccess && !function)
        error = fakecuda_error(cudaErrorInvalidDeviceFunction);
    if (error == cudaSuccess)
        *blocks = 2048 / threads;
    return error;
}

/* ---- launches ---- */

/* Takes its turn on the stream. What every device refuses is refused. */
static cudaError_t launch(const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    if (!kernel)
        return fakecuda_error(cudaErrorInvalidDeviceFunction);
    if (!fakecuda_extents_fit(grid, block) || shared > 227 << 10)
        return fakecuda_error(cudaErrorInvalidConfiguration);
    load(kernel, &loading.late);
    return fakecuda_put(stream,
                        &(struct fakecuda_item){.kind = ITEM_KERNEL, .kernel = kernel, .grid = grid, .block = block});
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
    cudaError_t error = fakecuda_call(__func__);
    (void)arguments;
    return error == cudaSuccess ? launch(function, grid, block, shared, stream) : error;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    cudaError_t error = fakecuda_call("cudaLaunchKernel");
    (void)arguments;
    return error == cudaSuccess ? launch(kernel, grid, block, shared, stream) : error;
}
