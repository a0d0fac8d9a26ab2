/* SIGHUP: users and configuration are read anew; who was revoked goes, and nobody else notices. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"

enum { RUN_MS = 30000 };

static struct users_file file;
static struct daemon tensord;
static char config[120], alice[USERS_TOKEN_BYTES], second[USERS_TOKEN_BYTES], bob[USERS_TOKEN_BYTES];

static void configure(const char *more) {
    int fd = open(config, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert(fd >= 0);
    dprintf(fd, "users = %s\n%s", file.path, more);
    close(fd);
}

/* alice with two tokens, and bob. */
static void start(void) {
    users_file_make(&file);
    snprintf(config, sizeof config, "%s/tensord.conf", file.directory);
    configure("");
    users_file_add(&file, "alice", "run", alice);
    USERS_RUN(&file, second, "token", "alice");
    users_file_add(&file, "bob", "run", bob);
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1",
                                                    .tcp = "tcp://127.0.0.1:0",
                                                    .flags = (const char *const[]){"--config", config, NULL}});
}
static void stop(void) {
    daemon_stop(&tensord);
    users_file_remove(&file);
}
TestSuite(reload, .init = start, .fini = stop, .timeout = 60);

/* Sessions on both devices and a control connection, by one token. */
enum { LOGINS = 3 };
static const uint16_t targets[LOGINS] = {PREAMBLE_TARGET_CONTROL, DAEMON_TARGET_CPU0, DAEMON_TARGET_CPU1};

static void open_all(struct wire wires[LOGINS], const char *url, const char *token) {
    for (unsigned i = 0; i < LOGINS; i++)
        cr_assert_eq(users_open(&wires[i], url, targets[i], token, NULL), STATUS_OK);
    for (unsigned i = 1; i < LOGINS; i++)
        cr_assert(wire_full(&wires[i], 1, 1, 4, 7));
}

/* They are ended, and told why. */
static void all_ended(struct wire wires[LOGINS], const char *who) {
    char message[256] = "";
    for (unsigned i = 0; i < LOGINS; i++) {
        cr_assert_eq(wire_until_closed(&wires[i], RUN_MS, message), STATUS_DENIED, "%s, connection %u: %s", who, i,
                     message);
        cr_assert(strstr(message, who) && strstr(message, "revoked"), "%s", message);
        wire_close(&wires[i]);
    }
}

/* They live, and so do the tensors of their sessions. */
static void all_live(struct wire wires[LOGINS]) {
    for (unsigned i = 0; i < LOGINS; i++) {
        float got[4] = {0};
        cr_assert(wire_ping(&wires[i]), "connection %u ended", i);
        if (i)
            cr_assert(wire_fetch(&wires[i], 1, got, sizeof got, NULL) == STATUS_OK && got[3] == 7);
        wire_close(&wires[i]);
    }
}

Test(reload, a_revoked_token_s_connections_end_and_no_others) {
    struct wire revoked[LOGINS], same[LOGINS], other[LOGINS], local[LOGINS];
    char log[100];
    open_all(revoked, tensord.tcp, alice);
    open_all(same, tensord.tcp, second);
    open_all(other, tensord.tcp, bob);
    open_all(local, tensord.url, "");
    USERS_RUN(&file, NULL, "revoke", users_token_id(alice));
    users_reload(&tensord, "reloaded", 1);
    all_ended(revoked, "alice");
    all_live(same);
    all_live(other);
    all_live(local);
    cr_assert_eq(users_open(revoked, tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, NULL), STATUS_DENIED);
    snprintf(log, sizeof log, "event=revoked principal=alice credential=%s", users_token_id(alice));
    cr_assert(daemon_log_has(&tensord, log, RUN_MS));
}

Test(reload, the_library_is_told_why_its_session_ended) {
    td_connection *connection;
    td_device *device;
    td_tensor *tensor;
    float got;
    cr_assert_eq(td_connect(tensord.tcp, &(td_options){.token = alice}, &connection), 0);
    cr_assert_eq(td_device_open(connection, NULL, &device), 0);
    tensor = td_full(device, TD_F32, TD_SCALAR, 1);
    cr_assert_eq(td_fetch(tensor, &got, sizeof got), 0);
    USERS_RUN(&file, NULL, "remove", "alice");
    users_reload(&tensord, "reloaded", 1);
    /* The end may be on its way still; until it comes the session answers as ever. */
    int64_t deadline = deadline_in(RUN_MS);
    while (td_fetch(tensor, &got, sizeof got) == 0 && deadline_pause(deadline))
        ;
    cr_assert_eq(td_last_error()->code, TD_E_DENIED, "%s", td_last_error()->message);
    cr_assert(strstr(td_last_error()->message, "revoked"), "%s", td_last_error()->message);
    td_close(connection);
}

