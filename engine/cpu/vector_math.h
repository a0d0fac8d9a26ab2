/* exp, exp2, log, tanh, erf, sine and cosine for f32, written so that loops over them vectorise: no branches, no calls, no
 * tables. Errors are below 3 ulp; NaN, infinities, zeros and subnormal numbers come out as libm has
 * them. The polynomials are the Chebyshev or Taylor expansions of their intervals. */
#pragma once

#include "engine/cpu/half.h"

#define VECTOR_ROUND 12582912.0f /* 1.5 · 2^23: adding it rounds to an integer, kept in the low bits */

/* 2^n · x for -252 <= n <= 254, in two steps so that neither factor overflows nor vanishes. */
static inline float vector_scale(float x, int32_t n) {
    int32_t biased = n + 2 * 127, half = biased >> 1;
    return x * bits_float((uint32_t)half << 23) * bits_float((uint32_t)(biased - half) << 23);
}

/* x between low < 0 and high > 0, by integer instructions of one step: bits of positive numbers are in the order of the numbers, and those of
 * negative ones in the other. Compilers make many comparisons of two that follow one another. NaN becomes one of the two. */
static inline float vector_clamp(float x, float low, float high) {
    int32_t bits = (int32_t)float_bits(x), most = (int32_t)float_bits(high);
    uint32_t below = (uint32_t)(bits < most ? bits : most), least = float_bits(low);
    return bits_float(below < least ? below : least);
}

/* The lesser of two numbers that are not negative; NaN counts as more than others. */
static inline float vector_least(float x, float y) {
    int32_t a = (int32_t)float_bits(x), b = (int32_t)float_bits(y);
    return bits_float((uint32_t)(a < b ? a : b));
}

/* NaN where `invalid`, else the result: a mask that is or-ed costs less than a choice. */
static inline float vector_unless(bool invalid, float result) {
    return bits_float(float_bits(result) | (invalid ? UINT32_MAX : 0));
}

/* e^x = 2^n · p, p = e^r with |r| <= ln(2)/2, for -125 <= x <= 89: returns p. ln(2) is in two parts, the first with trailing zeros so that n times it is
 * exact. */
static inline float vector_exp_parts(float x, int32_t *n) {
    float shifted = CPU_FMA(x, 1.44269504f, VECTOR_ROUND), whole = shifted - VECTOR_ROUND;
    float r = CPU_FMA(whole, -0.693359375f, x);
    r = CPU_FMA(whole, 2.12194440e-4f, r);
    float square = r * r, p = CPU_FMA(0.00138201099f, square, CPU_FMA(0.00836868491f, r, 0.0416682735f));
    p = CPU_FMA(p, square, CPU_FMA(0.166665211f, r, 0.49999994f));
    *n = (int32_t)(float_bits(shifted) - float_bits(VECTOR_ROUND));
    return CPU_FMA(p, square, r) + 1.0f;
}

static inline float vector_exp(float x) {
    int32_t n;
    float p = vector_exp_parts(vector_clamp(x, -104.0f, 89.0f), &n);
    return vector_unless(x != x, vector_scale(p, n));
}

/* 2^x = 2^n · 2^r with |r| <= 1/2, which is exact. */
static inline float vector_exp2(float x) {
    float clamped = vector_clamp(x, -152.0f, 129.0f), shifted = clamped + VECTOR_ROUND,
          r = clamped - (shifted - VECTOR_ROUND);
    float square = r * r, p = CPU_FMA(0.000153264627f, r, 0.00133908063f);
    p = CPU_FMA(p, square, CPU_FMA(0.00961850584f, r, 0.0555035993f));
    p = CPU_FMA(p, r, 0.240226477f);
    p = CPU_FMA(p, r, 0.693147182f);
    p = CPU_FMA(p, r, 1.0f);
    return vector_unless(x != x, vector_scale(p, (int32_t)(float_bits(shifted) - float_bits(VECTOR_ROUND))));
}

/* What ln(1 + f) is less than f, for 1 + f in [sqrt(1/2), sqrt(2)): with s = f / (2 + f) it is 2 artanh(s) = 2s + 2s³/3 + …, and 2s + s · p =
 * f - (f²/2 - s · (f²/2 + p)), where f is exact and the rest a small correction. */
static inline float vector_log_low(float f) {
    float s = f / (2.0f + f), z = s * s, h = 0.5f * f * f;
    float p = 0.233310313f;
    p = CPU_FMA(p, z, 0.285507957f);
    p = CPU_FMA(p, z, 0.400001221f);
    p = CPU_FMA(p, z, 0.666666666f) * z;
    return CPU_FMA(-s, h + p, h);
}

