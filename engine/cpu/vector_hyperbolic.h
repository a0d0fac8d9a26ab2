/* expm1, hyperbolic functions of f32 and their inverses, for vector_math.h, which includes this: they compute in f32, in loops that vectorise. Errors
 * are below 2 ulp; of atanh, without a fused multiply-add, 2.2. Polynomials
 * are fitted for the least greatest relative error of the function, which is said beside them. */
#pragma once

/* x = n · ln(2) + r, where r is beyond ln(2)/2 if n would be beyond `most`: returns r, and n + VECTOR_ROUND in *shifted. As integers, floats above 0
 * have the order that they have as floats. */
static inline float vector_exp_reduce(float x, float most, float *shifted) {
    *shifted = vector_lesser(CPU_FMA(x, 1.44269504f, VECTOR_ROUND), VECTOR_ROUND + most);
    float n = *shifted - VECTOR_ROUND;
    return CPU_FMA(n, -0.693359375f, x);
}

/* 2^n - 1 + 2^n · (e^r - 1), where e^r - 1 is in parts, so that only the sum is rounded near the result's size; 2^-27 for -0.35 <= r <= 0.72.
 * n is at most 127, since 2^128 is no number. */
static inline float vector_expm1(float x) {
    float shifted, first = vector_exp_reduce(x < -25.0f ? -25.0f : x, 127.0f, &shifted), n = shifted - VECTOR_ROUND;
    float r = CPU_FMA(n, 2.12194440e-4f, first), rest = CPU_FMA(n, 2.12194440e-4f, first - r);
    float p = 2.32261664e-4f, power = bits_float((float_bits(shifted) << 23) + 0x3f800000);
    p = CPU_FMA(p, r, 1.38408132e-3f);
    p = CPU_FMA(p, r, 8.32715537e-3f);
    p = CPU_FMA(p, r, 4.16678451e-2f);
    p = CPU_FMA(p, r, 1.66666955e-1f);
    p = CPU_FMA(p, r, 4.99999970e-1f);
    float tail = CPU_FMA(r * r, p, rest);
    float result = (power - 1.0f) + CPU_FMA(power, r, power * tail);
    result = x > 88.75f ? __builtin_inff() : result;
    return x == 0.0f ? x : result;
}

/* e^a = 2^n · e^r for a >= 0. With u = 2^(n - 1) + 2^(-n - 1) and d their difference, sinh(a) is u sinh(r) + d cosh(r), and cosh(a) is
 * u cosh(r) + d sinh(r): that takes neither a second function nor a quotient. n is at most 128, and 2^(-n - 1) 0 where it is not a
 * normal number. sinh(r) = r + r · *odd, 2^-29, and cosh(r) = 1 + *even, 2^-34, for |r| <= 0.72; a greater r makes their values infinite. */
static inline float vector_exp_both(float a, float *even, float *odd, float *upper, float *lower) {
    float shifted, first = vector_exp_reduce(a, 128.0f, &shifted);
    float r = CPU_FMA(shifted - VECTOR_ROUND, 2.12194440e-4f, first), z = r * r;
    float e = 2.51155852e-5f;
    e = CPU_FMA(e, z, 1.38877647e-3f);
    e = CPU_FMA(e, z, 4.16666791e-2f);
    e = CPU_FMA(e, z, 0.5f);
    float o = 2.01126604e-4f;
    o = CPU_FMA(o, z, 8.33253842e-3f);
    o = CPU_FMA(o, z, 1.66666731e-1f);
    *even = e * z;
    *odd = o * z;
    int32_t up = (int32_t)((float_bits(shifted) << 23) + 0x3f000000), down = 0x7e000000 - up;
    *upper = bits_float((uint32_t)up);
    *lower = bits_float((uint32_t)(down > 0 ? down : 0));
    return r;
}

static inline float vector_sinh(float x) {
    float even, odd, upper, lower, r = vector_exp_both(__builtin_fabsf(x), &even, &odd, &upper, &lower);
    float u = upper + lower, d = upper - lower;
    return __builtin_copysignf(d + CPU_FMA(u, r, CPU_FMA(d, even, u * (odd * r))), x);
}

static inline float vector_cosh(float x) {
    float even, odd, upper, lower, r = vector_exp_both(__builtin_fabsf(x), &even, &odd, &upper, &lower);
    float u = upper + lower, d = upper - lower;
    return upper + (lower + CPU_FMA(d, r, CPU_FMA(u, even, d * (odd * r))));
}

