/* Limits of a principal: they hold for all of its sessions together, and for nobody else. In these tests one principal
 * comes over the Unix socket, and another one over TCP. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"
#include "tests/daemon/wire.h"

enum { IDLE_MS = 500 };

static struct daemon tensord;

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(principals, .fini = stop, .timeout = 120);

#define START_ON(devices_, ...)                                                                                        \
    daemon_start(&tensord,                                                                                             \
                 &(struct daemon_options){.devices = devices_,                                                         \
                                          .tcp = "tcp://127.0.0.1:0",                                                  \
                                          .flags = (const char *const[]){__VA_ARGS__, NULL},                           \
                                          .environment = (const char *const[]){"TENSORD_LATE_HANG=tanh", NULL}})
#define START(...) START_ON("cpu:0", __VA_ARGS__)

static const Tensord__PrincipalStatus *principal_of(const Tensord__Status *status, const char *prefix) {
    for (size_t i = 0; i < status->n_principals; i++)
        if (!strncmp(status->principals[i]->name, prefix, strlen(prefix)))
            return status->principals[i];
    return NULL;
}

/* How often this limit has been met, on all devices and in the front. */
static uint64_t limit_met(const Tensord__Status *status, const char *key) {
    uint64_t count = 0;
    for (size_t i = 0; i < status->n_limits_met; i++)
        count += strcmp(status->limits_met[i]->key, key) ? 0 : status->limits_met[i]->count;
    for (size_t d = 0; d < status->n_devices; d++)
        for (size_t i = 0; i < status->devices[d]->n_limits_met; i++)
            count += strcmp(status->devices[d]->limits_met[i]->key, key) ? 0 : status->devices[d]->limits_met[i]->count;
    return count;
}

static bool was_met(const Tensord__Status *status, const void *key) {
    return limit_met(status, key) > 0;
}

static void met(const char *key) {
    status_until(tensord.tcp, was_met, key, 30000);
}

/* ---- memory ---- */

Test(principals, memory_of_all_sessions_counts_together) {
    struct client a, b, other;
    START("--principal-bytes", "1M");
    client_open(&a, tensord.url, NULL);
    client_open(&b, tensord.url, NULL);
    client_open(&other, tensord.tcp, NULL);
    cr_assert(!td_wait(td_full(a.device, TD_U8, TD_SHAPE(600 << 10), 1)), "%s", td_last_error()->message);
    const td_error *error = client_expect_failure(td_full(b.device, TD_U8, TD_SHAPE(600 << 10), 1), TD_E_LIMIT);
    cr_assert(strstr(error->message, "the limit of uid:") && strstr(error->message, "600 KiB live in 2 sessions"), "%s",
              error->message);
    cr_assert(!td_wait(td_full(other.device, TD_U8, TD_SHAPE(1 << 20), 1)), "%s", td_last_error()->message);
    met("principal-bytes");
    client_close(&a);
    int64_t deadline = deadline_in(30000);
    while (td_wait(td_full(b.device, TD_U8, TD_SHAPE(600 << 10), 1)))
        cr_assert(deadline_pause(deadline), "no room after a session has ended: %s", td_last_error()->message);
    client_close(&b);
    client_close(&other);
}

/* ---- sessions and connections ---- */

static int session_refused(const char *url, uint16_t target, char *message) {
    struct wire wire;
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "tests 1";
    wire_connect(&wire, url, target);
    wire_request(&wire, FRAME_HELLO, &hello);
    int code = wire_until_closed(&wire, WIRE_TIMEOUT_MS, message);
    wire_close(&wire);
    return code;
}

static bool has_no_session(const Tensord__Status *status, const void *prefix) {
    const Tensord__PrincipalStatus *principal = principal_of(status, prefix);
    return !principal || principal->connections == 0;
}

Test(principals, sessions_count_over_all_devices) {
    struct wire wires[2], other;
    char message[256] = "";
    START_ON("cpu:0,cpu:1", "--principal-sessions", "2");
    wire_open(&wires[0], tensord.url, DAEMON_TARGET_CPU0);
    wire_open(&wires[1], tensord.url, DAEMON_TARGET_CPU1);
    for (uint16_t target = 0; target < 2; target++) {
        cr_assert_eq(session_refused(tensord.url, target, message), STATUS_LIMIT, "%s", message);
        cr_assert(strstr(message, "has 2 sessions, and may have no more (principal-sessions)"), "%s", message);
    }
    wire_open(&other, tensord.tcp, DAEMON_TARGET_CPU0);
    met("principal-sessions");
    wire_close(&wires[0]);
    wire_close(&wires[1]);
    status_until(tensord.tcp, has_no_session, "uid:", 30000);
    wire_open(&wires[0], tensord.url, DAEMON_TARGET_CPU1);
    cr_assert(wire_ping(&wires[0]) && wire_ping(&other));
    wire_close(&wires[0]);
    wire_close(&other);
}

