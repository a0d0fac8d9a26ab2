/* Who may connect, and as whom: tokens, uids, and what the start refuses. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/http.h"
#include "tests/daemon/json.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"

enum { RUN_MS = 30000 };

static struct users_file file;
static struct daemon tensord;
static char alice[USERS_TOKEN_BYTES], bob[USERS_TOKEN_BYTES];

static const uint16_t targets[] = {PREAMBLE_TARGET_CONTROL, PREAMBLE_TARGET_DEFAULT};

/* A daemon with alice, who may run, and bob, who may observe. */
static void start_with(const char *const *environment) {
    users_file_make(&file);
    users_file_add(&file, "alice", "run", alice);
    users_file_add(&file, "bob", "observe", bob);
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://127.0.0.1:0",
                                                    .environment = environment,
                                                    .flags = (const char *const[]){"--users", file.path, NULL}});
}

static void start(void) {
    start_with(NULL);
}
static void stop(void) {
    daemon_stop(&tensord);
    users_file_remove(&file);
}
TestSuite(users, .init = start, .fini = stop, .timeout = 60);
TestSuite(users_start, .timeout = 60);

/* ---- tokens ---- */

Test(users, the_right_token_opens_both_kinds_of_connection) {
    struct wire wire;
    for (unsigned i = 0; i < 2; i++) {
        cr_assert_eq(users_open(&wire, tensord.tcp, targets[i], alice, NULL), STATUS_OK, "target %x", targets[i]);
        cr_assert(wire_ping(&wire));
        wire_close(&wire);
    }
}

Test(users, other_tokens_open_none) {
    static char spoilt[USERS_TOKEN_BYTES], unknown[USERS_TOKEN_BYTES];
    struct wire wire;
    char message[256];
    users_token_spoil(alice, spoilt);
    memcpy(unknown, alice, sizeof unknown);
    memcpy(unknown + 8, strncmp(alice + 8, "00000000", 8) ? "00000000" : "00000001", 8);
    const char *const wrong[] = {spoilt, unknown, "x", "tensord_"};
    for (unsigned i = 0; i < 2; i++) {
        cr_assert_eq(users_open(&wire, tensord.tcp, targets[i], "", message), STATUS_DENIED);
        cr_assert(strstr(message, "TENSORD_TOKEN"), "%s", message);
        for (unsigned k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            cr_assert_eq(users_open(&wire, tensord.tcp, targets[i], wrong[k], message), STATUS_DENIED);
            cr_assert_str_eq(message, "the token is not valid");
        }
    }
}

Test(users, a_wrong_token_on_a_unix_socket_is_not_made_up_for_by_the_uid) {
    static char spoilt[USERS_TOKEN_BYTES];
    struct wire wire;
    users_token_spoil(alice, spoilt);
    for (unsigned i = 0; i < 2; i++)
        cr_assert_eq(users_open(&wire, tensord.url, targets[i], spoilt, NULL), STATUS_DENIED);
}

/* The only session there is belongs to this principal. */
static bool only_session_is(const Tensord__Status *status, const void *argument) {
    const char *const *wanted = argument; /* principal, role, credential */
    if (status->n_sessions != 1)
        return false;
    cr_assert_str_eq(status->sessions[0]->principal, wanted[0]);
    cr_assert_str_eq(status->sessions[0]->role, wanted[1]);
    cr_assert_str_eq(status->sessions[0]->credential, wanted[2]);
    return true;
}

Test(users, a_token_on_a_unix_socket_wins_over_the_uid) {
    struct wire wire;
    char uid[24];
    cr_assert_eq(users_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT, alice, NULL), STATUS_OK);
    status_until(tensord.url, only_session_is, (const char *const[]){"alice", "run", users_token_id(alice)}, RUN_MS);
    wire_close(&wire);
    struct status_baseline none = {"cpu:0", 0, 0};
    cr_assert(status_settles(tensord.url, &none, RUN_MS));
    cr_assert_eq(users_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT, "", NULL), STATUS_OK);
    snprintf(uid, sizeof uid, "uid:%u", getuid());
    status_until(tensord.url, only_session_is, (const char *const[]){uid, "admin", uid}, RUN_MS);
    wire_close(&wire);
}

