/* What the client sends for a program's calls. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensord.h"
#include "tests/unit/fake_daemon.h"

static struct fake_daemon fake;
static td_connection *connection;
static td_device *device;

static void setup(void) {
    const td_options options = {.queue_bytes = 64 << 10};
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, &options, &connection), 0);
    cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
}

static void teardown(void) {
    fake.hold = false;
    td_close(connection);
    fake_daemon_stop(&fake);
}

TestSuite(client_enqueue, .init = setup, .fini = teardown, .timeout = 20);

static td_tensor *vector(void) {
    return td_full(device, TD_F32, TD_SHAPE(4), 1.0);
}

static void expect(const char *log) {
    cr_assert_eq(td_sync(device), 0);
    char *seen = fake_daemon_log(&fake);
    cr_expect_str_eq(seen, log);
    free(seen);
}

Test(client_enqueue, null_is_passed_on_and_the_first_error_is_kept) {
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
    expect("batch stream 0\nfull()=1\nsync 0\n");
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
}

Test(client_enqueue, shapes_and_dtypes_fail_at_the_call_with_operation_and_label) {
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
    cr_expect_eq(td_last_error()->code, TD_E_INVALID_ARGUMENT);
    cr_expect_null(td_slice(a, 2, 0, 1, 1));
    cr_expect_null(td_cast(a, (td_dtype)77));
    cr_expect_eq(td_last_error()->code, TD_E_DTYPE);
    cr_expect_null(td_upload(device, TD_F32, TD_SHAPE(-1), a));
    td_scope_end();
    expect("batch stream 0\nfull()=1 [forward/hidden]\nfull()=2 [forward]\nfree(2,1)\nsync 0\n");
}

Test(client_enqueue, a_release_after_use_becomes_the_operations_consume_bit) {
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
    expect("batch stream 0\nfull()=1\nfull()=2\nadd(1,2)=3 free 1\nadd(3,2)=4 free 3\nadd(4,2)=5 free 4\n"
           "multiply(5,5)=6 free 5\nfree(2,6)\nsync 0\n");
}

Test(client_enqueue, frees_come_together_in_one_operation_of_255) {
    td_tensor *tensors[300];
    for (int i = 0; i < 300; i++)
        tensors[i] = vector();
    for (int i = 0; i < 300; i++)
        td_release(tensors[i]);
    cr_assert_eq(td_sync(device), 0);
    char *log = fake_daemon_log(&fake);
    const char *first = strstr(log, "\nfree(1,2,3");
    cr_assert_not_null(first);
    cr_expect_not_null(strstr(first, "\nfree(256,257"));
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

/* Fills the socket and the queue behind it. */
static int fill(td_tensor *a, td_tensor *b, td_tensor **last) {
    for (int n = 0;; n++) {
        td_tensor *next = td_add(a, b);
        if (!next)
            return n;
        *last = next;
    }
}

Test(client_enqueue, a_full_queue_says_again_and_leaves_nothing_behind) {
    td_tensor *a = vector(), *b = vector(), *last = NULL;
    cr_assert_eq(td_sync(device), 0);
    fake.hold = true;
    td_tensor *x = NULL;
    int n = fill(a, b, &last);
    td_flush(device);
    n += fill(a, b, &last);
    cr_expect_gt(n, 1000);
    cr_expect_eq(td_last_error()->code, TD_E_AGAIN);
    td_label("kept");
    cr_expect_null(td_exp(a));
    cr_expect_eq(td_last_error()->code, TD_E_AGAIN);
    float data[4] = {0};
    cr_expect_null(td_upload(device, TD_F32, TD_SHAPE(4), data));
    td_release(last); /* never fails */
    fake.hold = false;
    while (!(x = td_exp(a)))
        td_flush(device);
    cr_assert_eq(td_sync(device), 0);
    td_tensor *z = td_add(x, x);
    char line[64];
    cr_expect_eq(td_wait(z), 0);
    /* ids without a gap: two, then n, then exp, then this one */
    snprintf(line, sizeof line, ")=%d\nwait %d\n", 2 + n + 1 + 1, 2 + n + 1 + 1);
    cr_expect(fake_daemon_saw(&fake, line), "%s", line);
    snprintf(line, sizeof line, "exp(1)=%d [kept]\n", 2 + n + 1);
    cr_expect(fake_daemon_saw(&fake, line), "%s", line);
}

Test(client_enqueue, labels_are_cut_between_characters_and_made_utf8) {
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
             "batch stream 0\nfull()=1 [a/b??z]\nfull()=2 [a/%s]\nfull()=3 [a]\nfree(3,1)\nfull()=4 [a/c]\n"
             "free(4,2)\nfull()=5 [d]\nsync 0\n",
             cut);
    expect(log);
}

Test(client_enqueue, work_starts_without_a_fetch) {
    vector();
    cr_expect(fake_daemon_saw(&fake, "full()=1"));
}

Test(client_enqueue, streams_split_batches_and_a_closed_one_is_an_error) {
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
    expect("STREAM_OPEN\nbatch stream 0\nfull()=1\nbatch stream 1\nexp(1)=2\nbatch stream 0\nexp(2)=3\nSTREAM_CLOSE\n"
           "batch stream 0\nexp(2)=4\nsync 0\n");
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
