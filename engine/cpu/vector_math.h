/* exp, log, tanh, erf, sine and cosine for f32, written so that loops over them vectorise: no branches, no calls, no
 * tables. Errors are below 3 ulp; NaN, infinities, zeros and subnormal numbers come out as libm has
 * them. The polynomials are the Chebyshev or Taylor expansions of their intervals. */
#pragma once

#include "engine/cpu/half.h"

#define VECTOR_ROUND 12582912.0f /* 1.5 · 2^23: adding it rounds to an integer, kept in the low bits */

/* 2^n · x for -252 <= n <= 254, in two steps so that neither factor overflows nor vanishes. */
static inline float vector_scale(float x, int32_t n) {
    int32_t half = n >> 1;
    return x * bits_float((uint32_t)(half + 127) << 23) * bits_float((uint32_t)(n - half + 127) << 23);
}

/* e^x = 2^n · e^r with |r| <= ln(2)/2; ln(2) in two parts, the first with trailing zeros so that n times it is exact. */
static inline float vector_exp(float x) {
    float clamped = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
    float shifted = CPU_FMA(clamped, 1.44269504f, VECTOR_ROUND), n = shifted - VECTOR_ROUND;
    float r = CPU_FMA(n, -0.693359375f, clamped);
    r = CPU_FMA(n, 2.12194440e-4f, r);
    float p = 1.98412698e-4f;
    p = CPU_FMA(p, r, 1.38888889e-3f);
    p = CPU_FMA(p, r, 8.33333333e-3f);
    p = CPU_FMA(p, r, 4.16666667e-2f);
    p = CPU_FMA(p, r, 1.66666667e-1f);
    p = CPU_FMA(p, r, 0.5f);
    p = CPU_FMA(p * r, r, r) + 1.0f;
    float result = vector_scale(p, (int32_t)(float_bits(shifted) - float_bits(VECTOR_ROUND)));
    return x != x ? x : result;
}

/* ln(x) = n · ln(2) + ln(m) with m in [sqrt(1/2), sqrt(2)), and ln(m) = 2 artanh(s) = 2s + 2s³/3 + …, s = (m-1)/(m+1). */
static inline float vector_log(float x) {
    float scaled = x < 0x1p-126f ? x * 0x1p24f : x;
    uint32_t offset = float_bits(scaled) - 0x3f3504f3;
    float n = (float)((int32_t)offset >> 23) - (x < 0x1p-126f ? 24.0f : 0.0f);
    float f = bits_float((offset & 0x7fffff) + 0x3f3504f3) - 1.0f;
    float s = f / (2.0f + f), z = s * s;
    float p = 0.1538461538f;
    p = CPU_FMA(p, z, 0.1818181818f);
    p = CPU_FMA(p, z, 0.2222222222f);
    p = CPU_FMA(p, z, 0.2857142857f);
    p = CPU_FMA(p, z, 0.4f);
    p = CPU_FMA(p, z, 0.6666666667f) * z;
    /* 2s + s·p = f - (f²/2 - s·(f²/2 + p)): f is exact, the rest a small correction. */
    float h = 0.5f * f * f;
    float tail = CPU_FMA(s, h + p, n * -2.12194440e-4f);
    float result = CPU_FMA(n, 0.693359375f, f - (h - tail));
    float infinity = __builtin_inff();
    result = x == infinity ? infinity : result;
    result = x == 0.0f ? -infinity : result;
    return x < 0.0f || x != x ? __builtin_nanf("") : result;
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
    float large = 1.0f - 2.0f / (vector_exp(2.0f * magnitude) + 1.0f);
    return __builtin_copysignf(magnitude < 0.625f ? small : large, x);
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
    float t = magnitude > 4.0f ? 4.0f : magnitude;
    float q = 2.04330645e-4f;
    q = CPU_FMA(q, t, -3.12404231e-3f);
    q = CPU_FMA(q, t, 2.25427825e-2f);
    q = CPU_FMA(q, t, -1.04573139e-1f);
    q = CPU_FMA(q, t, -6.36467506e-1f);
    q = CPU_FMA(q, t, -1.12809012f);
    q = CPU_FMA(q, t, -9.78267911e-5f);
    float large = 1.0f - vector_exp(q);
    return __builtin_copysignf(magnitude < 0.84375f ? small : large, x);
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
