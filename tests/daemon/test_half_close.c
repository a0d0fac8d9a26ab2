/* Clients that end only their own side of a connection, and those that end altogether while they wait for answers. */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"

enum { SIDE = 1024, ROUNDS = 1000, GONE_MS = 30000 };

static struct daemon tensord;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://127.0.0.1:0"});
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(half_close, .init = start, .fini = stop, .timeout = 120);

static void ask(struct wire *wire, uint64_t id) {
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    fetch.id = id;
    cr_assert(wire_request(wire, FRAME_FETCH, &fetch));
}

/* A chain of matrix products of zeros; the last one's id. */
static uint64_t work(struct wire *wire, int64_t side, uint64_t rounds) {
    cr_assert(wire_op(
        wire, &(struct wire_op){
                  .opcode = OP_FULL, .output = 1, .sequence = 1, WIRE_INTS(DTYPE_F32, 0, side, side), WIRE_FLOATS(0)}));
    for (uint64_t i = 1; i <= rounds; i++)
        cr_assert(wire_op(
            wire, &(struct wire_op){
                      .opcode = OP_MATMUL, .output = i + 1, .sequence = i + 1, .consume = i > 1, WIRE_INPUTS(i, 1)}));
    return rounds + 1;
}

/* Takes `bytes` of the tensor that was asked for, then the end without an Error. */
static void take_all(struct wire *wire, size_t bytes) {
    size_t total = 0;
    while (total < bytes) {
        struct wire_frame frame;
        cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME, "ended after %zu of %zu bytes", total,
                     bytes);
        cr_assert_eq(frame.header.type, FRAME_FETCH_CHUNK, "%s", frame_type_name(frame.header.type));
        total += frame.header.payload_bytes;
        wire_frame_finish(&frame);
    }
    cr_assert_eq(wire_until_closed(wire, WIRE_TIMEOUT_MS, NULL), STATUS_OK);
}

Test(half_close, pending_fetch_is_answered_and_the_connection_ends) {
    struct wire wire;
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    ask(&wire, work(&wire, 512, 100));
    shutdown(wire.fd, SHUT_WR);
    take_all(&wire, 512 * 512 * 4);
    cr_assert(status_settles(tensord.url, &baseline, GONE_MS), "memory was not given back");
    wire_close(&wire);
}

Test(half_close, large_answer_reaches_a_client_that_reads_late) {
    enum { N = 8, BYTES = 4 << 20 };
    struct wire wire;
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_full(&wire, 1, 1, BYTES / 4, 3));
    for (int i = 0; i < N; i++)
        ask(&wire, 1);
    shutdown(wire.fd, SHUT_WR);
    status_free(status_get(tensord.url));
    take_all(&wire, (size_t)N * BYTES);
    wire_close(&wire);
}

Test(half_close, large_answer_under_way_over_tcp_waits_for_its_reader) {
    enum { BYTES = 64 << 20, LATE_MS = 1200 };
    struct wire wire;
    wire_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_full(&wire, 1, 1, BYTES / 4, 3));
    ask(&wire, 1);
    cr_assert(deadline_poll(wire.fd, POLLIN, deadline_in(WIRE_TIMEOUT_MS)));
    shutdown(wire.fd, SHUT_WR);
    poll(NULL, 0, LATE_MS); /* a reader that is busy elsewhere, longer than a silent one is waited for */
    take_all(&wire, BYTES);
    wire_close(&wire);
}