Test(reload, a_new_user_is_let_in_and_a_removed_one_is_not) {
    struct wire wires[LOGINS], wire;
    char carol[USERS_TOKEN_BYTES];
    open_all(wires, tensord.tcp, bob);
    users_file_add(&file, "carol", "run", carol);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, carol, NULL), STATUS_DENIED,
                 "the file counts before anybody asked for that");
    USERS_RUN(&file, NULL, "remove", "bob");
    users_reload(&tensord, "reloaded", 1);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, carol, NULL), STATUS_OK);
    wire_close(&wire);
    all_ended(wires, "bob");
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, bob, NULL), STATUS_DENIED);
}

Test(reload, another_role_ends_what_was_let_in_with_the_old_one) {
    struct wire wires[LOGINS], others[LOGINS], wire;
    open_all(wires, tensord.tcp, bob);
    open_all(others, tensord.tcp, alice);
    USERS_RUN(&file, NULL, "role", "bob", "observe");
    users_reload(&tensord, "reloaded", 1);
    all_ended(wires, "bob");
    cr_assert(daemon_log_has(&tensord, "event=role_changed principal=bob credential=", RUN_MS));
    cr_assert(daemon_log_has(&tensord, " from=run to=observe", RUN_MS));
    all_live(others);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_CONTROL, bob, NULL), STATUS_OK);
    wire_close(&wire);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, bob, NULL), STATUS_DENIED);
}

Test(reload, a_uid_that_becomes_somebody_ends_what_it_had_as_itself) {
    struct wire wires[LOGINS], others[LOGINS];
    char uid[16], who[24];
    snprintf(uid, sizeof uid, "%u", getuid());
    snprintf(who, sizeof who, "uid:%u", getuid());
    open_all(wires, tensord.url, "");
    open_all(others, tensord.url, bob); /* the same uid, but known by its token */
    USERS_RUN(&file, NULL, "add", "carol", "--uid", uid, "--no-token", "--role", "run");
    users_reload(&tensord, "reloaded", 1);
    all_ended(wires, who);
    all_live(others);
    open_all(wires, tensord.url, "");
    USERS_RUN(&file, NULL, "remove", "carol");
    users_reload(&tensord, "reloaded", 2);
    all_ended(wires, "carol");
}

/* The reload fails, says why, and nothing is different. */
static void fails_with(const char *cause, unsigned times) {
    struct wire wires[LOGINS];
    open_all(wires, tensord.tcp, alice);
    users_reload(&tensord, "reload_failed", times);
    cr_assert(daemon_log_has(&tensord, cause, RUN_MS), "\"%s\" is not in the log", cause);
    all_live(wires);
    open_all(wires, tensord.tcp, second);
    all_live(wires);
}

Test(reload, a_bad_file_of_users_changes_nothing_and_says_why) {
    char line[160];
    USERS_RUN(&file, NULL, "revoke", users_token_id(alice)); /* would take effect if the rest were right */
    FILE *out = fopen(file.path, "a");
    fprintf(out, "\n[eve]\nrole = king\n");
    fclose(out);
    fails_with("observe, run or admin", 1);
    cr_assert(!chmod(file.path, 0644));
    fails_with("chmod 600", 2);
    cr_assert(!unlink(file.path));
    snprintf(line, sizeof line, "%s: No such file", file.path);
    fails_with(line, 3);
    users_file_write(&file, "# none\n# end of users\n");
    users_reload(&tensord, "reloaded", 1); /* and it recovers */
}

Test(reload, a_bad_configuration_changes_nothing_and_says_why) {
    char line[160];
    USERS_RUN(&file, NULL, "revoke", users_token_id(alice)); /* would take effect if the configuration were right */
    configure("max-connections = many\n");
    snprintf(line, sizeof line, "%s:2: \\\"many\\\" is not a number", config);
    fails_with(line, 1);
    cr_assert(!unlink(config));
    fails_with("No such file", 2);
}

/* As a full disk leaves it. */
Test(reload, an_empty_file_of_users_ends_nobody) {
    struct wire wire;
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, NULL), STATUS_OK);
    users_file_write(&file, "");
    users_reload(&tensord, "reload_failed", 1);
    cr_assert(wire_ping(&wire));
    wire_close(&wire);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, NULL), STATUS_OK);
    wire_close(&wire);
}

