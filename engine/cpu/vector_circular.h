/* Circular functions of f32 and their inverses, for vector_math.h, which includes this: they compute in f32, in loops that vectorise. Errors
 * are below 1 ulp of sine and cosine, 2.2 of the tangent, 1.4 of the inverse functions of one number, and 1.9 of atan2. Polynomials are fitted
 * for the least greatest relative error of the function, which is said beside them. */
#pragma once

/* Circular functions in double, for arguments of VECTOR_TURNS and more: sin(r) and cos(r) for |r| <= π/4. */
static inline double wide_sin_near(double r) {
    double z = r * r;
    double p = 2.7246868722877944e-06;
    p = WIDE_FMA(p, z, -0.00019840063040804117);
    p = WIDE_FMA(p, z, 0.0083333318306294292);
    p = WIDE_FMA(p, z, -0.16666666663741367);
    return WIDE_FMA(p * z, r, r);
}
static inline double wide_cos_near(double r) {
    double z = r * r;
    double p = -2.7298407652795173e-07;
    p = WIDE_FMA(p, z, 2.4800580601354642e-05);
    p = WIDE_FMA(p, z, -0.0013888887635227975);
    p = WIDE_FMA(p, z, 0.04166666666422613);
    return WIDE_FMA(p * z, z, WIDE_FMA(z, -0.5, 1.0));
}

/* x = q · π/2 + r, and q in the low bits of *shifted. π/2 is in three parts, of which the first two have 27 bits: q times each of them is
 * exact while |x| < WIDE_TURNS. Callers compute greater arguments in another way. */
#define WIDE_TURNS 1e8f
static inline double wide_turn(double x, double *shifted) {
    *shifted = WIDE_FMA(x, 0.63661977236758134, WIDE_ROUND);
    double q = *shifted - WIDE_ROUND;
    return WIDE_FMA(q, -5.7211887261098318e-18,
                    WIDE_FMA(q, -9.9209357395935172e-10, WIDE_FMA(q, -1.570796325802803, x)));
}

static inline float wide_sin(float x) {
    double shifted, r = wide_turn((double)x, &shifted);
    uint64_t q = double_bits(shifted);
    double result = q & 1 ? wide_cos_near(r) : wide_sin_near(r);
    return x == 0.0f ? x : (float)bits_double(double_bits(result) ^ (q & 2) << 62);
}

static inline float wide_cos(float x) {
    double shifted, r = wide_turn((double)x, &shifted);
    uint64_t q = double_bits(shifted);
    double result = q & 1 ? wide_sin_near(r) : wide_cos_near(r);
    return (float)bits_double(double_bits(result) ^ ((q + 1) & 2) << 62);
}

static inline float wide_tan(float x) {
    double shifted, r = wide_turn((double)x, &shifted), s = wide_sin_near(r), c = wide_cos_near(r);
    uint64_t q = double_bits(shifted);
    double result = (q & 1 ? -c : s) / (q & 1 ? s : c);
    return x == 0.0f ? x : (float)result;
}

/* x = q · π/2 + r + *rest with |r| <= 1.05 · π/4, and q in the low bits of *quadrant. π/2 is in three parts of 24 bits. What the first product
 * leaves is exact, since it is a multiple of the part's last bit that is below 2. Callers compute |x| >= VECTOR_TURNS in another way, where
 * the error of 2/π would make r greater. Without a fused multiply-add parts would have to be short and many: double takes their place. */
#if defined(__FMA__) || defined(__aarch64__)
#define VECTOR_TURNS 0x1p20f
static inline float vector_turn(float x, uint32_t *quadrant, float *rest) {
    float shifted = CPU_FMA(x, 0.636619747f, VECTOR_ROUND), q = shifted - VECTOR_ROUND;
    float first = CPU_FMA(q, -1.57079637f, x), r = first + q * 4.37113883e-8f;
    *rest = CPU_FMA(q, 1.71512451e-15f, CPU_FMA(q, 4.37113883e-8f, first - r));
    *quadrant = float_bits(shifted);
    return r;
}

