/* Recordings and programs in the client: what is sent, what becomes of handles, and what is refused. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensord.h"
#include "tests/stand_ins/fake_daemon.h"

static struct fake_daemon fake;
static td_connection *connection;
static td_device *device;

static void start(void) {
    const td_options options = {.queue_bytes = 1 << 20};
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, &options, &connection), 0);
    cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
}

static void stop(void) {
    td_close(connection);
    fake_daemon_stop(&fake);
}

TestSuite(client_programs, .init = start, .fini = stop, .timeout = 60);

static void begin(void) {
    cr_assert_eq(td_record_begin(device), 0, "%s", td_last_error()->message);
}

static td_program *end(td_tensor *result) {
    td_program *program = NULL;
    cr_assert_eq(td_record_end(device, 1, &result, &program), 0, "%s", td_last_error()->message);
    return program;
}

static void saw(const char *text) {
    char *log = NULL;
    cr_assert(fake_daemon_saw(&fake, text), "\n%s\nis not in\n%s", text, log = fake_daemon_log(&fake));
    free(log);
}

/* What was sent is in the log, and this is not. */
static void saw_no(const char *text) {
    char *log = fake_daemon_log(&fake);
    cr_assert(!strstr(log, text), "\n%s\nis in\n%s", text, log);
    free(log);
}

static void refused(int code, int expected, const char *words) {
    cr_expect_eq(code, expected, "code %d: %s", code, td_last_error()->message);
    cr_expect(strstr(td_last_error()->message, words), "\n%s\nis not in\n%s", words, td_last_error()->message);
}

static void refused_null(const void *result, int expected, const char *words) {
    cr_expect_null(result);
    refused(td_last_error()->code, expected, words);
}

/* x -> x + 1, of three floats. */
static td_program *increment(void) {
    begin();
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3));
    return end(td_add(x, td_full(device, TD_F32, TD_SCALAR, 1)));
}

/* ---- definitions ---- */

Test(client_programs, definition_numbers_parameters_then_captured_tensors_then_outputs) {
    td_tensor *w = td_full(device, TD_F32, TD_SHAPE(3), 2), *v = td_full(device, TD_F32, TD_SHAPE(3), 3);
    begin();
    td_tensor *y = td_add(v, w); /* captured before there is a parameter */
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3)), *z = td_parameter_consumed(TD_I32, TD_SHAPE(2, 5));
    cr_assert(td_tensor_dtype(z) == TD_I32 && td_tensor_rank(z) == 2 && td_tensor_shape(z)[1] == 5);
    td_scope_begin("net");
    td_label("last");
    td_tensor *sum = td_keep(td_add(x, y));
    td_scope_end();
    td_tensor *parts[2];
    cr_assert_eq(td_split(z, 2, (int64_t[]){2, 3}, 1, parts), 0);
    cr_assert(td_tensor_device(sum) == device && td_tensor_rank(sum) == 1 && td_tensor_shape(sum)[0] == 3);
    td_tensor *results[] = {sum, z, w, sum, parts[1]};
    td_program *program;
    cr_assert_eq(td_record_end(device, 5, results, &program), 0, "%s", td_last_error()->message);
    cr_assert_eq(td_sync(device), 0);
    saw("full()=1\nfull()=2\n"
        "program 1 parameters 9:1:3:5:2:2:5 consumed 1 captures 2,1 outputs 6,2,4,6,8\n"
        "add(3,4)=5\n"
        "add(1,5)=6 [net/last]\n"
        "slice(2)=7\n"
        "slice(2)=8\n"
        "end 1\n");
}

Test(client_programs, captured_tensor_lives_as_long_as_the_program) {
    td_tensor *w = td_full(device, TD_F32, TD_SHAPE(3), 2);
    begin();
    td_tensor *y = td_exp(w);
    td_release(w);
    td_full(device, TD_F32, TD_SHAPE(2), 0);
    cr_assert_eq(td_flush(device), 0);
    td_program *program = end(y);
    cr_assert_eq(td_sync(device), 0);
    saw("full()=1\nprogram 1 captures 1 outputs 2\nexp(1)=2\nfull()=3\nend 1\nsync 0\n");
    saw_no("free");
    td_program_release(program);
    cr_assert_eq(td_sync(device), 0);
    saw("release program 1\nbatch stream 0\nfree(1)\n");
}

Test(client_programs, definition_waits_for_the_upload_of_a_captured_tensor) {
    enum { BYTES = 9 << 20 };
    float *data = calloc(1, BYTES);
    td_tensor *w = td_upload_borrow(device, TD_F32, TD_SHAPE(BYTES / 4), data, NULL, NULL);
    begin();
    td_program *program = end(td_exp(w));
    td_tensor *y;
    cr_assert_eq(td_program_run(program, 0, NULL, 1, &y), 0, "%s", td_last_error()->message);
    cr_assert_eq(td_sync(device), 0);
    char *log = fake_daemon_log(&fake);
    const char *define = strstr(log, "program 1"), *chunk = NULL;
    for (const char *at = log; (at = strstr(at, "chunk 1")); at++)
        chunk = at;
    cr_assert(chunk && define && chunk < define, "%s", log);
    free(log);
    free(data);
}

