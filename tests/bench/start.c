/* How soon a daemon is ready, and how much memory it takes at rest. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"

static double process_memory(long pid) {
    char path[64], line[256];
    double total = 0;
    snprintf(path, sizeof path, "/proc/%ld/smaps_rollup", pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long kib;
        if (sscanf(line, "Pss: %llu kB", &kib) == 1)
            total = (double)kib * 1024;
    }
    if (file)
        fclose(file);
    return total;
}

static long process_parent(long pid) {
    char path[64];
    long parent = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %*c %ld", &parent) != 1)
        parent = 0;
    if (file)
        fclose(file);
    return parent;
}

/* Proportional set size of the daemon and its workers, in bytes. */
static double daemon_memory(const struct bench_daemon *daemon) {
    double total = process_memory(daemon->pid);
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0 && process_parent(pid) == daemon->pid)
            total += process_memory(pid);
    }
    if (processes)
        closedir(processes);
    return total;
}

void bench_start(void) {
    enum { RUNS = 9 };
    double starts[RUNS], memory[RUNS];
    for (int i = 0; i < RUNS; i++) {
        struct bench_daemon daemon;
        bench_daemon_start(&daemon);
        starts[i] = daemon.start_ms;
        memory[i] = daemon_memory(&daemon) / (1 << 20);
        bench_daemon_stop(&daemon);
    }
    double start = bench_median(starts, RUNS), idle = bench_median(memory, RUNS);
    bench_row("start to ready", start, "ms", 100, start / 100, BENCH_LOWER, 1);
    bench_row("idle memory, front and worker (PSS)", idle, "MiB", 40, idle / 40, BENCH_LOWER, 1);
}
