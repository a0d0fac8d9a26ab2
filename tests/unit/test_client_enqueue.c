/* What the client sends for a program's calls. */
#include <criterion/criterion.h>
#include <math.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tensord.h"
#include "tests/stand_ins/fake_daemon.h"

static struct fake_daemon fake;
static td_connection *connection;
static td_device *device;

static sem_t paused, resumed;
static bool is_paused;

static td_tensor *vector(void) {
    return td_full(device, TD_F32, TD_SHAPE(4), 1.0);
}

static void wait_for_resume(void *user) {
    (void)user;
    sem_post(&paused);
    sem_wait(&resumed);
}

/* Keeps the I/O thread in a callback, so that nothing is sent but by the test's own calls. Takes the id 1. */
static void pause_io(void) {
    static const uint8_t byte = 0;
    cr_assert_not_null(td_upload_borrow(device, TD_U8, TD_SHAPE(1), &byte, wait_for_resume, NULL));
    cr_assert_eq(td_sync(device), 0);
    sem_wait(&paused);
    is_paused = true;
}

static void resume_io(void) {
    if (is_paused)
        sem_post(&resumed);
    is_paused = false;
}

static void setup(void) {
    const td_options options = {.queue_bytes = 64 << 10};
    fake_daemon_start(&fake);
    sem_init(&paused, 0, 0);
    sem_init(&resumed, 0, 0);
    cr_assert_eq(td_connect(fake.url, &options, &connection), 0);
    cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
}

static void setup_paused(void) {
    setup();
    pause_io();
}

static void teardown(void) {
    fake.hold = false;
    resume_io();
    td_close(connection);
    fake_daemon_stop(&fake);
}

TestSuite(client_enqueue, .init = setup, .fini = teardown, .timeout = 60);
/* What shares a batch depends on nothing but the calls. */
TestSuite(client_batch, .init = setup_paused, .fini = teardown, .timeout = 60);

static void expect(const char *log) {
    static const char before[] = "upload 1 1/1\nsync 0\n";
    cr_assert_eq(td_sync(device), 0);
    char *seen = fake_daemon_log(&fake);
    cr_assert(!strncmp(seen, before, strlen(before)), "%s", seen);
    cr_expect_str_eq(seen + strlen(before), log);
    free(seen);
}

Test(client_batch, null_is_passed_on_and_the_first_error_is_kept) {
    td_tensor *x = vector(), *bad = td_reshape(x, TD_SHAPE(5));
    cr_assert_null(bad);
    cr_expect_eq(td_last_error()->code, TD_E_SHAPE);
    char before[320];
    strcpy(before, td_last_error()->message);
    float out[4];
    td_tensor *chain = td_sum(td_relu(td_where(td_equal(x, bad), td_slice(bad, 0, 0, 1, 1), x)), TD_ALL_AXES, 0);
    cr_expect_null(chain);
    cr_expect_null(td_concat((td_tensor *[]){x, bad}, 2, 0));
    cr_expect_eq(td_fetch(chain, out, sizeof out), TD_E_SHAPE);
    cr_expect_eq(td_wait(chain), TD_E_SHAPE);
    cr_expect_str_eq(td_last_error()->message, before);
    td_release(NULL);
    expect("batch stream 0\nfull()=2\nsync 0\n");
}

Test(client_batch, several_outputs_have_ids_one_after_another) {
    td_tensor *x = vector(), *values, *indices;
    cr_assert_eq(td_topk(x, 2, 0, 1, &values, &indices), 0, "%s", td_last_error()->message);
    td_tensor *next = td_negative(values);
    cr_expect(td_tensor_dtype(values) == TD_F32 && td_tensor_dtype(indices) == TD_I64);
    cr_expect(td_tensor_shape(indices)[0] == 2 && td_tensor_rank(indices) == 1);
    cr_assert_not_null(next);
    td_release(x);
    expect("batch stream 0\nfull()=2\ntopk(2)=3\nnegative(3)=5\nfree(2)\nsync 0\n");
}