Test(client_programs, recorded_handles_are_released_without_a_message) {
    begin();
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3));
    td_scope_begin("scope");
    td_tensor *y = td_exp(td_parameter(TD_F32, TD_SHAPE(3)));
    td_keep(y);
    td_log(y);
    td_scope_end();
    td_tensor *z = td_exp(x);
    td_release(x);
    end(z);
    td_release(y);
    td_release(z);
    cr_assert_eq(td_sync(device), 0);
    saw("program 1 parameters 9:1:3:9:1:3 outputs 5\nexp(2)=3 [scope]\nlog(3)=4 [scope]\nexp(1)=5\nend 1\nsync 0\n");
    saw_no("free");
}

/* The handles of a recording are reused: a mark that stays would make a later tensor look recorded. */
Test(client_programs, later_tensors_are_ordinary_ones) {
    for (int i = 0; i < 200; i++)
        td_release(td_full(device, TD_F32, TD_SCALAR, 0));
    begin();
    for (int i = 0; i < 200; i++)
        td_release(td_full(device, TD_F32, TD_SCALAR, 0));
    td_record_cancel(device);
    for (int i = 0; i < 300; i++)
        cr_assert_eq(td_wait(td_full(device, TD_F32, TD_SCALAR, 0)), 0, "%s", td_last_error()->message);
    saw("full()=500\n");
    saw_no("program");
}

Test(client_programs, optimiser_replaces_parameters_of_a_program) {
    td_tensor *w = td_full(device, TD_F32, TD_SHAPE(3), 2);
    begin();
    td_tensor *p = td_parameter_consumed(TD_F32, TD_SHAPE(3)), *g = td_parameter(TD_F32, TD_SHAPE(3));
    refused(td_sgd(1, &w, &g, NULL, 0.1, 0, 0, 0), TD_E_INVALID_ARGUMENT,
            "sgd: takes over a tensor that was there before the recording: make it a parameter");
    cr_assert_eq(td_sgd(1, &p, &g, NULL, 0.1, 0, 0, 0), 0, "%s", td_last_error()->message);
    end(p);
    cr_assert_eq(td_sync(device), 0);
    saw("consumed 0 outputs 3\nsgd(1,2)=3\nend 1\n");
    cr_assert_eq(td_wait(w), 0, "the captured tensor is gone");
}

/* ---- derivatives ---- */

Test(client_programs, gradients_need_no_tape_in_a_recording) {
    begin();
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3)), *slope;
    td_tensor *y = td_sum(td_square(x), TD_ALL_AXES, 0);
    cr_assert_eq(td_gradients(y, 1, &x, &slope), 0, "%s", td_last_error()->message);
    end(slope);
    refused(td_gradients(y, 1, &x, &slope), TD_E_INVALID_ARGUMENT, "tape");
}

Test(client_programs, tapes_that_began_before_wait_for_the_end_of_a_recording) {
    cr_assert_eq(td_tape_begin(), 0);
    td_tensor *w = td_full(device, TD_F32, TD_SCALAR, 2), *y = td_square(w), *slope = NULL;
    begin();
    td_tensor *x = td_parameter(TD_F32, TD_SCALAR), *z = td_exp(td_multiply(x, w));
    cr_assert_eq(td_tape_begin(), 0); /* ends with the recording */
    end(z);
    refused(td_gradients(z, 1, &w, &slope), TD_E_INVALID_ARGUMENT, "");
    cr_assert_eq(td_gradients(y, 1, &w, &slope), 0, "%s", td_last_error()->message);
    td_tape_end();
    cr_assert_eq(td_wait(slope), 0);
}

/* ---- what has no value ---- */

static int done_calls;
static void done(void *user, int status) {
    (void)user, (void)status;
    done_calls++;
}
static bool asked(void *user) {
    (void)user;
    return false;
}

