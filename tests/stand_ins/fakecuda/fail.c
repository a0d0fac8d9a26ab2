/* Counting calls and making them fail; errors and their names. */
#include "tests/stand_ins/fakecuda/fakecuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FUNCTIONS_MAX = 128 };

static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    bool armed;
    char function[64]; /* "": any */
    unsigned long number, seen;
    cudaError_t code;
    unsigned long calls;
    char failed[64];
    struct {
        const char *name;
        unsigned long calls;
    } functions[FUNCTIONS_MAX];
} fail = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

static _Atomic cudaError_t lost;
static _Thread_local cudaError_t last;

long fakecuda_setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 0) : otherwise;
}

static void fail_init(void) {
    const char *text = getenv("FAKECUDA_FAIL");
    int code = 0;
    if (!text || !*text)
        return;
    fail.armed = sscanf(text, "%lu:%d", &fail.number, &code) == 2 ||
                 sscanf(text, "%63[a-zA-Z_0-9]:%lu:%d", fail.function, &fail.number, &code) == 3;
    fail.code = (cudaError_t)code;
    if (!fail.armed)
        fprintf(stderr, "fakecuda: FAKECUDA_FAIL=%s is neither \"N:CODE\" nor \"FUNCTION:N:CODE\"\n", text);
}

/* ---- errors ---- */

static const struct {
    cudaError_t error;
    bool sticky;
    const char *name, *words;
} errors[] = {
    {cudaSuccess, false, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, false, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, false, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, false, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, false, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, false, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, false, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, false, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, false, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNotSupported, false, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorIllegalState, false, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorStreamCaptureUnsupported, false, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, false, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorGraphExecUpdateFailure, false, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints specific to "
     "instantiated graph update"},
    {cudaErrorECCUncorrectable, true, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorIllegalAddress, true, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchTimeout, true, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorAssert, true, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorMisalignedAddress, true, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, true, "cudaErrorLaunchFailure", "unspecified launch failure"},
};
enum { ERRORS = sizeof errors / sizeof *errors };

static unsigned error_find(cudaError_t error) {
    for (unsigned i = 0; i < ERRORS; i++)
        if (errors[i].error == error)
            return i;
    return ERRORS;
}

const char *cudaGetErrorName(cudaError_t error) {
    unsigned i = error_find(error);
    return i < ERRORS ? errors[i].name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    unsigned i = error_find(error);
    return i < ERRORS ? errors[i].words : "unrecognized error code";
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return last;
}

cudaError_t fakecuda_error(cudaError_t error) {
    last = error;
    return error;
}

bool fakecuda_lost(void) {
    return atomic_load(&lost) != cudaSuccess;
}

void fakecuda_lose(cudaError_t error) {
    cudaError_t none = cudaSuccess;
    atomic_compare_exchange_strong(&lost, &none, error);
}

/* ---- calls ---- */

static void fail_count(const char *function) {
    unsigned i = 0;
    fail.calls++;
    while (i < FUNCTIONS_MAX - 1 && fail.functions[i].name && strcmp(fail.functions[i].name, function) != 0)
        i++;
    fail.functions[i].name = function;
    fail.functions[i].calls++;
}

cudaError_t fakecuda_call_of_library(const char *function) {
    cudaError_t error = cudaSuccess;
    pthread_once(&fail.once, fail_init);
    pthread_mutex_lock(&fail.lock);
    fail_count(function);
    if (fail.armed && (!*fail.function || !strcmp(fail.function, function)) && ++fail.seen == fail.number) {
        error = fail.code;
        snprintf(fail.failed, sizeof fail.failed, "%s", function);
    }
    pthread_mutex_unlock(&fail.lock);
    unsigned i = error_find(error);
    if (i < ERRORS && errors[i].sticky)
        fakecuda_lose(error);
    return error == cudaSuccess ? atomic_load(&lost) : error;
}

cudaError_t fakecuda_call(const char *function) {
    cudaError_t error = fakecuda_call_of_library(function);
    return error == cudaSuccess ? cudaSuccess : fakecuda_error(error);
}

void fakecuda_fail_figures(struct fakecuda_figures *figures) {
    pthread_mutex_lock(&fail.lock);
    figures->calls = fail.calls;
    memcpy(figures->failed, fail.failed, sizeof fail.failed);
    pthread_mutex_unlock(&fail.lock);
}

__attribute__((destructor)) static void fail_log(void) {
    if (!fakecuda_setting("FAKECUDA_LOG", 0))
        return;
    fprintf(stderr, "fakecuda: %lu calls", fail.calls);
    for (unsigned i = 0; i < FUNCTIONS_MAX && fail.functions[i].name; i++)
        fprintf(stderr, ", %lu %s", fail.functions[i].calls, fail.functions[i].name);
    fprintf(stderr, "\n");
}
