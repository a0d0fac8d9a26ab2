/* How soon a worker is ready, and how much of the GPU's memory it takes that a bare context does not. */
#include <string.h>

#include "tests/bench/cuda/cuda.h"

enum { RUNS = 3 };

static double free_mib(const struct raw *raw) {
    return (double)raw_ask(raw, &(struct raw_request){.kind = RAW_CONTEXT}).free_bytes / (1 << 20);
}

/* What one more process takes that has only a context. */
static double context_mib(const struct cuda *cuda) {
    struct raw bare;
    double before = free_mib(&cuda->raw);
    raw_start(&bare, cuda->ordinal);
    free_mib(&bare);
    double taken = before - free_mib(&cuda->raw);
    raw_stop(&bare);
    return taken;
}

/* A session that has done a little of everything. */
static void small_session(struct bench_client *client, const char *url) {
    bench_client_open(client, url, NULL);
    td_tensor *x = bench_made(td_uniform(client->device, TD_F32, TD_SHAPE(64, 64), 1, 0, 1), "uniform");
    td_tensor *y = bench_made(td_softmax(td_matmul(x, td_transpose(td_add(x, x))), 1), "softmax");
    bench_check(td_wait(bench_made(td_sum(td_cast(y, TD_BF16), TD_ALL_AXES, 0), "sum")), "wait");
}

struct start {
    double ready_ms, idle_mib, used_mib; /* beyond a bare context */
};

static void start_measure(const struct cuda *cuda, struct start *start) {
    struct bench_daemon daemon;
    struct bench_client client;
    char why[BENCH_WHY];
    double context = context_mib(cuda), before = free_mib(&cuda->raw);
    if (!bench_daemon_open(&daemon, cuda->device, why))
        bench_fail("%s", why);
    start->ready_ms = daemon.start_ms;
    start->idle_mib = before - free_mib(&cuda->raw) - context;
    small_session(&client, daemon.url);
    start->used_mib = before - free_mib(&cuda->raw) - context;
    bench_client_close(&client);
    bench_daemon_stop(&daemon);
}

void cuda_start(struct cuda *cuda, const struct cuda_bench *bench) {
    double ready[RUNS], idle[RUNS], used[RUNS];
    free_mib(&cuda->raw); /* its own context comes first */
    for (int i = 0; i < RUNS; i++) {
        struct start start;
        start_measure(cuda, &start);
        ready[i] = start.ready_ms;
        idle[i] = start.idle_mib;
        used[i] = start.used_mib;
    }
    double start = bench_median(ready, RUNS), at_rest = bench_median(idle, RUNS), working = bench_median(used, RUNS);
    cuda_report(bench, 0, start, 2000, start / 2000);
    bench_note("from exec to READY=1, while another process has a context");
    cuda_report(bench, 1, at_rest, 64, at_rest / 64);
    bench_note("cudaMemGetInfo of another process, less what a bare context takes");
    cuda_report(bench, 2, working, 64, working / 64);
    bench_note("the same after a product, a softmax and a sum of 64 x 64");
}
