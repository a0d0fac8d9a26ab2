/* Jobs as a program runs them through the client library, from first to last against the real daemon. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/certificates.h"
#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"

static struct daemon tensord;
static struct certificates certificates;
static struct client client;
static const char *url;

static void start_tls(void) {
    certificates_make(&certificates);
    certificates_start(&certificates, &tensord, NULL, NULL);
    certificates_use(&certificates, "ca", NULL);
    url = tensord.tcp;
}

/* All of it once more over TLS, where the variable says so. */
static void start_daemon(void) {
    if (getenv("TENSORD_TEST_TLS")) {
        start_tls();
    } else {
        daemon_start(&tensord, NULL);
        url = tensord.url;
    }
}

static void stop_daemon(void) {
    daemon_stop(&tensord);
    certificates_remove(&certificates);
}

static void start(void) {
    start_daemon();
    client_open(&client, url, "cpu:0");
}

static void stop(void) {
    client_close(&client);
    stop_daemon();
}

TestSuite(job, .init = start, .fini = stop, .timeout = 120);

Test(job, quick_start_of_the_header) {
    float host[2][3] = {{1, 2, 3}, {4, 5, 6}}, result[2][2];
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(2, 3), host);
    td_tensor *y = td_matmul(x, td_transpose(x));
    cr_assert(!td_fetch(y, result, sizeof result), "%s", td_last_error()->message);
    cr_assert_eq(result[0][0], 14);
    cr_assert_eq(result[0][1], 32);
    cr_assert_eq(result[1][0], 32);
    cr_assert_eq(result[1][1], 77);
}

Test(job, linear_with_and_without_bias) {
    const float x_host[2][3] = {{1, 2, 3}, {-1, -2, -3}}, weight_host[2][3] = {{1, 1, 1}, {1, 0, -1}};
    float result[2][2];
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(2, 3), x_host);
    td_tensor *weight = td_upload(client.device, TD_F32, TD_SHAPE(2, 3), weight_host);
    td_tensor *bias = td_full(client.device, TD_F32, TD_SHAPE(2), 0.5);
    td_tensor *y = td_linear(x, weight, bias, TD_ACTIVATION_RELU);
    cr_assert(!td_fetch(y, result, sizeof result), "%s", td_last_error()->message);
    cr_assert_arr_eq((float *)result, ((float[]){6.5f, 0, 0, 2.5f}), sizeof result);
    y = td_linear(x, weight, NULL, TD_ACTIVATION_NONE);
    cr_assert(!td_fetch(y, result, sizeof result), "%s", td_last_error()->message);
    cr_assert_arr_eq((float *)result, ((float[]){6, -2, -6, 2}), sizeof result);
    cr_assert_null(td_linear(x, NULL, bias, TD_ACTIVATION_NONE));
    cr_assert_null(td_linear(x, weight, bias, (td_activation)9));
    cr_assert_eq(td_last_error()->code, TD_E_INVALID_ARGUMENT);
}

Test(job, result_is_known_in_shape_and_dtype_at_once) {
    td_tensor *a = td_full(client.device, TD_I32, TD_SHAPE(3, 1), 2);
    td_tensor *b = td_full(client.device, TD_F32, TD_SHAPE(4), 0.5);
    td_tensor *sum = td_add(a, b);
    cr_assert_not_null(sum, "%s", td_last_error()->message);
    cr_assert_eq(td_tensor_dtype(sum), TD_F32);
    cr_assert_eq(td_tensor_rank(sum), 2);
    cr_assert_eq(td_tensor_shape(sum)[0], 3);
    cr_assert_eq(td_tensor_shape(sum)[1], 4);
    cr_assert_eq(td_tensor_bytes(sum), 48);
    cr_assert_eq(td_tensor_device(sum), client.device);
}

