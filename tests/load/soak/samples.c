#include "tests/load/soak/samples.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"

const char *sample_name(enum sample_figure figure) {
    static const char *const NAMES[SAMPLE_FIGURES] = {
        [SAMPLE_FRONT_RSS] = "front, resident bytes",
        [SAMPLE_FRONT_FILES] = "front, descriptors",
        [SAMPLE_WORKER_RSS] = "worker, resident bytes",
        [SAMPLE_WORKER_FILES] = "worker, descriptors",
        [SAMPLE_LIVE] = "device bytes, live",
        [SAMPLE_RESERVED] = "device bytes, reserved",
        [SAMPLE_PEAK] = "device bytes, peak",
        [SAMPLE_STAGING] = "staging bytes, held",
        [SAMPLE_SESSIONS] = "sessions",
    };
    return NAMES[figure];
}

unsigned sample_files(pid_t pid) {
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *directory = opendir(path);
    cr_assert_not_null(directory, "process %d is gone", pid);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count - 2; /* "." and ".." */
}

void samples_take(struct samples *samples, const char *url, pid_t front, pid_t worker) {
    if (samples->n == samples->capacity) {
        samples->capacity = samples->capacity ? samples->capacity * 2 : 256;
        samples->rows = realloc(samples->rows, samples->capacity * sizeof *samples->rows);
        cr_assert_not_null(samples->rows);
    }
    double *row = samples->rows[samples->n++];
    Tensord__Status *status = status_get(url);
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    row[SAMPLE_FRONT_RSS] = (double)daemon_process_rss(front);
    row[SAMPLE_FRONT_FILES] = sample_files(front);
    row[SAMPLE_WORKER_RSS] = (double)daemon_process_rss(worker);
    row[SAMPLE_WORKER_FILES] = sample_files(worker);
    row[SAMPLE_LIVE] = (double)device->memory_live;
    row[SAMPLE_PEAK] = (double)device->memory_peak;
    row[SAMPLE_RESERVED] = (double)device->memory_reserved;
    row[SAMPLE_STAGING] = (double)device->staging_held;
    row[SAMPLE_SESSIONS] = status_sessions(status, "cpu:0");
    status_free(status);
}

void samples_finish(struct samples *samples) {
    free(samples->rows);
    *samples = (struct samples){0};
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double samples_median(const struct samples *samples, enum sample_figure figure, size_t first, size_t last) {
    double *values = calloc(last - first, sizeof *values);
    cr_assert_not_null(values);
    for (size_t i = first; i < last; i++)
        values[i - first] = samples->rows[i][figure];
    qsort(values, last - first, sizeof *values, compare);
    double median = values[(last - first) / 2];
    free(values);
    return median;
}
