/* Compilers of user kernels are processes of their own: what a source does to one of them is nobody else's concern. The real
 * daemon, on a stand-in for NVRTC that does what its sources say (code.h). */
#include <criterion/criterion.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/client.h"
#include "tests/integration/daemon.h"
#include "tests/integration/deadline.h"
#include "tests/integration/status.h"
#include "tests/integration/users.h"
#include "tests/integration/wire.h"

enum { PROCESSES_MAX = 16, SOON_MS = 5000 };

static const char good[] = "fakecuda: parameters 8 4; fakecuda: store;";

static struct daemon tensord;
static struct client client;
static struct users_file users;
static int worker;

static void start_with(const char *fail, const char *const *flags) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cuda:0",
                                                    .tcp = "tcp://127.0.0.1:0",
                                                    .flags = flags,
                                                    .environment = (const char *const[]){fail, NULL}});
    client_open(&client, tensord.url, "cuda:0");
    worker = status_worker_pid(tensord.url, "cuda:0");
}
#define START(...) start_with("FAKECUDA_FAIL", (const char *const[]){"--user-kernels=all", __VA_ARGS__, NULL})

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
    if (*users.path)
        users_file_remove(&users);
}

TestSuite(fakecuda_compiler, .fini = stop, .timeout = 120);

/* ---- helpers ---- */

static int compile(const char *source) {
    td_kernel *kernel;
    int code = td_kernel_compile(client.device, source, "store", &kernel);
    if (!code)
        td_kernel_release(kernel);
    return code;
}

static void expect(int code, int want, const char *words) {
    cr_assert_eq(code, want, "%d: %s", code, td_last_error()->message);
    cr_assert(strstr(td_last_error()->message, words), "%s", td_last_error()->message);
}

/* A kernel that is compiled, launched and right. */
static void expect_good(td_device *device, const char *source) {
    td_kernel *kernel;
    td_tensor *y;
    int32_t got = 0;
    cr_assert(!td_kernel_compile(device, source, "store", &kernel), "%s", td_last_error()->message);
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&y, TD_I32, TD_SCALAR), td_arg_i32(4711)));
    cr_assert(!td_fetch(y, &got, sizeof got), "%s", td_last_error()->message);
    cr_assert_eq(got, 4711);
    td_kernel_release(kernel);
    td_release(y);
}

/* As good as the other one, and another one. */
static const char *another(char source[100]) {
    static unsigned n;
    snprintf(source, 100, "%s // %u", good, n++);
    return source;
}

static void expect_unharmed(void) {
    char source[100];
    cr_assert_eq(status_worker_pid(tensord.url, "cuda:0"), worker);
    expect_good(client.device, another(source));
}

static bool file_read(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    for (ssize_t i = 0; i + 1 < n; i++)
        text[i] = text[i] ? text[i] : ' ';
    return n > 0;
}

/* The processes that compile for the worker now, by their command line. */
static unsigned compilers(pid_t found[PROCESSES_MAX]) {
    char line[64], path[64], text[128];
    unsigned n = 0;
    DIR *processes = opendir("/proc");
    snprintf(line, sizeof line, "tensord compile cuda %d", worker);
    for (struct dirent *entry; (entry = readdir(processes));) {
        snprintf(path, sizeof path, "/proc/%.20s/cmdline", entry->d_name);
        if (isdigit((unsigned char)*entry->d_name) && file_read(path, text, sizeof text) && !strcmp(text, line) &&
            n < PROCESSES_MAX)
            found[n++] = atoi(entry->d_name);
    }
    closedir(processes);
    return n;
}

static void expect_compilers(unsigned want) {
    pid_t found[PROCESSES_MAX];
    int64_t deadline = deadline_in(SOON_MS);
    unsigned n;
    do
        n = compilers(found);
    while (n != want && deadline_pause(deadline));
    cr_assert_eq(n, want, "%u compilers, not %u", n, want);
}

static unsigned descriptors(pid_t pid) {
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *directory = opendir(path);
    while (directory && readdir(directory))
        n++;
    closedir(directory);
    return n;
}

static void ask(struct wire *wire, uint64_t kernel, const char *source, const char *name) {
    Tensord__KernelCompile message = TENSORD__KERNEL_COMPILE__INIT;
    message.kernel = kernel;
    message.source = (char *)(uintptr_t)source;
    message.name = (char *)(uintptr_t)name;
    cr_assert(wire_request(wire, FRAME_KERNEL_COMPILE, &message));
}

