/* Uploads, fetches, and what becomes of them when the connection ends. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tensord.h"
#include "tests/stand_ins/fake_daemon.h"

enum { LARGE = 12 << 20, PART = 1 << 20 };

static struct fake_daemon fake;
static td_connection *connection;
static td_device *device;
static sem_t called;
static int called_status, called_code;

static void setup(void) {
    fake_daemon_start(&fake);
    sem_init(&called, 0, 0);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    cr_assert_eq(td_device_open(connection, NULL, &device), 0);
}

static void teardown(void) {
    fake.hold = false;
    td_close(connection);
    fake_daemon_stop(&fake);
}

TestSuite(client_transfer, .init = setup, .fini = teardown, .timeout = 60);

static void given_back(void *user) {
    (void)user;
    sem_post(&called);
}

static void fetched(void *user, int status) {
    (void)user;
    called_status = status;
    called_code = td_last_error()->code;
    sem_post(&called);
}

static uint8_t *pattern(void) {
    uint8_t *data = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        data[i] = (uint8_t)(i * 7 + i / PART);
    return data;
}

Test(client_transfer, small_and_large_uploads_come_back_whole) {
    uint8_t *data = pattern(), *back = malloc(LARGE);
    td_tensor *large = td_upload(device, TD_U8, TD_SHAPE(12, PART), data);
    td_tensor *small = td_upload(device, TD_U8, TD_SHAPE(100), data);
    td_tensor *empty = td_upload(device, TD_F32, TD_SHAPE(0, 3), NULL);
    td_tensor *scalar = td_upload(device, TD_F64, TD_SCALAR, data);
    cr_assert_eq(td_fetch(large, back, LARGE), 0);
    cr_expect_eq(memcmp(data, back, LARGE), 0);
    cr_assert_eq(td_fetch(small, back, 100), 0);
    cr_expect_eq(memcmp(data, back, 100), 0);
    cr_expect_eq(td_fetch(empty, NULL, 0), 0);
    cr_expect_eq(td_fetch(scalar, back, 8), 0);
    cr_expect_eq(td_fetch(scalar, back, 4), TD_E_INVALID_ARGUMENT);
    free(data);
    free(back);
}

Test(client_transfer, what_uses_an_upload_waits_for_it_and_the_rest_overtakes) {
    uint8_t *data = pattern(), out[4];
    fake.hold = true;
    td_tensor *a = td_full(device, TD_U8, TD_SHAPE(4), 1);
    td_tensor *large = td_upload_borrow(device, TD_U8, TD_SHAPE(12, PART), data, given_back, NULL);
    td_tensor *free_to_go = td_exp(a);
    td_tensor *gated = td_max(large, TD_ALL_AXES, 0);
    td_tensor *behind = td_log(a);
    fake.hold = false;
    cr_assert_eq(td_fetch(gated, out, 1), 0);
    sem_wait(&called);
    char *log = fake_daemon_log(&fake);
    const char *overtaken = strstr(log, "exp(1)=3"), *first = strstr(log, "upload 2 1048576/12582912"),
               *last = strstr(log, "chunk 2 at 11534336"), *use = strstr(log, "max(2)=4"),
               *after = strstr(log, "log(1)=5");
    cr_assert(overtaken && first && last && use && after, "%s", log);
    cr_expect(first < overtaken && overtaken < last && last < use && use < after, "%s", log);
    free(log);
    (void)free_to_go;
    (void)behind;
    td_release(large);
    cr_expect_eq(td_sync(device), 0);
    free(data);
}

Test(client_transfer, a_fetch_and_a_release_of_an_upload_wait_for_it_too) {
    uint8_t *data = pattern(), *back = malloc(LARGE);
    td_tensor *first = td_upload_borrow(device, TD_U8, TD_SHAPE(12, PART), data, given_back, NULL);
    td_tensor *second = td_upload_borrow(device, TD_U8, TD_SHAPE(12, PART), data, given_back, NULL);
    td_release(second);
    cr_assert_eq(td_fetch(first, back, LARGE), 0);
    cr_expect_eq(memcmp(data, back, LARGE), 0);
    cr_assert_eq(td_sync(device), 0);
    char *log = fake_daemon_log(&fake);
    const char *last = strstr(log, "chunk 2 at 11534336"), *freed = strstr(log, "free(2)");
    cr_expect(last && freed && last < freed, "%s", log);
    free(log);
    sem_wait(&called);
    sem_wait(&called);
    free(data);
    free(back);
}

Test(client_transfer, a_poisoned_tensor_reports_its_root_cause) {
    float out[4];
    td_label("poison");
    td_tensor *bad = td_full(device, TD_F32, TD_SHAPE(4), 0), *good = td_full(device, TD_F32, TD_SHAPE(4), 0);
    cr_expect_eq(td_fetch(bad, out, sizeof out), TD_E_OUT_OF_RANGE);
    const td_error *error = td_last_error();
    cr_expect_str_eq(error->message, "take poison: index 9 at 0, the extent is 3");
    cr_expect_str_eq(error->operation, "take");
    cr_expect_str_eq(error->label, "poison");
    cr_expect_eq(error->sequence, 7);
    cr_expect_eq(td_wait(bad), TD_E_OUT_OF_RANGE);
    cr_expect_eq(td_wait(good), 0);
}

Test(client_transfer, fetches_end_in_a_callback_or_a_descriptor) {
    float out[4];
    int fd;
    uint64_t value = 0;
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(4), 0);
    cr_assert_eq(td_fetch_async(x, out, sizeof out, fetched, NULL), 0);
    sem_wait(&called);
    cr_expect_eq(called_status, 0);
    td_label("poison");
    td_tensor *bad = td_exp(x);
    cr_assert_eq(td_fetch_async(bad, out, sizeof out, fetched, NULL), 0);
    sem_wait(&called);
    cr_expect_eq(called_status, TD_E_OUT_OF_RANGE);
    cr_expect_eq(called_code, TD_E_OUT_OF_RANGE);
    cr_assert_eq(td_fetch_fd(x, out, sizeof out, &fd), 0);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    cr_assert_eq(poll(&entry, 1, 5000), 1);
    cr_assert_eq((size_t)read(fd, &value, sizeof value), sizeof value);
    cr_expect_eq(value, 1);
    close(fd);
}

/* However it is fetched: the array has another size than the tensor, and nothing is asked of the daemon. */
Test(client_transfer, array_of_another_size_is_refused_with_both_sizes) {
    const td_interrupt interrupt = {0};
    float out[7];
    int fd;
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(6), 0);
    for (int way = 0; way < 4; way++) {
        int code = way == 0   ? td_fetch(x, out, 20)
                   : way == 1 ? td_fetch_async(x, out, 20, fetched, NULL)
                   : way == 2 ? td_fetch_fd(x, out, 20, &fd)
                              : td_fetch_interruptible(x, out, 20, &interrupt);
        cr_expect_eq(code, TD_E_INVALID_ARGUMENT, "way %d", way);
        cr_expect_str_eq(td_last_error()->message, "fetch: the array has 20 bytes, the tensor 24");
    }
    cr_expect_eq(td_fetch(x, out, sizeof out), TD_E_INVALID_ARGUMENT);
    cr_expect_str_eq(td_last_error()->message, "fetch: the array has 28 bytes, the tensor 24");
    cr_expect_eq(td_fetch(x, NULL, 24), TD_E_INVALID_ARGUMENT);
    cr_expect_str_eq(td_last_error()->message, "fetch: the array is NULL");
    cr_assert_eq(td_sync(device), 0);
    char *log = fake_daemon_log(&fake);
    cr_expect_null(strstr(log, "fetch"), "%s", log);
    free(log);
}

