/* `tensorctl kill`: a session ends on an operator's word, and nothing else does. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/wire/frame.h"
#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/wire.h"
#include "tests/stand_ins/fake_daemon.h"

enum { RUN_MS = 30000, LIVE = 4 << 20 };

static struct daemon tensord;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1", .tcp = "tcp://127.0.0.1:0"});
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(kill, .init = start, .fini = stop, .timeout = 120);

static void start_patient(void) {
    daemon_start(&tensord, &(struct daemon_options){.flags = (const char *const[]){"--watchdog-timeout", "0", NULL}});
}

TestSuite(kill_patient, .init = start_patient, .fini = stop, .timeout = 120);

/* On a stand-in, whose status has little room. */
TestSuite(kill_many, .timeout = 120);

static void run_kill(struct command *command, const char *url, const char *session, const char *reason) {
    command_run(command,
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", url, "kill", session,
                                      reason ? "--reason" : NULL, reason, NULL},
                NULL, RUN_MS);
}

static void kill_user(struct command *command, const char *url, const char *user) {
    command_run(command,
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", url, "kill", "--user", user, NULL},
                NULL, RUN_MS);
}

static bool holds_memory(const Tensord__Status *status, const void *device) {
    return status_sessions(status, device) == 1 && status_device(status, device)->memory_live >= LIVE;
}

/* The number of the one session on the device, once it holds what it is to hold. */
static uint64_t session_of(const char *device) {
    uint64_t number = 0;
    status_until(tensord.url, holds_memory, device, RUN_MS);
    Tensord__Status *status = status_get(tensord.url);
    for (size_t i = 0; i < status->n_sessions; i++)
        if (!strcmp(status->sessions[i]->device, device))
            number = status->sessions[i]->id;
    status_free(status);
    return number;
}

static const char *as_text(uint64_t number) {
    static char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return text;
}

Test(kill, session_ends_with_who_and_why_and_its_memory_comes_back) {
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    struct client victim, bystander;
    struct command command;
    char words[64];
    client_open(&victim, tensord.url, "cpu:0");
    client_open(&bystander, tensord.url, "cpu:1");
    td_tensor *held = td_full(victim.device, TD_U8, TD_SHAPE(LIVE), 1);
    td_tensor *kept = client_ramp(bystander.device, 3, 1);
    cr_assert(held && !td_wait(held));
    run_kill(&command, tensord.url, as_text(session_of("cpu:0")), "needed \"now\"");
    cr_assert_eq(command.code, 0, "%s", command.err);
    command_finish(&command);

    const td_error *error = client_expect_failure(held, TD_E_CANCELLED);
    snprintf(words, sizeof words, "was ended by uid:%u: needed \"now\"", (unsigned)getuid());
    cr_assert(strstr(error->message, words), "%s", error->message);
    cr_assert(status_settles(tensord.url, &baseline, RUN_MS), "memory was not given back");
    cr_assert(daemon_log_has(&tensord, "event=session_kill", RUN_MS));
    cr_assert(daemon_log_has(&tensord, "was ended by uid:", RUN_MS));
    client_expect(td_add(kept, kept), (float[]){2, 4, 6}, 3);
    client_close(&victim);
    client_close(&bystander);
}

/* What it has enqueued does not run to its end: minutes of it. */
Test(kill, session_with_much_to_do_ends_as_well) {
    struct status_baseline baseline = status_baseline_of(tensord.url, "cpu:0");
    struct client victim;
    struct command command;
    client_open(&victim, tensord.url, "cpu:0");
    td_tensor *x = td_full(victim.device, TD_F32, TD_SHAPE(1024, 1024), 0.001);
    for (int i = 0; i < 5000; i++) {
        td_tensor *next = td_matmul(x, x);
        td_release(x);
        x = next;
    }
    cr_assert(!td_flush(victim.device));
    run_kill(&command, tensord.url, as_text(session_of("cpu:0")), NULL);
    cr_assert_eq(command.code, 0, "%s", command.err);
    command_finish(&command);
    client_expect_failure(x, TD_E_CANCELLED);
    cr_assert(status_settles(tensord.url, &baseline, RUN_MS), "memory was not given back");
    client_close(&victim);
}

Test(kill, unknown_session_and_one_that_has_ended_are_told) {
    struct command command;
    struct client client;
    client_open(&client, tensord.url, "cpu:0");
    cr_assert(!td_wait(td_full(client.device, TD_U8, TD_SHAPE(LIVE), 1)));
    uint64_t session = session_of("cpu:0");
    client_close(&client);
    const char *const numbers[] = {"0", "123456789012", as_text(session)};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t deadline = deadline_in(RUN_MS);
        do /* the worker hears of its client's end in its own time */
            run_kill(&command, tensord.url, numbers[i], NULL);
        while (command.code == 0 && deadline_pause(deadline));
        cr_assert_eq(command.code, 1, "%s", command.err);
        cr_assert(strstr(command.err, "there is no session") && strstr(command.err, numbers[i]), "%s", command.err);
        command_finish(&command);
    }
}