Test(principals, connections_of_every_kind_count) {
    struct wire device, control, silent, second, again, other;
    char message[256] = "";
    START("--principal-connections", "3");
    wire_open(&device, tensord.url, PREAMBLE_TARGET_DEFAULT);
    wire_open(&control, tensord.url, PREAMBLE_TARGET_CONTROL);
    cr_assert(wire_dial(&silent, tensord.url)); /* has not said for whom it is */
    wire_open(&second, tensord.url, PREAMBLE_TARGET_CONTROL);
    cr_assert_eq(wire_until_closed(&silent, WIRE_TIMEOUT_MS, message), STATUS_LIMIT, "it gives its place up");
    cr_assert(wire_dial(&again, tensord.url));
    wire_preamble(&again, PREAMBLE_TARGET_DEFAULT);
    cr_assert_eq(wire_until_closed(&again, WIRE_TIMEOUT_MS, message), STATUS_LIMIT, "%s", message);
    cr_assert(strstr(message, "has 3 connections, and may have no more (principal-connections)"), "%s", message);
    wire_close(&again);
    wire_open(&other, tensord.tcp, PREAMBLE_TARGET_DEFAULT);
    met("principal-connections");
    cr_assert(wire_ping(&device) && wire_ping(&control) && wire_ping(&other));
    wire_close(&silent);
    wire_close(&second);
    wire_close(&device);
    wire_close(&control);
    status_until(tensord.tcp, has_no_session, "uid:", 30000);
    wire_open(&again, tensord.url, PREAMBLE_TARGET_DEFAULT);
    wire_close(&again);
    wire_close(&other);
}

Test(principals, a_worker_that_dies_takes_its_sessions_off_the_account) {
    struct wire wire;
    struct status_is ready = {.device = "cpu:0", .state = "ready", .epoch = 2};
    START("--principal-sessions", "1");
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    kill(status_worker_pid(tensord.tcp, "cpu:0"), SIGKILL);
    status_until(tensord.tcp, status_device_is, &ready, 30000);
    wire_close(&wire);
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    cr_assert(wire_ping(&wire));
    wire_close(&wire);
}

/* ---- logins ---- */

/* Strangers share no principal's places; a login counts for whom it turns out to be, on both kinds of connection. */
Test(principals, a_login_counts_for_whom_it_turns_out_to_be) {
    enum { STRANGERS = 5 };
    struct users_file file;
    struct wire strangers[STRANGERS], hers, control, his, again;
    char alice[USERS_TOKEN_BYTES], bob[USERS_TOKEN_BYTES], message[256] = "";
    users_file_make(&file);
    users_file_add(&file, "alice", "run", alice);
    users_file_add(&file, "bob", "run", bob);
    START("--users", file.path, "--principal-sessions", "1", "--principal-connections", "2");
    for (int i = 0; i < STRANGERS; i++)
        wire_connect(&strangers[i], tensord.tcp, i % 2 ? PREAMBLE_TARGET_DEFAULT : PREAMBLE_TARGET_CONTROL);
    cr_assert_eq(users_open(&hers, tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, message), STATUS_OK, "%s", message);
    cr_assert_eq(users_open(&again, tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, message), STATUS_LIMIT);
    cr_assert(strstr(message, "alice has 1 session"), "%s", message);
    cr_assert_eq(users_open(&his, tensord.tcp, PREAMBLE_TARGET_DEFAULT, bob, message), STATUS_OK, "%s", message);
    cr_assert_eq(users_open(&control, tensord.tcp, PREAMBLE_TARGET_CONTROL, alice, message), STATUS_OK, "%s", message);
    cr_assert_eq(users_open(&again, tensord.tcp, PREAMBLE_TARGET_CONTROL, alice, message), STATUS_LIMIT);
    cr_assert(strstr(message, "alice has 2 connections"), "%s", message);
    wire_close(&hers);
    int64_t deadline = deadline_in(30000);
    while (users_open(&hers, tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, message))
        cr_assert(deadline_pause(deadline), "no room after a session has ended: %s", message);
    cr_assert(wire_ping(&hers) && wire_ping(&his) && wire_ping(&control));
    wire_close(&hers);
    wire_close(&his);
    wire_close(&control);
    for (int i = 0; i < STRANGERS; i++)
        wire_close(&strangers[i]);
    users_file_remove(&file);
}

/* ---- operations in flight ---- */

