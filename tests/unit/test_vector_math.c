/* How exact the CPU device's functions of f32 are, at each vector level that this processor has: samples from the whole range of f32, in
 * distances that are odd multiples of its last bit, and special values, compared with functions of long double. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/cpu/kernels.h"

enum { BLOCK = 4096, STEP = 30011, PAIRS = 100000 };

static long double exact_sigmoid(long double x) {
    return 1 / (1 + expl(-x));
}
static long double exact_rsqrt(long double x) {
    return 1 / sqrtl(x);
}
static long double exact_gelu(long double x) {
    return x / 2 * erfcl(-x * 0.707106781186547524400844362104849L);
}
static long double exact_silu(long double x) {
    return x / (1 + expl(-x));
}
static long double exact_mish(long double x) {
    long double e = expl(x < 200 ? x : 200), n = e * (e + 2);
    return x * (n / (n + 2));
}
static long double exact_logaddexp(long double a, long double b) {
    return a == b ? a + logl(2) : fmaxl(a, b) + log1pl(expl(-fabsl(a - b)));
}
static long double exact_remainder(long double a, long double b) {
    long double rest = fmodl(a, b);
    return rest == 0 ? copysignl(rest, b) : (rest < 0) != (b < 0) ? rest + b : rest;
}
static long double exact_floor_divide(long double a, long double b) {
    long double rest = fmodl(a, b), q = (a - rest) / b;
    return isinf(a) ? (long double)NAN : b == 0 ? a / b : rest != 0 && (rest < 0) != (b < 0) ? q - 1 : q;
}

struct function {
    enum cpu_row_number row;
    const char *name;
    long double (*of_1)(long double);
    long double (*of_2)(long double, long double);
    float ulps;   /* the most that a result may differ from the exact value */
    bool cancels; /* its terms may cancel: ulps are the greater operand's where that is beyond the result */
};
#define OF_1(name, exact, ulps)                                                                                        \
    { CPU_ROW_##name##_f32, #name, exact, NULL, ulps, false }
#define OF_2(name, exact, ulps)                                                                                        \
    { CPU_ROW_##name##_f32, #name, NULL, exact, ulps, false }
static const struct function functions[] = {
    OF_1(exp, expl, 1.6f),
    OF_1(log, logl, 1.6f),
    OF_1(tanh, tanhl, 2.5f),
    OF_1(sigmoid, exact_sigmoid, 2.5f),
    OF_1(erf, erfl, 1.6f),
    OF_1(sqrt, sqrtl, 0.5f),
    OF_1(rsqrt, exact_rsqrt, 1.5f),
    OF_1(sin, sinl, 1),
    OF_1(cos, cosl, 1),
    OF_1(tan, tanl, 2.3f),
    OF_1(asin, asinl, 1.4f),
    OF_1(acos, acosl, 1.2f),
    OF_1(atan, atanl, 1.3f),
    OF_1(sinh, sinhl, 1.5f),
    OF_1(cosh, coshl, 1.4f),
    OF_1(asinh, asinhl, 1.7f),
    OF_1(acosh, acoshl, 2),
    OF_1(atanh, atanhl, 2.3f),
    OF_1(exp2, exp2l, 1.2f),
    OF_1(expm1, expm1l, 1.7f),
    OF_1(log1p, log1pl, 1.2f),
    OF_1(log2, log2l, 2.2f),
    OF_1(log10, log10l, 2.2f),
    OF_1(erfc, erfcl, 2.5f),
    OF_1(gelu, exact_gelu, 4),
    OF_1(silu, exact_silu, 3.3f),
    OF_1(mish, exact_mish, 0.6f),
    OF_2(pow, powl, 0.6f),
    OF_2(atan2, atan2l, 1.9f),
    OF_2(hypot, hypotl, 1),
    {CPU_ROW_logaddexp_f32, "logaddexp", NULL, exact_logaddexp, 3.8f, true},
    OF_2(fmod, fmodl, 0),
    OF_2(remainder, exact_remainder, 0.5f),
    OF_2(floor_divide, exact_floor_divide, 1),
};

static const float specials[] = {0.0f,     -0.0f,   1.0f,     -1.0f,     INFINITY,       -INFINITY,    NAN,    FLT_MAX,
                                 -FLT_MAX, FLT_MIN, -FLT_MIN, 0x1p-149f, -0x1p-149f,     0.5f,         -0.5f,  2.0f,
                                 3.0f,     1e8f,    -1e8f,    1e30f,     0x1p24f,        -0x1p24f,     100.0f, -100.0f,
                                 88.8f,    -88.8f,  710.0f,   -750.0f,   0x1.fffffep-1f, 0x1.000002p0f};
enum { SPECIALS = sizeof specials / sizeof *specials };

/* The distance in units in the last place of f32, that of `want` or of `scale`, whichever is greater; at the edge of its range the largest
 * number and infinity are neighbours. */
static double distance(float got, long double want, long double scale) {
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if ((long double)got == want)
        return 0;
    long double edge = 0x1p128L, at = isinf(got) ? copysignl(edge, got) : (long double)got;
    long double exact = fabsl(want) > edge ? copysignl(edge, want) : want;
    long double greater = fmaxl(fabsl(exact), fabsl(scale));
    int exponent = greater == 0 ? -126 : ilogbl(greater);
    exponent = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
    return (double)(fabsl(at - exact) / ldexpl(1, exponent - 23));
}

static void check(const struct function *function, const float *a, const float *b, int64_t n) {
    static long double want[BLOCK];
    static float out[BLOCK];
    for (int64_t i = 0; i < n; i++)
        want[i] = function->of_1 ? function->of_1(a[i]) : function->of_2(a[i], b[i]);
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        kernels->elementwise[function->row](
            &(struct cpu_row){n, {(char *)out, (char *)(uintptr_t)a, (char *)(uintptr_t)b}, {1, 1, 1}});
        for (int64_t i = 0; i < n; i++) {
            double units = distance(out[i], want[i], function->cancels ? fmaxl(a[i], b[i]) : 0);
            cr_assert(units <= (double)function->ulps, "%s, %s(%a, %a): %a, not %La: %.2f units", kernels->level,
                      function->name, (double)a[i], (double)(b ? b[i] : 0), (double)out[i], want[i], units);
        }
    }
}

/* The same for f64, which long double tells apart to 1/2048 of a unit. Without FMA, erf and erfc are libm's, whose erfc has 4.2 units. */
static const struct function_f64 {
    enum cpu_row_number row;
    const char *name;
    long double (*of_1)(long double);
    long double (*of_2)(long double, long double);
    double ulps;
} functions_f64[] = {
    {CPU_ROW_exp_f64, "exp", expl, NULL, 1},
    {CPU_ROW_exp2_f64, "exp2", exp2l, NULL, 1.2},
    {CPU_ROW_log_f64, "log", logl, NULL, 1},
    {CPU_ROW_expm1_f64, "expm1", expm1l, NULL, 2},
    {CPU_ROW_tanh_f64, "tanh", tanhl, NULL, 2.5},
    {CPU_ROW_sin_f64, "sin", sinl, NULL, 1},
    {CPU_ROW_cos_f64, "cos", cosl, NULL, 1},
    {CPU_ROW_sigmoid_f64, "sigmoid", exact_sigmoid, NULL, 2.5},
    {CPU_ROW_log2_f64, "log2", log2l, NULL, 0.9},
    {CPU_ROW_log10_f64, "log10", log10l, NULL, 0.9},
    {CPU_ROW_log1p_f64, "log1p", log1pl, NULL, 1},
    {CPU_ROW_sinh_f64, "sinh", sinhl, NULL, 1.5},
    {CPU_ROW_cosh_f64, "cosh", coshl, NULL, 1.5},
    {CPU_ROW_tan_f64, "tan", tanl, NULL, 1.5},
    {CPU_ROW_asin_f64, "asin", asinl, NULL, 1.7},
    {CPU_ROW_acos_f64, "acos", acosl, NULL, 1.3},
    {CPU_ROW_atan_f64, "atan", atanl, NULL, 1.3},
    {CPU_ROW_asinh_f64, "asinh", asinhl, NULL, 1},
    {CPU_ROW_acosh_f64, "acosh", acoshl, NULL, 1},
    {CPU_ROW_atanh_f64, "atanh", atanhl, NULL, 1},
    {CPU_ROW_erf_f64, "erf", erfl, NULL, 1.5},
    {CPU_ROW_erfc_f64, "erfc", erfcl, NULL, 4.5},
    {CPU_ROW_atan2_f64, "atan2", NULL, atan2l, 1.6},
    {CPU_ROW_hypot_f64, "hypot", NULL, hypotl, 1.2},
    {CPU_ROW_pow_f64, "pow", NULL, powl, 1.6},
    {CPU_ROW_fmod_f64, "fmod", NULL, fmodl, 0},
    {CPU_ROW_remainder_f64, "remainder", NULL, exact_remainder, 0.5},
};
enum { FUNCTIONS_F64 = sizeof functions_f64 / sizeof *functions_f64 };

static double distance_f64(double got, long double want) {
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if ((long double)got == want || got == (double)want)
        return 0;
    int exponent = want == 0 ? -1022 : ilogbl(want);
    return (double)(fabsl((long double)got - want) / ldexpl(1, (exponent < -1022 ? -1022 : exponent) - 52));
}

static void check_f64(const struct function_f64 *function, const double *a, const double *b, int64_t n) {
    static double out[BLOCK];
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        kernels->elementwise[function->row](
            &(struct cpu_row){n, {(char *)out, (char *)(uintptr_t)a, (char *)(uintptr_t)b}, {1, 1, 1}});
        for (int64_t i = 0; i < n; i++) {
            long double want = function->of_1 ? function->of_1(a[i]) : function->of_2(a[i], b[i]);
            cr_assert(distance_f64(out[i], want) <= function->ulps &&
                          (isnan(want) || !signbit(out[i]) == !signbit(want)),
                      "%s, %s(%a, %a): %a, not %La: %.2f units", kernels->level, function->name, a[i], b ? b[i] : 0,
                      out[i], want, distance_f64(out[i], want));
        }
    }
}