/* x = 2^n · (1 + f) with 1 + f as above, for x > 0: returns f. A subnormal x is multiplied by 2^24; its mask is made of x's bits, since
 * compilers would make two computations of a comparison. */
static inline float vector_log_reduce(float x, float *n) {
    int32_t subnormal = (int32_t)(float_bits(x) - 0x800000) >> 31;
    float scale = bits_float(0x3f800000 + (uint32_t)(subnormal & 24 << 23));
    uint32_t offset = float_bits(x * scale) - 0x3f3504f3;
    *n = (float)(((int32_t)offset >> 23) - (subnormal & 24));
    return bits_float((offset & 0x7fffff) + 0x3f3504f3) - 1.0f;
}

/* The logarithm's values where there is no reduction: for 0, infinity, and below 0. */
static inline float vector_log_special(float x, float result) {
    float infinity = __builtin_inff();
    result = x == infinity ? infinity : result;
    result = x == 0.0f ? -infinity : result;
    return x < 0.0f || x != x ? __builtin_nanf("") : result;
}

/* The same, of a result that is finite: an infinite number is added to it. */
static inline float vector_log_ends(float x, float result) {
    float infinity = __builtin_inff();
    uint32_t above = x == infinity ? float_bits(infinity) : 0,
             below = float_bits(x) << 1 == 0 ? float_bits(-infinity) : 0;
    return vector_unless(!(x >= 0.0f), result + bits_float(above | below));
}

/* n · ln(2) in two parts, the first with trailing zeros so that n times it is exact; `rest` is added to the second one. */
static inline float vector_log_sum(float f, float n, float rest) {
    return CPU_FMA(n, 0.693359375f, f - (vector_log_low(f) - CPU_FMA(n, -2.12194440e-4f, rest)));
}

static inline float vector_log(float x) {
    float n, f = vector_log_reduce(x, &n);
    return vector_log_ends(x, vector_log_sum(f, n, 0.0f));
}

/* x + x³·p(x²) near zero, where the other form cancels; else 1 - 2/(e^2|x| + 1). */
static inline float vector_tanh(float x) {
    float magnitude = __builtin_fabsf(x), z = x * x;
    float p = -5.70498872745e-3f;
    p = CPU_FMA(p, z, 2.06390887954e-2f);
    p = CPU_FMA(p, z, -5.37397155531e-2f);
    p = CPU_FMA(p, z, 1.33314422036e-1f);
    p = CPU_FMA(p, z, -3.33332819422e-1f);
    float small = CPU_FMA(p * z, x, x);
    int32_t n; /* from 0 to 29 */
    float power = vector_exp_parts(2.0f * vector_least(magnitude, 10.0f), &n);
    float large = 1.0f - 2.0f / CPU_FMA(power, bits_float((uint32_t)(n + 127) << 23), 1.0f);
    return vector_unless(x != x, __builtin_copysignf(magnitude < 0.625f ? small : large, x));
}

/* x + x·p(x²) near zero; else 1 - erfc|x| = 1 - e^q(|x|), as q = ln(erfc) is smooth: Abramowitz and Stegun 7.1.5 and 7.1.2. p and q
 * are fitted for the least greatest error in erf. */
static inline float vector_erf(float x) {
    float magnitude = __builtin_fabsf(x), z = x * x;
    float p = -6.34292128e-4f;
    p = CPU_FMA(p, z, 5.05562273e-3f);
    p = CPU_FMA(p, z, -2.68051042e-2f);
    p = CPU_FMA(p, z, 1.12827756e-1f);
    p = CPU_FMA(p, z, -3.76125764e-1f);
    p = CPU_FMA(p, z, 1.28379161e-1f);
    float small = CPU_FMA(p, x, x);
    float t = vector_least(magnitude, 4.0f);
    float square = t * t, q = CPU_FMA(2.04330645e-4f, square, CPU_FMA(-3.12404231e-3f, t, 2.25427825e-2f));
    q = CPU_FMA(q, square, CPU_FMA(-1.04573139e-1f, t, -6.36467506e-1f));
    q = CPU_FMA(q, square, CPU_FMA(-1.12809012f, t, -9.78267911e-5f));
    int32_t n; /* from -26 to 0, so that 2^n is a number */
    float e = vector_exp_parts(q, &n), large = 1.0f - e * bits_float((uint32_t)(n + 127) << 23);
    return vector_unless(x != x, __builtin_copysignf(magnitude < 0.84375f ? small : large, x));
}

