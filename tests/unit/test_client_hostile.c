/* Daemons that are broken or mean harm: the client says so, and neither crashes, hangs, nor writes where it should not.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/tensord.h"
#include "proto/frame.h"
#include "tests/unit/fake_daemon.h"

enum { BYTES = 64, GUARD = 256 };

static struct fake_daemon fake;

#define CHUNK_OF(all, ...) {FRAME_FETCH_CHUNK, .total = (all), __VA_ARGS__}
#define CHUNK(...) CHUNK_OF(BYTES, __VA_ARGS__)
#define WHOLE CHUNK(.payload = BYTES)

/* A fetch of 64 bytes is answered so; then the client asks for a Sync, whose own answer is right. */
static struct row {
    const char *name;
    struct fake_frame frames[FAKE_FRAMES_MAX];
    int fetch, sync; /* what the calls return */
} rows[] = {
    {"a right answer", {WHOLE}, 0, 0},
    {"a right answer in parts", {CHUNK(.payload = 1), CHUNK(.offset = 1, .payload = 63)}, 0, 0},
    {"a right failure", {CHUNK_OF(0, .error = TD_E_SHAPE)}, TD_E_SHAPE, 0},
    {"another number", {CHUNK(.sequence = 1, .payload = BYTES)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a number below 0", {CHUNK(.sequence = -1000, .payload = BYTES)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"Done for a fetch", {{FRAME_DONE}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"Done that nobody asked for", {{FRAME_DONE, .sequence = 9}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"Done for a question of the future", {WHOLE, {FRAME_DONE, .sequence = 5}}, 0, TD_E_PROTOCOL},
    {"Done with a payload", {{FRAME_DONE, .payload = BYTES}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a total too small", {CHUNK_OF(32, .payload = 32)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a total too large", {CHUNK_OF(128, .payload = BYTES)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a total of 2^64 - 1", {CHUNK_OF(UINT64_MAX, .payload = BYTES)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a total that changes",
     {CHUNK(.payload = 32), CHUNK_OF(128, .offset = 32, .payload = 96)},
     TD_E_PROTOCOL,
     TD_E_PROTOCOL},
    {"a beginning left out", {CHUNK(.offset = 32, .payload = 32)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"an offset of 2^64 - 32", {CHUNK(.offset = -32ull, .payload = BYTES)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"the same part twice", {CHUNK(.payload = 32), CHUNK(.payload = 32)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"parts that overlap", {CHUNK(.payload = 32), CHUNK(.offset = 16, .payload = 48)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a gap", {CHUNK(.payload = 16), CHUNK(.offset = 32, .payload = 32)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"more than the tensor has", {CHUNK(.payload = 128)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"more than is left", {CHUNK(.payload = 32), CHUNK(.offset = 32, .payload = 64)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"an empty part", {CHUNK()}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a part after the end", {WHOLE, WHOLE}, 0, TD_E_PROTOCOL},
    {"a part after a failure", {CHUNK(.error = TD_E_SHAPE), WHOLE}, TD_E_SHAPE, TD_E_PROTOCOL},
    {"a failure half-way", {CHUNK(.payload = 32), CHUNK(.error = TD_E_SHAPE)}, TD_E_SHAPE, 0},
    {"a failure with a payload", {CHUNK(.error = TD_E_SHAPE, .payload = BYTES)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a failure without a code", {CHUNK(.error = FAKE_CODE_0)}, TD_E_INTERNAL, 0},
    {"a failure with an unknown code", {CHUNK(.error = 9999)}, TD_E_INTERNAL, 0},
    {"Error", {{FRAME_ERROR, .error = TD_E_LIMIT}}, TD_E_LIMIT, TD_E_LIMIT},
    {"Error with a payload", {{FRAME_ERROR, .error = TD_E_LIMIT, .payload = 8}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"Welcome", {{FRAME_WELCOME}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a request", {{FRAME_BATCH}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a frame of no known type", {{999}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"another magic", {{FRAME_FETCH_CHUNK, .magic = 0x12345678}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a message that is none", {CHUNK(.garbage = true, .payload = BYTES)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a Done that is none", {{FRAME_DONE, .garbage = true}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"an Error that is none", {{FRAME_ERROR, .garbage = true}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a message of 4 GiB", {{FRAME_DONE, .more_message = 0xfffffff0}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a payload of 1 TiB", {CHUNK(.more_payload = 1ull << 40)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a payload of 2^64 - 1", {CHUNK(.more_payload = UINT64_MAX)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
};

struct array {
    uint8_t before[GUARD], data[BYTES], after[GUARD];
};

static void array_init(struct array *array) {
    memset(array, 0xa5, sizeof *array);
}

static bool array_guarded(const struct array *array) {
    for (int i = 0; i < GUARD; i++)
        if (array->before[i] != 0xa5 || array->after[i] != 0xa5)
            return false;
    return true;
}

static void one_answer(td_connection *connection, const struct row *row) {
    td_device *device;
    struct array array;
    array_init(&array);
    cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(16), 1);
    fake.script = row->frames;
    int fetch = td_fetch(x, array.data, BYTES);
    cr_expect_eq(fetch, row->fetch, "%s: the fetch gave %d (%s)", row->name, fetch, td_last_error()->message);
    int sync = td_sync(device);
    cr_expect_eq(sync, row->sync, "%s: the sync gave %d (%s)", row->name, sync, td_last_error()->message);
    cr_expect(array_guarded(&array), "%s", row->name);
    cr_expect_eq(!td_exp(x), sync != 0, "%s", row->name);
    cr_expect_eq(td_test(x), 1);
    td_device_close(device);
}

Test(client_hostile, wrong_answers_end_the_session_and_reach_nothing_else, .timeout = 60) {
    td_connection *connection;
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        one_answer(connection, &rows[i]);
    td_close(connection);
    fake_daemon_stop(&fake);
}

static void count(void *user, int status) {
    (void)status;
    atomic_fetch_add((atomic_int *)user, 1);
}

/* The same answers to a fetch that nobody waits for, so that the I/O thread reads them. */
Test(client_hostile, the_same_to_an_asynchronous_fetch, .timeout = 60) {
    td_connection *connection;
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_device *device;
        struct array array;
        atomic_int calls = 0;
        array_init(&array);
        cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
        td_tensor *x = td_full(device, TD_F32, TD_SHAPE(16), 1);
        fake.script = rows[i].frames;
        cr_assert_eq(td_fetch_async(x, array.data, BYTES, count, &calls), 0);
        while (!calls)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        td_device_close(device);
        cr_expect_eq(calls, 1, "%s", rows[i].name);
        cr_expect(array_guarded(&array), "%s", rows[i].name);
    }
    td_close(connection);
    fake_daemon_stop(&fake);
}

/* The number of calls that succeeded; the daemon closes every connection after so many bytes of replies. */
static int job(void) {
    td_connection *connection;
    td_device *device;
    size_t devices;
    struct array array;
    array_init(&array);
    if (td_connect(fake.url, NULL, &connection))
        return 0;
    int done = 1 + !td_devices(connection, NULL, 0, &devices);
    if (!td_device_open(connection, NULL, &device)) {
        td_tensor *x = td_full(device, TD_F32, TD_SHAPE(16), 1);
        done += 1 + !td_fetch(x, array.data, BYTES) + !td_wait(x);
        cr_expect(array_guarded(&array));
    }
    td_close(connection);
    return done;
}

Test(client_hostile, the_end_at_every_byte_of_its_replies, .timeout = 120) {
    enum { ALL = 5 };
    long cut = 0;
    int done = 0;
    fake_daemon_start(&fake);
    for (; done < ALL && cut < 5000; cut++) {
        fake.budget = cut;
        int now = job();
        cr_expect_geq(now, done, "after %ld bytes", cut);
        done = now;
    }
    cr_expect_gt(cut, 200);
    cr_expect_eq(done, ALL);
    fake_daemon_stop(&fake);
}

Test(client_hostile, a_daemon_that_never_answers_costs_the_timeout, .timeout = 20) {
    const td_options options = {.timeout_ms = 100};
    td_connection *connection;
    td_device *device;
    static uint8_t large[32 << 20];
    fake_daemon_start(&fake);
    fake.silent = true;
    cr_expect_eq(td_connect(fake.url, &options, &connection), TD_E_TIMED_OUT);
    fake.silent = false;
    cr_assert_eq(td_connect(fake.url, &options, &connection), 0);
    cr_assert_eq(td_device_open(connection, NULL, &device), 0);
    fake.silent = true;
    td_device *other;
    cr_expect_eq(td_device_open(connection, NULL, &other), TD_E_TIMED_OUT);
    /* Closing gives up what the daemon does not take. */
    fake.hold = true;
    cr_assert_not_null(td_upload_borrow(device, TD_U8, TD_SHAPE(sizeof large), large, NULL, NULL));
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    td_close(connection);
    clock_gettime(CLOCK_MONOTONIC, &end);
    cr_expect_lt(end.tv_sec - begin.tv_sec, 5);
    fake.hold = false;
    fake_daemon_stop(&fake);
}