Test(users, the_library_takes_the_token_of_its_options_of_a_variable_or_of_a_file) {
    char path[128], spoilt[USERS_TOKEN_BYTES];
    td_connection *connection;
    td_device *device;
    float one;
    users_token_spoil(alice, spoilt);
    snprintf(path, sizeof path, "%s/token", file.directory);
    FILE *out = fopen(path, "w");
    fprintf(out, "\n  %s \n", alice);
    fclose(out);
    for (int way = 0; way < 3; way++) {
        setenv("TENSORD_TOKEN_FILE", way == 2 ? path : "/nonexistent", 1);
        way == 1   ? setenv("TENSORD_TOKEN", alice, 1)
        : way == 0 ? setenv("TENSORD_TOKEN", spoilt, 1)
                   : unsetenv("TENSORD_TOKEN");
        td_options options = {.token = way == 0 ? alice : NULL};
        cr_assert_eq(td_connect(tensord.tcp, &options, &connection), 0, "way %d: %s", way, td_last_error()->message);
        cr_assert_eq(td_device_open(connection, NULL, &device), 0, "way %d: %s", way, td_last_error()->message);
        cr_assert_eq(td_fetch(td_full(device, TD_F32, TD_SCALAR, 1), &one, sizeof one), 0);
        td_close(connection);
    }
    unsetenv("TENSORD_TOKEN_FILE");
    cr_assert_eq(td_connect(tensord.tcp, &(td_options){.token = ""}, &connection), TD_E_DENIED);
    cr_assert(strstr(td_last_error()->message, "a token is needed"), "%s", td_last_error()->message);
}

Test(users, the_library_says_what_is_wrong_with_a_token_of_its_own_accord) {
    td_connection *connection;
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    cr_assert_eq(td_connect(tensord.tcp, &(td_options){.token = "two words"}, &connection), TD_E_INVALID_ARGUMENT);
    cr_assert_eq(td_connect(tensord.tcp, &(td_options){.token = text}, &connection), TD_E_INVALID_ARGUMENT);
    setenv("TENSORD_TOKEN_FILE", "/nonexistent", 1);
    cr_assert_eq(td_connect(tensord.tcp, NULL, &connection), TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(td_last_error()->message, "/nonexistent"), "%s", td_last_error()->message);
    setenv("TENSORD_TOKEN_FILE", "/dev/null", 1);
    cr_assert_eq(td_connect(tensord.tcp, NULL, &connection), TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(td_last_error()->message, "empty"), "%s", td_last_error()->message);
    unsetenv("TENSORD_TOKEN_FILE");
}

Test(users, tensorctl_takes_the_token_of_the_environment) {
    struct command command;
    char variable[128];
    const char *const arguments[] = {daemon_program("TENSORCTL_EXE"), "--url", tensord.tcp, "status", "--json", NULL};
    snprintf(variable, sizeof variable, "TENSORD_TOKEN=%s", bob);
    command_run(&command, arguments, (const char *const[]){variable, NULL}, RUN_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
    json_expect(command.out, command.out_bytes, "d['logins']['granted'] == 1 and d['logins']['wrong'] == 0");
    command_finish(&command);
    command_run(&command, arguments, (const char *const[]){"TENSORD_TOKEN", NULL}, RUN_MS);
    cr_assert_eq(command.code, 1);
    cr_assert(strstr(command.err, "a token is needed"), "%s", command.err);
    command_finish(&command);
}

Test(users, failures_are_counted_by_their_reason_and_logged) {
    char spoilt[USERS_TOKEN_BYTES], line[80];
    struct wire wire;
    users_token_spoil(alice, spoilt);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, "", NULL), STATUS_DENIED);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, spoilt, NULL), STATUS_DENIED);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_CONTROL, "x", NULL), STATUS_DENIED);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_CONTROL, alice, NULL), STATUS_OK);
    wire_close(&wire);
    Tensord__Status *status = status_get(tensord.url);
    cr_assert_not_null(status->logins);
    cr_assert_eq(status->logins->granted, 1);
    cr_assert_eq(status->logins->no_token, 1);
    cr_assert_eq(status->logins->wrong, 1);
    cr_assert_eq(status->logins->malformed, 1);
    cr_assert_eq(status->logins->unknown, 0);
    status_free(status);
    snprintf(line, sizeof line, "cause=\"wrong secret\" token=%s", users_token_id(alice));
    cr_assert(daemon_log_has(&tensord, line, RUN_MS));
}