/* Cosine and sine of 2πu for u in [0, 1]: u = q/4 + t with |t| <= 1/8, then polynomials of 2πt and the quadrant q. */
static inline void vector_cosine_sine(float u, float *cosine, float *sine) {
    float shifted = CPU_FMA(u, 4.0f, VECTOR_ROUND), q = shifted - VECTOR_ROUND;
    uint32_t quadrant = float_bits(shifted);
    float x = CPU_FMA(q, -0.25f, u) * 6.28318531f, z = x * x;
    float s = 2.75573192e-6f;
    s = CPU_FMA(s, z, -1.98412698e-4f);
    s = CPU_FMA(s, z, 8.33333333e-3f);
    s = CPU_FMA(s, z, -1.66666667e-1f);
    s = CPU_FMA(s * z, x, x);
    float c = 2.48015873e-5f;
    c = CPU_FMA(c, z, -1.38888889e-3f);
    c = CPU_FMA(c, z, 4.16666667e-2f);
    c = CPU_FMA(c, z, -0.5f);
    c = CPU_FMA(c, z, 1.0f);
    float first = quadrant & 1 ? s : c, second = quadrant & 1 ? c : s;
    *cosine = bits_float(float_bits(first) ^ ((quadrant + 1) & 2) << 30);
    *sine = bits_float(float_bits(second) ^ (quadrant & 2) << 30);
}

#include "engine/cpu/vector_more.h"

/* ---- functions of f32 that compute in double ----
 *
 * Double has bits enough that sums, quotients and reductions of the argument need no second part, so that each function is one short
 * polynomial whose error, 2^-30 of the result or less, hardly adds to that of the last rounding. Arguments are values of f32, or
 * made of a few of them. Loops over them vectorise: integers are 64 bits wide, as doubles are, and no instruction is
 * needed that only AVX-512 has for them. NaN, infinities, zeros and subnormal results come out as libm has them. */

#if defined(__FMA__) || defined(__aarch64__)
#define WIDE_FMA(a, b, c) __builtin_fma(a, b, c)
#else
#define WIDE_FMA(a, b, c) ((a) * (b) + (c))
#endif
#define WIDE_ROUND 6755399441055744.0 /* 1.5 · 2^52: adding it rounds to an integer, kept in the low bits */

/* 2^n for the n that is in the low bits of `shifted`, -1022 <= n <= 1023. */
static inline double wide_power(double shifted) {
    return bits_double((double_bits(shifted) + 1023) << 52);
}

/* e^r - 1 for |r| <= ln(2)/2. */
static inline double wide_expm1_near(double r) {
    double p = 0.0001989198131397769;
    p = WIDE_FMA(p, r, 0.0013934541928270264);
    p = WIDE_FMA(p, r, 0.0083333100242252919);
    p = WIDE_FMA(p, r, 0.041666456809677878);
    p = WIDE_FMA(p, r, 0.16666666682534356);
    p = WIDE_FMA(p, r, 0.50000000142862233);
    return WIDE_FMA(p * r, r, r);
}

/* x = n · ln(2) + r: returns r, and n in the low bits of *shifted. e^±700 is beyond f32's range by far, and squares of it are in double's. */
static inline double wide_exp_reduce(double x, double *shifted) {
    double clamped = x < -700 ? -700 : x > 700 ? 700 : x;
    *shifted = WIDE_FMA(clamped, 1.4426950408889634, WIDE_ROUND);
    double n = *shifted - WIDE_ROUND;
    return WIDE_FMA(n, -1.9082149292705877e-10, WIDE_FMA(n, -6.93147180369123816490e-01, clamped));
}

static inline double wide_exp(double x) {
    double shifted, r = wide_exp_reduce(x, &shifted), power = wide_power(shifted);
    double result = WIDE_FMA(power, wide_expm1_near(r), power);
    return x != x ? x : x < -700 ? 0 : result;
}

static inline double wide_exp2(double x) {
    double clamped = x < -1000 ? -1000 : x > 1000 ? 1000 : x;
    double shifted = clamped + WIDE_ROUND, power = wide_power(shifted);
    double r = (clamped - (shifted - WIDE_ROUND)) * 0.69314718055994531;
    double result = WIDE_FMA(power, wide_expm1_near(r), power);
    return x != x ? x : result;
}

/* ln(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)): 2 artanh(s) with s = f / (2 + f). */
static inline double wide_log_near(double f) {
    double s = f / (2 + f), z = s * s;
    double p = 0.096826392108786116;
    p = WIDE_FMA(p, z, 0.11095632799585983);
    p = WIDE_FMA(p, z, 0.14285878334073157);
    p = WIDE_FMA(p, z, 0.19999999393441642);
    p = WIDE_FMA(p, z, 0.33333333333691384);
    return WIDE_FMA(p * z, 2 * s, 2 * s);
}

/* x = 2^n · (1 + f) with 1 + f as above, for normal x > 0; returns f. */
static inline double wide_log_reduce(double x, double *n) {
    const uint64_t root = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000;
    uint64_t offset = double_bits(x) - root + one;
    *n = bits_double(offset >> 52 | 0x4330000000000000) - (4503599627370496.0 + 1023);
    return bits_double((offset & 0xfffffffffffff) + root) - 1;
}

