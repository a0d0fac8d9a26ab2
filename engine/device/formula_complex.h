/* The formulas of complex numbers: part of formula.h, whose words hold for them, too. A number is its real and its imaginary part. Functions
 * of c64 are those of c128, rounded once more. Special values are those of C's Annex G, except that a product is made of four products
 * and two sums, as in NumPy and PyTorch, and may be NaN where Annex G has an infinity. */
#pragma once

#include <stdbool.h>

typedef struct {
    float re, im;
} formula_c64;
typedef struct {
    double re, im;
} formula_c128;

#define FORMULA_TYPE_c64 formula_c64
#define FORMULA_TYPE_c128 formula_c128

FORMULA_FUNCTION formula_c64 formula_make_c64(float re, float im) {
    formula_c64 z;
    z.re = re;
    z.im = im;
    return z;
}
FORMULA_FUNCTION formula_c128 formula_make_c128(double re, double im) {
    formula_c128 z;
    z.re = re;
    z.im = im;
    return z;
}
FORMULA_FUNCTION formula_c64 formula_c128_to_c64(formula_c128 a) {
    return formula_make_c64((float)a.re, (float)a.im);
}
FORMULA_FUNCTION formula_c128 formula_c64_to_c128(formula_c64 a) {
    return formula_make_c128((double)a.re, (double)a.im);
}

FORMULA_FUNCTION formula_c64 formula_complex_f32(float re, float im) {
    return formula_make_c64(re, im);
}
FORMULA_FUNCTION formula_c128 formula_complex_f64(double re, double im) {
    return formula_make_c128(re, im);
}

/* X(name, type of a number, type of its parts, dtype of its parts) */
#define FORMULA_COMPLEX(X)                                                                                             \
    X(c64, formula_c64, float, f32)                                                                                    \
    X(c128, formula_c128, double, f64)

#define FORMULA_COMPLEX_1(operation, name, C, real, imaginary)                                                         \
    FORMULA_FUNCTION C formula_##operation##_##name(C a) {                                                             \
        return formula_make_##name(real, imaginary);                                                                   \
    }
#define FORMULA_COMPLEX_2(operation, name, C, real, imaginary)                                                         \
    FORMULA_FUNCTION C formula_##operation##_##name(C a, C b) {                                                        \
        return formula_make_##name(real, imaginary);                                                                   \
    }
#define FORMULA_COMPLEX_REAL(operation, name, C, T, expression)                                                        \
    FORMULA_FUNCTION T formula_##operation##_##name(C a) {                                                             \
        return expression;                                                                                             \
    }
#define FORMULA_COMPLEX_TEST(operation, name, C, expression)                                                           \
    FORMULA_FUNCTION uint8_t formula_##operation##_##name(C a) {                                                       \
        return (uint8_t)(expression);                                                                                  \
    }
#define FORMULA_COMPLEX_TRUTH(operation, name, C, expression)                                                          \
    FORMULA_FUNCTION uint8_t formula_##operation##_##name(C a, C b) {                                                  \
        return (uint8_t)(expression);                                                                                  \
    }

