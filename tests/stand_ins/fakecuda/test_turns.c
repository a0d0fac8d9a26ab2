/* Compilers and the device's memory are shared: nobody waits for more of others' user kernels than his turn, and everybody pays
 * for his own. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"
#include "tests/stand_ins/fakecuda/compilers.h"

static struct users_file users;

static void stop(void) {
    compilers_stop();
    if (*users.path)
        users_file_remove(&users);
}

TestSuite(fakecuda_turns, .fini = stop, .timeout = 120);

/* ---- turns ---- */

/* How often `what` stands in the log before `end`. */
static unsigned logged_before(const char *what, const char *end) {
    char *log = daemon_log(&compilers.daemon), *stop_at = strstr(log, end);
    unsigned n = 0;
    cr_assert_not_null(stop_at, "no %s in the log:\n%s", end, log);
    for (const char *at = log; (at = strstr(at, what)) && at < stop_at; at++)
        n++;
    free(log);
    return n;
}

/* One has queued all that a session may; another of the same user waits for one of these, not for all. */
Test(fakecuda_turns, sessions_take_turns) {
    struct wire wire;
    td_kernel *kernel;
    COMPILERS_START("--compile-timeout=3s"); /* in which a busy machine starts a compiler */
    wire_open(&wire, compilers.daemon.url, 0);
    for (uint64_t id = 1; id <= 8; id++) {
        char source[40];
        snprintf(source, sizeof source, "fakecuda: hang; // %d", (int)id);
        compilers_ask(&wire, id, source, "heavy");
    }
    compilers_expect_running(1);
    cr_assert(!td_kernel_compile(compilers.client.device, COMPILERS_GOOD, "quick", &kernel), "%s",
              td_last_error()->message);
    cr_assert(daemon_log_has(&compilers.daemon, "kernel=quick", COMPILERS_SOON_MS));
    unsigned before = logged_before("kernel=heavy", "kernel=quick");
    cr_assert(before <= 2, "%u compilations came before", before);
    for (unsigned i = 0; i < before; i++)
        cr_assert_eq(compilers_answered(&wire), TD_E_TIMED_OUT);
    wire_close(&wire);
}

/* Nor does a user wait for another's at all. */
Test(fakecuda_turns, users_do_not_wait_for_each_other) {
    char alice[USERS_TOKEN_BYTES], bob[USERS_TOKEN_BYTES];
    struct wire heavy[2], quick;
    users_file_make(&users);
    users_file_add(&users, "alice", "run", alice);
    users_file_add(&users, "bob", "run", bob);
    COMPILERS_START("--compile-timeout=100s", "--users", users.path);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(users_open(&heavy[i], compilers.daemon.tcp, PREAMBLE_TARGET_DEFAULT, alice, NULL), STATUS_OK);
        for (uint64_t id = 1; id <= 8; id++)
            compilers_ask(&heavy[i], id, "fakecuda: hang;", "heavy");
    }
    compilers_expect_running(1); /* of a user one at a time */
    cr_assert_eq(users_open(&quick, compilers.daemon.tcp, PREAMBLE_TARGET_DEFAULT, bob, NULL), STATUS_OK);
    compilers_ask(&quick, 1, COMPILERS_GOOD, "store");
    cr_assert_eq(compilers_answered(&quick), TD_OK);
    for (int i = 0; i < 2; i++)
        wire_close(&heavy[i]);
    wire_close(&quick);
}

Test(fakecuda_turns, queues_have_an_end) {
    enum { SESSIONS = 9 };
    struct wire wires[SESSIONS];
    COMPILERS_START("--compile-timeout=100s");
    for (int i = 0; i < SESSIONS; i++) {
        wire_open(&wires[i], compilers.daemon.url, 0);
        for (uint64_t id = 1; id <= 8; id++)
            compilers_ask(&wires[i], id, "fakecuda: hang;", "f");
        if (i < SESSIONS - 1)
            cr_assert(wire_ping(&wires[i]));
        if (i > 0)
            continue;
        compilers_ask(&wires[0], 9, "fakecuda: hang;", "f");
        cr_assert_eq(compilers_answered(&wires[0]), TD_E_LIMIT); /* the session's */
    }
    cr_assert_eq(compilers_answered(&wires[SESSIONS - 1]), TD_E_LIMIT); /* the user's */
    for (int i = 0; i < SESSIONS; i++)
        wire_close(&wires[i]);
    /* The sessions are closed one after another. Meanwhile there are moments without a compiler, and the user's queue may still be full. */
    int64_t deadline = deadline_in(COMPILERS_SOON_MS);
    int code;
    do
        code = compilers_compile(COMPILERS_GOOD);
    while (code == TD_E_LIMIT && deadline_pause(deadline));
    cr_assert_eq(code, TD_OK, "%s", td_last_error()->message);
    compilers_expect_running(0);
    compilers_expect_unharmed();
}

