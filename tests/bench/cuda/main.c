/* usage: bench-cuda [--device cuda:N] [--json FILE] [--limit SECONDS] [--tiny] [--unchecked] [GROUP…] */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/cuda/cuda.h"

enum { BENCH_SECONDS_MAX = 60 };

/* ---- the rows: RESULTS.md's table, and torch_rows.py, know them by these names ---- */

#define PRODUCT(name, type, n)                                                                                         \
    {                                                                                                                  \
        "product", cuda_product, type, n, {                                                                            \
            { "product " name " " #n, "TFLOP/s", BENCH_HIGHER, 0.98 }                                                  \
        }                                                                                                              \
    }
#define PRODUCTS(name, type) PRODUCT(name, type, 1024), PRODUCT(name, type, 4096), PRODUCT(name, type, 8192)
#define BANDWIDTH(kind, columns, name)                                                                                 \
    {                                                                                                                  \
        "bandwidth", cuda_bandwidth, kind, columns, {                                                                  \
            { name, "GB/s", BENCH_HIGHER, 0.9 }                                                                        \
        }                                                                                                              \
    }
/* Their goal is 0.95 of PyTorch (cuda_table.py). */
#define CONVOLUTION(name, type, layer)                                                                                 \
    {                                                                                                                  \
        "convolution", cuda_convolution, layer, type, {                                                                \
            {"conv2d " name, "TFLOP/s", BENCH_HIGHER, 0}, {"conv2d " name ", by x", "TFLOP/s", BENCH_HIGHER, 0}, {     \
                "conv2d " name ", by the weight", "TFLOP/s", BENCH_HIGHER, 0                                           \
            }                                                                                                          \
        }                                                                                                              \
    }
#define CONVOLUTIONS(name, type)                                                                                       \
    CONVOLUTION(name " 64 to 64, 3x3", type, 0), CONVOLUTION(name " 256 to 64, 1x1", type, 1),                         \
        CONVOLUTION(name " 128 to 128, 3x3 by 2", type, 2), CONVOLUTION(name " 512 to 512, 3x3", type, 3)

static const struct cuda_bench benches[] = {
    /* First, since sessions that have just ended give memory back meanwhile. */
    {"start",
     cuda_start,
     0,
     0,
     {{"worker ready", "ms", BENCH_LOWER, 1},
      {"memory beyond the context, idle", "MiB", BENCH_LOWER, 1},
      {"memory beyond the context, in use", "MiB", BENCH_LOWER, 1}}},
    {"chain", cuda_chain, 0, 0, {{"chain of 10,000 adds of 16 floats", "op/s", BENCH_HIGHER, 0.8}}},
    {"replay", cuda_replay, 0, 0, {{"program of 1,000 adds of 16 floats, 100 runs", "op/s", BENCH_HIGHER, 0.91}}},
    PRODUCTS("f32", RAW_F32),
    PRODUCTS("tf32", RAW_TF32),
    PRODUCTS("bf16", RAW_BF16),
    PRODUCTS("f16", RAW_F16),
    PRODUCTS("fp8", RAW_FP8),
    CONVOLUTIONS("f32", RAW_F32),
    CONVOLUTIONS("tf32", RAW_TF32),
    CONVOLUTIONS("f16", RAW_F16),
    BANDWIDTH(0, 0, "add of 1 GiB"),
    BANDWIDTH(1, 0, "cast f32 to bf16 of 1 GiB"),
    BANDWIDTH(2, 0, "transposed copy of 1 GiB"),
    BANDWIDTH(3, 0, "sum of 1 GiB, whole"),
    {"bandwidth", cuda_sum, 0, 0, {{"sum of 1 GiB, whole, against CUB's", "GB/s", BENCH_HIGHER, 0.98}}},
    BANDWIDTH(4, 0, "sum of 1 GiB, rows"),
    BANDWIDTH(5, 0, "sum of 1 GiB, columns"),
    BANDWIDTH(6, 1024, "softmax of 1 GiB, rows of 1,024"),
    BANDWIDTH(6, 16384, "softmax of 1 GiB, rows of 16,384"),
    {"transfer",
     cuda_transfer,
     0,
     0,
     {{"upload of 1 GiB, Unix socket", "GB/s", BENCH_HIGHER, 0.8},
      {"fetch of 1 GiB, Unix socket", "GB/s", BENCH_HIGHER, 0.8}}},
    {"allocate", cuda_allocate, 0, 0, {{"memory taken and given back, 256 B to 64 MiB", "ns", BENCH_LOWER, 1}}},
    {"ten",
     cuda_ten,
     0,
     10000,
     {{"ten products of 10,000, enqueued", "ms", BENCH_LOWER, 1},
      {"ten products of 10,000, 16 numbers fetched", "s", BENCH_LOWER, 1.02},
      {"ten products of 10,000, all fetched", "s", BENCH_LOWER, 1.02}}},
    {"clients",
     cuda_clients,
     0,
     0,
     {{"8 clients, mixed sizes, total against one", "round/s", BENCH_HIGHER, 0.95},
      {"8 clients, slowest against mean", "round/s", BENCH_HIGHER, 0.5}}},
};
enum { BENCHES = sizeof benches / sizeof *benches };

void cuda_report(const struct cuda_bench *bench, int index, double value, double limit, double ratio) {
    const struct cuda_row *row = &bench->rows[index];
    bench_row(row->name, value, row->unit, limit, ratio, row->better, row->goal);
}

static void rows_not_run_from(const struct cuda_bench *bench, size_t first, const char *reason) {
    for (size_t i = first; i < CUDA_ROWS && bench->rows[i].name; i++)
        bench_not_run(bench->rows[i].name, bench->rows[i].unit, bench->rows[i].better, bench->rows[i].goal, reason);
}

void cuda_report_not_run(const struct cuda_bench *bench, const char *reason) {
    rows_not_run_from(bench, 0, reason);
}

/* ---- the run ---- */

/* Both processes that rows are measured with; false and why. */
static bool peers_start(struct cuda *cuda, char why[BENCH_WHY]) {
    struct raw_reply reply;
    raw_start(&cuda->raw, cuda->ordinal);
    if (!raw_try(&cuda->raw, &(struct raw_request){.kind = RAW_CONTEXT}, &reply)) {
        snprintf(why, BENCH_WHY, "CUDA called directly: %s", reply.error);
        raw_stop(&cuda->raw);
        return false;
    }
    if (!bench_daemon_open(&cuda->daemon, cuda->device, why)) {
        raw_stop(&cuda->raw);
        return false;
    }
    return true;
}

/* Runs a bench in a process of its own. True where that ended well. */
static bool bench_forked(struct cuda *cuda, const struct cuda_bench *bench) {
    char why[BENCH_WHY];
    int status = 0;
    size_t before = bench_rows();
    bench_failure_clear();
    pid_t pid = fork();
    if (pid == 0) {
        alarm(BENCH_SECONDS_MAX);
        bench->run(cuda, bench);
        exit(0);
    }
    waitpid(pid, &status, 0);
    if (status == 0)
        return true;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(why, sizeof why, "it ran longer than %d s", BENCH_SECONDS_MAX);
    else if (WIFSIGNALED(status))
        snprintf(why, sizeof why, "it was ended by signal %d", WTERMSIG(status));
    else
        snprintf(why, sizeof why, "%.240s", *bench_failure() ? bench_failure() : "it failed without a word");
    rows_not_run_from(bench, bench_rows() - before, why);
    return false;
}

/* The group "first": the three rows that tell most, for a host that one has for ten minutes: what a small operation costs, a
 * product of the kind that jobs are made of, and the kernel of our own that has most to do. */
static bool bench_is_first(const struct cuda_bench *bench) {
    static const char *const rows[] = {"chain of 10,000 adds of 16 floats", "product bf16 8192",
                                       "softmax of 1 GiB, rows of 16,384"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(bench->rows[0].name, rows[i]) == 0)
            return true;
    return false;
}

static bool bench_is_of(const struct cuda_bench *bench, const char *group) {
    return strcmp(group, "first") == 0 ? bench_is_first(bench) : strcmp(group, bench->group) == 0;
}

static bool bench_is_wanted(const struct cuda_bench *bench, char **groups) {
    if (!*groups)
        return true;
    for (; *groups; groups++)
        if (bench_is_of(bench, *groups))
            return true;
    return false;
}

static bool groups_known(char **groups) {
    for (; *groups; groups++) {
        const struct cuda_bench *bench = benches;
        while (bench < benches + BENCHES && !bench_is_of(bench, *groups))
            bench++;
        if (bench == benches + BENCHES)
            return false;
    }
    return true;
}

struct run {
    struct cuda cuda;
    double limit, end;
    bool there; /* its peers are */
};

static void run_bench(struct run *run, const struct cuda_bench *bench) {
    char why[BENCH_WHY];
    if (bench_now() > run->end) {
        snprintf(why, sizeof why, "the time limit of %g s had passed", run->limit);
        cuda_report_not_run(bench, why);
        return;
    }
    if (!run->there && !peers_start(&run->cuda, why)) {
        cuda_report_not_run(bench, why);
        return;
    }
    run->there = bench_forked(&run->cuda, bench);
    if (!run->there) { /* whatever it has left, the next one finds it fresh */
        bench_daemon_kill(&run->cuda.daemon);
        raw_stop(&run->cuda.raw);
    }
}

/* What is known is written after each bench: whoever ends this program early has it. */
static int run_all(struct run *run, const char *json, char **groups) {
    int code = 0;
    run->end = bench_now() + run->limit;
    for (const struct cuda_bench *bench = benches; bench < benches + BENCHES; bench++) {
        if (!bench_is_wanted(bench, groups))
            continue;
        run_bench(run, bench);
        code = json ? bench_report_write(json) : 0;
    }
    if (run->there) {
        bench_daemon_stop(&run->cuda.daemon);
        raw_stop(&run->cuda.raw);
    }
    return code;
}

static int usage(void) {
    fprintf(stderr, "usage: bench-cuda [OPTION…] [GROUP…]\n"
                    "groups: start chain replay product convolution bandwidth transfer allocate ten clients;\n"
                    "without one, all of them;\n"
                    "first: the three rows that tell most\n"
                    "  --device NAME    cuda:0\n"
                    "  --json FILE      the rows as JSON\n"
                    "  --limit SECONDS  what has not begun by then is not run (480)\n"
                    "  --tiny           sizes that show only that everything runs\n"
                    "  --unchecked      believe every result, for stand-ins that compute nothing\n"
                    "The daemon is $TENSORD_EXE, or build/server/tensord.\n");
    return 2;
}

int main(int argc, char **argv) {
    struct run run = {.cuda.device = "cuda:0", .limit = 480};
    struct cuda *cuda = &run.cuda;
    const char *json = NULL;
    int first = 1;
    if (argc == 4 && strcmp(argv[1], "--raw") == 0)
        return raw_main(atoi(argv[2]), atoi(argv[3]));
    for (; first < argc && argv[first][0] == '-'; first++) {
        bool more = first + 1 < argc;
        if (strcmp(argv[first], "--tiny") == 0)
            cuda->tiny = true;
        else if (strcmp(argv[first], "--unchecked") == 0)
            cuda->unchecked = true;
        else if (strcmp(argv[first], "--json") == 0 && more)
            json = argv[++first];
        else if (strcmp(argv[first], "--limit") == 0 && more)
            run.limit = atof(argv[++first]);
        else if (strcmp(argv[first], "--device") == 0 && more)
            snprintf(cuda->device, sizeof cuda->device, "%s", argv[++first]);
        else
            return usage();
    }
    if (sscanf(cuda->device, "cuda:%d", &cuda->ordinal) != 1 || !groups_known(argv + first))
        return usage();
    bench_report_init();
    if (run_all(&run, json, argv + first) != 0)
        return perror(json), 1;
    return 0;
}
