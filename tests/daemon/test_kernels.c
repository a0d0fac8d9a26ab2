/* User kernels through a real daemon, on a device with functions in the place of kernels (tests/stand_ins/late.h). */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

static struct daemon tensord;
static struct client client;
static td_device *cpu;

static void start_with(const char *who) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0,cpu:0",
                                                    .flags = (const char *const[]){"--user-kernels", who, NULL}});
    client_open(&client, tensord.url, "late:0");
    cr_assert(!td_device_open(client.connection, "cpu:0", &cpu), "%s", td_last_error()->message);
}

static void start(void) {
    start_with("all");
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(kernels, .init = start, .fini = stop, .timeout = 120);
TestSuite(kernels_allowed, .fini = stop, .timeout = 120);

static td_kernel *compiled(const char *name) {
    td_kernel *kernel = NULL;
    cr_assert(!td_kernel_compile(client.device, "// a source", name, &kernel), "%s", td_last_error()->message);
    return kernel;
}

static td_tensor *saxpy(td_kernel *kernel, td_tensor *x, td_tensor *y, int n) {
    td_tensor *z = NULL;
    td_kernel_launch(
        kernel, TD_DIM(1), TD_DIM(32), 0,
        TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(n)), td_arg_in(x), td_arg_in(y), td_arg_f32(2), td_arg_i32(n)));
    return z;
}

/* ---- who may ---- */

static int compile_code(td_device *device) {
    td_kernel *kernel = NULL;
    int code = td_kernel_compile(device, "// a source", "saxpy", &kernel);
    cr_assert((code == TD_OK) == (kernel != NULL));
    return code;
}

Test(kernels_allowed, nobody_without_the_setting) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0"});
    client_open(&client, tensord.url, "late:0");
    cr_assert_eq(compile_code(client.device), TD_E_DENIED);
    cr_assert(strstr(td_last_error()->message, "user-kernels"), "%s", td_last_error()->message);
    cr_assert_str_eq(td_last_error()->details, "");
    client_expect(client_ramp(client.device, 2, 1), (float[]){1, 2}, 2);
}

Test(kernels_allowed, principals_that_are_named) {
    char who[64];
    snprintf(who, sizeof who, "uid:99999, uid:%u", getuid());
    start_with(who);
    cr_assert_eq(compile_code(client.device), TD_OK, "%s", td_last_error()->message);
}

Test(kernels_allowed, not_others) {
    char who[64], self[32];
    snprintf(who, sizeof who, "uid:%u", getuid() + 1);
    snprintf(self, sizeof self, "uid:%u", getuid());
    start_with(who);
    cr_assert_eq(compile_code(client.device), TD_E_DENIED);
    cr_assert(strstr(td_last_error()->message, self), "%s", td_last_error()->message);
}

Test(kernels, cpu_device_takes_none) {
    cr_assert_eq(compile_code(cpu), TD_E_UNSUPPORTED);
    cr_assert(strstr(td_last_error()->message, "a cpu device takes no user kernels"), "%s", td_last_error()->message);
}

Test(kernels, whoever_compiles_again_and_again_does_not_fill_the_log) {
    enum { TIMES = 500, SUPPRESSED_MS = 30000 };
    unsigned lines = 0;
    for (int i = 0; i < TIMES; i++) {
        char source[32];
        td_kernel *kernel = NULL;
        snprintf(source, sizeof source, "// source %d", i);
        cr_assert(!td_kernel_compile(client.device, source, "saxpy", &kernel), "%s", td_last_error()->message);
        td_kernel_release(kernel);
    }
    cr_assert(daemon_log_has(&tensord, "event=log_suppressed", SUPPRESSED_MS));
    char *log = daemon_log(&tensord);
    for (const char *at = log; (at = strstr(at, "event=kernel_compiled")); at++)
        lines++;
    free(log);
    cr_assert(lines > 0 && lines < TIMES, "%u lines of %d kernels", lines, TIMES);
}

/* ---- derivatives ---- */

/* y + 2 · x, whose slopes are 1 and 2. */
static int saxpy_forward(void *kernel, td_tensor *const *inputs, td_tensor **outputs) {
    outputs[0] = saxpy(kernel, inputs[0], inputs[1], 3);
    return outputs[0] ? 0 : td_last_error()->code;
}

