/* 10,000 dependent adds of 16 floats, each enqueued by itself, against a bare loop of launches. */
#include "tests/bench/cuda/cuda.h"

enum { RUNS = 15 };

void cuda_chain(struct cuda *cuda, const struct cuda_bench *bench) {
    const long count = cuda->tiny ? 100 : 10000;
    double ours[RUNS], raw[RUNS];
    float result[16];
    struct bench_client client;
    bench_client_open(&client, cuda->daemon.url, NULL);
    td_tensor *b = bench_vector16(client.device, 1), *x = bench_vector16(client.device, 0);
    for (int run = -2; run < RUNS; run++) { /* twice to warm up */
        double raw_seconds = cuda_raw_launches(&cuda->raw, count);
        bench_check(td_sync(client.device), "sync");
        double begin = bench_now();
        x = bench_adds(x, b, count);
        bench_check(td_sync(client.device), "sync");
        double seconds = bench_now() - begin;
        if (run >= 0) {
            ours[run] = (double)count / seconds;
            raw[run] = (double)count / raw_seconds;
        }
    }
    bench_check(td_fetch(x, result, sizeof result), "fetch");
    const float want = (float)(count * (RUNS + 2)); /* exact: below 2^24 */
    if (!cuda->unchecked && (result[0] != want || result[15] != want))
        bench_fail("the chain gave %g, not %g", (double)result[0], (double)want);
    bench_client_close(&client);
    double rate = bench_median(ours, RUNS), limit = bench_median(raw, RUNS);
    cuda_report(bench, 0, rate, limit, rate / limit);
    bench_note("limit: the same number of launches of a kernel of that size on one stream, and a synchronisation");
}