/* Tensor 1, and an operation behind which all others of the session wait for ever. */
static void hang(struct wire *wire) {
    cr_assert(wire_full(wire, 1, 1, 16, 1));
    cr_assert(wire_op(wire, &(struct wire_op){.opcode = OP_TANH, .output = 2, .sequence = 2, WIRE_INPUTS(1)}));
}

/* As much of it as is taken before nothing moves for `idle_ms`. */
static bool flood(struct wire *wire, uint64_t first, uint64_t n, int idle_ms) {
    struct wire_buffer buffer = {0};
    for (uint64_t i = first; i < first + n; i++)
        wire_buffer_op(&buffer, &(struct wire_op){.opcode = OP_ADD, .output = i, .sequence = i, WIRE_INPUTS(1, 1)});
    bool all = wire_write_some(wire, buffer.bytes, buffer.n, idle_ms) == buffer.n;
    wire_buffer_finish(&buffer);
    return all;
}

static uint64_t queued_of(const Tensord__Status *status, const char *prefix) {
    const Tensord__PrincipalStatus *principal = principal_of(status, prefix);
    return principal && principal->n_devices ? principal->devices[0]->ops_queued : 0;
}

static bool is_held(const Tensord__Status *status, const void *limit) {
    cr_assert_leq(queued_of(status, "uid:"), *(const uint64_t *)limit + 4, "more in flight than may be");
    return limit_met(status, "principal-operations") >= 2;
}