static int saxpy_backward(void *kernel, const td_backward *call) {
    td_tensor *zero = td_full(client.device, TD_F32, TD_SHAPE(3), 0);
    call->input_gradients[0] = saxpy(kernel, call->output_gradients[0], zero, 3);
    call->input_gradients[1] = call->output_gradients[0];
    return 0;
}

static void saxpy_release(void *kernel) {
    td_kernel_release(kernel);
}

Test(kernels, a_kernel_has_the_derivative_that_the_program_gives_it) {
    const td_gradient_rule rule = {
        .name = "saxpy", .forward = saxpy_forward, .backward = saxpy_backward, .destroy = saxpy_release};
    td_tensor *x = client_ramp(client.device, 3, 1), *xs[] = {x, client_ramp(client.device, 3, 5)}, *z, *g[2];
    cr_assert_eq(td_tape_begin(), 0);
    td_kernel *kernel = compiled("saxpy");
    cr_assert_eq(td_gradients(saxpy(kernel, x, xs[1], 3), 2, xs, g), TD_E_UNSUPPORTED);
    cr_assert(strstr(td_last_error()->message, "td_custom_gradient"), "%s", td_last_error()->message);
    cr_assert(!td_custom_gradient(&rule, kernel, 2, xs, 1, &z), "%s", td_last_error()->message);
    client_expect(z, (float[]){7, 10, 13}, 3);
    cr_assert(!td_gradients(z, 2, xs, g), "%s", td_last_error()->message);
    td_tape_end();
    client_expect(g[0], (float[]){2, 2, 2}, 3);
    client_expect(g[1], (float[]){1, 1, 1}, 3);
}

/* ---- compiling ---- */

Test(kernels, wrong_source_has_the_whole_log) {
    td_kernel *kernel = NULL;
    cr_assert_eq(td_kernel_compile(client.device, "#error", "saxpy", &kernel), TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(td_last_error()->details, "1 error detected"), "%s", td_last_error()->details);
    cr_assert(strstr(td_last_error()->message, "#error directive"), "%s", td_last_error()->message);
    cr_assert_eq(td_kernel_compile(client.device, "", "unheard-of", &kernel), TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(td_last_error()->message, "unheard-of"), "%s", td_last_error()->message);
    cr_assert_eq(td_kernel_compile(client.device, "", "", &kernel), TD_E_INVALID_ARGUMENT);
    cr_assert_str_eq(td_last_error()->details, "");
    cr_assert_null(kernel);
    client_expect(client_ramp(client.device, 2, 1), (float[]){1, 2}, 2);
}

Test(kernels, large_sources_are_sent_whole_or_refused) {
    size_t bytes = (1 << 20) - 2000;
    char *source = malloc(bytes + 3000);
    td_kernel *kernel;
    memset(source, ' ', bytes);
    source[bytes] = 0;
    cr_assert(!td_kernel_compile(client.device, source, "saxpy", &kernel), "%s", td_last_error()->message);
    strcpy(source + bytes - 8, "#error");
    cr_assert_eq(td_kernel_compile(client.device, source, "saxpy", &kernel), TD_E_INVALID_ARGUMENT);
    memset(source, ' ', bytes + 2000);
    source[bytes + 2000] = 0;
    cr_assert_eq(td_kernel_compile(client.device, source, "saxpy", &kernel), TD_E_LIMIT);
    free(source);
}

Test(kernels, compiler_that_crashes_costs_its_client_an_error) {
    td_kernel *kernel = NULL;
    td_tensor *kept = client_ramp(client.device, 2, 1);
    int worker = status_worker_pid(tensord.url, "late:0");
    cr_assert_eq(td_kernel_compile(client.device, "", "murder", &kernel), TD_E_INTERNAL);
    cr_assert(strstr(td_last_error()->message, "the compiler crashes"), "%s", td_last_error()->message);
    cr_assert_null(kernel);
    client_expect(kept, (float[]){1, 2}, 2);
    cr_assert_eq(status_worker_pid(tensord.url, "late:0"), worker);
}