Test(job, every_dtype_comes_back_as_it_went) {
    for (int dtype = TD_BOOL; dtype <= TD_C128; dtype++) {
        uint8_t sent[16 * 105], got[sizeof sent];
        size_t bytes = 105 * td_dtype_size((td_dtype)dtype);
        client_noise(sent, sizeof sent, (unsigned)dtype);
        for (size_t i = 0; dtype == TD_BOOL && i < bytes; i++)
            sent[i] &= 1;
        td_tensor *tensor = td_upload(client.device, (td_dtype)dtype, TD_SHAPE(3, 5, 7), sent);
        cr_assert(!td_fetch(tensor, got, bytes), "%s: %s", td_dtype_name((td_dtype)dtype), td_last_error()->message);
        cr_assert_arr_eq(got, sent, bytes, "%s", td_dtype_name((td_dtype)dtype));
    }
}

Test(job, f8_is_for_storage_and_products) {
    float host[] = {1, 0.3F, -500, 448};
    uint8_t stored[4];
    td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(2, 2), host);
    td_tensor *narrow = td_cast(x, TD_F8E4M3), *wide = td_cast(x, TD_F8E5M2);
    cr_assert_eq(td_tensor_bytes(narrow), 4);
    cr_assert(!td_fetch(narrow, stored, sizeof stored), "%s", td_last_error()->message);
    cr_assert_arr_eq(stored, ((uint8_t[]){0x38, 0x2a, 0xff, 0x7e}), 4);
    td_tensor *product = td_matmul(wide, td_transpose(wide)); /* 1, 0.3125; -512, 448 */
    cr_assert_eq(td_tensor_dtype(product), TD_F32);
    client_expect(product, (float[]){1.09765625F, -372, -372, 462848}, 4);
    cr_assert_null(td_add(narrow, narrow));
    cr_assert_eq(td_last_error()->code, TD_E_DTYPE);
    cr_assert(strstr(td_last_error()->message, "takes no f8e4m3: cast to f16, bf16 or f32 first"), "%s",
              td_last_error()->message);
    cr_assert_null(td_matmul(narrow, x));
    cr_assert(strstr(td_last_error()->message, "f8e4m3 and f32 do not promote"), "%s", td_last_error()->message);
}

Test(job, empty_and_scalar_tensors_work) {
    float scalar = 2.5f, got = 0;
    td_tensor *s = td_upload(client.device, TD_F32, TD_SCALAR, &scalar);
    cr_assert(!td_fetch(td_multiply(s, s), &got, sizeof got), "%s", td_last_error()->message);
    cr_assert_eq(got, 6.25f);
    td_tensor *none = td_upload(client.device, TD_F32, TD_SHAPE(0, 4), NULL);
    cr_assert_not_null(none, "%s", td_last_error()->message);
    cr_assert(!td_fetch(none, NULL, 0), "%s", td_last_error()->message);
    client_expect(td_sum(none, TD_AXES(0), 0), (float[4]){0}, 4);
}

Test(job, views_read_the_same_memory) {
    td_tensor *x = td_reshape(client_ramp(client.device, 24, 0), TD_SHAPE(2, 3, 4));
    td_tensor *picked = td_slice(td_slice(x, 1, TD_NONE, TD_NONE, -2), 2, 1, TD_NONE, 2);
    client_expect(picked, (float[]){9, 11, 1, 3, 21, 23, 13, 15}, 8);
    td_tensor *turned = td_permute(picked, TD_AXES(2, 0, 1));
    client_expect(turned, (float[]){9, 1, 21, 13, 11, 3, 23, 15}, 8);
    td_tensor *wide =
        td_broadcast_to(td_expand_dims(td_slice(td_reshape(x, TD_SHAPE(-1)), 0, 0, 2, 1), 0), TD_SHAPE(3, 2));
    client_expect(td_add(wide, wide), (float[]){0, 2, 0, 2, 0, 2}, 6);
    client_expect(td_squeeze(td_slice(wide, 0, 2, 3, 1), TD_AXES(0)), (float[]){0, 1}, 2);
}

