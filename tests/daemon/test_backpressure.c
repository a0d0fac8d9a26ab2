/* Clients that send more than is taken from them, or take less than is sent to them. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

enum { IDLE_MS = 500 };
static const unsigned long long MEBIBYTE = 1 << 20;

static struct daemon tensord;

static void start(void) {
    daemon_start(&tensord, NULL);
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(backpressure, .init = start, .fini = stop, .timeout = 120);

/* Another client gets its answers. */
static void others_are_served(void) {
    struct client client;
    client_open(&client, tensord.url, "cpu:0");
    for (int i = 0; i < 20; i++)
        client_expect(client_ramp(client.device, 3, (float)i), (float[]){(float)i, (float)i + 1, (float)i + 2}, 3);
    client_close(&client);
}

/* The worker's memory has not grown by more than this. */
static void memory_is_below(unsigned long long before, unsigned long long allowance) {
    unsigned long long now = daemon_process_rss(status_worker_pid(tensord.url, "cpu:0"));
    cr_assert_lt(now, before + allowance, "the worker grew from %llu to %llu MiB", before / MEBIBYTE, now / MEBIBYTE);
}

static struct status_baseline baseline_before(void) {
    return status_baseline_of(tensord.url, "cpu:0");
}

Test(backpressure, client_that_never_reads_its_fetches_costs_bounded_memory) {
    struct wire wire;
    struct status_baseline baseline = baseline_before();
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_full(&wire, 1, 1, 4 << 20, 1)); /* 16 MiB */
    float *data = malloc(16 << 20);
    cr_assert_eq(wire_fetch(&wire, 1, data, 16 << 20, NULL), STATUS_OK);
    free(data);
    unsigned long long before = daemon_process_rss(status_worker_pid(tensord.url, "cpu:0"));
    struct wire_buffer buffer = {0};
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    fetch.id = 1;
    for (uint64_t i = 0; i < 20000; i++)
        wire_buffer_frame(&buffer, FRAME_FETCH, 100 + i, &fetch, NULL, 0);
    wire_write_some(&wire, buffer.bytes, buffer.n, IDLE_MS);
    others_are_served();
    memory_is_below(before, 100 * MEBIBYTE);
    wire_buffer_finish(&buffer);
    wire_close(&wire);
    cr_assert(status_settles(tensord.url, &baseline, 20000), "memory was not given back");
}

Test(backpressure, reader_that_starts_late_gets_everything) {
    struct wire wire;
    enum { N = 64, BYTES = 4 << 20 };
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_full(&wire, 1, 1, BYTES / 4, 3));
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    fetch.id = 1;
    for (int i = 0; i < N; i++)
        cr_assert(wire_request(&wire, FRAME_FETCH, &fetch));
    others_are_served();
    size_t total = 0;
    while (total < (size_t)N * BYTES) {
        struct wire_frame frame;
        cr_assert_eq(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME, "stuck after %zu bytes", total);
        cr_assert_eq(frame.header.type, FRAME_FETCH_CHUNK);
        cr_assert_eq(((float *)(void *)frame.payload)[0], 3);
        total += frame.header.payload_bytes;
        wire_frame_finish(&frame);
    }
    cr_assert(wire_ping(&wire));
    wire_close(&wire);
}

/* A recording of `n` operations on tensor 1, each freed again. */
static void flood(struct wire_buffer *buffer, unsigned opcode, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        wire_buffer_op(buffer,
                       &(struct wire_op){.opcode = opcode, .output = 2 + i, .sequence = 2 + 2 * i, WIRE_INPUTS(1, 1)});
        wire_buffer_op(buffer, &(struct wire_op){.opcode = OP_FREE, .sequence = 3 + 2 * i, WIRE_INPUTS(2 + i)});
    }
}

Test(backpressure, flood_of_heavy_operations_is_held_at_the_window) {
    struct wire wire;
    struct status_baseline baseline = baseline_before();
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_op(
        &wire, &(struct wire_op){
                   .opcode = OP_FULL, .output = 1, .sequence = 1, WIRE_INTS(DTYPE_F32, 0, 512, 512), WIRE_FLOATS(0)}));
    struct wire_buffer buffer = {0};
    flood(&buffer, OP_MATMUL, 200000);
    size_t sent = wire_write_some(&wire, buffer.bytes, buffer.n, IDLE_MS);
    cr_assert_lt(sent, buffer.n, "the daemon took all of it");
    others_are_served();
    wire_buffer_finish(&buffer);
    wire_close(&wire);
    cr_assert(status_settles(tensord.url, &baseline, 20000), "memory was not given back");
}