/* Of any size, or from -width to width. */
static void draw_f64(uint64_t *state, bool any, double width, double *x) {
    for (int i = 0; i < BLOCK; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = *state ^ *state >> 29;
        if (any)
            memcpy(&x[i], &bits, sizeof bits);
        else
            x[i] = (2 * ((double)(*state >> 11) * 0x1p-53) - 1) * width;
    }
}

static const double specials_f64[] = {
    0.0,       -0.0,       1.0,     -1.0,    INFINITY, -INFINITY, NAN,     DBL_MAX, -DBL_MAX, DBL_MIN,
    0x1p-1074, -0x1p-1074, 709.78,  709.79,  -745.1,   -745.2,    -708.5,  1e5,     1e6,      1e10,
    -1e300,    1023.9,     1024,    -1074,   -1075.5,  710.4,     710.47,  -710.47, 710.48,   0x1.fffffffffffffp-1,
    0x1p-28,   -0x1p-29,   0x1p500, 0x1p501, 0x1p-510, 1e-310,    -1e-300, 27.2,    27.3,     0x1.0000000000001p0,
    0x1p-1000, 0x1p1023,   3.0,     -0.5,    0.5,      26.54,     -6.0,    1e-20};
enum { SPECIALS_F64 = sizeof specials_f64 / sizeof *specials_f64 };