/* ln(2 (x + rest)) for normal x > 0 and a rest that is lost in it: that is multiplied by the estimate of 1/x which the bits of x give, or by 0
 * if 1/x is subnormal. ln(1 + f) = f - f²/2 + f³ · p(f) for 1 + f in [√(1/2), √2): 2^-27. Unlike vector_log_low() it has no quotient, since its
 * callers have a root, which takes as long and the same part of the processor. */
static inline float vector_log_twice(float x, float rest) {
    uint32_t offset = float_bits(x) - (0x3f3504f3 - 0x800000);
    float n = (float)((int32_t)offset >> 23), f = bits_float((offset & 0x7fffff) + 0x3f3504f3) - 1.0f, z = f * f;
    float p = -7.63818473e-2f;
    p = CPU_FMA(p, f, 1.27647623e-1f);
    p = CPU_FMA(p, f, -1.31601900e-1f);
    p = CPU_FMA(p, f, 1.42012730e-1f);
    p = CPU_FMA(p, f, -1.66233152e-1f);
    p = CPU_FMA(p, f, 2.00012505e-1f);
    p = CPU_FMA(p, f, -2.50008225e-1f);
    p = CPU_FMA(p, f, 3.33333313e-1f);
    float inverse = vector_greater(bits_float(0x7ef311c7 - float_bits(x)), 0.0f);
    float tail = CPU_FMA(p * z, f, CPU_FMA(z, -0.5f, CPU_FMA(n, -2.12194440e-4f, rest * inverse)));
    return CPU_FMA(n, 0.693359375f, f + tail);
}

/* asinh(a) for a >= 0, with z = a² and half the root of z + 1: a polynomial up to 0.53, 2^-28, else ln(a + √(a² + 1)), of whose argument half is
 * taken so that it does not overflow. half_root is the greater one of the two terms. */
static inline float vector_asinh_of(float a, float z, float half_root) {
    float p = -1.24820191e-2f;
    p = CPU_FMA(p, z, 2.77317483e-2f);
    p = CPU_FMA(p, z, -4.42983732e-2f);
    p = CPU_FMA(p, z, 7.49799535e-2f);
    p = CPU_FMA(p, z, -1.66666284e-1f);
    float near = CPU_FMA(p * z, a, a), u = CPU_FMA(a, 0.5f, half_root);
    float far = vector_log_twice(u, CPU_FMA(a, 0.5f, half_root - u));
    return a < 0.53f ? near : u < __builtin_inff() ? far : u;
}

/* Beyond 2^40 the root is a, whose square may overflow. */
static inline float vector_asinh(float x) {
    float a = __builtin_fabsf(x), half = 0.5f * a, root = __builtin_sqrtf(CPU_FMA(half, half, 0.25f));
    return __builtin_copysignf(vector_asinh_of(a, a * a, a > 0x1p40f ? half : root), x);
}

/* acosh(x) = asinh(√(x² - 1)), and the root that belongs to that is x. */
static inline float vector_acosh(float x) {
    float t = x - 1.0f, z = CPU_FMA(t, t, t + t), root = __builtin_sqrtf(z);
    float result = vector_asinh_of(x > 0x1p40f ? x : root, z, 0.5f * x);
    return x < 1.0f ? __builtin_nanf("") : result;
}

/* ln((1 + a) / (1 - a)) / 2 = n · ln(2)/2 + artanh(s), where 2^n is near the quotient: its logarithm is taken from the bits, within 0.09. s is the
 * quotient of (1 + a) ∓ 2^n (1 - a), which is a itself if n is 0; 2^-28 for -0.08 <= s <= 0.33. */
static inline float vector_atanh(float x) {
    float a = __builtin_fabsf(x), above = 1.0f + a, below = 1.0f - a;
    uint32_t ratio = float_bits(above) - float_bits(below) + 0x100000;
    float n = (float)((int32_t)ratio >> 23), power = bits_float((ratio & 0xff800000) + 0x3f800000);
    float difference = a < 0.5f ? CPU_FMA(a, 1.0f + power, 1.0f - power) : CPU_FMA(-power, below, above);
    float s = difference / CPU_FMA(power, below, above), z = s * s;
    float p = 1.39399558e-1f;
    p = CPU_FMA(p, z, 1.40130684e-1f);
    p = CPU_FMA(p, z, 2.00101018e-1f);
    p = CPU_FMA(p, z, 3.33332181e-1f);
    float result = CPU_FMA(n, 0.3466796875f, s + CPU_FMA(p * z, s, n * -1.06097220e-4f));
    float special = a == 1.0f ? __builtin_inff() : __builtin_nanf("");
    return __builtin_copysignf(a < 1.0f ? result : special, x);
}
