/* Several devices in one daemon, and tensors that go from one to the other. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"

static struct daemon tensord;
static struct client client;
static td_device *other;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1",
                                                    .flags = (const char *const[]){"--transfer-timeout", "3s", NULL}});
    client_open(&client, tensord.url, "cpu:0");
    cr_assert(!td_device_open(client.connection, "cpu:1", &other), "%s", td_last_error()->message);
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(devices, .init = start, .fini = stop, .timeout = 120);

Test(devices, both_are_listed) {
    td_device_info infos[4];
    size_t count = 0;
    cr_assert(!td_devices(client.connection, infos, 4, &count), "%s", td_last_error()->message);
    cr_assert_eq(count, 2);
    for (size_t i = 0; i < 2; i++) {
        cr_assert_str_eq(infos[i].name, i ? "cpu:1" : "cpu:0");
        cr_assert_str_eq(infos[i].kind, "cpu");
        cr_assert_str_eq(infos[i].state, "ready");
        cr_assert_gt(infos[i].memory_total, 1 << 20);
        cr_assert_geq(infos[i].processors, 1);
    }
    cr_assert(!td_devices(client.connection, infos, 1, &count), "a short array is no error");
    cr_assert_eq(count, 2);
}

Test(devices, default_is_the_first) {
    td_device *device;
    cr_assert(!td_device_open(client.connection, NULL, &device), "%s", td_last_error()->message);
    cr_assert_str_eq(td_device_name(device), "cpu:0");
}

Test(devices, unknown_name_lists_the_valid_ones) {
    td_device *device = NULL;
    cr_assert_eq(td_device_open(client.connection, "cuda:7", &device), TD_E_NO_DEVICE);
    const char *message = td_last_error()->message;
    cr_assert(strstr(message, "cuda:7") && strstr(message, "cpu:0") && strstr(message, "cpu:1"), "%s", message);
    cr_assert_null(device);
}

Test(devices, mixing_them_names_both) {
    td_tensor *a = client_ramp(client.device, 2, 0), *b = client_ramp(other, 2, 0);
    cr_assert_null(td_add(a, b));
    cr_assert_eq(td_last_error()->code, TD_E_DEVICE_MISMATCH);
    cr_assert(strstr(td_last_error()->message, "cpu:0") && strstr(td_last_error()->message, "cpu:1"), "%s",
              td_last_error()->message);
}

Test(devices, work_side_by_side) {
    td_tensor *x[2] = {td_full(client.device, TD_F32, TD_SHAPE(128, 128), 1),
                       td_full(other, TD_F32, TD_SHAPE(128, 128), 2)};
    td_tensor *sums[2];
    for (int i = 0; i < 2; i++)
        sums[i] = td_sum(td_matmul(x[i], x[i]), TD_ALL_AXES, 0);
    client_expect(sums[0], (float[]){128 * 128 * 128}, 1);
    client_expect(sums[1], (float[]){4 * 128 * 128 * 128}, 1);
    cr_assert(!td_sync(client.device) && !td_sync(other));
}

Test(devices, copy_goes_both_ways) {
    td_tensor *x = client_ramp(client.device, 5, 1);
    td_tensor *there = td_copy_to(x, other);
    cr_assert_not_null(there, "%s", td_last_error()->message);
    cr_assert_eq(td_tensor_device(there), other);
    td_tensor *doubled = td_add(there, there);
    td_tensor *back = td_copy_to(doubled, client.device);
    client_expect(td_add(back, x), (float[]){3, 6, 9, 12, 15}, 5);
    client_expect(doubled, (float[]){2, 4, 6, 8, 10}, 5);
}

Test(devices, copy_on_the_same_device_is_a_copy) {
    client_expect(td_copy_to(client_ramp(client.device, 3, 1), client.device), (float[]){1, 2, 3}, 3);
}

Test(devices, copy_outlives_the_release_of_its_source) {
    td_tensor *x = client_ramp(client.device, 3, 1);
    td_tensor *there = td_copy_to(x, other);
    td_release(x);
    client_expect(there, (float[]){1, 2, 3}, 3);
}

Test(devices, copy_of_64_MiB) {
    size_t bytes = 64 << 20;
    uint8_t *sent = malloc(bytes), *got = calloc(bytes, 1);
    client_noise(sent, bytes, 3);
    td_tensor *x = td_upload(client.device, TD_U8, TD_SHAPE((int64_t)bytes), sent);
    td_tensor *there = td_copy_to(x, other);
    cr_assert(!td_fetch(there, got, bytes), "%s", td_last_error()->message);
    cr_assert(!memcmp(sent, got, bytes));
    memset(got, 0, bytes);
    cr_assert(!td_fetch(td_copy_to(there, client.device), got, bytes), "%s", td_last_error()->message);
    cr_assert(!memcmp(sent, got, bytes));
    free(sent);
    free(got);
}

Test(devices, many_copies_at_once_do_not_mix) {
    td_tensor *there[24];
    for (int i = 0; i < 24; i++)
        there[i] = td_copy_to(client_ramp(client.device, 2, (float)i), other);
    for (int i = 0; i < 24; i++)
        client_expect(there[i], (float[]){(float)i, (float)i + 1}, 2);
}

Test(devices, copy_of_a_view_is_contiguous) {
    td_tensor *x = td_reshape(client_ramp(client.device, 6, 0), TD_SHAPE(2, 3));
    client_expect(td_copy_to(td_transpose(x), other), (float[]){0, 3, 1, 4, 2, 5}, 6);
    client_expect(td_copy_to(td_slice(x, 1, TD_NONE, TD_NONE, -2), other), (float[]){2, 0, 5, 3}, 4);
}

Test(devices, copy_of_nothing) {
    td_tensor *none = td_full(client.device, TD_F32, TD_SHAPE(0, 3), 1);
    td_tensor *there = td_copy_to(none, other);
    cr_assert_not_null(there, "%s", td_last_error()->message);
    cr_assert_eq(td_tensor_shape(there)[1], 3);
    cr_assert(!td_fetch(there, NULL, 0), "%s", td_last_error()->message);
}

Test(devices, copy_of_a_poisoned_tensor_brings_the_cause) {
    td_tensor *x = client_ramp(client.device, 3, 0), *index = td_full(client.device, TD_I64, TD_SHAPE(1), 77);
    td_label("culprit");
    td_tensor *bad = td_take(x, index, 0);
    td_tensor *there = td_exp(td_copy_to(bad, other));
    const td_error *error = client_expect_failure(there, TD_E_OUT_OF_RANGE);
    cr_assert(strstr(error->message, "77"), "%s", error->message);
    cr_assert_str_eq(error->operation, "take");
    cr_assert_str_eq(error->label, "culprit");
}

Test(devices, sessions_after_a_copy_are_sound) {
    client_expect(td_copy_to(client_ramp(client.device, 3, 1), other), (float[]){1, 2, 3}, 3);
    client_close(&client);
    /* Whatever the copy used in the engine is now used by others. */
    client_open(&client, tensord.url, "cpu:1");
    for (int i = 0; i < 8; i++) {
        td_stream *stream;
        cr_assert(!td_stream_open(client.device, 0, &stream) && !td_stream_set(client.device, stream));
        td_tensor *x = client_ramp(client.device, 2, (float)i);
        client_expect(td_add(x, x), (float[]){(float)(2 * i), (float)(2 * i + 2)}, 2);
    }
    Tensord__Status *status = status_get(tensord.url);
    cr_assert_eq(status_device(status, "cpu:1")->restarts, 0);
    status_free(status);
}

