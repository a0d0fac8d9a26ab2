/* The formulas of elementwise operations, for one element: the same text for the CPU's loops, for CUDA's kernels, for the copies of those
 * kernels in tests/stand_ins/emulate, and for kernels that NVRTC compiles at run time (engine/cuda/formula.cuh).
 *
 * The functions are formula_<operation>_<dtype>(a, b); proto/ops/ lists the operations. Integers wrap around, f32 and f64 round once;
 * f16 and bf16 are computed in f32 and rounded once more. A bool is a byte, 0 or 1, and so is the result of a comparison.
 *
 * Functions of real numbers (exp, log …) are those of the C library, which have the same names in CUDA, unless the including file has
 * defined others: FORMULA_MATH_f32(exp) is the function's name.
 *
 * Everything is static. C includes it as it is; for a device, FORMULA_FUNCTION is defined before
 * (`static __host__ __device__ inline`). There are no branches in formulas whose loops should vectorise. Compilers must not contract
 * a product and a sum into one rounding: on the host -ffp-contract=off forbids it, on a device formula_multiply_add(). */
#pragma once

#include "engine/device/formula_cast.h"

#ifndef FORMULA_MATH_f32
#define FORMULA_MATH_f32(function) function##f
#endif
#ifndef FORMULA_MATH_f64
#define FORMULA_MATH_f64(function) function
#endif
#ifndef FORMULA_POW_f32
#define FORMULA_POW_f32 powf
#endif
#ifndef FORMULA_POW_f64
#define FORMULA_POW_f64 pow
#endif
/* a · b + c, in one rounding where that is as fast. */
#ifndef FORMULA_FMA_f32
#define FORMULA_FMA_f32(a, b, c) ((a) * (b) + (c))
#endif
#ifndef FORMULA_FMA_f64
#define FORMULA_FMA_f64(a, b, c) ((a) * (b) + (c))
#endif

/* The types of elements in memory, without halves, whose types are a device's own. */
#define FORMULA_TYPE_bool uint8_t
#define FORMULA_TYPE_u8 uint8_t
#define FORMULA_TYPE_u16 uint16_t
#define FORMULA_TYPE_u32 uint32_t
#define FORMULA_TYPE_u64 uint64_t
#define FORMULA_TYPE_i8 int8_t
#define FORMULA_TYPE_i16 int16_t
#define FORMULA_TYPE_i32 int32_t
#define FORMULA_TYPE_i64 int64_t
#define FORMULA_TYPE_f32 float
#define FORMULA_TYPE_f64 double

/* X(name, type, unsigned type of at least 32 bits, in which arithmetic wraps) */
#define FORMULA_SIGNED(X)                                                                                              \
    X(i8, int8_t, uint32_t)                                                                                            \
    X(i16, int16_t, uint32_t)                                                                                          \
    X(i32, int32_t, uint32_t)                                                                                          \
    X(i64, int64_t, uint64_t)
#define FORMULA_UNSIGNED(X)                                                                                            \
    X(u8, uint8_t, uint32_t)                                                                                           \
    X(u16, uint16_t, uint32_t)                                                                                         \
    X(u32, uint32_t, uint32_t)                                                                                         \
    X(u64, uint64_t, uint64_t)
#define FORMULA_INTEGERS(X) FORMULA_UNSIGNED(X) FORMULA_SIGNED(X)
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

/* A negative power of an integer is the exact quotient, truncated; a negative power of 0 is 0. */
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
    FORMULA_BINARY(maximum, name, T, a > b ? a : b)                                                                    \
    FORMULA_BINARY(minimum, name, T, a < b ? a : b)                                                                    \
    FORMULA_UNARY(negative, name, T, 0 - (U)a)
FORMULA_INTEGERS(FORMULA_INTEGER)

#define FORMULA_SIGNED_ONLY(name, T, U)                                                                                \
    FORMULA_BINARY(pow, name, T, formula_power_signed(a, b))                                                           \
    FORMULA_UNARY(abs, name, T, a < 0 ? 0 - (U)a : (U)a)                                                               \
    FORMULA_UNARY(relu, name, T, a > 0 ? a : 0)
FORMULA_SIGNED(FORMULA_SIGNED_ONLY)
#define FORMULA_UNSIGNED_ONLY(name, T, U)                                                                              \
    FORMULA_BINARY(pow, name, T, formula_power(a, b))                                                                  \
    FORMULA_UNARY(abs, name, T, a)
FORMULA_UNSIGNED(FORMULA_UNSIGNED_ONLY)

/* ---- floats ---- */

/* The maximum or minimum of a number and a NaN is the NaN; relu keeps a NaN. */
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

/* ---- functions of real numbers ---- */

/* X(name, type, a target's functions, the library's) */
#define FORMULA_REALS(X)                                                                                               \
    X(f32, float, FORMULA_MATH_f32, FORMULA_PLAIN_f32)                                                                 \
    X(f64, double, FORMULA_MATH_f64, FORMULA_PLAIN_f64)
#define FORMULA_PLAIN_f32(function) function##f
#define FORMULA_PLAIN_f64(function) function

/* The sign of tanh is that of its argument, -0 included. sigmoid, 1 / (1 + e^-x), is made of e^-|x|, which cannot overflow.
 * gelu_tanh is x/2 · (1 + tanh(u)) with u = √(2/π) · (x + 0.044715 x³), as x / (1 + e^-2u), in which nothing cancels. */
#define FORMULA_REAL(name, T, MATH, PLAIN)                                                                             \
    FORMULA_BINARY(pow, name, T, FORMULA_POW_##name(a, b))                                                             \
    FORMULA_UNARY(abs, name, T, PLAIN(fabs)(a))                                                                        \
    FORMULA_UNARY(sqrt, name, T, PLAIN(sqrt)(a))                                                                       \
    FORMULA_UNARY(exp, name, T, MATH(exp)(a))                                                                          \
    FORMULA_UNARY(log, name, T, MATH(log)(a))                                                                          \
    FORMULA_UNARY(erf, name, T, MATH(erf)(a))                                                                          \
    FORMULA_UNARY(tanh, name, T, PLAIN(copysign)(MATH(tanh)(a), a))                                                    \
    FORMULA_BINARY(sigmoid_part, name, T, (a >= 0 ? 1 : b) / (1 + b))                                                  \
    FORMULA_UNARY(sigmoid, name, T, formula_sigmoid_part_##name(a, MATH(exp)(-PLAIN(fabs)(a))))                        \
    FORMULA_UNARY(cubic, name, T, FORMULA_FMA_##name((T)0.044715 * a * a, a, a))                                       \
    FORMULA_UNARY(gelu_tanh, name, T, a / (1 + MATH(exp)((T)-1.5957691216057308 * formula_cubic_##name(a))))
FORMULA_REALS(FORMULA_REAL)

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

FORMULA_FUNCTION uint8_t formula_logical_or_bool(uint8_t a, uint8_t b) {
    return (uint8_t)(a | b);
}
FORMULA_FUNCTION uint8_t formula_logical_and_bool(uint8_t a, uint8_t b) {
    return (uint8_t)(a & b);
}
FORMULA_FUNCTION uint8_t formula_logical_not_bool(uint8_t a) {
    return a == 0;
}
