/* kernel_check URL DEVICE OTHER: user kernels on a device whose daemon allows them, one of them deadly, while OTHER works on.
 * For GPUs (scripts/gpu-check) and, with functions in the place of kernels, for the late device (tests/stand_ins/late.h), which
 * goes by the kernels' names. Ends with 0, or says what was wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tensord.h"

enum { N = 100000 };

static const char saxpy_source[] =
    "extern \"C\" __global__ void saxpy(float *z, const float *x, const float *y, float a, int n) {\n"
    "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)\n"
    "        z[i] = a * x[i] + y[i];\n"
    "}\n";
static const char axpy_source[] =
    "template <class T> __global__ void axpy(T *z, const T *x, const T *y, T a, int n) {\n"
    "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)\n"
    "        z[i] = a * x[i] + y[i];\n"
    "}\n";
static const char count_source[] = "extern \"C\" __global__ void count(int *x, long long first, long long n) {\n"
                                   "    if (blockIdx.x == 0 && threadIdx.x == 0)\n"
                                   "        for (long long i = 0; i < n; i++)\n"
                                   "            x[first + i]++;\n"
                                   "}\n";
static const char crash_source[] = "extern \"C\" __global__ void crash(int *x) {\n"
                                   "    *(volatile int *)(x + (1LL << 44)) = 1;\n"
                                   "}\n";

static int wrong(const char *what) {
    fprintf(stderr, "kernel_check: %s: %s\n%s\n", what, td_last_error()->message, td_last_error()->details);
    return 1;
}

static int linear(td_device *device, const char *source, const char *name) {
    static float got[N];
    td_kernel *kernel;
    td_tensor *z;
    if (td_kernel_compile(device, source, name, &kernel))
        return wrong(name);
    td_tensor *x = td_arange(device, TD_F32, 0, N, 1), *y = td_full(device, TD_F32, TD_SHAPE(N), 0.5);
    td_kernel_launch(
        kernel, TD_DIM(100), TD_DIM(256), 0,
        TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(N)), td_arg_in(x), td_arg_in(y), td_arg_f32(2), td_arg_i32(N)));
    if (td_fetch(td_add(z, y), got, sizeof got))
        return wrong(name);
    for (int i = 0; i < N; i++)
        if (fabsf(got[i] - (2 * (float)i + 1)) > 0) {
            fprintf(stderr, "kernel_check: %s: element %d is %g\n", name, i, (double)got[i]);
            return 1;
        }
    td_kernel_release(kernel);
    return 0;
}

/* An output that begins as a copy, and one of a view that is not contiguous. */
static int counting(td_device *device) {
    static const int32_t host[6] = {0, 10, 20, 30, 40, 50};
    int32_t got[6], kept[6];
    td_kernel *kernel;
    td_tensor *once, *twice, *x = td_upload(device, TD_I32, TD_SHAPE(2, 3), host);
    if (td_kernel_compile(device, count_source, "count", &kernel))
        return wrong("count");
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(32), 0,
                     TD_ARGS(td_arg_update(&once, td_transpose(x)), td_arg_i64(1), td_arg_i64(3)));
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(32), 0,
                     TD_ARGS(td_arg_update(&twice, once), td_arg_i64(0), td_arg_i64(2)));
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(32), 0,
                     TD_ARGS(td_arg_consume(&twice, twice), td_arg_i64(5), td_arg_i64(1)));
    if (td_fetch(twice, got, sizeof got) || td_fetch(x, kept, sizeof kept))
        return wrong("count");
    if (memcmp(got, (const int32_t[6]){1, 32, 11, 41, 20, 51}, sizeof got) != 0 || memcmp(kept, host, sizeof kept) != 0)
        return fprintf(stderr, "kernel_check: count: wrong numbers\n"), 1;
    return 0;
}