Test(client_transfer, test_asks_once_and_then_tells) {
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(4), 0), *y = td_exp(x);
    int ready = 0;
    cr_expect_eq(td_test(x), 0);
    td_test(y);
    td_release(y); /* while its question is under way */
    for (int i = 0; i < 2000 && !ready; i++) {
        ready = td_test(x);
        usleep(1000);
    }
    cr_expect_eq(ready, 1);
    char *log = fake_daemon_log(&fake);
    const char *first = strstr(log, "wait 1\n");
    cr_expect(first && !strstr(first + 1, "wait 1\n"), "%s", log);
    free(log);
}

Test(client_transfer, an_error_frame_ends_the_device_with_its_words) {
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(4), 0);
    fake.refuse = true;
    cr_expect_eq(td_wait(x), TD_E_LIMIT);
    cr_expect_str_eq(td_last_error()->message, "the session has too many tensors");
    cr_expect_null(td_exp(x));
    cr_expect_eq(td_last_error()->code, TD_E_LIMIT);
    cr_expect_eq(td_test(x), 1);
    td_release(x);
}

struct waiter {
    pthread_t thread;
    td_tensor *tensor;
    int status;
};

static void *wait_for_it(void *argument) {
    struct waiter *waiter = argument;
    float out[4];
    waiter->status = td_fetch(waiter->tensor, out, sizeof out);
    return NULL;
}

