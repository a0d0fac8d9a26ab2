/* Several threads on one connection. A plain program, so that it runs under ThreadSanitizer too. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tensord.h"
#include "tests/stand_ins/fake_daemon.h"

enum { THREADS = 6, ROUNDS = 60, LARGE = 3 << 20, OPENINGS = 12 };

static struct fake_daemon fake;
static td_connection *connection;
static td_device *device;
static td_tensor *shared;
static atomic_int callbacks, closed_calls;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, td_last_error()->message);             \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static void count(void *user) {
    (void)user;
    atomic_fetch_add(&callbacks, 1);
}

static void count_closed(void *user) {
    (void)user;
    atomic_fetch_add(&closed_calls, 1);
}

/* A callback may enqueue. */
static void fetched(void *user, int status) {
    CHECK(status == 0);
    td_release(td_exp(shared));
    free(user);
    atomic_fetch_add(&callbacks, 1);
}

static void fetch_with_descriptor(td_tensor *x) {
    float back[4];
    uint64_t value;
    int fd;
    CHECK(td_fetch_fd(x, back, sizeof back, &fd) == 0);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    CHECK(poll(&entry, 1, 10000) == 1 && read(fd, &value, sizeof value) == sizeof value && value == 1);
    close(fd);
}

/* Scopes within scopes, and handles that move out of them. */
static td_tensor *nested_scopes(td_tensor *x, int depth) {
    td_scope_begin(depth % 2 ? "odd" : NULL);
    td_label("inner");
    td_tensor *y = td_exp(depth ? nested_scopes(x, depth - 1) : x);
    td_log(y);
    td_keep(y);
    td_scope_end();
    return y;
}

/* The tape holds handles that are released here, until it ends or their device closes. */
static td_tensor *slope_of(td_tensor *x) {
    td_tensor *y = td_multiply(td_tanh(x), shared), *gradient;
    CHECK(td_gradients(y, 1, &x, &gradient) == 0);
    td_release(y);
    return gradient;
}

/* One program of all threads, in which each repeats it in one of two ways, and one of its own, which captures a tensor that is released here. */
static td_program *shared_program;

static td_program *record(td_tensor *captured) {
    td_program *program;
    CHECK(td_record_begin(device) == 0);
    td_tensor *x = td_parameter_consumed(TD_F32, TD_SHAPE(4)), *y = td_add(td_multiply(x, captured), shared);
    td_release(x);
    CHECK(td_record_end(device, 1, &y, &program) == 0);
    td_release(y);
    return program;
}

static void run_programs(td_tensor *x, int round) {
    static const td_carry carried[] = {{0, 0}};
    const td_loop loop = {round % 2, carried, 0, NULL, 0, NULL};
    td_tensor *state = td_exp(x), *captured = td_exp(x);
    td_program *own = record(captured);
    td_release(captured);
    CHECK(td_program_run(own, 1, &state, 1, &state) == 0);
    CHECK(td_program_run(shared_program, 1, &state, 1, &state) == 0);
    CHECK(td_program_repeat(shared_program, 3, &loop, 1, &state, 1, &state) == 0);
    CHECK(td_program_repeat(own, 3, &loop, 1, &state, 1, &state) == 0);
    td_program_release(own);
}

static void round_of_work(int thread, int round) {
    float value[4] = {(float)thread, (float)round, 0, 1}, back[4];
    char label[32];
    td_scope_begin("round");
    snprintf(label, sizeof label, "t%d", thread);
    td_label(label);
    td_tensor *x = td_upload(device, TD_F32, TD_SHAPE(4), value), *sum = x;
    for (int i = 0; i < 50; i++) {
        td_tensor *next = td_add(sum, shared);
        if (sum != x)
            td_release(sum);
        sum = next;
    }
    CHECK(sum && nested_scopes(sum, 3));
    CHECK(td_tape_begin() == 0 && slope_of(sum));
    td_tape_end();
    run_programs(sum, round);
    CHECK(td_fetch(x, back, sizeof back) == 0 && !memcmp(value, back, sizeof back));
    CHECK(td_fetch_async(x, back, 4, fetched, NULL) == TD_E_INVALID_ARGUMENT);
    if (round % 4 == 0) {
        void *place = malloc(sizeof back);
        CHECK(td_fetch_async(sum, place, sizeof back, fetched, place) == 0);
    }
    if (round % 6 == 0)
        fetch_with_descriptor(sum);
    if (round % 5 == 0)
        CHECK(td_wait(sum) == 0);
    if (round % 7 == 0)
        CHECK(td_sync(device) == 0);
    td_test(sum);
    td_scope_end();
}

