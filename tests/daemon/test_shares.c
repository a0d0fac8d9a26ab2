/* What one principal can take by default, and what is left for others and for the operator. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"

enum { WAIT_MS = 30000 };

static struct daemon tensord;

static void stop(void) {
    daemon_stop(&tensord);
}
TestSuite(shares, .fini = stop, .timeout = 120);

/* Over TCP everybody is the principal "tcp" with the role run; the Unix socket's peer is an admin. */
#define START(...)                                                                                                     \
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://127.0.0.1:0",                                        \
                                                    .flags = (const char *const[]){__VA_ARGS__, NULL}})

static int open_one(struct wire *wire, uint16_t target, char *message) {
    return users_open(wire, tensord.tcp, target, "", message);
}

/* The operator looks, and kills what is not there, from the command line. */
static void expect_operator(void) {
    struct command command;
    command_run(&command, (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "status", NULL},
                NULL, WAIT_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
    command_finish(&command);
    command_run(&command,
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "kill", "999999", NULL},
                NULL, WAIT_MS);
    cr_assert(strstr(command.err, "999999"), "%s", command.err);
    command_finish(&command);
}

/* Maybe a moment later: those that make room have some time for their Hello. */
static void expect_session(const char *url) {
    int64_t deadline = deadline_in(WAIT_MS);
    struct wire wire;
    char message[256] = "";
    int code;
    while ((code = users_open(&wire, url, DAEMON_TARGET_CPU0, "", message)) != STATUS_OK && deadline_pause(deadline))
        continue;
    cr_assert_eq(code, STATUS_OK, "%s: %d %s", url, code, message);
    wire_close(&wire);
}

Test(shares, a_principal_has_a_quarter_of_a_device_s_sessions) {
    enum { SESSIONS = 32 };
    struct wire wires[SESSIONS];
    char message[256] = "";
    int n = 0, code = STATUS_OK;
    START("--max-sessions", "32");
    while (n < SESSIONS && !(code = open_one(&wires[n], DAEMON_TARGET_CPU0, message)))
        n++;
    cr_assert_eq(n, SESSIONS / 4, "%d sessions, then %s", n, message);
    cr_assert(code == STATUS_LIMIT && strstr(message, "principal-sessions"), "%d %s", code, message);
    expect_session(tensord.url);
    while (n)
        wire_close(&wires[--n]);
}

Test(shares, more_than_a_quarter_can_be_asked_for) {
    enum { SESSIONS = 8 };
    struct wire wires[SESSIONS];
    char message[256] = "";
    int n = 0, code = STATUS_OK;
    START("--max-sessions", "8", "--principal-sessions", "0");
    while (n < SESSIONS && !(code = open_one(&wires[n], DAEMON_TARGET_CPU0, message)))
        n++;
    cr_assert_eq(n, SESSIONS, "%d sessions, then %s", n, message);
    while (n)
        wire_close(&wires[--n]);
}

/* Hello, then silence: clients hold such connections, so the ones that were quiet for longest make room for others. */
Test(shares, idle_control_connections_keep_nobody_out) {
    enum { MANY = 300 };
    static struct wire wires[MANY];
    char message[256] = "";
    START("--principal-connections", "0");
    for (int i = 0; i < MANY; i++)
        cr_assert_eq(open_one(&wires[i], PREAMBLE_TARGET_CONTROL, message), STATUS_OK, "%d: %s", i, message);
    expect_operator();
    cr_assert(wire_ping(&wires[MANY - 1]), "the newest is there");
    cr_assert(!wire_ping(&wires[0]), "the oldest has made room");
    for (int i = 0; i < MANY; i++)
        wire_close(&wires[i]);
}

/* Preambles without Hello, more than there are places. */
Test(shares, connections_without_hello_keep_nobody_out) {
    enum { MANY = 200 };
    static struct wire wires[MANY];
    START("--max-connections", "32", "--hello-timeout", "60s");
    for (int i = 0; i < MANY; i++) {
        cr_assert(wire_dial(&wires[i], tensord.tcp));
        wire_preamble(&wires[i], i % 2 ? DAEMON_TARGET_CPU0 : PREAMBLE_TARGET_CONTROL);
    }
    expect_operator();
    expect_session(tensord.url);
    expect_session(tensord.tcp);
    for (int i = 0; i < MANY; i++)
        wire_close(&wires[i]);
}

Test(shares, an_admin_finds_a_place_where_all_are_taken) {
    enum { PLACES = 8 };
    struct wire wires[PLACES], wire;
    char message[256] = "";
    int n = 0;
    START("--max-connections", "8");
    while (n < PLACES && !users_open(&wires[n], tensord.url, DAEMON_TARGET_CPU0, "", message))
        n++;
    cr_assert_eq(n, PLACES, "%s", message);
    cr_assert_eq(users_open(&wire, tensord.url, DAEMON_TARGET_CPU0, "", message), STATUS_LIMIT);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_CONTROL, "", message), STATUS_LIMIT,
                 "that is no admin");
    expect_operator();
    while (n)
        wire_close(&wires[--n]);
}

/* An admin who has to show a token first is nobody until then. */
Test(shares, an_admin_with_a_token_finds_a_place_where_all_are_taken) {
    enum { PLACES = 8 };
    struct users_file users;
    struct wire wires[PLACES], wire;
    char boss[USERS_TOKEN_BYTES], alice[USERS_TOKEN_BYTES], message[256] = "";
    int n = 0;
    users_file_make(&users);
    users_file_add(&users, "boss", "admin", boss);
    users_file_add(&users, "alice", "run", alice);
    START("--max-connections", "8", "--users", users.path);
    while (n < PLACES && !users_open(&wires[n], tensord.url, DAEMON_TARGET_CPU0, "", message))
        n++;
    cr_assert_eq(n, PLACES, "%s", message);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_CONTROL, alice, message), STATUS_LIMIT, "%s", message);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_CONTROL, boss, message), STATUS_OK, "%s", message);
    wire_close(&wire);
    while (n)
        wire_close(&wires[--n]);
    users_file_remove(&users);
}

static int oom_score(int pid) {
    char path[64];
    int score = -9999;
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", pid);
    FILE *stream = fopen(path, "r");
    cr_assert(stream && fscanf(stream, "%d", &score) == 1);
    fclose(stream);
    return score;
}

static uint64_t device_memory(const char *name) {
    Tensord__Status *status = status_get(tensord.url);
    uint64_t total = status_device(status, name)->memory_total;
    status_free(status);
    return total;
}

/* Of the host: its processes, and what its CPU devices may take together. */
Test(shares, workers_go_before_the_front_and_cpu_devices_share_the_host_s_memory) {
    daemon_start(&tensord, NULL);
    uint64_t alone = device_memory("cpu:0");
    cr_assert_gt(oom_score(status_worker_pid(tensord.url, "cpu:0")), oom_score(tensord.pid));
    daemon_stop(&tensord);
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1"});
    uint64_t together = device_memory("cpu:0") + device_memory("cpu:1");
    cr_assert(together <= alone && together + 2 >= alone, "%lu, and %lu alone", together, alone);
}