Test(users_start, logins_are_metrics) {
    char spoilt[USERS_TOKEN_BYTES];
    struct http_reply reply;
    struct wire wire;
    users_file_make(&file);
    users_file_add(&file, "alice", "run", alice);
    users_token_spoil(alice, spoilt);
    daemon_start(&tensord, &(struct daemon_options){
                               .flags = (const char *const[]){"--users", file.path, "--http", "127.0.0.1:0", NULL}});
    cr_assert_eq(users_open(&wire, tensord.url, PREAMBLE_TARGET_CONTROL, spoilt, NULL), STATUS_DENIED);
    cr_assert_eq(users_open(&wire, tensord.url, PREAMBLE_TARGET_CONTROL, alice, NULL), STATUS_OK);
    wire_close(&wire);
    char headers[256];
    snprintf(headers, sizeof headers, "Host: 127.0.0.1\r\nAuthorization: Bearer %s\r\n", alice);
    http_get(http_port(&tensord), "/metrics", headers, &reply);
    cr_assert_eq(reply.code, 200, "%s", reply.text);
    cr_expect(strstr(reply.body, "\ntensord_logins_total{result=\"wrong\"} 1\n"), "%s", reply.body);
    cr_expect(strstr(reply.body, "\ntensord_logins_total{result=\"unknown\"} 0\n"));
    cr_expect(strstr(reply.body, "\ntensord_logins_put_off_total 0\n"));
    cr_expect_not(strstr(reply.body, "\ntensord_logins_total{result=\"granted\"} 0\n"));
    cr_expect_not(strstr(reply.body, alice));
    http_reply_finish(&reply);
    stop();
}

Test(users, no_secret_is_ever_printed) {
    struct command command;
    char variable[128], *log;
    const char *secret = alice + 17;
    stop();
    start_with((const char *const[]){"TENSORD_DEBUG=wire", NULL});
    snprintf(variable, sizeof variable, "TENSORD_TOKEN=%s", alice);
    char url[160];
    snprintf(url, sizeof url, "TENSORD_URL=%s", tensord.tcp);
    command_run(&command, (const char *const[]){daemon_program("HELLO_EXE"), NULL},
                (const char *const[]){variable, url, "TENSORD_DEBUG=wire", NULL}, RUN_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert(strstr(command.err, "token=(hidden)"), "%s", command.err);
    cr_assert(!strstr(command.err, secret) && !strstr(command.out, secret));
    log = daemon_log(&tensord);
    cr_assert(strstr(log, "token=(hidden)"), "the worker printed no Hello:\n%s", log);
    cr_assert(!strstr(log, secret), "%s", log);
    free(log);
    command_finish(&command);
}

Test(users, a_stranger_learns_no_names_of_devices) {
    struct wire wire;
    char message[256] = "";
    wire_connect(&wire, tensord.tcp, 77);
    cr_assert_eq(wire_until_closed(&wire, RUN_MS, message), STATUS_NO_DEVICE);
    cr_assert(!strstr(message, "cpu"), "%s", message);
    wire_close(&wire);
}

/* ---- uids ---- */

Test(users, a_uid_of_the_file_is_its_user) {
    char uid[16], credential[24];
    struct wire wire;
    daemon_stop(&tensord);
    snprintf(uid, sizeof uid, "%u", getuid());
    snprintf(credential, sizeof credential, "uid:%u", getuid());
    USERS_RUN(&file, NULL, "add", "carol", "--role", "run", "--uid", uid, "--no-token");
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--users", file.path, NULL}});
    cr_assert_eq(users_open(&wire, tensord.url, PREAMBLE_TARGET_DEFAULT, "", NULL), STATUS_OK);
    status_until(tensord.url, only_session_is, (const char *const[]){"carol", "run", credential}, RUN_MS);
    wire_close(&wire);
}

static int connect_as_somebody(void *url) {
    td_connection *connection;
    if (setgid(54321) || setuid(54321))
        return 77;
    return td_connect(url, NULL, &connection);
}

Test(users_start, any_uid_that_reaches_a_unix_socket_may_run) {
    if (getuid())
        cr_skip_test("only root can become somebody else");
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--socket-mode", "0666", NULL}});
    cr_assert(!chmod(tensord.directory, 0755));
    cr_assert_eq(client_join(client_fork(connect_as_somebody, tensord.url), RUN_MS), 0);
    cr_assert(!chmod(tensord.directory, 0700));
    daemon_stop(&tensord);
}

Test(users_start, without_users_tcp_on_loopback_is_open_and_a_token_is_not_looked_at) {
    struct wire wire;
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://127.0.0.1:0"});
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, "", NULL), STATUS_OK);
    status_until(tensord.url, only_session_is, (const char *const[]){"tcp", "run", ""}, RUN_MS);
    wire_close(&wire);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, "tensord_of_another_daemon", NULL), STATUS_OK);
    wire_close(&wire);
    Tensord__Status *status = status_get(tensord.url);
    cr_assert_null(status->logins);
    status_free(status);
    daemon_stop(&tensord);
}