/* More frames than one turn takes, so that the end is seen while some are still unread. */
Test(half_close, everything_sent_before_is_read) {
    enum { N = 5000 };
    struct wire wire;
    struct wire_buffer buffer = {0};
    Tensord__Ping ping = TENSORD__PING__INIT;
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    for (uint64_t i = 1; i <= N; i++)
        wire_buffer_frame(&buffer, FRAME_PING, i, &ping, NULL, 0);
    cr_assert(wire_write(&wire, buffer.bytes, buffer.n));
    shutdown(wire.fd, SHUT_WR);
    for (uint64_t i = 1; i <= N; i++) {
        struct wire_frame frame;
        cr_assert_eq(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME, "ended after %lu answers", i - 1);
        cr_assert(frame.header.type == FRAME_PONG && frame.header.sequence == i);
        wire_frame_finish(&frame);
    }
    cr_assert_eq(wire_until_closed(&wire, WIRE_TIMEOUT_MS, NULL), STATUS_OK);
    wire_buffer_finish(&buffer);
    wire_close(&wire);
}

/* Everything a client ever says, in one piece. */
static void whole_session_in_one_piece(const char *url) {
    struct wire wire;
    struct wire_buffer buffer = {0};
    struct wire_frame frame;
    uint8_t preamble[PREAMBLE_BYTES];
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "tests 1";
    fetch.id = 1;
    preamble_encode(PREAMBLE_TARGET_DEFAULT, preamble);
    wire_buffer_add(&buffer, preamble, sizeof preamble);
    wire_buffer_frame(&buffer, FRAME_HELLO, 1, &hello, NULL, 0);
    wire_buffer_op(
        &buffer,
        &(struct wire_op){.opcode = OP_FULL, .output = 1, .sequence = 1, WIRE_INTS(DTYPE_F32, 0, 4), WIRE_FLOATS(0)});
    wire_buffer_frame(&buffer, FRAME_FETCH, 2, &fetch, NULL, 0);
    cr_assert(wire_dial(&wire, url));
    cr_assert(wire_write(&wire, buffer.bytes, buffer.n));
    shutdown(wire.fd, SHUT_WR);
    cr_assert_eq(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_WELCOME);
    wire_frame_finish(&frame);
    take_all(&wire, 16);
    wire_buffer_finish(&buffer);
    wire_close(&wire);
}

Test(half_close, whole_session_in_one_piece_over_a_unix_socket) {
    whole_session_in_one_piece(tensord.url);
}

Test(half_close, whole_session_in_one_piece_over_tcp) {
    whole_session_in_one_piece(tensord.tcp);
}

Test(half_close, whole_session_in_one_piece_while_the_device_restarts) {
    daemon_stop(&tensord);
    daemon_start(&tensord,
                 &(struct daemon_options){.flags = (const char *const[]){"--restart-backoff", "300ms", NULL}});
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    whole_session_in_one_piece(tensord.url);
    whole_session_in_one_piece(tensord.url);
}

/* Takes an answer of this type with the present sequence number, and then the end. */
static void take_last(struct wire *wire, unsigned type) {
    uint64_t sequence;
    do {
        struct wire_frame frame;
        cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
        cr_assert_eq(frame.header.type, type, "%s", frame_type_name(frame.header.type));
        sequence = frame.header.sequence;
        wire_frame_finish(&frame);
    } while (sequence < wire->sequence);
    cr_assert_eq(wire_until_closed(wire, WIRE_TIMEOUT_MS, NULL), STATUS_OK);
}

Test(half_close, control_connection_is_answered_to_the_end) {
    enum { N = 500 };
    struct wire wire;
    Tensord__GetStatus request = TENSORD__GET_STATUS__INIT;
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_CONTROL);
    for (int i = 0; i < N; i++)
        cr_assert(wire_request(&wire, FRAME_GET_STATUS, &request));
    shutdown(wire.fd, SHUT_WR);
    take_last(&wire, FRAME_STATUS);
    wire_close(&wire);
}

Test(half_close, drain_is_answered) {
    struct wire wire;
    Tensord__Drain request = TENSORD__DRAIN__INIT;
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_CONTROL);
    cr_assert(wire_request(&wire, FRAME_DRAIN, &request));
    shutdown(wire.fd, SHUT_WR);
    take_last(&wire, FRAME_DONE);
    wire_close(&wire);
    cr_assert_eq(daemon_wait(&tensord, WIRE_TIMEOUT_MS), 0);
    daemon_gone(&tensord);
}

