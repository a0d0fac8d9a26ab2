/* More functions of f32 that compute in f32, as those of vector_math.h, which includes this: silu, gelu, logarithms, logaddexp. They take a half to a
 * quarter of the time of the same in double; their errors are below 2.2 ulp, of silu, gelu and
 * logaddexp below 4. Where a factor of the result is tiny, such as e^-100, its power of two is multiplied last, so that a subnormal result is rounded
 * once. Polynomials are fitted for the least greatest relative error. */
#pragma once

/* x / (1 + e^-x) with e^-|x|, which cannot overflow: for x < 0 that is x e^-|x| / (1 + e^-|x|), and a part of the power of two comes last. */
static inline float vector_silu(float x) {
    float magnitude = vector_least(__builtin_fabsf(x), 110.0f), bounded = x < 0.0f ? -magnitude : x;
    int32_t n;
    float p = vector_exp_parts(-magnitude, &n);
    float first = p * bits_float((uint32_t)((n >> 1) + 127) << 23);
    float last = bits_float((uint32_t)(n - (n >> 1) + 127) << 23);
    float quotient = bounded * (x >= 0.0f ? 1.0f : first) / CPU_FMA(first, last, 1.0f);
    float result = quotient * (x >= 0.0f ? 1.0f : last);
    return vector_unless(!(x > -__builtin_inff()), result);
}

/* a · a / 2 = s + rest, exactly but for what is below f32's range. */
static inline float vector_half_square(float a, float *rest) {
    float s = 0.5f * a * a;
#if defined(__FMA__) || defined(__aarch64__)
    *rest = __builtin_fmaf(0.5f * a, a, -s);
#else
    float high = bits_float(float_bits(a) & 0xfffff000), low = a - high;
    *rest = (0.5f * high * high - s) + high * low + 0.5f * low * low;
#endif
    return s;
}

/* Up to 1, x · (1/2 + x · q(x²)). Beyond, x - t(x) for x > 0 and else -t(|x|), with t(a) = e^(-a²/2) · g((a - 3) / (a + 3)): g is
 * a/2 · erfcx(a/√2), which goes from 0.26 to 0.4. */
static inline float vector_gelu(float x) {
    float magnitude = __builtin_fabsf(x), a = vector_least(magnitude, 15.0f), rest, z = x * x;
    float q = -7.65419725e-6f;
    q = CPU_FMA(q, z, 1.13486344e-4f);
    q = CPU_FMA(q, z, -1.18632992e-3f);
    q = CPU_FMA(q, z, 9.9733234e-3f);
    q = CPU_FMA(q, z, -6.64903599e-2f);
    q = CPU_FMA(q, z, 3.9894228e-1f);
    float near = x * CPU_FMA(x, q, 0.5f);
    float square = vector_half_square(a, &rest), t = (a - 3.0f) / (a + 3.0f);
    float twice = t * t, g = CPU_FMA(-5.437403e-4f, twice, CPU_FMA(-3.93975866e-5f, t, 3.96370413e-3f));
    g = CPU_FMA(g, twice, CPU_FMA(-1.73800388e-3f, t, -2.88578285e-2f));
    g = CPU_FMA(g, twice, CPU_FMA(9.13767174e-2f, t, -1.39657387e-1f));
    g = CPU_FMA(g, twice, CPU_FMA(1.09875869e-1f, t, 3.64541847e-1f));
    int32_t n;
    float e = vector_exp_parts(-square, &n), tail = vector_scale(g * (e - e * rest), n);
    float far = (x > 0.0f ? x : -0.0f) - tail;
    float result = magnitude < 1.0f ? near : far;
    return vector_unless(!(x > -__builtin_inff()), result);
}

static inline float vector_log2(float x) {
    float n, f = vector_log_reduce(x, &n), low = vector_log_low(f);
    return vector_log_ends(x, n + CPU_FMA(f, 1.44269504f, low * -1.44269504f));
}

/* log10(2) in two parts, the first with trailing zeros so that n times it is exact. */
static inline float vector_log10(float x) {
    float n, f = vector_log_reduce(x, &n), low = vector_log_low(f);
    float rest = CPU_FMA(n, 4.6050390e-6f, low * -0.434294482f);
    return vector_log_ends(x, CPU_FMA(n, 0.301025391f, CPU_FMA(f, 0.434294482f, rest)));
}

/* The greater operand and ln(1 + e^-d), whose argument is above √2 or not: then half of it is near 1. What the distance d was rounded by
 * counts, since e^-d may be the greater term. An equal pair comes by itself, since ∞ - ∞ is NaN. */
static inline float vector_logaddexp(float a, float b) {
    float most = a > b ? a : b, least = a > b ? b : a, d = most - least, back = most - d;
    float lost = (most - (d + back)) + (back - least);
    float e = vector_exp(-d);
    e = CPU_FMA(-e, d < 110.0f ? lost : 0.0f, e);
    bool near = e < 0.414213562f;
    float rest = vector_log_sum(near ? e : 0.5f * (e - 1.0f), near ? 0.0f : 1.0f, 0.0f);
    return a == b ? a + 0.693147181f : most + rest;
}

/* ln(1 + x): u = 1 + x, and what u was rounded by is added to f at last. */
static inline float vector_log1p(float x) {
    float u = 1.0f + x, n, f = vector_log_reduce(u, &n);
    float lost = u < 2.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    bool near = n == 0.0f;
    float result = vector_log_sum(near ? x : f, n, near ? 0.0f : lost / u);
    return x == 0.0f || x == __builtin_inff() ? x : vector_log_special(u, result);
}
