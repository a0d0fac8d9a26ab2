/* The pool with very many live pieces: what a refusal, and an allocation with its free, cost with a million of them, against
 * the same with a hundred thousand. No daemon: calls of the engine's own, with streams that are bare counters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/pool.h"
#include "tests/bench/bench.h"
#include "tests/unit/null_device.h"

enum { PIECE = 64, STREAMS = 5 };

struct pool_bench {
    struct null_device device;
    struct pool pool;
    struct stream *streams[STREAMS];
    struct storage **pieces;
    size_t n;
};

/* A full device, and then every second piece free; `busy`: their last users still run, on five streams by turns. */
static void pool_bench_open(struct pool_bench *bench, size_t n, bool busy) {
    n -= n % 64; /* whole pages */
    bench->n = n;
    bench->pieces = calloc(n, sizeof *bench->pieces);
    null_device_init(&bench->device, (uint64_t)n * PIECE);
    pool_init(&bench->pool, &bench->device.device);
    for (int i = 0; i < STREAMS; i++) {
        bench->streams[i] = aligned_alloc(64, sizeof *bench->streams[i]);
        memset(bench->streams[i], 0, sizeof *bench->streams[i]);
    }
    for (size_t i = 0; i < n; i++) {
        struct stream *stream = bench->streams[i % STREAMS];
        if (pool_take(&bench->pool, PIECE, stream, &bench->pieces[i]) != STATUS_OK)
            bench_fail("the pool has no room for piece %zu", i);
        uses_add(&bench->pieces[i]->uses, stream, ++stream->enqueued);
    }
    for (int i = 0; !busy && i < STREAMS; i++)
        atomic_store(&bench->streams[i]->completed, bench->streams[i]->enqueued);
    for (size_t i = 0; i < n; i += 2) {
        storage_unref(&bench->pool, bench->pieces[i]);
        bench->pieces[i] = NULL;
    }
}

static void pool_bench_close(struct pool_bench *bench) {
    for (size_t i = 0; i < bench->n; i++)
        storage_unref(&bench->pool, bench->pieces[i]);
    for (int i = 0; i < STREAMS; i++)
        atomic_store(&bench->streams[i]->completed, bench->streams[i]->enqueued);
    pool_finish(&bench->pool);
    for (int i = 0; i < STREAMS; i++)
        free(bench->streams[i]);
    free(bench->pieces);
}

/* Nanoseconds of one call, in the median of batches; *worst: of the longest batch's calls. */
static double pool_bench_calls(struct pool_bench *bench, size_t bytes, bool refused, double *worst) {
    enum { BATCHES = 101 };
    const int calls = bench_quick ? 1 : 20;
    double seconds[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = bench_now();
        for (int i = 0; i < calls; i++) {
            struct storage *storage = NULL;
            bool none = pool_take(&bench->pool, bytes, bench->streams[i % STREAMS], &storage) != STATUS_OK;
            none = none && pool_largest_free(&bench->pool) < bytes; /* the refusal's words have it */
            if (none != refused)
                bench_fail("%zu bytes were %s", bytes, none ? "refused" : "had");
            storage_unref(&bench->pool, storage);
        }
        seconds[batch] = (bench_now() - start) / calls;
    }
    double median = bench_median(seconds, BATCHES);
    *worst = seconds[BATCHES - 1] * 1e9;
    return median * 1e9;
}

static void pool_bench_row(const char *row, size_t bytes, bool refused, bool busy) {
    double ns[2], worst[2];
    for (int i = 0; i < 2; i++) {
        struct pool_bench bench;
        size_t n = i ? 1000000 : 100000;
        pool_bench_open(&bench, bench_quick ? n / 100 : n, busy);
        ns[i] = pool_bench_calls(&bench, bytes, refused, &worst[i]);
        pool_bench_close(&bench);
    }
    bench_row(row, ns[1], "ns", ns[0], ns[1] / ns[0], BENCH_LOWER, 3);
    bench_note("a million pieces against a hundred thousand; the longest %.0f and %.0f ns", worst[1], worst[0]);
}

void bench_pool(void) {
    pool_bench_row("pool: refusal, more than is free", (size_t)1 << 40, true, false);
    pool_bench_row("pool: refusal, enough is free in pieces", 2 * PIECE, true, false);
    pool_bench_row("pool: refusal, enough is busy in pieces", 2 * PIECE, true, true);
    pool_bench_row("pool: allocation and free, idle", PIECE, false, false);
    pool_bench_row("pool: allocation and free, busy", PIECE, false, true);
}