static bool is_at_work(const Tensord__Status *status, const void *none) {
    (void)none;
    return status_device(status, "cpu:0")->queue_depth > 10 && status_sessions(status, "cpu:0") == 1;
}

static uint64_t operations_done(void) {
    Tensord__Status *status = status_get(tensord.url);
    uint64_t count = status_device(status, "cpu:0")->ops_total;
    status_free(status);
    return count;
}

/* Seconds of work are pending when the client goes: what of it has not begun does not run, and nothing of it is left. */
static void gone_while_waiting(const char *url, bool half_first) {
    struct wire wire;
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    wire_open(&wire, url, PREAMBLE_TARGET_DEFAULT);
    ask(&wire, work(&wire, SIDE, ROUNDS));
    status_until(tensord.url, is_at_work, NULL, 30000);
    if (half_first) {
        shutdown(wire.fd, SHUT_WR);
        cr_assert_eq(wire_until_closed(&wire, 200, NULL), -1, "it ended without the answer");
    }
    wire_close(&wire);
    cr_assert(status_settles(tensord.url, &baseline, GONE_MS), "memory was not given back");
    cr_assert_lt(operations_done(), ROUNDS, "all of it has run");
}

Test(half_close, client_gone_while_it_waits_leaves_nothing_over_a_unix_socket) {
    gone_while_waiting(tensord.url, false);
}

Test(half_close, client_gone_after_it_ended_its_side_leaves_nothing) {
    gone_while_waiting(tensord.url, true);
}

Test(half_close, client_gone_while_it_waits_leaves_nothing_over_tcp) {
    gone_while_waiting(tensord.tcp, false);
}

Test(half_close, waiting_for_the_answer_costs_no_processor) {
    enum { WATCH_MS = 500 };
    struct wire wire;
    daemon_stop(&tensord);
    daemon_start(&tensord, NULL);
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    int worker = status_worker_pid(tensord.url, "cpu:0");
    /* An answer that does not leave, because nobody reads: the loop has nothing to do but to wait. */
    cr_assert(wire_full(&wire, 1, 1, 16 << 20, 1));
    ask(&wire, 1);
    shutdown(wire.fd, SHUT_WR);
    struct pollfd never = {.fd = -1};
    struct wire_frame frame;
    cr_assert_eq(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    wire_frame_finish(&frame);
    unsigned long long before = daemon_process_cpu_ms(worker);
    poll(&never, 1, WATCH_MS); /* not to wait for something, but to measure over a span */
    unsigned long long spent = daemon_process_cpu_ms(worker) - before;
    cr_assert_lt(spent, WATCH_MS / 3, "the worker used %llu of %d ms", spent, WATCH_MS);
    wire_close(&wire);
}

/* ---- the log ---- */

/* Waits for the end of the only session, whose cause the log gives. */
static void expect_logged(const char *cause) {
    char words[128];
    cr_assert(daemon_log_has(&tensord, "event=session_close", GONE_MS));
    char *log = daemon_log(&tensord), *line = strstr(log, "event=session_close");
    line[strcspn(line, "\n")] = 0;
    snprintf(words, sizeof words, "cause=\"%s\"", cause);
    cr_expect(strstr(line, words), "%s", line);
    free(log);
}

Test(half_close, the_log_says_that_a_client_has_closed) {
    struct wire wire;
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_ping(&wire));
    wire_close(&wire);
    expect_logged("closed by the client");
}

Test(half_close, the_log_says_that_a_client_has_closed_its_side) {
    struct wire wire;
    wire_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_ping(&wire));
    shutdown(wire.fd, SHUT_WR);
    expect_logged("closed by the client");
    wire_close(&wire);
}

Test(half_close, the_log_says_that_a_client_has_closed_which_could_have_come_back) {
    struct client client;
    client_open(&client, tensord.url, "cpu:0");
    client_close(&client);
    expect_logged("closed by the client");
}
