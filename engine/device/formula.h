/* The formulas of elementwise operations, for one element: the same text for the CPU's loops, for CUDA's kernels, for the copies of those
 * kernels in tests/stand_ins/emulate, and for kernels that NVRTC compiles at run time (engine/cuda/formula.cuh).
 *
 * The functions are formula_<operation>_<dtype>(a, b); proto/ops/ lists the operations. Integers wrap around, f32 and f64 round once;
 * f16 and bf16 are computed in f32 and rounded once more. A bool is a byte, 0 or 1, and so is the result of a comparison.
 *
 * Functions of real numbers (exp, log …) are those of the C library, which have the same names in CUDA, unless the including file has
 * defined others: FORMULA_MATH_f32(exp) is the function's name. If it defines FORMULA_WIDE(function), functions of double with
 * that name, many formulas for f32 compute in double, with one rounding at the end.
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
#define FORMULA_TERNARY(operation, name, T, expression)                                                                \
    FORMULA_FUNCTION T formula_##operation##_##name(T a, T b, T c) {                                                   \
        return (T)(expression);                                                                                        \
    }

/* Whether a shift moves some bits of T within it: a count from 0 on that is less than the number of bits. */
#define FORMULA_LAST_BIT(T) ((int)sizeof(T) * 8 - 1)
#define FORMULA_FITS(T, count) ((uint64_t)(count) <= (uint64_t)FORMULA_LAST_BIT(T))

#define FORMULA_INTEGER(name, T, U)                                                                                    \
    FORMULA_BINARY(add, name, T, (U)a + (U)b)                                                                          \
    FORMULA_BINARY(subtract, name, T, (U)a - (U)b)                                                                     \
    FORMULA_BINARY(multiply, name, T, (U)a *(U)b)                                                                      \
    FORMULA_BINARY(maximum, name, T, a > b ? a : b)                                                                    \
    FORMULA_BINARY(minimum, name, T, a < b ? a : b)                                                                    \
    FORMULA_UNARY(negative, name, T, 0 - (U)a)                                                                         \
    FORMULA_UNARY(positive, name, T, a)                                                                                \
    FORMULA_UNARY(square, name, T, (U)a *(U)a)                                                                         \
    FORMULA_TERNARY(clip, name, T, a > b ? (a < c ? a : c) : b < c ? b : c)                                            \
    FORMULA_UNARY(bitwise_invert, name, T, ~a)                                                                         \
    FORMULA_BINARY(bitwise_and, name, T, a &b)                                                                         \
    FORMULA_BINARY(bitwise_or, name, T, a | b)                                                                         \
    FORMULA_BINARY(bitwise_xor, name, T, a ^ b)                                                                        \
    FORMULA_BINARY(bitwise_left_shift, name, T, FORMULA_FITS(T, b) ? (U)a << (b & FORMULA_LAST_BIT(T)) : 0)
FORMULA_INTEGERS(FORMULA_INTEGER)

#define FORMULA_SIGNED_ONLY(name, T, U)                                                                                \
    FORMULA_BINARY(pow, name, T, formula_power_signed(a, b))                                                           \
    FORMULA_UNARY(abs, name, T, a < 0 ? 0 - (U)a : (U)a)                                                               \
    FORMULA_UNARY(relu, name, T, a > 0 ? a : 0)                                                                        \
    FORMULA_UNARY(sign, name, T, (a > 0) - (a < 0))                                                                    \
    FORMULA_BINARY(bitwise_right_shift, name, T,                                                                       \
                   a >> (FORMULA_FITS(T, b) ? b & FORMULA_LAST_BIT(T) : FORMULA_LAST_BIT(T)))
FORMULA_SIGNED(FORMULA_SIGNED_ONLY)
#define FORMULA_UNSIGNED_ONLY(name, T, U)                                                                              \
    FORMULA_BINARY(pow, name, T, formula_power(a, b))                                                                  \
    FORMULA_UNARY(abs, name, T, a)                                                                                     \
    FORMULA_UNARY(sign, name, T, a > 0)                                                                                \
    FORMULA_BINARY(bitwise_right_shift, name, T, FORMULA_FITS(T, b) ? a >> (b & FORMULA_LAST_BIT(T)) : 0)