/* Each call that asks for the value of the tensor, or brings it elsewhere, is refused with these words. */
static void refuses_value(td_tensor *x, td_device *other, const char *words) {
    float data[3];
    int fd = -1;
    const char *name = "name";
    const td_interrupt interrupt = {asked, done, NULL};
    refused(td_fetch(x, data, sizeof data), TD_E_INVALID_ARGUMENT, words);
    refused(td_fetch_async(x, data, sizeof data, done, NULL), TD_E_INVALID_ARGUMENT, words);
    refused(td_fetch_fd(x, data, sizeof data, &fd), TD_E_INVALID_ARGUMENT, words);
    refused(td_fetch_interruptible(x, data, sizeof data, &interrupt), TD_E_INVALID_ARGUMENT, words);
    refused(td_wait(x), TD_E_INVALID_ARGUMENT, words);
    refused(td_wait_fd(x, &fd), TD_E_INVALID_ARGUMENT, words);
    refused(td_wait_interruptible(x, &interrupt), TD_E_INVALID_ARGUMENT, words);
    refused(td_publish(x, "name"), TD_E_INVALID_ARGUMENT, words);
    refused(td_publish_all(1, &x, &name, true), TD_E_INVALID_ARGUMENT, words);
    refused_null(td_copy_to(x, other), TD_E_INVALID_ARGUMENT, words);
    cr_assert(fd == -1 && !done_calls);
}

Test(client_programs, recorded_tensor_has_no_value) {
    td_device *other;
    cr_assert_eq(td_device_open(connection, "cpu:1", &other), 0);
    const char *words = "recorded, and has no value until the program runs: name it as a result of td_record_end()";
    begin();
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3));
    refuses_value(x, other, words);
    cr_assert_eq(td_test(x), 1, "nobody will ever compute it");
    td_program *program = end(x);
    refuses_value(x, other, words);
    refused_null(td_exp(x), TD_E_INVALID_ARGUMENT, "exp: input 0 is recorded, and has no value");
    refused(td_program_run(program, 1, &x, 1, &x), TD_E_INVALID_ARGUMENT, "program: input 0 is recorded");
    begin();
    refused_null(td_exp(x), TD_E_INVALID_ARGUMENT, "input 0 belongs to another recording");
    td_program *none = NULL;
    refused(td_record_end(device, 1, &x, &none), TD_E_INVALID_ARGUMENT, "result 0 belongs to another recording");
    cr_assert_null(none);
    cr_assert_eq(td_sync(device), 0, "the recording has not ended");
}

Test(client_programs, what_cannot_be_recorded_says_what_to_do) {
    td_device *other;
    td_kernel *kernel;
    td_tensor *y;
    float data[3] = {0};
    const td_interrupt interrupt = {asked, done, NULL};
    cr_assert_eq(td_device_open(connection, "cpu:1", &other), 0);
    cr_assert_eq(td_kernel_compile(device, "right", "f", &kernel), 0);
    td_tensor *w = td_full(device, TD_F32, TD_SHAPE(3), 0), *far = td_full(other, TD_F32, TD_SHAPE(3), 0);
    begin();
    refuses_value(w, other, "this cannot be recorded: do it before td_record_begin() or after td_record_end()");
    refused(td_sync(device), TD_E_INVALID_ARGUMENT, "before td_record_begin()");
    refused(td_sync_interruptible(device, &interrupt), TD_E_INVALID_ARGUMENT, "before td_record_begin()");
    refused_null(td_upload(device, TD_F32, TD_SHAPE(3), data), TD_E_INVALID_ARGUMENT, "make it a parameter");
    refused_null(td_upload_borrow(device, TD_F32, TD_SHAPE(3), data, NULL, NULL), TD_E_INVALID_ARGUMENT,
                 "make it a parameter");
    refused_null(td_open(device, "name"), TD_E_INVALID_ARGUMENT, "make it a parameter");
    refused_null(td_copy_to(far, device), TD_E_INVALID_ARGUMENT, "make it a parameter");
    refused(td_kernel_compile(device, "right", "f", &kernel), TD_E_INVALID_ARGUMENT, "before td_record_begin()");
    y = w;
    refused(td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_consume(&y, w))), TD_E_INVALID_ARGUMENT,
            "kernel: takes over a tensor that was there before the recording: make it a parameter");
    cr_assert_eq(y, w);
    refused_null(td_add(td_parameter(TD_F32, TD_SHAPE(3)), far), TD_E_DEVICE_MISMATCH, "cpu:1");
    cr_assert_eq(td_wait(td_exp(far)), 0, "another device is concerned, too");
    end(td_exp(td_copy_to(w, device)));
    cr_assert_eq(td_sync(device), 0);
    saw("program 1 parameters 9:1:3 captures 1 outputs 4\ncopy(2)=3\nexp(3)=4\nend 1\n");
}