Test(client_batch, several_outputs_are_null_after_a_refusal_and_passed_on) {
    td_tensor *x = vector(), *values = x, *indices = x;
    cr_expect_eq(td_topk(x, 9, 0, 1, &values, &indices), TD_E_INVALID_ARGUMENT);
    cr_expect(!values && !indices);
    cr_expect_null(td_negative(values));
    cr_expect(strstr(td_last_error()->message, "topk: k is 9"), "%s", td_last_error()->message);
    values = x;
    cr_expect_eq(td_topk(x, 1, 0, 1, &values, NULL), TD_E_INVALID_ARGUMENT);
    cr_expect_null(values);
    cr_expect_eq(td_topk(NULL, 1, 0, 1, &values, &indices), TD_E_INVALID_ARGUMENT);
    td_scope_begin("best");
    cr_expect_eq(td_topk(x, 1, 0, 0, &values, &indices), 0);
    td_scope_end(); /* releases both */
    expect("batch stream 0\nfull()=2\ntopk(2)=3 [best]\nfree(4,3)\nsync 0\n");
}

Test(client_batch, wide_operation_releases_any_of_its_inputs) {
    enum { N = 300 };
    td_tensor *parts[N];
    for (int i = 0; i < N; i++)
        parts[i] = vector();
    td_tensor *joined = td_concat(parts, N, 0);
    td_release(parts[0]);
    td_release(parts[16]);
    td_release(parts[N - 1]);
    cr_assert_not_null(joined);
    cr_assert_eq(td_sync(device), 0, "%s", td_last_error()->message);
    cr_assert(fake_daemon_saw(&fake, "=302 free 2,18,301\n"));
    td_release(parts[1]); /* in a batch of its own */
    cr_assert_eq(td_sync(device), 0);
    cr_assert(fake_daemon_saw(&fake, "free(3)\n"));
}

static void fails_with(td_tensor *tensor, int code, const char *words) {
    const td_error *error = td_last_error();
    cr_assert_null(tensor);
    cr_expect(error->code == code && strstr(error->message, words), "%d: %s", error->code, error->message);
}

/* An error that a program has handled did not make this NULL. */
Test(client_enqueue, null_of_nobodys_making_is_an_error_by_itself) {
    td_device *other;
    float out;
    td_tensor *x = vector();
    fails_with(td_add(NULL, NULL), TD_E_INVALID_ARGUMENT, "add: input 0 is NULL");
    cr_expect_eq(td_device_open(connection, "cuda:7", &other), TD_E_NO_DEVICE);
    fails_with(td_where(x, x, NULL), TD_E_INVALID_ARGUMENT, "where: input 2 is NULL");
    cr_expect_eq(td_device_open(connection, "cuda:7", &other), TD_E_NO_DEVICE);
    cr_expect_eq(td_fetch(NULL, &out, sizeof out), TD_E_INVALID_ARGUMENT);
    cr_expect_str_eq(td_last_error()->message, "fetch: the tensor is NULL");
    cr_expect_eq(td_device_open(connection, "cuda:7", &other), TD_E_NO_DEVICE);
    fails_with(td_copy_to(NULL, device), TD_E_INVALID_ARGUMENT, "NULL");
    cr_expect_eq(td_device_open(connection, "cuda:7", &other), TD_E_NO_DEVICE);
    cr_expect_eq(td_publish(NULL, "x"), TD_E_INVALID_ARGUMENT);
    fails_with(td_upload(device, TD_F32, TD_SHAPE(1), NULL), TD_E_INVALID_ARGUMENT, "the data is NULL");
    fails_with(td_exp(NULL), TD_E_INVALID_ARGUMENT, "the data is NULL");
}

