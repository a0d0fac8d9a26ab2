/* Reports of crashes, by processes that crash on purpose; and the names of functions that they show. */
#include <criterion/criterion.h>
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/device/thread.h"
#include "server/ipc/stats_page.h"
#include "server/process/log.h"
#include "server/worker/crash.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true }; /* which report such signals themselves */
#else
enum { SANITIZED = false };
#endif

TestSuite(crash, .timeout = 60, .disabled = SANITIZED);

/* Where a report can be made to hang: the unwinder, in memory that is damaged. */
int __real_backtrace(void **frames, int capacity);
int __wrap_backtrace(void **frames, int capacity);
static bool unwinder_hangs;

int __wrap_backtrace(void **frames, int capacity) {
    while (unwinder_hangs)
        pause();
    return __real_backtrace(frames, capacity);
}

struct crashed {
    char text[16 << 10]; /* standard error */
    int status;
};

/* Runs `crash` in a process of its own, which it is to end. */
static void crash_in_child(struct crashed *crashed, void (*crash)(void)) {
    int pipes[2];
    size_t n = 0;
    cr_assert(!pipe(pipes));
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        dup2(pipes[1], STDERR_FILENO);
        for (int number = 1; number < 32; number++) /* the test runner has handlers of its own */
            if (number != SIGKILL && number != SIGSTOP)
                signal(number, SIG_DFL);
        log_init(LOG_LEVEL_INFO, "cpu:0");
        crash_init();
        crash();
        _exit(0);
    }
    close(pipes[1]);
    for (ssize_t got; (got = read(pipes[0], crashed->text + n, sizeof crashed->text - 1 - n)) > 0;)
        n += (size_t)got;
    crashed->text[n] = 0;
    close(pipes[0]);
    cr_assert_eq(waitpid(pid, &crashed->status, 0), pid);
}

static void expect_signal(const struct crashed *crashed, int number) {
    cr_assert(WIFSIGNALED(crashed->status) && WTERMSIG(crashed->status) == number, "wait status %d:\n%s",
              crashed->status, crashed->text);
}

static void expect_line(const struct crashed *crashed, const char *part) {
    cr_assert(strstr(crashed->text, part), "no \"%s\" in:\n%s", part, crashed->text);
}

__attribute__((noinline)) static void write_nowhere(void) {
    volatile int *volatile nowhere = (volatile int *)UINT64_C(0xbad0);
    *nowhere = 1;
}

Test(crash, fault_is_reported_with_its_signal_place_and_calls) {
    struct crashed crashed;
    crash_in_child(&crashed, write_nowhere);
    expect_signal(&crashed, SIGSEGV);
    expect_line(&crashed, "level=error process=cpu:0 event=crash signal=SIGSEGV cause=\"nothing is at this address\" "
                          "address=0xbad0 thread=");
    expect_line(&crashed, "event=crash_frame n=0 module=");
    expect_line(&crashed, "function=write_nowhere+0x");
    expect_line(&crashed, "function=crash_in_child+0x");
    expect_line(&crashed, "event=crash_end signal=SIGSEGV\n");
}

Test(crash, abort_is_reported) {
    struct crashed crashed;
    crash_in_child(&crashed, abort);
    expect_signal(&crashed, SIGABRT);
    expect_line(&crashed, "event=crash signal=SIGABRT cause=\"raised by the process itself\"");
    expect_line(&crashed, "function=abort+0x");
}

/* Not a tail call, and not a loop either. */
__attribute__((noinline)) static unsigned overflow(volatile unsigned *depth) {
    volatile char room[4096];
    room[*depth % sizeof room] = 1;
    return ++*depth ? overflow(depth) + room[1] : 0;
}

static void *overflow_main(void *argument) {
    volatile unsigned depth = 0;
    (void)argument;
    thread_begin("recursion");
    overflow(&depth);
    return NULL;
}

static void overflow_thread(void) {
    pthread_t thread;
    sigset_t before;
    thread_block_signals(&before); /* as threads are started that compute */
    pthread_create(&thread, NULL, overflow_main, NULL);
    pthread_join(thread, NULL);
}

Test(crash, stack_overflow_of_a_thread_is_reported) {
    struct crashed crashed;
    crash_in_child(&crashed, overflow_thread);
    expect_signal(&crashed, SIGSEGV);
    expect_line(&crashed, "thread=recursion");
    expect_line(&crashed, "function=overflow");
    expect_line(&crashed, "event=crash_end");
}