Test(client_programs, kernels_are_recorded) {
    td_kernel *kernel;
    td_tensor *y, *z;
    cr_assert_eq(td_kernel_compile(device, "right", "f", &kernel), 0);
    begin();
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3));
    z = x;
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(2), TD_DIM(32), 0,
                                  TD_ARGS(td_arg_out(&y, TD_F32, TD_SHAPE(2)), td_arg_consume(&z, x), td_arg_i32(7))),
                 0, "%s", td_last_error()->message);
    td_tensor *results[] = {y, z};
    td_program *program;
    cr_assert_eq(td_record_end(device, 2, results, &program), 0, "%s", td_last_error()->message);
    td_kernel_release(kernel);
    cr_assert_eq(td_sync(device), 0);
    saw("program 1 parameters 9:1:3 outputs 2,3\nkernel 1 (2,1,1)x(32,1,1)");
    refused(td_program_publish(program, "name"), TD_E_UNSUPPORTED,
            "operation 1 of the program is a kernel of the client's own, which cannot be saved");
    td_program_release(program);
    cr_assert_eq(td_sync(device), 0);
    saw("end 1\nsync 0\nrelease program 1\nKERNEL_RELEASE\nsync 0\n"); /* the program holds it */
}

Test(client_programs, kernel_may_be_released_before_the_recording_ends) {
    td_kernel *kernel;
    td_tensor *y;
    cr_assert_eq(td_kernel_compile(device, "right", "f", &kernel), 0);
    begin();
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&y, TD_F32, TD_SHAPE(2)))), 0);
    td_kernel_release(kernel);
    td_record_cancel(device);
    cr_assert_eq(td_sync(device), 0);
    saw("compile 1 f, 5 bytes\nKERNEL_RELEASE\nsync 0\n");
    cr_assert_eq(td_kernel_compile(device, "right", "f", &kernel), 0);
    begin();
    cr_assert_eq(td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&y, TD_F32, TD_SHAPE(2)))), 0);
    td_kernel_release(kernel);
    end(y);
    cr_assert_eq(td_sync(device), 0);
    saw("end 1\nsync 0\n");
}

static void *other_thread(void *some) {
    td_tensor **x = some;
    int code = td_wait(td_exp(x[0]));
    if (!code)
        code = td_exp(x[1]) ? -1 : td_last_error()->code;
    if (code == TD_E_INVALID_ARGUMENT)
        code = td_record_begin(device);
    if (!code)
        x[0] = td_log(x[0]);
    return (void *)(intptr_t)code; /* its recording ends with it */
}

Test(client_programs, other_threads_go_on_and_may_record_too) {
    pthread_t thread;
    void *code;
    td_tensor *w = td_full(device, TD_F32, TD_SHAPE(3), 0);
    begin();
    td_tensor *tensors[] = {w, td_parameter(TD_F32, TD_SHAPE(3))};
    pthread_create(&thread, NULL, other_thread, tensors);
    pthread_join(thread, &code);
    cr_assert_eq((intptr_t)code, 0);
    refused_null(td_exp(tensors[0]), TD_E_INVALID_ARGUMENT, "another recording");
    td_release(w);
    end(td_exp(w = td_full(device, TD_F32, TD_SHAPE(3), 0)));
    cr_assert_eq(td_sync(device), 0);
    saw("exp(1)=2\nwait 2\n");
    saw("program 1 parameters 9:1:3 outputs 3\nfull()=2\nexp(2)=3\nend 1\n");
    saw("free(1)\n");
}

/* ---- begin and end ---- */

Test(client_programs, recordings_do_not_nest) {
    refused(td_record_begin(NULL), TD_E_INVALID_ARGUMENT, "the device is NULL");
    begin();
    refused(td_record_begin(device), TD_E_INVALID_ARGUMENT, "this thread records on cpu:0 already");
    td_record_cancel(NULL);
    refused(td_record_begin(device), TD_E_INVALID_ARGUMENT, "this thread records on cpu:0 already");
    td_record_cancel(device);
    td_record_cancel(device);
    begin();
    td_record_cancel(device);
}

Test(client_programs, nothing_is_recorded_without_a_beginning) {
    td_program *program = NULL;
    td_tensor *x = td_full(device, TD_F32, TD_SCALAR, 0);
    refused_null(td_parameter(TD_F32, TD_SCALAR), TD_E_INVALID_ARGUMENT, "td_record_begin() comes first");
    refused(td_record_end(device, 1, &x, &program), TD_E_INVALID_ARGUMENT, "does not record on cpu:0");
    refused(td_record_end(NULL, 1, &x, &program), TD_E_INVALID_ARGUMENT, "the device is NULL");
    cr_assert_null(program);
}

Test(client_programs, parameters_are_checked) {
    begin();
    refused_null(td_parameter((td_dtype)99, TD_SCALAR), TD_E_DTYPE, "");
    refused_null(td_parameter(TD_F32, 9, (int64_t[9]){0}), TD_E_SHAPE, "rank 9");
    refused_null(td_parameter(TD_F32, 1, NULL), TD_E_INVALID_ARGUMENT, "NULL");
    refused_null(td_parameter(TD_F32, TD_SHAPE(-1)), TD_E_SHAPE, "");
    td_tensor *x = NULL;
    for (int i = 0; i < 8192; i++)
        cr_assert_not_null(x = td_parameter(TD_F32, TD_SCALAR));
    refused_null(td_parameter(TD_F32, TD_SCALAR), TD_E_LIMIT, "more than 8192 parameters");
    end(x);
    cr_assert_eq(td_sync(device), 0);
    saw(" outputs 8192\nend 1\n");
}

