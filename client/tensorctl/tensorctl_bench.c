/* How fast a daemon is from here, as redis-benchmark measures Redis: what a program would see that starts now, while other
 * programs use the device. Each row repeats its work for some time and shows the median, and the time of the slowest run in a
 * hundred if there are enough runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensorctl/command.h"
#include "proto/files/json.h"

enum {
    BENCH_SAMPLES_MAX = 100000,
    BENCH_SAMPLES_MIN = 3,
    BENCH_CHAIN = 10000,
    BENCH_SMALL = 16,
    BENCH_BULK_BYTES = 64 << 20,
    BENCH_MATRIX = 1024,
};

struct bench {
    td_device *device;
    float *bulk;
    td_tensor *small, *matrix, *large;
};

/* ---- the work of each row; each function returns a code of the library ---- */

static int bench_round_trip(struct bench *bench) {
    float got[BENCH_SMALL];
    return td_fetch(bench->small, got, sizeof got);
}

/* If the queue is full, it waits. */
static td_tensor *bench_add(struct bench *bench, td_tensor *x) {
    for (;;) {
        td_tensor *sum = td_add(x, bench->small);
        if (sum || td_last_error()->code != TD_E_AGAIN || td_sync(bench->device))
            return sum;
    }
}

static int bench_chain(struct bench *bench) {
    td_tensor *x = bench->small;
    for (int i = 0; i < BENCH_CHAIN; i++) {
        td_tensor *next = bench_add(bench, x);
        if (x != bench->small)
            td_release(x);
        if (!next)
            return td_last_error()->code;
        x = next;
    }
    int code = td_wait(x);
    td_release(x);
    return code;
}

static int bench_wait(td_tensor *tensor) {
    int code = tensor ? td_wait(tensor) : td_last_error()->code;
    td_release(tensor);
    return code;
}

static int bench_upload(struct bench *bench) {
    return bench_wait(
        td_upload(bench->device, TD_F32, TD_SHAPE(BENCH_BULK_BYTES / (int64_t)sizeof(float)), bench->bulk));
}

static int bench_fetch(struct bench *bench) {
    return td_fetch(bench->large, bench->bulk, BENCH_BULK_BYTES);
}

static int bench_add_large(struct bench *bench) {
    return bench_wait(td_add(bench->large, bench->large));
}

static int bench_product(struct bench *bench) {
    return bench_wait(td_matmul(bench->matrix, bench->matrix));
}

static const struct bench_row {
    const char *key, *what;
    int (*run)(struct bench *bench);
    double amount; /* of `unit` in one run; 0: only the time is shown */
    const char *unit;
} bench_rows[] = {
    {"round_trip", "fetch of 16 floats", bench_round_trip, 0, "s"},
    {"small_operations", "chained additions of 16 floats", bench_chain, BENCH_CHAIN, "op/s"},
    {"upload", "upload of 64 MiB", bench_upload, BENCH_BULK_BYTES, "B/s"},
    {"fetch", "fetch of 64 MiB", bench_fetch, BENCH_BULK_BYTES, "B/s"},
    {"addition", "64 MiB plus itself, read and written", bench_add_large, 2.0 * BENCH_BULK_BYTES, "B/s"},
    {"product", "product of f32 matrices of 1024 x 1024", bench_product, 2.0 * BENCH_MATRIX *BENCH_MATRIX *BENCH_MATRIX,
     "flop/s"},
};
enum { BENCH_ROWS = sizeof bench_rows / sizeof *bench_rows };

/* ---- measuring ---- */

struct bench_result {
    size_t samples;
    double median_s, slow_s; /* `slow_s`: 99 % of the runs take no longer; 0: there are too few runs */
};

/* The first run does not count. */
static int bench_measure(struct bench *bench, const struct bench_row *row, double seconds, double *times,
                         struct bench_result *result) {
    int code = row->run(bench);
    double end = command_now() + seconds;
    size_t n = 0;
    while (!code && n < BENCH_SAMPLES_MAX && (n < BENCH_SAMPLES_MIN || command_now() < end)) {
        double begin = command_now();
        code = row->run(bench);
        times[n++] = command_now() - begin;
    }
    if (code)
        return code;
    qsort(times, n, sizeof *times, command_compare);
    *result = (struct bench_result){.samples = n, .median_s = command_median(times, n)};
    if (n >= 100)
        result->slow_s = times[n - 1 - n / 100];
    return 0;
}