/* A cast of what is beyond the integers is undefined in C, and would be some number. */
Test(client_enqueue, doubles_that_are_no_integers_are_refused_and_named) {
    static const struct {
        td_dtype dtype;
        double value;
        const char *words; /* NULL: it is one */
    } rows[] = {{TD_I64, 1e300, "1.0000000000000001e+300 is no value of i64"},
                {TD_I64, 0x1p63, "9.2233720368547758e+18 is no value of i64"},
                {TD_I64, -0x1p63, NULL},
                {TD_I64, -0x1.0000000000001p63, "is no value of i64"},
                {TD_I64, (double)INFINITY, "inf is no value of i64"},
                {TD_I32, -(double)INFINITY, "-inf is no value of i32"},
                {TD_I8, (double)NAN, "nan is no value of i8"},
                {TD_I8, 128, "128 is no value of i8"},
                {TD_I8, 127.9, NULL},
                {TD_U8, -1, "-1 is no value of u8"},
                {TD_U8, -0.9, NULL},
                {TD_U64, -1, "-1 is no value of u64"},
                {TD_U64, 0x1.fffffffffffffp63, NULL},
                {TD_U64, 0x1p64, "1.8446744073709552e+19 is no value of u64"},
                {TD_U64, (double)NAN, "nan is no value of u64"},
                {TD_U32, 0x1p32, "4294967296 is no value of u32"},
                {TD_U16, 65535.9, NULL},
                {TD_I16, 40000.5, "40000.5 is no value of i16"},
                {TD_I32, 0x1p31, "2147483648 is no value of i32"},
                {TD_BOOL, (double)NAN, NULL},
                {TD_F16, 1e300, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_tensor *x = td_full(device, rows[i].dtype, TD_SHAPE(1), rows[i].value);
        if (rows[i].words)
            fails_with(x, TD_E_INVALID_ARGUMENT, rows[i].words);
        else
            cr_expect_not_null(x, "row %zu: %s", i, td_last_error()->message);
    }
    fails_with(td_arange(device, TD_I64, (double)NAN, 1, 1), TD_E_INVALID_ARGUMENT, "the start nan is no value of i64");
    fails_with(td_arange(device, TD_I32, 0, (double)INFINITY, 0x1p62), TD_E_INVALID_ARGUMENT, "the stop inf");
    fails_with(td_arange(device, TD_I32, 0, 3, 0.5), TD_E_INVALID_ARGUMENT, "the step 0.5 is truncated to 0 for i32");
    fails_with(td_arange(device, TD_I8, 0, 130, 1), TD_E_INVALID_ARGUMENT, "129 is no value of i8");
    fails_with(td_arange(device, TD_F32, 0, 3, 0), TD_E_INVALID_ARGUMENT, "steps of 0");
    fails_with(td_arange(device, TD_U64, 0, 0x1p64, 0x1p62), TD_E_INVALID_ARGUMENT, "the stop 1.8446744073709552e+19");
    fails_with(td_full_int(device, TD_U64, TD_SCALAR, -1), TD_E_INVALID_ARGUMENT, "-1 is no value of u64");
    fails_with(td_full_uint(device, TD_I64, TD_SCALAR, UINT64_MAX), TD_E_INVALID_ARGUMENT,
               "18446744073709551615 is no value of i64");
    fails_with(td_full_uint(device, TD_BOOL, TD_SCALAR, UINT64_MAX), TD_E_INVALID_ARGUMENT, "is no value of bool");
    fails_with(td_full_uint(device, TD_U8, TD_SCALAR, 256), TD_E_INVALID_ARGUMENT, "256 is no value of u8");
    cr_expect_not_null(td_full_uint(device, TD_U64, TD_SCALAR, UINT64_MAX));
    cr_expect_not_null(td_full_complex(device, TD_C128, TD_SHAPE(2), (double)NAN, -1));
    fails_with(td_full_complex(device, TD_F32, TD_SCALAR, 1, 2), TD_E_DTYPE,
               "gives no f32 of two parts: ask for c64 or c128");
    fails_with(td_cast(td_full(device, TD_C64, TD_SCALAR, 1), TD_F32), TD_E_DTYPE, "a c64 is not cast to f32");
    cr_expect_eq(td_tensor_dtype(td_abs(td_full_int(device, TD_C64, TD_SCALAR, -3))), TD_F32);
    cr_expect_not_null(td_full_uint(device, TD_F16, TD_SCALAR, UINT64_MAX));
    cr_expect_not_null(td_arange(device, TD_U64, 0x1p63, 0x1.8p63, 0x1p61));
    cr_expect_not_null(td_arange(device, TD_I8, 0, 128, 1));
    cr_expect_not_null(td_arange(device, TD_I32, 0.5, 10.5, 2.5));
}

Test(client_enqueue, numbers_that_are_no_enumerators_are_shown_as_they_are) {
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(2, 2), 1);
    fails_with(td_cast(x, (td_dtype)-1), TD_E_DTYPE, "-1 is no dtype");
    fails_with(td_full(device, (td_dtype)-1, TD_SHAPE(1), 1), TD_E_DTYPE, "-1 is no dtype");
    fails_with(td_upload(device, (td_dtype)-1, TD_SHAPE(1), x), TD_E_DTYPE, "-1 is no dtype");
    fails_with(td_linear(x, x, NULL, (td_activation)-1), TD_E_INVALID_ARGUMENT, "-1 is no activation");
    fails_with(td_reshape(x, 9, (const int64_t[9]){0}), TD_E_SHAPE, "rank 9, 0 to 8 are possible");
    fails_with(td_upload(device, TD_F32, 9, (const int64_t[9]){0}, x), TD_E_SHAPE, "rank 9");
    fails_with(td_sum(x, 9, (const int64_t[9]){0}, 0), TD_E_INVALID_ARGUMENT, "9 axes, 0 to 8");
    fails_with(td_broadcast_to(x, 2, NULL), TD_E_INVALID_ARGUMENT, "the shape is NULL");
}

