/* `tensorctl status --watch`: on a terminal in place, elsewhere one after the other, and its end. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"

enum { WAIT_MS = 10000 };

static struct daemon tensord;

/* A running `tensorctl status --watch 0.05`, and what it has written so far. */
static struct watch {
    pid_t pid;
    int out;
    char text[1 << 16];
    size_t n;
} watch;

static void start(void) {
    daemon_start(&tensord, NULL);
}

static void stop(void) {
    daemon_stop(&tensord);
}

TestSuite(watch, .init = start, .fini = stop, .timeout = 60);

/* `out` becomes its standard output, and is closed here. */
static void watch_start(int out) {
    watch.pid = fork();
    cr_assert(watch.pid >= 0);
    if (!watch.pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGINT, SIG_DFL); /* a shell's background jobs ignore it */
        dup2(out, STDOUT_FILENO);
        execl(daemon_program("TENSORCTL_EXE"), "tensorctl", "--url", tensord.url, "status", "--watch", "0.05", NULL);
        _exit(127);
    }
    close(out);
}

static void watch_start_on_a_pipe(void) {
    int ends[2];
    cr_assert(!pipe2(ends, O_CLOEXEC));
    watch.out = ends[0];
    watch_start(ends[1]);
}

static void watch_start_on_a_terminal(unsigned short rows, unsigned short columns) {
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    watch.out = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    cr_assert(watch.out >= 0 && !grantpt(watch.out) && !unlockpt(watch.out), "no terminal: %s", strerror(errno));
    int terminal = open(ptsname(watch.out), O_RDWR | O_NOCTTY | O_CLOEXEC);
    cr_assert(terminal >= 0 && !ioctl(terminal, TIOCSWINSZ, &size), "%s", strerror(errno));
    watch_start(terminal);
}

/* False at the end. */
static bool watch_read(int64_t deadline) {
    cr_assert(deadline_poll(watch.out, POLLIN, deadline), "it writes nothing more");
    ssize_t got = read(watch.out, watch.text + watch.n, sizeof watch.text - 1 - watch.n);
    watch.n += got > 0 ? (size_t)got : 0;
    watch.text[watch.n] = 0;
    return got > 0;
}

static unsigned watch_count(const char *text) {
    unsigned count = 0;
    for (const char *at = watch.text; (at = strstr(at, text)); at++)
        count++;
    return count;
}

static void watch_until(const char *text, unsigned times) {
    int64_t deadline = deadline_in(WAIT_MS);
    while (watch_count(text) < times)
        cr_assert(watch_read(deadline), "it ended early:\n%s", watch.text);
}

/* The wait status. */
static int watch_end(void) {
    int status, pidfd = daemon_process_watch(watch.pid);
    cr_assert(deadline_poll(pidfd, POLLIN, deadline_in(WAIT_MS)), "it does not end");
    cr_assert_eq(waitpid(watch.pid, &status, 0), watch.pid);
    close(pidfd);
    return status;
}

Test(watch, terminal_is_refreshed_in_place_and_given_back) {
    watch_start_on_a_terminal(30, 100);
    watch_until("\033[J", 3);
    cr_assert(!strncmp(watch.text, "\033[?1049h\033[?25l", 14), "it does not begin on a screen of its own");
    cr_assert_geq(watch_count("\033[H"), 3, "it does not go back to the top");
    cr_assert_eq(watch_count("\033[2J"), 0, "it clears the screen, which flickers");
    cr_assert_geq(watch_count("cpu:0  ready"), 3);
    kill(watch.pid, SIGINT);
    while (watch_read(deadline_in(WAIT_MS)))
        ;
    cr_assert_eq(watch_end(), 0);
    cr_assert_str_eq(watch.text + watch.n - strlen("\033[?25h\033[?1049l"), "\033[?25h\033[?1049l",
                     "the terminal is left as it was not");
    close(watch.out);
}

/* It may not scroll: what there are no lines for is left out. */
Test(watch, small_terminal_does_not_scroll) {
    watch_start_on_a_terminal(3, 80);
    watch_until("\033[J", 2);
    const char *first = strstr(watch.text, "\033[H"), *end = strstr(first, "\033[J");
    unsigned lines = 0;
    for (const char *at = first; at < end; at++)
        lines += *at == '\n';
    cr_assert_leq(lines, 2, "%u lines on a terminal of 3", lines);
    kill(watch.pid, SIGTERM);
    while (watch_read(deadline_in(WAIT_MS)))
        ;
    cr_assert_neq(watch_end(), 0);
    cr_assert_eq(watch_count("\033[?1049l"), 1, "the terminal is left as it was not");
    close(watch.out);
}

Test(watch, pipe_gets_plain_text_again_and_again) {
    watch_start_on_a_pipe();
    watch_until("cpu:0  ready", 3);
    cr_assert_eq(watch_count("\033"), 0, "control sequences in a pipe");
    kill(watch.pid, SIGINT);
    watch_end();
    close(watch.out);
}

Test(watch, closed_pipe_ends_it) {
    watch_start_on_a_pipe();
    watch_until("cpu:0  ready", 1);
    close(watch.out);
    int status = watch_end();
    cr_assert(WIFSIGNALED(status) ? WTERMSIG(status) == SIGPIPE : WEXITSTATUS(status) == 1, "wait status %d", status);
}

/* On a terminal, for a daemon that is started again; what came last stays to be seen. */
Test(watch, end_of_the_daemon_is_told_and_waited_out) {
    watch_start_on_a_terminal(30, 100);
    watch_until("\033[J", 1);
    kill(tensord.pid, SIGTERM);
    watch_until("connection lost, trying again", 1);
    cr_assert_eq(daemon_wait(&tensord, WAIT_MS), 0);
    kill(watch.pid, SIGINT);
    while (watch_read(deadline_in(WAIT_MS)))
        ;
    cr_assert_eq(watch_end(), 0);
    daemon_gone(&tensord);
    cr_assert_eq(watch_count("\033[?1049l"), 1, "the terminal is left as it was not");
    close(watch.out);
}
