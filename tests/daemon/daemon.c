#include "tests/daemon/daemon.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/command.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"

enum { START_MS = 30000, STOP_MS = 30000, ARGUMENTS_MAX = 48 };

const char *daemon_program(const char *variable) {
    const char *path = getenv(variable);
    cr_assert_not_null(path, "%s is not set: run the tests with meson test", variable);
    return path;
}

void daemon_directory_make(char directory[64]) {
    snprintf(directory, 64, "/tmp/tensord-test.XXXXXX");
    cr_assert_not_null(mkdtemp(directory), "mkdtemp: %s", strerror(errno));
}

static int directory_entry_remove(const char *path, const struct stat *stat, int type, struct FTW *ftw) {
    (void)stat, (void)type, (void)ftw;
    return remove(path);
}

void daemon_directory_remove(const char *directory) {
    if (directory[0] && !getenv("TENSORD_TEST_KEEP"))
        nftw(directory, directory_entry_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static int notify_open(const struct daemon *daemon, char path[100]) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(path, 100, "%s/notify", daemon->directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof address), "bind: %s", strerror(errno));
    return fd;
}

static void daemon_exec(const struct daemon *daemon, const struct daemon_options *options, const char *notify) {
    const char *arguments[ARGUMENTS_MAX] = {daemon_program("TENSORD_EXE"), "--listen", daemon->url, "--devices",
                                            options->devices ? options->devices : "cpu:0"};
    size_t n = 5;
    if (options->tcp) {
        arguments[n++] = "--listen";
        arguments[n++] = options->tcp;
    }
    for (size_t i = 0; options->flags && options->flags[i] && n < ARGUMENTS_MAX - 1; i++)
        arguments[n++] = options->flags[i];
    /* A test that dies takes its daemon with it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, 0);
    dup2(log, 1);
    dup2(log, 2);
    if (options->files_max)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){options->files_max, options->files_max});
    setenv("NOTIFY_SOCKET", notify, 1);
    command_environment(options->environment);
    execv(arguments[0], (char *const *)arguments);
    _exit(127);
}

/* True when READY=1 has come, false when the daemon has ended or the deadline passed. */
static bool daemon_ready(struct daemon *daemon, int64_t deadline) {
    struct pollfd entries[2] = {{.fd = daemon->notify, .events = POLLIN}, {.fd = daemon->pidfd, .events = POLLIN}};
    while (poll(entries, 2, deadline_left(deadline)) > 0) {
        if (!entries[0].revents)
            return false;
        char text[256];
        ssize_t n = recv(daemon->notify, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        if (strstr(text, "READY=1"))
            return true;
    }
    return false;
}

/* Reads the address that was really bound out of "event=listening url=tcp://…", or tls://. */
static void daemon_tcp_address(struct daemon *daemon, const char *asked) {
    char scheme[16];
    snprintf(scheme, sizeof scheme, "url=%.6s", asked);
    char *log = daemon_log(daemon);
    char *place = strstr(log, scheme);
    cr_assert_not_null(place, "no listening line for %s in the log:\n%s", asked, log);
    sscanf(place, "url=%127s", daemon->tcp);
    free(log);
}

static void daemon_launch(struct daemon *daemon, const struct daemon_options *options) {
    char notify[100];
    /* Workers that outlive their front become children of the test, and so are seen. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    *daemon = (struct daemon){.pidfd = -1};
    daemon_directory_make(daemon->directory);
    snprintf(daemon->socket, sizeof daemon->socket, "%s/tensord.sock", daemon->directory);
    snprintf(daemon->url, sizeof daemon->url, "unix:%s", daemon->socket);
    snprintf(daemon->log, sizeof daemon->log, "%s/log", daemon->directory);
    daemon->notify = notify_open(daemon, notify);
    daemon->pid = fork();
    cr_assert(daemon->pid >= 0);
    if (!daemon->pid)
        daemon_exec(daemon, options, notify);
    daemon->pidfd = daemon_process_watch(daemon->pid);
}

bool daemon_starts(struct daemon *daemon, const struct daemon_options *options, int *status) {
    daemon_launch(daemon, options);
    *status = 0;
    if (daemon_ready(daemon, deadline_in(START_MS)))
        return true;
    *status = daemon_wait(daemon, STOP_MS);
    return false;
}

void daemon_start(struct daemon *daemon, const struct daemon_options *options) {
    const struct daemon_options none = {0};
    options = options ? options : &none;
    daemon_launch(daemon, options);
    if (!daemon_ready(daemon, deadline_in(START_MS))) {
        char *log = daemon_log(daemon);
        daemon_kill(daemon);
        cr_assert_fail("tensord did not become ready:\n%s", log);
    }
    if (options->tcp)
        daemon_tcp_address(daemon, options->tcp);
    status_until(daemon->url, status_all_ready, NULL, START_MS);
}

int daemon_wait(struct daemon *daemon, int milliseconds) {
    int status = -1;
    if (!deadline_poll(daemon->pidfd, POLLIN, deadline_in(milliseconds)))
        return -1;
    cr_assert(waitpid(daemon->pid, &status, 0) == daemon->pid);
    daemon->pid = 0;
    return status;
}

/* Reaps what the front left behind: what still lives after the deadline is a failure. */
static bool orphans_gone(int milliseconds) {
    int64_t deadline = deadline_in(milliseconds);
    do {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 && errno == ECHILD)
            return true;
    } while (deadline_pause(deadline));
    return false;
}

static void daemon_forget(struct daemon *daemon) {
    close(daemon->pidfd);
    close(daemon->notify);
    daemon_directory_remove(daemon->directory);
    *daemon = (struct daemon){.pidfd = -1, .notify = -1};
}

void daemon_gone(struct daemon *daemon) {
    bool socket_left = !access(daemon->socket, F_OK);
    bool orphans = !orphans_gone(0);
    daemon_forget(daemon);
    cr_assert(!socket_left, "the socket file was left behind");
    cr_assert(!orphans, "a worker outlived its front");
}

void daemon_stop(struct daemon *daemon) {
    if (daemon->pid <= 0)
        return;
    kill(daemon->pid, SIGTERM);
    int status = daemon_wait(daemon, STOP_MS);
    if (status != 0) {
        char *log = daemon_log(daemon);
        daemon_kill(daemon);
        cr_assert_fail("tensord ended with wait status %d (-1: not within %d ms) after SIGTERM:\n%s", status, STOP_MS,
                       log);
    }
    daemon_gone(daemon);
}

void daemon_kill(struct daemon *daemon) {
    if (daemon->pid > 0) {
        kill(daemon->pid, SIGKILL);
        waitpid(daemon->pid, NULL, 0);
    }
    if (daemon->directory[0]) {
        orphans_gone(2000);
        daemon_forget(daemon);
    }
}

char *daemon_log(const struct daemon *daemon) {
    struct stat stat;
    int fd = open(daemon->log, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat)) {
        close(fd);
        return calloc(1, 1);
    }
    char *text = calloc((size_t)stat.st_size + 1, 1);
    ssize_t n = read(fd, text, (size_t)stat.st_size);
    text[n > 0 ? n : 0] = 0;
    close(fd);
    return text;
}

bool daemon_log_has(const struct daemon *daemon, const char *text, int milliseconds) {
    int64_t deadline = deadline_in(milliseconds);
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    inotify_add_watch(watch, daemon->log, IN_MODIFY);
    bool found = false;
    do {
        char events[4096];
        (void)!read(watch, events, sizeof events);
        char *log = daemon_log(daemon);
        found = strstr(log, text);
        free(log);
    } while (!found && deadline_poll(watch, POLLIN, deadline));
    close(watch);
    return found;
}

static void process_file(pid_t pid, const char *name, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0, "process %d is gone", pid);
    ssize_t n = read(fd, text, size - 1);
    text[n > 0 ? n : 0] = 0;
    close(fd);
}

unsigned long long daemon_process_rss(pid_t pid) {
    char text[256];
    unsigned long long size, resident;
    process_file(pid, "statm", text, sizeof text);
    cr_assert(sscanf(text, "%llu %llu", &size, &resident) == 2);
    return resident * (unsigned long long)sysconf(_SC_PAGESIZE);
}

unsigned long long daemon_process_cpu_ms(pid_t pid) {
    char text[1024];
    unsigned long long user, kernel;
    process_file(pid, "stat", text, sizeof text);
    char *rest = strrchr(text, ')');
    cr_assert_not_null(rest);
    cr_assert(sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &kernel) == 2);
    return (user + kernel) * 1000 / (unsigned long long)sysconf(_SC_CLK_TCK);
}

int daemon_process_watch(pid_t pid) {
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    cr_assert(fd >= 0, "pidfd_open(%d): %s", pid, strerror(errno));
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}
