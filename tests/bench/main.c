/* usage: bench [--json FILE] [--quick] [ROW…] */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/cpu/blas.h"
#include "tests/bench/bench.h"

bool bench_quick;

struct row {
    char name[96], unit[16];
    double value, limit, ratio, goal;
    bool met;
};
static struct row rows[128];
static size_t n_rows;

void bench_row(const char *name, double value, const char *unit, double limit, double ratio, enum bench_better better,
               double goal) {
    if (n_rows == sizeof rows / sizeof *rows)
        return;
    struct row *row = &rows[n_rows++];
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->unit, sizeof row->unit, "%s", unit);
    row->value = value;
    row->limit = limit;
    row->ratio = ratio;
    row->goal = goal;
    row->met = better == BENCH_LOWER ? ratio <= goal : ratio >= goal;
    printf("%-46s %11.4g %-6s %11.4g %8.3f %s %-6.3g %s\n", row->name, value, unit, limit, ratio,
           better == BENCH_LOWER ? "<=" : ">=", goal, row->met ? "met" : "MISSED");
    fflush(stdout);
}

static int write_json(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file)
        return -1;
    fprintf(file, "[\n");
    for (size_t i = 0; i < n_rows; i++)
        fprintf(file,
                "  {\"row\": \"%s\", \"value\": %.9g, \"unit\": \"%s\", \"limit\": %.9g, \"ratio\": %.6g, "
                "\"goal\": %.6g, \"met\": %s}%s\n",
                rows[i].name, rows[i].value, rows[i].unit, rows[i].limit, rows[i].ratio, rows[i].goal,
                rows[i].met ? "true" : "false", i + 1 < n_rows ? "," : "");
    fprintf(file, "]\n");
    return fclose(file);
}

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

static cpu_set_t all_cpus;

bool bench_place(const struct bench_placement *placement) {
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    unsigned found = 0;
    for (int i = 0; i < CPU_SETSIZE && found < placement->cores; i++)
        if (CPU_ISSET(i, &all_cpus)) {
            CPU_SET(i, &wanted);
            found++;
        }
    return found == placement->cores && sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

void bench_check(int code, const char *what) {
    if (code == TD_OK)
        return;
    fprintf(stderr, "bench: %s: %s: %s\n", what, td_strerror(code), td_last_error()->message);
    exit(1);
}

td_tensor *bench_made(td_tensor *made, const char *what) {
    if (!made)
        bench_check(td_last_error()->code, what);
    return made;
}

void bench_client_open(struct bench_client *client, const char *url) {
    bench_check(td_connect(url, NULL, &client->connection), "connect");
    bench_check(td_device_open(client->connection, NULL, &client->device), "open device");
}

void bench_client_close(struct bench_client *client) {
    td_close(client->connection);
}

typedef void bench_function(const struct bench_placement *placement, const struct bench_daemon *daemon);

static const struct {
    const char *name;
    bench_function *run;
} benches[] = {
    {"enqueue", bench_enqueue}, {"chain", bench_chain},   {"round-trip", bench_round_trip},
    {"bulk", bench_bulk},       {"matmul", bench_matmul}, {"clients", bench_clients},
};

static bool wanted(char **names, const char *name) {
    if (!*names)
        return true;
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static void run_placement(const struct bench_placement *placement, char **names) {
    if (!bench_place(placement)) {
        printf("(%s: not enough cores here)\n", placement->name);
        return;
    }
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        if (!wanted(names, benches[i].name))
            continue;
        struct bench_daemon daemon;
        bench_daemon_start(&daemon);
        benches[i].run(placement, &daemon);
        bench_daemon_stop(&daemon);
    }
    if (wanted(names, "add"))
        bench_add(placement);
}

/* The library that the daemon is compared with must know this processor as well as the daemon's does
 * (engine/cpu/blas.h): OpenBLAS reads that when it is loaded, so it takes a new start. */
static void prepare_peer(char **argv) {
    if (getenv("OPENBLAS_CORETYPE"))
        return;
    blas_prepare();
    unsetenv("OPENBLAS_NUM_THREADS");
    if (getenv("OPENBLAS_CORETYPE"))
        execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    prepare_peer(argv);
    const char *json = NULL;
    int first = 1;
    for (; first < argc && argv[first][0] == '-'; first++) {
        if (strcmp(argv[first], "--quick") == 0)
            bench_quick = true;
        else if (strcmp(argv[first], "--json") == 0 && first + 1 < argc)
            json = argv[++first];
        else
            return fprintf(stderr, "usage: bench [--json FILE] [--quick] [ROW...]\n"), 2;
    }
    sched_getaffinity(0, sizeof all_cpus, &all_cpus);
    printf("%-46s %11s %-6s %11s %8s %-9s\n", "row", "value", "unit", "limit", "ratio", "goal");
    const struct bench_placement placements[] = {{"one core", 1}, {"two cores", 2}};
    for (size_t i = 0; i < sizeof placements / sizeof *placements; i++)
        run_placement(&placements[i], argv + first);
    if (wanted(argv + first, "start"))
        bench_start();
    if (json && write_json(json) != 0)
        return perror(json), 1;
    return 0;
}
