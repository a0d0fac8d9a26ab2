/* A job of every call there is, with the client's memory refused at the first, second, third … time, once or (at every third) from then on:
 * each call succeeds or says TD_E_NO_HOST_MEMORY, every callback is called, nothing crashes or hangs, and not a block is
 * left. A plain program with an allocator of its own (allocator.h), which the libraries use as well. The daemon is another
 * process, so that its memory is not counted. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/tensord.h"
#include "tests/load/no_memory/allocator.h"
#include "tests/load/no_memory/client_calls.h"
#include "tests/stand_ins/fake_daemon.h"

/* AddressSanitizer looks for leaks itself, makes the blocks of strdup() where they are not counted, and takes so long that every fourth time
 * must do. */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1, STEP = 4 };
#else
enum { SANITIZED = 0, STEP = 1 };
#endif

enum { VALUES = 200000, HANGS_S = 60 };

static char url[128];
static float values[VALUES];

static void hangs(int number) {
    static const char text[] = "a call hangs\n";
    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(1);
}

/* Words of the thread's last failure live until its next one. */
static void forget_words(void) {
    td_connection *connection;
    if (!td_connect("nowhere", NULL, &connection))
        exit(1);
}

/* The blocks that are left. */
static long check(unsigned from, unsigned to) {
    struct client_callbacks callbacks = {0};
    alarm(HANGS_S);
    refusals_arm(allocator_refusals, from, to);
    int code = client_calls(url, values, VALUES, &callbacks);
    refusals_disarm(allocator_refusals);
    alarm(0);
    if ((code && code != TD_E_NO_HOST_MEMORY) || callbacks.expected != callbacks.called) {
        fprintf(stderr, "allocations %u to %u refused: %d (%s), %d of %d callbacks\n", from, to, code,
                td_last_error()->message, callbacks.called, callbacks.expected);
        exit(1);
    }
    forget_words();
    return allocator_refusals->live;
}

static void check_blocks(unsigned from, unsigned to, long before) {
    long left = check(from, to);
    if (left == before || SANITIZED)
        return;
    fprintf(stderr, "allocations %u to %u refused: %ld blocks are left, %ld before\n", from, to, left, before);
    exit(1);
}

/* Serves until its parent ends. */
static pid_t start_daemon(void) {
    int ends[2];
    pid_t pid = pipe(ends) ? -1 : fork();
    if (pid == 0) {
        static struct fake_daemon fake;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fake_daemon_start(&fake);
        (void)!write(ends[1], fake.url, sizeof fake.url);
        pause();
    }
    if (pid < 0 || read(ends[0], url, sizeof url) != sizeof url)
        exit(1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

int main(void) {
    pid_t daemon = start_daemon();
    signal(SIGALRM, hangs);
    long before = check(0, 0);
    unsigned all = allocator_refusals->calls;
    check_blocks(0, 0, before);
    for (unsigned n = 1; n <= all + 5; n += STEP)
        check_blocks(n, n, before);
    for (unsigned n = 1; n <= all + 5; n += 3 * STEP)
        check_blocks(n, UINT32_MAX, before);
    kill(daemon, SIGKILL);
    waitpid(daemon, NULL, 0);
    unlink(url + strlen("unix:"));
    printf("%u allocations, one in %d refused\n", all, STEP);
    return 0;
}
