/* The driver's functions for libraries and their kernels, which the runtime hands out by name. */
#include <cuda.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/stand_ins/fakecuda/code.h"
#include "tests/stand_ins/fakecuda/fakecuda.h"

struct CUlib_st {
    struct code code;
};

static atomic_uint libraries;

static CUresult driver_call(const char *function) {
    return (CUresult)fakecuda_call_of_library(function);
}

static CUresult library_load(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned n,
                             CUlibraryOption *library_options, void **library_values, unsigned library_n) {
    CUresult result = driver_call("cuLibraryLoadData");
    (void)options, (void)values, (void)n, (void)library_options, (void)library_values, (void)library_n;
    if (result != CUDA_SUCCESS)
        return result;
    if (((const struct code *)code)->magic != CODE_MAGIC)
        return CUDA_ERROR_INVALID_IMAGE;
    if (((const struct code *)code)->slow)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    *library = malloc(sizeof **library);
    memcpy(&(*library)->code, code, sizeof(*library)->code);
    atomic_fetch_add(&libraries, 1);
    return CUDA_SUCCESS;
}

static CUresult library_unload(CUlibrary library) {
    CUresult result = driver_call("cuLibraryUnload");
    free(library);
    atomic_fetch_sub(&libraries, 1);
    return result;
}

static CUresult library_kernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CUresult result = driver_call("cuLibraryGetKernel");
    if (result == CUDA_SUCCESS && strcmp(name, library->code.symbol) != 0)
        result = CUDA_ERROR_NOT_FOUND;
    *kernel = (CUkernel)(void *)library;
    return result;
}

static CUresult kernel_function(CUfunction *function, CUkernel kernel) {
    *function = (CUfunction)(void *)kernel;
    return driver_call("cuKernelGetFunction");
}

static CUresult function_attribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    (void)function;
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 512 : 1024;
    return driver_call("cuFuncGetAttribute");
}

static CUresult function_set(CUfunction function, CUfunction_attribute attribute, int value) {
    (void)function;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > (227 << 10) - 1024)
        return CUDA_ERROR_INVALID_VALUE;
    return driver_call("cuFuncSetAttribute");
}

static CUresult function_load(CUfunction function) {
    (void)function;
    return driver_call("cuFuncLoad");
}

static CUresult function_parameter(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
    const struct code *code = &((CUlibrary)(void *)function)->code;
    CUresult result = driver_call("cuFuncGetParamInfo");
    if (result == CUDA_SUCCESS && index >= code->n_parameters)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = 8 * index;
    if (result == CUDA_SUCCESS)
        *bytes = code->parameters[index];
    return result;
}

static CUresult function_launch(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b,
                                unsigned c, unsigned shared, CUstream stream, void **parameters, void **extra) {
    const struct code *code = &((CUlibrary)(void *)function)->code;
    CUresult result = driver_call("cuLaunchKernel");
    struct fakecuda_item item = {.kind = code->trap ? ITEM_TRAP : code->store ? ITEM_STORE : ITEM_KERNEL};
    (void)extra;
    if (result != CUDA_SUCCESS)
        return result;
    if (!fakecuda_extents_fit((dim3){x, y, z}, (dim3){a, b, c}) || (uint64_t)a * b * c > 512 ||
        shared > (227 << 10) - 1024)
        return CUDA_ERROR_INVALID_VALUE;
    if (item.kind == ITEM_STORE) {
        memcpy(&item.to, parameters[0], sizeof item.to);
        memcpy(&item.value, parameters[1], sizeof item.value);
        item.bytes = sizeof item.value;
    }
    return (CUresult)fakecuda_put((cudaStream_t)stream, &item);
}

/* ---- by name ---- */

static const struct {
    const char *name;
    void (*function)(void);
} functions[] = {
    {"cuLibraryLoadData", (void (*)(void))library_load},
    {"cuLibraryUnload", (void (*)(void))library_unload},
    {"cuLibraryGetKernel", (void (*)(void))library_kernel},
    {"cuKernelGetFunction", (void (*)(void))kernel_function},
    {"cuFuncGetAttribute", (void (*)(void))function_attribute},
    {"cuFuncSetAttribute", (void (*)(void))function_set},
    {"cuFuncGetParamInfo", (void (*)(void))function_parameter},
    {"cuFuncLoad", (void (*)(void))function_load},
    {"cuLaunchKernel", (void (*)(void))function_launch},
    {"cuGraphKernelNodeGetParams", (void (*)(void))fakecuda_kernel_node_get},
    {"cuGraphExecKernelNodeSetParams", (void (*)(void))fakecuda_kernel_node_set},
};

static cudaError_t entry_point(const char *call, const char *name, void **function) {
    cudaError_t error = fakecuda_call(call);
    *function = NULL;
    for (size_t i = 0; error == cudaSuccess && i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name))
            memcpy(function, &functions[i].function, sizeof *function);
    return error;
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {
    (void)version, (void)flags, (void)status;
    return entry_point(__func__, name, function);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
    (void)flags, (void)status;
    return entry_point(__func__, name, function);
}
#endif

void fakecuda_driver_figures(struct fakecuda_figures *figures) {
    figures->libraries = atomic_load(&libraries);
}
