/* Uploads and fetches of 1 GiB over the Unix socket, against a bare copy between two processes over one. */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/cuda/cuda.h"

enum { RUNS = 5 };

struct times {
    double up[RUNS], down[RUNS], socket[RUNS];
};

/* Numbers by which a piece that went astray would be noticed. */
static void fill(char *data, size_t bytes) {
    uint64_t value = 1;
    for (size_t i = 0; i + sizeof value <= bytes; i += sizeof value) {
        value = value * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(data + i, &value, sizeof value);
    }
}

static void measure(const struct bench_client *client, size_t bytes, char *data, char *back, struct times *times) {
    const int64_t elements = (int64_t)(bytes / sizeof(uint32_t));
    struct bench_socket to;
    bench_socket_open(&to, false, bytes, RUNS + 1);
    for (int i = -1; i < RUNS; i++) { /* once to warm up */
        double socket = bench_socket_copy(&to, data);
        double begin = bench_now();
        td_tensor *x = bench_made(td_upload(client->device, TD_I32, 1, &elements, data), "upload");
        bench_check(td_wait(x), "wait");
        double middle = bench_now();
        bench_check(td_fetch(x, back, bytes), "fetch");
        double end = bench_now();
        td_release(x);
        bench_check(td_sync(client->device), "sync");
        if (i < 0)
            continue;
        times->socket[i] = (double)bytes / socket;
        times->up[i] = (double)bytes / (middle - begin);
        times->down[i] = (double)bytes / (end - middle);
    }
    bench_socket_close(&to);
}

void cuda_transfer(struct cuda *cuda, const struct cuda_bench *bench) {
    const size_t bytes = cuda->tiny ? 4 << 20 : 1 << 30;
    char *data = malloc(bytes), *back = malloc(bytes);
    struct times times;
    struct bench_client client;
    if (!data || !back)
        bench_fail("no memory for %zu bytes", 2 * bytes);
    fill(data, bytes);
    memset(back, 0, bytes);
    bench_client_open(&client, cuda->daemon.url, NULL);
    measure(&client, bytes, data, back, &times);
    if (memcmp(data, back, bytes) != 0)
        bench_fail("%zu bytes came back changed", bytes);
    bench_client_close(&client);
    double up = bench_median(times.up, RUNS), down = bench_median(times.down, RUNS);
    double socket = bench_median(times.socket, RUNS);
    cuda_report(bench, 0, up / 1e9, socket / 1e9, up / socket);
    bench_note("limit: 1 MiB at a time through a socket with buffers of 4 MiB, into memory of another process");
    cuda_report(bench, 1, down / 1e9, socket / 1e9, down / socket);
    free(data);
    free(back);
}
