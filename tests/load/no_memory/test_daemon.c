/* A daemon whose host refuses memory to the front or to a worker, at the first, second, third … time that it asks for
 * some, once or from then on, while it works or from its start. Every call of a client succeeds or says why not; no
 * process that serves clients ends or hangs, or keeps what they had; and the next client is served as before.
 *
 * Not refused, because it ends the process inside of a library: loading OpenBLAS, whose Fortran runtime exits in its
 * constructor (so every worker here has it before its memory runs out), and libuv's start, which loop_reserve() takes
 * ahead of the clients (a process that starts may end, with a word or by a signal; nobody is connected to it yet). */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/tensord.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"
#include "tests/load/no_memory/allocator.h"
#include "tests/load/no_memory/jobs.h"

enum {
    HANGS_S = 30,
    SETTLES_MS = 5000,
    /* Blocks that a process holds between two jobs differ by this many, with the order in which its threads meet. */
    CACHED = 16,
};

static const char *const DEVICES[REFUSALS_ROLES] = {[REFUSALS_CPU0] = "cpu:0", [REFUSALS_CPU1] = "cpu:1"};

static struct daemon tensord;
static struct refusals *roles; /* [REFUSALS_ROLES], shared with the daemon's processes */
static char page_path[64], page_setting[128], preload[512];
static struct {
    int role;
    unsigned first, last;
} refusing;

/* A job has no deadlines of its own. */
static void hangs(int number) {
    char text[128];
    (void)number;
    int n = snprintf(text, sizeof text, "a job hangs: process %d, refusals %u to %u\n", refusing.role, refusing.first,
                     refusing.last);
    (void)!write(STDERR_FILENO, text, (size_t)n);
    _exit(1);
}

static void page_make(void) {
    size_t bytes = REFUSALS_ROLES * sizeof *roles;
    snprintf(page_path, sizeof page_path, "/tmp/tensord-refusals.XXXXXX");
    int fd = mkstemp(page_path);
    cr_assert(fd >= 0 && !ftruncate(fd, (off_t)bytes));
    roles = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert(roles != MAP_FAILED);
    close(fd);
    snprintf(page_setting, sizeof page_setting, "%s=%s", REFUSALS_PAGE, page_path);
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", daemon_program("ALLOCATOR_LIBRARY"));
}

static const struct daemon_options *options(void) {
    static const char *environment[3];
    static const char *const FLAGS[] = {"--threads",
                                        "1",
                                        "--transfer-timeout",
                                        "2s",
                                        "--session-lease", /* for which copies wait, too */
                                        "2s",
                                        "--quarantine-after",
                                        "0",
                                        "--restart-backoff",
                                        "0ms",
                                        "--log-level",
                                        "warning",
                                        NULL};
    static const struct daemon_options OPTIONS = {.devices = "cpu:0,cpu:1", .flags = FLAGS, .environment = environment};
    environment[0] = preload;
    environment[1] = page_setting;
    return &OPTIONS;
}

static void prepare(void) {
    signal(SIGALRM, hangs);
    page_make();
}

static void tidy(void) {
    daemon_kill(&tensord);
    unlink(page_path);
}

TestSuite(no_memory, .init = prepare, .fini = tidy, .timeout = 280);

/* At the end of each test, and not in `tidy`, whose assertions Criterion prints and does not count. In a build with
 * AddressSanitizer the daemon's processes look for leaks now. */
static void stop(void) {
    kill(tensord.pid, SIGTERM);
    int status = daemon_wait(&tensord, 30000);
    char *log = daemon_log(&tensord);
    cr_assert_eq(status, 0, "wait status %d:\n%s", status, log);
    cr_assert_null(strstr(log, "LeakSanitizer"), "%s", log);
    free(log);
    daemon_gone(&tensord);
}

/* ---- one job ---- */

typedef int job_function(const char *url);

static void arm(int role, unsigned first, unsigned last) {
    refusing.role = role;
    refusing.first = first;
    refusing.last = last;
    refusals_arm(&roles[role], first, last);
}

static void job_succeeds(job_function *job) {
    alarm(HANGS_S);
    int code = job(tensord.url);
    alarm(0);
    cr_assert_eq(code, TD_OK, "process %d, refusals %u to %u: the next job gets %d (%s)", refusing.role, refusing.first,
                 refusing.last, code, td_last_error()->message);
}

/* A job that fails has a reason that has to do with memory: of its own, or of what it waited for in vain. */
static void job_is_told(job_function *job) {
    static const int TOLD[] = {
        TD_OK,
        TD_E_NO_HOST_MEMORY,
        TD_E_LIMIT,            /* "no descriptor or no memory left for another connection", or a link */
        TD_E_UNKNOWN_ID,       /* of a tensor that not even a failure could be noted for */
        TD_E_INVALID_ARGUMENT, /* a stream that could not be opened */
        TD_E_TIMED_OUT,        /* a copy whose source could not be noted */
    };
    bool told = false;
    alarm(HANGS_S);
    int code = job(tensord.url);
    alarm(0);
    for (size_t i = 0; i < sizeof TOLD / sizeof *TOLD; i++)
        told |= code == TOLD[i];
    cr_assert(told, "process %d, refusals %u to %u: %d (%s)", refusing.role, refusing.first, refusing.last, code,
              td_last_error()->message);
}

