/* Functions of complex numbers of f64, as formula_complex.h and formula_circular.h have them, but made of vector_double.h's functions and without
 * branches, so that loops over them vectorise at each level. They hold for most numbers; of the others *beyond is true, and the formula is to
 * compute them: those with parts that are infinite or not numbers, with squares beyond f64's range, with an exponential beyond it, or
 * with an angle of DOUBLE_TURNS and more.
 *
 * The greatest errors of a part that were found among millions of numbers, in units in the last place of the larger part: log 1.3, log1p 1.8; sqrt
 * 1.5, sign 2.2; log2 1.9, log10 2.7; exp, sinh, cosh, sin and cos 2.5; atan and atanh 2.8; acos and acosh 2.9; expm1 3.5; asin and asinh 4; tanh
 * and tan 4.3. Those of powers grow with |b · log a|. */
#pragma once

#include "engine/cpu/rows.h"

/* Whether a number's square is within f64's range by far; so is 0. */
static inline bool complex_ordinary(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y);
    return (a < 0x1p500) & (b < 0x1p500) & ((a > 0x1p-400) | (b > 0x1p-400) | ((a == 0) & (b == 0)));
}

/* The sine and cosine of x = q · π/2 + r, with those of r. */
static inline void complex_quadrant(double x, uint64_t q, double s, double c, double *sine, double *cosine) {
    double first = q & 1 ? c : s, second = q & 1 ? s : c;
    *sine = x == 0 ? x : bits_double(double_bits(first) ^ (q & 2) << 62);
    *cosine = bits_double(double_bits(second) ^ ((q + 1) & 2) << 62);
}

static inline void complex_sine_cosine(double x, double *sine, double *cosine) {
    double shifted, rest, r = double_turn(x, &shifted, &rest);
    double s = double_sin_near(r, rest), c = double_cos_near(r, rest);
    complex_quadrant(x, double_bits(shifted), s, c, sine, cosine);
}

static inline bool complex_exp_beyond(double x, double y) {
    return (!(__builtin_fabs(x) <= 700)) | !(__builtin_fabs(y) < DOUBLE_TURNS);
}

static inline formula_c128 complex_exp(formula_c128 a, bool *beyond) {
    double shifted, e = double_expm1_near(double_exp_reduce(a.re, &shifted)), power = wide_power(shifted), sine, cosine;
    double size = WIDE_FMA(power, e, power);
    complex_sine_cosine(a.im, &sine, &cosine);
    *beyond = complex_exp_beyond(a.re, a.im);
    return formula_make_c128(size * cosine, size * sine);
}

/* e^re cos im - 1 as the formula has it, with both functions of im by its half. */
static inline formula_c128 complex_expm1(formula_c128 a, bool *beyond) {
    double shifted, e = double_expm1_near(double_exp_reduce(a.re, &shifted)), power = wide_power(shifted), sine, cosine;
    double half = wide_power(shifted - 1), less = 2 * WIDE_FMA(half, e, half - 0.5), size = WIDE_FMA(power, e, power);
    less = __builtin_fabs(a.re) < 0x1p-60 ? a.re : less;
    complex_sine_cosine(a.im * 0.5, &sine, &cosine);
    *beyond = complex_exp_beyond(a.re, a.im) | ((a.im != 0) & (__builtin_fabs(a.im) < 0x1p-1000));
    double re = less * ((cosine - sine) * (cosine + sine)) - 2 * sine * sine;
    return formula_make_c128(re + (a.im == 0 ? 0.0 : -0.0), size * (2 * sine * cosine)); /* 0 of -0 + 0i */
}

/* Half of ln((x + x_low)² + y²): nothing cancels around 1, since the sum of the squares has two parts. Of 0 it is -∞. */
static inline double complex_log_length(double x, double x_low, double y) {
    double first = x * x, second = y * y, more = first > second ? first : second,
           less = first > second ? second : first;
    double sum = more + less, low = (more - sum) + less;
    low += double_product_rest(x, x, first) + double_product_rest(y, y, second);
    double log = 0.5 * double_log_of_sum(sum, WIDE_FMA(2 * x, x_low, low), 0);
    return sum == 0 ? -__builtin_inf() : log;
}

static inline formula_c128 complex_log(formula_c128 a, bool *beyond) {
    *beyond = !complex_ordinary(a.re, a.im);
    return formula_make_c128(complex_log_length(a.re, 0, a.im), double_atan2(a.im, a.re));
}

