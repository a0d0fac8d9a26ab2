/* Kernels that are compiled while the daemon runs, clients' and those of fused launches: loaded and launched by the driver's own
 * functions (driver.h), because the runtime has such functions only from CUDA 12.8 on. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/compiler.h"
#include "engine/cuda/cuda_device.h"
#include "engine/cuda/driver.h"
#include "engine/cuda/formula_text.h"
#include "engine/cuda/fused_text.h"

struct cuda_user_kernel {
    struct device_kernel base;
    CUlibrary library;
    CUfunction function;
};

/* ---- the driver's functions ---- */

static struct {
    pthread_mutex_t lock;
    bool found;
    CUresult (*load)(CUlibrary *, const void *, CUjit_option *, void **, unsigned, CUlibraryOption *, void **,
                     unsigned);
    CUresult (*unload)(CUlibrary);
    CUresult (*get_kernel)(CUkernel *, CUlibrary, const char *);
    CUresult (*get_function)(CUfunction *, CUkernel);
    CUresult (*get_attribute)(int *, CUfunction_attribute, CUfunction);
    CUresult (*set_attribute)(CUfunction, CUfunction_attribute, int);
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                       void **, void **);
    CUresult (*get_parameter)(CUfunction, size_t, size_t *, size_t *);
    CUresult (*finish_loading)(CUfunction);
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    const char *name;
    unsigned version; /* the function's version, as a version of CUDA */
    void *place;
} driver_functions[] = {
    {"cuLibraryLoadData", 12000, &driver.load},
    {"cuLibraryUnload", 12000, &driver.unload},
    {"cuLibraryGetKernel", 12000, &driver.get_kernel},
    {"cuKernelGetFunction", 12000, &driver.get_function},
    {"cuFuncGetAttribute", 12000, &driver.get_attribute},
    {"cuFuncSetAttribute", 12000, &driver.set_attribute},
    {"cuLaunchKernel", 12000, &driver.launch},
    {"cuFuncGetParamInfo", 12040, &driver.get_parameter},
    {"cuFuncLoad", 12040, &driver.finish_loading},
};

/* All functions are needed: if a kernel's parameters were not known, the driver would read beyond the arguments of a launch with too
 * few. */
static int driver_find_locked(struct fault *fault) {
    for (size_t i = 0; i < sizeof driver_functions / sizeof *driver_functions; i++) {
        void *function = NULL;
        cudaError_t error = cuda_driver_find(driver_functions[i].name, driver_functions[i].version, &function);
        if (error != cudaSuccess && error != cudaErrorInvalidValue && error != cudaErrorNotSupported)
            return cuda_fault(fault, error, driver_functions[i].name);
        cudaGetLastError();
        if (error != cudaSuccess || !function)
            return fault_set(fault, STATUS_UNSUPPORTED, "user kernels need a driver of CUDA 12.4 or later: no %s",
                             driver_functions[i].name);
        memcpy(driver_functions[i].place, &function, sizeof function);
    }
    driver.found = true;
    return STATUS_OK;
}

static int driver_find(struct fault *fault) {
    pthread_mutex_lock(&driver.lock);
    int code = driver.found ? STATUS_OK : driver_find_locked(fault);
    pthread_mutex_unlock(&driver.lock);
    return code;
}

#define DRIVER_TRY(fault, result, call)                                                                                \
    do {                                                                                                               \
        CUresult driver_try_result = (result);                                                                         \
        if (driver_try_result != CUDA_SUCCESS)                                                                         \
            return cuda_fault(fault, (cudaError_t)driver_try_result, call);                                            \
    } while (0)

/* ---- compiling and loading ---- */

static uint32_t kernel_target(const struct device *base) {
    return (uint32_t)((const struct cuda_device *)base)->cuda.capability;
}

static int kernel_read_parameters(struct cuda_user_kernel *kernel, struct fault *fault) {
    size_t offset, bytes;
    uint32_t n = 0;
    for (;; n++) { /* until the driver says that there is no such parameter */
        CUresult result = driver.get_parameter(kernel->function, n, &offset, &bytes);
        if (result == CUDA_ERROR_INVALID_VALUE)
            break;
        DRIVER_TRY(fault, result, "cuFuncGetParamInfo");
        if (n == KERNEL_ARGUMENTS_MAX)
            return fault_set(fault, STATUS_LIMIT, "the kernel has more than %d parameters", KERNEL_ARGUMENTS_MAX);
        kernel->base.parameter_bytes[n] = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    }
    kernel->base.n_parameters = n;
    return STATUS_OK;
}

/* As much dynamic shared memory as the device can give, so that no launch has to ask for it. */
static int kernel_read_limits(const struct cuda *cuda, struct cuda_user_kernel *kernel, struct fault *fault) {
    struct device_kernel *base = &kernel->base;
    int threads = 0, shared = 0;
    memcpy(base->grid_max, cuda->grid_max, sizeof base->grid_max);
    memcpy(base->block_max, cuda->block_max, sizeof base->block_max);
    DRIVER_TRY(fault, driver.get_attribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel->function),
               "cuFuncGetAttribute");
    DRIVER_TRY(fault, driver.get_attribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel->function),
               "cuFuncGetAttribute");
    base->threads_max = (uint32_t)threads;
    base->shared_max = shared < cuda->shared_max ? (uint32_t)(cuda->shared_max - shared) : 0;
    DRIVER_TRY(
        fault,
        driver.set_attribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)base->shared_max),
        "cuFuncSetAttribute");
    return STATUS_OK;
}