#define FORMULA_COMPLEX_ARITHMETIC(name, C, T, R)                                                                      \
    FORMULA_COMPLEX_2(add, name, C, a.re + b.re, a.im + b.im)                                                          \
    FORMULA_COMPLEX_2(subtract, name, C, a.re - b.re, a.im - b.im)                                                     \
    FORMULA_COMPLEX_2(multiply, name, C, a.re *b.re - a.im * b.im, a.re * b.im + a.im * b.re)                          \
    FORMULA_COMPLEX_1(negative, name, C, -a.re, -a.im)                                                                 \
    FORMULA_COMPLEX_1(positive, name, C, a.re, a.im)                                                                   \
    FORMULA_COMPLEX_1(round, name, C, FORMULA_PLAIN_##R(rint)(a.re), FORMULA_PLAIN_##R(rint)(a.im))                    \
    FORMULA_COMPLEX_1(square, name, C, a.re *a.re - a.im * a.im, a.re * a.im + a.im * a.re)                            \
    FORMULA_COMPLEX_TEST(isfinite, name, C, (a.re - a.re == 0) & (a.im - a.im == 0))                                   \
    FORMULA_COMPLEX_TEST(isnan, name, C, (a.re != a.re) | (a.im != a.im))                                              \
    FORMULA_COMPLEX_TEST(isinf, name, C,                                                                               \
                         ((a.re == a.re) & (a.re - a.re != 0)) | ((a.im == a.im) & (a.im - a.im != 0)))                \
    FORMULA_COMPLEX_1(conj, name, C, a.re, -a.im)                                                                      \
    FORMULA_COMPLEX_REAL(real, name, C, T, a.re)                                                                       \
    FORMULA_COMPLEX_REAL(imag, name, C, T, a.im)                                                                       \
    FORMULA_COMPLEX_TRUTH(equal, name, C, (a.re == b.re) & (a.im == b.im))                                             \
    FORMULA_COMPLEX_TRUTH(not_equal, name, C, (a.re != b.re) | (a.im != b.im))
FORMULA_COMPLEX(FORMULA_COMPLEX_ARITHMETIC)

/* ---- functions, in f64 ---- */

FORMULA_FUNCTION bool formula_is_infinite(double x) {
    return fabs(x) > 0x1.fffffffffffffp1023;
}

/* After R. Smith, "Algorithm 116: Complex division" (1962), which divides by the larger part first, so that squares do not overflow. A zero
 * divides each part. */
FORMULA_FUNCTION formula_c128 formula_divide_c128(formula_c128 a, formula_c128 b) {
    const bool across = fabs(b.re) < fabs(b.im);
    const double large = across ? b.im : b.re, small = across ? b.re : b.im;
    const double ratio = large == 0 ? 0 : small / large, divisor = large + small * ratio;
    const double real = across ? a.re * ratio + a.im : a.re + a.im * ratio;
    const double imaginary = across ? a.im * ratio - a.re : a.im - a.re * ratio;
    return formula_make_c128(real / divisor, imaginary / divisor);
}

FORMULA_FUNCTION formula_c128 formula_reciprocal_c128(formula_c128 a) {
    return formula_divide_c128(formula_make_c128(1, 0), a);
}

FORMULA_FUNCTION double formula_abs_c128(formula_c128 a) {
    return hypot(a.re, a.im);
}

/* Squares of f32 do not overflow f64. */
FORMULA_FUNCTION float formula_abs_c64(formula_c64 a) {
    const formula_c128 wide = formula_c64_to_c128(a);
    const double length = sqrt(wide.re * wide.re + wide.im * wide.im);
    return (float)(formula_is_infinite(wide.re)   ? fabs(wide.re)
                   : formula_is_infinite(wide.im) ? fabs(wide.im)
                                                  : length);
}

FORMULA_FUNCTION double formula_angle_c128(formula_c128 a) {
    return FORMULA_MATH_f64(atan2)(a.im, a.re);
}

/* A part that is beyond 709 is taken in two steps, because the exponential may be beyond f64 where the product is not. */
FORMULA_FUNCTION formula_c128 formula_exp_c128(formula_c128 a) {
    if (a.im == 0) {
        return formula_make_c128(exp(a.re), a.im);
    }
    if (a.re < 0 && formula_is_infinite(a.re) && !(a.im - a.im == 0)) {
        return formula_make_c128(0, 0);
    }
    if (a.re > 0 && formula_is_infinite(a.re) && !(a.im - a.im == 0)) {
        return formula_make_c128(a.re, a.im - a.im);
    }
    const double size = exp(a.re > 700 ? a.re * 0.5 : a.re), again = a.re > 700 ? size : 1;
    return formula_make_c128(size * cos(a.im) * again, size * sin(a.im) * again);
}

/* Near the unit circle the logarithm of the length is that of 1 + (x - 1)(x + 1) + y², of which the 1 is left out. */
FORMULA_FUNCTION formula_c128 formula_log_c128(formula_c128 a) {
    const double x = fabs(a.re), y = fabs(a.im), large = x > y ? x : y, small = x > y ? y : x;
    double length;
    if (large > 0.5 && large < 2) {
        length = 0.5 * log1p((large - 1) * (large + 1) + small * small);
    } else {
        const double scale = large > 0x1p1000 ? 0x1p-30 : large < 0x1p-960 ? 0x1p60 : 1;
        length = log(hypot(x * scale, y * scale)) - (large > 0x1p1000   ? -20.79441541679835748
                                                     : large < 0x1p-960 ? 41.58883083359671496
                                                                        : 0);
    }
    return formula_make_c128(length, atan2(a.im, a.re));
}

/* z / |z|. A part that is infinite leaves nothing of the other one. */
FORMULA_FUNCTION formula_c128 formula_sign_c128(formula_c128 a) {
    const bool endless = formula_is_infinite(a.re), high = formula_is_infinite(a.im);
    if (a.re == 0 && a.im == 0) {
        return formula_make_c128(0, 0);
    }
    if (endless != high) {
        return formula_make_c128(endless ? copysign(1.0, a.re) : a.re * 0, high ? copysign(1.0, a.im) : a.im * 0);
    }
    const double x = fabs(a.re), y = fabs(a.im), large = x > y ? x : y;
    const double scale = large > 0x1p1000 ? 0x1p-4 : large < 0x1p-960 ? 0x1p60 : 1;
    const double length = hypot(x * scale, y * scale);
    return formula_make_c128(a.re * scale / length, a.im * scale / length);
}

/* e^(b · log a); small whole powers are products. A power of 0 is 0 if the exponent's real part is positive, else not a number. */
FORMULA_FUNCTION formula_c128 formula_pow_c128(formula_c128 a, formula_c128 b) {
    if (a.re == 0 && a.im == 0 && !(b.re == 0 && b.im == 0)) {
        const double zero = b.re > 0 ? 0 : a.re / a.re;
        return formula_make_c128(zero, zero);
    }
    if (b.im == 0 && fabs(b.re) <= 64 && b.re == floor(b.re)) {
        formula_c128 power = formula_make_c128(1, 0), square = a;
        for (int n = (int)fabs(b.re); n > 0; n >>= 1) {
            power = n & 1 ? formula_multiply_c128(power, square) : power;
            square = n > 1 ? formula_multiply_c128(square, square) : square;
        }
        return b.re < 0 ? formula_reciprocal_c128(power) : power;
    }
    return formula_exp_c128(formula_multiply_c128(b, formula_log_c128(a)));
}

/* √((|x| + |z|) / 2) is one part, and y over twice that the other. */
FORMULA_FUNCTION formula_c128 formula_sqrt_c128(formula_c128 a) {
    if (formula_is_infinite(a.im)) {
        return formula_make_c128(fabs(a.im), a.im);
    }
    if (formula_is_infinite(a.re)) {
        const double other = a.im != a.im ? a.im : copysign(0.0, a.im);
        return a.re > 0 ? formula_make_c128(a.re, other) : formula_make_c128(fabs(other), copysign(a.re, a.im));
    }
    if (a.re == 0 && a.im == 0) {
        return formula_make_c128(0, a.im);
    }
    const double x = fabs(a.re), y = fabs(a.im), large = x > y ? x : y;
    const double scale = large > 0x1p1000 ? 0x1p-4 : large < 0x1p-960 ? 0x1p60 : 1;
    const double back = large > 0x1p1000 ? 4 : large < 0x1p-960 ? 0x1p-30 : 1;
    const double root = sqrt((x * scale + hypot(x * scale, y * scale)) * 0.5), other = y * scale / (2 * root) * back;
    return a.re < 0 ? formula_make_c128(other, copysign(root * back, a.im))
                    : formula_make_c128(root * back, copysign(other, a.im));
}

#include "engine/device/formula_circular.h"

#define FORMULA_COMPLEX_NARROW(operation)                                                                              \
    FORMULA_FUNCTION formula_c64 formula_##operation##_c64(formula_c64 a) {                                            \
        return formula_c128_to_c64(formula_##operation##_c128(formula_c64_to_c128(a)));                                \
    }
FORMULA_COMPLEX_NARROW(exp)
FORMULA_COMPLEX_NARROW(log)
FORMULA_COMPLEX_NARROW(sqrt)
FORMULA_COMPLEX_NARROW(sign)
FORMULA_COMPLEX_NARROW(reciprocal)
FORMULA_COMPLEX_NARROW(sinh)
FORMULA_COMPLEX_NARROW(cosh)
FORMULA_COMPLEX_NARROW(tanh)
FORMULA_COMPLEX_NARROW(asinh)
FORMULA_COMPLEX_NARROW(acosh)
FORMULA_COMPLEX_NARROW(atanh)
FORMULA_COMPLEX_NARROW(sin)
FORMULA_COMPLEX_NARROW(cos)
FORMULA_COMPLEX_NARROW(tan)
FORMULA_COMPLEX_NARROW(asin)
FORMULA_COMPLEX_NARROW(acos)
FORMULA_COMPLEX_NARROW(atan)
FORMULA_COMPLEX_NARROW(expm1)
FORMULA_COMPLEX_NARROW(log1p)
FORMULA_COMPLEX_NARROW(log2)
FORMULA_COMPLEX_NARROW(log10)
/* In f64, rounded once. */
#ifndef FORMULA_ATAN2_ONCE
#define FORMULA_ATAN2_ONCE(y, x) (float)FORMULA_MATH_f64(atan2)((double)(y), (double)(x))
#endif
FORMULA_FUNCTION float formula_angle_c64(formula_c64 a) {
    return FORMULA_ATAN2_ONCE(a.im, a.re);
}
FORMULA_FUNCTION formula_c64 formula_pow_c64(formula_c64 a, formula_c64 b) {
    return formula_c128_to_c64(formula_pow_c128(formula_c64_to_c128(a), formula_c64_to_c128(b)));
}
FORMULA_FUNCTION formula_c64 formula_divide_c64(formula_c64 a, formula_c64 b) {
    return formula_c128_to_c64(formula_divide_c128(formula_c64_to_c128(a), formula_c64_to_c128(b)));
}