Test(job, long_chain_runs_in_order) {
    td_tensor *one = td_full(client.device, TD_F32, TD_SHAPE(16), 1);
    td_tensor *sum = td_full(client.device, TD_F32, TD_SHAPE(16), 0);
    for (int i = 0; i < 20000; i++) {
        td_tensor *next;
        while (!(next = td_add(sum, one)) && td_last_error()->code == TD_E_AGAIN)
            cr_assert(!td_sync(client.device), "%s", td_last_error()->message);
        cr_assert_not_null(next, "%s", td_last_error()->message);
        td_release(sum);
        sum = next;
    }
    float expected[16];
    for (int i = 0; i < 16; i++)
        expected[i] = 20000;
    client_expect(sum, expected, 16);
}

Test(job, an_operation_may_have_several_results) {
    td_tensor *x = td_concat((td_tensor *[]){client_ramp(client.device, 3, 5), client_ramp(client.device, 3, 0)}, 2, 0);
    td_tensor *values, *indices;
    int64_t places[3];
    cr_assert_eq(td_topk(x, 3, -1, 1, &values, &indices), 0, "%s", td_last_error()->message);
    client_expect(values, (float[]){7, 6, 5}, 3);
    cr_assert_eq(td_fetch(indices, places, sizeof places), 0, "%s", td_last_error()->message);
    cr_assert(places[0] == 2 && places[1] == 1 && places[2] == 0);
    client_expect(td_take(x, indices, 0), (float[]){7, 6, 5}, 3);
    cr_assert_eq(td_topk(x, 2, 0, 0, &values, &indices), 0);
    client_expect(values, (float[]){0, 1}, 2);
}

/* More than the head of an operation has room for, and released at once: some by the operation itself. */
Test(job, an_operation_may_have_a_thousand_inputs) {
    enum { N = 1000 };
    td_tensor *parts[N], *one = client_ramp(client.device, 2, 1);
    float expected[2 * N], rows[N][2];
    for (int i = 0; i < N; i++) {
        parts[i] = i % 10 == 3 ? one : td_full(client.device, TD_F32, TD_SHAPE(2), i);
        for (int k = 0; k < 2; k++)
            expected[2 * i + k] = i % 10 == 3 ? (float)(1 + k) : (float)i;
    }
    td_tensor *joined = td_concat(parts, N, 0), *stacked = td_stack(parts, N, 0);
    cr_assert(joined && stacked, "%s", td_last_error()->message);
    for (int i = N - 1; i >= 0; i--)
        if (parts[i] != one)
            td_release(parts[i]);
    client_expect(joined, expected, 2 * N);
    cr_assert_eq(td_fetch(stacked, rows, sizeof rows), 0, "%s", td_last_error()->message);
    cr_assert_eq(memcmp(rows, expected, sizeof expected), 0);
    client_expect(one, (float[]){1, 2}, 2);
    for (int i = 0; i < N; i++) /* some of them fail */
        parts[i] = i % 100 < 99 ? one : td_take(one, td_full(client.device, TD_I64, TD_SHAPE(2), 9), 0);
    client_expect_failure(td_concat(parts, N, 0), TD_E_OUT_OF_RANGE);
}

Test(job, failure_names_operation_label_and_scope) {
    td_tensor *x = client_ramp(client.device, 4, 0);
    td_tensor *indices = td_full(client.device, TD_I64, TD_SHAPE(2), 9);
    td_scope_begin("forward");
    td_label("logits");
    td_tensor *bad = td_keep(td_take(x, indices, 0));
    td_scope_end();
    td_tensor *later = td_exp(td_add(bad, bad));
    const td_error *error = client_expect_failure(later, TD_E_OUT_OF_RANGE);
    cr_assert_str_eq(error->operation, "take");
    cr_assert_str_eq(error->label, "forward/logits");
    cr_assert_gt(error->sequence, 0);
    cr_assert(strstr(error->message, "9"), "the index is not named: %s", error->message);
    client_expect(x, (float[]){0, 1, 2, 3}, 4);
}

Test(job, scope_releases_what_was_made_in_it) {
    td_scope_begin(NULL);
    td_tensor *x = client_ramp(client.device, 3, 1);
    td_tensor *kept = td_keep(td_add(x, x));
    td_scope_end();
    client_expect(kept, (float[]){2, 4, 6}, 3);
}

