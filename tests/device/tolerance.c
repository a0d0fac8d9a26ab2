#include "tests/device/tolerance.h"

#include <math.h>

#include "proto/op.h"

/* Sums, differences, products, quotients and roots of floats up to f32 are correctly rounded even where they are
 * computed in a wider format first, so they must be exact. Functions may be off by little; f16 and bf16 are computed in
 * f32, where one unit is what a second rounding may cost. */
static const struct tolerance tolerances[OP_CODE_MAX] = {
    [OP_ARANGE] = {.ulps = {1, 1, 1, 1}, .accumulate = 1},
    [OP_UNIFORM] = {.ulps = {0, 0, 0, 0}},
    [OP_NORMAL] = {.ulps = {1, 1, 8, 8}, .accumulate = 8},
    [OP_POW] = {.ulps = {1, 1, 2, 2}, .zero_signs = true},
    [OP_MAXIMUM] = {.zero_signs = false},
    [OP_MINIMUM] = {.zero_signs = false},
    [OP_EXP] = {.ulps = {1, 1, 2, 2}, .zero_signs = true},
    [OP_LOG] = {.ulps = {1, 1, 2, 2}, .zero_signs = false},
    [OP_TANH] = {.ulps = {1, 1, 3, 3}, .zero_signs = true},
    [OP_SIGMOID] = {.ulps = {1, 1, 3, 3}, .zero_signs = true},
    [OP_RELU] = {.zero_signs = false},
    [OP_SUM] = {.ulps = {1, 1, 1, 1}, .accumulate = 2},
    [OP_PROD] = {.ulps = {1, 1, 1, 1}, .accumulate = 2},
    [OP_MEAN] = {.ulps = {1, 1, 1, 1}, .accumulate = 2},
    [OP_MAX] = {.zero_signs = false},
    [OP_MIN] = {.zero_signs = false},
    [OP_SOFTMAX] = {.ulps = {1, 1, 3, 3}, .accumulate = 4},
    [OP_LOG_SOFTMAX] = {.ulps = {1, 1, 3, 3}, .accumulate = 4},
    [OP_MATMUL] = {.ulps = {1, 1, 1, 1}, .accumulate = 2},
    [OP_LINEAR] = {.ulps = {1, 1, 4, 4}, .accumulate = 2}, /* a function of a sum */
};

static const bool tolerance_listed[OP_CODE_MAX] = {
    [OP_ARANGE] = true,  [OP_UNIFORM] = true, [OP_NORMAL] = true,      [OP_POW] = true,    [OP_MAXIMUM] = true,
    [OP_MINIMUM] = true, [OP_EXP] = true,     [OP_LOG] = true,         [OP_TANH] = true,   [OP_SIGMOID] = true,
    [OP_RELU] = true,    [OP_SUM] = true,     [OP_PROD] = true,        [OP_MEAN] = true,   [OP_MAX] = true,
    [OP_MIN] = true,     [OP_SOFTMAX] = true, [OP_LOG_SOFTMAX] = true, [OP_MATMUL] = true,
    [OP_LINEAR] = true,
};

static const struct tolerance tolerance_none = {.zero_signs = true};

const struct tolerance *tolerance_of(unsigned opcode) {
    return opcode < OP_CODE_MAX && tolerance_listed[opcode] ? &tolerances[opcode] : &tolerance_none;
}

bool tolerance_exact(unsigned opcode, const struct values *result) {
    const struct tolerance *tolerance = tolerance_of(opcode);
    return !result->f || (tolerance->zero_signs && tolerance->ulps[result->dtype - DTYPE_F16] == 0);
}

static long double tolerance_bound(const struct tolerance *tolerance, const struct values *expected, int64_t k) {
    enum dtype dtype = expected->dtype;
    long double value = expected->f[k];
    long double bound = tolerance->ulps[dtype - DTYPE_F16] * value_ulp(dtype, isinf(value) ? value_max(dtype) : value);
    if (expected->scale) {
        long double epsilon = dtype == DTYPE_F64 ? 0x1p-53L : 0x1p-24L;
        bound += (long double)tolerance->accumulate * (2 + sqrtl(expected->terms)) * epsilon * expected->scale[k];
    }
    return bound;
}

bool tolerance_holds(unsigned opcode, const struct values *expected, const struct values *got, int64_t k) {
    if (!expected->f)
        return expected->i[k] == got->i[k];
    const struct tolerance *tolerance = tolerance_of(opcode);
    long double want = expected->f[k], have = got->f[k], bound = tolerance_bound(tolerance, expected, k);
    if (isnan(want) || isnan(have))
        return isnan(want) && isnan(have);
    if (want == have)
        return want != 0 || !tolerance->zero_signs || signbit(want) == signbit(have);
    if (bound == 0 || isinf(bound))
        return isinf(bound) && isfinite(want) == isfinite(have);
    /* At the edge of the range an allowed error turns the largest number into infinity, and back. */
    long double limit = value_max(expected->dtype);
    if (isinf(want))
        return copysignl(1, want) == copysignl(1, have) && limit - fabsl(have) <= bound;
    if (isinf(have))
        return copysignl(1, want) == copysignl(1, have) && limit - fabsl(want) <= bound;
    return fabsl(want - have) <= bound;
}
