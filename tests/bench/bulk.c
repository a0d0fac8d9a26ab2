/* Large transfers: upload and fetch of 64 MiB against a raw copy over the same kind of socket. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

enum { BULK_RUNS = 9 };

/* Bytes per second. */
static double raw_rate(bool tcp, const char *data, size_t bytes) {
    struct bench_socket to;
    double rates[BULK_RUNS];
    bench_socket_open(&to, tcp, bytes, BULK_RUNS);
    for (int i = 0; i < BULK_RUNS; i++)
        rates[i] = (double)bytes / bench_socket_copy(&to, data);
    bench_socket_close(&to);
    return bench_median(rates, BULK_RUNS);
}

static void bulk_over(const struct bench_placement *placement, const char *url, const char *kind) {
    const size_t bytes = bench_quick ? 4 << 20 : 64 << 20;
    const int64_t elements = (int64_t)(bytes / sizeof(float));
    char *data = malloc(bytes), *back = malloc(bytes);
    double up[BULK_RUNS], down[BULK_RUNS];
    /* Not zeros: compilers make calloc() of that, and reading its untouched pages, all the one page of zeros, costs no
     * memory traffic. */
    memset(data, 2, bytes);
    memset(back, 1, bytes);
    double raw = raw_rate(strcmp(kind, "TCP") == 0, data, bytes);
    struct bench_client client;
    bench_client_open(&client, url, NULL);
    /* Once to warm up: memory is then in the pool, as the raw copy's is in its process. */
    for (int i = -1; i < BULK_RUNS; i++) {
        double begin = bench_now();
        td_tensor *x = bench_made(td_upload(client.device, TD_F32, 1, &elements, data), "upload");
        bench_check(td_wait(x), "wait");
        double middle = bench_now();
        bench_check(td_fetch(x, back, bytes), "fetch");
        double end = bench_now();
        td_release(x);
        bench_check(td_sync(client.device), "sync");
        if (i >= 0) {
            up[i] = (double)bytes / (middle - begin);
            down[i] = (double)bytes / (end - middle);
        }
    }
    bench_client_close(&client);
    char name[96];
    double rate = bench_median(up, BULK_RUNS);
    snprintf(name, sizeof name, "upload of 64 MiB, %s (%s)", kind, placement->name);
    bench_row(name, rate / 1e9, "GB/s", raw / 1e9, rate / raw, BENCH_HIGHER, 0.8);
    rate = bench_median(down, BULK_RUNS);
    snprintf(name, sizeof name, "fetch of 64 MiB, %s (%s)", kind, placement->name);
    bench_row(name, rate / 1e9, "GB/s", raw / 1e9, rate / raw, BENCH_HIGHER, 0.8);
    free(data);
    free(back);
}

void bench_bulk(const struct bench_placement *placement, const struct bench_daemon *daemon) {
    bulk_over(placement, daemon->url, "Unix");
    bulk_over(placement, daemon->tcp, "TCP");
}
