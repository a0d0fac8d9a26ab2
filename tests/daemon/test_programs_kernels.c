/* Clients' kernels in recorded programs, on a device with functions in the place of kernels (tests/stand_ins/late.h). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/programs.h"
#include "tests/daemon/status.h"

static struct daemon tensord;
static struct client client;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0",
                                                    .flags = (const char *const[]){"--user-kernels", "all", NULL}});
    client_open(&client, tensord.url, "late:0");
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(programs_kernels, .init = start, .fini = stop, .timeout = 120);

static td_kernel *compiled(const char *name) {
    td_kernel *kernel = NULL;
    programs_ok(td_kernel_compile(client.device, "// a source", name, &kernel));
    return kernel;
}

enum { N = 4 };

/* 2 · x + y */
static td_tensor *saxpy(td_kernel *kernel, td_tensor *x, td_tensor *y) {
    td_tensor *z = NULL;
    td_kernel_launch(
        kernel, TD_DIM(1), TD_DIM(32), 0,
        TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(N)), td_arg_in(x), td_arg_in(y), td_arg_f32(2), td_arg_i32(N)));
    return z;
}

/* Launches among other operations, whose results they read, and which read theirs. */
static void compute(td_kernel *kernel, td_tensor *x, td_tensor *y, td_tensor *results[3]) {
    td_tensor *sum = td_add(x, y), *z = saxpy(kernel, sum, td_flip(td_multiply(y, y), TD_AXES(0)));
    results[0] = td_subtract(saxpy(kernel, z, td_tanh(sum)), td_square(z));
    results[1] = z;
    results[2] = saxpy(kernel, x, x);
}

static td_program *record(td_kernel *kernel) {
    td_tensor *results[3];
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(N)), *y = td_parameter(TD_F32, TD_SHAPE(N));
    compute(kernel, x, y, results);
    return programs_end(client.device, 3, results);
}

static void expect_runs(td_kernel *kernel, td_program *program) {
    for (int run = 0; run < 5; run++) {
        td_tensor *inputs[] = {client_ramp(client.device, N, (float)run), client_ramp(client.device, N, 1)};
        td_tensor *one_by_one[3], *results[3];
        compute(kernel, inputs[0], inputs[1], one_by_one);
        programs_ok(td_program_run(program, 2, inputs, 3, results));
        for (int i = 0; i < 3; i++)
            programs_expect_same(results[i], one_by_one[i], "a result");
    }
}

Test(programs_kernels, launches_are_operations_of_the_program) {
    td_kernel *kernel = compiled("saxpy");
    expect_runs(kernel, record(kernel));
}

Test(programs_kernels, program_keeps_a_released_kernel) {
    td_kernel *released = compiled("saxpy"), *kernel = compiled("saxpy");
    td_program *program = record(released);
    td_kernel_release(released);
    expect_runs(kernel, program);
    td_tensor *inputs[] = {client_ramp(client.device, N, 0), client_ramp(client.device, N, 1)}, *results[3];
    td_tensor *one_by_one[3];
    compute(kernel, inputs[0], inputs[1], one_by_one);
    programs_ok(td_program_run(program, 2, inputs, 3, results));
    td_program_release(program); /* the run has not run yet, perhaps */
    for (int i = 0; i < 3; i++)
        programs_expect_same(results[i], one_by_one[i], "a result");
}

Test(programs_kernels, run_inside_of_another_program) {
    td_kernel *kernel = compiled("saxpy");
    td_program *inner = record(kernel);
    td_tensor *results[3];
    programs_ok(td_record_begin(client.device));
    td_tensor *inputs[] = {td_parameter(TD_F32, TD_SHAPE(N)), td_parameter(TD_F32, TD_SHAPE(N))};
    programs_ok(td_program_run(inner, 2, inputs, 3, results));
    td_program *outer = programs_end(client.device, 3, results);
    td_program_release(inner);
    expect_runs(kernel, outer);
}

Test(programs_kernels, released_kernel_runs_inside_of_another_program) {
    td_kernel *released = compiled("saxpy"), *kernel = compiled("saxpy");
    td_program *inner = record(released);
    td_kernel_release(released);
    td_tensor *results[3];
    programs_ok(td_record_begin(client.device));
    td_tensor *inputs[] = {td_parameter(TD_F32, TD_SHAPE(N)), td_parameter(TD_F32, TD_SHAPE(N))};
    programs_ok(td_program_run(inner, 2, inputs, 3, results));
    td_program_release(inner);
    expect_runs(kernel, programs_end(client.device, 3, results));
}

