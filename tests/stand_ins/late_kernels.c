#include "tests/stand_ins/late_kernels.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LATE_KERNEL_BYTES = 4096 }; /* what a client's kernel is said to take of the device */

struct late_kernel {
    struct device_kernel base;
    void (*run)(const uint64_t *arguments);
};

static void *argument_address(uint64_t argument) {
    return late_real_address((void *)(uintptr_t)argument);
}

static float argument_float(uint64_t argument) {
    float value;
    memcpy(&value, &argument, sizeof value);
    return value;
}

/* (float *z, const float *x, const float *y, float a, int n) */
static void run_saxpy(const uint64_t *arguments) {
    float *z = argument_address(arguments[0]), a = argument_float(arguments[3]);
    const float *x = argument_address(arguments[1]), *y = argument_address(arguments[2]);
    for (int i = 0; i < (int)arguments[4]; i++)
        z[i] = a * x[i] + y[i];
}

/* (int *x, long long first, long long n): adds one to n of x's elements. */
static void run_count(const uint64_t *arguments) {
    int32_t *x = argument_address(arguments[0]);
    for (uint64_t i = 0; i < arguments[2]; i++)
        x[arguments[1] + i]++;
}

/* (float *small, float *large, const float *x, int n): one more output than others have. */
static void run_split(const uint64_t *arguments) {
    float *small = argument_address(arguments[0]), *large = argument_address(arguments[1]);
    const float *x = argument_address(arguments[2]);
    for (int i = 0; i < (int)arguments[3]; i++)
        *(x[i] < 0 ? &small[i] : &large[i]) = x[i];
}

/* (double *z, const double *a, const double *b, long long n) */
static void run_mean(const uint64_t *arguments) {
    double *z = argument_address(arguments[0]);
    const double *a = argument_address(arguments[1]), *b = argument_address(arguments[2]);
    for (uint64_t i = 0; i < arguments[3]; i++)
        z[i] = (a[i] + b[i]) * 0.5;
}

/* (const int *x0, ..., const int *x15, int *y0, ..., int *y3): adds the first elements of all x to that of each y. */
static void run_spread(const uint64_t *arguments) {
    for (int y = 16; y < 20; y++)
        for (int x = 0; x < 16; x++)
            *(int32_t *)argument_address(arguments[y]) += *(const int32_t *)argument_address(arguments[x]);
}

static const struct late_function {
    const char *name;
    void (*run)(const uint64_t *arguments); /* NULL: a device does not survive it */
    uint32_t n;
    uint32_t bytes[20];
} late_functions[] = {
    {"saxpy", run_saxpy, 5, {8, 8, 8, 4, 4}},
    {"axpy<float>", run_saxpy, 5, {8, 8, 8, 4, 4}},
    {"count", run_count, 3, {8, 8, 8}},
    {"split", run_split, 4, {8, 8, 8, 4}},
    {"mean", run_mean, 4, {8, 8, 8, 8}},
    {"crash", NULL, 1, {8}},
    {"spread", run_spread, 20, {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}},
};

static const struct late_function *late_find(const char *name) {
    for (size_t i = 0; i < sizeof late_functions / sizeof *late_functions; i++)
        if (!strcmp(late_functions[i].name, name))
            return &late_functions[i];
    return NULL;
}

/* "// gate FOLDER" makes a new file there, and waits until there is one whose name is "open". */
static void late_gate(const char *source, const _Atomic bool *cancelled) {
    char folder[96], path[128];
    if (sscanf(source, "// gate %95s", folder) != 1)
        return;
    snprintf(path, sizeof path, "%s/begun.XXXXXX", folder);
    int fd = mkstemp(path);
    if (fd >= 0)
        close(fd);
    snprintf(path, sizeof path, "%s/open", folder);
    while (access(path, F_OK) && !atomic_load(cancelled))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* A name "endless" takes until nobody waits for it any more; the compiler does not survive "murder". */
int late_kernel_compile(const struct kernel_source *source, const _Atomic bool *cancelled, struct device_code **code,
                        char **log, struct fault *fault) {
    const char *name = source->name;
    late_gate(source->text, cancelled);
    while (!strcmp(name, "endless") && !atomic_load(cancelled))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (!strcmp(name, "murder"))
        raise(SIGSEGV);
    *log = strdup(strstr(source->text, "#error") ? "kernel.cu(1): error: #error directive\n1 error detected\n"
                                                 : "a word\n");
    if (strstr(source->text, "#error"))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "kernel.cu(1): error: #error directive");
    if (!late_find(name))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the source has no kernel %.100s", name);
    *code = calloc(1, sizeof **code);
    (*code)->symbol = late_find(name)->name;
    return STATUS_OK;
}

int late_kernel_load(struct device *device, const struct device_code *code, struct device_kernel **result,
                     struct fault *fault) {
    const struct late_function *function = late_find(code->symbol);
    struct late_kernel *kernel = calloc(1, sizeof *kernel);
    (void)device, (void)fault;
    kernel->run = function->run;
    for (int i = 0; i < 3; i++) {
        kernel->base.grid_max[i] = 65535;
        kernel->base.block_max[i] = i < 2 ? 1024 : 64;
    }
    kernel->base.threads_max = 512;
    kernel->base.shared_max = 1024;
    kernel->base.n_parameters = function->n;
    memcpy(kernel->base.parameter_bytes, function->bytes, sizeof function->bytes);
    *result = &kernel->base;
    return STATUS_OK;
}

void late_kernel_release(struct device *device, struct device_kernel *kernel) {
    (void)device;
    free(kernel);
}

uint32_t late_kernel_target(const struct device *device) {
    (void)device;
    return 0;
}

/* Functions that are there already. */
int late_kernel_measure(const struct device_code *code, uint64_t *bytes, struct fault *fault) {
    (void)code, (void)fault;
    *bytes = LATE_KERNEL_BYTES;
    return STATUS_OK;
}

bool late_kernel_survives(const struct device_kernel *kernel) {
    return ((const struct late_kernel *)kernel)->run != NULL;
}

void late_kernel_run(const struct kernel_launch *launch) {
    ((const struct late_kernel *)launch->kernel)->run(launch->arguments);
}