Test(client_transfer, the_end_of_the_connection_fails_every_pending_fetch) {
    enum { THREADS = 6 };
    struct waiter waiters[THREADS];
    float out[4];
    uint8_t *data = pattern();
    fake.mute = true;
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(4), 0);
    cr_assert_eq(td_fetch_async(x, out, sizeof out, fetched, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        waiters[i].tensor = x;
        pthread_create(&waiters[i].thread, NULL, wait_for_it, &waiters[i]);
    }
    usleep(50000);
    fake.hold = true;
    cr_assert_not_null(td_upload_borrow(device, TD_U8, TD_SHAPE(12, PART), data, given_back, NULL));
    fake.hang_up = true;
    fake.hold = false;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(waiters[i].thread, NULL);
        cr_expect_eq(waiters[i].status, TD_E_DEVICE_LOST);
    }
    sem_wait(&called); /* the fetch and the upload, in either order */
    sem_wait(&called);
    cr_expect_eq(called_status, TD_E_DEVICE_LOST);
    cr_expect_eq(td_sync(device), TD_E_DEVICE_LOST);
    cr_expect_not_null(strstr(td_last_error()->message, "connection to cpu:0 ended"));
    cr_expect_null(td_upload(device, TD_U8, TD_SHAPE(12, PART), data));
    fake.hang_up = fake.mute = false;
    td_device *again;
    cr_assert_eq(td_device_open(connection, "cpu:0", &again), 0);
    cr_expect_eq(td_sync(again), 0);
    free(data);
}

Test(client_transfer, closing_a_device_cancels_what_is_pending) {
    float out[4];
    fake.mute = true;
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(4), 0);
    cr_assert_eq(td_fetch_async(x, out, sizeof out, fetched, NULL), 0);
    td_device_close(device);
    sem_wait(&called);
    cr_expect_eq(called_status, TD_E_CANCELLED);
}

Test(client_transfer, a_copy_tells_both_devices_the_same_ticket) {
    td_device *other;
    cr_assert_eq(td_device_open(connection, "cpu:1", &other), 0);
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(4), 0), *y = td_copy_to(x, other);
    cr_assert_not_null(y);
    cr_expect_eq(td_tensor_device(y), other);
    cr_assert(fake_daemon_saw(&fake, "copy_out 1 to cpu:1 ticket "));
    cr_assert(fake_daemon_saw(&fake, "copy_in 1 ticket "));
    char *log = fake_daemon_log(&fake);
    const char *out = strstr(log, "copy_out 1 to cpu:1 ticket "), *in = strstr(log, "copy_in 1 ticket ");
    cr_expect_eq(strncmp(out + strlen("copy_out 1 to cpu:1 ticket "), in + strlen("copy_in 1 ticket "), 8), 0);
    free(log);
    cr_expect_eq(td_tensor_device(td_copy_to(x, device)), device);
}

Test(client_transfer, unknown_devices_and_absent_daemons_are_named) {
    td_device *none;
    td_connection *nowhere;
    cr_expect_eq(td_device_open(connection, "gpu:7", &none), TD_E_NO_DEVICE);
    cr_expect_not_null(strstr(td_last_error()->message, "gpu:7"));
    cr_expect_not_null(strstr(td_last_error()->message, "cpu:0, cpu:1"));
    cr_expect_eq(td_connect("unix:/nonexistent/socket", NULL, &nowhere), TD_E_CONNECTION);
    cr_expect_not_null(strstr(td_last_error()->message, "unix:/nonexistent/socket: no such socket"));
    cr_expect_eq(td_connect("tcp://127.0.0.1:1", NULL, &nowhere), TD_E_CONNECTION);
    cr_expect_not_null(strstr(td_last_error()->message, "refused"));
    cr_expect_eq(td_connect("http://x", NULL, &nowhere), TD_E_INVALID_ARGUMENT);
    size_t count;
    td_device_info infos[1];
    cr_assert_eq(td_devices(connection, infos, 1, &count), 0);
    cr_expect_eq(count, 2);
    cr_expect_str_eq(infos[0].name, "cpu:0");
}