/* The code of the next answer to such a request. */
static int answered(struct wire *wire) {
    struct wire_frame frame;
    cr_assert_eq(wire_receive(wire, &frame, SOON_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_KERNEL_COMPILED);
    Tensord__KernelCompiled *message =
        tensord__kernel_compiled__unpack(NULL, frame.header.message_bytes, frame.message);
    int code = message->error ? (int)message->error->code : TD_OK;
    tensord__kernel_compiled__free_unpacked(message, NULL);
    wire_frame_finish(&frame);
    return code;
}

/* ---- what a source does to a compiler ---- */

Test(fakecuda_compiler, crash_is_an_error_of_its_source) {
    START("--compile-memory=256M");
    expect(compile("fakecuda: crash;"), TD_E_INTERNAL, "the compiler crashes on this source: Segmentation fault");
    expect(compile("fakecuda: exit;"), TD_E_INTERNAL, "exit status 7");
    expect_unharmed();
}

Test(fakecuda_compiler, time_is_limited) {
    START("--compile-timeout=500ms");
    expect(compile("fakecuda: hang;"), TD_E_TIMED_OUT,
           "more than 0.5 s to compile: the daemon's setting compile-timeout");
    expect(compile("fakecuda: spin;"), TD_E_TIMED_OUT, "compile-timeout");
    expect_unharmed();
    expect_compilers(0);
}

/* Of the process that it started, too. */
Test(fakecuda_compiler, nothing_is_left_of_one_that_forks) {
    START("--compile-timeout=500ms");
    expect(compile("fakecuda: orphan;"), TD_E_TIMED_OUT, "compile-timeout");
    expect_compilers(0);
}

#ifndef __SANITIZE_ADDRESS__ /* which takes more than one may limit */
Test(fakecuda_compiler, memory_is_limited) {
    START("--compile-memory=256M", "--compile-timeout=20s");
    expect(compile("fakecuda: greedy;"), TD_E_LIMIT, "268435456 bytes for it: the daemon's setting compile-memory");
    expect(compile("fakecuda: reckless;"), TD_E_LIMIT, "compile-memory");
    expect_unharmed();
}
#endif

/* Nothing of what a compiler answers is believed that cannot be so; a lost device would cost everybody his work. */
Test(fakecuda_compiler, lies_are_no_answers) {
    START("--compile-timeout=20s");
    for (int i = 0; i < 12; i++) {
        char source[40];
        snprintf(source, sizeof source, "fakecuda: lie %d;", i);
        cr_expect_eq(compile(source), TD_E_INTERNAL, "%s: %s", source, td_last_error()->message);
        cr_expect(strstr(td_last_error()->message, "makes no sense"), "%s: %s", source, td_last_error()->message);
    }
    expect(compile("fakecuda: torn;"), TD_E_INVALID_ARGUMENT, "a segment beyond its end");
    expect_unharmed();
}

/* Each call of the compiler's fails once, where there is one: that kernel's failure, or nobody's. */
Test(fakecuda_compiler, calls_that_fail_are_a_kernels_own) {
    static const char *const calls[] = {"nvrtcCreateProgram",  "nvrtcAddNameExpression", "nvrtcCompileProgram",
                                        "nvrtcGetLoweredName", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                                        "nvrtcGetCUBINSize",   "nvrtcGetCUBIN"};
    START("--compile-timeout=20s");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char source[100];
        snprintf(source, sizeof source, "fakecuda: fail %s;", calls[i]);
        bool matters = !strstr(calls[i], "Log");
        cr_expect_eq(compile(source), matters ? TD_E_LIMIT : TD_OK, "%s: %s", calls[i], td_last_error()->message);
        expect_good(client.device, another(source));
    }
}

/* ---- what a compiler can reach ---- */

static void expect_words(const char *log, const char *words, bool there) {
    cr_expect_eq(strstr(log, words) != NULL, there, "%s:\n%s", words, log);
}

Test(fakecuda_compiler, has_nothing_but_what_it_needs) {
    char words[64];
    setenv("TENSORD_TEST_SECRET", "secret", 1);
    START("--compile-memory=300M", "--compile-timeout=20s");
    cr_assert_eq(compile("fakecuda: tell;"), TD_E_INVALID_ARGUMENT);
    const char *log = td_last_error()->details;
    snprintf(words, sizeof words, " of %d in group ", worker);
    expect_words(log, words, true);
    expect_words(log, "descriptor 0 /memfd:tensord-kernel", true);
    expect_words(log, "descriptor 1 /dev/null", true);
    expect_words(log, "descriptor 2 /dev/null", true);
    expect_words(log, "descriptor 3 pipe:", true);
    unsigned n = 0;
    for (const char *at = log; (at = strstr(at, "descriptor ")); at++)
        n++;
    cr_expect_eq(n, 4, "%s", log);
    expect_words(log, "variable LD_LIBRARY_PATH=", true);
    expect_words(log, "secret", false);
    expect_words(log, "limit core 0 0\n", true);
    expect_words(log, "limit file 0 0\n", true);
    expect_words(log, "limit cpu 20 20\n", true);
    expect_words(log, "writing fails\n", true);
    expect_words(log, "nice 10\n", true);
    expect_words(log, "oom 1000\n", true);
    expect_words(log, "signals\n", true);
#ifndef __SANITIZE_ADDRESS__
    expect_words(log, "limit data 314572800 314572800\n", true);
#endif
}

