/* Programs that run inside of a recording: what is recorded, and what is refused. */
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

TestSuite(client_programs_inside, .init = start, .fini = stop, .timeout = 60);

static void ok(int code) {
    cr_assert_eq(code, 0, "%s", td_last_error()->message);
}

static td_program *end(int count, td_tensor *const *results) {
    td_program *program = NULL;
    ok(td_record_end(device, count, results, &program));
    return program;
}

static void saw(const char *text) {
    char *log = NULL;
    ok(td_sync(device));
    cr_assert(fake_daemon_saw(&fake, text), "\n%s\nis not in\n%s", text, log = fake_daemon_log(&fake));
    free(log);
}

static void refused(int code, int expected, const char *words) {
    cr_expect_eq(code, expected, "code %d: %s", code, td_last_error()->message);
    cr_expect(strstr(td_last_error()->message, words), "\n%s\nis not in\n%s", words, td_last_error()->message);
}

/* (p, q) -> (exp(p · w) + q, p · w), of three floats, where w is tensor 1; p is consumed. */
static td_program *model(void) {
    td_tensor *w = td_full(device, TD_F32, TD_SHAPE(3), 2);
    ok(td_record_begin(device));
    td_tensor *p = td_parameter_consumed(TD_F32, TD_SHAPE(3)), *q = td_parameter(TD_F32, TD_SHAPE(3));
    td_label("product");
    td_tensor *product = td_multiply(p, w);
    td_tensor *results[] = {td_add(td_exp(product), q), product};
    td_release(w);
    return end(2, results);
}

Test(client_programs_inside, run_becomes_operations) {
    td_program *inner = model();
    ok(td_record_begin(device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3)), *y = td_negative(x), *inputs[] = {y, x}, *results[2];
    td_scope_begin("outer");
    td_label("model");
    ok(td_program_run(inner, 2, inputs, 2, results));
    td_keep(results[0]);
    td_scope_end();
    cr_assert(td_tensor_dtype(results[0]) == TD_F32 && td_tensor_shape(results[0])[0] == 3);
    td_program_release(inner);
    td_tensor *log = td_log(results[0]);
    td_program *program = end(1, &log);
    saw("release program 1\n"
        "program 2 parameters 9:1:3 captures 1 outputs 7\n"
        "negative(1)=3\n"
        "multiply(3,2)=4 [product]\n"
        "exp(4)=5 [outer/model]\n"
        "add(5,1)=6 [outer/model]\n"
        "log(6)=7\n"
        "end 2\n");
    td_program_release(program);
    saw("release program 2\nbatch stream 0\nfree(1)\n");
}

Test(client_programs_inside, consumed_inputs_are_released_and_must_be_recorded) {
    td_program *inner = model();
    td_tensor *w = td_full(device, TD_F32, TD_SHAPE(3), 0);
    ok(td_record_begin(device));
    td_tensor *inputs[] = {w, td_parameter(TD_F32, TD_SHAPE(3))}, *results[2] = {w, w};
    refused(td_program_run(inner, 2, inputs, 2, results), TD_E_INVALID_ARGUMENT,
            "program: takes over a tensor that was there before the recording: make it a parameter");
    cr_assert(!results[0] && !results[1]);
    td_record_cancel(device);
    ok(td_wait(w));
}

Test(client_programs_inside, results_that_are_no_operations_are_views) {
    td_tensor *w = td_full(device, TD_F32, TD_SCALAR, 2);
    ok(td_record_begin(device));
    td_tensor *p = td_parameter(TD_F32, TD_SHAPE(3)), *y = td_exp(p), *named[] = {p, w, y, y};
    td_program *inner = end(4, named);
    ok(td_record_begin(device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3)), *results[4];
    ok(td_program_run(inner, 1, &x, 4, results));
    cr_assert_eq(td_tensor_rank(results[1]), 0);
    end(4, results);
    saw("program 2 parameters 9:1:3 captures 1 outputs "
        "4,5,3,6\nexp(1)=3\nreshape(1)=4\nreshape(2)=5\nreshape(3)=6\nend 2\n");
}