Test(principals, operations_in_flight_of_all_sessions_count_together) {
    struct wire greedy, modest, other;
    uint64_t limit = 200;
    struct wire_frame frame;
    START_ON("late:0", "--principal-operations", "200", "--drain-timeout", "200ms");
    wire_open(&greedy, tensord.url, PREAMBLE_TARGET_DEFAULT);
    wire_open(&modest, tensord.url, PREAMBLE_TARGET_DEFAULT);
    wire_open(&other, tensord.tcp, PREAMBLE_TARGET_DEFAULT);
    hang(&greedy);
    cr_assert(!flood(&greedy, 3, 100000, IDLE_MS), "all of it was taken");
    Tensord__Sync sync = TENSORD__SYNC__INIT;
    cr_assert(wire_full(&modest, 1, 1, 16, 1));
    cr_assert(flood(&modest, 2, 100, WIRE_TIMEOUT_MS)); /* its socket takes so much */
    cr_assert(wire_request(&modest, FRAME_SYNC, &sync));
    status_until(tensord.tcp, is_held, &limit, 30000);
    cr_assert(wire_full(&other, 1, 1, 16, 1)); /* somebody else's are another matter */
    cr_assert(flood(&other, 2, 1000, WIRE_TIMEOUT_MS));
    cr_assert(wire_request(&other, FRAME_SYNC, &sync));
    cr_assert_eq(wire_receive(&other, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_DONE);
    wire_frame_finish(&frame);
    cr_assert_eq(wire_receive(&modest, &frame, IDLE_MS), WIRE_SILENT, "it was not held");
    wire_close(&greedy);
    cr_assert_eq(wire_receive(&modest, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME, "it was forgotten");
    cr_assert_eq(frame.header.type, FRAME_DONE);
    wire_frame_finish(&frame);
    wire_close(&modest);
    wire_close(&other);
}

/* ---- bytes a second ---- */

Test(principals, bytes_beyond_the_rate_wait_in_the_socket) {
    enum { BYTES = 3 << 20 };
    struct wire greedy;
    struct client other;
    Tensord__Upload upload = TENSORD__UPLOAD__INIT;
    struct wire_buffer buffer = {0};
    START("--principal-rate", "1K");
    wire_open(&greedy, tensord.url, PREAMBLE_TARGET_DEFAULT);
    upload.id = upload.sequence = 1;
    upload.dtype = DTYPE_U8;
    upload.n_shape = 1;
    upload.shape = (int64_t[]){BYTES};
    upload.label = "";
    void *data = calloc(BYTES, 1);
    wire_buffer_frame(&buffer, FRAME_UPLOAD, 0, &upload, data, BYTES);
    size_t sent = wire_write_some(&greedy, buffer.bytes, buffer.n, IDLE_MS);
    cr_assert_lt(sent, buffer.n, "all of it was taken at once");
    met("principal-rate");
    client_open(&other, tensord.tcp, NULL); /* its own allowance is enough for this */
    client_expect(client_ramp(other.device, 3, 1), (float[]){1, 2, 3}, 3);
    client_close(&other);
    wire_close(&greedy);
    wire_buffer_finish(&buffer);
    free(data);
}

static bool has_passed(const Tensord__Status *status, const void *bytes) {
    const Tensord__PrincipalStatus *principal = principal_of(status, "uid:");
    return principal && principal->rate_limit == 8 << 20 && principal->devices[0]->bytes >= *(const uint64_t *)bytes;
}

Test(principals, what_the_rate_holds_back_is_not_lost) {
    enum { COUNT = 2, BYTES = 3 << 20 };
    struct client clients[COUNT];
    unsigned char *data = malloc(BYTES), *got = malloc(BYTES);
    td_tensor *tensors[COUNT];
    START("--principal-rate", "8M");
    client_noise(data, BYTES, 1);
    for (int i = 0; i < COUNT; i++) {
        client_open(&clients[i], tensord.url, NULL);
        tensors[i] = td_upload(clients[i].device, TD_U8, TD_SHAPE(BYTES), data);
        cr_assert_not_null(tensors[i], "%s", td_last_error()->message);
    }
    for (int i = 0; i < COUNT; i++) {
        cr_assert(!td_fetch(tensors[i], got, BYTES), "%s", td_last_error()->message);
        cr_assert(!memcmp(data, got, BYTES));
    }
    met("principal-rate");
    uint64_t all = 2 * COUNT * BYTES;
    status_until(tensord.tcp, has_passed, &all, 30000);
    for (int i = 0; i < COUNT; i++)
        client_close(&clients[i]);
    free(data);
    free(got);
}

/* ---- time ---- */

Test(principals, sessions_that_nobody_uses_are_closed_and_those_that_wait_are_not) {
    struct wire waiting, idle;
    char message[256] = "";
    START_ON("late:0", "--idle-timeout", "900ms", "--drain-timeout", "200ms");
    wire_open(&waiting, tensord.url, PREAMBLE_TARGET_DEFAULT);
    hang(&waiting); /* something is queued */
    wire_open(&idle, tensord.url, PREAMBLE_TARGET_DEFAULT);
    cr_assert_eq(wire_until_closed(&idle, WIRE_TIMEOUT_MS, message), STATUS_TIMED_OUT, "%s", message);
    cr_assert_str_eq(message, "the session was not used for 900 ms (idle-timeout)");
    cr_assert(wire_ping(&waiting), "one that waits was closed");
    met("idle-timeout");
    wire_close(&waiting);
    wire_close(&idle);
}

Test(principals, a_ping_is_no_use_of_a_session) {
    struct wire wire;
    START("--idle-timeout", "300ms");
    wire_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT);
    int64_t deadline = deadline_in(30000);
    while (wire_ping(&wire))
        cr_assert(deadline_pause(deadline), "Pings keep it open");
    wire_close(&wire);
}

/* ---- what status tells ---- */

static bool shows_two(const Tensord__Status *status, const void *none) {
    const Tensord__PrincipalStatus *principal = principal_of(status, "uid:");
    (void)none;
    return principal && principal->sessions == 2 && principal->devices[0]->live >= 2 << 20;
}

Test(principals, status_tells_what_they_have_and_may) {
    struct client clients[2];
    START_ON("cpu:0,cpu:1", "--principal-bytes", "64M", "--principal-sessions", "5", "--weight", "250",
             "--session-bytes", "32M", "--idle-timeout", "90s");
    for (int i = 0; i < 2; i++) {
        client_open(&clients[i], tensord.url, "cpu:0");
        cr_assert(!td_wait(td_full(clients[i].device, TD_U8, TD_SHAPE(1 << 20), 1)));
    }
    status_until(tensord.tcp, shows_two, NULL, 30000);
    Tensord__Status *status = status_get(tensord.tcp);
    const Tensord__PrincipalStatus *principal = principal_of(status, "uid:");
    cr_assert_eq(principal->connections, 4, "%u",
                 principal->connections); /* each client has one to the front as well */
    cr_assert_eq(principal->connections_limit, 0);
    cr_assert_eq(principal->sessions_limit, 5);
    cr_assert_eq(principal->weight, 250);
    cr_assert_eq(principal->idle_timeout_s, 90);
    cr_assert_eq(principal->n_devices, 1);
    cr_assert_str_eq(principal->devices[0]->device, "cpu:0");
    cr_assert_eq(principal->devices[0]->live, 2 << 20);
    cr_assert_eq(principal->devices[0]->live_limit, 64 << 20);
    cr_assert_eq(principal->devices[0]->ops_limit, 1 << 20);
    cr_assert_eq(status->sessions[0]->live_limit, 32 << 20);
    cr_assert_eq(status->sessions[0]->ops_limit, 65536);
    cr_assert_not_null(principal_of(status, "tcp")); /* who asks */
    cr_assert_eq(status->n_limits_met + status->devices[0]->n_limits_met, 0);
    status_free(status);
    client_close(&clients[0]);
    client_close(&clients[1]);
}
