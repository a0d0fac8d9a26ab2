/* Measures operations through a daemon with resident tensors, one at a time: a line "ROW<tab>DTYPE<tab>ELEMENTS" on standard
 * input gives a line with the microseconds of one operation, or "-" and the reason why there is no such figure. The line "list" gives
 * the names of all rows, with a tab between them, and "stream" what memory gives (stream.h). ops.py asks this program and those of the
 * peers in turn.
 *
 * As many operations as fill some hundredths of a second are enqueued one after another and then waited for: this is the median of
 * five such times, divided by their number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/ops/rows.h"
#include "tests/bench/ops/stream.h"

bool bench_quick;

enum { ROUNDS = 5, COUNT_MAX = 20000, NAME_MAX_BYTES = 64 };

/* ---- measuring ---- */

static void enqueue(const struct ops_row *row, struct ops_case *at) {
    td_tensor *result = row->run(at);
    while (!result && bench_again(at->device)) {
        result = row->run(at);
    }
    td_release(bench_made(result, row->name));
}

static double seconds(const struct ops_row *row, struct ops_case *at, long count) {
    double begin = bench_now();
    for (long i = 0; i < count; i++) {
        enqueue(row, at);
    }
    bench_check(td_sync(at->device), row->name);
    return bench_now() - begin;
}

/* Exits where the operation fails. */
static void succeed(const struct ops_row *row, struct ops_case *at) {
    td_tensor *result = bench_made(row->run(at), row->name);
    bench_check(td_wait(result), row->name);
    td_release(result);
}

/* Microseconds of one operation. */
static double measure(const struct ops_row *row, struct ops_case *at) {
    const double wanted = bench_quick ? 0.0001 : 0.04;
    double times[ROUNDS];
    long count = 1;
    succeed(row, at); /* memory and libraries are there from now on */
    for (double one = seconds(row, at, 1); one < wanted && count < COUNT_MAX; one = seconds(row, at, count)) {
        long more = (long)((double)count * wanted / one) + 1;
        count = more > count * 10 ? count * 10 : more;
    }
    for (int i = 0; i < ROUNDS; i++) {
        times[i] = seconds(row, at, count) / (double)count;
    }
    return bench_median(times, ROUNDS) * 1e6;
}

static const struct ops_rows *const kinds[] = {&ops_rows, &ops_rows_of_elements, &ops_rows_of_arrays,
                                               &ops_rows_of_layers};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct ops_row *row_of(const char *name) {
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < kinds[kind]->count; i++) {
            if (!strcmp(kinds[kind]->rows[i].name, name)) {
                return &kinds[kind]->rows[i];
            }
        }
    }
    return NULL;
}

static void list(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < kinds[kind]->count; i++) {
            printf("%s%s", kind || i ? "\t" : "", kinds[kind]->rows[i].name);
        }
    }
    printf("\n");
}

static td_dtype dtype_of(const char *name) {
    static const struct {
        const char *name;
        td_dtype dtype;
    } dtypes[] = {{"u8", TD_U8},   {"i8", TD_I8},     {"i16", TD_I16}, {"i32", TD_I32}, {"i64", TD_I64},
                  {"f16", TD_F16}, {"bf16", TD_BF16}, {"f32", TD_F32}, {"f64", TD_F64}, {"c64", TD_C64}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (!strcmp(dtypes[i].name, name)) {
            return dtypes[i].dtype;
        }
    }
    bench_fail("%s is no dtype", name);
}

static void answer(td_device *device, char *line) {
    char *name = strtok(line, "\t"), *dtype = strtok(NULL, "\t"), *elements = strtok(NULL, "\t");
    const struct ops_row *row = elements ? row_of(name) : NULL;
    if (!row) {
        printf("-\tthere is no such row\n");
        return;
    }
    struct ops_case at = {.device = device, .dtype = dtype_of(dtype), .n = strtoll(elements, NULL, 10)};
    at.side = (int64_t)sqrt((double)at.n);
    row->open(&at);
    printf("%.4g\n", row->measure ? row->measure(&at) : measure(row, &at));
    for (int i = 0; i < OPS_OPERANDS; i++) {
        td_release(at.x[i]);
    }
}

int main(int argc, char **argv) {
    char line[3 * NAME_MAX_BYTES];
    struct bench_daemon daemon;
    struct bench_client client;
    bench_quick = argc > 1 && !strcmp(argv[1], "--quick");
    bench_daemon_start(&daemon);
    bench_client_open(&client, daemon.url, NULL);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "list")) {
            list();
        } else if (!strcmp(line, "stream")) {
            printf("%.4g\n", stream_rate(bench_quick));
        } else {
            answer(client.device, line);
        }
        fflush(stdout);
    }
    bench_client_close(&client);
    bench_daemon_stop(&daemon);
    return 0;
}
