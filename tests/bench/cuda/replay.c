/* A recorded program of 1,000 dependent adds of 16 floats, run 100 times, against as many launches of a bare CUDA graph of such kernels. */
#include "tests/bench/cuda/cuda.h"

enum { ROUNDS = 15 };

static td_program *record_adds(td_device *device, long adds) {
    td_program *program;
    const int64_t elements = 16;
    bench_check(td_record_begin(device), "td_record_begin");
    td_tensor *x = td_parameter(TD_F32, 1, &elements), *b = td_parameter(TD_F32, 1, &elements);
    td_tensor *sum = bench_made(td_add(x, b), "td_add");
    sum = bench_adds(sum, b, adds - 1);
    bench_check(td_record_end(device, 1, &sum, &program), "td_record_end");
    td_release(x);
    td_release(b);
    td_release(sum);
    return program;
}

static td_tensor *run_all(td_device *device, td_program *program, td_tensor *x, td_tensor *b, long times) {
    for (long i = 0; i < times; i++) {
        td_tensor *const inputs[] = {x, b};
        td_tensor *next;
        while (td_program_run(program, 2, inputs, 1, &next))
            if (!bench_again(device))
                bench_check(td_last_error()->code, "td_program_run");
        td_release(x);
        x = next;
    }
    return x;
}

void cuda_replay(struct cuda *cuda, const struct cuda_bench *bench) {
    const long adds = cuda->tiny ? 20 : 1000, times = cuda->tiny ? 5 : 100;
    const struct raw_request graph = {.kind = RAW_GRAPH, .n = adds, .count = times};
    double ours[ROUNDS], raw[ROUNDS];
    float result[16];
    struct bench_client client;
    bench_client_open(&client, cuda->daemon.url, NULL);
    td_program *program = record_adds(client.device, adds);
    td_tensor *b = bench_vector16(client.device, 1), *x = bench_vector16(client.device, 0);
    for (int round = -2; round < ROUNDS; round++) { /* twice to warm up */
        double raw_seconds = raw_ask(&cuda->raw, &graph).seconds;
        bench_check(td_sync(client.device), "sync");
        double begin = bench_now();
        x = run_all(client.device, program, x, b, times);
        bench_check(td_sync(client.device), "sync");
        double seconds = bench_now() - begin;
        if (round >= 0) {
            ours[round] = (double)(adds * times) / seconds;
            raw[round] = (double)(adds * times) / raw_seconds;
        }
    }
    bench_check(td_fetch(x, result, sizeof result), "fetch");
    const float want = (float)(adds * times * (ROUNDS + 2)); /* exact: below 2^24 */
    if (!cuda->unchecked && (result[0] != want || result[15] != want))
        bench_fail("the programs gave %g, not %g", (double)result[0], (double)want);
    bench_client_close(&client);
    double rate = bench_median(ours, ROUNDS), limit = bench_median(raw, ROUNDS);
    cuda_report(bench, 0, rate, limit, rate / limit);
    bench_note("limit: one executable graph of as many kernels of that size, launched as often, and a synchronisation");
}
