/* Large transfers: upload and fetch of 64 MiB against a raw copy over the same kind of socket. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

enum { BULK_RUNS = 9 };

double bench_raw_rate(bool tcp, const char *data, size_t bytes) {
    struct bench_socket to;
    double rates[BULK_RUNS];
    bench_socket_open(&to, tcp, bytes, BULK_RUNS);
    for (int i = 0; i < BULK_RUNS; i++)
        rates[i] = (double)bytes / bench_socket_copy(&to, data);
    bench_socket_close(&to);
    return bench_median(rates, BULK_RUNS);
}

/* One upload and one fetch; their rates. */
static void bulk_round(struct bench_client *client, const char *data, char *back, size_t bytes, double *up,
                       double *down) {
    const int64_t elements = (int64_t)(bytes / sizeof(float));
    double begin = bench_now();
    td_tensor *x = bench_made(td_upload(client->device, TD_F32, 1, &elements, data), "upload");
    bench_check(td_wait(x), "wait");
    double middle = bench_now();
    bench_check(td_fetch(x, back, bytes), "fetch");
    double end = bench_now();
    td_release(x);
    bench_check(td_sync(client->device), "sync");
    *up = (double)bytes / (middle - begin);
    *down = (double)bytes / (end - middle);
}

void bench_bulk_rates(const char *url, size_t bytes, double *up, double *down) {
    char *data = malloc(bytes), *back = malloc(bytes);
    double ups[BULK_RUNS], downs[BULK_RUNS];
    struct bench_client client;
    memset(data, 2, bytes);
    memset(back, 1, bytes);
    bench_client_open(&client, url, NULL);
    /* Once to warm up: memory is then in the pool, as the raw copy's is in its process. */
    bulk_round(&client, data, back, bytes, &ups[0], &downs[0]);
    for (int i = 0; i < BULK_RUNS; i++)
        bulk_round(&client, data, back, bytes, &ups[i], &downs[i]);
    bench_client_close(&client);
    *up = bench_median(ups, BULK_RUNS);
    *down = bench_median(downs, BULK_RUNS);
    free(data);
    free(back);
}

static void bulk_over(const struct bench_placement *placement, const char *url, const char *kind) {
    const size_t bytes = bench_quick ? 4 << 20 : 64 << 20;
    char *data = malloc(bytes), name[96];
    double up, down;
    /* Not zeros: compilers make calloc() of that, and reading its untouched pages, all the one page of zeros, costs no
     * memory traffic. */
    memset(data, 2, bytes);
    double raw = bench_raw_rate(strcmp(kind, "TCP") == 0, data, bytes);
    bench_bulk_rates(url, bytes, &up, &down);
    snprintf(name, sizeof name, "upload of 64 MiB, %s (%s)", kind, placement->name);
    bench_row(name, up / 1e9, "GB/s", raw / 1e9, up / raw, BENCH_HIGHER, 0.8);
    snprintf(name, sizeof name, "fetch of 64 MiB, %s (%s)", kind, placement->name);
    bench_row(name, down / 1e9, "GB/s", raw / 1e9, down / raw, BENCH_HIGHER, 0.8);
    free(data);
}

void bench_bulk(const struct bench_placement *placement, const struct bench_daemon *daemon) {
    bulk_over(placement, daemon->url, "Unix");
    bulk_over(placement, daemon->tcp, "TCP");
}
