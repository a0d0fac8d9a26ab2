/* A daemon for the benchmark, on the cores that this process is pinned to. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { NO_PROGRAM = 127, READY_SECONDS_MAX = 60, ARGUMENTS_MAX = 24 };

const char *bench_daemon_certificate, *bench_daemon_memory;
const char *const *bench_daemon_flags;

static void die(const char *what) {
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int notify_listen(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("notification socket");
    return fd;
}

static const char *daemon_program(void) {
    const char *program = getenv("TENSORD_EXE");
    return program ? program : "build/server/tensord";
}

/* False where it has ended (pid 0 then), or is not ready after a minute. */
static bool wait_ready(int notify, struct bench_daemon *daemon, char why[BENCH_WHY]) {
    char text[256] = "";
    int status;
    const double end = bench_now() + READY_SECONDS_MAX;
    struct pollfd poll_fd = {.fd = notify, .events = POLLIN};
    while (!strstr(text, "READY=1")) {
        if (waitpid(daemon->pid, &status, WNOHANG) != 0) {
            daemon->pid = 0;
            if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PROGRAM)
                snprintf(why, BENCH_WHY, "cannot run %.120s: set TENSORD_EXE to the daemon", daemon_program());
            return false;
        }
        if (bench_now() > end)
            return false;
        if (poll(&poll_fd, 1, 100) != 1)
            continue;
        ssize_t got = recv(notify, text, sizeof text - 1, 0);
        text[got > 0 ? got : 0] = 0;
    }
    return true;
}

static void run_daemon(const struct bench_daemon *daemon, const char *devices, const char *notify, const char *log) {
    char url[160];
    snprintf(url, sizeof url, "%s", daemon->url);
    int fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(fd, 2);
    setenv("NOTIFY_SOCKET", notify, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char *arguments[ARGUMENTS_MAX + 1] = {
        "tensord",  "--listen",          url,
        "--listen", "tcp://127.0.0.1:0", "--devices",
        devices,    "--memory",          bench_daemon_memory ? bench_daemon_memory : "0"};
    size_t n = 9;
    for (const char *const *flag = bench_daemon_flags; flag && *flag && n < ARGUMENTS_MAX; flag++)
        arguments[n++] = *flag;
    if (bench_daemon_certificate && n + 4 <= ARGUMENTS_MAX) {
        arguments[n++] = "--listen", arguments[n++] = "tls://127.0.0.1:0";
        arguments[n++] = "--tls-certificate", arguments[n++] = bench_daemon_certificate;
    }
    execv(daemon_program(), (char *const *)(uintptr_t)arguments);
    _exit(NO_PROGRAM);
}

/* event=listening url=tcp://…, and tls:// */
static void find_tcp(struct bench_daemon *daemon, const char *log) {
    char line[1024];
    FILE *file = fopen(log, "r");
    while (file && fgets(line, sizeof line, file)) {
        char *url = strstr(line, "url=tcp://");
        if (url && strstr(line, "event=listening"))
            sscanf(url + 4, "%127[^ \n]", daemon->tcp);
        url = strstr(line, "url=tls://");
        if (url && strstr(line, "event=listening"))
            sscanf(url + 4, "%127[^ \n]", daemon->tls);
    }
    if (file)
        fclose(file);
}

/* The last line of the log, where a daemon that ends says why. */
static void last_words(const char *log, char why[BENCH_WHY]) {
    char line[BENCH_WHY];
    FILE *file = fopen(log, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (*line)
            snprintf(why, BENCH_WHY, "the daemon did not become ready: %.200s", line);
    }
    if (file)
        fclose(file);
}

static void remove_files(const struct bench_daemon *daemon) {
    const char *const names[] = {"socket", "notify", "log"};
    char path[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", daemon->directory, names[i]);
        unlink(path);
    }
    rmdir(daemon->directory);
}

bool bench_daemon_open(struct bench_daemon *daemon, const char *devices, char why[BENCH_WHY]) {
    char notify[96], log[96];
    memset(daemon, 0, sizeof *daemon);
    snprintf(daemon->directory, sizeof daemon->directory, "/tmp/tensord-bench-XXXXXX");
    if (!mkdtemp(daemon->directory))
        die("temporary directory");
    snprintf(daemon->url, sizeof daemon->url, "unix:%s/socket", daemon->directory);
    snprintf(notify, sizeof notify, "%s/notify", daemon->directory);
    snprintf(log, sizeof log, "%s/log", daemon->directory);
    int fd = notify_listen(notify);
    double begin = bench_now();
    daemon->pid = fork();
    if (daemon->pid < 0)
        die("fork");
    if (daemon->pid == 0)
        run_daemon(daemon, devices, notify, log);
    snprintf(why, BENCH_WHY, "the daemon did not become ready");
    bool ready = wait_ready(fd, daemon, why);
    daemon->start_ms = (bench_now() - begin) * 1e3;
    close(fd);
    if (!ready) {
        last_words(log, why);
        bench_daemon_kill(daemon);
        return false;
    }
    find_tcp(daemon, log);
    return true;
}

void bench_daemon_start(struct bench_daemon *daemon) {
    char why[BENCH_WHY];
    if (!bench_daemon_open(daemon, "cpu", why))
        bench_fail("%s", why);
}

static void daemon_end(struct bench_daemon *daemon, int signal) {
    if (daemon->pid > 0) {
        kill(daemon->pid, signal);
        waitpid(daemon->pid, NULL, 0);
    }
    remove_files(daemon);
}

void bench_daemon_stop(struct bench_daemon *daemon) {
    daemon_end(daemon, SIGTERM);
}

void bench_daemon_kill(struct bench_daemon *daemon) {
    daemon_end(daemon, SIGKILL); /* its workers die with it */
}