/* sin(r + rest), 2^-27, and cos(r + rest), 2^-32; what 1 - r²/2 is rounded by is added, too. */
static inline float vector_sin_near(float r, float rest) {
    float z = r * r, p = -1.94830398e-4f;
    p = CPU_FMA(p, z, 8.33191909e-3f);
    p = CPU_FMA(p, z, -1.66666508e-1f);
    return r + CPU_FMA(p * z, r, rest);
}
static inline float vector_cos_near(float r, float rest) {
    float z = r * r, p = 2.43936502e-5f;
    p = CPU_FMA(p, z, -1.38869591e-3f);
    p = CPU_FMA(p, z, 4.16666381e-2f);
    float most = CPU_FMA(z, -0.5f, 1.0f), lost = CPU_FMA(z, -0.5f, 1.0f - most);
    return most + CPU_FMA(p * z, z, CPU_FMA(-r, rest, lost));
}

static inline float vector_sin(float x) {
    uint32_t q;
    float rest, r = vector_turn(x, &q, &rest), sine = vector_sin_near(r, rest), cosine = vector_cos_near(r, rest);
    float result = bits_float(float_bits(q & 1 ? cosine : sine) ^ (q & 2) << 30);
    return x == 0.0f ? x : result;
}

static inline float vector_cos(float x) {
    uint32_t q;
    float rest, r = vector_turn(x, &q, &rest), sine = vector_sin_near(r, rest), cosine = vector_cos_near(r, rest);
    return bits_float(float_bits(q & 1 ? sine : cosine) ^ ((q + 1) & 2) << 30);
}

/* tan(r), 2^-28; or -1/tan(r) if q is odd. */
static inline float vector_tan(float x) {
    uint32_t q;
    float rest, r = vector_turn(x, &q, &rest), z = r * r, p = 4.97169513e-3f;
    p = CPU_FMA(p, z, -1.14550791e-3f);
    p = CPU_FMA(p, z, 1.18314968e-2f);
    p = CPU_FMA(p, z, 2.08902005e-2f);
    p = CPU_FMA(p, z, 5.41372262e-2f);
    p = CPU_FMA(p, z, 1.33319706e-1f);
    p = CPU_FMA(p, z, 3.33333701e-1f);
    float tangent = r + CPU_FMA(p * z, r, CPU_FMA(z, rest, rest));
    float result = (q & 1 ? -1.0f : tangent) / (q & 1 ? tangent : 1.0f);
    return x == 0.0f ? x : result;
}
#else
#define VECTOR_TURNS WIDE_TURNS
static inline float vector_sin(float x) {
    return wide_sin(x);
}
static inline float vector_cos(float x) {
    return wide_cos(x);
}
static inline float vector_tan(float x) {
    return wide_tan(x);
}
#endif

/* What arctan(q) is more than q, by q, for 0 <= q <= 1: 2^-28. */
static inline float vector_atan_more(float q) {
    float z = q * q, p = -1.78283197e-3f;
    p = CPU_FMA(p, z, 1.08687095e-2f);
    p = CPU_FMA(p, z, -3.10970023e-2f);
    p = CPU_FMA(p, z, 5.78813925e-2f);
    p = CPU_FMA(p, z, -8.39930624e-2f);
    p = CPU_FMA(p, z, 1.09508805e-1f);
    p = CPU_FMA(p, z, -1.42640159e-1f);
    p = CPU_FMA(p, z, 1.99985296e-1f);
    p = CPU_FMA(p, z, -3.33332986e-1f);
    return p * z;
}

/* The quotient of the lesser magnitude by the greater one is at most 1. Its angle is counted up from 0 or π/2, or down from π/2 or
 * π: `down` is the sign bit or 0. */
static inline float vector_angle(float quotient, uint32_t down, float from) {
    float q = bits_float(float_bits(quotient) ^ down);
    return from + (q + CPU_FMA(vector_atan_more(quotient), q, from * -2.78275394e-8f));
}

static inline float vector_atan(float x) {
    float a = __builtin_fabsf(x), quotient = vector_lesser(a, 1.0f) / vector_greater(a, 1.0f);
    bool steep = a > 1.0f;
    return __builtin_copysignf(vector_angle(quotient, steep ? 0x80000000 : 0, steep ? 1.57079637f : 0.0f), x);
}