Test(job, shape_error_is_told_at_the_call) {
    td_tensor *a = td_full(client.device, TD_F32, TD_SHAPE(2, 3), 1),
              *b = td_full(client.device, TD_F32, TD_SHAPE(4), 1);
    cr_assert_null(td_add(a, b));
    cr_assert_eq(td_last_error()->code, TD_E_SHAPE);
    cr_assert(strstr(td_last_error()->message, "(2, 3)") && strstr(td_last_error()->message, "(4,)"), "%s",
              td_last_error()->message);
    cr_assert_null(td_exp(td_add(a, b)), "NULL is passed on");
}

struct ended {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int count, status;
};

static void on_ended(void *user, int status) {
    struct ended *ended = user;
    pthread_mutex_lock(&ended->lock);
    ended->count++;
    ended->status = status;
    pthread_cond_signal(&ended->changed);
    pthread_mutex_unlock(&ended->lock);
}

static void on_done(void *user) {
    on_ended(user, 0);
}

static void ended_wait(struct ended *ended) {
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 30;
    pthread_mutex_lock(&ended->lock);
    while (!ended->count && !pthread_cond_timedwait(&ended->changed, &ended->lock, &limit))
        ;
    pthread_mutex_unlock(&ended->lock);
    cr_assert_eq(ended->count, 1, "the callback was called %d times", ended->count);
}

static struct ended ended = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, -1};

Test(job, asynchronous_fetch_calls_back) {
    float got[3] = {0};
    td_tensor *x = client_ramp(client.device, 3, 5);
    cr_assert(!td_fetch_async(td_add(x, x), got, sizeof got, on_ended, &ended), "%s", td_last_error()->message);
    ended_wait(&ended);
    cr_assert_eq(ended.status, TD_OK);
    cr_assert_arr_eq(got, ((float[]){10, 12, 14}), sizeof got);
}

Test(job, asynchronous_fetch_of_a_poisoned_tensor_tells_the_cause) {
    float got[2];
    td_tensor *bad = td_take(client_ramp(client.device, 3, 5), td_full(client.device, TD_I32, TD_SHAPE(2), -1), 0);
    cr_assert(!td_fetch_async(bad, got, sizeof got, on_ended, &ended), "%s", td_last_error()->message);
    ended_wait(&ended);
    cr_assert_eq(ended.status, TD_E_OUT_OF_RANGE);
}

Test(job, fetch_descriptor_becomes_readable) {
    float got[3] = {0};
    uint64_t value = 0;
    int fd = -1;
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_fetch_fd(td_multiply(x, x), got, sizeof got, &fd), "%s", td_last_error()->message);
    cr_assert(deadline_poll(fd, POLLIN, deadline_in(20000)));
    cr_assert_eq(read(fd, &value, sizeof value), sizeof value);
    close(fd);
    cr_assert_eq(value, 1);
    cr_assert_arr_eq(got, ((float[]){1, 4, 9}), sizeof got);
}

Test(job, test_tells_without_blocking) {
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(256, 256), 1);
    td_tensor *y = td_matmul(x, x);
    int64_t deadline = deadline_in(20000);
    while (!td_test(y))
        cr_assert(deadline_pause(deadline), "td_test never became 1");
    cr_assert(!td_wait(y));
}

Test(job, wait_reports_a_failure) {
    td_tensor *bad = td_take(client_ramp(client.device, 3, 5), td_full(client.device, TD_I32, TD_SHAPE(2), 3), 0);
    cr_assert_eq(td_wait(bad), TD_E_OUT_OF_RANGE);
    cr_assert(!td_sync(client.device), "a poisoned tensor is no failure of the device: %s", td_last_error()->message);
}

