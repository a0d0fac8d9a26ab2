/* A daemon for the benchmark, on the cores that this process is pinned to. */
#include <dirent.h>
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

static void wait_ready(int notify, pid_t pid) {
    char text[256] = "";
    struct pollfd poll_fd = {.fd = notify, .events = POLLIN};
    while (!strstr(text, "READY=1")) {
        if (poll(&poll_fd, 1, 10000) != 1 || waitpid(pid, NULL, WNOHANG) != 0)
            die("the daemon did not become ready");
        ssize_t got = recv(notify, text, sizeof text - 1, 0);
        text[got > 0 ? got : 0] = 0;
    }
}

static void run_daemon(const struct bench_daemon *daemon, const char *notify, const char *log) {
    const char *program = getenv("TENSORD_EXE");
    char url[160];
    snprintf(url, sizeof url, "%s", daemon->url);
    int fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(fd, 2);
    setenv("NOTIFY_SOCKET", notify, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl(program ? program : "build/server/tensord", "tensord", "--listen", url, "--listen", "tcp://127.0.0.1:0",
          "--devices", "cpu", (char *)NULL);
    _exit(127);
}

/* event=listening url=tcp://… */
static void find_tcp(struct bench_daemon *daemon, const char *log) {
    char line[1024];
    FILE *file = fopen(log, "r");
    while (file && fgets(line, sizeof line, file)) {
        char *url = strstr(line, "url=tcp://");
        if (url && strstr(line, "event=listening"))
            sscanf(url + 4, "%127[^ \n]", daemon->tcp);
    }
    if (file)
        fclose(file);
}

void bench_daemon_start(struct bench_daemon *daemon) {
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
        run_daemon(daemon, notify, log);
    wait_ready(fd, daemon->pid);
    daemon->start_ms = (bench_now() - begin) * 1e3;
    close(fd);
    find_tcp(daemon, log);
}

void bench_daemon_stop(struct bench_daemon *daemon) {
    kill(daemon->pid, SIGTERM);
    waitpid(daemon->pid, NULL, 0);
    const char *const names[] = {"socket", "notify", "log"};
    char path[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", daemon->directory, names[i]);
        unlink(path);
    }
    rmdir(daemon->directory);
}

static double process_memory(long pid) {
    char path[64], line[256];
    double total = 0;
    snprintf(path, sizeof path, "/proc/%ld/smaps_rollup", pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long kib;
        if (sscanf(line, "Pss: %llu kB", &kib) == 1)
            total = (double)kib * 1024;
    }
    if (file)
        fclose(file);
    return total;
}

static long process_parent(long pid) {
    char path[64];
    long parent = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %*c %ld", &parent) != 1)
        parent = 0;
    if (file)
        fclose(file);
    return parent;
}

double bench_daemon_memory(const struct bench_daemon *daemon) {
    double total = process_memory(daemon->pid);
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0 && process_parent(pid) == daemon->pid)
            total += process_memory(pid);
    }
    if (processes)
        closedir(processes);
    return total;
}

void bench_start(void) {
    enum { RUNS = 9 };
    double starts[RUNS], memory[RUNS];
    for (int i = 0; i < RUNS; i++) {
        struct bench_daemon daemon;
        bench_daemon_start(&daemon);
        starts[i] = daemon.start_ms;
        memory[i] = bench_daemon_memory(&daemon) / (1 << 20);
        bench_daemon_stop(&daemon);
    }
    double start = bench_median(starts, RUNS), idle = bench_median(memory, RUNS);
    bench_row("start to ready", start, "ms", 100, start / 100, BENCH_LOWER, 1);
    bench_row("idle memory, front and worker (PSS)", idle, "MiB", 40, idle / 40, BENCH_LOWER, 1);
}