/* The two quotients that are NaN: 0/0 is to be 0, and ∞/∞ is to be 1. */
static inline float vector_atan2(float y, float x) {
    float a = __builtin_fabsf(y), b = __builtin_fabsf(x), less = vector_lesser(a, b);
    float quotient = less / vector_greater(vector_greater(a, b), 0x1p-149f);
    quotient = less == __builtin_inff() ? 1.0f : quotient;
    bool steep = a > b;
    uint32_t sign = float_bits(x) & 0x80000000;
    float flat = bits_float((uint32_t)((int32_t)float_bits(x) >> 31) & float_bits(3.14159274f));
    float angle = vector_angle(quotient, steep ? sign ^ 0x80000000 : sign, steep ? 1.57079637f : flat);
    return x != x || y != y ? x + y : __builtin_copysignf(angle, y);
}

/* The same in f64, to within 2^-28 before the result is rounded: 0.54 ulp. */
static inline float wide_atan2(float y, float x) {
    const double a = (double)__builtin_fabsf(y), b = (double)__builtin_fabsf(x), infinity = __builtin_inf();
    const double less = a < b ? a : b, more = a < b ? b : a;
    const double q = less == infinity ? 1 : less / (more == 0 ? 1 : more), z = q * q;
    double p = -1.78283197e-3;
    p = WIDE_FMA(p, z, 1.08687095e-2);
    p = WIDE_FMA(p, z, -3.10970023e-2);
    p = WIDE_FMA(p, z, 5.78813925e-2);
    p = WIDE_FMA(p, z, -8.39930624e-2);
    p = WIDE_FMA(p, z, 1.09508805e-1);
    p = WIDE_FMA(p, z, -1.42640159e-1);
    p = WIDE_FMA(p, z, 1.99985296e-1);
    p = WIDE_FMA(p, z, -3.33332986e-1);
    double angle = WIDE_FMA(p * z, q, q);
    angle = a > b ? 1.5707963267948966 - angle : angle;
    angle = float_bits(x) >> 31 ? 3.1415926535897931 - angle : angle;
    return x != x || y != y ? x + y : __builtin_copysignf((float)angle, y);
}

/* arcsin(s) = s + s · *more for s in [0, 1/2], 2^-29: of |x| up to 1/2, else √((1 - |x|) / 2). */
static inline float vector_asin_near(float magnitude, float *more) {
    bool near = magnitude <= 0.5f;
    float z = near ? magnitude * magnitude : CPU_FMA(magnitude, -0.5f, 0.5f), s = near ? magnitude : __builtin_sqrtf(z);
    float p = 3.37997532e-2f;
    p = CPU_FMA(p, z, 1.70816236e-2f);
    p = CPU_FMA(p, z, 3.11153286e-2f);
    p = CPU_FMA(p, z, 4.45981066e-2f);
    p = CPU_FMA(p, z, 7.50009853e-2f);
    p = CPU_FMA(p, z, 1.66666663e-1f);
    *more = p * z;
    return s;
}

/* Beyond 1/2, π/2 - 2 arcsin(s) as π/4 + (π/4 - 2s - …), so that only the last sum is rounded near the result's size. */
static inline float vector_asin(float x) {
    float magnitude = __builtin_fabsf(x), more, s = vector_asin_near(magnitude, &more);
    float twice = s + s, rest = CPU_FMA(-more, twice, -4.37113883e-8f);
    float far = 0.785398185f + ((0.785398185f - twice) + rest);
    return __builtin_copysignf(magnitude <= 0.5f ? CPU_FMA(more, s, s) : far, x);
}

/* arccos(x) is π/2 - arcsin(x); beyond 1/2, 2 arcsin(s) or π less that. */
static inline float vector_acos(float x) {
    float magnitude = __builtin_fabsf(x), more, s = vector_asin_near(magnitude, &more);
    float arc = CPU_FMA(more, s, s), signed_arc = __builtin_copysignf(arc, x);
    float of_near = 1.57079637f - (signed_arc + 4.37113883e-8f);
    float of_far = x < 0.0f ? 3.14159274f - (2.0f * arc + 8.74227766e-8f) : 2.0f * arc;
    return magnitude <= 0.5f ? of_near : of_far;
}