Test(vector_math, functions_of_f64_are_exact, .timeout = 120) {
    static const double widths[] = {1, 3, 30, 1e3, 1e6, 1e-3};
    static double x[BLOCK];
    uint64_t state = 7;
    for (size_t f = 0; f < FUNCTIONS_F64; f++) {
        if (!functions_f64[f].of_1)
            continue;
        check_f64(&functions_f64[f], specials_f64, NULL, SPECIALS_F64);
        for (int round = 0; round < 24; round++) {
            draw_f64(&state, round < 6, widths[round % 6], x);
            check_f64(&functions_f64[f], x, NULL, BLOCK);
        }
    }
}

Test(vector_math, functions_of_two_f64_are_exact, .timeout = 120) {
    static double a[BLOCK], b[BLOCK];
    uint64_t state = 7;
    for (size_t f = 0; f < FUNCTIONS_F64; f++) {
        if (!functions_f64[f].of_2)
            continue;
        for (int i = 0; i < SPECIALS_F64; i++) {
            for (int k = 0; k < SPECIALS_F64; k++)
                a[k] = specials_f64[i];
            check_f64(&functions_f64[f], a, specials_f64, SPECIALS_F64);
        }
        for (int round = 0; round < 16; round++) {
            draw_f64(&state, round < 6, 8, a);
            draw_f64(&state, round < 6, 8, b);
            for (int i = 0; round >= 12 && i < BLOCK; i++) /* numbers of any size, not far from each other */
                b[i] *= a[i] = ldexp(a[i], (int)(state >> (i % 40) & 2047) - 1023);
            check_f64(&functions_f64[f], a, b, BLOCK);
        }
    }
}

