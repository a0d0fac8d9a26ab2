/* Limits: reaching one is an error with figures, or an orderly refusal, and never the end of anybody else's work. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

static struct daemon tensord;

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(limits, .fini = stop, .timeout = 120);

#define START(...) daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){__VA_ARGS__, NULL}})

/* An error's words hold at least one figure. */
static void has_figures(const char *message) {
    cr_assert(strpbrk(message, "0123456789"), "no figures: %s", message);
}

Test(limits, session_bytes) {
    struct client client;
    START("--session-bytes", "1M");
    client_open(&client, tensord.url, NULL);
    td_tensor *fits = td_full(client.device, TD_U8, TD_SHAPE(512 << 10), 1);
    cr_assert(!td_wait(fits), "%s", td_last_error()->message);
    td_tensor *over = td_full(client.device, TD_U8, TD_SHAPE(768 << 10), 1);
    int code = td_wait(over);
    cr_assert(code == TD_E_OUT_OF_MEMORY || code == TD_E_LIMIT, "%d", code);
    has_figures(td_last_error()->message);
    td_release(fits);
    td_release(over);
    cr_assert(!td_wait(td_full(client.device, TD_U8, TD_SHAPE(768 << 10), 1)), "room again: %s",
              td_last_error()->message);
    client_close(&client);
}

Test(limits, session_bytes_hold_for_uploads) {
    struct client client;
    START("--session-bytes", "1M");
    client_open(&client, tensord.url, NULL);
    void *data = calloc(8 << 20, 1);
    td_tensor *over = td_upload(client.device, TD_U8, TD_SHAPE(8 << 20), data);
    cr_assert_not_null(over, "%s", td_last_error()->message);
    int code = td_wait(over);
    cr_assert(code == TD_E_OUT_OF_MEMORY || code == TD_E_LIMIT, "%d", code);
    client_expect(client_ramp(client.device, 2, 0), (float[]){0, 1}, 2);
    client_close(&client);
    free(data);
}

Test(limits, device_memory) {
    struct client client;
    START("--memory", "64M");
    client_open(&client, tensord.url, NULL);
    td_label("huge");
    const td_error *error =
        client_expect_failure(td_full(client.device, TD_U8, TD_SHAPE(65 << 20), 1), TD_E_OUT_OF_MEMORY);
    has_figures(error->message);
    cr_assert_str_eq(error->label, "huge");
    cr_assert(!td_wait(td_full(client.device, TD_U8, TD_SHAPE(16 << 20), 1)), "%s", td_last_error()->message);
    client_close(&client);
}

Test(limits, session_tensors) {
    struct client client;
    td_tensor *tensors[12];
    START("--session-tensors", "10");
    client_open(&client, tensord.url, NULL);
    for (int i = 0; i < 12; i++)
        tensors[i] = td_full(client.device, TD_F32, TD_SCALAR, 1);
    cr_assert(!td_wait(tensors[9]), "%s", td_last_error()->message);
    int code = td_wait(tensors[11]);
    cr_assert_eq(code, TD_E_LIMIT, "%d: %s", code, code ? td_last_error()->message : "no failure");
    has_figures(td_last_error()->message);
    for (int i = 0; i < 12; i++)
        td_release(tensors[i]);
    cr_assert(!td_wait(td_full(client.device, TD_F32, TD_SCALAR, 1)), "room again: %s", td_last_error()->message);
    client_close(&client);
}

/* Each tensor costs some 500 bytes of the host's memory, whatever it has on the device. */
Test(limits, session_host_bytes) {
    enum { MANY = 20000 };
    static td_tensor *tensors[MANY];
    struct client client;
    START("--session-host-bytes", "4M");
    client_open(&client, tensord.url, NULL);
    for (int i = 0; i < MANY; i++) {
        tensors[i] = td_full(client.device, TD_U8, TD_SHAPE(1), 1);
        cr_assert_not_null(tensors[i], "%s", td_last_error()->message);
    }
    cr_assert(!td_wait(tensors[1000]), "%s", td_last_error()->message);
    int code = td_wait(tensors[MANY - 1]);
    cr_assert_eq(code, TD_E_LIMIT, "%d: %s", code, code ? td_last_error()->message : "no failure");
    has_figures(td_last_error()->message);
    cr_assert(strstr(td_last_error()->message, "host memory"), "%s", td_last_error()->message);
    for (int i = 0; i < MANY; i++)
        td_release(tensors[i]);
    cr_assert(!td_wait(td_full(client.device, TD_F32, TD_SCALAR, 1)), "room again: %s", td_last_error()->message);
    client_close(&client);
}

static bool host_is(const Tensord__Status *status, bool large) {
    return status->n_sessions == 1 && (status->sessions[0]->host_bytes > FRAME_MESSAGE_MAX) == large;
}