/* Code that is there already needs no compiler, and so no turn. */
Test(fakecuda_turns, code_that_is_known_waits_for_nobody) {
    struct wire wire;
    COMPILERS_START("--compile-timeout=100s");
    compilers_expect_good(COMPILERS_GOOD);
    wire_open(&wire, compilers.daemon.url, 0);
    compilers_ask(&wire, 1, "fakecuda: hang;", "f");
    compilers_expect_running(1);
    compilers_expect_good(COMPILERS_GOOD);
    wire_close(&wire);
}

/* ---- what kernels take of the device ---- */

struct session_live {
    uint64_t low, high;
};

static bool session_is(const Tensord__Status *status, const void *argument) {
    const struct session_live *live = argument;
    return status->n_sessions == 1 && status->sessions[0]->live >= live->low && status->sessions[0]->live <= live->high;
}

static void expect_live(uint64_t low, uint64_t high) {
    status_until(compilers.daemon.url, session_is, &(struct session_live){low, high}, COMPILERS_SOON_MS);
}

Test(fakecuda_turns, kernels_are_charged_with_their_variables) {
    enum { MIB = 1 << 20 };
    static const char large[] = "fakecuda: variables 62914560;"; /* 60 MiB */
    td_kernel *first, *second;
    COMPILERS_START("--session-bytes=100M");
    expect_live(0, 0);
    cr_assert(!td_kernel_compile(compilers.client.device, large, "f", &first), "%s", td_last_error()->message);
    expect_live(60 * MIB + 100, 61 * MIB);
    for (int i = 0; i < 2; i++) { /* compiled, or known already */
        compilers_expect(td_kernel_compile(compilers.client.device, "fakecuda: variables 50000000;", "f", &second),
                         TD_E_LIMIT, "the session's limit of 100 MiB is reached");
        expect_live(60 * MIB + 100, 61 * MIB);
    }
    td_kernel_release(first);
    expect_live(0, 0);
    cr_assert(!td_kernel_compile(compilers.client.device, "fakecuda: variables 50000000;", "f", &second), "%s",
              td_last_error()->message);
    compilers_expect(
        td_kernel_compile(compilers.client.device, "fakecuda: variables 18446744073709550000;", "f", &first),
        TD_E_OUT_OF_MEMORY, "out of device memory");
    expect_live(50000000, 51 * MIB);
    client_close(&compilers.client);
    cr_assert(status_settles(compilers.daemon.url, &(struct status_baseline){"cuda:0", 0, 0}, COMPILERS_SOON_MS));
    client_open(&compilers.client, compilers.daemon.url, "cuda:0");
    compilers_expect_good(COMPILERS_GOOD);
}

Test(fakecuda_turns, kernels_that_are_not_loaded_are_not_charged) {
    compilers_start("FAKECUDA_FAIL=cuLibraryLoadData:1:2", (const char *const[]){"--user-kernels=all", NULL});
    compilers_expect(compilers_compile("fakecuda: variables 1000000;"), TD_E_OUT_OF_MEMORY, "cuLibraryLoadData");
    expect_live(0, 0);
    compilers_expect_unharmed();
    expect_live(0, 0);
}

static bool user_has(const Tensord__Status *status, const void *argument) {
    const struct session_live *live = argument;
    if (status->n_principals != 1 || status->principals[0]->n_devices != 1)
        return false;
    uint64_t bytes = status->principals[0]->devices[0]->live;
    return bytes >= live->low && bytes <= live->high;
}

/* A session that ends while its kernel is on its way to the device has nothing left to pay with, nor to pay for. */
Test(fakecuda_turns, session_may_end_while_its_kernel_is_loaded) {
    struct wire wire;
    COMPILERS_START("--compile-timeout=20s");
    wire_open(&wire, compilers.daemon.url, 0);
    compilers_ask(&wire, 1, "fakecuda: slow; fakecuda: variables 1000000;", "f");
    status_until(compilers.daemon.url, user_has, &(struct session_live){1000000, 1100000}, COMPILERS_SOON_MS);
    wire_close(&wire);
    status_until(compilers.daemon.url, user_has, &(struct session_live){0, 0}, COMPILERS_SOON_MS);
    compilers_expect_good("fakecuda: parameters 8 4; fakecuda: store; fakecuda: slow;");
    compilers_expect_unharmed();
}