Test(fakecuda_compiler, leaves_no_descriptors_behind) {
    static const char *const sources[] = {"fakecuda: crash;",
                                          "fakecuda: hang;",
                                          "fakecuda: exit;",
                                          "fakecuda: lie 4;",
                                          "#error",
                                          "fakecuda: lie 8;",
                                          good};
    enum { SOURCES = sizeof sources / sizeof *sources };
    unsigned before = 0;
    START("--compile-timeout=200ms");
    for (unsigned i = 0; i < 3 * SOURCES; i++) {
        if (i == SOURCES) /* what stays from the first time on was there to stay */
            before = descriptors(worker);
        compile(sources[i % SOURCES]);
    }
    cr_assert_eq(descriptors(worker), before);
    cr_assert_eq(status_worker_pid(tensord.url, "cuda:0"), worker);
}

/* ---- ends ---- */

Test(fakecuda_compiler, ends_with_its_client) {
    struct wire wire;
    START("--compile-timeout=100s");
    wire_open(&wire, tensord.url, 0);
    ask(&wire, 1, "fakecuda: hang;", "f");
    expect_compilers(1);
    wire_close(&wire);
    expect_compilers(0);
    expect_unharmed();
}

/* Whether it has come so far that it watches over its parent: it has given itself a name then. */
static void expect_settled(pid_t compiler) {
    char path[64], name[32];
    int64_t deadline = deadline_in(SOON_MS);
    snprintf(path, sizeof path, "/proc/%d/comm", compiler);
    while (file_read(path, name, sizeof name) && strcmp(name, "tensord compile\n") != 0)
        cr_assert(deadline_pause(deadline), "%s", name);
}

/* daemon_stop() looks for processes that are left. */
Test(fakecuda_compiler, ends_with_a_drain) {
    struct wire wire;
    START("--compile-timeout=100s", "--drain-timeout=200ms");
    wire_open(&wire, tensord.url, 0);
    for (uint64_t id = 1; id <= 8; id++)
        ask(&wire, id, "fakecuda: hang;", "f");
    expect_compilers(1);
    daemon_stop(&tensord);
    wire_close(&wire);
}

Test(fakecuda_compiler, ends_with_its_worker) {
    pid_t found[PROCESSES_MAX];
    struct wire wire;
    START("--compile-timeout=100s");
    wire_open(&wire, tensord.url, 0);
    ask(&wire, 1, "fakecuda: hang;", "f");
    expect_compilers(1);
    cr_assert_eq(compilers(found), 1);
    expect_settled(found[0]);
    int end = daemon_process_watch(found[0]);
    kill(worker, SIGKILL);
    cr_assert(deadline_poll(end, POLLIN, deadline_in(SOON_MS)), "the compiler outlives its worker");
    close(end);
    wire_close(&wire);
    daemon_kill(&tensord);
}

/* ---- turns ---- */

/* How often `what` stands in the log before `end`. */
static unsigned logged_before(const char *what, const char *end) {
    char *log = daemon_log(&tensord), *stop_at = strstr(log, end);
    unsigned n = 0;
    cr_assert_not_null(stop_at, "no %s in the log:\n%s", end, log);
    for (const char *at = log; (at = strstr(at, what)) && at < stop_at; at++)
        n++;
    free(log);
    return n;
}

/* One has queued all that a session may; another of the same user waits for one of these, not for all. */
Test(fakecuda_compiler, sessions_take_turns) {
    struct wire wire;
    td_kernel *kernel;
    START("--compile-timeout=300ms");
    wire_open(&wire, tensord.url, 0);
    for (uint64_t id = 1; id <= 8; id++) {
        char source[40];
        snprintf(source, sizeof source, "fakecuda: hang; // %d", (int)id);
        ask(&wire, id, source, "heavy");
    }
    expect_compilers(1);
    cr_assert(!td_kernel_compile(client.device, good, "quick", &kernel), "%s", td_last_error()->message);
    cr_assert(daemon_log_has(&tensord, "kernel=quick", SOON_MS));
    unsigned before = logged_before("kernel=heavy", "kernel=quick");
    cr_assert(before <= 2, "%u compilations came before", before);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(answered(&wire), TD_E_TIMED_OUT);
    wire_close(&wire);
}

