/* Eight clients with a mix of small and large work, each kept busy, against one. */
#include "tests/bench/cuda/cuda.h"

enum { CLIENTS = 8, RUNS = 3 };

struct mix {
    td_tensor *small, *small_step, *large, *large_step, *factor, *logits;
    td_tensor *last; /* of the round before */
};

static int64_t mix_scale = 1; /* what extents are divided by */

static td_tensor *noise(td_device *device, int64_t rows, int64_t columns) {
    return bench_made(td_uniform(device, TD_F32, TD_SHAPE(rows / mix_scale, columns / mix_scale), 1, -1, 1), "uniform");
}

static void *mix_open(struct bench_client *client) {
    static struct mix mix;
    mix = (struct mix){
        .small = bench_vector16(client->device, 0),
        .small_step = bench_vector16(client->device, 1),
        .large = noise(client->device, 4096, 4096),
        .large_step = noise(client->device, 4096, 4096),
        .factor = noise(client->device, 1024, 1024),
        .logits = noise(client->device, 4096, 1024),
    };
    return &mix;
}

/* A round has 64 adds of 16 floats, 4 of 64 MiB, 2 products of 1024, a softmax and a sum. It waits for the round before it,
 * so that the device always has one to work on. */
static long mix_round(struct bench_client *client, void *state) {
    struct mix *mix = state;
    td_tensor *before = mix->last;
    (void)client;
    mix->small = bench_adds(mix->small, mix->small_step, 64);
    mix->large = bench_adds(mix->large, mix->large_step, 4);
    for (int i = 0; i < 2; i++)
        td_release(bench_made(td_matmul(mix->factor, mix->factor), "matmul"));
    td_tensor *softmax = bench_made(td_softmax(mix->logits, 1), "softmax");
    mix->last = bench_made(td_sum(softmax, TD_AXES(0), 0), "sum");
    td_release(softmax);
    bench_check(td_flush(client->device), "flush");
    if (!before)
        return 0;
    bench_check(td_wait(before), "wait");
    td_release(before);
    return 1;
}

void cuda_clients(struct cuda *cuda, const struct cuda_bench *bench) {
    const struct bench_work work = {mix_open, mix_round};
    const double seconds = cuda->tiny ? 0.2 : 2;
    double one[RUNS], many[RUNS], slowest[RUNS], ignored;
    mix_scale = cuda->tiny ? 64 : 1;
    for (int i = 0; i < RUNS; i++) {
        bench_clients_measure(cuda->daemon.url, &work, 1, seconds, &one[i], &ignored);
        bench_clients_measure(cuda->daemon.url, &work, CLIENTS, seconds, &many[i], &slowest[i]);
    }
    double alone = bench_median(one, RUNS), total = bench_median(many, RUNS);
    double mean = total / CLIENTS, least = bench_median(slowest, RUNS);
    cuda_report(bench, 0, total, alone, total / alone);
    bench_note("rounds of 64 adds of 16 floats, 4 of 64 MiB, 2 products of 1024, a softmax and a sum");
    cuda_report(bench, 1, least, mean, least / mean);
}
