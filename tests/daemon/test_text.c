/* Text that comes from clients stays text wherever it is shown, and what a session's work is called is its owner's. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "proto/ops/utf8.h"
#include "tests/daemon/command.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/http.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"

enum { WAIT_MS = 30000 };

/* Commands of terminals, a C1 control, both kinds of separators, and what turns the direction of text. */
static const char evil[] = "\x1b]0;x\x07\x1b[31m\xc2\x9b"
                           "31m\r\n\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xae\xe2\x81\xa6\x7f";
static const char evil_name[] = "a\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8";

static struct daemon tensord;
static unsigned port;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--http", "127.0.0.1:0", NULL}});
    port = http_port(&tensord);
}
static void stop(void) {
    daemon_stop(&tensord);
}
TestSuite(text, .init = start, .fini = stop, .timeout = 120);

static void expect_text(const char *what, const char *text) {
    for (const char *at = text; *at;) {
        const char *before = at;
        uint32_t rune = utf8_next(&at);
        cr_assert(rune == '\n' || !utf8_is_unsafe(rune), "%s: U+%04X in %.200s", what, rune, text);
        cr_assert(rune != 0xfffd || at == before + 3, "%s: no UTF-8 in %.200s", what, text);
    }
}

static void expect_command(const char *const *words) {
    struct command command;
    const char *arguments[12] = {daemon_program("TENSORCTL_EXE"), "--url", tensord.url};
    for (int n = 3; *words; n++, words++)
        arguments[n] = *words;
    command_run(&command, arguments, NULL, WAIT_MS);
    expect_text(arguments[3], command.out);
    expect_text(arguments[3], command.err);
    command_finish(&command);
}

/* A session of that name, with a failure and an operation of that label, and a tensor of such a name. */
static void open_evil(struct wire *wire) {
    const struct wire_op fails = {.opcode = OP_TANH, .output = 2, .sequence = 2, WIRE_INPUTS(99), .label = evil};
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    Tensord__Publish publish = TENSORD__PUBLISH__INIT;
    struct wire_frame frame;
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = (char *)evil;
    wire_connect(wire, tensord.url, DAEMON_TARGET_CPU0);
    cr_assert(wire_request(wire, FRAME_HELLO, &hello));
    cr_assert_eq(wire_receive(wire, &frame, WAIT_MS), WIRE_FRAME);
    wire_frame_finish(&frame);
    cr_assert(wire_full(wire, 1, 1, 4, 1) && wire_op(wire, &fails));
    publish.ids = (uint64_t[]){1};
    publish.names = (char *[]){(char *)evil_name};
    publish.n_ids = publish.n_names = 1;
    cr_assert(wire_request(wire, FRAME_PUBLISH, &publish));
    cr_assert_eq(wire_receive(wire, &frame, WAIT_MS), WIRE_FRAME);
    wire_frame_finish(&frame);
}

static bool has_label(const Tensord__Status *status, const void *argument) {
    (void)argument;
    return status->n_sessions == 1 && *status->sessions[0]->label;
}

Test(text, nothing_that_clients_say_is_more_than_text) {
    static const char *const commands[][6] = {
        {"status"},
        {"status", "--json"},
        {"sessions"},
        {"sessions", "--json"},
        {"names", "cpu:0"},
        {"names", "cpu:0", "--json"},
        {"top", "--batch", "--count", "1"},
        {"kill", "77", "--reason", evil},
        {evil},
    };
    static const char *const paths[] = {"/metrics", "/status.json", "/history.json", "/"};
    struct wire wire;
    struct http_reply reply;
    open_evil(&wire);
    status_until(tensord.url, has_label, NULL, WAIT_MS);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        expect_command(commands[i]);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        http_get(port, paths[i], NULL, &reply);
        expect_text(paths[i], reply.body);
        http_reply_finish(&reply);
    }
    wire_close(&wire);
    cr_assert(daemon_log_has(&tensord, "event=session_close", WAIT_MS));
    char *log = daemon_log(&tensord);
    expect_text("log", log);
    free(log);
}

/* What the same session's label is to somebody who comes as this. */
static void expect_label(const char *url, const char *token, const char *label) {
    Tensord__GetStatus get = TENSORD__GET_STATUS__INIT;
    struct wire wire;
    struct wire_frame frame;
    cr_assert_eq(users_open(&wire, url, PREAMBLE_TARGET_CONTROL, token, NULL), STATUS_OK);
    cr_assert(wire_request(&wire, FRAME_GET_STATUS, &get));
    cr_assert_eq(wire_receive(&wire, &frame, WAIT_MS), WIRE_FRAME);
    Tensord__Status *status = tensord__status__unpack(NULL, frame.header.message_bytes, frame.message);
    cr_assert(status && status->n_sessions == 1);
    cr_assert_str_eq(status->sessions[0]->label, label);
    cr_assert_eq(!*status->sessions[0]->last_failure, !*label, "%s", status->sessions[0]->last_failure);
    tensord__status__free_unpacked(status, NULL);
    wire_frame_finish(&frame);
    wire_close(&wire);
}

