/* User kernels in the client: what a launch looks like on the wire, and what becomes of its handles. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensord.h"
#include "tests/stand_ins/fake_daemon.h"

static struct fake_daemon fake;
static td_connection *connection;
static td_device *device;

static void start(void) {
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
}

static void stop(void) {
    td_close(connection);
    fake_daemon_stop(&fake);
}

TestSuite(client_kernels, .init = start, .fini = stop, .timeout = 60);

static td_kernel *compiled(void) {
    td_kernel *kernel = NULL;
    cr_assert_eq(td_kernel_compile(device, "right", "f<int>", &kernel), 0, "%s", td_last_error()->message);
    return kernel;
}

Test(client_kernels, log_of_a_failure_is_whole_until_the_next_failure) {
    td_kernel *kernel = NULL;
    cr_assert_eq(td_kernel_compile(device, "wrong", "f", &kernel), TD_E_INVALID_ARGUMENT);
    cr_assert_str_eq(td_last_error()->message, "kernel: line 1");
    cr_assert_eq(strlen(td_last_error()->details), 100000);
    cr_assert_eq(td_last_error()->details[99999], 'l');
    compiled();
    cr_assert_eq(strlen(td_last_error()->details), 100000, "a success has changed the last error");
    cr_assert_null(td_exp(td_full(device, (td_dtype)99, TD_SCALAR, 0)));
    cr_assert_str_eq(td_last_error()->details, "");
    cr_assert_eq(td_kernel_compile(device, "wrong", "f", &kernel), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_kernel_compile(device, NULL, "f", &kernel), TD_E_INVALID_ARGUMENT);
    cr_assert_str_eq(td_last_error()->details, "");
}

Test(client_kernels, launch_is_an_operation_among_others) {
    td_kernel *kernel = compiled();
    td_tensor *y = NULL, *z = NULL;
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(2, 3), 1);
    td_label("here");
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(7, 2), TD_DIM(32, 0, 4), 99,
                                  TD_ARGS(td_arg_out(&y, TD_I64, TD_SHAPE(5)), td_arg_in(x), td_arg_update(&z, x),
                                          td_arg_i32(-1), td_arg_f32(1), td_arg_u64(3), td_arg_f64(-2))),
                 0, "%s", td_last_error()->message);
    cr_assert(td_tensor_dtype(y) == TD_I64 && td_tensor_rank(y) == 1 && td_tensor_bytes(y) == 40);
    cr_assert(td_tensor_dtype(z) == TD_F32 && td_tensor_rank(z) == 2 && td_tensor_bytes(z) == 24);
    td_tensor *w = td_add(z, x);
    cr_assert_eq(td_wait(w), 0);
    cr_assert(fake_daemon_saw(&fake, "batch stream 0\nfull()=1\n"));
    cr_assert(fake_daemon_saw(&fake, "\nkernel 1 (7,2,1)x(32,1,4)+99 here: 2=2 1:1 3:1=3 4:ffffffff 4:3f800000 5:3 "
                                     "5:c000000000000000\n"));
    cr_assert(fake_daemon_saw(&fake, "\nadd(3,1)=4\n"));
    td_kernel_release(kernel);
    cr_assert(fake_daemon_saw(&fake, "KERNEL_RELEASE"));
}

Test(client_kernels, launch_uses_the_threads_stream_and_scope) {
    td_kernel *kernel = compiled();
    td_stream *stream;
    td_tensor *y;
    cr_assert_eq(td_stream_open(device, 0, &stream), 0);
    cr_assert_eq(td_stream_set(device, stream), 0);
    td_scope_begin("outer");
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&y, TD_F32, TD_SCALAR)));
    td_scope_end();
    cr_assert_eq(td_sync(device), 0);
    cr_assert(fake_daemon_saw(&fake, "batch stream 1\nkernel 1 (1,1,1)x(1,1,1)+0 outer: 2=1\n"));
    cr_assert(fake_daemon_saw(&fake, "free(1)"));
}

Test(client_kernels, failed_launch_leaves_nothing) {
    td_kernel *kernel = compiled();
    td_tensor *y = (td_tensor *)&y, *none = NULL;
    cr_assert_null(td_exp(td_full(device, (td_dtype)99, TD_SCALAR, 0)));
    cr_assert_eq(
        td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&y, TD_F32, TD_SCALAR), td_arg_in(none))),
        TD_E_DTYPE, "the first error is not kept");
    cr_assert_null(y);
    td_tensor *x = td_full(device, TD_F32, TD_SCALAR, 0);
    cr_assert_eq(td_wait(x), 0);
    cr_assert(fake_daemon_saw(&fake, "full()=1\n"));
    char *log = fake_daemon_log(&fake);
    cr_assert(!strstr(log, "kernel 1 ("), "%s", log);
    free(log);
}

Test(client_kernels, large_source_goes_through_a_slow_socket) {
    enum { BYTES = 1000000 };
    char *source = malloc(BYTES + 1);
    td_kernel *kernel;
    memset(source, 's', BYTES);
    source[BYTES] = 0;
    td_full(device, TD_F32, TD_SCALAR, 0);
    cr_assert_eq(td_kernel_compile(device, source, "f", &kernel), 0, "%s", td_last_error()->message);
    cr_assert(fake_daemon_saw(&fake, "full()=1\ncompile 1 f, 1000000 bytes\n"));
    free(source);
}
