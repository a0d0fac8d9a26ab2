/* The report: rows in memory that this process shares with those it forks, on standard output, and as JSON. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/bench/bench.h"

enum { ROWS_MAX = 256, NAME_MAX_BYTES = 96, UNIT_MAX_BYTES = 16, TEXT_MAX_BYTES = 320 };

struct row {
    char name[NAME_MAX_BYTES], unit[UNIT_MAX_BYTES];
    char note[TEXT_MAX_BYTES]; /* of a row that ran; of another one why it did not */
    double value, limit, ratio, goal;
    enum bench_better better;
    bool ran, met;
};

static struct report {
    size_t n_rows;
    struct row rows[ROWS_MAX];
    char failure[TEXT_MAX_BYTES];
} * report;

void bench_report_init(void) {
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED) {
        perror("bench: mmap");
        exit(1);
    }
    printf("%-46s %11s %-7s %11s %8s %-9s\n", "row", "value", "unit", "limit", "ratio", "goal");
    fflush(stdout);
}

static struct row *report_add(const char *name, const char *unit, enum bench_better better, double goal) {
    if (report->n_rows == ROWS_MAX)
        bench_fail("more than %d rows", ROWS_MAX);
    struct row *row = &report->rows[report->n_rows++];
    memset(row, 0, sizeof *row);
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->unit, sizeof row->unit, "%s", unit);
    row->better = better;
    row->goal = goal;
    return row;
}

void bench_row(const char *name, double value, const char *unit, double limit, double ratio, enum bench_better better,
               double goal) {
    struct row *row = report_add(name, unit, better, goal);
    row->value = value;
    row->limit = limit;
    row->ratio = ratio;
    row->ran = true;
    row->met = better == BENCH_LOWER ? ratio <= goal : ratio >= goal; /* neither for a NaN */
    printf("%-46s %11.4g %-7s %11.4g %8.3f %s %-6.3g %s\n", row->name, value, unit, limit, ratio,
           better == BENCH_LOWER ? "<=" : ">=", goal, row->met ? "met" : "MISSED");
    fflush(stdout);
}

void bench_not_run(const char *name, const char *unit, enum bench_better better, double goal, const char *reason) {
    struct row *row = report_add(name, unit, better, goal);
    snprintf(row->note, sizeof row->note, "%s", reason);
    printf("%-46s not run: %s\n", row->name, row->note);
    fflush(stdout);
}

void bench_note(const char *format, ...) {
    struct row *row = &report->rows[report->n_rows - 1];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(row->note, sizeof row->note, format, arguments);
    va_end(arguments);
}

size_t bench_rows(void) {
    return report->n_rows;
}

const char *bench_failure(void) {
    return report->failure;
}

void bench_failure_clear(void) {
    report->failure[0] = '\0';
}

void bench_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(report->failure, sizeof report->failure, format, arguments);
    va_end(arguments);
    fprintf(stderr, "bench: %s\n", report->failure);
    exit(1);
}

/* ---- JSON ---- */

static void json_text(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            fprintf(file, "\\%c", byte);
        else if (byte < 0x20)
            fprintf(file, "\\u%04x", byte);
        else
            fputc(byte, file);
    }
    fputc('"', file);
}

/* Infinite and undefined numbers have no JSON. */
static void json_number(FILE *file, const char *key, double number, bool known) {
    if (known && number - number == 0)
        fprintf(file, ", \"%s\": %.9g", key, number);
    else
        fprintf(file, ", \"%s\": null", key);
}

static void json_row(FILE *file, const struct row *row) {
    fprintf(file, "  {\"row\": ");
    json_text(file, row->name);
    json_number(file, "value", row->value, row->ran);
    fprintf(file, ", \"unit\": ");
    json_text(file, row->unit);
    json_number(file, "limit", row->limit, row->ran);
    json_number(file, "ratio", row->ratio, row->ran);
    json_number(file, "goal", row->goal, true);
    fprintf(file, ", \"better\": \"%s\", \"met\": %s, \"%s\": ", row->better == BENCH_LOWER ? "lower" : "higher",
            !row->ran  ? "null"
            : row->met ? "true"
                       : "false",
            row->ran ? "note" : "not_run");
    json_text(file, row->note);
    fputc('}', file);
}

int bench_report_write(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file)
        return -1;
    fprintf(file, "[\n");
    for (size_t i = 0; i < report->n_rows; i++) {
        json_row(file, &report->rows[i]);
        fprintf(file, "%s\n", i + 1 < report->n_rows ? "," : "");
    }
    fprintf(file, "]\n");
    return fclose(file);
}

/* ---- time, and what the client library says ---- */

double bench_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double bench_thread_cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

void bench_check(int code, const char *what) {
    if (code != TD_OK)
        bench_fail("%s: %s: %s", what, td_strerror(code), td_last_error()->message);
}

td_tensor *bench_made(td_tensor *made, const char *what) {
    if (!made)
        bench_check(td_last_error()->code, what);
    return made;
}

bool bench_again(td_device *device) {
    if (td_last_error()->code != TD_E_AGAIN)
        return false;
    bench_check(td_sync(device), "sync");
    return true;
}

void bench_client_open(struct bench_client *client, const char *url, const td_options *options) {
    bench_check(td_connect(url, options, &client->connection), "connect");
    bench_check(td_device_open(client->connection, NULL, &client->device), "open device");
}

void bench_client_close(struct bench_client *client) {
    td_close(client->connection);
}

td_tensor *bench_vector16(td_device *device, float value) {
    float data[16];
    for (int i = 0; i < 16; i++)
        data[i] = value;
    return bench_made(td_upload(device, TD_F32, TD_SHAPE(16), data), "upload");
}

td_tensor *bench_adds(td_tensor *x, td_tensor *b, long count) {
    for (long i = 0; i < count; i++) {
        td_tensor *next = td_add(x, b);
        while (!next) {
            if (td_last_error()->code != TD_E_AGAIN)
                bench_check(td_last_error()->code, "add");
            bench_check(td_wait(x), "wait");
            next = td_add(x, b);
        }
        td_release(x);
        x = next;
    }
    return x;
}