Test(kernels, others_go_on_while_one_compiles_and_its_client_dies) {
    struct status_baseline before = {"late:0", 4096, 1}; /* this client's session and little tensor */
    struct wire wire;
    Tensord__KernelCompile compile = TENSORD__KERNEL_COMPILE__INIT;
    compile.source = "";
    compile.name = "endless";
    wire_open(&wire, tensord.url, 0);
    for (compile.kernel = 1; compile.kernel <= 5; compile.kernel++) /* more than run at once */
        cr_assert(wire_request(&wire, FRAME_KERNEL_COMPILE, &compile));
    cr_assert(wire_ping(&wire));
    client_expect(client_ramp(client.device, 2, 1), (float[]){1, 2}, 2);
    wire_close(&wire);
    cr_assert_eq(compile_code(client.device), TD_OK, "%s", td_last_error()->message); /* there is a place again */
    cr_assert(status_settles(tensord.url, &before, 20000));
}

Test(kernels, drain_ends_a_compiler_without_end) {
    struct wire wire;
    Tensord__KernelCompile compile = TENSORD__KERNEL_COMPILE__INIT;
    compile.kernel = 1;
    compile.source = "";
    compile.name = "endless";
    client_close(&client);
    daemon_stop(&tensord);
    daemon_start(&tensord, &(struct daemon_options){
                               .devices = "late:0",
                               .flags = (const char *const[]){"--user-kernels=all", "--drain-timeout=200ms", NULL}});
    wire_open(&wire, tensord.url, 0);
    cr_assert(wire_request(&wire, FRAME_KERNEL_COMPILE, &compile));
    cr_assert(wire_ping(&wire));
    daemon_stop(&tensord);
    wire_close(&wire);
}

/* ---- leave that is withdrawn ---- */

static void configure(const char *path, const char *who) {
    FILE *out = fopen(path, "w");
    cr_assert(out);
    fprintf(out, "user-kernels = %s\n", who);
    cr_assert(!fclose(out) && !kill(tensord.pid, SIGHUP));
}

static int launch_code(td_kernel *kernel, td_tensor *x) {
    td_tensor *z = saxpy(kernel, x, x, 2);
    int code = td_wait(z);
    td_release(z);
    return code;
}

/* The word may still be on its way to the worker. */
static void launches_until(td_kernel *kernel, td_tensor *x, int wanted) {
    int64_t deadline = deadline_in(10000);
    int code;
    do
        code = launch_code(kernel, x);
    while (code != wanted && deadline_pause(deadline));
    cr_assert_eq(code, wanted, "%s", td_last_error()->message);
}

Test(kernels_allowed, leave_is_withdrawn_and_given_to_those_who_are_here) {
    char directory[64], path[100];
    daemon_directory_make(directory);
    snprintf(path, sizeof path, "%s/tensord.conf", directory);
    FILE *out = fopen(path, "w");
    cr_assert(out && fputs("user-kernels = all\n", out) > 0 && !fclose(out));
    daemon_start(&tensord,
                 &(struct daemon_options){.devices = "late:0", .flags = (const char *const[]){"--config", path, NULL}});
    client_open(&client, tensord.url, "late:0");
    td_kernel *kernel = compiled("saxpy");
    td_tensor *x = client_ramp(client.device, 2, 1), *before = saxpy(kernel, x, x, 2);
    cr_assert(!td_wait(before));
    cr_assert(!td_record_begin(client.device));
    td_tensor *recorded = saxpy(kernel, x, x, 2), *result;
    td_program *program = NULL;
    cr_assert(!td_record_end(client.device, 1, &recorded, &program), "%s", td_last_error()->message);
    cr_assert(!td_program_run(program, 0, NULL, 1, &result));
    client_expect(result, (float[]){3, 6}, 2);
    configure(path, "uid:99999");
    launches_until(kernel, x, TD_E_DENIED);
    cr_assert(strstr(td_last_error()->message, "user-kernels"), "%s", td_last_error()->message);
    cr_assert(!td_program_run(program, 0, NULL, 1, &result));
    client_expect_failure(result, TD_E_DENIED);
    cr_assert_eq(compile_code(client.device), TD_E_DENIED);
    client_expect(before, (float[]){3, 6}, 2);
    configure(path, "all");
    launches_until(kernel, x, TD_OK);
    cr_assert_eq(compile_code(client.device), TD_OK, "%s", td_last_error()->message);
    daemon_directory_remove(directory);
}

/* ---- launches ---- */