/* Nor does a user wait for another's at all. */
Test(fakecuda_compiler, users_do_not_wait_for_each_other) {
    char alice[USERS_TOKEN_BYTES], bob[USERS_TOKEN_BYTES];
    struct wire heavy[2], quick;
    users_file_make(&users);
    users_file_add(&users, "alice", "run", alice);
    users_file_add(&users, "bob", "run", bob);
    START("--compile-timeout=100s", "--users", users.path);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(users_open(&heavy[i], tensord.tcp, PREAMBLE_TARGET_DEFAULT, alice, NULL), STATUS_OK);
        for (uint64_t id = 1; id <= 8; id++)
            ask(&heavy[i], id, "fakecuda: hang;", "heavy");
    }
    expect_compilers(1); /* of a user one at a time */
    cr_assert_eq(users_open(&quick, tensord.tcp, PREAMBLE_TARGET_DEFAULT, bob, NULL), STATUS_OK);
    ask(&quick, 1, good, "store");
    cr_assert_eq(answered(&quick), TD_OK);
    for (int i = 0; i < 2; i++)
        wire_close(&heavy[i]);
    wire_close(&quick);
}

Test(fakecuda_compiler, queues_have_an_end) {
    enum { SESSIONS = 9 };
    struct wire wires[SESSIONS];
    START("--compile-timeout=100s");
    for (int i = 0; i < SESSIONS; i++) {
        wire_open(&wires[i], tensord.url, 0);
        for (uint64_t id = 1; id <= 8; id++)
            ask(&wires[i], id, "fakecuda: hang;", "f");
        if (i < SESSIONS - 1)
            cr_assert(wire_ping(&wires[i]));
        if (i > 0)
            continue;
        ask(&wires[0], 9, "fakecuda: hang;", "f");
        cr_assert_eq(answered(&wires[0]), TD_E_LIMIT); /* the session's */
    }
    cr_assert_eq(answered(&wires[SESSIONS - 1]), TD_E_LIMIT); /* the user's */
    for (int i = 0; i < SESSIONS; i++)
        wire_close(&wires[i]);
    expect_compilers(0);
    expect_unharmed();
}

/* Code that is there already needs no compiler, and so no turn. */
Test(fakecuda_compiler, code_that_is_known_waits_for_nobody) {
    struct wire wire;
    START("--compile-timeout=100s");
    expect_good(client.device, good);
    wire_open(&wire, tensord.url, 0);
    ask(&wire, 1, "fakecuda: hang;", "f");
    expect_compilers(1);
    expect_good(client.device, good);
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
    status_until(tensord.url, session_is, &(struct session_live){low, high}, SOON_MS);
}

Test(fakecuda_compiler, kernels_are_charged_with_their_variables) {
    enum { MIB = 1 << 20 };
    static const char large[] = "fakecuda: variables 62914560;"; /* 60 MiB */
    td_kernel *first, *second;
    START("--session-bytes=100M");
    expect_live(0, 0);
    cr_assert(!td_kernel_compile(client.device, large, "f", &first), "%s", td_last_error()->message);
    expect_live(60 * MIB + 100, 61 * MIB);
    for (int i = 0; i < 2; i++) { /* compiled, or known already */
        expect(td_kernel_compile(client.device, "fakecuda: variables 50000000;", "f", &second), TD_E_LIMIT,
               "the session's limit of 104857600 bytes is reached");
        expect_live(60 * MIB + 100, 61 * MIB);
    }
    td_kernel_release(first);
    expect_live(0, 0);
    cr_assert(!td_kernel_compile(client.device, "fakecuda: variables 50000000;", "f", &second), "%s",
              td_last_error()->message);
    expect(td_kernel_compile(client.device, "fakecuda: variables 18446744073709550000;", "f", &first),
           TD_E_OUT_OF_MEMORY, "out of device memory");
    expect_live(50000000, 51 * MIB);
    client_close(&client);
    cr_assert(status_settles(tensord.url, &(struct status_baseline){"cuda:0", 0, 0}, SOON_MS));
    client_open(&client, tensord.url, "cuda:0");
    expect_good(client.device, good);
}

Test(fakecuda_compiler, kernels_that_are_not_loaded_are_not_charged) {
    start_with("FAKECUDA_FAIL=cuLibraryLoadData:1:2", (const char *const[]){"--user-kernels=all", NULL});
    expect(compile("fakecuda: variables 1000000;"), TD_E_OUT_OF_MEMORY, "cuLibraryLoadData");
    expect_live(0, 0);
    expect_unharmed();
    expect_live(0, 0);
}