/* A kernel that adds one to two elements, in the memory that the loop carries. */
Test(programs_kernels, loop_updates_in_place) {
    td_kernel *kernel = compiled("count");
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter_consumed(TD_I32, TD_SHAPE(3)), *y = NULL;
    programs_ok(td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0,
                                 TD_ARGS(td_arg_consume(&x, x), td_arg_i64(1), td_arg_i64(2))));
    programs_ok(
        td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_update(&y, x), td_arg_i64(0), td_arg_i64(1))));
    td_program *program = programs_end(client.device, 1, &y);
    const td_carry carried[] = {{0, 0}};
    td_tensor *begin = td_full(client.device, TD_I32, TD_SHAPE(3), 5), *kept = td_copy(begin);
    int32_t got[3];
    for (int times = 1; times < 300; times += 149) {
        td_tensor *state = td_copy(kept);
        programs_ok(td_program_repeat(program, times, &(td_loop){1, carried, 0, NULL, 0, NULL}, 1, &state, 1, &state));
        programs_ok(td_fetch(state, got, sizeof got));
        cr_assert(got[0] == 5 + times && got[1] == 5 + times && got[2] == 5 + times, "%d times: %d %d %d", times,
                  got[0], got[1], got[2]);
    }
    programs_ok(td_program_run(program, 1, &begin, 1, &y));
    programs_ok(td_fetch(kept, got, sizeof got));
    cr_assert(got[0] == 5 && got[2] == 5);
}

/* Outputs that a kernel leaves as they are begin as zero in each run, though the arena is the last run's. */
Test(programs_kernels, outputs_begin_as_zero_in_each_run) {
    td_kernel *kernel = compiled("split");
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(N)), *small, *large;
    programs_ok(
        td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0,
                         TD_ARGS(td_arg_out(&small, TD_F32, TD_SHAPE(N)), td_arg_out(&large, TD_F32, TD_SHAPE(N)),
                                 td_arg_in(td_negative(x)), td_arg_i32(N))));
    td_tensor *results[] = {td_add(small, td_full(client.device, TD_F32, TD_SCALAR, 10)), large};
    td_program *program = programs_end(client.device, 2, results);
    for (int run = 0; run < 3; run++) {
        td_tensor *input = client_ramp(client.device, N, run % 2 ? 1 : -5);
        programs_ok(td_program_run(program, 1, &input, 2, results));
        client_expect(results[0], run % 2 ? (float[]){9, 8, 7, 6} : (float[]){10, 10, 10, 10}, N);
        client_expect(results[1], run % 2 ? (float[]){0, 0, 0, 0} : (float[]){5, 4, 3, 2}, N);
    }
}

Test(programs_kernels, wrong_launch_fails_the_runs) {
    td_kernel *kernel = compiled("saxpy");
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(N)), *y = NULL, *result;
    td_label("wrong");
    programs_ok(
        td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&y, TD_F32, TD_SHAPE(N)), td_arg_in(x))));
    td_program *program = programs_end(client.device, 1, &y);
    x = client_ramp(client.device, N, 0);
    programs_ok(td_program_run(program, 1, &x, 1, &result));
    const td_error *error = client_expect_failure(result, TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(error->message, "2 arguments, and the kernel takes 5"), "%s", error->message);
}

Test(programs_kernels, kernel_may_be_released_before_the_recording_ends) {
    td_kernel *released = compiled("saxpy"), *kernel = compiled("saxpy");
    td_tensor *results[3];
    programs_ok(td_record_begin(client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(N)), *y = td_parameter(TD_F32, TD_SHAPE(N));
    compute(released, x, y, results);
    td_kernel_release(released);
    expect_runs(kernel, programs_end(client.device, 3, results));
}

Test(programs_kernels, leave_nothing_behind) {
    const struct status_baseline before = {.device = "late:0", .live = 0, .sessions = 1};
    for (int i = 0; i < 20; i++) {
        td_scope_begin(NULL);
        td_kernel *kernel = compiled("saxpy");
        td_program *program = record(kernel);
        td_tensor *inputs[] = {client_ramp(client.device, N, 0), client_ramp(client.device, N, 1)}, *results[3];
        programs_ok(td_program_run(program, 2, inputs, 3, results));
        if (i % 2)
            td_kernel_release(kernel);
        td_program_release(program);
        if (i % 2 == 0)
            td_kernel_release(kernel);
        td_scope_end();
    }
    programs_ok(td_sync(client.device));
    cr_assert(status_settles(tensord.url, &before, 20000));
}