static inline formula_c128 complex_log1p(formula_c128 a, bool *beyond) {
    double x = 1 + a.re, low = __builtin_fabs(a.re) > 1 ? 1 - (x - a.re) : a.re - (x - 1);
    double length = complex_log_length(x, low, a.im);
    *beyond = !complex_ordinary(x, a.im);
    return formula_make_c128(a.re == 0 && a.im == 0 ? a.re : length, double_atan2(a.im, x));
}

/* Of a real number log2 and log10 themselves, which are exact of powers. */
static inline formula_c128 complex_log2(formula_c128 a, bool *beyond) {
    formula_c128 log = complex_log(a, beyond);
    double real = double_log2(__builtin_fabs(a.re));
    return formula_make_c128(a.im == 0 ? real : log.re / FORMULA_LN_2, log.im / FORMULA_LN_2);
}
static inline formula_c128 complex_log10(formula_c128 a, bool *beyond) {
    formula_c128 log = complex_log(a, beyond);
    double real = double_log10(__builtin_fabs(a.re));
    return formula_make_c128(a.im == 0 ? real : log.re / FORMULA_LN_10, log.im / FORMULA_LN_10);
}

static inline formula_c128 complex_sqrt(formula_c128 a, bool *beyond) {
    double x = __builtin_fabs(a.re), y = __builtin_fabs(a.im), length = __builtin_sqrt(x * x + y * y);
    double root = __builtin_sqrt((x + length) * 0.5), quotient = y / (2 * root), other = root == 0 ? 0 : quotient;
    *beyond = !complex_ordinary(x, y);
    return formula_make_c128(a.re < 0 ? other : root, __builtin_copysign(a.re < 0 ? root : other, a.im));
}

static inline formula_c128 complex_sign(formula_c128 a, bool *beyond) {
    double length = __builtin_sqrt(a.re * a.re + a.im * a.im), re = a.re / length, im = a.im / length;
    *beyond = !complex_ordinary(a.re, a.im);
    return formula_make_c128(length == 0 ? 0 : re, length == 0 ? 0 : im);
}

/* The formula; its loop over arrays of parts has no neighbours of which GCC 12 would make fused multiply-adds (rows_complex.c). */
static inline formula_c128 complex_divide(formula_c128 a, formula_c128 b, bool *beyond) {
    *beyond = false;
    return formula_divide_c128(a, b);
}

/* a is not 0, and b not a small whole number, whose powers are products. */
static inline formula_c128 complex_pow(formula_c128 a, formula_c128 b, bool *beyond) {
    bool log_beyond, exp_beyond, whole = (b.im == 0) & (__builtin_fabs(b.re) <= 64) & (b.re == __builtin_floor(b.re));
    formula_c128 power = complex_exp(formula_multiply_c128(b, complex_log(a, &log_beyond)), &exp_beyond);
    *beyond = log_beyond | exp_beyond | whole | ((a.re == 0) & (a.im == 0));
    return power;
}

/* ---- hyperbolic and circular functions ---- */

/* As double_sinh() and double_cosh(). */
static inline void complex_sinh_cosh(double x, double *sinh, double *cosh) {
    double even, odd, sum, difference, lost, r = double_exp_both(x, &even, &odd, &sum, &difference, &lost);
    double by_sum = sum * r, by_difference = difference * r, most = difference + by_sum,
           most_cosh = sum + by_difference;
    double rest = WIDE_FMA(difference, even, WIDE_FMA(sum, odd + lost, (difference - most) + by_sum));
    double rest_cosh = WIDE_FMA(sum, even, WIDE_FMA(difference, odd + lost, (sum - most_cosh) + by_difference));
    *sinh = __builtin_copysign(2 * (most + rest), x);
    *cosh = 2 * (most_cosh + rest_cosh);
}

static inline formula_c128 complex_sinh(formula_c128 a, bool *beyond) {
    double sinh, cosh, sine, cosine;
    complex_sinh_cosh(a.re, &sinh, &cosh);
    complex_sine_cosine(a.im, &sine, &cosine);
    *beyond = complex_exp_beyond(a.re, a.im);
    return formula_make_c128(sinh * cosine, cosh * sine);
}