Test(client_programs_inside, inputs_are_checked) {
    td_program *inner = model();
    ok(td_record_begin(device));
    td_tensor *old = td_parameter(TD_F32, TD_SHAPE(3)), *results[2];
    td_record_cancel(device);
    ok(td_record_begin(device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3)), *inputs[] = {x, old}, *same[] = {x, x};
    refused(td_program_run(inner, 2, inputs, 2, results), TD_E_INVALID_ARGUMENT,
            "program: input 1 belongs to another recording than this thread's");
    refused(td_program_run(inner, 1, inputs, 2, results), TD_E_INVALID_ARGUMENT, "1 inputs, the program has 2");
    ok(td_program_run(inner, 2, same, 2, results));
    end(2, results);
    ok(td_record_begin(device));
    td_tensor *recorded = td_parameter(TD_F32, TD_SHAPE(3));
    td_record_cancel(device);
    td_tensor *outside[] = {recorded, recorded};
    refused(td_program_run(inner, 2, outside, 2, results), TD_E_INVALID_ARGUMENT,
            "is recorded, and has no value until the program runs");
}

Test(client_programs_inside, programs_of_other_devices_run_as_always) {
    td_device *other;
    ok(td_device_open(connection, "cpu:1", &other));
    td_program *inner = model();
    td_tensor *inputs[] = {td_full(device, TD_F32, TD_SHAPE(3), 0), td_full(device, TD_F32, TD_SHAPE(3), 0)},
              *results[2];
    ok(td_record_begin(other));
    ok(td_program_run(inner, 2, inputs, 2, results));
    td_record_cancel(other);
    ok(td_wait(results[0]));
    saw("program 1 x1(2,3)=4 free 2\n");
}

/* ---- loops ---- */

static const td_carry carried[] = {{0, 0}};
static const int second[] = {1};
static const td_loop loop = {1, carried, 1, second, 1, second};

Test(client_programs_inside, loop_is_unrolled) {
    td_program *inner = model();
    ok(td_record_begin(device));
    td_tensor *inputs[] = {td_parameter(TD_F32, TD_SHAPE(3)), td_parameter(TD_F32, TD_SHAPE(2, 3))}, *results[2];
    ok(td_program_repeat(inner, 2, &loop, 2, inputs, 2, results));
    cr_assert(td_tensor_rank(results[1]) == 2 && td_tensor_shape(results[1])[0] == 2);
    end(2, results);
    saw("program 2 parameters 9:1:3:9:2:2:3 captures 1 outputs 13,14\n"
        "slice(2)=4\n"
        "reshape(4)=5\n"
        "multiply(1,3)=6 [product]\n"
        "exp(6)=7\n"
        "add(7,5)=8\n"
        "slice(2)=9\n"
        "reshape(9)=10\n"
        "multiply(8,3)=11 [product]\n"
        "exp(11)=12\n"
        "add(12,10)=13\n"
        "stack(6,11)=14\n"
        "end 2\n");
}

Test(client_programs_inside, loop_has_room_in_the_recording_or_is_refused) {
    td_program *inner = model();
    ok(td_record_begin(device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3)), *long_one = td_parameter(TD_F32, TD_SHAPE(3277, 3)),
              *short_one = td_parameter(TD_F32, TD_SHAPE(3276, 3)), *results[2], *first = td_exp(x);
    td_tensor *inputs[] = {first, long_one};
    refused(
        td_program_repeat(inner, 3277, &loop, 2, inputs, 2, results), TD_E_LIMIT,
        "program: 3277 iterations of 5 operations, of which the recording has room for 16383: a program has 16384 at "
        "most; run the loop outside of the recording");
    cr_assert(!results[0] && !results[1]);
    td_tensor *y = td_parameter(TD_F32, TD_SHAPE(3)), *both[] = {first, y};
    refused(td_program_repeat(inner, INT32_MAX, NULL, 2, both, 2, results), TD_E_LIMIT, "2147483647 iterations");
    refused(td_program_repeat(inner, 9000, &(td_loop){0, NULL, 0, NULL, 1, second}, 2, both, 2, results), TD_E_LIMIT,
            "9000 iterations are stacked, which a recording takes of 8192 at most");
    inputs[1] = short_one;
    ok(td_program_repeat(inner, 3276, &loop, 2, inputs, 2, results)); /* the refused calls have recorded nothing */
    end(2, results);
}
