/* What a daemon holds, again and again, and whether it grows. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum sample_figure {
    SAMPLE_FRONT_RSS, /* bytes */
    SAMPLE_FRONT_FILES,
    SAMPLE_WORKER_RSS, /* of cpu:0 */
    SAMPLE_WORKER_FILES,
    SAMPLE_LIVE, /* bytes of tensors on cpu:0 */
    SAMPLE_PEAK, /* of these, ever */
    SAMPLE_RESERVED,
    SAMPLE_STAGING, /* bytes on their way */
    SAMPLE_SESSIONS,
    SAMPLE_FIGURES
};

struct samples {
    double (*rows)[SAMPLE_FIGURES];
    size_t n, capacity;
};

/* One row of now; asserts that the daemon answers and that both processes live. */
void samples_take(struct samples *samples, const char *url, pid_t front, pid_t worker);
void samples_finish(struct samples *samples);
const char *sample_name(enum sample_figure figure);
/* Median of rows first … last - 1. */
double samples_median(const struct samples *samples, enum sample_figure figure, size_t first, size_t last);
/* Open descriptors of a process. */
unsigned sample_files(pid_t pid);