static bool host_is_large(const Tensord__Status *status, const void *none) {
    (void)none;
    return host_is(status, true);
}

static bool host_is_small(const Tensord__Status *status, const void *none) {
    (void)none;
    return host_is(status, false);
}

/* A large message that does not come to its end is the session's memory until it does. */
Test(limits, room_for_a_message_is_host_memory_of_its_session) {
    static uint8_t bytes[FRAME_MESSAGE_MAX];
    struct wire wire;
    START(NULL);
    wire_open(&wire, tensord.url, DAEMON_TARGET_CPU0);
    status_until(tensord.url, host_is_small, NULL, WIRE_TIMEOUT_MS);
    cr_assert(
        wire_header(&wire, &(struct frame_header){.type = FRAME_PING, .message_bytes = sizeof bytes, .sequence = 1}));
    status_until(tensord.url, host_is_large, NULL, WIRE_TIMEOUT_MS);
    /* It is read as unknown fields of Ping, which are no error. */
    for (size_t at = 0; at < sizeof bytes; at += 4096)
        memcpy(bytes + at, (uint8_t[]){0xfa, 0x7f, 0xfc, 0x1f}, 4); /* field 2047, of 4092 bytes */
    cr_assert(wire_write(&wire, bytes, sizeof bytes));
    struct wire_frame frame;
    cr_assert_eq(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_PONG);
    wire_frame_finish(&frame);
    status_until(tensord.url, host_is_small, NULL, WIRE_TIMEOUT_MS);
    wire_close(&wire);
}

Test(limits, session_streams) {
    struct client client;
    td_stream *streams[3] = {NULL};
    START("--session-streams", "2");
    client_open(&client, tensord.url, NULL);
    td_tensor *x = NULL;
    int code = TD_OK;
    for (int i = 0; i < 3 && !code; i++) {
        code = td_stream_open(client.device, 0, &streams[i]);
        if (!code && !td_stream_set(client.device, streams[i]))
            x = td_full(client.device, TD_F32, TD_SCALAR, 1);
    }
    if (!code) /* opening does not wait: the stream's first operation tells */
        code = td_wait(x);
    cr_assert_neq(code, TD_OK, "a third stream");
    has_figures(td_last_error()->message);
    cr_assert(!td_stream_set(client.device, NULL));
    client_expect(client_ramp(client.device, 2, 0), (float[]){0, 1}, 2);
    client_close(&client);
}

Test(limits, max_sessions) {
    struct client clients[2];
    td_connection *connection;
    td_device *device = NULL;
    START("--max-sessions", "2");
    for (int i = 0; i < 2; i++)
        client_open(&clients[i], tensord.url, NULL);
    cr_assert(!td_connect(tensord.url, NULL, &connection), "%s", td_last_error()->message);
    cr_assert_eq(td_device_open(connection, NULL, &device), TD_E_LIMIT, "%s", td_last_error()->message);
    has_figures(td_last_error()->message);
    client_expect(client_ramp(clients[1].device, 2, 0), (float[]){0, 1}, 2);
    client_close(&clients[0]);
    int64_t deadline = deadline_in(30000);
    while (td_device_open(connection, NULL, &device))
        cr_assert(deadline_pause(deadline), "no room after a session has ended: %s", td_last_error()->message);
    client_expect(client_ramp(device, 2, 0), (float[]){0, 1}, 2);
    td_close(connection);
    client_close(&clients[1]);
}

Test(limits, max_connections) {
    struct wire wires[8], again;
    char message[256] = "";
    START("--max-connections", "8");
    for (int i = 0; i < 8; i++)
        wire_open(&wires[i], tensord.url, i % 2 ? PREAMBLE_TARGET_CONTROL : PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_dial(&again, tensord.url));
    wire_preamble(&again, PREAMBLE_TARGET_DEFAULT);
    int code = wire_until_closed(&again, WIRE_TIMEOUT_MS, message);
    cr_assert(code == STATUS_LIMIT || code == STATUS_OK, "one too many gets %d (-1: is kept) %s", code, message);
    wire_close(&again);
    for (int i = 0; i < 8; i++) {
        cr_assert(wire_ping(&wires[i]));
        wire_close(&wires[i]);
    }
    status_until(tensord.url, status_all_ready, NULL, 30000);
}

/* Reads until the end; how long that took. */
static int64_t closed_after(struct wire *wire, int *code, char *message) {
    int64_t before = deadline_now();
    *code = wire_until_closed(wire, WIRE_TIMEOUT_MS, message);
    cr_assert_geq(*code, 0, "still open");
    return deadline_now() - before;
}

