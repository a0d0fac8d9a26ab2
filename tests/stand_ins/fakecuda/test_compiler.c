/* Compilers of user kernels are processes of their own: what a source does to one of them is nobody else's concern. The real
 * daemon, on a stand-in for NVRTC that does what its sources say (code.h). */
#include <criterion/criterion.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/stand_ins/fakecuda/compilers.h"

TestSuite(fakecuda_compiler, .fini = compilers_stop, .timeout = 120);

/* ---- what a source does to a compiler ---- */

Test(fakecuda_compiler, crash_is_an_error_of_its_source) {
    COMPILERS_START("--compile-memory=256M");
    compilers_expect(compilers_compile("fakecuda: crash;"), TD_E_INTERNAL,
                     "the compiler crashes on this source: Segmentation fault");
    compilers_expect(compilers_compile("fakecuda: exit;"), TD_E_INTERNAL, "exit status 7");
    compilers_expect_unharmed();
}

Test(fakecuda_compiler, time_is_limited) {
    COMPILERS_START("--compile-timeout=2500ms");
    compilers_expect(compilers_compile("fakecuda: hang;"), TD_E_TIMED_OUT,
                     "more than 2.5 s to compile: the daemon's setting compile-timeout");
    compilers_expect(compilers_compile("fakecuda: spin;"), TD_E_TIMED_OUT, "compile-timeout");
    compilers_expect_unharmed();
    compilers_expect_running(0);
}

/* Of the process that it started, too. */
Test(fakecuda_compiler, nothing_is_left_of_one_that_forks) {
    COMPILERS_START("--compile-timeout=500ms");
    compilers_expect(compilers_compile("fakecuda: orphan;"), TD_E_TIMED_OUT, "compile-timeout");
    compilers_expect_running(0);
}

#ifndef __SANITIZE_ADDRESS__ /* which takes more than one may limit */
Test(fakecuda_compiler, memory_is_limited) {
    COMPILERS_START("--compile-memory=256M", "--compile-timeout=20s");
    compilers_expect(compilers_compile("fakecuda: greedy;"), TD_E_LIMIT,
                     "268435456 bytes for it: the daemon's setting compile-memory");
    compilers_expect(compilers_compile("fakecuda: reckless;"), TD_E_LIMIT, "compile-memory");
    compilers_expect_unharmed();
}
#endif

/* Nothing of what a compiler answers is believed that cannot be so; a lost device would cost everybody his work. */
Test(fakecuda_compiler, lies_are_no_answers) {
    COMPILERS_START("--compile-timeout=20s");
    for (int i = 0; i < 12; i++) {
        char source[40];
        snprintf(source, sizeof source, "fakecuda: lie %d;", i);
        cr_expect_eq(compilers_compile(source), TD_E_INTERNAL, "%s: %s", source, td_last_error()->message);
        cr_expect(strstr(td_last_error()->message, "makes no sense"), "%s: %s", source, td_last_error()->message);
    }
    compilers_expect(compilers_compile("fakecuda: torn;"), TD_E_INVALID_ARGUMENT, "a segment beyond its end");
    compilers_expect_unharmed();
}

/* Each call of the compiler's fails once, where there is one: that kernel's failure, or nobody's. */
Test(fakecuda_compiler, calls_that_fail_are_a_kernels_own) {
    static const char *const calls[] = {"nvrtcCreateProgram",  "nvrtcAddNameExpression", "nvrtcCompileProgram",
                                        "nvrtcGetLoweredName", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                                        "nvrtcGetCUBINSize",   "nvrtcGetCUBIN"};
    COMPILERS_START("--compile-timeout=20s");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char source[100];
        snprintf(source, sizeof source, "fakecuda: fail %s;", calls[i]);
        bool matters = !strstr(calls[i], "Log");
        cr_expect_eq(compilers_compile(source), matters ? TD_E_LIMIT : TD_OK, "%s: %s", calls[i],
                     td_last_error()->message);
        compilers_expect_unharmed();
    }
}

/* ---- what a compiler can reach ---- */