static inline formula_c128 complex_cosh(formula_c128 a, bool *beyond) {
    double sinh, cosh, sine, cosine;
    complex_sinh_cosh(a.re, &sinh, &cosh);
    complex_sine_cosine(a.im, &sine, &cosine);
    *beyond = complex_exp_beyond(a.re, a.im);
    return formula_make_c128(cosh * cosine, sinh * sine);
}

/* The formula's terms times cos² im, so that there is no tangent: nothing cancels either. */
static inline formula_c128 complex_tanh(formula_c128 a, bool *beyond) {
    double sinh, cosh, sine, cosine, one = __builtin_copysign(1.0, a.re);
    complex_sinh_cosh(a.re, &sinh, &cosh);
    complex_sine_cosine(a.im, &sine, &cosine);
    double inverse = 1 / (cosine * cosine + sinh * sinh), re = sinh * cosh * inverse;
    *beyond = complex_exp_beyond(2 * a.re, a.im);
    return formula_make_c128(__builtin_fabs(a.re) > 22 ? one : re, sine * cosine * inverse);
}

static inline formula_c128 complex_sin(formula_c128 a, bool *beyond) {
    return formula_turned_back(complex_sinh(formula_turned(a), beyond));
}
static inline formula_c128 complex_cos(formula_c128 a, bool *beyond) {
    return complex_cosh(formula_turned(a), beyond);
}
static inline formula_c128 complex_tan(formula_c128 a, bool *beyond) {
    return formula_turned_back(complex_tanh(formula_turned(a), beyond));
}

/* ---- their inverses ---- */

/* √(1 - z) and √(1 + z); returns the arcsine's imaginary part. */
static inline double complex_arc_roots(formula_c128 a, formula_c128 *p, formula_c128 *q, bool *beyond) {
    bool p_beyond, q_beyond;
    *p = complex_sqrt(formula_make_c128(1 - a.re, -a.im), &p_beyond);
    *q = complex_sqrt(formula_make_c128(1 + a.re, a.im), &q_beyond);
    *beyond = p_beyond | q_beyond;
    return double_asinh(p->re * q->im - p->im * q->re);
}

static inline formula_c128 complex_asin(formula_c128 a, bool *beyond) {
    formula_c128 p, q;
    double im = complex_arc_roots(a, &p, &q, beyond);
    return formula_make_c128(double_atan2(a.re, p.re * q.re - p.im * q.im), im);
}
static inline formula_c128 complex_acos(formula_c128 a, bool *beyond) {
    formula_c128 p, q;
    double im = complex_arc_roots(a, &p, &q, beyond);
    return formula_make_c128(2 * double_atan2(p.re, q.re), -im);
}
static inline formula_c128 complex_asinh(formula_c128 a, bool *beyond) {
    return formula_turned_back(complex_asin(formula_turned(a), beyond));
}
static inline formula_c128 complex_acosh(formula_c128 a, bool *beyond) {
    formula_c128 arc = complex_acos(a, beyond);
    return formula_make_c128(__builtin_fabs(arc.im), __builtin_copysign(arc.re, a.im));
}

static inline formula_c128 complex_atanh(formula_c128 a, bool *beyond) {
    double x = __builtin_fabs(a.re), y = __builtin_fabs(a.im), apart = 1 - x, square = apart * apart + y * y;
    double re = 0.25 * double_log1p(4 * x / square);
    *beyond = (!((x < 0x1p500) & (y < 0x1p500))) | (square < 0x1p-400);
    return formula_make_c128(__builtin_copysign(re, a.re), 0.5 * double_atan2(2 * a.im, apart * (1 + x) - y * y));
}
static inline formula_c128 complex_atan(formula_c128 a, bool *beyond) {
    return formula_turned_back(complex_atanh(formula_turned(a), beyond));
}

/* ---- functions of c64 ----
 *
 * These take numbers of c64 as f64, in which squares of f32 neither overflow nor vanish, and give results to 2^-28 of them. */

/* Products are exact: so is the part that is 0 where a is a multiple of b. */
static inline formula_c128 complex_narrow_divide(formula_c128 a, formula_c128 b, bool *beyond) {
    double inverse = 1 / (b.re * b.re + b.im * b.im);
    double re = (a.re * b.re + a.im * b.im) * inverse, im = (a.im * b.re - a.re * b.im) * inverse;
    *beyond = (re - re != 0) | (im - im != 0);
    return formula_make_c128(re, im);
}
static inline formula_c128 complex_narrow_reciprocal(formula_c128 a, bool *beyond) {
    double inverse = 1 / (a.re * a.re + a.im * a.im), re = a.re * inverse, im = (0 - a.im) * inverse;
    *beyond = (re - re != 0) | (im - im != 0);
    return formula_make_c128(re, im);
}