Test(client_enqueue, what_is_closed_already_is_left_alone) {
    td_device *other;
    cr_assert_eq(td_device_open(connection, "cpu:1", &other), 0);
    td_device_close(other);
    td_device_close(other);
    cr_expect_str_eq(td_last_error()->message, "the device is closed already");
    td_connection *second;
    cr_assert_eq(td_connect(fake.url, NULL, &second), 0);
    td_close(second);
    td_close(second);
    cr_expect_str_eq(td_last_error()->message, "the connection is closed already");
    cr_expect_not_null(vector());
}

Test(client_enqueue, null_has_no_properties_and_is_never_waited_for) {
    cr_expect_eq(td_tensor_dtype(NULL), 0);
    cr_expect_eq(td_tensor_rank(NULL), 0);
    cr_expect_eq(td_tensor_bytes(NULL), 0);
    cr_expect_null(td_tensor_shape(NULL));
    cr_expect_null(td_tensor_device(NULL));
    cr_expect_str_eq(td_device_name(NULL), "");
    cr_expect_eq(td_test(NULL), 1);
    cr_expect_eq(td_sync(NULL), TD_E_INVALID_ARGUMENT);
    cr_expect_eq(td_dtype_size((td_dtype)77), 0);
    cr_expect_str_eq(td_dtype_name((td_dtype)77), "invalid");
    cr_expect_not_null(td_strerror(-1));
}

Test(client_enqueue, dtype_and_shape_are_known_at_once) {
    td_tensor *x = td_full(device, TD_I32, TD_SHAPE(2, 3, 1), 7), *y = td_full(device, TD_F16, TD_SHAPE(4), 1);
    td_tensor *z = td_divide(x, y);
    cr_assert_not_null(z);
    cr_expect_eq(td_tensor_dtype(z), TD_F16);
    cr_expect_eq(td_tensor_rank(z), 3);
    cr_expect_arr_eq(td_tensor_shape(z), ((int64_t[]){2, 3, 4}), 3 * sizeof(int64_t));
    cr_expect_eq(td_tensor_bytes(z), 48);
    cr_expect_eq(td_tensor_device(z), device);
}

Test(client_enqueue, tensors_of_two_devices_do_not_mix_and_both_are_named) {
    td_device *other;
    cr_assert_eq(td_device_open(connection, "cpu:1", &other), 0);
    td_tensor *a = vector(), *b = td_full(other, TD_F32, TD_SHAPE(4), 1.0);
    cr_expect_null(td_add(a, b));
    const td_error *error = td_last_error();
    cr_expect_eq(error->code, TD_E_DEVICE_MISMATCH);
    cr_expect_not_null(strstr(error->message, "cpu:0"));
    cr_expect_not_null(strstr(error->message, "cpu:1"));
    cr_expect_str_eq(error->operation, "add");
    cr_assert_eq(td_device_open(connection, "cpu:0", &other), 0);
    fails_with(td_add(a, td_full(other, TD_F32, TD_SHAPE(4), 1)), TD_E_DEVICE_MISMATCH,
               "input 0 and input 1 belong to different sessions on cpu:0");
}

Test(client_batch, shapes_and_dtypes_fail_at_the_call_with_operation_and_label) {
    td_scope_begin("forward");
    td_label("hidden");
    td_tensor *a = td_full(device, TD_F32, TD_SHAPE(2, 3), 0), *b = td_full(device, TD_F32, TD_SHAPE(4, 5), 0);
    td_label("logits");
    cr_expect_null(td_matmul(a, b));
    const td_error *error = td_last_error();
    cr_expect_eq(error->code, TD_E_SHAPE);
    cr_expect_str_eq(error->operation, "matmul");
    cr_expect_str_eq(error->label, "forward/logits");
    cr_expect_not_null(strstr(error->message, "(2, 3)"));
    cr_expect_null(td_full(device, TD_F32, 9, (const int64_t[9]){0}, 0));
    cr_expect_eq(td_last_error()->code, TD_E_SHAPE);
    cr_expect_null(td_slice(a, 2, 0, 1, 1));
    cr_expect_null(td_cast(a, (td_dtype)77));
    cr_expect_eq(td_last_error()->code, TD_E_DTYPE);
    cr_expect_null(td_upload(device, TD_F32, TD_SHAPE(-1), a));
    td_scope_end();
    expect("batch stream 0\nfull()=2 [forward/hidden]\nfull()=3 [forward]\nfree(3,2)\nsync 0\n");
}

