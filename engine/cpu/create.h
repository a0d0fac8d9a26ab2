/* The inner loops of creation, compiled once for each vector level (rows_create.c). */
#pragma once

#include "engine/cpu/kernels.h"

/* Writes start + i · step for n elements i, INT32_MAX at most, from number `first` on: each is computed by itself in f64, in two roundings, and
 * rounded to its dtype at last. */
struct cpu_creation {
    void (*steps_f32)(double start, double step, int64_t first, int64_t n, float *out);
    void (*steps_f64)(double start, double step, int64_t first, int64_t n, double *out);
};