static void *work(void *argument) {
    int thread = (int)(intptr_t)argument;
    td_stream *stream = NULL;
    if (thread % 2)
        CHECK(td_stream_open(device, thread, &stream) == 0 && td_stream_set(device, stream) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 10 == 9) {
            td_stream_close(stream);
            CHECK(td_stream_open(device, round % 3, &stream) == 0 && td_stream_set(device, stream) == 0);
        }
        round_of_work(thread, round);
    }
    CHECK(td_tape_begin() == 0);                           /* nor is this ended, */
    CHECK(td_record_begin(device) == 0 && td_exp(shared)); /* nor this */
    td_scope_begin("left open");
    td_keep(td_exp(shared));
    td_exp(shared);
    td_stream_close(stream);
    return NULL;
}

static void *transfer(void *argument) {
    uint8_t *data = malloc(LARGE), *back = malloc(LARGE);
    (void)argument;
    memset(data, 7, LARGE);
    for (int round = 0; round < 4; round++) {
        data[LARGE - 1] = (uint8_t)round;
        td_tensor *large = td_upload(device, TD_U8, TD_SHAPE(LARGE), data);
        CHECK(large && td_fetch(large, back, LARGE) == 0 && !memcmp(data, back, LARGE));
        td_release(large);
        td_tensor *borrowed = td_upload_borrow(device, TD_U8, TD_SHAPE(LARGE), data, count, NULL);
        td_tensor *highest = td_max(borrowed, TD_ALL_AXES, 0);
        td_release(borrowed);
        CHECK(td_wait(highest) == 0);
        td_release(highest);
    }
    free(data);
    free(back);
    return NULL;
}

static void cancelled(void *user, int status) {
    (void)user;
    CHECK(status == 0 || status == TD_E_CANCELLED);
    atomic_fetch_add(&closed_calls, 1);
}

/* Opens devices of its own on the shared connection and closes them with work under way, inside a scope of which they
 * hold a part; meanwhile others list, open and close, too. */
static void *open_and_close(void *argument) {
    static uint8_t large[LARGE];
    float back[4];
    size_t count;
    (void)argument;
    for (int i = 0; i < OPENINGS; i++) {
        td_device *own;
        td_scope_begin("own");
        CHECK(td_devices(connection, NULL, 0, &count) == 0 && count == 2);
        CHECK(td_device_open(connection, i % 2 ? "cpu:1" : "cpu:0", &own) == 0);
        td_tensor *x = td_full(own, TD_F32, TD_SHAPE(4), 1);
        CHECK(td_fetch_async(td_exp(x), back, sizeof back, cancelled, NULL) == 0);
        td_test(x);
        CHECK(td_upload_borrow(own, TD_U8, TD_SHAPE(LARGE), large, count_closed, NULL));
        CHECK(td_copy_to(x, device) && td_copy_to(shared, own));
        CHECK(td_tape_begin() == 0 && td_exp(td_exp(x)) && td_exp(shared));
        CHECK(td_record_begin(own) == 0 && td_exp(x) && td_exp(shared));
        td_device_close(own);
        td_tape_end();
        td_scope_end();
    }
    return NULL;
}

/* Releases what another thread made inside a scope. */
static td_tensor *handed_over;
static void *release_handed_over(void *argument) {
    (void)argument;
    td_release(handed_over);
    return NULL;
}