Test(kernels, results_are_tensors_like_others) {
    td_kernel *kernel = compiled("saxpy");
    td_tensor *x = client_ramp(client.device, 4, 1), *y = client_ramp(client.device, 4, 10);
    td_tensor *z = saxpy(kernel, x, td_add(y, y), 4);
    client_expect(td_multiply(z, x), (float[]){22, 52, 90, 136}, 4);
    td_kernel_release(kernel);
    client_expect(z, (float[]){22, 26, 30, 34}, 4);
}

Test(kernels, views_are_made_contiguous) {
    td_kernel *kernel = compiled("saxpy");
    td_tensor *x = td_reshape(client_ramp(client.device, 6, 0), TD_SHAPE(2, 3));
    td_tensor *zero = td_full(client.device, TD_F32, TD_SHAPE(6), 0);
    client_expect(saxpy(kernel, td_transpose(x), zero, 6), (float[]){0, 6, 2, 8, 4, 10}, 6);
    client_expect(saxpy(kernel, td_broadcast_to(td_slice(x, 1, 1, 2, 1), TD_SHAPE(2, 3)), zero, 6),
                  (float[]){2, 2, 2, 8, 8, 8}, 6);
    client_expect(saxpy(kernel, td_slice(x, 0, 1, 2, 1), zero, 3), (float[]){6, 8, 10}, 3);
}

Test(kernels, outputs_begin_as_zero_also_where_others_left_something) {
    td_kernel *kernel = compiled("saxpy");
    td_tensor *old = td_full(client.device, TD_F32, TD_SHAPE(1000), 7), *z = NULL;
    float got[1000];
    cr_assert(!td_wait(old));
    td_release(old);
    td_tensor *x = client_ramp(client.device, 2, 1);
    td_kernel_launch(
        kernel, TD_DIM(1), TD_DIM(32), 0,
        TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(1000)), td_arg_in(x), td_arg_in(x), td_arg_f32(1), td_arg_i32(2)));
    cr_assert(!td_fetch(z, got, sizeof got), "%s", td_last_error()->message);
    cr_assert(got[0] == 2 && got[1] == 4);
    for (int i = 2; i < 1000; i++)
        cr_assert(got[i] == 0, "element %d is %g", i, got[i]);
}

Test(kernels, updates_begin_as_a_copy_and_leave_the_original) {
    td_kernel *kernel = compiled("count");
    td_tensor *x = td_full(client.device, TD_I32, TD_SHAPE(3), 5), *last = x;
    int32_t got[3];
    for (int i = 0; i < 1000; i++) {
        td_tensor *next;
        td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0,
                         TD_ARGS(td_arg_update(&next, last), td_arg_i64(1), td_arg_i64(2)));
        if (last != x)
            td_release(last);
        last = next;
    }
    cr_assert(!td_fetch(last, got, sizeof got), "%s", td_last_error()->message);
    cr_assert(got[0] == 5 && got[1] == 1005 && got[2] == 1005, "%d %d %d", got[0], got[1], got[2]);
    cr_assert(!td_fetch(x, got, sizeof got));
    cr_assert(got[0] == 5 && got[1] == 5);
}

/* No more than so many bytes are live. */
static void expect_live(uint64_t bytes) {
    cr_assert(!td_sync(client.device));
    cr_assert(status_settles(tensord.url, &(struct status_baseline){"late:0", bytes, 1}, 20000));
}

Test(kernels, consumed_tensors_lend_their_memory) {
    enum { N = 1 << 20 };
    td_kernel *kernel = compiled("count");
    td_tensor *x = td_full(client.device, TD_I32, TD_SHAPE(N), 5), *y;
    int32_t *got = malloc(N * sizeof *got);
    for (int i = 0; i < 100; i++)
        cr_assert(!td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0,
                                    TD_ARGS(td_arg_consume(&x, x), td_arg_i64(1), td_arg_i64(2))),
                  "%s", td_last_error()->message);
    cr_assert(!td_fetch(x, got, N * sizeof *got), "%s", td_last_error()->message);
    cr_assert(got[0] == 5 && got[1] == 105 && got[2] == 105 && got[3] == 5);
    expect_live(N * sizeof *got);
    td_tensor *first = td_slice(x, 0, 0, 4, 1); /* somebody else has the memory */
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_consume(&y, x), td_arg_i64(0), td_arg_i64(1)));
    cr_assert(!td_fetch(y, got, N * sizeof *got) && got[0] == 6 && got[1] == 105);
    cr_assert(!td_fetch(first, got, 4 * sizeof *got) && got[0] == 5);
    free(got);
}