/* 2 · x + x by a program that has been recorded with a kernel, released meanwhile, saved and loaded. */
static int saved(td_device *device) {
    float got[4];
    char path[] = "/tmp/kernel_check.XXXXXX";
    td_kernel *kernel;
    td_program *program, *loaded;
    td_tensor *z, *x = td_full(device, TD_F32, TD_SHAPE(4), 3);
    int fd = mkstemp(path);
    if (fd < 0 || close(fd))
        return fprintf(stderr, "kernel_check: no file\n"), 1;
    if (td_kernel_compile(device, saxpy_source, "saxpy", &kernel) || td_record_begin(device))
        return wrong("recording");
    td_tensor *input = td_parameter(TD_F32, TD_SHAPE(4));
    td_kernel_launch(
        kernel, TD_DIM(1), TD_DIM(32), 0,
        TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(4)), td_arg_in(input), td_arg_in(input), td_arg_f32(2), td_arg_i32(4)));
    td_kernel_release(kernel);
    if (td_record_end(device, 1, &z, &program) || td_program_save(program, path))
        return wrong("saving a program");
    td_program_release(program);
    if (td_program_load(device, path, &loaded) || td_program_run(loaded, 1, &x, 1, &z) || td_fetch(z, got, sizeof got))
        return wrong("loading a program");
    unlink(path);
    if (fabsf(got[0] - 9) > 0 || fabsf(got[3] - 9) > 0)
        return fprintf(stderr, "kernel_check: a loaded program computes %g\n", (double)got[0]), 1;
    td_program_release(loaded);
    return 0;
}

static int refusals(td_device *device) {
    td_kernel *kernel;
    td_tensor *z;
    float got[4];
    if (td_kernel_compile(device, "#error of ours\n", "saxpy", &kernel) != TD_E_INVALID_ARGUMENT)
        return wrong("a source that does not compile");
    if (!strstr(td_last_error()->details, "error") || !strstr(td_last_error()->message, "error"))
        return wrong("the compiler's log");
    if (td_kernel_compile(device, saxpy_source, "saxpy", &kernel))
        return wrong("saxpy");
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(32), 0, TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(4)), td_arg_i32(1)));
    if (td_fetch(z, got, sizeof got) != TD_E_INVALID_ARGUMENT)
        return wrong("too few arguments");
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(4096), 0,
                     TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(4)), td_arg_in(td_full(device, TD_F32, TD_SHAPE(4), 0)),
                             td_arg_in(td_full(device, TD_F32, TD_SHAPE(4), 0)), td_arg_f32(2), td_arg_i32(4)));
    if (td_fetch(z, got, sizeof got) != TD_E_INVALID_ARGUMENT)
        return wrong("too many threads");
    return 0;
}

static int serves(td_device *device) {
    float got[3];
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(3), 2);
    return td_fetch(td_add(x, x), got, sizeof got) || fabsf(got[2] - 4) > 0 ? wrong(td_device_name(device)) : 0;
}

static int crash(td_device *device, td_device *other) {
    td_kernel *kernel;
    td_tensor *y;
    int32_t got[1];
    if (td_kernel_compile(device, crash_source, "crash", &kernel))
        return wrong("crash");
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&y, TD_I32, TD_SHAPE(1))));
    if (td_fetch(y, got, sizeof got) != TD_E_DEVICE_LOST || !strstr(td_last_error()->message, "crash"))
        return wrong("the loss of the device");
    fprintf(stderr, "kernel_check: as it should be: %s\n", td_last_error()->message);
    return serves(other);
}

int main(int argc, char **argv) {
    td_connection *connection;
    td_device *device, *other, *again;
    if (argc != 4)
        return fprintf(stderr, "usage: kernel_check URL DEVICE OTHER\n"), 2;
    if (td_connect(argv[1], &(td_options){.timeout_ms = 60000}, &connection) ||
        td_device_open(connection, argv[2], &device) || td_device_open(connection, argv[3], &other))
        return wrong("opening");
    if (linear(device, saxpy_source, "saxpy") || linear(device, axpy_source, "axpy<float>") || counting(device) ||
        saved(device) || refusals(device) || serves(other) || crash(device, other))
        return 1;
    if (td_device_open(connection, argv[2], &again)) /* waits for the new worker */
        return wrong("opening it again");
    if (serves(again) || linear(again, saxpy_source, "saxpy") || serves(other))
        return 1;
    td_close(connection);
    return 0;
}
