/* Products of symmetric matrices and vectors (rows_symmetric.c), for spectral_large.c. */
#pragma once

#include "engine/cpu/kernels.h"

/* The first columns of the lower triangle of a symmetric matrix of n rows, which lie so many elements apart, and what lies across from them,
 * times x: that is added to y. */
typedef void cpu_symmetric_function(int64_t n, int64_t columns, const void *a, int64_t a_step, const void *x, void *y);

struct cpu_symmetric {
    cpu_symmetric_function *f32, *f64;
};