Test(kill, all_of_a_users_sessions_end_and_its_name_is_shown_as_text) {
    struct client client;
    struct command command;
    char user[32], ended[64], words[128];
    snprintf(user, sizeof user, "uid:%u", (unsigned)getuid());
    snprintf(ended, sizeof ended, "1 session of %s ended\n", user);
    client_open(&client, tensord.url, "cpu:0");
    cr_assert(!td_wait(td_full(client.device, TD_U8, TD_SHAPE(LIVE), 1)));
    session_of("cpu:0"); /* the figures have it */
    kill_user(&command, tensord.url, "nobody\x1b[31m");
    cr_assert_eq(command.code, 1);
    cr_assert_str_eq(command.out, "");
    snprintf(words, sizeof words, "tensorctl: nobody\\x1b[31m has no session; who has: %s\n", user);
    cr_assert_str_eq(command.err, words);
    command_finish(&command);
    kill_user(&command, tensord.url, user);
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert_str_eq(command.out, ended);
    command_finish(&command);
    client_close(&client);
}

Test(kill, a_status_may_have_the_sessions_of_one_user_alone) {
    char user[32];
    struct client client;
    snprintf(user, sizeof user, "uid:%u", (unsigned)getuid());
    client_open(&client, tensord.url, "cpu:0");
    cr_assert(!td_wait(td_full(client.device, TD_U8, TD_SHAPE(LIVE), 1)));
    session_of("cpu:0"); /* the figures have it */
    const char *const names[] = {"", user, "somebody"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Tensord__Status *status = status_get_of(tensord.url, names[i]);
        cr_expect_eq(status->n_sessions, strcmp(names[i], "somebody") ? 1u : 0u, "%s", names[i]);
        cr_expect_eq(status->sessions_left_out, 0);
        cr_expect_eq(status->n_devices, 2);
        status_free(status);
    }
    client_close(&client);
}

/* Each status shows three, and those that have just ended once more. */
Test(kill_many, sessions_for_which_a_status_has_no_room_end_as_well) {
    static struct fake_daemon fake;
    struct command command;
    fake_daemon_start(&fake);
    atomic_store(&fake.sessions, 10);
    atomic_store(&fake.room, 3);
    kill_user(&command, fake.url, "alice");
    cr_assert_eq(command.code, 0, "%s", command.err);
    cr_assert_str_eq(command.out, "10 sessions of alice ended\n");
    for (unsigned i = 1; i <= 10; i++)
        cr_assert_neq(atomic_load(&fake.ended[i]), 0, "session %u lives", i);
    command_finish(&command);
    fake_daemon_stop(&fake);
}

Test(kill_many, a_user_without_a_session_is_told_whatever_others_have) {
    static struct fake_daemon fake;
    struct command command;
    fake_daemon_start(&fake);
    atomic_store(&fake.sessions, 10);
    atomic_store(&fake.room, 3);
    kill_user(&command, fake.url, "alcie");
    cr_assert_eq(command.code, 1);
    cr_assert_str_eq(command.err, "tensorctl: alcie has no session; who has: alice\n");
    command_finish(&command);
    fake_daemon_stop(&fake);
}

Test(kill, wrong_use_is_told) {
    static const char *const words[] = {"-1", "cpu:0", "", "1x", "99999999999999999999"};
    struct command command;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        run_kill(&command, tensord.url, words[i], NULL);
        cr_assert(command.code == 1 || command.code == 2, "%s: %d", words[i], command.code);
        cr_assert_neq(*command.err, 0);
        command_finish(&command);
    }
    command_run(&command, (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, "kill", NULL},
                NULL, RUN_MS);
    cr_assert_eq(command.code, 2);
    cr_assert(strstr(command.err, "number of a session"), "%s", command.err);
    command_finish(&command);
}

/* Over TCP nobody is an admin. */
Test(kill, who_may_not_drain_may_not_kill) {
    struct client client;
    struct command command;
    client_open(&client, tensord.url, "cpu:0");
    td_tensor *held = td_full(client.device, TD_U8, TD_SHAPE(LIVE), 1);
    cr_assert(!td_wait(held));
    run_kill(&command, tensord.tcp, as_text(session_of("cpu:0")), NULL);
    cr_assert_eq(command.code, 1);
    cr_assert(strstr(command.err, "kill session needs the role admin"), "%s", command.err);
    command_finish(&command);
    cr_assert(!td_wait(td_add(held, held)), "the session was ended");
    client_close(&client);
}

/* A worker that hangs cannot say whether the session is its; the other device's is ended nevertheless. */
Test(kill, worker_that_hangs_is_waited_for_within_bounds) {
    struct command command;
    struct client client;
    client_open(&client, tensord.url, "cpu:1");
    td_tensor *held = td_full(client.device, TD_U8, TD_SHAPE(LIVE), 1);
    cr_assert(!td_wait(held));
    uint64_t session = session_of("cpu:1");
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    run_kill(&command, tensord.url, "4711", NULL);
    cr_assert_eq(command.code, 1);
    cr_assert(strstr(command.err, "cpu:0 does not answer"), "%s", command.err);
    command_finish(&command);
    run_kill(&command, tensord.url, as_text(session), NULL);
    cr_assert_eq(command.code, 0, "%s", command.err);
    command_finish(&command);
    kill(worker, SIGCONT);
    client_expect_failure(held, TD_E_CANCELLED);
    client_close(&client);
}

