/* Daemons that are broken or mean harm: the client says so, and neither crashes, hangs, nor writes where it should not.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/tensord.h"
#include "proto/wire/frame.h"
#include "tests/stand_ins/fake_daemon.h"

enum { BYTES = 64, GUARD = 256 };

static struct fake_daemon fake;

TestSuite(client_hostile, .timeout = 120);

#define CHUNK_OF(all, ...)                                                                                             \
    { FRAME_FETCH_CHUNK, .total = (all), __VA_ARGS__ }
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

Test(client_hostile, wrong_answers_end_the_session_and_reach_nothing_else) {
    td_connection *connection;
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        one_answer(connection, &rows[i]);
    td_close(connection);
    fake_daemon_stop(&fake);
}

#define COMPILED(...)                                                                                                  \
    { FRAME_KERNEL_COMPILED, __VA_ARGS__ }

/* The same for a compilation. */
static struct row compile_rows[] = {
    {"a right answer", {COMPILED()}, 0, 0},
    {"a right answer with words", {COMPILED(.payload = 100)}, 0, 0},
    {"a right failure", {COMPILED(.error = TD_E_DENIED)}, TD_E_DENIED, 0},
    {"a right failure with words",
     {COMPILED(.error = TD_E_INVALID_ARGUMENT, .payload = 3000)},
     TD_E_INVALID_ARGUMENT,
     0},
    {"a failure without a code", {COMPILED(.error = FAKE_CODE_0, .payload = 9)}, TD_E_INTERNAL, 0},
    {"another number", {COMPILED(.sequence = 1)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"two answers", {COMPILED(), COMPILED()}, 0, TD_E_PROTOCOL},
    {"two answers with words", {COMPILED(.payload = 8), COMPILED(.payload = 8)}, 0, TD_E_PROTOCOL},
    {"Done for a compilation", {{FRAME_DONE}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a chunk for a compilation", {WHOLE}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a message that is none", {COMPILED(.garbage = true)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a payload of 1 TiB", {COMPILED(.more_payload = 1ull << 40)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"Error", {{FRAME_ERROR, .error = TD_E_LIMIT}}, TD_E_LIMIT, TD_E_LIMIT},
};

static void one_compilation(td_connection *connection, const struct row *row) {
    td_device *device;
    td_kernel *kernel = NULL;
    cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
    fake.script = row->frames;
    int code = td_kernel_compile(device, "source", "f", &kernel);
    cr_expect_eq(code, row->fetch, "%s: compiling gave %d (%s)", row->name, code, td_last_error()->message);
    cr_expect_eq(kernel == NULL, code != 0, "%s", row->name);
    size_t words = code == TD_E_INVALID_ARGUMENT ? 3000 : code == TD_E_INTERNAL ? 9 : 0; /* the payload's, but zeros */
    cr_expect(!code || strlen(td_last_error()->details) <= words, "%s", row->name);
    int sync = td_sync(device);
    cr_expect_eq(sync, row->sync, "%s: the sync gave %d (%s)", row->name, sync, td_last_error()->message);
    td_kernel_release(kernel);
    td_device_close(device);
}

Test(client_hostile, wrong_answers_to_a_compilation_end_the_session) {
    td_connection *connection;
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    for (size_t i = 0; i < sizeof compile_rows / sizeof *compile_rows; i++)
        one_compilation(connection, &compile_rows[i]);
    td_close(connection);
    fake_daemon_stop(&fake);
}

static atomic_int calls, last_status;

static void count(void *user, int status) {
    (void)user;
    last_status = status;
    calls++;
}

/* The same answers to a fetch that nobody waits for, so that the I/O thread reads them. */
Test(client_hostile, the_same_to_an_asynchronous_fetch) {
    td_connection *connection;
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_device *device;
        struct array array;
        calls = 0;
        array_init(&array);
        cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
        td_tensor *x = td_full(device, TD_F32, TD_SHAPE(16), 1);
        fake.script = rows[i].frames;
        cr_assert_eq(td_fetch_async(x, array.data, BYTES, count, NULL), 0);
        while (!calls)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        td_device_close(device);
        cr_expect_eq(calls, 1, "%s", rows[i].name);
        cr_expect_eq(last_status, rows[i].fetch, "%s: %d", rows[i].name, last_status);
        cr_expect(array_guarded(&array), "%s", rows[i].name);
    }
    td_close(connection);
    fake_daemon_stop(&fake);
}

/* And to one that a descriptor waits for. */
Test(client_hostile, the_same_to_a_fetch_with_a_descriptor) {
    td_connection *connection;
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_device *device;
        struct array array;
        uint64_t value = 0;
        int fd;
        array_init(&array);
        cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
        td_tensor *x = td_full(device, TD_F32, TD_SHAPE(16), 1);
        fake.script = rows[i].frames;
        cr_assert_eq(td_fetch_fd(x, array.data, BYTES, &fd), 0);
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        cr_assert_eq(poll(&entry, 1, 10000), 1, "%s", rows[i].name);
        cr_assert_eq((size_t)read(fd, &value, sizeof value), sizeof value);
        cr_expect_eq(value, (uint64_t)rows[i].fetch + 1, "%s: %d", rows[i].name, (int)value - 1);
        cr_expect(array_guarded(&array), "%s", rows[i].name);
        close(fd);
        td_device_close(device);
    }
    td_close(connection);
    fake_daemon_stop(&fake);
}

/* A question that DONE answers is answered so; `after` is what the next one, answered rightly, gives. */
static const struct done_row {
    const char *name;
    struct fake_frame frames[FAKE_FRAMES_MAX];
    int asked, after;
} done_rows[] = {
    {"a right answer", {{FRAME_DONE}}, 0, 0},
    {"a right failure", {{FRAME_DONE, .error = TD_E_OUT_OF_MEMORY}}, TD_E_OUT_OF_MEMORY, 0},
    {"a failure without a code", {{FRAME_DONE, .error = FAKE_CODE_0}}, TD_E_INTERNAL, 0},
    {"a failure with an unknown code", {{FRAME_DONE, .error = 9999}}, TD_E_INTERNAL, 0},
    {"the answer twice", {{FRAME_DONE}, {FRAME_DONE}}, 0, TD_E_PROTOCOL},
    {"success and failure", {{FRAME_DONE}, {FRAME_DONE, .error = TD_E_SHAPE}}, 0, TD_E_PROTOCOL},
    {"another number", {{FRAME_DONE, .sequence = 1}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"an earlier number", {{FRAME_DONE, .sequence = -1}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a part of a tensor", {WHOLE}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"an empty part of a tensor", {CHUNK_OF(0)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a fetch's failure", {CHUNK_OF(0, .error = TD_E_SHAPE)}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"with a payload", {{FRAME_DONE, .payload = BYTES}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"with a payload that never comes", {{FRAME_DONE, .more_payload = 1}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a message that is none", {{FRAME_DONE, .garbage = true}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a message of 4 GiB", {{FRAME_DONE, .more_message = 0xfffffff0}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a payload of 2^64 - 1", {{FRAME_DONE, .more_payload = UINT64_MAX}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"another magic", {{FRAME_DONE, .magic = 0x12345678}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"Error", {{FRAME_ERROR, .error = TD_E_LIMIT}}, TD_E_LIMIT, TD_E_LIMIT},
    {"Error with an unknown code", {{FRAME_ERROR, .error = 9999}}, TD_E_INTERNAL, TD_E_INTERNAL},
    {"Pong", {{FRAME_PONG}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"Welcome", {{FRAME_WELCOME}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a list of devices", {{FRAME_DEVICE_LIST}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
    {"a status", {{FRAME_STATUS}}, TD_E_PROTOCOL, TD_E_PROTOCOL},
};

static int ask_wait(td_tensor *x) {
    return td_wait(x);
}

static int ask_sync(td_tensor *x) {
    return td_sync(td_tensor_device(x));
}

static void each_done(int (*ask)(td_tensor *x)) {
    td_connection *connection;
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    for (size_t i = 0; i < sizeof done_rows / sizeof *done_rows; i++) {
        const struct done_row *row = &done_rows[i];
        td_device *device;
        cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
        td_tensor *x = td_full(device, TD_F32, TD_SHAPE(16), 1);
        fake.script = row->frames;
        int code = ask(x);
        cr_expect_eq(code, row->asked, "%s: %d (%s)", row->name, code, td_last_error()->message);
        code = ask(x);
        cr_expect_eq(code, row->after, "%s: then %d (%s)", row->name, code, td_last_error()->message);
        td_device_close(device);
    }
    td_close(connection);
    fake_daemon_stop(&fake);
}

Test(client_hostile, wrong_answers_to_wait) {
    each_done(ask_wait);
}

Test(client_hostile, wrong_answers_to_sync) {
    each_done(ask_sync);
}

Test(client_hostile, wrong_answers_to_test) {
    td_connection *connection;
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    for (size_t i = 0; i < sizeof done_rows / sizeof *done_rows; i++) {
        td_device *device;
        cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
        td_tensor *x = td_full(device, TD_F32, TD_SHAPE(16), 1);
        fake.script = done_rows[i].frames;
        while (!td_test(x))
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        td_device_close(device);
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
        done += 1 + !td_fetch(x, array.data, BYTES) + !td_wait(x) + !td_sync(device);
        cr_expect(array_guarded(&array));
    }
    td_close(connection);
    return done;
}

/* The same with nobody waiting: however it ends, the callback is called once. */
static int job_in_the_background(void) {
    td_connection *connection;
    td_device *device;
    struct array array;
    int done = 0;
    array_init(&array);
    calls = 0;
    if (td_connect(fake.url, NULL, &connection))
        return 0;
    if (!td_device_open(connection, NULL, &device)) {
        td_tensor *x = td_full(device, TD_F32, TD_SHAPE(16), 1);
        bool asked = !td_fetch_async(x, array.data, BYTES, count, NULL);
        while (asked && !calls)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        td_close(connection);
        cr_expect_eq(calls, (int)asked);
        cr_expect(array_guarded(&array));
        done = asked && !last_status;
    } else {
        td_close(connection);
    }
    return 1 + done;
}

static void cut_everywhere(int (*work)(void), int all) {
    long cut = 0;
    int done = 0;
    fake_daemon_start(&fake);
    for (; done < all && cut < 5000; cut++) {
        fake.budget = cut;
        int now = work();
        cr_expect_geq(now, done, "after %ld bytes", cut);
        done = now;
    }
    cr_expect_gt(cut, 200);
    cr_expect_eq(done, all);
    fake_daemon_stop(&fake);
}

Test(client_hostile, the_end_at_every_byte_of_its_replies) {
    cut_everywhere(job, 6);
}

Test(client_hostile, the_end_at_every_byte_of_an_asynchronous_reply) {
    cut_everywhere(job_in_the_background, 2);
}

Test(client_hostile, a_daemon_that_never_answers_costs_the_timeout) {
    const td_options options = {.timeout_ms = 400};
    td_connection *connection;
    td_device *device;
    static uint8_t large[32 << 20];
    fake_daemon_start(&fake);
    fake.silent = true;
    cr_expect_eq(td_connect(fake.url, &options, &connection), TD_E_TIMED_OUT);
    fake.silent = false;
    /* Where the machine is busy, one that does answer may need more tries than one, too. */
    while (td_connect(fake.url, &options, &connection))
        cr_assert_eq(td_last_error()->code, TD_E_TIMED_OUT, "%s", td_last_error()->message);
    while (td_device_open(connection, NULL, &device))
        cr_assert_eq(td_last_error()->code, TD_E_TIMED_OUT, "%s", td_last_error()->message);
    fake.silent = true;
    td_device *other;
    cr_expect_eq(td_device_open(connection, NULL, &other), TD_E_TIMED_OUT);
    size_t n;
    cr_expect_eq(td_devices(connection, NULL, 0, &n), TD_E_TIMED_OUT);
    /* Closing gives up what the daemon does not take. */
    fake.hold = true;
    cr_assert_not_null(td_upload_borrow(device, TD_U8, TD_SHAPE(sizeof large), large, NULL, NULL));
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    td_close(connection);
    clock_gettime(CLOCK_MONOTONIC, &end);
    cr_expect_lt(end.tv_sec - begin.tv_sec, 30);
    fake.hold = false;
    fake_daemon_stop(&fake);
}
