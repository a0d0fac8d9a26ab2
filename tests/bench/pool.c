/* The pool with very many live pieces: what a refusal, and an allocation with its free, cost with a million of them, against
 * the same with a hundred thousand. No daemon: calls of the engine's own, with streams that are bare counters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/memory/pool.h"
#include "tests/bench/bench.h"
#include "tests/stand_ins/null_device.h"

enum { PIECE = 64, STREAMS = 5, STREAMS_MANY = 64 };

struct pool_bench {
    struct null_device device;
    struct pool pool;
    struct stream *streams[STREAMS_MANY];
    struct storage **pieces;
    size_t n;
};

/* A full device, in one segment, and then every second piece free; `busy`: their last users still run, on so many
 * streams by turns. */
static void pool_bench_open(struct pool_bench *bench, size_t n, bool busy, int n_streams) {
    struct storage *whole;
    n -= n % 64; /* whole pages */
    bench->n = n;
    bench->pieces = calloc(n, sizeof *bench->pieces);
    null_device_init(&bench->device, (uint64_t)n * PIECE);
    pool_init(&bench->pool, &bench->device.device);
    for (int i = 0; i < STREAMS_MANY; i++) {
        bench->streams[i] = aligned_alloc(64, sizeof *bench->streams[i]);
        memset(bench->streams[i], 0, sizeof *bench->streams[i]);
    }
    if (pool_take(&bench->pool, n * PIECE, NULL, NULL, &whole) != STATUS_OK)
        bench_fail("the pool has no room");
    storage_unref(whole);
    for (size_t i = 0; i < n; i++) {
        struct stream *stream = bench->streams[i % (size_t)n_streams];
        if (pool_take(&bench->pool, PIECE, stream, NULL, &bench->pieces[i]) != STATUS_OK)
            bench_fail("the pool has no room for piece %zu", i);
        uses_add(&bench->pieces[i]->uses, stream, ++stream->enqueued);
    }
    for (int i = 0; !busy && i < STREAMS_MANY; i++)
        atomic_store(&bench->streams[i]->completed, bench->streams[i]->enqueued);
    for (size_t i = 0; i < n; i += 2) {
        storage_unref(bench->pieces[i]);
        bench->pieces[i] = NULL;
    }
}

static void pool_bench_close(struct pool_bench *bench) {
    for (size_t i = 0; i < bench->n; i++)
        storage_unref(bench->pieces[i]);
    for (int i = 0; i < STREAMS_MANY; i++)
        atomic_store(&bench->streams[i]->completed, bench->streams[i]->enqueued);
    pool_finish(&bench->pool);
    for (int i = 0; i < STREAMS_MANY; i++)
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
            bool none = pool_take(&bench->pool, bytes, bench->streams[i % STREAMS], NULL, &storage) != STATUS_OK;
            none = none && pool_largest_free(&bench->pool) < bytes; /* the refusal's words have it */
            if (none != refused)
                bench_fail("%zu bytes were %s", bytes, none ? "refused" : "had");
            storage_unref(storage);
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
        pool_bench_open(&bench, bench_quick ? n / 100 : n, busy, STREAMS);
        ns[i] = pool_bench_calls(&bench, bytes, refused, &worst[i]);
        pool_bench_close(&bench);
    }
    bench_row(row, ns[1], "ns", ns[0], ns[1] / ns[0], BENCH_LOWER, 3);
    bench_note("a million pieces against a hundred thousand; the longest %.0f and %.0f ns", worst[1], worst[0]);
}

/* Of this thread: of a machine that is shared, the longest call shall be the pool's. */
static double pool_bench_worked(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* All but the last piece is free and in use on so many streams by turns, in one run of unlike neighbours: the calls
 * that a request for half of it takes until it is answered, in the median; *worst: the longest. */
static double pool_bench_search(size_t n, int n_streams, bool refused, size_t *calls, double *worst) {
    static double seconds[1 << 16];
    struct pool_bench bench;
    struct pool_search search = {.on = false};
    struct storage *found = NULL;
    int code;

    pool_bench_open(&bench, n, true, n_streams);
    for (size_t i = 1; i + 1 < bench.n; i += 2) {
        storage_unref(bench.pieces[i]);
        bench.pieces[i] = NULL;
    }
    *calls = 0;
    do {
        double start = pool_bench_worked();
        code = pool_take(&bench.pool, bench.n / 2 * PIECE, bench.streams[0], &search, &found);
        seconds[*calls] = pool_bench_worked() - start;
    } while (code == STATUS_AGAIN && ++*calls < sizeof seconds / sizeof seconds[0]);
    if ((code != STATUS_OK) != refused)
        bench_fail("half of all was %s", refused ? "had" : "refused");
    ++*calls;
    storage_unref(found);
    pool_bench_close(&bench);
    double median = bench_median(seconds, (int)*calls);
    *worst = seconds[*calls - 1];
    return median;
}

static void pool_bench_search_row(const char *row, int n_streams, bool refused) {
    double median[2], worst[2];
    size_t calls[2];
    for (int i = 0; i < 2; i++) {
        size_t n = i ? 1000000 : 100000;
        median[i] = pool_bench_search(bench_quick ? n / 100 : n, n_streams, refused, &calls[i], &worst[i]);
    }
    bench_row(row, median[1] * 1e6, "us", median[0] * 1e6, median[1] / median[0], BENCH_LOWER, 3);
    bench_note("a call of %zu, a million pieces against a hundred thousand with %zu; the longest %.0f and %.0f us",
               calls[1], calls[0], worst[1] * 1e6, worst[0] * 1e6);
}

void bench_pool(void) {
    pool_bench_row("pool: refusal, more than is free", (size_t)1 << 40, true, false);
    pool_bench_row("pool: refusal, enough is free in pieces", 2 * PIECE, true, false);
    pool_bench_row("pool: refusal, enough is busy in pieces", 2 * PIECE, true, true);
    pool_bench_row("pool: allocation and free, idle", PIECE, false, false);
    pool_bench_row("pool: allocation and free, busy", PIECE, false, true);
    pool_bench_search_row("pool: unlike neighbours joined, of 4 streams", 4, false);
    pool_bench_search_row("pool: unlike neighbours refused, of 64 streams", STREAMS_MANY, true);
}
