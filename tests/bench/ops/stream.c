#include "tests/bench/ops/stream.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { THREADS_MOST = 2, ROUNDS = 6, ARRAYS = 3, KERNELS = 4 };

/* One thread's part of the arrays. */
struct stream {
    pthread_barrier_t *barrier;
    double *a, *b, *c;
    int64_t n;
    double seconds[KERNELS][ROUNDS];
};

/* Not inlined: the arrays of a kernel do not overlap, and the compiler knows nothing else of them. */
static __attribute__((noinline)) void run(int kernel, int64_t n, double *restrict a, double *restrict b,
                                          double *restrict c) {
    const double scalar = 3;
    if (kernel == 0) {
        for (int64_t i = 0; i < n; i++) {
            c[i] = a[i];
        }
    } else if (kernel == 1) {
        for (int64_t i = 0; i < n; i++) {
            b[i] = scalar * c[i];
        }
    } else if (kernel == 2) {
        for (int64_t i = 0; i < n; i++) {
            c[i] = a[i] + b[i];
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            a[i] = b[i] + scalar * c[i];
        }
    }
}

static void *stream_thread(void *argument) {
    struct stream *this = argument;
    for (int64_t i = 0; i < this->n; i++) {
        this->a[i] = 1;
        this->b[i] = 2;
        this->c[i] = 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int kernel = 0; kernel < KERNELS; kernel++) {
            pthread_barrier_wait(this->barrier);
            double begin = bench_now();
            run(kernel, this->n, this->a, this->b, this->c);
            pthread_barrier_wait(this->barrier);
            this->seconds[kernel][round] = bench_now() - begin;
        }
    }
    return NULL;
}

double stream_rate(bool quick) {
    static const int64_t arrays[KERNELS] = {2, 2, 3, 3}; /* that a kernel reads or writes */
    int64_t n = quick ? 1 << 12 : 1 << 24;
    int threads = sysconf(_SC_NPROCESSORS_ONLN) < THREADS_MOST ? 1 : THREADS_MOST;
    double *memory = malloc((size_t)n * ARRAYS * sizeof *memory), best = 0;
    pthread_barrier_t barrier;
    pthread_t thread[THREADS_MOST];
    struct stream part[THREADS_MOST];
    if (!memory || pthread_barrier_init(&barrier, NULL, (unsigned)threads)) {
        bench_fail("no memory for STREAM");
    }
    for (int i = 0; i < threads; i++) {
        double *first = memory + n / threads * i;
        part[i] =
            (struct stream){.barrier = &barrier, .a = first, .b = first + n, .c = first + 2 * n, .n = n / threads};
        if (i > 0 && pthread_create(&thread[i], NULL, stream_thread, &part[i])) {
            bench_fail("no thread for STREAM");
        }
    }
    stream_thread(&part[0]);
    for (int i = 1; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        for (int round = 1; round < ROUNDS; round++) { /* the first one is not counted */
            double rate = (double)(arrays[kernel] * n) * sizeof(double) / part[0].seconds[kernel][round] / 1e9;
            best = rate > best ? rate : best;
        }
    }
    pthread_barrier_destroy(&barrier);
    free(memory);
    return best;
}
