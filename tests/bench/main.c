/* usage: bench [--json FILE] [--quick] [ROW…] */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cpu/blas.h"
#include "tests/bench/bench.h"

bool bench_quick;

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

typedef void bench_function(const struct bench_placement *placement, const struct bench_daemon *daemon);

static const struct {
    const char *name;
    bench_function *run;
} benches[] = {
    {"enqueue", bench_enqueue},       {"chain", bench_chain}, {"programs", bench_programs},
    {"round-trip", bench_round_trip}, {"bulk", bench_bulk},   {"matmul", bench_matmul},
    {"clients", bench_clients},
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
    if (wanted(names, "tls"))
        bench_tls(placement);
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
    bench_report_init();
    const struct bench_placement placements[] = {{"one core", 1}, {"two cores", 2}};
    for (size_t i = 0; i < sizeof placements / sizeof *placements; i++)
        run_placement(&placements[i], argv + first);
    if (wanted(argv + first, "programs"))
        bench_epochs();
    if (wanted(argv + first, "pool"))
        bench_pool();
    if (wanted(argv + first, "start"))
        bench_start();
    if (wanted(argv + first, "neighbours"))
        bench_neighbours();
    if (wanted(argv + first, "long"))
        bench_long_neighbours();
    if (wanted(argv + first, "stops"))
        bench_stops();
    if (json && bench_report_write(json) != 0)
        return perror(json), 1;
    return 0;
}