/* Nothing is left of the sessions. */
static void settle(void) {
    for (int role = REFUSALS_CPU0; role <= REFUSALS_CPU1; role++)
        cr_assert(status_settles(tensord.url, &(struct status_baseline){.device = DEVICES[role]}, SETTLES_MS),
                  "process %d, refusals %u to %u: %s keeps sessions or tensors", refusing.role, refusing.first,
                  refusing.last, DEVICES[role]);
}

/* ---- while it works ---- */

/* The most blocks that the process holds between jobs; its caches fill up at first. */
static long usual_blocks(job_function *job, int role) {
    long most = 0;
    for (int i = 0; i < 5; i++) {
        arm(role, 0, 0);
        job_succeeds(job);
        refusals_disarm(&roles[role]);
        settle();
        most = roles[role].live > most ? roles[role].live : most;
    }
    return most;
}

static void sweep_working(job_function *job, int role) {
    int workers[] = {status_worker_pid(tensord.url, "cpu:0"), status_worker_pid(tensord.url, "cpu:1")};
    long usual = usual_blocks(job, role);
    unsigned calls = roles[role].calls;
    for (unsigned n = 1; n <= 2 * calls; n++) {
        unsigned first = n <= calls ? n : n - calls;
        arm(role, first, n <= calls ? first : UINT32_MAX);
        job_is_told(job);
        refusals_disarm(&roles[role]);
        job_succeeds(job);
    }
    settle();
    cr_assert_leq(roles[role].live, usual + CACHED, "process %d: %ld blocks, %ld before", role, (long)roles[role].live,
                  usual);
    cr_assert_eq(status_worker_pid(tensord.url, "cpu:0"), workers[0], "cpu:0's worker has ended");
    cr_assert_eq(status_worker_pid(tensord.url, "cpu:1"), workers[1], "cpu:1's worker has ended");
    cr_log_info("process %d: each of %u allocations of a job", role, calls);
}

Test(no_memory, of_a_worker_is_told_and_passes) {
    daemon_start(&tensord, options());
    sweep_working(jobs_device, REFUSALS_CPU0);
    stop();
}

Test(no_memory, of_the_front_is_told_and_passes) {
    daemon_start(&tensord, options());
    sweep_working(jobs_control, REFUSALS_FRONT);
    stop();
}

/* ---- from its start ---- */

/* Ends cpu:0's worker; the front starts another, again where that cannot start. */
static void restart_worker(void) {
    uint64_t epoch = status_epoch(tensord.url, "cpu:0");
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", epoch + 1}, 30000);
}

Test(no_memory, of_a_worker_from_its_start_costs_it_no_client) {
    unsigned n = 0;
    daemon_start(&tensord, options());
    do {
        n++;
        arm(REFUSALS_CPU0, n, n);
        restart_worker();
        int worker = status_worker_pid(tensord.url, "cpu:0");
        job_is_told(jobs_first);
        refusals_disarm(&roles[REFUSALS_CPU0]);
        job_succeeds(jobs_short);
        cr_assert_eq(status_worker_pid(tensord.url, "cpu:0"), worker, "refusal %u ended a worker with clients", n);
    } while (roles[REFUSALS_CPU0].calls >= n);
    settle();
    cr_assert_gt(n, 50, "a worker allocates more than this");
    cr_log_info("each of %u allocations of a worker", n);
    stop();
}

/* What refuses to start says so and leaves nothing behind; what starts serves. */
static void start_front(unsigned n) {
    int status;
    arm(REFUSALS_FRONT, n, n);
    if (daemon_starts(&tensord, options(), &status)) {
        job_is_told(jobs_control);
        refusals_disarm(&roles[REFUSALS_FRONT]);
        status_until(tensord.url, status_all_ready, NULL, 30000);
        job_succeeds(jobs_control);
        stop();
        return;
    }
    refusals_disarm(&roles[REFUSALS_FRONT]);
    char *log = daemon_log(&tensord);
    daemon_kill(&tensord);
    cr_assert_neq(status, -1, "refusal %u: it neither starts nor ends", n);
    cr_assert_neq(status, 0, "refusal %u: it ended as if all were well", n);
    cr_assert(!WIFEXITED(status) || strstr(log, "tensord") || strstr(log, "start_failed"),
              "refusal %u: no word, but %s", n, log);
    free(log);
}

Test(no_memory, of_the_front_from_its_start_ends_it_or_is_told) {
    unsigned n = 0;
    do
        start_front(++n);
    while (roles[REFUSALS_FRONT].calls >= n);
    cr_assert_gt(n, 20, "a front allocates more than this");
    cr_log_info("each of %u allocations of a front", n);
}