static void refused_end(int count, td_tensor *const *results, bool place, int code, const char *words) {
    td_program *program = NULL;
    refused(td_record_end(device, count, results, place ? &program : NULL), code, words);
    cr_assert_null(program);
    cr_assert_eq(td_sync(device), 0, "the recording goes on");
}

Test(client_programs, results_are_checked) {
    td_device *other;
    cr_assert_eq(td_device_open(connection, "cpu:1", &other), 0);
    td_tensor *far = td_full(other, TD_F32, TD_SCALAR, 0), *near = td_full(device, TD_F32, TD_SCALAR, 0), *none = NULL;
    begin();
    refused_end(0, &near, true, TD_E_INVALID_ARGUMENT, "0 results, 1 to 8192");
    begin();
    refused_end(1, NULL, true, TD_E_INVALID_ARGUMENT, "1 results at NULL");
    begin();
    refused_end(1, &near, false, TD_E_INVALID_ARGUMENT, "the place for the program is NULL");
    begin();
    refused_end(1, &far, true, TD_E_DEVICE_MISMATCH, "the recording is on cpu:0, result 0 on cpu:1");
    begin();
    refused(td_fetch(near, NULL, 0), TD_E_INVALID_ARGUMENT, "");
    refused_end(1, &none, true, TD_E_INVALID_ARGUMENT, "result 0 is NULL");
    begin();
    none = td_exp(td_add(near, td_full(device, (td_dtype)99, TD_SCALAR, 0)));
    refused_end(1, &none, true, TD_E_DTYPE, "full");
    saw_no("program");
}

Test(client_programs, failed_operation_is_not_recorded) {
    begin();
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3));
    refused_null(td_add(x, td_parameter(TD_F32, TD_SHAPE(4))), TD_E_SHAPE, "add");
    end(td_exp(x));
    cr_assert_eq(td_sync(device), 0);
    saw("outputs 3\nexp(1)=3\nend 1\n");
}

Test(client_programs, recording_goes_on_while_the_queue_is_full) {
    atomic_store(&fake.hold, true);
    td_tensor *x = td_full(device, TD_F32, TD_SCALAR, 0);
    td_program *program = NULL;
    td_tensor *y;
    int code;
    do { /* until the socket takes no more either */
        while (td_exp(x))
            ;
        refused(td_last_error()->code, TD_E_AGAIN, "queue");
        cr_assert_eq(td_flush(device), 0);
        begin();
        y = td_exp(x);
        program = NULL;
        code = td_record_end(device, 1, &y, &program);
    } while (!code);
    refused(code, TD_E_AGAIN, "queue");
    cr_assert_null(program);
    y = td_log(y);
    atomic_store(&fake.hold, false);
    cr_assert_eq(td_wait_room(device, TD_NEVER), 0);
    end(y);
    cr_assert_eq(td_sync(device), 0);
    saw("outputs 3\nexp(1)=2\nlog(2)=3\nend ");
}

Test(client_programs, program_is_no_larger_than_a_message) {
    begin();
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(1)), *y = x, *many[1000];
    for (int i = 0; i < 1000; i++)
        many[i] = x;
    for (int i = 0; i < (1 << 20) / 8000 && y; i++)
        y = td_concat(many, 1000, 0);
    while (td_exp(x))
        ;
    refused_null(NULL, TD_E_LIMIT, "a message holds 1048576: record less");
    td_program *program = NULL;
    refused(td_record_end(device, 1, &x, &program), TD_E_LIMIT, "record less");
    cr_assert_null(program);
}

Test(client_programs, program_has_so_many_operations) {
    begin();
    td_tensor *x = td_parameter(TD_F32, TD_SCALAR);
    for (int i = 0; i < 16384; i++)
        cr_assert_not_null(td_exp(x));
    refused_null(td_exp(x), TD_E_LIMIT, "a program has 16384 operations at most: record less");
    end(x);
}

Test(client_programs, closing_the_device_ends_recordings_and_programs) {
    td_device *other;
    cr_assert_eq(td_device_open(connection, "cpu:1", &other), 0);
    cr_assert_eq(td_record_begin(other), 0);
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3));
    td_program *program;
    cr_assert_eq(td_record_end(other, 1, &x, &program), 0);
    td_tensor *w = td_full(other, TD_F32, TD_SHAPE(3), 0);
    cr_assert_eq(td_record_begin(other), 0);
    td_exp(w);
    td_device_close(other);
    refused_null(td_parameter(TD_F32, TD_SCALAR), TD_E_INVALID_ARGUMENT, "td_record_begin() comes first");
    td_tensor *y = td_full(device, TD_F32, TD_SCALAR, 0);
    cr_assert_eq(td_wait(y), 0);
    increment();
}