/* The page is what the report reads; here that is a fault itself. */
static void crash_twice(void) {
    void *page = mmap(NULL, sizeof(struct stats_page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    crash_watch(NULL, page);
    write_nowhere();
}

Test(crash, fault_within_a_report_ends_both) {
    struct crashed crashed;
    crash_in_child(&crashed, crash_twice);
    expect_signal(&crashed, SIGSEGV);
    expect_line(&crashed, "event=crash signal=SIGSEGV");
    cr_assert(!strstr(crashed.text, "crash_end"), "%s", crashed.text);
}

static void crash_and_hang(void) {
    unwinder_hangs = true;
    write_nowhere();
}

Test(crash, report_that_hangs_is_cut_short) {
    struct crashed crashed;
    crash_in_child(&crashed, crash_and_hang);
    expect_signal(&crashed, SIGSEGV);
    expect_line(&crashed, "event=crash signal=SIGSEGV");
}

static void crash_unread(void) {
    int pipes[2];
    static const char junk[4096];
    cr_assert(!pipe2(pipes, O_NONBLOCK));
    while (write(pipes[1], junk, sizeof junk) > 0)
        ;
    dup2(pipes[1], STDERR_FILENO);
    write_nowhere();
}

Test(crash, report_that_nobody_reads_does_not_keep_the_process) {
    struct crashed crashed;
    crash_in_child(&crashed, crash_unread);
    expect_signal(&crashed, SIGSEGV);
}

static void *crash_main(void *argument) {
    (void)argument;
    write_nowhere();
    return NULL;
}

static void crash_on_many_threads(void) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, crash_main, NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
}

Test(crash, threads_that_crash_at_once_are_one_report) {
    struct crashed crashed;
    crash_in_child(&crashed, crash_on_many_threads);
    expect_signal(&crashed, SIGSEGV);
    expect_line(&crashed, "event=crash_end");
    cr_assert(!strstr(strstr(crashed.text, "event=crash ") + 1, "event=crash "), "%s", crashed.text);
}

static void somebody_elses(int number) {
    _exit(70 + number);
}

/* crash_init() has been called by now; a second call finds a handler and leaves it. */
static void crash_handled(void) {
    signal(SIGFPE, somebody_elses);
    crash_init();
    raise(SIGFPE);
}

Test(crash, handler_of_somebody_else_stays) {
    struct crashed crashed;
    crash_in_child(&crashed, crash_handled);
    cr_assert(WIFEXITED(crashed.status) && WEXITSTATUS(crashed.status) == 70 + SIGFPE, "%d", crashed.status);
}

/* ---- symbols ---- */

TestSuite(symbols, .timeout = 60);

static unsigned char *program_read(size_t *size) {
    FILE *file = fopen("/proc/self/exe", "rb");
    cr_assert_not_null(file);
    cr_assert(!fseek(file, 0, SEEK_END));
    *size = (size_t)ftell(file);
    unsigned char *bytes = malloc(*size);
    rewind(file);
    cr_assert_eq(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static bool find_in(const unsigned char *bytes, size_t size, char *name, size_t room) {
    char path[32];
    uint64_t begin;
    int fd = memfd_create("program", 0);
    cr_assert(fd >= 0 && (size_t)write(fd, bytes, size) == size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool found = false;
    for (uint64_t address = 0; address < size && !found; address += 1 << 13)
        found = symbols_find(path, address, name, room, &begin);
    close(fd);
    return found;
}

/* Cut off anywhere and with any word of its head changed, a file is read within its bounds. */
Test(symbols, damaged_files_are_read_within_their_bounds) {
    size_t size;
    char name[16];
    unsigned char *bytes = program_read(&size);
    cr_assert(find_in(bytes, size, name, sizeof name), "nothing found in a whole program");
    for (size_t cut = 0; cut < size; cut += size / 23 + 1)
        find_in(bytes, cut, name, sizeof name);
    for (size_t at = 0; at < 64; at += 2) {
        unsigned char saved[2] = {bytes[at], bytes[at + 1]};
        bytes[at] = bytes[at + 1] = 0xff;
        find_in(bytes, size, name, sizeof name);
        memcpy(&bytes[at], saved, 2);
    }
    cr_assert_lt(strlen(name), sizeof name);
    free(bytes);
}

Test(symbols, what_is_no_program_has_no_names) {
    char name[16];
    uint64_t begin;
    cr_assert(!symbols_find("/nonexistent", 0, name, sizeof name, &begin));
    cr_assert(!symbols_find("/proc/self", 0, name, sizeof name, &begin));
    cr_assert(!symbols_find("/proc/self/status", 0, name, sizeof name, &begin));
}