static void send_kill(struct wire *wire, uint64_t session) {
    Tensord__KillSession request = TENSORD__KILL_SESSION__INIT;
    request.session = session;
    request.reason = "";
    cr_assert(wire_request(wire, FRAME_KILL_SESSION, &request));
}

static void expect_unknown(struct wire *wire) {
    struct wire_frame frame;
    cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_DONE);
    Tensord__Done *done = tensord__done__unpack(NULL, frame.header.message_bytes, frame.message);
    cr_assert(done && done->error && done->error->code == STATUS_INVALID_ARGUMENT);
    tensord__done__free_unpacked(done, NULL);
    wire_frame_finish(&frame);
}

static int killed(struct wire *wire) {
    struct wire_frame frame;
    cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_DONE);
    Tensord__Done *done = tensord__done__unpack(NULL, frame.header.message_bytes, frame.message);
    cr_assert_not_null(done);
    int code = done->error ? (int)done->error->code : STATUS_OK;
    tensord__done__free_unpacked(done, NULL);
    wire_frame_finish(&frame);
    return code;
}

static bool few_are_here(const Tensord__Status *status, const void *none) {
    (void)none;
    return status->connections < 8;
}

/* More words wait for the worker than its channel, and the queue behind that, hold of others. */
Test(kill_patient, worker_with_a_full_channel_is_told_when_there_is_room) {
    enum { ROUNDS = 3, AT_ONCE = 246 }; /* and those few: fewer than the 256 that there may be */
    static struct wire wires[AT_ONCE];
    struct wire last;
    struct client client;
    td_options options = {.heartbeat_ms = TD_NEVER};
    cr_assert(!td_connect(tensord.url, &options, &client.connection));
    cr_assert(!td_device_open(client.connection, "cpu:0", &client.device));
    td_tensor *held = td_full(client.device, TD_U8, TD_SHAPE(LIVE), 1);
    cr_assert(!td_wait(held));
    uint64_t session = session_of("cpu:0");
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            wire_open(&wires[i], tensord.url, PREAMBLE_TARGET_CONTROL);
            send_kill(&wires[i], 4711);
        }
        for (int i = 0; i < AT_ONCE; i++)
            wire_close(&wires[i]);
        status_until(tensord.url, few_are_here, NULL, RUN_MS); /* when they have had their time */
    }
    wire_open(&last, tensord.url, PREAMBLE_TARGET_CONTROL);
    send_kill(&last, session);
    kill(worker, SIGCONT);
    int code = killed(&last);
    cr_assert_eq(code, STATUS_OK, "%s", status_name(code));
    client_expect_failure(held, TD_E_CANCELLED);
    wire_close(&last);
    client_close(&client);
}

/* A stopped worker does not answer, and then never will. */
Test(kill, worker_that_dies_has_no_sessions) {
    struct wire wire;
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    wire_connect(&wire, tensord.url, PREAMBLE_TARGET_CONTROL);
    wire_hello(&wire);
    send_kill(&wire, 4711);
    kill(worker, SIGKILL);
    expect_unknown(&wire);
    wire_close(&wire);
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", 2}, RUN_MS);
}

Test(kill, requests_are_answered_one_by_one_also_to_who_says_nothing_more) {
    struct wire wire;
    wire_connect(&wire, tensord.url, PREAMBLE_TARGET_CONTROL);
    wire_hello(&wire);
    for (uint64_t session = 100; session < 110; session++)
        send_kill(&wire, session);
    shutdown(wire.fd, SHUT_WR);
    for (int i = 0; i < 10; i++)
        expect_unknown(&wire);
    wire_close(&wire);
}

/* The front has forgotten the request of who is gone when the answer comes. */
Test(kill, who_asks_may_go_before_the_answer) {
    struct wire wire;
    int worker = status_worker_pid(tensord.url, "cpu:0");
    kill(worker, SIGSTOP);
    for (int i = 0; i < 10; i++) {
        wire_connect(&wire, tensord.url, PREAMBLE_TARGET_CONTROL);
        wire_hello(&wire);
        send_kill(&wire, 4711);
        wire_close(&wire);
    }
    kill(worker, SIGCONT);
    struct command command;
    run_kill(&command, tensord.url, "4712", NULL);
    cr_assert(strstr(command.err, "there is no session 4712"), "%s", command.err);
    command_finish(&command);
}

Test(kill, reason_that_is_too_long_is_refused) {
    struct command command;
    char reason[200];
    memset(reason, 'x', sizeof reason - 1);
    reason[sizeof reason - 1] = 0;
    run_kill(&command, tensord.url, "1", reason);
    cr_assert_eq(command.code, 1);
    cr_assert(strstr(command.err, "more than 127 bytes"), "%s", command.err);
    command_finish(&command);
}
