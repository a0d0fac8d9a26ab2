/* What elementwise operations compute, one element at a time: the same text for the CPU's loops and for CUDA's kernels.
 *
 * formula_<operation>_<dtype>(a, b): integers wrap around, f32 and f64 round once; f16 and bf16 are computed in f32 and
 * rounded once more. A truth value is a byte, 0 or 1. Comparisons give one. What is not here is a device's own: exp, log,
 * tanh, sigmoid and pow of floats (the CPU has vectorised approximations, engine/cpu/vector_math.h; CUDA its library),
 * abs and sqrt of floats (one instruction), and the conversions from and to f16 and bf16.
 *
 * Everything is static and needs no library. C includes it as it is; for a device, FORMULA_FUNCTION is defined before
 * (`static __host__ __device__ inline`). No branches where a loop should vectorise. Compilers must not contract a product
 * and a sum into one rounding: -ffp-contract=off on the host; on a device formula_multiply_add() sees to it. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef FORMULA_FUNCTION
#define FORMULA_FUNCTION static inline
#endif

/* X(name, type, unsigned type of at least 32 bits, in which arithmetic wraps) */
#define FORMULA_SIGNED(X)                                                                                              \
    X(i8, int8_t, uint32_t)                                                                                            \
    X(i16, int16_t, uint32_t)                                                                                          \
    X(i32, int32_t, uint32_t)                                                                                          \
    X(i64, int64_t, uint64_t)
#define FORMULA_INTEGERS(X) X(u8, uint8_t, uint32_t) FORMULA_SIGNED(X)
#define FORMULA_FLOATS(X)                                                                                              \
    X(f32, float, float)                                                                                               \
    X(f64, double, double)

/* ---- integers ---- */

/* By squaring, modulo 2^64: the low bits are those of the exact power. */
FORMULA_FUNCTION uint64_t formula_power(uint64_t base, uint64_t exponent) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, base *= base) {
        result *= exponent & 1 ? base : 1;
    }
    return result;
}

/* A negative power of an integer is that of the exact quotient, truncated; of 0 it is 0. */
FORMULA_FUNCTION int64_t formula_power_signed(int64_t base, int64_t exponent) {
    if (exponent >= 0) {
        return (int64_t)formula_power((uint64_t)base, (uint64_t)exponent);
    }
    return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
}

#define FORMULA_BINARY(operation, name, T, expression)                                                                 \
    FORMULA_FUNCTION T formula_##operation##_##name(T a, T b) {                                                        \
        return (T)(expression);                                                                                        \
    }
#define FORMULA_UNARY(operation, name, T, expression)                                                                  \
    FORMULA_FUNCTION T formula_##operation##_##name(T a) {                                                             \
        return (T)(expression);                                                                                        \
    }

#define FORMULA_INTEGER(name, T, U)                                                                                    \
    FORMULA_BINARY(add, name, T, (U)a + (U)b)                                                                          \
    FORMULA_BINARY(subtract, name, T, (U)a - (U)b)                                                                     \
    FORMULA_BINARY(multiply, name, T, (U)a *(U)b)                                                                      \
    FORMULA_BINARY(pow, name, T, formula_power_signed(a, b))                                                           \
    FORMULA_BINARY(maximum, name, T, a > b ? a : b)                                                                    \
    FORMULA_BINARY(minimum, name, T, a < b ? a : b)                                                                    \
    FORMULA_UNARY(negative, name, T, 0 - (U)a)
FORMULA_INTEGERS(FORMULA_INTEGER)

#define FORMULA_SIGNED_ONLY(name, T, U)                                                                                \
    FORMULA_UNARY(abs, name, T, a < 0 ? 0 - (U)a : (U)a)                                                               \
    FORMULA_UNARY(relu, name, T, a > 0 ? a : 0)
FORMULA_SIGNED(FORMULA_SIGNED_ONLY)

/* ---- floats ---- */

/* Of maximum and minimum, a NaN wins; relu keeps it. */
#define FORMULA_FLOAT(name, T, U)                                                                                      \
    FORMULA_BINARY(add, name, T, a + b)                                                                                \
    FORMULA_BINARY(subtract, name, T, a - b)                                                                           \
    FORMULA_BINARY(multiply, name, T, a *b)                                                                            \
    FORMULA_BINARY(divide, name, T, a / b)                                                                             \
    FORMULA_BINARY(maximum, name, T, a > b || a != a ? a : b)                                                          \
    FORMULA_BINARY(minimum, name, T, a < b || a != a ? a : b)                                                          \
    FORMULA_UNARY(negative, name, T, -a)                                                                               \
    FORMULA_UNARY(relu, name, T, a <= 0 ? 0 : a)
FORMULA_FLOATS(FORMULA_FLOAT)

/* a + b · c, rounded twice. */
FORMULA_FUNCTION double formula_multiply_add(double a, double b, double c) {
#ifdef __CUDA_ARCH__
    return __dadd_rn(a, __dmul_rn(b, c));
#else
    return a + b * c;
#endif
}

/* ---- comparisons, truth values ---- */

#define FORMULA_COMPARISON(operation, name, T, expression)                                                             \
    FORMULA_FUNCTION uint8_t formula_##operation##_##name(T a, T b) {                                                  \
        return expression;                                                                                             \
    }