static void expect_words(const char *log, const char *words, bool there) {
    cr_expect_eq(strstr(log, words) != NULL, there, "%s:\n%s", words, log);
}

Test(fakecuda_compiler, has_nothing_but_what_it_needs) {
    char words[64];
    setenv("TENSORD_TEST_SECRET", "secret", 1);
    COMPILERS_START("--compile-memory=300M", "--compile-timeout=20s");
    cr_assert_eq(compilers_compile("fakecuda: tell;"), TD_E_INVALID_ARGUMENT);
    const char *log = td_last_error()->details;
    snprintf(words, sizeof words, " of %d in group ", compilers.worker);
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
    expect_words(log, "limit cpu 20 21\n", true);
    expect_words(log, "writing fails\n", true);
    expect_words(log, "nice 10\n", true);
    expect_words(log, "oom 1000\n", true);
    expect_words(log, "signals\n", true);
#ifndef __SANITIZE_ADDRESS__
    expect_words(log, "limit data 314572800 314572800\n", true);
#endif
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

Test(fakecuda_compiler, leaves_no_descriptors_behind) {
    static const char *const sources[] = {"fakecuda: crash;", "fakecuda: hang;",  "fakecuda: exit;", "fakecuda: lie 4;",
                                          "#error",           "fakecuda: lie 8;", COMPILERS_GOOD};
    enum { SOURCES = sizeof sources / sizeof *sources };
    unsigned before = 0;
    COMPILERS_START("--compile-timeout=200ms");
    for (unsigned i = 0; i < 3 * SOURCES; i++) {
        if (i == SOURCES) /* what stays from the first time on was there to stay */
            before = descriptors(compilers.worker);
        compilers_compile(sources[i % SOURCES]);
    }
    cr_assert_eq(descriptors(compilers.worker), before);
    cr_assert_eq(status_worker_pid(compilers.daemon.url, "cuda:0"), compilers.worker);
}

/* ---- ends ---- */

Test(fakecuda_compiler, ends_with_its_client) {
    struct wire wire;
    COMPILERS_START("--compile-timeout=100s");
    wire_open(&wire, compilers.daemon.url, 0);
    compilers_ask(&wire, 1, "fakecuda: hang;", "f");
    compilers_expect_running(1);
    wire_close(&wire);
    compilers_expect_running(0);
    compilers_expect_unharmed();
}

/* Whether it has come so far that it watches over its parent: it has given itself a name then. */
static void expect_settled(pid_t compiler) {
    char path[64], name[32];
    int64_t deadline = deadline_in(COMPILERS_SOON_MS);
    snprintf(path, sizeof path, "/proc/%d/comm", compiler);
    while (compilers_read_file(path, name, sizeof name) && strcmp(name, "tensord compile\n") != 0)
        cr_assert(deadline_pause(deadline), "%s", name);
}

/* daemon_stop() looks for processes that are left. */
Test(fakecuda_compiler, ends_with_a_drain) {
    struct wire wire;
    COMPILERS_START("--compile-timeout=100s", "--drain-timeout=200ms");
    wire_open(&wire, compilers.daemon.url, 0);
    for (uint64_t id = 1; id <= 8; id++)
        compilers_ask(&wire, id, "fakecuda: hang;", "f");
    compilers_expect_running(1);
    daemon_stop(&compilers.daemon);
    wire_close(&wire);
}

Test(fakecuda_compiler, ends_with_its_worker) {
    pid_t found[COMPILERS_MAX];
    struct wire wire;
    COMPILERS_START("--compile-timeout=100s");
    wire_open(&wire, compilers.daemon.url, 0);
    compilers_ask(&wire, 1, "fakecuda: hang;", "f");
    compilers_expect_running(1);
    cr_assert_eq(compilers_find(found), 1);
    expect_settled(found[0]);
    int end = daemon_process_watch(found[0]);
    kill(compilers.worker, SIGKILL);
    cr_assert(deadline_poll(end, POLLIN, deadline_in(COMPILERS_SOON_MS)), "the compiler outlives its worker");
    close(end);
    wire_close(&wire);
    daemon_kill(&compilers.daemon);
}