Test(client_batch, a_release_after_use_becomes_the_operations_consume_bit) {
    td_tensor *x = vector(), *b = vector();
    for (int i = 0; i < 3; i++) {
        td_tensor *next = td_add(x, b);
        td_release(x);
        x = next;
    }
    td_tensor *y = td_multiply(x, x);
    td_release(x);
    td_release(b);
    td_release(y);
    expect("batch stream 0\nfull()=2\nfull()=3\nadd(2,3)=4 free 2\nadd(4,3)=5 free 4\nadd(5,3)=6 free 5\n"
           "multiply(6,6)=7 free 6\nfree(3,7)\nsync 0\n");
}

Test(client_batch, a_released_tensor_has_left_its_scope) {
    td_scope_begin(NULL);
    td_tensor *x = vector();
    td_release(x);
    td_tensor *y = vector(), *z = vector();
    td_release(y);
    td_scope_end();
    (void)z;
    expect("batch stream 0\nfull()=2\nfree(2)\nfull()=3\nfull()=4\nfree(3,4)\nsync 0\n");
}

Test(client_batch, frees_come_together_in_one_operation_of_255) {
    td_tensor *tensors[300];
    for (int i = 0; i < 300; i++)
        tensors[i] = vector();
    for (int i = 0; i < 300; i++)
        td_release(tensors[i]);
    cr_assert_eq(td_sync(device), 0);
    char *log = fake_daemon_log(&fake);
    const char *first = strstr(log, "\nfree(2,3,4");
    cr_assert_not_null(first);
    cr_expect_not_null(strstr(first, "\nfree(257,258"));
    free(log);
}

/* A scope's end releases all of it at once, so nothing is sent in between. */
Test(client_enqueue, releases_alone_never_make_a_batch_too_large) {
    td_scope_begin(NULL);
    for (int i = 0; i < 40000; i++)
        while (!vector())
            td_flush(device);
    cr_assert_eq(td_sync(device), 0);
    td_scope_end();
    cr_expect_eq(td_sync(device), 0);
    cr_expect(fake_daemon_saw(&fake, "free(40000,39999"));
}

/* Fills the queue. */
static int fill(td_tensor *a, td_tensor *b, td_tensor **last) {
    for (int n = 0;; n++) {
        td_tensor *next = td_add(a, b);
        if (!next)
            return n;
        *last = next;
    }
}

Test(client_batch, a_full_queue_says_again_and_leaves_nothing_behind) {
    td_tensor *a = vector(), *b = vector(), *last = NULL, *x;
    cr_assert_eq(td_sync(device), 0);
    fake.hold = true;
    int n = 0;
    for (int more; (more = fill(a, b, &last)) > 0; n += more)
        td_flush(device); /* as far as the socket takes it */
    cr_expect_gt(n, 1000);
    cr_expect_eq(td_last_error()->code, TD_E_AGAIN);
    td_label("kept");
    cr_expect_null(td_exp(a));
    cr_expect_eq(td_last_error()->code, TD_E_AGAIN);
    float data[4] = {0};
    cr_expect_null(td_upload(device, TD_F32, TD_SHAPE(4), data));
    td_release(last); /* never fails */
    fake.hold = false;
    resume_io();
    while (!(x = td_exp(a)))
        td_flush(device);
    cr_assert_eq(td_sync(device), 0);
    td_tensor *z = td_add(x, x);
    cr_expect_eq(td_wait(z), 0);
    /* ids without a gap: the first one, two, n, exp, and this one */
    char line[64];
    snprintf(line, sizeof line, ")=%d\nwait %d\n", 3 + n + 1 + 1, 3 + n + 1 + 1);
    cr_expect(fake_daemon_saw(&fake, line), "%s", line);
    snprintf(line, sizeof line, "exp(2)=%d [kept]\n", 3 + n + 1);
    cr_expect(fake_daemon_saw(&fake, line), "%s", line);
}