/* ---- what the start refuses ---- */

static struct command command;

#define TENSORD(...)                                                                                                   \
    command_run(&command, (const char *const[]){daemon_program("TENSORD_EXE"), __VA_ARGS__, NULL}, NULL, RUN_MS)

static void ended_with(int code, const char *text) {
    cr_assert_eq(command.code, code, "%d: %s", command.code, command.err);
    cr_assert(strstr(command.err, text), "\"%s\" is not in: %s", text, command.err);
    command_finish(&command);
}

Test(users_start, a_wrong_file_stops_the_start_with_its_line) {
    users_file_make(&file);
    users_file_write(&file, "[alice]\nrole = king\n");
    TENSORD("--users", file.path, "--devices", "cpu:0", "--listen", "unix:/tmp/tensord-test-never");
    ended_with(2, "users:2: unknown role \\\"king\\\" (observe, run or admin)");
    users_file_write(&file, "[alice]\nrole = run\n");
    cr_assert(!chmod(file.path, 0644));
    TENSORD("--users", file.path, "--devices", "cpu:0", "--listen", "unix:/tmp/tensord-test-never");
    ended_with(2, "chmod 600");
    TENSORD("--users", "/nonexistent/users", "--devices", "cpu:0", "--listen", "unix:/tmp/tensord-test-never");
    ended_with(2, "/nonexistent/users: No such file");
    users_file_remove(&file);
}

Test(users_start, beyond_loopback_it_takes_users_and_leave_to_do_without_tls) {
    users_file_make(&file);
    TENSORD("--listen", "tcp://0.0.0.0:0", "--devices", "cpu:0");
    ended_with(2, "no authentication");
    TENSORD("--listen", "tcp://0.0.0.0:0", "--devices", "cpu:0", "--allow-plaintext", "yes");
    ended_with(2, "no authentication");
    TENSORD("--listen", "tcp://[::]:0", "--devices", "cpu:0", "--users", file.path);
    ended_with(2, "in the clear");
    TENSORD("--listen", "tcp://127.0.0.1:0", "--devices", "cpu:0", "--users", file.path, "--allow-plaintext", "maybe");
    ended_with(2, "neither yes nor no");
    users_file_add(&file, "alice", "run", alice);
    daemon_start(&tensord, &(struct daemon_options){
                               .tcp = "tcp://0.0.0.0:0",
                               .flags = (const char *const[]){"--users", file.path, "--allow-plaintext", "yes", NULL}});
    struct wire wire;
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, "", NULL), STATUS_DENIED);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, NULL), STATUS_OK);
    wire_close(&wire);
    stop();
}

/* ---- tensord user ---- */

Test(users_start, the_command_maintains_the_file) {
    char second[USERS_TOKEN_BYTES], line[160], config[160];
    users_file_make(&file);
    cr_assert(!unlink(file.path)); /* add makes it */
    users_file_add(&file, "alice", "admin", alice);
    USERS_RUN(&file, second, "token", "alice");
    cr_assert_str_neq(alice, second);
    USERS_RUN(&file, NULL, "add", "bob", "--uid=7", "--uid", "8", "--no-token");
    snprintf(config, sizeof config, "%s/tensord.conf", file.directory);
    FILE *out = fopen(config, "w");
    fprintf(out, "devices = cuda:77\nusers = %s\n", file.path);
    fclose(out);
    TENSORD("user", "list", "--config", config);
    snprintf(line, sizeof line, "tokens=%s,", users_token_id(alice));
    cr_assert(strstr(command.out, line) && strstr(command.out, users_token_id(second)), "%s", command.out);
    cr_assert(strstr(command.out, "uids=7,8 tokens=\n"), "%s", command.out);
    command_finish(&command);
    USERS_RUN(&file, NULL, "revoke", users_token_id(alice));
    USERS_RUN(&file, NULL, "revoke", second);
    USERS_RUN(&file, NULL, "role", "bob", "observe");
    TENSORD("user", "list", "--users", file.path);
    cr_assert(strstr(command.out, "alice                admin   uids= tokens=\n"), "%s", command.out);
    cr_assert(strstr(command.out, "bob                  observe uids=7,8"), "%s", command.out);
    command_finish(&command);
    USERS_RUN(&file, NULL, "remove", "alice");
    TENSORD("user", "list", "--users", file.path);
    cr_assert(!strstr(command.out, "alice"), "%s", command.out);
    command_finish(&command);
    users_file_remove(&file);
}

