/* Stops: how long it takes from a request that ends a session, or from the end of a time that was granted, until the device and
 * the memory are there for others, while an operation that takes long is at work. The limit is 100 ms. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/raw.h"

enum { TIMES = 7, GRANTED_MS = 300, LIMIT_MS = 100, BEGUN_MS_MAX = 60000 };

/* ---- the client that is stopped ---- */

static pid_t start_work(const char *url, const struct bench_long *work, bool resumable) {
    int ends[2];
    char byte;
    if (pipe(ends) != 0)
        bench_fail("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        struct bench_client client;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bench_client_open(&client, url, &(td_options){.reconnect_ms = resumable ? 0 : TD_NEVER});
        bench_long_keep_busy(work, client.device, ends[1]);
        pause();
    }
    close(ends[1]);
    struct pollfd begun = {.fd = ends[0], .events = POLLIN};
    if (poll(&begun, 1, BEGUN_MS_MAX) != 1 || read(ends[0], &byte, 1) != 1)
        bench_fail("%s did not begin", work->name);
    close(ends[0]);
    return pid;
}

/* ---- the ways to stop it; each returns the milliseconds ---- */

/* Until another client has memory and has filled it, since `begin`. */
static double until_given_back(struct bench_client *other, double begin) {
    for (;;) {
        td_tensor *asked = bench_made(td_full(other->device, TD_U8, TD_SHAPE(8 << 20), 1), "full");
        int code = td_wait(asked);
        td_release(asked);
        if (code == TD_OK)
            return (bench_now() - begin) * 1e3;
        if (code != TD_E_OUT_OF_MEMORY)
            bench_check(code, "wait");
        if (bench_now() > begin + 60)
            bench_fail("the memory was not given back within a minute");
    }
}

static void end_process(pid_t pid) {
    int status;
    kill(pid, SIGKILL);
    if (waitpid(pid, &status, 0) == pid && WIFEXITED(status))
        bench_fail("the work ended before it was stopped");
}

/* Since the client has ended: how soon a process does is not the daemon's. */
static double stop_by_close(const struct bench_daemon *daemon, const struct bench_long *work) {
    struct bench_client other;
    bench_client_open(&other, daemon->url, NULL);
    pid_t pid = start_work(daemon->url, work, false);
    end_process(pid);
    double took = until_given_back(&other, bench_now());
    bench_client_close(&other);
    return took;
}

/* The daemon grants sessions GRANTED_MS; those of its own host, whose process has ended, it ends at once. */
static double stop_by_lease(const struct bench_daemon *daemon, const struct bench_long *work) {
    struct bench_client other;
    bench_client_open(&other, daemon->url, NULL);
    pid_t pid = start_work(daemon->tcp, work, true);
    end_process(pid);
    double took = until_given_back(&other, bench_now() + GRANTED_MS * 1e-3);
    bench_client_close(&other);
    return took;
}

/* What an operator would: asks which session is the process's, and ends that. */
static uint64_t session_of(int control, pid_t pid) {
    static uint8_t message[FRAME_MESSAGE_MAX];
    Tensord__GetStatus get = TENSORD__GET_STATUS__INIT;
    struct frame_header header = {0};
    uint64_t session = 0;
    bench_raw_send(control, FRAME_GET_STATUS, 2, &get.base);
    while (header.type != FRAME_STATUS)
        if (!bench_raw_receive(control, &header, message, sizeof message))
            bench_fail("the daemon tells no status");
    Tensord__Status *status = tensord__status__unpack(NULL, header.message_bytes, message);
    for (size_t i = 0; status && i < status->n_sessions; i++)
        if (status->sessions[i]->pid == (uint32_t)pid)
            session = status->sessions[i]->id;
    if (status)
        tensord__status__free_unpacked(status, NULL);
    return session;
}