/* The logarithm's values where there is no reduction: for 0, infinity, and below 0. */
static inline double wide_log_special(double x, double result) {
    double infinity = __builtin_inf();
    double special = x == 0 ? -infinity : x == infinity ? infinity : __builtin_nan("");
    return x > 0 && x < infinity ? result : special;
}

static inline double wide_log2(double x) {
    double n, f = wide_log_reduce(x, &n);
    return wide_log_special(x, WIDE_FMA(wide_log_near(f), 1.4426950408889634, n));
}

/* Where 1 + x is in the middle range x itself is f, so that nothing is lost. */
static inline double wide_log1p(double x) {
    double n, f = wide_log_reduce(1 + x, &n);
    double result = WIDE_FMA(n, 0.69314718055994531, wide_log_near(n == 0 ? x : f));
    return x == 0 ? x : wide_log_special(1 + x, result);
}

/* sign(x) · |x|^y = 2^(y · log2|x|), with C's special cases. */
static inline double wide_pow(double x, double y) {
    double magnitude = __builtin_fabs(x), log = wide_log2(magnitude);
    double exponent = y * log;
    double result = wide_exp2(magnitude == 1 ? 0 : exponent);
    bool whole = __builtin_rint(y) == y, odd = whole && __builtin_rint(y * 0.5) != y * 0.5;
    result = odd ? __builtin_copysign(result, x) : result;
    result = x < 0 && !whole && magnitude < __builtin_inf() ? __builtin_nan("") : result;
    result = x != x || y != y ? x + y : result;
    return y == 0 || x == 1 ? 1 : result;
}

/* erfc(x) · e^(x²) · (1 + 2x) is smooth, also in (x - 3) / (x + 3), in which it is a polynomial up to 10.1. Beyond 10.1 erfc is 0 in f32,
 * and beyond 11 a product of it with its argument. */
static inline double wide_erfc(double x) {
    double a = __builtin_fabs(x), clamped = a > 11 ? 11 : a;
    double u = (clamped - 3) / (clamped + 3);
    double p = 3.457203022732106e-05;
    p = WIDE_FMA(p, u, 0.00013072565195228656);
    p = WIDE_FMA(p, u, -0.0001243088338505175);
    p = WIDE_FMA(p, u, -0.00079211683993969889);
    p = WIDE_FMA(p, u, 0.0018919070060616789);
    p = WIDE_FMA(p, u, 0.0025337312511889234);
    p = WIDE_FMA(p, u, -0.023770358394307637);
    p = WIDE_FMA(p, u, 0.068307416101561463);
    p = WIDE_FMA(p, u, -0.11927373679128898);
    p = WIDE_FMA(p, u, 0.12964519357444015);
    p = WIDE_FMA(p, u, -0.047562290221121351);
    p = WIDE_FMA(p, u, -0.13562110670220087);
    p = WIDE_FMA(p, u, 1.2530080582390988);
    double result = p * wide_exp(-clamped * clamped) / (1 + 2 * clamped);
    result = a > 11 ? 0 : result;
    return x < 0 ? 2 - result : result;
}

static inline double wide_hypot(double a, double b) {
    double infinity = __builtin_inf(), result = __builtin_sqrt(a * a + b * b);
    return __builtin_fabs(a) == infinity || __builtin_fabs(b) == infinity ? infinity : result;
}

/* What is left of a; exact while |a / b| < WIDE_QUOTIENT, for the product is. Callers compute greater quotients in another way. */
#define WIDE_QUOTIENT 0x1p29f
static inline double wide_fmod(double a, double b) {
    double rest = a - __builtin_trunc(a / b) * b;
    rest = __builtin_fabs(b) == __builtin_inf() && a - a == 0 ? a : rest;
    return rest == 0 ? __builtin_copysign(rest, a) : rest;
}

/* The lesser of two numbers that are not below 0, and the greater one; a NaN is greater than numbers. As integers, since compilers make one
 * instruction of that. */
static inline float vector_lesser(float a, float b) {
    int32_t i = (int32_t)float_bits(a), k = (int32_t)float_bits(b);
    return bits_float((uint32_t)(i < k ? i : k));
}
static inline float vector_greater(float a, float b) {
    int32_t i = (int32_t)float_bits(a), k = (int32_t)float_bits(b);
    return bits_float((uint32_t)(i > k ? i : k));
}

#include "engine/cpu/vector_circular.h"

#include "engine/cpu/vector_hyperbolic.h"

static inline float vector_pow(float x, float y) {
    return (float)wide_pow((double)x, (double)y);
}

#include "engine/cpu/vector_double.h"