Test(job, tensors_cross_streams) {
    td_stream *streams[3];
    for (int i = 0; i < 3; i++)
        cr_assert(!td_stream_open(client.device, i, &streams[i]), "%s", td_last_error()->message);
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(1000), 1);
    for (int i = 0; i < 300; i++) {
        cr_assert(!td_stream_set(client.device, streams[i % 3]));
        td_tensor *next = td_add(x, x);
        td_tensor *half = td_multiply(next, td_full(client.device, TD_F32, TD_SCALAR, 0.5));
        td_release(x);
        td_release(next);
        x = half;
    }
    cr_assert(!td_stream_set(client.device, NULL));
    float got[1000];
    cr_assert(!td_fetch(x, got, sizeof got), "%s", td_last_error()->message);
    cr_assert_eq(got[0], 1);
    cr_assert_eq(got[999], 1);
    for (int i = 0; i < 3; i++)
        td_stream_close(streams[i]);
    client_expect(td_add(td_slice(x, 0, 0, 2, 1), td_slice(x, 0, 1, 3, 1)), (float[]){2, 2}, 2);
}

Test(job, borrowed_upload_gives_its_memory_back_once) {
    size_t n = 4 << 20;
    float *data = malloc(n * sizeof *data), *got = malloc(n * sizeof *got);
    for (size_t i = 0; i < n; i++)
        data[i] = (float)(i % 1000);
    td_tensor *x = td_upload_borrow(client.device, TD_F32, TD_SHAPE((int64_t)n), data, on_done, &ended);
    cr_assert_not_null(x, "%s", td_last_error()->message);
    ended_wait(&ended);
    memset(data, 0, n * sizeof *data);
    cr_assert(!td_fetch(x, got, n * sizeof *got), "%s", td_last_error()->message);
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(got[i], (float)(i % 1000), "element %zu", i);
    free(data);
    free(got);
}

struct worker {
    pthread_t thread;
    float seed;
    int failures;
};

static void *worker_run(void *argument) {
    struct worker *worker = argument;
    float start[64], got[64];
    for (int i = 0; i < 64; i++)
        start[i] = worker->seed;
    for (int round = 0; round < 50; round++) {
        td_scope_begin("thread");
        td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(64), start);
        td_tensor *sum = x;
        for (int i = 0; i < 40; i++)
            sum = td_add(sum, x);
        if (td_fetch(sum, got, sizeof got) || got[0] != 41 * worker->seed || got[63] != 41 * worker->seed)
            worker->failures++;
        td_scope_end();
    }
    return NULL;
}

Test(job, threads_share_one_device) {
    struct worker workers[4] = {{.seed = 1}, {.seed = 2}, {.seed = 3}, {.seed = 4}};
    for (int i = 0; i < 4; i++)
        cr_assert(!pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]));
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        cr_assert_eq(workers[i].failures, 0, "thread %d", i);
    }
}

/* A child's job: a matrix product of its own number, many times. */
static int child_job(void *argument) {
    float value = (float)*(const int *)argument, got[32 * 32];
    td_connection *connection;
    td_device *device;
    if (td_connect(url, NULL, &connection) || td_device_open(connection, NULL, &device))
        return 2;
    for (int round = 0; round < 30; round++) {
        td_scope_begin(NULL);
        td_tensor *x = td_full(device, TD_F32, TD_SHAPE(32, 32), value);
        td_tensor *y = td_add(td_matmul(x, x), x);
        if (td_fetch(y, got, sizeof got))
            return 3;
        td_scope_end();
        for (int i = 0; i < 32 * 32; i++)
            if (got[i] != 32 * value * value + value)
                return 4;
    }
    td_close(connection);
    return 0;
}

/* No client of its own: a lock that its thread held would stay held in the children. */
TestSuite(job_processes, .init = start_daemon, .fini = stop_daemon, .timeout = 120);

Test(job_processes, sixteen_at_once_get_their_own_results) {
    pid_t pids[16];
    int numbers[16];
    for (int i = 0; i < 16; i++) {
        numbers[i] = i + 1;
        pids[i] = client_fork(child_job, &numbers[i]);
    }
    for (int i = 0; i < 16; i++) {
        int code = client_join(pids[i], 60000);
        cr_assert_eq(code, 0, "client %d ended with %d", i, code);
    }
}