/* Powers up to the ends of f64's range, of numbers near 1: what the logarithm is rounded by counts most there. */
Test(vector_math, powers_of_f64_are_exact_up_to_the_ends_of_the_range, .timeout = 120) {
    static const struct function_f64 pow_f64 = {CPU_ROW_pow_f64, "pow", NULL, powl, 1.6};
    static const double widths[] = {0.5, 0.1, 0.03, 1e-3, 1e-9};
    static double a[BLOCK], b[BLOCK];
    uint64_t state = 11;
    for (int round = 0; round < 20; round++) {
        draw_f64(&state, false, widths[round % 5], a);
        draw_f64(&state, false, 745, b);
        for (int i = 0; i < BLOCK; i++) {
            a[i] += 1;
            b[i] = a[i] == 1 ? b[i] : b[i] / log(a[i]);
        }
        check_f64(&pow_f64, a, b, BLOCK);
    }
}

/* Numbers next to multiples of π/2, where what is left of them is lost if π/2 has too few bits. */
Test(vector_math, circular_functions_of_f64_are_exact_next_to_multiples, .timeout = 120) {
    static const struct function_f64 circular[] = {{CPU_ROW_sin_f64, "sin", sinl, NULL, 1.5},
                                                   {CPU_ROW_cos_f64, "cos", cosl, NULL, 1.5},
                                                   {CPU_ROW_tan_f64, "tan", tanl, NULL, 1.5}};
    static double x[BLOCK];
    uint64_t state = 13;
    for (int round = 0; round < 24; round++) {
        draw_f64(&state, false, round % 2 ? 636000 : 100, x);
        for (int i = 0; i < BLOCK; i++) {
            x[i] = (double)(floorl((long double)x[i]) * 1.57079632679489661923L);
            x[i] = i % 3 ? nextafter(x[i], i % 3 == 1 ? -INFINITY : INFINITY) : x[i];
        }
        for (int f = 0; f < 3; f++)
            check_f64(&circular[f], x, NULL, BLOCK);
    }
}

/* Numbers next to multiples of b, whose quotients may be rounded to the integer above, and quotients beyond 2^52, which have a way of their own. */
Test(vector_math, what_a_division_of_f64_leaves_is_exact_next_to_multiples) {
    static const struct function_f64 left[] = {{CPU_ROW_fmod_f64, "fmod", NULL, fmodl, 0},
                                               {CPU_ROW_remainder_f64, "remainder", NULL, exact_remainder, 0.5}};
    static double a[BLOCK], b[BLOCK];
    uint64_t state = 5;
    for (int round = 0; round < 8; round++) {
        draw_f64(&state, false, 3, b);
        draw_f64(&state, false, 1, a);
        for (int i = 0; i < BLOCK; i++) {
            double multiple = floor(ldexp(a[i], 1 + i % 60)) * b[i];
            a[i] = i % 3 ? nextafter(multiple, i % 3 == 1 ? 0 : INFINITY) : multiple;
        }
        check_f64(&left[0], a, b, BLOCK);
        check_f64(&left[1], a, b, BLOCK);
    }
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

Test(vector_math, functions_of_one_number_are_exact_over_the_whole_range, .timeout = 120) {
    static float x[BLOCK];
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        if (!functions[f].of_1)
            continue;
        check(&functions[f], specials, NULL, SPECIALS);
        for (uint64_t bits = f; bits <= UINT32_MAX;) {
            int64_t n = 0;
            for (; n < BLOCK && bits <= UINT32_MAX; n++, bits += STEP)
                x[n] = float_of((uint32_t)bits);
            check(&functions[f], x, NULL, n);
        }
    }
}

/* Near 1, and near 0 in a linear scale, where functions have their interesting places. */
Test(vector_math, functions_of_one_number_are_exact_for_ordinary_numbers, .timeout = 120) {
    static float x[BLOCK];
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        for (int k = 0; functions[f].of_1 && k < 16; k++) {
            float width = k < 8 ? 12.0f : 1.5f;
            for (int i = 0; i < BLOCK; i++)
                x[i] = ((float)(i * 16 + k) / (BLOCK * 8) - 1) * width;
            check(&functions[f], x, NULL, BLOCK);
        }
}

