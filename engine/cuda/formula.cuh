/* engine/device/formula.h for kernels. Functions of real numbers are those of CUDA's library: without -use_fast_math they keep
 * subnormal numbers, and division and square root are rounded correctly. CUDA C++ only. */
#pragma once

#include <math.h>

#define FORMULA_FUNCTION static __host__ __device__ __forceinline__

/* CUDA's powf may be 4 units off. Squares are by far the most common powers, and a product is their correct value. */
FORMULA_FUNCTION float formula_cuda_powf(float a, float b) {
    return b == 2 ? a * a : (float)pow((double)a, (double)b);
}
FORMULA_FUNCTION double formula_cuda_pow(double a, double b) {
    return b == 2 ? a * a : pow(a, b);
}
#define FORMULA_POW_f32 formula_cuda_powf
#define FORMULA_POW_f64 formula_cuda_pow
#include "engine/device/formula.h"