/* ---- runs ---- */

Test(client_programs, run_is_an_operation_among_others) {
    td_program *program = increment();
    td_stream *stream;
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(3), 0), *y = NULL;
    cr_assert_eq(td_stream_open(device, 0, &stream), 0);
    cr_assert_eq(td_stream_set(device, stream), 0);
    td_scope_begin("epoch");
    td_label("step");
    cr_assert_eq(td_program_run(program, 1, &x, 1, &y), 0, "%s", td_last_error()->message);
    cr_assert(td_tensor_dtype(y) == TD_F32 && td_tensor_rank(y) == 1 && td_tensor_shape(y)[0] == 3);
    td_scope_end();
    td_program_release(program);
    cr_assert_eq(td_sync(device), 0);
    saw("batch stream 1\nprogram 1 x1(1)=2 [epoch/step]\nfree(2)\nrelease program 1\n");
}

Test(client_programs, run_releases_consumed_inputs) {
    begin();
    td_tensor *p = td_parameter_consumed(TD_F32, TD_SHAPE(3)), *q = td_parameter(TD_F32, TD_SHAPE(3));
    td_tensor *results[] = {td_add(p, q), td_multiply(p, q)};
    td_program *program;
    cr_assert_eq(td_record_end(device, 2, results, &program), 0);
    td_tensor *w = td_full(device, TD_F32, TD_SHAPE(3), 0), *state[2] = {w, td_full(device, TD_F32, TD_SHAPE(3), 0)};
    cr_assert_eq(td_program_run(program, 2, state, 2, state), 0, "%s", td_last_error()->message);
    cr_assert_eq(td_program_run(program, 2, state, 2, state), 0, "%s", td_last_error()->message);
    cr_assert_eq(td_sync(device), 0);
    saw("\nprogram 1 x1(1,2)=3 free 1\nprogram 1 x1(3,4)=5 free 3\n");
    td_tensor *before[2] = {state[0], state[1]};
    state[1] = td_full(device, TD_F64, TD_SHAPE(3), 0);
    before[1] = state[1];
    refused(td_program_run(program, 2, state, 2, state), TD_E_INVALID_ARGUMENT,
            "program: input 1 is f64 (3,), the program's parameter is f32 (3,)");
    cr_assert(state[0] == before[0] && state[1] == before[1], "a failed run has lost its inputs");
    cr_assert_eq(td_wait(state[0]), 0, "a failed run has released its input");
}

Test(client_programs, handle_is_consumed_once) {
    begin();
    td_tensor *p = td_parameter_consumed(TD_F32, TD_SHAPE(3)), *q = td_parameter_consumed(TD_F32, TD_SHAPE(3));
    td_program *program = end(td_add(p, q));
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(3), 0), *twice[] = {x, x}, *y;
    refused(td_program_run(program, 2, twice, 1, &y), TD_E_INVALID_ARGUMENT, "input 1 is released by the run");
    cr_assert_null(y);
    cr_assert_eq(td_wait(x), 0);
    twice[1] = td_full(device, TD_F32, TD_SHAPE(3), 0);
    cr_assert_eq(td_program_run(program, 2, twice, 1, &y), 0, "%s", td_last_error()->message);
}

Test(client_programs, wrong_runs_are_refused) {
    td_device *other;
    cr_assert_eq(td_device_open(connection, "cpu:1", &other), 0);
    td_program *program = increment();
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(3), 0), *far = td_full(other, TD_F32, TD_SHAPE(3), 0);
    td_tensor *wide = td_full(device, TD_F32, TD_SHAPE(3, 1), 0), *none = NULL, *y = x;
    refused(td_program_run(NULL, 1, &x, 1, &y), TD_E_INVALID_ARGUMENT, "the program is NULL");
    cr_assert_null(y);
    refused(td_program_run(program, 2, &x, 1, &y), TD_E_INVALID_ARGUMENT, "2 inputs, the program has 1 parameters");
    refused(td_program_run(program, 1, NULL, 1, &y), TD_E_INVALID_ARGUMENT, "1 inputs at NULL");
    refused(td_program_run(program, 1, &x, 0, &y), TD_E_INVALID_ARGUMENT, "places for 0 results");
    refused(td_program_run(program, 1, &x, 1, NULL), TD_E_INVALID_ARGUMENT, "at NULL");
    refused(td_program_run(program, 1, &far, 1, &y), TD_E_DEVICE_MISMATCH, "the program is on cpu:0, input 0 on cpu:1");
    refused(td_program_run(program, 1, &wide, 1, &y), TD_E_INVALID_ARGUMENT,
            "input 0 is f32 (3, 1), the program's parameter is f32 (3,)");
    refused(td_fetch(x, NULL, 0), TD_E_INVALID_ARGUMENT, "");
    refused(td_program_run(program, 1, &none, 1, &y), TD_E_INVALID_ARGUMENT, "input 0 is NULL");
    none = td_exp(td_full(device, (td_dtype)99, TD_SCALAR, 0));
    refused(td_program_run(program, 1, &none, 1, &y), TD_E_DTYPE, "full");
    cr_assert_null(td_exp(y));
    refused(td_last_error()->code, TD_E_DTYPE, "full");
}