/* ---- output ---- */

static void bench_print(const struct bench_row *row, const struct bench_result *result) {
    char number[TEXT_UNIT_MAX], rate[TEXT_UNIT_MAX + 8] = "", time[TEXT_UNIT_MAX], slow[TEXT_UNIT_MAX];
    double per_s = row->amount / result->median_s;
    if (!strcmp(row->unit, "B/s"))
        snprintf(rate, sizeof rate, "%s/s", text_bytes(number, per_s));
    else if (row->amount > 0)
        snprintf(rate, sizeof rate, "%s %s", text_count(number, per_s), row->unit);
    printf("%-38s %12s  %s", row->what, rate, text_duration(time, result->median_s));
    if (result->slow_s > 0)
        printf(", 99 %% within %s", text_duration(slow, result->slow_s));
    printf("\n");
}

static void bench_print_json(struct json *json, const struct bench_row *row, const struct bench_result *result) {
    json_open(json, row->key, '{');
    json_text(json, "what", row->what);
    json_integer(json, "runs", result->samples);
    json_real(json, "median_s", result->median_s);
    if (result->slow_s > 0)
        json_real(json, "p99_s", result->slow_s);
    if (row->amount > 0) {
        json_real(json, "per_s", row->amount / result->median_s);
        json_text(json, "unit", row->unit);
    }
    json_close(json, '}');
}

static int bench_run_all(struct bench *bench, const struct tensorctl *ctl, struct fault *fault) {
    struct json json = {.out = stdout, .pretty = true, .first = true};
    double *times = malloc(BENCH_SAMPLES_MAX * sizeof *times);
    int code = times ? STATUS_OK : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the times");
    for (int i = 0; i < BENCH_ROWS && !code; i++) {
        struct bench_result result;
        if (bench_measure(bench, &bench_rows[i], ctl->seconds > 0 ? ctl->seconds : 1, times, &result)) {
            code = tensorctl_library_fault(fault);
            break;
        }
        if (i == 0 && ctl->json) {
            json_open(&json, NULL, '{');
            json_text(&json, "device", td_device_name(bench->device));
        } else if (i == 0) {
            printf("%s, medians\n", td_device_name(bench->device));
        }
        if (ctl->json)
            bench_print_json(&json, &bench_rows[i], &result);
        else
            bench_print(&bench_rows[i], &result);
        fflush(stdout);
    }
    if (!code && ctl->json) {
        json_close(&json, '}');
        putchar('\n');
    }
    free(times);
    return code;
}

/* Takes at most 320 MiB on the device, and 64 MiB here. */
int tensorctl_bench(struct tensorctl *ctl, struct fault *fault) {
    struct bench bench = {.bulk = malloc(BENCH_BULK_BYTES)};
    td_connection *connection = NULL;
    if (!bench.bulk)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the data");
    memset(bench.bulk, 0x3f, BENCH_BULK_BYTES); /* so that it has pages of its own, and numbers near 0.75 */
    int code = tensorctl_open(ctl, &connection, &bench.device, fault);
    if (!code) {
        bench.small = td_full(bench.device, TD_F32, TD_SHAPE(BENCH_SMALL), 1);
        bench.large = td_full(bench.device, TD_F32, TD_SHAPE(BENCH_BULK_BYTES / (int64_t)sizeof(float)), 1);
        bench.matrix = td_uniform(bench.device, TD_F32, TD_SHAPE(BENCH_MATRIX, BENCH_MATRIX), 1, -1, 1);
        code = bench.small && bench.large && bench.matrix ? bench_run_all(&bench, ctl, fault)
                                                          : tensorctl_library_fault(fault);
    }
    td_close(connection);
    free(bench.bulk);
    return code;
}
