#include "tests/device/tolerance.h"

#include <math.h>

#include "proto/ops/op.h"

/* Sums, differences, products, quotients and roots of floats up to f32 are correctly rounded even where they are
 * computed in a wider format first, so they must be exact. Functions may be off by little; f16 and bf16 are computed in
 * f32, where one unit is what a second rounding may cost. Each operation's description says how far, and why. */
const struct tolerance *tolerance_of(unsigned opcode) {
    return &tolerances[opcode];
}

static double tolerance_ulps(const struct tolerance *tolerance, const struct values *expected) {
    enum dtype dtype = expected->of ? expected->of : expected->dtype;
    return value_is_complex(dtype) ? tolerance->complex_ulps[dtype - DTYPE_C64] : tolerance->ulps[dtype - DTYPE_F16];
}

bool tolerance_exact(unsigned opcode, const struct values *result) {
    const struct tolerance *tolerance = tolerance_of(opcode);
    return !result->f || (tolerance->zero_signs && tolerance_ulps(tolerance, result) == 0);
}

/* For a number of this size. */
static long double tolerance_bound(const struct tolerance *tolerance, const struct values *expected, int64_t k,
                                   long double size) {
    enum dtype dtype = expected->dtype;
    long double bound = tolerance_ulps(tolerance, expected) * value_ulp(dtype, isinf(size) ? value_max(dtype) : size);
    if (expected->scale) {
        long double epsilon = dtype == DTYPE_F64 || dtype == DTYPE_C128 ? 0x1p-53L : 0x1p-24L;
        bound += (long double)tolerance->accumulate * (2 + sqrtl(expected->terms)) * epsilon * expected->scale[k];
    }
    return bound;
}

/* Whether `have` will do for `want`, with an error of at most `bound`. */
static bool tolerance_near(long double want, long double have, long double bound, bool zero_signs, enum dtype dtype) {
    if (isnan(want) || isnan(have))
        return isnan(want) && isnan(have);
    if (want == have)
        return want != 0 || !zero_signs || signbit(want) == signbit(have);
    if (bound == 0 || isinf(bound))
        return isinf(bound) && isfinite(want) == isfinite(have);
    /* At the edge of the range an allowed error turns the largest number into infinity, and back. */
    long double limit = value_max(dtype);
    if (isinf(want))
        return copysignl(1, want) == copysignl(1, have) && limit - fabsl(have) <= bound;
    if (isinf(have))
        return copysignl(1, want) == copysignl(1, have) && limit - fabsl(want) <= bound;
    return fabsl(want - have) <= bound;
}

bool tolerance_holds(unsigned opcode, const struct values *expected, const struct values *got, int64_t k) {
    if (!expected->f)
        return expected->i[k] == got->i[k];
    const struct tolerance *tolerance = tolerance_of(opcode);
    long double want = expected->f[k];
    if (want == got->f[k] && want != 0 && !expected->im)
        return true;
    if (!expected->im)
        return tolerance_near(want, got->f[k], tolerance_bound(tolerance, expected, k, want), tolerance->zero_signs,
                              expected->dtype);
    long double other = expected->im[k], size = fmaxl(fabsl(want), fabsl(other));
    long double bound = tolerance_bound(tolerance, expected, k, size);
    bool signs = tolerance->zero_signs && tolerance_ulps(tolerance, expected) == 0 && !expected->scale;
    return tolerance_near(want, got->f[k], bound, signs, expected->dtype) &&
           tolerance_near(other, got->im[k], bound, signs, expected->dtype);
}