Test(client_programs, run_takes_hundreds_of_tensors) {
    enum { MANY = 300 };
    td_tensor *tensors[MANY];
    begin();
    for (int i = 0; i < MANY; i++)
        tensors[i] = td_parameter_consumed(TD_F32, TD_SHAPE(i + 1));
    td_program *program;
    cr_assert_eq(td_record_end(device, MANY, tensors, &program), 0);
    for (int i = 0; i < MANY; i++)
        tensors[i] = td_full(device, TD_F32, TD_SHAPE(i + 1), 0);
    cr_assert_eq(td_program_run(program, MANY, tensors, MANY, tensors), 0, "%s", td_last_error()->message);
    for (int i = 0; i < MANY; i++)
        cr_assert_eq(td_tensor_shape(tensors[i])[0], i + 1);
    cr_assert_eq(td_sync(device), 0);
    cr_assert_eq(fake.released, MANY);
}

Test(client_programs, program_tells_its_types) {
    td_program *program = increment();
    td_dtype dtype;
    int rank;
    const int64_t *shape;
    cr_assert(td_program_device(program) == device && !td_program_device(NULL));
    cr_assert(td_program_parameters(program) == 1 && td_program_results(program) == 1);
    cr_assert(td_program_parameters(NULL) == 0 && td_program_results(NULL) == 0);
    cr_assert_eq(td_program_parameter_type(program, 0, &dtype, &rank, &shape), 0);
    cr_assert(dtype == TD_F32 && rank == 1 && shape[0] == 3);
    cr_assert_eq(td_program_result_type(program, 0, &dtype, &rank, &shape), 0);
    cr_assert(dtype == TD_F32 && rank == 1 && shape[0] == 3);
    refused(td_program_parameter_type(program, 1, &dtype, &rank, &shape), TD_E_INVALID_ARGUMENT, "parameter 1 of 1");
    refused(td_program_result_type(program, -1, &dtype, &rank, &shape), TD_E_INVALID_ARGUMENT, "result -1 of 1");
    refused(td_program_result_type(program, 0, NULL, &rank, &shape), TD_E_INVALID_ARGUMENT, "NULL");
    refused(td_program_result_type(NULL, 0, &dtype, &rank, &shape), TD_E_INVALID_ARGUMENT, "NULL");
}

/* ---- loops ---- */

/* (w, x) -> (w + x, x²) */
static td_program *accumulate(void) {
    begin();
    td_tensor *w = td_parameter_consumed(TD_F32, TD_SHAPE(3)), *x = td_parameter(TD_F32, TD_SHAPE(3));
    td_tensor *results[] = {td_add(w, x), td_square(x)};
    td_program *program;
    cr_assert_eq(td_record_end(device, 2, results, &program), 0);
    return program;
}

static const td_carry carried[] = {{0, 0}};
static const int first[] = {0}, second[] = {1};

Test(client_programs, loop_is_sent_once) {
    const td_loop loop = {1, carried, 1, second, 1, second};
    td_program *program = accumulate();
    td_tensor *w = td_full(device, TD_F32, TD_SHAPE(3), 0), *results[2];
    for (int times = 4; times < 6; times++) {
        td_tensor *inputs[] = {w, td_full(device, TD_F32, TD_SHAPE(times, 3), 0)};
        cr_assert_eq(td_program_repeat(program, times, &loop, 2, inputs, 2, results), 0, "%s",
                     td_last_error()->message);
        w = results[0];
        cr_assert(td_tensor_rank(w) == 1 && td_tensor_rank(results[1]) == 2);
        cr_assert(td_tensor_shape(results[1])[0] == times && td_tensor_shape(results[1])[1] == 3);
    }
    td_tensor *inputs[] = {w, td_full(device, TD_F32, TD_SHAPE(3), 0)};
    cr_assert_eq(td_program_repeat(program, 1000, NULL, 2, inputs, 2, results), 0, "%s", td_last_error()->message);
    td_program_release(program);
    cr_assert_eq(td_sync(device), 0);
    saw("loop 2 of 1 carried 0,0 sliced 1 stacked 1\n");
    saw("\nprogram 2 x4(1,2)=3 free 1\nfull()=5\nprogram 2 x5(3,5)=6 free 3\nfull()=8\n");
    saw("loop 3 of 1\nbatch stream 0\nprogram 3 x1000(6,8)=9 free 6\nrelease program 3\nrelease program 2\nrelease "
        "program 1\n");
}