Test(vector_math, functions_of_two_numbers_are_exact, .timeout = 120) {
    static float a[BLOCK], b[BLOCK];
    uint64_t state = 1;
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        if (!functions[f].of_2)
            continue;
        for (int i = 0; i < SPECIALS; i++) {
            for (int k = 0; k < SPECIALS; k++) {
                a[k] = specials[i];
                b[k] = specials[k];
            }
            check(&functions[f], a, b, SPECIALS);
        }
        for (int done = 0; done < PAIRS; done += BLOCK) {
            for (int i = 0; i < BLOCK; i++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                uint32_t high = (uint32_t)(state >> 32), low = (uint32_t)(state >> 8);
                bool ordinary = done % (2 * BLOCK) == 0;
                a[i] = ordinary ? (float)(high >> 8) * 0x1p-20f - 8 : float_of(high);
                b[i] = ordinary ? (float)(low >> 8) * 0x1p-20f - 8 : float_of(low);
            }
            check(&functions[f], a, b, BLOCK);
        }
    }
}

/* One exponent for all elements, of which some have rows of their own. */
Test(vector_math, powers_with_one_exponent_are_exact, .timeout = 120) {
    static const struct {
        float exponent, ulps;
    } powers[] = {{2, 0.5f}, {3, 1.5f}, {-1, 0.5f}, {0.5f, 0.5f}, {0, 0}, {1, 0.6f}, {-2, 1.1f}, {1.5f, 1.1f}};
    static float x[BLOCK], out[BLOCK];
    for (size_t p = 0; p < sizeof powers / sizeof *powers; p++) {
        uint64_t bits = p;
        for (int64_t n = 0; bits <= UINT32_MAX; n = 0) {
            for (; n < SPECIALS && bits == p; n++)
                x[n] = specials[n];
            for (; n < BLOCK && bits <= UINT32_MAX; n++, bits += STEP)
                x[n] = float_of((uint32_t)bits);
            for (unsigned level = 0; cpu_kernels_level(level); level++) {
                const struct cpu_kernels *kernels = cpu_kernels_level(level);
                char *exponent = (char *)(uintptr_t)&powers[p].exponent;
                kernels->elementwise[CPU_ROW_pow_f32](
                    &(struct cpu_row){n, {(char *)out, (char *)x, exponent}, {1, 1, 0}});
                for (int64_t i = 0; i < n; i++) {
                    double units = distance(out[i], powl(x[i], powers[p].exponent), 0);
                    cr_assert(units <= (double)powers[p].ulps &&
                                  (out[i] != 0 || !signbit(out[i]) == !signbit(powf(x[i], powers[p].exponent))),
                              "%s, %a to the power %a: %a, %.2f units", kernels->level, (double)x[i],
                              (double)powers[p].exponent, (double)out[i], units);
                }
            }
        }
    }
}

/* Many dividends and one divisor, which may be a product with its inverse, if its bits are those of a division. */
Test(vector_math, quotients_by_one_divisor_are_those_of_a_division, .timeout = 120) {
    static float x[BLOCK], out[BLOCK];
    uint32_t seed = 1;
    for (int round = 0; round < 600; round++) {
        seed = seed * 1664525 + 1013904223;
        float divisor = round < SPECIALS ? specials[round] : float_of(seed);
        int64_t n = round % 3 ? BLOCK : BLOCK - 64 - round % 64;
        for (int64_t i = 0; i < n; i++) {
            seed = seed * 1664525 + 1013904223;
            uint32_t near = (seed & 0x83ffffff) + 0x3e000000; /* all fractions of numbers of about 1 */
            x[i] = round % 2 && i % 200 < 190 ? float_of(near) : i % 7 ? float_of(seed) : specials[seed % SPECIALS];
        }
        for (unsigned level = 0; cpu_kernels_level(level); level++) {
            const struct cpu_kernels *kernels = cpu_kernels_level(level);
            kernels->elementwise[CPU_ROW_divide_f32](
                &(struct cpu_row){n, {(char *)out, (char *)x, (char *)&divisor}, {1, 1, 0}});
            for (int64_t i = 0; i < n; i++) {
                float want = x[i] / divisor;
                cr_assert(isnan(want) ? isnan(out[i]) : memcmp(&out[i], &want, sizeof want) == 0,
                          "%s: %a / %a is %a, not %a", kernels->level, (double)x[i], (double)divisor, (double)out[i],
                          (double)want);
            }
        }
    }
}

