/* The benchmark of the CUDA device: each row measures tensord, through a daemon on a Unix socket, and in turn with it the
 * CUDA runtime or cublasLt called directly by another process on the same GPU (raw.h).
 *
 * Each bench runs in a process of its own, forked from one without threads and without CUDA, so that one which fails
 * costs its own rows alone. */
#pragma once

#include "tests/bench/bench.h"
#include "tests/bench/cuda/raw.h"

struct cuda {
    char device[16]; /* "cuda:0" */
    int ordinal;
    bool tiny;      /* sizes that show that everything runs, and nothing else */
    bool unchecked; /* on a stand-in that computes nothing */
    struct bench_daemon daemon;
    struct raw raw;
};

struct cuda_bench;
typedef void cuda_run(struct cuda *cuda, const struct cuda_bench *bench);

/* What is known of a row before it has run. */
struct cuda_row {
    const char *name, *unit;
    enum bench_better better;
    double goal;
};
enum { CUDA_ROWS = 4 };
struct cuda_bench {
    const char *group; /* its name on the command line */
    cuda_run *run;
    int what, size; /* as `run` understands them */
    struct cuda_row rows[CUDA_ROWS];
};
cuda_run cuda_chain, cuda_replay, cuda_product, cuda_ten, cuda_bandwidth, cuda_sum, cuda_transfer, cuda_clients,
    cuda_start, cuda_allocate, cuda_convolution;

/* Adds the bench's row of this index to the report. */
void cuda_report(const struct cuda_bench *bench, int row, double value, double limit, double ratio);
/* Adds all of its rows as not run. */
void cuda_report_not_run(const struct cuda_bench *bench, const char *reason);

/* ---- compare.c ---- */

/* One of two things to compare: does it `count` times, and returns the seconds that took until all was done. */
struct cuda_side {
    double (*run)(void *user, long count);
    void *user;
    double seconds; /* the median of one */
};
/* Runs both until clocks and memory pools are warm, then in turn, each as often as fills a tenth of a second. */
void cuda_compare(const struct cuda *cuda, struct cuda_side *ours, struct cuda_side *raw);

/* What raw sides need: `user` is a struct raw. Exits where it fails. */
double cuda_raw_copies(void *user, long count);
double cuda_raw_sums(void *user, long count);
double cuda_raw_products(void *user, long count);
double cuda_raw_launches(void *user, long count);