/* Beyond the sixteen inputs that have their place in an operation's head. There is no room for a second copy of any of them. */
Test(kernels_allowed, many_consumed_tensors_lend_their_memory) {
    enum { FEW = 16, LARGE = 4, ALL = FEW + LARGE, N = 256 << 10, ROUNDS = 20 };
    const uint64_t live = (uint64_t)LARGE * N * sizeof(int32_t) + FEW * 512;
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0",
                                                    .flags = (const char *const[]){"--user-kernels", "all",
                                                                                   "--session-bytes", "4608K", NULL}});
    client_open(&client, tensord.url, "late:0");
    td_kernel *kernel = compiled("spread");
    td_tensor *tensors[ALL];
    td_kernel_arg args[ALL];
    int32_t got;
    for (int i = 0; i < ALL; i++)
        tensors[i] = td_full(client.device, TD_I32, TD_SHAPE(i < FEW ? 1 : N), i);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < ALL; i++)
            args[i] = i < FEW ? td_arg_in(tensors[i]) : td_arg_consume(&tensors[i], tensors[i]);
        cr_assert(!td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, ALL, args), "%s", td_last_error()->message);
    }
    for (int i = FEW; i < ALL; i++) {
        td_tensor *first = td_slice(tensors[i], 0, 0, 1, 1);
        cr_assert(!td_fetch(first, &got, sizeof got), "%s", td_last_error()->message);
        cr_assert_eq(got, i + ROUNDS * FEW * (FEW - 1) / 2);
        td_release(first);
    }
    expect_live(live);
    for (int i = FEW; i < ALL; i++)
        td_release(tensors[i]);
    expect_live(FEW * 512);
}

Test(kernels, consumed_tensors_stay_where_the_call_fails) {
    td_kernel *kernel = compiled("count");
    td_tensor *x = td_full(client.device, TD_I32, TD_SHAPE(3), 5), *kept = x, *y, *z;
    int32_t got[3];
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(0), TD_DIM(1), 0, TD_ARGS(td_arg_consume(&x, x))),
                 TD_E_INVALID_ARGUMENT);
    cr_assert_eq(x, kept);
    cr_assert_eq(
        td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_consume(&y, x), td_arg_consume(&z, x))),
        TD_E_INVALID_ARGUMENT);
    cr_assert(!y && !z && !td_fetch(x, got, sizeof got) && got[2] == 5);
    cr_assert(!td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_consume(&x, x))));
    client_expect_failure(x, TD_E_INVALID_ARGUMENT); /* the device's; then it is gone */
    td_release(x);
    expect_live(0);
}

Test(kernels, several_outputs_and_empty_ones) {
    td_kernel *kernel = compiled("split");
    td_tensor *x = td_subtract(client_ramp(client.device, 4, 0), td_full(client.device, TD_F32, TD_SCALAR, 1.5));
    td_tensor *small, *large, *none = NULL;
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0,
                     TD_ARGS(td_arg_out(&small, TD_F32, TD_SHAPE(4)), td_arg_out(&large, TD_F32, TD_SHAPE(4)),
                             td_arg_in(x), td_arg_i32(4)));
    client_expect(small, (float[]){-1.5f, -0.5f, 0, 0}, 4);
    client_expect(large, (float[]){0, 0, 0.5f, 1.5f}, 4);
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0,
                     TD_ARGS(td_arg_out(&none, TD_F32, TD_SHAPE(0)), td_arg_out(&large, TD_F64, TD_SHAPE(2, 0)),
                             td_arg_in(none), td_arg_i32(0)));
    cr_assert_null(none);
    td_tensor *empty = td_full(client.device, TD_F32, TD_SHAPE(0), 0);
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0,
                     TD_ARGS(td_arg_out(&none, TD_F32, TD_SHAPE(0)), td_arg_out(&large, TD_F64, TD_SHAPE(2, 0)),
                             td_arg_in(empty), td_arg_i32(0)));
    client_expect(none, NULL, 0);
}