Test(client_batch, labels_are_cut_between_characters_and_made_utf8) {
    char longest[400] = "";
    for (int i = 0; i < 100; i++)
        strcat(longest, "\xc3\xa4");
    td_scope_begin("a");
    td_scope_begin(NULL);
    td_label("b\xff\xc0z");
    vector();
    td_label(longest);
    td_tensor *kept = td_keep(vector());
    vector();
    td_scope_end();
    (void)kept;
    td_label("c");
    vector();
    td_scope_end();
    td_label("d");
    vector();
    char log[600], cut[200] = "";
    memcpy(cut, longest, 126);
    snprintf(log, sizeof log,
             "batch stream 0\nfull()=2 [a/b??z]\nfull()=3 [a/%s]\nfull()=4 [a]\nfree(4,2)\nfull()=5 [a/c]\n"
             "free(5,3)\nfull()=6 [d]\nsync 0\n",
             cut);
    expect(log);
}

/* After these calls nothing follows that would send: the library's thread does it by itself. */
Test(client_enqueue, work_starts_without_a_fetch) {
    td_tensor *x = vector();
    cr_expect(fake_daemon_saw(&fake, "full()=1")); /* the thread was asleep */
    td_exp(x);
    cr_expect(fake_daemon_saw(&fake, "exp(1)=2")); /* it may still be ticking */
    usleep(20000);
    td_log(x);
    cr_expect(fake_daemon_saw(&fake, "log(1)=3")); /* asleep again */
    usleep(20000);
    td_release(x);
    cr_expect(fake_daemon_saw(&fake, "free(1)"));
    usleep(20000);
    td_upload(device, TD_F32, TD_SHAPE(1), (float[]){1});
    cr_expect(fake_daemon_saw(&fake, "upload 4 4/4"));
    usleep(20000);
    td_stream *stream;
    cr_assert_eq(td_stream_open(device, 0, &stream), 0);
    cr_expect(fake_daemon_saw(&fake, "STREAM_OPEN"));
}

/* However many operations come within a tick. */
Test(client_enqueue, batches_stay_below_64_kib) {
    enum { COUNT = 20000, ENTRY_BYTES = 24, BATCH_MAX = 64 << 10 };
    td_tensor *a = vector(), *b = vector();
    for (int i = 0; i < COUNT; i++)
        while (!td_add(a, b))
            td_flush(device);
    cr_assert_eq(td_sync(device), 0);
    char *log = fake_daemon_log(&fake);
    for (char *batch = strstr(log, "batch "), *next; batch; batch = next) {
        next = strstr(batch + 1, "batch ");
        if (next)
            *next = 0;
        int operations = 0;
        for (const char *line = strstr(batch, "add("); line; line = strstr(line + 1, "add("))
            operations++;
        cr_expect_leq(operations * ENTRY_BYTES, BATCH_MAX);
        if (next)
            *next = 'b';
    }
    free(log);
}

Test(client_batch, streams_split_batches_and_a_closed_one_is_an_error) {
    td_stream *stream;
    cr_assert_eq(td_stream_open(device, 3, &stream), 0);
    td_tensor *a = vector();
    cr_assert_eq(td_stream_set(device, stream), 0);
    td_tensor *b = td_exp(a);
    cr_assert_eq(td_stream_set(device, NULL), 0);
    td_exp(b);
    cr_assert_eq(td_stream_set(device, stream), 0);
    td_stream_close(stream);
    cr_expect_null(td_exp(b));
    cr_expect_eq(td_last_error()->code, TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_stream_set(device, NULL), 0);
    td_exp(b);
    expect("STREAM_OPEN\nbatch stream 0\nfull()=2\nbatch stream 1\nexp(2)=3\nbatch stream 0\nexp(3)=4\nSTREAM_CLOSE\n"
           "batch stream 0\nexp(3)=5\nsync 0\n");
}

Test(client_enqueue, a_closed_device_leaves_nothing_in_scopes) {
    td_device *other;
    cr_assert_eq(td_device_open(connection, "cpu:1", &other), 0);
    td_scope_begin("outer");
    td_full(other, TD_F32, TD_SHAPE(4), 1.0);
    td_scope_begin("inner");
    vector();
    td_keep(td_full(other, TD_F32, TD_SHAPE(4), 1.0));
    td_device_close(other);
    td_scope_end();
    td_scope_end();
    cr_expect_eq(td_sync(device), 0);
}
