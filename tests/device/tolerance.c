#include "tests/device/tolerance.h"

#include <math.h>

#include "proto/ops/op.h"

/* Sums, differences, products, quotients and roots of floats up to f32 are correctly rounded even where they are
 * computed in a wider format first, so they must be exact. Functions may be off by little; f16 and bf16 are computed in
 * f32, where one unit is what a second rounding may cost. Each operation's description says how far, and why. */
const struct tolerance *tolerance_of(unsigned opcode) {
    return &tolerances[opcode];
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