Test(kernels, streams_are_ordered_by_their_tensors) {
    td_kernel *kernel = compiled("saxpy");
    td_stream *streams[2];
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(1), 1),
              *zero = td_full(client.device, TD_F32, TD_SHAPE(1), 0);
    for (int i = 0; i < 2; i++)
        cr_assert(!td_stream_open(client.device, i, &streams[i]));
    for (int i = 0; i < 20; i++) {
        cr_assert(!td_stream_set(client.device, streams[i % 2]));
        x = saxpy(kernel, x, zero, 1);
    }
    td_kernel_release(kernel); /* long before the last has run */
    td_stream_set(client.device, NULL);
    client_expect(x, (float[]){1 << 20}, 1);
}

Test(kernels, launch_waits_for_an_upload_that_is_still_being_sent) {
    enum { MANY = 5 << 20 };
    float *data = malloc(MANY * sizeof *data), *got = malloc(MANY * sizeof *got);
    for (int i = 0; i < MANY; i++)
        data[i] = (float)(i % 1000);
    td_kernel *kernel = compiled("saxpy");
    td_tensor *x = td_upload_borrow(client.device, TD_F32, TD_SHAPE(MANY), data, NULL, NULL);
    td_tensor *z = saxpy(kernel, x, x, MANY);
    cr_assert(!td_fetch(z, got, MANY * sizeof *got), "%s", td_last_error()->message);
    for (int i = 0; i < MANY; i++)
        cr_assert(got[i] == 3 * data[i], "element %d is %g", i, (double)got[i]);
    free(data);
    free(got);
}

/* ---- what fails by itself ---- */

Test(kernels, poison_goes_through_all_outputs) {
    td_kernel *kernel = compiled("split");
    td_tensor *x = client_ramp(client.device, 3, 0), *index = td_full(client.device, TD_I64, TD_SHAPE(1), 77);
    td_tensor *small, *large;
    td_label("culprit");
    td_tensor *bad = td_take(x, index, 0);
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0,
                     TD_ARGS(td_arg_out(&small, TD_F32, TD_SHAPE(1)), td_arg_out(&large, TD_F32, TD_SHAPE(1)),
                             td_arg_in(bad), td_arg_i32(1)));
    cr_assert_str_eq(client_expect_failure(small, TD_E_OUT_OF_RANGE)->label, "culprit");
    cr_assert_str_eq(client_expect_failure(td_exp(large), TD_E_OUT_OF_RANGE)->operation, "take");
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, /* now it is known to have failed */
                     TD_ARGS(td_arg_out(&small, TD_F32, TD_SHAPE(1)), td_arg_out(&large, TD_F32, TD_SHAPE(1)),
                             td_arg_in(bad), td_arg_i32(1)));
    cr_assert_str_eq(client_expect_failure(small, TD_E_OUT_OF_RANGE)->label, "culprit");
    client_expect(x, (float[]){0, 1, 2}, 3);
}

static const td_error *launch_fails(td_kernel *kernel, td_dim grid, td_dim block, size_t shared, int code) {
    td_tensor *x = client_ramp(client.device, 1, 0), *z = NULL;
    td_label("wrong");
    td_kernel_launch(
        kernel, grid, block, shared,
        TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(1)), td_arg_in(x), td_arg_in(x), td_arg_f32(1), td_arg_i32(1)));
    const td_error *error = client_expect_failure(z, code);
    cr_assert_str_eq(error->operation, "saxpy");
    cr_assert_str_eq(error->label, "wrong");
    return error;
}

Test(kernels, what_the_device_does_not_take_is_that_launchs_failure) {
    td_kernel *kernel = compiled("saxpy");
    const td_error *error = launch_fails(kernel, TD_DIM(65536), TD_DIM(1), 0, TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(error->message, "grid's x is 65536"), "%s", error->message);
    launch_fails(kernel, TD_DIM(1, 1, 1 << 20), TD_DIM(1), 0, TD_E_INVALID_ARGUMENT);
    error = launch_fails(kernel, TD_DIM(1), TD_DIM(1, 1, 65), 0, TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(error->message, "block's z is 65"), "%s", error->message);
    error = launch_fails(kernel, TD_DIM(1), TD_DIM(513), 0, TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(error->message, "512"), "%s", error->message);
    launch_fails(kernel, TD_DIM(1), TD_DIM(64, 4, 4), 0, TD_E_INVALID_ARGUMENT);
    error = launch_fails(kernel, TD_DIM(1), TD_DIM(1), 1025, TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(error->message, "1025 bytes of shared memory"), "%s", error->message);
    error = launch_fails(kernel, TD_DIM(1), TD_DIM(1), 77, TD_E_OUT_OF_MEMORY); /* late.c: as only a device knows */
    cr_assert(strstr(error->message, "refuses the launch") && strstr(error->message, "701"), "%s", error->message);
    client_expect(saxpy(kernel, client_ramp(client.device, 1, 3), client_ramp(client.device, 1, 1), 1), (float[]){7},
                  1);
}