Test(limits, silent_connections_are_closed_after_the_hello_timeout) {
    static const size_t SENT[] = {0, 3, PREAMBLE_BYTES, PREAMBLE_BYTES + 10};
    START("--hello-timeout", "300ms");
    for (size_t i = 0; i < sizeof SENT / sizeof *SENT; i++) {
        struct wire wire;
        int code;
        uint8_t bytes[PREAMBLE_BYTES + FRAME_HEADER_BYTES];
        preamble_encode(PREAMBLE_TARGET_DEFAULT, bytes);
        frame_header_encode(&(struct frame_header){.type = FRAME_HELLO, .message_bytes = 100}, bytes + PREAMBLE_BYTES);
        cr_assert(wire_dial(&wire, tensord.url));
        cr_assert(wire_write(&wire, bytes, SENT[i]));
        int64_t took = closed_after(&wire, &code, NULL);
        cr_assert_geq(took, 150, "after %zu bytes: closed too early", SENT[i]);
        cr_assert(code == STATUS_OK || code == STATUS_TIMED_OUT || code == STATUS_PROTOCOL, "%s", status_name(code));
        wire_close(&wire);
    }
}

Test(limits, hello_that_trickles_in_is_closed_too) {
    struct wire wire;
    uint8_t bytes[PREAMBLE_BYTES + FRAME_HEADER_BYTES];
    START("--hello-timeout", "300ms");
    preamble_encode(PREAMBLE_TARGET_DEFAULT, bytes);
    frame_header_encode(&(struct frame_header){.type = FRAME_HELLO, .message_bytes = 16000}, bytes + PREAMBLE_BYTES);
    cr_assert(wire_dial(&wire, tensord.url));
    cr_assert(wire_write(&wire, bytes, sizeof bytes));
    int64_t deadline = deadline_in(30000);
    while (wire_write(&wire, "x", 1))
        cr_assert(deadline_pause(deadline), "still open");
    wire_close(&wire);
}

Test(limits, sessions_outlive_the_hello_timeout) {
    struct wire wire, silent;
    int code;
    START("--hello-timeout", "1s");
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_dial(&silent, tensord.url));
    closed_after(&silent, &code, NULL);
    closed_after((wire_close(&silent), wire_dial(&silent, tensord.url), &silent), &code, NULL);
    cr_assert(wire_ping(&wire));
    wire_close(&silent);
    wire_close(&wire);
}

Test(limits, running_out_of_descriptors_does_not_spin_and_passes) {
    enum { N = 128, WATCH_MS = 1500 };
    struct wire wires[N];
    struct client client;
    daemon_start(&tensord, &(struct daemon_options){.files_max = 64,
                                                    .flags = (const char *const[]){"--hello-timeout", "3600s", NULL}});
    client_open(&client, tensord.url, NULL);
    int n = 0;
    while (n < N && wire_dial(&wires[n], tensord.url))
        n++;
    unsigned long long before = daemon_process_cpu_ms(tensord.pid);
    poll(NULL, 0, WATCH_MS); /* not to wait for something, but to measure over a span */
    unsigned long long spent = daemon_process_cpu_ms(tensord.pid) - before;
    cr_assert_lt(spent, WATCH_MS / 3, "the front used %llu of %d ms", spent, WATCH_MS);
    client_expect(client_ramp(client.device, 2, 0), (float[]){0, 1}, 2);
    while (n > 0)
        wire_close(&wires[--n]);
    int64_t deadline = deadline_in(30000);
    td_connection *connection = NULL;
    while (td_connect(tensord.url, NULL, &connection))
        cr_assert(deadline_pause(deadline), "no connection after the others went: %s", td_last_error()->message);
    td_close(connection);
    client_close(&client);
}

/* The front has some left, for it keeps no connection that a worker has taken. */
Test(limits, worker_out_of_descriptors_has_its_clients_told) {
    enum { N = 80 };
    struct wire wires[N];
    int served = 0, told = 0;
    daemon_start(&tensord, &(struct daemon_options){.files_max = 64});
    for (int i = 0; i < N; i++) {
        struct wire_frame frame;
        Tensord__Hello hello = TENSORD__HELLO__INIT;
        hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
        hello.client = "tests 1";
        wire_connect(&wires[i], tensord.url, PREAMBLE_TARGET_DEFAULT);
        cr_assert(wire_request(&wires[i], FRAME_HELLO, &hello));
        cr_assert_eq(wire_receive(&wires[i], &frame, WIRE_TIMEOUT_MS), WIRE_FRAME, "connection %d: not a word", i);
        served += frame.header.type == FRAME_WELCOME;
        told += frame.header.type == FRAME_ERROR;
        wire_frame_finish(&frame);
    }
    cr_assert(served > 10 && told > 10 && served + told == N, "%d served, %d told", served, told);
    for (int i = 0; i < N; i++)
        wire_close(&wires[i]);
}