static int kernel_open(const struct cuda *cuda, const struct device_code *code, struct cuda_user_kernel *kernel,
                       struct fault *fault) {
    CUkernel handle;
    DRIVER_TRY(fault, driver.load(&kernel->library, code->code, NULL, NULL, 0, NULL, NULL, 0), "cuLibraryLoadData");
    DRIVER_TRY(fault, driver.get_kernel(&handle, kernel->library, code->symbol), "cuLibraryGetKernel");
    /* The function of this context, into which it is loaded now: a launch that had to load it might wait for the device. */
    DRIVER_TRY(fault, driver.get_function(&kernel->function, handle), "cuKernelGetFunction");
    DRIVER_TRY(fault, driver.finish_loading(kernel->function), "cuFuncLoad");
    int status = kernel_read_limits(cuda, kernel, fault);
    return status == STATUS_OK ? kernel_read_parameters(kernel, fault) : status;
}

static void kernel_release(struct device *base, struct device_kernel *released) {
    struct cuda_user_kernel *kernel = (struct cuda_user_kernel *)released;
    struct fault fault;
    if (kernel->library && cuda_enter(&((struct cuda_device *)base)->cuda, &fault) == STATUS_OK)
        driver.unload(kernel->library);
    free(kernel);
}

static int kernel_load(struct device *base, const struct device_code *code, struct device_kernel **result,
                       struct fault *fault) {
    const struct cuda *cuda = &((struct cuda_device *)base)->cuda;
    int status = cuda_enter(cuda, fault);
    if (status == STATUS_OK)
        status = driver_find(fault);
    if (status != STATUS_OK)
        return status;
    struct cuda_user_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a kernel");
    status = kernel_open(cuda, code, kernel, fault);
    if (status == STATUS_OK)
        *result = &kernel->base;
    else
        kernel_release(base, &kernel->base);
    return status;
}

/* ---- launching ---- */

static enum status launch_status(CUresult result, int code) {
    return result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES || result == CUDA_ERROR_INVALID_VALUE ? STATUS_INVALID_ARGUMENT
                                                                                              : (enum status)code;
}

static CUresult kernel_put(const struct device_kernel *base, struct device_stream *stream, const uint32_t *grid,
                           const uint32_t *block, uint32_t shared, void **parameters) {
    const struct cuda_user_kernel *kernel = (const struct cuda_user_kernel *)base;
    return driver.launch(kernel->function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared,
                         stream->cuda.stream, parameters, NULL);
}

static int kernel_launch(struct device *base, struct device_stream *stream, const struct kernel_launch *launch,
                         struct fault *fault) {
    void *parameters[KERNEL_ARGUMENTS_MAX];
    int code = cuda_enter(&((struct cuda_device *)base)->cuda, fault);
    if (code != STATUS_OK)
        return code;
    for (uint32_t i = 0; i < launch->n_arguments; i++)
        parameters[i] = (void *)(uintptr_t)&launch->arguments[i];
    CUresult result = kernel_put(launch->kernel, stream, launch->grid, launch->block, launch->shared, parameters);
    if (result == CUDA_SUCCESS)
        return STATUS_OK;
    code = cuda_fault(fault, (cudaError_t)result, "cuLaunchKernel");
    if (code == STATUS_DEVICE_LOST)
        return code;
    launch->report->value = result;
    atomic_store_explicit(&launch->report->code, (uint32_t)launch_status(result, code), memory_order_release);
    return STATUS_OK;
}

/* ---- fused launches ---- */

enum { FUSED_BLOCKS = 8 }; /* of FUSED_THREADS, for each multiprocessor: as many threads as it holds */

static char *fusion_text(const struct fused_launch *launch) {
    return fused_text(launch, cuda_fusion.name);
}

static char *fusion_source(const char *text) {
    size_t head = strlen(number_text), bytes = strlen(text) + 1;
    char *source = malloc(head + bytes);
    if (!source)
        return NULL;
    memcpy(source, number_text, head);
    memcpy(source + head, text, bytes);
    return source;
}

/* An error is as one of any other launch. */
static int fusion_launch(struct device *base, struct device_stream *stream, const struct device_kernel *kernel,
                         const struct fused_launch *launch, struct fault *fault) {
    const struct cuda *cuda = &((struct cuda_device *)base)->cuda;
    char arguments[FUSED_ARGUMENTS_MAX] __attribute__((aligned(16)));
    void *parameters[] = {arguments};
    int code = cuda_enter(cuda, fault);
    if (code != STATUS_OK)
        return code;
    size_t bytes = fused_arguments(launch, arguments);
    if (kernel->n_parameters != 1 || kernel->parameter_bytes[0] != bytes)
        return fault_set(fault, STATUS_INTERNAL, "a fused kernel takes %u parameters, the first of %u bytes, not %zu",
                         kernel->n_parameters, kernel->n_parameters ? kernel->parameter_bytes[0] : 0, bytes);
    int64_t blocks = fused_blocks(launch);
    int64_t most = (int64_t)cuda->processors * FUSED_BLOCKS;
    const uint32_t grid[3] = {(uint32_t)(blocks < most ? blocks : most), 1, 1}, block[3] = {FUSED_THREADS, 1, 1};
    CUresult result = kernel_put(kernel, stream, grid, block, (uint32_t)fused_shared(launch), parameters);
    return result == CUDA_SUCCESS ? STATUS_OK : cuda_fault(fault, (cudaError_t)result, "cuLaunchKernel");
}

const struct device_fusion cuda_fusion = {
    .name = "fused",
    .text = fusion_text,
    .source = fusion_source,
    .launch = fusion_launch,
    .row_slots = fused_row_slots,
};

const struct device_kernels cuda_kernels = {
    .target = kernel_target,
    .compile = compiler_run,
    .compiler = compiler_words,
    .measure = compiler_measure,
    .load = kernel_load,
    .launch = kernel_launch,
    .release = kernel_release,
};