static void expect_json_label(const char *token, bool seen) {
    char headers[256];
    struct http_reply reply;
    snprintf(headers, sizeof headers, "Host: localhost\r\nAuthorization: Bearer %s\r\n", token);
    http_get(port, "/status.json", headers, &reply);
    cr_assert_eq(reply.code, 200);
    cr_assert_eq(!!strstr(reply.body, "secret plan"), seen, "%s", reply.body);
    http_reply_finish(&reply);
}

Test(text, labels_and_failures_are_shown_to_their_owner_and_to_admins) {
    const struct wire_op fails = {
        .opcode = OP_TANH, .output = 1, .sequence = 1, WIRE_INPUTS(99), .label = "secret plan"};
    struct users_file users;
    char alice[USERS_TOKEN_BYTES], bob[USERS_TOKEN_BYTES], watch[USERS_TOKEN_BYTES], boss[USERS_TOKEN_BYTES];
    struct wire wire;
    daemon_stop(&tensord);
    users_file_make(&users);
    users_file_add(&users, "alice", "run", alice);
    users_file_add(&users, "bob", "run", bob);
    users_file_add(&users, "watch", "observe", watch);
    users_file_add(&users, "boss", "admin", boss);
    daemon_start(&tensord, &(struct daemon_options){
                               .tcp = "tcp://127.0.0.1:0",
                               .flags = (const char *const[]){"--http", "127.0.0.1:0", "--users", users.path, NULL}});
    port = http_port(&tensord);
    cr_assert_eq(users_open(&wire, tensord.tcp, DAEMON_TARGET_CPU0, alice, NULL), STATUS_OK);
    cr_assert(wire_op(&wire, &fails));
    status_until(tensord.url, has_label, NULL, WAIT_MS);
    expect_label(tensord.tcp, alice, "secret plan");
    expect_label(tensord.tcp, boss, "secret plan");
    expect_label(tensord.tcp, bob, "");
    expect_label(tensord.tcp, watch, "");
    expect_json_label(watch, false);
    expect_json_label(boss, true);
    expect_json_label(watch, false);
    wire_close(&wire);
    users_file_remove(&users);
}

/* ---- how much of it the log takes ---- */

static unsigned count(const char *text, const char *what) {
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

Test(text, whoever_comes_again_and_again_does_not_fill_the_log) {
    enum { TIMES = 600, LINES_MAX = 250 };
    for (int i = 0; i < TIMES; i++) {
        struct wire wire;
        cr_assert(wire_dial(&wire, tensord.url));
        cr_assert(i % 2 ? wire_write(&wire, "GET / HT", 8) : wire_preamble(&wire, 77));
        cr_assert_geq(wire_until_closed(&wire, WAIT_MS, NULL), 0);
        wire_close(&wire);
    }
    char *log = daemon_log(&tensord);
    unsigned lines = count(log, "event=connection_refused");
    free(log);
    cr_assert(lines > 0 && lines < LINES_MAX, "%u lines of %d connections", lines, TIMES);
}

/* A worker without descriptors refuses each connection. */
Test(text, whoever_is_refused_by_a_worker_again_and_again_does_not_fill_the_log) {
    enum { TIMES = 600 };
    struct rlimit few, before;
    pid_t worker = status_worker_pid(tensord.url, "cpu:0");
    cr_assert_eq(prlimit(worker, RLIMIT_NOFILE, NULL, &before), 0);
    few = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
    for (int i = 0; i < TIMES; i++) {
        struct wire wire;
        cr_assert_eq(prlimit(worker, RLIMIT_NOFILE, &few, NULL),
                     0); /* again: at its start a worker sets its own limit */
        cr_assert(wire_dial(&wire, tensord.url));
        cr_assert(wire_preamble(&wire, DAEMON_TARGET_CPU0));
        cr_assert_geq(wire_until_closed(&wire, WAIT_MS, NULL), 0);
        wire_close(&wire);
    }
    cr_assert_eq(prlimit(worker, RLIMIT_NOFILE, &before, NULL), 0);
    cr_assert(daemon_log_has(&tensord, "event=log_suppressed", WAIT_MS));
    char *log = daemon_log(&tensord);
    unsigned lines = count(log, "event=connection_failed");
    free(log);
    cr_assert(lines > 0 && lines < TIMES, "%u lines of %d connections", lines, TIMES);
}