Test(users_start, the_file_has_no_secret_and_is_the_owner_s_alone) {
    struct stat status;
    char text[4096] = "";
    users_file_make(&file);
    users_file_add(&file, "alice", "run", alice);
    cr_assert(!stat(file.path, &status) && (status.st_mode & 07777) == 0600);
    int fd = open(file.path, O_RDONLY | O_CLOEXEC);
    cr_assert(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    cr_assert(strstr(text, users_token_id(alice)) && !strstr(text, alice + 17), "%s", text);
    users_file_remove(&file);
}

Test(users_start, the_command_says_what_is_wrong) {
    users_file_make(&file);
    users_file_add(&file, "alice", "run", alice);
    TENSORD("user");
    ended_with(2, "usage: tensord user");
    TENSORD("user", "frobnicate", "--users", file.path);
    ended_with(2, "no such command: frobnicate");
    TENSORD("user", "add", "--users", file.path);
    ended_with(2, "a word is missing");
    TENSORD("user", "add", "bob");
    ended_with(2, "which file?");
    TENSORD("user", "add", "Bob Smith", "--users", file.path);
    ended_with(2, "invalid user name \"Bob Smith\"");
    TENSORD("user", "add", "bob", "--role", "king", "--users", file.path);
    ended_with(2, "unknown role \"king\"");
    TENSORD("user", "add", "alice", "--users", file.path);
    ended_with(1, "already");
    TENSORD("user", "add", "bob", "--uid", "root", "--users", file.path);
    ended_with(1, "\"root\" is not a number");
    TENSORD("user", "token", "carol", "--users", file.path);
    ended_with(1, "there is no user \"carol\"");
    TENSORD("user", "remove", "carol", "--users", file.path);
    ended_with(1, "there is no user");
    TENSORD("user", "role", "alice", "king", "--users", file.path);
    ended_with(2, "unknown role \"king\"");
    TENSORD("user", "revoke", "00000000", "--users", file.path);
    ended_with(1, "no token has the id 00000000");
    TENSORD("user", "revoke", "alice", "--users", file.path);
    ended_with(1, "neither a token nor the id of one");
    TENSORD("user", "list", "--role", "run", "--users", file.path);
    ended_with(2, "not for: list");
    TENSORD("user", "list", "--users");
    ended_with(2, "without its value");
    TENSORD("user", "list", "--users", "/nonexistent/users");
    ended_with(1, "No such file");
    cr_assert(!chmod(file.path, 0640));
    TENSORD("user", "add", "bob", "--users", file.path);
    ended_with(1, "chmod 600");
    users_file_remove(&file);
}

/* The daemon writes it beside the file when it ends, at the latest. */
Test(users, a_list_tells_when_tokens_end_and_were_used_and_what_they_are_for) {
    char brief[USERS_TOKEN_BYTES], line[128], path[128];
    struct wire wire;
    USERS_RUN(&file, brief, "token", "alice", "--expires", "30d", "--comment", "the laptop");
    users_reload(&tensord, "reloaded", 1);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, brief, NULL), STATUS_OK);
    wire_close(&wire);
    daemon_stop(&tensord);
    snprintf(line, sizeof line, "    %s  expires 20", users_token_id(brief));
    TENSORD("user", "list", "--users", file.path);
    char *at = strstr(command.out, line);
    cr_assert(at && strstr(at, "Z  used 20") && strstr(at, "the laptop\n"), "%s", command.out);
    cr_assert(strstr(command.out, "  expires never                 used never "), "%s", command.out);
    snprintf(path, sizeof path, "%s.used", file.path);
    unlink(path);
}

Test(users, missing_folders_of_the_file_are_made) {
    char path[160];
    snprintf(path, sizeof path, "%s/new/folder/users", file.directory);
    TENSORD("user", "add", "alice", "--users", path);
    cr_assert_eq(command.code, 0, "%s", command.err);
    command_finish(&command);
    TENSORD("user", "list", "--users", path);
    cr_assert(strstr(command.out, "alice"), "%s", command.out);
}