/* A file that was written by hand, and cut behind a line. */
Test(reload, a_file_that_has_lost_most_users_ends_nobody_unless_it_says_that_it_is_whole) {
    struct wire wire;
    users_file_write(&file, "# by hand\n[carol]\nrole = admin\n");
    fails_with("2 of 2 users are missing, as in a file that was cut", 1);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, NULL), STATUS_OK);
    users_file_write(&file, "# by hand\n[carol]\nrole = admin\n# end of users\n");
    users_reload(&tensord, "reloaded", 1);
    cr_assert_eq(wire_until_closed(&wire, RUN_MS, NULL), STATUS_DENIED);
    wire_close(&wire);
}

/* The last one's connections end, too. */
Test(reload, a_file_whose_users_were_all_removed_is_taken) {
    struct wire wire;
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, NULL), STATUS_OK);
    USERS_RUN(&file, NULL, "remove", "alice");
    USERS_RUN(&file, NULL, "remove", "bob");
    users_reload(&tensord, "reloaded", 1);
    cr_assert_eq(wire_until_closed(&wire, RUN_MS, NULL), STATUS_DENIED);
    wire_close(&wire);
}

/* Whoever is there when the time comes is told, and nobody comes after it. */
Test(reload, a_token_ends_when_its_time_is_over) {
    char brief[USERS_TOKEN_BYTES], message[256] = "";
    struct wire wire;
    USERS_RUN(&file, brief, "token", "add", "alice", "--expires", "2s", "--comment", "for a moment");
    users_reload(&tensord, "reloaded", 1);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, brief, message), STATUS_OK, "%s", message);
    cr_assert_eq(wire_until_closed(&wire, RUN_MS, message), STATUS_DENIED);
    wire_close(&wire);
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, brief, message), STATUS_DENIED);
    cr_assert_str_eq(message, "the token has expired");
    cr_assert_eq(users_open(&wire, tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, message), STATUS_OK, "%s", message);
    wire_close(&wire);
}

Test(reload, what_can_change_does_and_the_rest_is_named) {
    struct wire first, other;
    configure("max-connections = 1\nthreads = 3\nusers = /nonexistent/users\n");
    users_reload(&tensord, "reloaded", 1);
    cr_assert(daemon_log_has(&tensord, "event=config_changed key=max-connections", RUN_MS));
    cr_assert(daemon_log_has(&tensord, "event=config_ignored key=threads", RUN_MS));
    cr_assert(daemon_log_has(&tensord, "event=config_ignored key=users", RUN_MS));
    char *log = daemon_log(&tensord);
    cr_assert(!strstr(log, "key=listen") && !strstr(log, "key=devices") && !strstr(log, "key=max-sessions"), "%s", log);
    free(log);
    cr_assert_eq(users_open(&first, tensord.url, DAEMON_TARGET_CPU0, "", NULL), STATUS_OK);
    cr_assert_eq(users_open(&other, tensord.url, DAEMON_TARGET_CPU0, "", NULL), STATUS_LIMIT);
    wire_close(&first);
    configure("");
    users_reload(&tensord, "reloaded", 2);
}

static rlim_t descriptors(pid_t pid) {
    struct rlimit limit;
    cr_assert(!prlimit(pid, RLIMIT_NOFILE, NULL, &limit));
    return limit.rlim_cur;
}

/* Where the system allows it. The worker hears of it a moment later. */
Test(reload, more_connections_get_descriptors_for_them) {
    struct rlimit limit;
    rlim_t enough = 2 * 3000 + 1024;
    cr_assert(!getrlimit(RLIMIT_NOFILE, &limit));
    if (limit.rlim_max < enough)
        cr_skip_test("the system allows no more descriptors");
    pid_t pids[] = {tensord.pid, status_worker_pid(tensord.url, "cpu:0")};
    int64_t deadline = deadline_in(RUN_MS);
    cr_assert(descriptors(pids[0]) < enough && descriptors(pids[1]) < enough);
    configure("max-connections = 3000\n");
    users_reload(&tensord, "reloaded", 1);
    for (int i = 0; i < 2; i++) {
        while (descriptors(pids[i]) < enough && deadline_pause(deadline))
            continue;
        cr_assert_eq(descriptors(pids[i]), enough, "process %d may have %lu", i, descriptors(pids[i]));
    }
    configure("max-connections = 1024\n");
    users_reload(&tensord, "reloaded", 2);
    cr_assert_eq(descriptors(tensord.pid), enough, "those that are open stay open");
}