/* Rows of all lengths, whose sums are exact. Behind each is a NaN, which is not part of it. */
Test(vector_math, sums_have_all_elements_and_no_others) {
    enum { MOST = 1100 };
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F64};
    static struct cpu_accumulators accumulators;
    static float numbers[MOST + 1];
    static double row[MOST + 1];
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            const struct cpu_reduction *sum = kernels->reductions[CPU_REDUCE_SUM][dtypes[d]];
            float want = 0;
            for (int64_t n = 1; n <= MOST; n++) {
                double result = 0, f64 = 0;
                float f32 = 0;
                want += numbers[n - 1] = (float)(1 + n % 3);
                numbers[n] = NAN;
                kernels->cast[DTYPE_F32][dtypes[d]](&(struct cpu_row){n + 1, {(char *)row, (char *)numbers}, {1, 1}});
                sum->start(1, &accumulators);
                sum->row(n, row, 1, 0, &accumulators);
                sum->finish(1, &accumulators, n, &result);
                kernels->cast[dtypes[d]][DTYPE_F64](&(struct cpu_row){1, {(char *)&f64, (char *)&result}, {1, 1}});
                kernels->cast[DTYPE_F32][dtypes[d]](&(struct cpu_row){1, {(char *)row, (char *)&want}, {1, 1}});
                kernels->cast[dtypes[d]][DTYPE_F32](&(struct cpu_row){1, {(char *)&f32, (char *)row}, {1, 1}});
                cr_assert_eq(f64, (double)f32, "%s, %s: %ld elements: %g, not %g", kernels->level,
                             dtype_name(dtypes[d]), (long)n, f64, (double)f32);
            }
        }
    }
}

/* Elements that a row computes once more, in another way: their arguments are still there, also if the output is the input. */
Test(vector_math, large_arguments_are_right_in_place_and_with_strides) {
    enum { N = 2500 };
    static const enum cpu_row_number rows[] = {CPU_ROW_sin_f32, CPU_ROW_cos_f32, CPU_ROW_tan_f32, CPU_ROW_fmod_f32};
    static float x[N], apart[2 * N], divisors[N], want[N], got[N];
    for (int i = 0; i < N; i++) {
        x[i] = apart[2 * i] = i % 300 == 7 ? 1e9f + (float)i * 64 : i % 300 == 8 ? 3e6f + (float)i : (float)i * 0.01f;
        divisors[i] = 0.7f;
    }
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            cpu_row_function *row = cpu_kernels_level(level)->elementwise[rows[r]];
            row(&(struct cpu_row){N, {(char *)want, (char *)x, (char *)divisors}, {1, 1, 1}});
            row(&(struct cpu_row){N, {(char *)got, (char *)apart, (char *)divisors}, {1, 2, 0}});
            cr_assert(memcmp(got, want, sizeof want) == 0, "%s, row %zu: strides", cpu_kernels_level(level)->level, r);
            memcpy(got, x, sizeof got);
            row(&(struct cpu_row){N, {(char *)got, (char *)got, (char *)divisors}, {1, 1, 1}});
            cr_assert(memcmp(got, want, sizeof want) == 0, "%s, row %zu: in place", cpu_kernels_level(level)->level, r);
        }
    }
}

/* The registers of MMX are those of x87: a compiler that uses them and does not give them back leaves long double without any. */
Test(vector_math, kernels_leave_the_registers_of_long_double_alone) {
    static struct cpu_accumulators accumulators;
    static const int64_t zeros[BLOCK];
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        for (int kind = 0; kind < CPU_REDUCE_COUNT; kind++) {
            for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
                const struct cpu_reduction *reduction = kernels->reductions[kind][dtype];
                int64_t out[2];
                if (!reduction)
                    continue;
                accumulators.parameter = 3;
                reduction->start(1, &accumulators);
                reduction->row(BLOCK / 2 - 1, zeros, 1, 0, &accumulators);
                reduction->columns(1, zeros, 1, 5, 1, BLOCK / 2 - 1, &accumulators);
                reduction->finish(1, &accumulators, BLOCK / 2 + 4, out);
                volatile long double one = 1;
                cr_assert(one + one == 2, "%s: reduction %d of dtype %d", kernels->level, kind, dtype);
            }
        }
    }
}