static inline void complex_narrow_sine_cosine(double x, double *sine, double *cosine) {
    double shifted, r = wide_turn(x, &shifted), s = wide_sin_near(r), c = wide_cos_near(r);
    complex_quadrant(x, double_bits(shifted), s, c, sine, cosine);
}

static inline formula_c128 complex_narrow_exp(formula_c128 a, bool *beyond) {
    double shifted, e = wide_expm1_near(double_exp_reduce(a.re, &shifted)), power = wide_power(shifted), sine, cosine;
    double size = WIDE_FMA(power, e, power);
    complex_narrow_sine_cosine(a.im, &sine, &cosine);
    *beyond = complex_exp_beyond(a.re, a.im);
    return formula_make_c128(size * cosine, size * sine);
}

/* As double_exp_both(): by the Taylor series of cosh(r) and sinh(r) for |r| <= ln(2)/2. */
static inline void complex_narrow_sinh_cosh(double x, double *sinh, double *cosh) {
    double shifted, r = double_exp_reduce(__builtin_fabs(x), &shifted), z = r * r, n = shifted - WIDE_ROUND;
    double even = 2.48015873015873e-05, odd = 0.0001984126984126984;
    even = WIDE_FMA(even, z, 0.001388888888888889);
    even = WIDE_FMA(even, z, 0.041666666666666664);
    even = WIDE_FMA(even, z, 0.5);
    even = WIDE_FMA(even, z, 1.0);
    odd = WIDE_FMA(odd, z, 0.008333333333333333);
    odd = WIDE_FMA(odd, z, 0.16666666666666666);
    odd = WIDE_FMA(odd * z, r, r);
    double up = wide_power(shifted - 1), down = wide_power(WIDE_ROUND - 1 - n), sum = up + down, difference = up - down;
    *sinh = __builtin_copysign(WIDE_FMA(sum, odd, difference * even), x);
    *cosh = WIDE_FMA(difference, odd, sum * even);
}

static inline formula_c128 complex_narrow_sinh(formula_c128 a, bool *beyond) {
    double sinh, cosh, sine, cosine;
    complex_narrow_sinh_cosh(a.re, &sinh, &cosh);
    complex_narrow_sine_cosine(a.im, &sine, &cosine);
    *beyond = complex_exp_beyond(a.re, a.im);
    return formula_make_c128(sinh * cosine, cosh * sine);
}
static inline formula_c128 complex_narrow_cosh(formula_c128 a, bool *beyond) {
    double sinh, cosh, sine, cosine;
    complex_narrow_sinh_cosh(a.re, &sinh, &cosh);
    complex_narrow_sine_cosine(a.im, &sine, &cosine);
    *beyond = complex_exp_beyond(a.re, a.im);
    return formula_make_c128(cosh * cosine, sinh * sine);
}
static inline formula_c128 complex_narrow_tanh(formula_c128 a, bool *beyond) {
    double sinh, cosh, sine, cosine, one = __builtin_copysign(1.0, a.re);
    complex_narrow_sinh_cosh(a.re, &sinh, &cosh);
    complex_narrow_sine_cosine(a.im, &sine, &cosine);
    double inverse = 1 / (cosine * cosine + sinh * sinh), re = sinh * cosh * inverse;
    *beyond = complex_exp_beyond(2 * a.re, a.im);
    return formula_make_c128(__builtin_fabs(a.re) > 22 ? one : re, sine * cosine * inverse);
}
static inline formula_c128 complex_narrow_sin(formula_c128 a, bool *beyond) {
    return formula_turned_back(complex_narrow_sinh(formula_turned(a), beyond));
}
static inline formula_c128 complex_narrow_cos(formula_c128 a, bool *beyond) {
    return complex_narrow_cosh(formula_turned(a), beyond);
}
static inline formula_c128 complex_narrow_tan(formula_c128 a, bool *beyond) {
    return formula_turned_back(complex_narrow_tanh(formula_turned(a), beyond));
}