Test(devices, source_lost_before_the_copy_fails_the_destination) {
    td_tensor *x = client_ramp(client.device, 1 << 20, 0);
    cr_assert(!td_wait(x));
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    td_tensor *there = td_copy_to(x, other);
    cr_assert_not_null(there, "%s", td_last_error()->message);
    td_flush(client.device);
    td_flush(other);
    kill(worker, SIGKILL);
    /* The destination has not heard of the source yet: it may learn of its end, or give up waiting. */
    uint8_t *data = malloc(td_tensor_bytes(there));
    int code = td_fetch(there, data, td_tensor_bytes(there));
    cr_assert(code == TD_E_DEVICE_LOST || code == TD_E_TIMED_OUT, "%d: %s", code, td_last_error()->message);
    free(data);
    client_expect(client_ramp(other, 2, 0), (float[]){0, 1}, 2);
}

Test(devices, source_lost_during_the_copy_fails_the_destination) {
    td_tensor *x = td_full(client.device, TD_U8, TD_SHAPE(256 << 20), 1);
    cr_assert(!td_wait(x), "%s", td_last_error()->message);
    int source = status_worker_pid(tensord.url, "cpu:0"), destination = status_worker_pid(tensord.url, "cpu:1");
    /* The destination takes nothing, so the copy cannot be complete when its source dies. */
    kill(destination, SIGSTOP);
    td_tensor *there = td_copy_to(x, other);
    cr_assert_not_null(there, "%s", td_last_error()->message);
    td_flush(other);
    cr_assert(!td_sync(client.device), "%s", td_last_error()->message);
    kill(source, SIGKILL);
    kill(destination, SIGCONT);
    client_expect_failure(there, TD_E_DEVICE_LOST);
    client_expect(client_ramp(other, 2, 0), (float[]){0, 1}, 2);
}