static void refused_loop(td_program *program, int64_t times, const td_loop *loop, int code, const char *words) {
    td_tensor *w = td_full(device, TD_F32, TD_SHAPE(3), 0), *x = td_full(device, TD_F32, TD_SHAPE(2, 3), 0);
    td_tensor *inputs[] = {w, x}, *results[] = {w, x};
    refused(td_program_repeat(program, times, loop, 2, inputs, 2, results), code, words);
    cr_assert(!results[0] && !results[1]);
}

Test(client_programs, loops_are_checked) {
    td_program *program = accumulate();
    const td_carry outside[] = {{2, 0}}, beyond[] = {{0, -1}}, twice[] = {{0, 0}, {0, 1}}, same[] = {{0, 0}, {1, 0}};
    const int two[] = {2};
    refused_loop(program, 0, NULL, TD_E_INVALID_ARGUMENT, "0 iterations, 1 to 2147483647");
    refused_loop(program, (int64_t)1 << 31, NULL, TD_E_INVALID_ARGUMENT, "iterations");
    refused_loop(program, 2, &(td_loop){1, NULL, 0, NULL, 0, NULL}, TD_E_INVALID_ARGUMENT, "is NULL");
    refused_loop(program, 2, &(td_loop){0, NULL, -1, first, 0, NULL}, TD_E_INVALID_ARGUMENT, "-1 sliced");
    refused_loop(program, 2, &(td_loop){1, outside, 0, NULL, 0, NULL}, TD_E_INVALID_ARGUMENT,
                 "result 2 is carried, and the program has 2");
    refused_loop(program, 2, &(td_loop){1, beyond, 0, NULL, 0, NULL}, TD_E_INVALID_ARGUMENT, "parameter -1 is carried");
    refused_loop(program, 2, &(td_loop){2, twice, 0, NULL, 0, NULL}, TD_E_INVALID_ARGUMENT,
                 "result 0 is carried twice, or stacked too");
    refused_loop(program, 2, &(td_loop){2, same, 0, NULL, 0, NULL}, TD_E_INVALID_ARGUMENT,
                 "parameter 0 is carried twice, or sliced too");
    refused_loop(program, 2, &(td_loop){1, carried, 1, first, 0, NULL}, TD_E_INVALID_ARGUMENT, "sliced too");
    refused_loop(program, 2, &(td_loop){1, carried, 0, NULL, 1, first}, TD_E_INVALID_ARGUMENT, "stacked too");
    refused_loop(program, 2, &(td_loop){0, NULL, 1, two, 0, NULL}, TD_E_INVALID_ARGUMENT, "parameter 2 is sliced");
    refused_loop(program, 2, &(td_loop){0, NULL, 0, NULL, 1, two}, TD_E_INVALID_ARGUMENT, "result 2 is stacked");
    refused_loop(program, 3, &(td_loop){1, carried, 1, second, 0, NULL}, TD_E_INVALID_ARGUMENT,
                 "input 1 is f32 (2, 3), the program's parameter is f32 (3, 3)");
    cr_assert_eq(td_sync(device), 0);
    saw_no("loop");
}

Test(client_programs, carried_result_has_the_parameters_type) {
    begin();
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(3));
    td_program *program = end(td_sum(x, TD_ALL_AXES, 0));
    td_tensor *y, *input = td_full(device, TD_F32, TD_SHAPE(3), 0);
    const td_loop loop = {1, carried, 0, NULL, 0, NULL};
    refused(td_program_repeat(program, 2, &loop, 1, &input, 1, &y), TD_E_INVALID_ARGUMENT,
            "result 0 is f32 (), and parameter 0, which it is carried to, f32 (3,)");
}

Test(client_programs, stacked_results_have_an_axis_more) {
    const int64_t shape[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    begin();
    td_tensor *x = td_parameter(TD_F32, 8, shape);
    td_program *program = end(td_exp(x));
    td_tensor *y, *input = td_full(device, TD_F32, 8, shape, 0);
    const td_loop stacked = {0, NULL, 0, NULL, 1, first}, sliced = {0, NULL, 1, first, 0, NULL};
    refused(td_program_repeat(program, 2, &stacked, 1, &input, 1, &y), TD_E_SHAPE, "stacked result 0");
    refused(td_program_repeat(program, 2, &sliced, 1, &input, 1, &y), TD_E_SHAPE, "the slices of input 0");
}