Test(backpressure, flood_of_requests_without_reading_is_held) {
    struct wire wire;
    struct status_baseline baseline = baseline_before();
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_full(&wire, 1, 1, 4, 1));
    cr_assert(wire_ping(&wire));
    unsigned long long before = daemon_process_rss(status_worker_pid(tensord.url, "cpu:0"));
    struct wire_buffer buffer = {0};
    flood(&buffer, OP_ADD, 20000);
    Tensord__Sync sync = TENSORD__SYNC__INIT;
    Tensord__Ping ping = TENSORD__PING__INIT;
    for (uint64_t i = 0; i < 400000; i++)
        wire_buffer_frame(&buffer, i % 2 ? FRAME_SYNC : FRAME_PING, 10 + i, i % 2 ? (void *)&sync : (void *)&ping, NULL,
                          0);
    wire_write_some(&wire, buffer.bytes, buffer.n, IDLE_MS);
    others_are_served();
    memory_is_below(before, 100 * MEBIBYTE);
    wire_buffer_finish(&buffer);
    wire_close(&wire);
    cr_assert(status_settles(tensord.url, &baseline, 20000), "memory was not given back");
}

/* More than the front answers in one turn. */
Test(backpressure, flood_on_a_control_connection_is_answered_in_order) {
    enum { N = 3000 };
    struct wire wire;
    struct wire_buffer buffer = {0};
    Tensord__GetStatus request = TENSORD__GET_STATUS__INIT;
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_CONTROL);
    for (uint64_t i = 1; i <= N; i++)
        wire_buffer_frame(&buffer, FRAME_GET_STATUS, i, &request, NULL, 0);
    cr_assert(wire_write(&wire, buffer.bytes, buffer.n));
    others_are_served();
    for (uint64_t i = 1; i <= N; i++) {
        struct wire_frame frame;
        cr_assert_eq(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME, "stuck after %lu answers", i - 1);
        cr_assert(frame.header.type == FRAME_STATUS && frame.header.sequence == i);
        wire_frame_finish(&frame);
    }
    wire_buffer_finish(&buffer);
    wire_close(&wire);
}

Test(backpressure, again_leaves_nothing_queued_and_later_calls_succeed) {
    td_options options = {.queue_bytes = 64 << 10};
    td_connection *connection;
    td_device *device;
    float got = 0;
    cr_assert(!td_connect(tensord.url, &options, &connection) && !td_device_open(connection, "cpu:0", &device));
    td_tensor *one = td_full(device, TD_F32, TD_SCALAR, 1), *sum = td_full(device, TD_F32, TD_SCALAR, 0);
    cr_assert(!td_sync(device));
    int worker = status_worker_pid(tensord.url, "cpu:0"), added = 0;
    kill(worker, SIGSTOP);
    for (;;) {
        td_tensor *next = td_add(sum, one);
        if (!next)
            break;
        sum = next;
        cr_assert_lt(++added, 10000000, "the queue grows without bound");
    }
    cr_assert_eq(td_last_error()->code, TD_E_AGAIN, "%s", td_last_error()->message);
    kill(worker, SIGCONT);
    cr_assert(!td_sync(device), "%s", td_last_error()->message);
    td_tensor *last = td_add(sum, one);
    cr_assert_not_null(last, "%s", td_last_error()->message);
    cr_assert(!td_fetch(last, &got, sizeof got), "%s", td_last_error()->message);
    cr_assert_eq(got, (float)(added + 1));
    td_close(connection);
}

Test(backpressure, uploads_in_a_loop_wait_for_the_socket_and_do_not_fail) {
    enum { COUNT = 400, FLOATS = 40000 }; /* 64 MB in copies of 160 kB, much more than the send queue holds */
    struct client client;
    float *data = calloc(FLOATS, sizeof *data), last = 0;
    td_tensor *sum = NULL;
    client_open(&client, tensord.url, "cpu:0");
    sum = td_full(client.device, TD_F32, TD_SHAPE(FLOATS), 0);
    for (int i = 0; i < COUNT; i++) {
        data[FLOATS - 1] = (float)i;
        td_tensor *x = td_upload(client.device, TD_F32, TD_SHAPE(FLOATS), data), *next = td_add(sum, x);
        cr_assert_not_null(next, "%d: %s", i, td_last_error()->message);
        td_release(sum);
        td_release(x);
        sum = next;
    }
    td_tensor *end = td_slice(sum, 0, FLOATS - 1, FLOATS, 1);
    cr_assert(!td_fetch(end, &last, sizeof last), "%s", td_last_error()->message);
    cr_assert_eq(last, (float)(COUNT * (COUNT - 1) / 2));
    free(data);
    client_close(&client);
}