static void share_one_device(void) {
    pthread_t threads[THREADS + 3];
    shared_program = record(shared);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
    pthread_create(&threads[THREADS], NULL, transfer, NULL);
    pthread_create(&threads[THREADS + 1], NULL, open_and_close, NULL);
    pthread_create(&threads[THREADS + 2], NULL, open_and_close, NULL);
    for (int i = 0; i < THREADS + 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(td_sync(device) == 0);
    CHECK(closed_calls == 2 * 2 * OPENINGS); /* each once, and none after its device was closed */
    while (callbacks < THREADS * (ROUNDS / 4) + 4)
        usleep(1000);
    pthread_t thread;
    td_scope_begin(NULL);
    handed_over = td_exp(shared);
    pthread_create(&thread, NULL, release_handed_over, NULL);
    pthread_join(thread, NULL);
    td_scope_end();
}

/* ---- releases by any thread, of what any thread has made ---- */

enum { RELEASED = 6000, ADDED = 2000 };
static td_tensor *made[RELEASED];

static void *release_every_third(void *argument) {
    for (int i = (int)(intptr_t)argument; i < RELEASED; i += 3)
        td_release(made[i]);
    return NULL;
}

static void *add_and_release(void *argument) {
    (void)argument;
    for (int i = 0; i < ADDED; i++)
        td_release(td_add(shared, shared));
    return NULL;
}

/* Each is freed once, though nothing follows the last release. */
static void release_anywhere(void) {
    pthread_t threads[5];
    CHECK(td_sync(device) == 0);
    uint64_t end = fake.released + RELEASED + 2 * ADDED;
    for (int i = 0; i < RELEASED; i++)
        CHECK((made[i] = td_add(shared, shared)));
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, release_every_third, (void *)(intptr_t)i);
    for (int i = 3; i < 5; i++)
        pthread_create(&threads[i], NULL, add_and_release, NULL);
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    while (fake.released < end)
        usleep(1000);
    CHECK(td_sync(device) == 0 && fake.released == end);
}

static void *fetch_until_lost(void *argument) {
    float out[4];
    (void)argument;
    CHECK(td_fetch(shared, out, sizeof out) == TD_E_DEVICE_LOST);
    while (td_exp(shared))
        ;
    CHECK(td_last_error()->code == TD_E_DEVICE_LOST);
    return NULL;
}

/* Closing the connection while fetches, uploads and questions of several devices are pending. */
static void close_the_connection(void) {
    static uint8_t large[LARGE];
    static float back[4];
    td_connection *own;
    td_device *devices[2];
    closed_calls = 0;
    CHECK(td_connect(fake.url, NULL, &own) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(td_device_open(own, i ? "cpu:1" : "cpu:0", &devices[i]) == 0);
    fake.mute = true;
    for (int i = 0; i < 2; i++) {
        td_tensor *x = td_full(devices[i], TD_F32, TD_SHAPE(4), 1);
        CHECK(td_fetch_async(x, back, sizeof back, cancelled, NULL) == 0);
        CHECK(!td_test(x) && td_upload_borrow(devices[i], TD_U8, TD_SHAPE(LARGE), large, count_closed, NULL));
    }
    td_close(own);
    CHECK(closed_calls == 4);
    fake.mute = false;
}

static void lose_the_device(void) {
    pthread_t threads[THREADS];
    fake.mute = true;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, fetch_until_lost, NULL);
    usleep(20000);
    fake.hang_up = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void) {
    fake_daemon_start(&fake);
    if (td_connect(fake.url, NULL, &connection) || td_device_open(connection, NULL, &device))
        return fprintf(stderr, "%s\n", td_last_error()->message), 1;
    shared = td_full(device, TD_F32, TD_SHAPE(4), 1);
    share_one_device();
    release_anywhere();
    char *log = fake_daemon_log(&fake);
    CHECK(!strstr(log, "\nbad ")); /* a line of its own: tickets are random hexadecimal digits */
    free(log);
    close_the_connection();
    lose_the_device();
    td_close(connection);
    fake_daemon_stop(&fake);
    return 0;
}