static double stop_by_kill(const struct bench_daemon *daemon, const struct bench_long *work) {
    struct bench_client other;
    Tensord__KillSession request = TENSORD__KILL_SESSION__INIT;
    bench_client_open(&other, daemon->url, NULL);
    pid_t pid = start_work(daemon->url, work, false);
    int control = bench_raw_open(daemon->url, PREAMBLE_TARGET_CONTROL);
    while (!(request.session = session_of(control, pid)))
        usleep(10000); /* the status is some time old */
    double begin = bench_now();
    bench_raw_send(control, FRAME_KILL_SESSION, 3, &request.base);
    double took = until_given_back(&other, begin);
    close(control);
    end_process(pid);
    bench_client_close(&other);
    return took;
}

/* The daemon grants an operation GRANTED_MS. Until its client has been told, and others have the device; 0: it was faster. */
static double stop_by_limit(const struct bench_daemon *daemon, const struct bench_long *work) {
    struct bench_client client;
    td_tensor *x[3] = {0};
    bench_client_open(&client, daemon->url, &(td_options){.reconnect_ms = TD_NEVER});
    work->open(client.device, x);
    bench_check(td_sync(client.device), "sync");
    double begin = bench_now();
    int code = td_wait(bench_made(work->make(client.device, x), work->name));
    double took = (bench_now() - begin) * 1e3 - GRANTED_MS;
    bench_client_close(&client);
    return code == TD_E_LIMIT ? took : 0;
}

/* The daemon, which grants work GRANTED_MS, is told to end. Until it has. */
static double stop_by_drain(const struct bench_daemon *unused, const struct bench_long *work) {
    struct bench_daemon daemon;
    (void)unused;
    bench_daemon_start(&daemon);
    pid_t pid = start_work(daemon.url, work, false);
    double begin = bench_now();
    bench_daemon_stop(&daemon);
    double took = (bench_now() - begin) * 1e3 - GRANTED_MS;
    end_process(pid);
    return took;
}

static const struct {
    const char *name;
    double (*stop)(const struct bench_daemon *daemon, const struct bench_long *work);
    const char *const flags[3];
    bool own_daemon;
} ways[] = {
    {"kill", stop_by_kill, {NULL}, false},
    {"close", stop_by_close, {NULL}, false},
    {"session-lease", stop_by_lease, {"--session-lease", "300ms", NULL}, false},
    {"operation-time", stop_by_limit, {"--operation-time", "300ms", NULL}, false},
    {"drain", stop_by_drain, {"--drain-timeout", "300ms", NULL}, true},
};

static void measure(const char *way, const struct bench_long *work, double *took, size_t n) {
    char row[128];
    snprintf(row, sizeof row, "stop by %s, worst; %s", way, work->name);
    if (took[0] == 0) {
        bench_not_run(row, "ms", BENCH_LOWER, 1, "it takes no longer than it may");
        return;
    }
    double median = bench_median(took, n), worst = took[n - 1]; /* which has sorted them */
    bench_row(row, worst, "ms", LIMIT_MS, worst / LIMIT_MS, BENCH_LOWER, 1);
    bench_note("median %.1f ms of %zu", median, n);
}

void bench_stops(void) {
    size_t times = bench_quick ? 1 : TIMES, step = bench_quick ? 6 : 1;
    bench_daemon_memory = "512M";
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct bench_daemon daemon;
        double took[TIMES] = {0};
        bench_daemon_flags = ways[i].flags;
        if (!ways[i].own_daemon)
            bench_daemon_start(&daemon);
        for (size_t k = 0; k < bench_longs_count; k += step) {
            for (size_t t = 0; t < times; t++)
                took[t] = ways[i].stop(&daemon, &bench_longs[k]);
            measure(ways[i].name, &bench_longs[k], took, times);
        }
        if (!ways[i].own_daemon)
            bench_daemon_kill(&daemon);
    }
    bench_daemon_memory = NULL;
    bench_daemon_flags = NULL;
}