FORMULA_UNSIGNED(FORMULA_UNSIGNED_ONLY)

/* Quotients of integers: 0 where the divisor is 0. Processors stop a program that divides by 0, or the least integer by -1: so these
 * formulas divide by 1 then, and -1 is a case of its own. */
#define FORMULA_QUOTIENTS_SIGNED(name, T, U)                                                                           \
    FORMULA_UNARY(divisor, name, T, a == 0 || a == -1 ? 1 : a)                                                         \
    FORMULA_BINARY(fmod, name, T, b == 0 ? 0 : a % formula_divisor_##name(b))                                          \
    FORMULA_BINARY(across, name, T, b != 0 && formula_fmod_##name(a, b) != 0 && (a < 0) != (b < 0))                    \
    FORMULA_BINARY(remainder, name, T, formula_fmod_##name(a, b) + (formula_across_##name(a, b) ? b : 0))              \
    FORMULA_BINARY(floor_divide, name, T,                                                                              \
                   b == 0    ? 0                                                                                       \
                   : b == -1 ? 0 - (U)a                                                                                \
                             : (U)(a / formula_divisor_##name(b)) - (U)formula_across_##name(a, b))
FORMULA_SIGNED(FORMULA_QUOTIENTS_SIGNED)
#define FORMULA_QUOTIENTS_UNSIGNED(name, T, U)                                                                         \
    FORMULA_BINARY(fmod, name, T, b == 0 ? 0 : a % (b == 0 ? 1 : b))                                                   \
    FORMULA_BINARY(remainder, name, T, formula_fmod_##name(a, b))                                                      \
    FORMULA_BINARY(floor_divide, name, T, b == 0 ? 0 : a / (b == 0 ? 1 : b))
FORMULA_UNSIGNED(FORMULA_QUOTIENTS_UNSIGNED)

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
    FORMULA_UNARY(relu, name, T, a <= 0 ? 0 : a)                                                                       \
    FORMULA_UNARY(positive, name, T, a)                                                                                \
    FORMULA_UNARY(square, name, T, a *a)                                                                               \
    FORMULA_UNARY(reciprocal, name, T, 1 / a)                                                                          \
    FORMULA_UNARY(sign, name, T, a > 0 ? 1 : a < 0 ? -1 : a == 0 ? 0 : a)                                              \
    FORMULA_BINARY(leaky_relu, name, T, a > 0 ? a : b * a)                                                             \
    FORMULA_UNARY(hardsigmoid, name, T, (a + 3 < 0 ? 0 : a + 3 > 6 ? 6 : a + 3) / 6)                                   \
    FORMULA_UNARY(hardswish, name, T, a *formula_hardsigmoid_##name(a))
FORMULA_FLOATS(FORMULA_FLOAT)

/* The minimum of c and the maximum of a and b. In these steps loops over it vectorise. */
#define FORMULA_CLIP(name, T, U)                                                                                       \
    FORMULA_FUNCTION T formula_clip_##name(T a, T b, T c) {                                                            \
        T most = a > b ? a : b;                                                                                        \
        most = a != a ? a : most;                                                                                      \
        T least = most < c ? most : c;                                                                                 \
        return most != most ? most : least;                                                                            \
    }
FORMULA_FLOATS(FORMULA_CLIP)

/* The next bits up or down, which are the next number, since a number's bits are a sign and a magnitude. */
#define FORMULA_NEXT(name, T, U, to_bits, from_bits)                                                                   \
    FORMULA_FUNCTION T formula_nextafter_##name(T a, T b) {                                                            \
        U bits = to_bits(a), sign = (U)1 << FORMULA_LAST_BIT(T);                                                       \
        U next = a == 0 ? (to_bits(b) & sign) | 1 : (a < b) == (a > 0) ? bits + 1 : bits - 1;                          \
        return a != a || b != b ? a + b : a == b ? b : from_bits(next);                                                \
    }
FORMULA_NEXT(f32, float, uint32_t, float_bits, bits_float)
FORMULA_NEXT(f64, double, uint64_t, double_bits, bits_double)

/* Of f32, as double. The quotient has bits enough for its integer part up to 2^29, and a result above is rounded anyway. */
FORMULA_FUNCTION double formula_floor_ratio(double a, double b) {
    double q = floor(a / b);
    double whole = b == b && b - b != 0 && a != 0 && (a < 0) != (b < 0) ? -1 : q; /* b is infinite */
    return a - a == 0 ? whole : a - a;
}
FORMULA_FUNCTION float formula_floor_divide_f32(float a, float b) {
    return (float)formula_floor_ratio((double)a, (double)b);
}

/* By the exact remainder: a difference of an integer from the quotient is a rounding error then. */
FORMULA_FUNCTION double formula_floor_divide_f64(double a, double b) {
    double rest = fmod(a, b), q = (a - rest) / b;
    double below = rest != 0 && (rest < 0) != (b < 0) ? q - 1 : q;
    double whole = floor(below);
    double nearest = below - whole > 0.5 ? whole + 1 : whole;
    return b == 0 && a - a == 0 ? a / b : nearest == 0 ? copysign(0.0, a / b) : nearest;
}

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
    FORMULA_UNARY(exp2, name, T, MATH(exp2)(a))                                                                        \
    FORMULA_UNARY(log, name, T, MATH(log)(a))                                                                          \
    FORMULA_UNARY(erf, name, T, MATH(erf)(a))                                                                          \
    FORMULA_UNARY(tanh, name, T, PLAIN(copysign)(MATH(tanh)(a), a))                                                    \
    FORMULA_BINARY(sigmoid_part, name, T, (a >= 0 ? 1 : b) / (1 + b))                                                  \
    FORMULA_UNARY(sigmoid, name, T, formula_sigmoid_part_##name(a, MATH(exp)(-PLAIN(fabs)(a))))                        \
    FORMULA_UNARY(cubic, name, T, FORMULA_FMA_##name((T)0.044715 * a * a, a, a))                                       \
    FORMULA_UNARY(gelu_tanh, name, T, a / (1 + MATH(exp)((T)-1.5957691216057308 * formula_cubic_##name(a))))
FORMULA_REALS(FORMULA_REAL)

/* Each is a function of the target. */
#define FORMULA_FUNCTIONS(name, T, MATH, PLAIN)                                                                        \
    FORMULA_UNARY(sin, name, T, MATH(sin)(a))                                                                          \
    FORMULA_UNARY(cos, name, T, MATH(cos)(a))                                                                          \
    FORMULA_UNARY(tan, name, T, MATH(tan)(a))                                                                          \
    FORMULA_UNARY(asin, name, T, MATH(asin)(a))                                                                        \
    FORMULA_UNARY(acos, name, T, MATH(acos)(a))                                                                        \
    FORMULA_UNARY(atan, name, T, MATH(atan)(a))                                                                        \
    FORMULA_UNARY(sinh, name, T, MATH(sinh)(a))                                                                        \
    FORMULA_UNARY(cosh, name, T, MATH(cosh)(a))                                                                        \
    FORMULA_UNARY(asinh, name, T, MATH(asinh)(a))                                                                      \
    FORMULA_UNARY(acosh, name, T, MATH(acosh)(a))                                                                      \
    FORMULA_UNARY(atanh, name, T, MATH(atanh)(a))                                                                      \
    FORMULA_UNARY(expm1, name, T, MATH(expm1)(a))                                                                      \
    FORMULA_UNARY(log1p, name, T, MATH(log1p)(a))                                                                      \
    FORMULA_UNARY(log2, name, T, MATH(log2)(a))                                                                        \
    FORMULA_UNARY(log10, name, T, MATH(log10)(a))                                                                      \
    FORMULA_BINARY(atan2, name, T, MATH(atan2)(a, b))                                                                  \
    FORMULA_BINARY(elu, name, T, a > 0 ? a : b * MATH(expm1)(a))
FORMULA_REALS(FORMULA_FUNCTIONS)

/* What follows from the functions of real numbers:
 *
 * silu and mish are made of h = e^(-|a|/2), which cannot overflow: h² is subnormal where the result need not be, but not if an f32's silu is
 * computed in double. mish is a · n / (n + 2) with
 * n = e^a (e^a + 2). softplus is made of e^-|t|. The two terms of logaddexp may cancel. */
#define FORMULA_SMOOTH(name, T, MATH, PLAIN)                                                                           \
    FORMULA_UNARY(erfc, name, T, MATH(erfc)(a))                                                                        \
    FORMULA_UNARY(half_exp, name, T, MATH(exp)(PLAIN(fabs)(a) * (T)-0.5))                                              \
    FORMULA_BINARY(mish_part, name, T,                                                                                 \
                   a >= 0 ? a * ((1 + 2 * b) / (1 + 2 * b + 2 * b * b)) : (b + 2) / (b * b + 2 * b + 2))               \
    FORMULA_BINARY(mish_of, name, T, formula_mish_part_##name(a, b *b) * (a >= 0 ? 1 : a * b) * (a >= 0 ? 1 : b))      \
    FORMULA_UNARY(mish, name, T, formula_mish_of_##name(a, formula_half_exp_##name(a)))                                \
    FORMULA_UNARY(log_of_more, name, T, MATH(log1p)(MATH(exp)(-PLAIN(fabs)(a))))                                       \
    FORMULA_TERNARY(softplus, name, T,                                                                                 \
                    b *a > c ? a : ((b * a > 0 ? b * a : 0) + formula_log_of_more_##name(b * a)) / b)                  \
    FORMULA_BINARY(logaddexp, name, T,                                                                                 \
                   a == b ? a + (T)0.69314718055994531 : (a > b ? a : b) + formula_log_of_more_##name(a - b))          \
    FORMULA_BINARY(hypot, name, T, MATH(hypot)(a, b))                                                                  \
    FORMULA_BINARY(fmod, name, T, MATH(fmod)(a, b))                                                                    \
    FORMULA_BINARY(remainder_of, name, T, a == 0 ? PLAIN(copysign)(a, b) : (a < 0) != (b < 0) ? a + b : a)             \
    FORMULA_BINARY(remainder, name, T, formula_remainder_of_##name(MATH(fmod)(a, b), b))

#define FORMULA_SILU(name, T)                                                                                          \
    FORMULA_BINARY(silu_part, name, T, a >= 0 ? a / (1 + b * b) : a * b * (b / (1 + b * b)))                           \
    FORMULA_UNARY(silu, name, T, formula_silu_part_##name(a, formula_half_exp_##name(a)))

FORMULA_SMOOTH(f64, double, FORMULA_MATH_f64, FORMULA_PLAIN_f64)
FORMULA_SILU(f64, double)
#ifdef FORMULA_WIDE
FORMULA_SMOOTH(wide, double, FORMULA_WIDE, FORMULA_PLAIN_f64)
FORMULA_BINARY(silu_part, wide, double, (a >= 0 ? a : a * b) / (1 + b))
FORMULA_UNARY(silu, wide, double, formula_silu_part_wide(a, FORMULA_WIDE(exp)(-FORMULA_PLAIN_f64(fabs)(a))))
FORMULA_UNARY(gelu, wide, double, a * 0.5 * FORMULA_WIDE(erfc)(a * -0.70710678118654752))
/* The target has these in f32. */
#define FORMULA_OWN_1(name) FORMULA_UNARY(name, f32, float, FORMULA_MATH_f32(name)(a))
FORMULA_OWN_1(silu)
FORMULA_OWN_1(gelu)
FORMULA_BINARY(logaddexp, f32, float, FORMULA_MATH_f32(logaddexp)(a, b))
FORMULA_TERNARY(softplus, f32, float, b *a > c ? a : formula_logaddexp_f32(b * a, 0) / b)
#define FORMULA_NARROW_1(name)                                                                                         \
    FORMULA_FUNCTION float formula_##name##_f32(float a) {                                                             \
        return (float)formula_##name##_wide((double)a);                                                                \
    }
#define FORMULA_NARROW_2(name)                                                                                         \
    FORMULA_FUNCTION float formula_##name##_f32(float a, float b) {                                                    \
        return (float)formula_##name##_wide((double)a, (double)b);                                                     \
    }
/* clang-format off */
FORMULA_NARROW_1(erfc) FORMULA_NARROW_1(mish)
FORMULA_NARROW_2(hypot) FORMULA_NARROW_2(fmod) FORMULA_NARROW_2(remainder)
/* clang-format on */
#else
FORMULA_SMOOTH(f32, float, FORMULA_MATH_f32, FORMULA_PLAIN_f32)
FORMULA_SILU(f32, float)
#endif

/* x/2 · erfc(y) with y = -x/√2. What y was rounded by is d, times 2y in the result: erfc(y + d) is about erfc(y) · (1 - 2yd). */
#define FORMULA_GELU(name, T, root, rest, MATH, PLAIN)                                                                 \
    FORMULA_FUNCTION T formula_gelu_##name(T a) {                                                                      \
        T y = a * -root, d = PLAIN(fma)(a, -root, -y) - a * rest, tail = MATH(erfc)(y);                                \
        return a * (T)0.5 * (y > 0 && y < 40 ? tail - tail * (2 * y * d) : tail);                                      \
    }
#ifndef FORMULA_WIDE
    FORMULA_GELU(f32, float, 0.70710678f, 1.21016171e-8f, FORMULA_MATH_f32, FORMULA_PLAIN_f32)
#endif
        FORMULA_GELU(f64, double, 0.70710678118654752, -4.8336466567264567e-17, FORMULA_MATH_f64, FORMULA_PLAIN_f64)

#define FORMULA_ROUNDED(name, T, MATH, PLAIN)                                                                          \
    FORMULA_UNARY(floor, name, T, PLAIN(floor)(a))                                                                     \
    FORMULA_UNARY(ceil, name, T, PLAIN(ceil)(a))                                                                       \
    FORMULA_UNARY(trunc, name, T, PLAIN(trunc)(a))                                                                     \
    FORMULA_UNARY(round, name, T, PLAIN(rint)(a))                                                                      \
    FORMULA_UNARY(rsqrt, name, T, 1 / PLAIN(sqrt)(a))                                                                  \
    FORMULA_BINARY(copysign, name, T, PLAIN(copysign)(a, b))
            FORMULA_REALS(FORMULA_ROUNDED)

/* ---- comparisons, truth values ---- */

#define FORMULA_TEST(operation, name, T, expression)                                                                   \
    FORMULA_FUNCTION uint8_t formula_##operation##_##name(T a) {                                                       \
        return expression;                                                                                             \
    }
#define FORMULA_TESTS(name, T, MATH, PLAIN)                                                                            \
    FORMULA_TEST(isfinite, name, T, a - a == 0)                                                                        \
    FORMULA_TEST(isinf, name, T, a == a && a - a != 0)                                                                 \
    FORMULA_TEST(isnan, name, T, a != a)                                                                               \
    FORMULA_TEST(signbit, name, T, PLAIN(copysign)((T)1, a) < 0)
                FORMULA_REALS(FORMULA_TESTS)

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
                    FORMULA_INTEGERS(FORMULA_COMPARISONS) FORMULA_FLOATS(FORMULA_COMPARISONS)

                        FORMULA_FUNCTION uint8_t formula_logical_or_bool(uint8_t a, uint8_t b) {
    return (uint8_t)(a | b);
}
FORMULA_FUNCTION uint8_t formula_logical_and_bool(uint8_t a, uint8_t b) {
    return (uint8_t)(a & b);
}
FORMULA_FUNCTION uint8_t formula_logical_not_bool(uint8_t a) {
    return a == 0;
}

#include "engine/device/formula_complex.h"