/* A line more in alice's section, which is the file's first. */
static void add_to_alice(const char *line) {
    static char text[8192], changed[8192];
    FILE *in = fopen(file.path, "r");
    cr_assert(in);
    text[fread(text, 1, sizeof text - 1, in)] = 0;
    fclose(in);
    char *rest = strstr(text, "role = run\n");
    cr_assert(strstr(text, "[alice]") && rest);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(rest - text), text, line, rest);
    users_file_write(&file, changed);
}

enum { LARGE = 1 << 20 };

/* What making and fetching one more tensor of 4 MiB gives; the session's next number is *next. */
static int make_large(struct wire *wire, uint64_t *next) {
    static float data[LARGE];
    uint64_t id = (*next)++;
    cr_assert(wire_full(wire, id, id, LARGE, 1));
    int code = wire_fetch(wire, id, data, sizeof data, NULL);
    cr_assert(wire_op(wire, &(struct wire_op){.opcode = OP_FREE, .output = *next, .sequence = *next, WIRE_INPUTS(id)}));
    (*next)++;
    return code;
}

/* The word may still be on its way to the worker. */
static void becomes(struct wire *wire, uint64_t *next, int wanted) {
    int64_t deadline = deadline_in(RUN_MS);
    int code;
    do
        code = make_large(wire, next);
    while (code != wanted && deadline_pause(deadline));
    cr_assert_eq(code, wanted, "%s", status_name(code));
}

Test(reload, other_limits_hold_for_those_who_are_here_and_end_nobody) {
    struct wire hers, his, local;
    uint64_t her_next = 1, his_next = 1, local_next = 1;
    cr_assert_eq(users_open(&hers, tensord.tcp, DAEMON_TARGET_CPU0, alice, NULL), STATUS_OK);
    cr_assert_eq(users_open(&his, tensord.tcp, DAEMON_TARGET_CPU0, bob, NULL), STATUS_OK);
    cr_assert_eq(users_open(&local, tensord.url, DAEMON_TARGET_CPU0, "", NULL), STATUS_OK);
    cr_assert_eq(make_large(&hers, &her_next), STATUS_OK);
    add_to_alice("principal-bytes = 1M\n");
    users_reload(&tensord, "reloaded", 1);
    cr_assert(daemon_log_has(&tensord, "event=limits_changed principal=alice", RUN_MS));
    becomes(&hers, &her_next, STATUS_LIMIT);
    cr_assert_eq(make_large(&his, &his_next), STATUS_OK);
    cr_assert_eq(make_large(&local, &local_next), STATUS_OK);
    configure("principal-bytes = 2M\n");
    users_reload(&tensord, "reloaded", 2);
    cr_assert(daemon_log_has(&tensord, "event=config_changed key=principal-bytes", RUN_MS));
    becomes(&his, &his_next, STATUS_LIMIT);
    becomes(&local, &local_next, STATUS_LIMIT);
    configure("");
    users_reload(&tensord, "reloaded", 3);
    becomes(&his, &his_next, STATUS_OK);
    becomes(&local, &local_next, STATUS_OK);
    cr_assert_eq(make_large(&hers, &her_next), STATUS_LIMIT); /* her own still */
    wire_close(&hers);
    wire_close(&his);
    wire_close(&local);
}

/* As long as the device's worker stands still nobody can ask it anything. */
Test(reload, what_is_on_its_way_to_a_worker_is_revoked_as_well) {
    struct wire wire;
    char message[256] = "";
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    wire_connect(&wire, tensord.url, DAEMON_TARGET_CPU0);
    status_epoch(tensord.url, "cpu:1"); /* what came after it has been answered, so the front has handed it over */
    char uid[16];
    snprintf(uid, sizeof uid, "%u", getuid());
    USERS_RUN(&file, NULL, "add", "carol", "--uid", uid, "--no-token", "--role", "run");
    users_reload(&tensord, "reloaded", 1);
    kill(worker, SIGCONT);
    cr_assert_eq(wire_until_closed(&wire, RUN_MS, message), STATUS_DENIED, "%s", message);
    wire_close(&wire);
}

Test(reload, many_in_a_row_lose_nobody) {
    struct wire wires[LOGINS];
    open_all(wires, tensord.tcp, alice);
    for (unsigned i = 1; i <= 20; i++)
        users_reload(&tensord, "reloaded", i);
    all_live(wires);
}