#define FORMULA_COMPARISONS(name, T, U)                                                                                \
    FORMULA_COMPARISON(equal, name, T, a == b)                                                                         \
    FORMULA_COMPARISON(not_equal, name, T, a != b)                                                                     \
    FORMULA_COMPARISON(less, name, T, a < b)                                                                           \
    FORMULA_COMPARISON(less_equal, name, T, a <= b)                                                                    \
    FORMULA_COMPARISON(greater, name, T, a > b)                                                                        \
    FORMULA_COMPARISON(greater_equal, name, T, a >= b)
FORMULA_INTEGERS(FORMULA_COMPARISONS)
FORMULA_FLOATS(FORMULA_COMPARISONS)

FORMULA_FUNCTION uint8_t formula_or_truth(uint8_t a, uint8_t b) {
    return (uint8_t)(a | b);
}
FORMULA_FUNCTION uint8_t formula_and_truth(uint8_t a, uint8_t b) {
    return (uint8_t)(a & b);
}
FORMULA_FUNCTION uint8_t formula_not_truth(uint8_t a) {
    return a == 0;
}

/* ---- casts: float to integer truncates and saturates, NaN gives 0 ---- */

FORMULA_FUNCTION uint8_t formula_float_to_u8(float x) {
    return (uint8_t)(int32_t)(x != x ? 0 : x > 255 ? 255 : x < 0 ? 0 : x);
}
FORMULA_FUNCTION int8_t formula_float_to_i8(float x) {
    return (int8_t)(int32_t)(x != x ? 0 : x > 127 ? 127 : x < -128 ? -128 : x);
}
FORMULA_FUNCTION int16_t formula_float_to_i16(float x) {
    return (int16_t)(int32_t)(x != x ? 0 : x > 32767 ? 32767 : x < -32768 ? -32768 : x);
}
/* 2^31 - 128 is the largest float below 2^31: what is beyond is clamped to it first, so that the conversion is defined. */
FORMULA_FUNCTION int32_t formula_float_to_i32(float x) {
    float clamped = x != x ? 0 : x > 0x1.fffffep30f ? 0x1.fffffep30f : x < -0x1p31f ? -0x1p31f : x;
    int32_t whole = (int32_t)clamped;
    return x >= 0x1p31f ? INT32_MAX : whole;
}
FORMULA_FUNCTION int64_t formula_float_to_i64(float x) {
    float clamped = x != x ? 0 : x > 0x1.fffffep62f ? 0x1.fffffep62f : x < -0x1p63f ? -0x1p63f : x;
    int64_t whole = (int64_t)clamped;
    return x >= 0x1p63f ? INT64_MAX : whole;
}
FORMULA_FUNCTION uint8_t formula_double_to_u8(double x) {
    return (uint8_t)(int32_t)(x != x ? 0 : x > 255 ? 255 : x < 0 ? 0 : x);
}
FORMULA_FUNCTION int8_t formula_double_to_i8(double x) {
    return (int8_t)(int32_t)(x != x ? 0 : x > 127 ? 127 : x < -128 ? -128 : x);
}
FORMULA_FUNCTION int16_t formula_double_to_i16(double x) {
    return (int16_t)(int32_t)(x != x ? 0 : x > 32767 ? 32767 : x < -32768 ? -32768 : x);
}
FORMULA_FUNCTION int32_t formula_double_to_i32(double x) {
    return (int32_t)(x != x ? 0 : x > 2147483647.0 ? 2147483647.0 : x < -2147483648.0 ? -2147483648.0 : x);
}
FORMULA_FUNCTION int64_t formula_double_to_i64(double x) {
    double clamped = x != x ? 0 : x > 0x1.fffffffffffffp62 ? 0x1.fffffffffffffp62 : x < -0x1p63 ? -0x1p63 : x;
    int64_t whole = (int64_t)clamped;
    return x >= 0x1p63 ? INT64_MAX : whole;
}

/* ---- casts to halves: a float that, rounded once more to f16 or bf16, gives what one rounding gives ---- */

FORMULA_FUNCTION uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FORMULA_FUNCTION float bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* f64 to f32 by "round to odd". */
FORMULA_FUNCTION float formula_odd(double x) {
    float nearest = (float)x;
    uint32_t bits = float_bits(nearest);
    double back = (double)nearest, magnitude = fabs(x);
    uint32_t truncated = bits - (fabs(back) > magnitude ? 1 : 0);
    return bits_float(back == x || x != x ? bits : truncated | 1);
}

/* Above 2^40 the low 16 bits count only as "not zero": 47 bits remain, which f64 holds, and a half has 11 at most. */
FORMULA_FUNCTION float formula_odd_i64(int64_t x) {
    int64_t sticky = (x & ~INT64_C(0xffff)) | ((x & 0xffff) != 0 ? 0x8000 : 0);
    int64_t small = x > -(INT64_C(1) << 40) && x < INT64_C(1) << 40;
    return formula_odd((double)(small ? x : sticky));
}
FORMULA_FUNCTION float formula_odd_i32(int32_t x) {
    return formula_odd((double)x);
}
