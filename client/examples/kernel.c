/* A user kernel: z = 2 x + y, on a CUDA device whose operator allows it (tensord --user-kernels all). */
#include <stdio.h>

#include "client/tensord.h"

static const char source[] = "template <class T> __global__ void axpy(T *z, const T *x, const T *y, T a, int n) {\n"
                             "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                             "    if (i < n)\n"
                             "        z[i] = a * x[i] + y[i];\n"
                             "}\n";

static int failed(void) {
    fprintf(stderr, "kernel: %s\n%s", td_last_error()->message, td_last_error()->details);
    return 1;
}

int main(int argc, char **argv) {
    enum { N = 1000 };
    float z_host[N];
    td_connection *connection;
    td_device *device;
    td_kernel *axpy;
    td_tensor *z;

    if (td_connect(NULL, NULL, &connection) || td_device_open(connection, argc > 1 ? argv[1] : "cuda:0", &device))
        return failed();
    if (td_kernel_compile(device, source, "axpy<float>", &axpy)) /* waits; the compiler's log is in the error */
        return failed();

    td_tensor *x = td_arange(device, TD_F32, 0, N, 1);
    td_tensor *y = td_full(device, TD_F32, TD_SHAPE(N), 0.5);
    td_kernel_launch(
        axpy, TD_DIM((N + 255) / 256), TD_DIM(256), 0,
        TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(N)), td_arg_in(x), td_arg_in(y), td_arg_f32(2), td_arg_i32(N)));
    if (td_fetch(z, z_host, sizeof z_host)) /* waits, and reports what went wrong anywhere above */
        return failed();

    printf("%s: %g %g … %g\n", td_device_name(device), z_host[0], z_host[1], z_host[N - 1]);
    td_close(connection);
    return 0;
}