Test(kernels, arguments_must_fit_the_parameters) {
    td_kernel *kernel = compiled("saxpy");
    td_tensor *z, *x = client_ramp(client.device, 1, 0);
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(1)), td_arg_in(x)));
    const td_error *error = client_expect_failure(z, TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(error->message, "2 arguments, and the kernel takes 5"), "%s", error->message);
    td_kernel_launch(
        kernel, TD_DIM(1), TD_DIM(1), 0,
        TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(1)), td_arg_in(x), td_arg_in(x), td_arg_f64(1), td_arg_i32(1)));
    error = client_expect_failure(z, TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(error->message, "argument 3 is a number of 8 bytes, and the kernel's parameter has 4"), "%s",
              error->message);
}

Test(kernels, wrong_calls_are_refused_at_once) {
    td_kernel *kernel = compiled("saxpy");
    td_tensor *z = (td_tensor *)&z, *there = client_ramp(cpu, 1, 0);
    cr_assert_eq(td_kernel_launch(NULL, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(1)))),
                 TD_E_INVALID_ARGUMENT);
    cr_assert_null(z);
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(0), TD_DIM(1), 0, TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(1)))),
                 TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(1), TD_DIM(-1), 0, TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(1)))),
                 TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(-1)))),
                 TD_E_SHAPE);
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&z, (td_dtype)99, TD_SHAPE(1)))),
                 TD_E_DTYPE);
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_i32(1))), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, 0, NULL), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0,
                                  TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(1)), td_arg_in(there))),
                 TD_E_DEVICE_MISMATCH);
    cr_assert_null(z);
    client_expect(client_ramp(client.device, 2, 1), (float[]){1, 2}, 2);
}

Test(kernels, a_session_has_so_many) {
    enum { MOST = 256 };
    td_kernel *kernels[MOST], *one = NULL;
    for (int i = 0; i < MOST; i++)
        kernels[i] = compiled("saxpy");
    cr_assert_eq(td_kernel_compile(client.device, "", "saxpy", &one), TD_E_LIMIT);
    td_kernel_release(kernels[100]);
    cr_assert_eq(td_kernel_compile(client.device, "", "saxpy", &one), TD_OK, "%s", td_last_error()->message);
    td_tensor *x = client_ramp(client.device, 1, 3);
    client_expect(saxpy(kernels[MOST - 1], x, x, 1), (float[]){9}, 1);
    client_expect(saxpy(one, x, x, 1), (float[]){9}, 1);
}

/* ---- programs ---- */

Test(kernels, deadly_kernel_costs_its_own_device_only) {
    struct command command;
    command_run(&command,
                (const char *const[]){daemon_program("KERNEL_CHECK_EXE"), tensord.url, "late:0", "cpu:0", NULL}, NULL,
                60000);
    cr_assert_eq(command.code, 0, "%s", command.err);
    command_finish(&command);
    Tensord__Status *status = status_get(tensord.url);
    cr_assert(strstr(status_device(status, "late:0")->last_fault, "crash"), "%s",
              status_device(status, "late:0")->last_fault);
    cr_assert_eq(status_device(status, "cpu:0")->restarts, 0);
    status_free(status);
}

Test(kernels, example_runs) {
    struct command command;
    char variable[140];
    snprintf(variable, sizeof variable, "TENSORD_URL=%s", tensord.url);
    command_run(&command, (const char *const[]){daemon_program("KERNEL_EXE"), "late:0", NULL},
                (const char *const[]){variable, NULL}, 30000);
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert(strstr(command.out, "late:0: 0.5 2.5"), "%s", command.out);
    command_finish(&command);
}
