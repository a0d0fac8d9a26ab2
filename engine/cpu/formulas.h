/* engine/device/formula.h with this backend's functions of real numbers: vector_math.h for f32, libm for f64, whose results are within
 * 1 ulp. Only for sources compiled once for each vector level. */
#pragma once

#include "engine/cpu/vector_math.h"

#define FORMULA_MATH_f32(function) vector_##function
#define FORMULA_FMA_f32(a, b, c) CPU_FMA(a, b, c)
#include "engine/device/formula.h"
