/* Functions of f64, written as those of vector_math.h, which includes this, so that loops over them vectorise at each level. Errors are below 2
 * units in the last place; the functions at the end are libm's. */
#pragma once

/* e^r - 1 for |r| <= ln(2)/2. */
static inline double double_expm1_near(double r) {
    double p = 2.09112987659402e-09;
    p = WIDE_FMA(p, r, 2.5100472505694996e-08);
    p = WIDE_FMA(p, r, 2.7557282838800484e-07);
    p = WIDE_FMA(p, r, 2.7557268276905696e-06);
    p = WIDE_FMA(p, r, 2.4801587317228724e-05);
    p = WIDE_FMA(p, r, 0.00019841269863171557);
    p = WIDE_FMA(p, r, 0.0013888888888886537);
    p = WIDE_FMA(p, r, 0.008333333333330039);
    p = WIDE_FMA(p, r, 0.041666666666666664);
    p = WIDE_FMA(p, r, 0.16666666666666669);
    return WIDE_FMA(r * r, WIDE_FMA(r, p, 0.5), r);
}

/* x = n · ln(2) + r, as wide_exp_reduce(), of an x that is not clamped; ln(2)'s first part has 33 bits, so that n times it is exact. */
static inline double double_exp_reduce(double x, double *shifted) {
    *shifted = WIDE_FMA(x, 1.4426950408889634, WIDE_ROUND);
    double n = *shifted - WIDE_ROUND;
    return WIDE_FMA(n, -1.90821492927058770002e-10, WIDE_FMA(n, -6.93147180369123816490e-01, x));
}

/* 2^n · x in two steps, so that neither factor overflows nor vanishes; n is in `shifted` as in wide_power(). */
static inline double double_scale(double x, double shifted) {
    double n = shifted - WIDE_ROUND, half = WIDE_FMA(n, 0.5, WIDE_ROUND);
    double rest = n - (half - WIDE_ROUND) + WIDE_ROUND;
    return x * wide_power(half) * wide_power(rest);
}

static inline double double_exp(double x) {
    double shifted, r = double_exp_reduce(x < -746 ? -746 : x > 710 ? 710 : x, &shifted);
    double result = double_scale(1 + double_expm1_near(r), shifted);
    return x != x ? x : result;
}

static inline double double_exp2(double x) {
    double clamped = x < -1080 ? -1080 : x > 1025 ? 1025 : x, shifted = clamped + WIDE_ROUND;
    double r = (clamped - (shifted - WIDE_ROUND)) * 0.69314718055994531;
    double result = double_scale(1 + double_expm1_near(r), shifted);
    return x != x ? x : result;
}

/* Twice half the value, since 2^1024 is no number; for -40 <= x <= 710. */
static inline double double_expm1_of(double x) {
    double shifted, r = double_exp_reduce(x, &shifted), half = wide_power(shifted - 1);
    return 2 * WIDE_FMA(half, double_expm1_near(r), half - 0.5);
}

static inline double double_expm1(double x) {
    double result = double_expm1_of(x < -40 ? -40 : x > 710 ? 710 : x);
    return x != x || x == 0 ? x : result;
}

static inline double double_tanh(double x) {
    double a = __builtin_fabs(x), e = double_expm1_of(2 * (a > 22 ? 22 : a));
    return x != x ? x : __builtin_copysign(e / (e + 2), x);
}

/* cosh(r) - 1 and sinh(r) - r for |r| <= ln(2)/2, and 2^(n - 2) ± 2^(-n - 2), where |x| = n · ln(2) + r + *lost: as wide_exp_both(). Halves of
 * the results, since 2^1024 is no number. */
static inline double double_exp_both(double x, double *even, double *odd, double *sum, double *difference,
                                     double *lost) {
    double a = __builtin_fabs(x), shifted;
    a = a > 710.5 ? 710.5 : a;
    shifted = WIDE_FMA(a, 1.4426950408889634, WIDE_ROUND);
    double n = shifted - WIDE_ROUND, near = WIDE_FMA(n, -6.93147180369123816490e-01, a);
    double second = n * 1.90821492927058770002e-10, r = near - second, z = r * r;
    *lost = (near - r) - second;
    double e = 2.0921702103303058e-09;
    e = WIDE_FMA(e, z, 2.755725202209513e-07);
    e = WIDE_FMA(e, z, 2.480158734898854e-05);
    e = WIDE_FMA(e, z, 0.0013888888888873377);
    e = WIDE_FMA(e, z, 0.041666666666666685);
    e = WIDE_FMA(e, z, 0.5);
    double o = 2.5109122851464454e-08;
    o = WIDE_FMA(o, z, 2.7557243976147643e-06);
    o = WIDE_FMA(o, z, 0.0001984126988634347);
    o = WIDE_FMA(o, z, 0.008333333333321551);
    o = WIDE_FMA(o, z, 0.16666666666666677);
    *even = e * z;
    *odd = o * z * r;
    double up = wide_power(shifted - 2), down = wide_power(WIDE_ROUND - 2 - (n > 100 ? 100 : n));
    *sum = up + down;
    *difference = up - down;
    return r;
}

static inline double double_sinh(double x) {
    double even, odd, sum, difference, lost, r = double_exp_both(x, &even, &odd, &sum, &difference, &lost);
    double second = sum * r, most = difference + second;
    double rest = WIDE_FMA(difference, even, WIDE_FMA(sum, odd + lost, (difference - most) + second));
    return __builtin_copysign(2 * (most + rest), x);
}

static inline double double_cosh(double x) {
    double even, odd, sum, difference, lost, r = double_exp_both(x, &even, &odd, &sum, &difference, &lost);
    double second = difference * r, most = sum + second;
    double rest = WIDE_FMA(sum, even, WIDE_FMA(difference, odd + lost, (sum - most) + second));
    return 2 * (most + rest);
}

/* What a · b is more than p, a number near it: exact with FMA, and else but for 2^-106 of the product. */
static inline double double_product_rest(double a, double b, double p) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fma(a, b, -p);
#else
    const uint64_t mask = 0xfffffffff8000000; /* of the first 26 bits */
    double a_high = bits_double(double_bits(a) & mask), a_low = a - a_high;
    double b_high = bits_double(double_bits(b) & mask), b_low = b - b_high;
    return ((a_high * b_high - p) + (a_high * b_low + a_low * b_high)) + a_low * b_low;
#endif
}

/* x = 2^n · (1 + f) as wide_log_reduce(), for subnormal x, too. */
static inline double double_log_reduce(double x, double *n) {
    bool small = x < 0x1p-1022;
    double f = wide_log_reduce(small ? x * 0x1p54 : x, n);
    *n = small ? *n - 54 : *n;
    return f;
}

/* As vector_log_low(): ln(1 + f) = f - (f²/2 - rest) with rest = s · (f²/2 + p), s = f / (2 + f); `more` is added to the rest. The
 * coefficients are those of FreeBSD's msun, e_log.c. */
static inline double double_log_rest(double f, double half_square, double more) {
    double s = f / (2 + f), z = s * s;
    double p = 1.479819860511658591e-01;
    p = WIDE_FMA(p, z, 1.531383769920937332e-01);
    p = WIDE_FMA(p, z, 1.818357216161805012e-01);
    p = WIDE_FMA(p, z, 2.222219843214978396e-01);
    p = WIDE_FMA(p, z, 2.857142874366239149e-01);
    p = WIDE_FMA(p, z, 3.999999999940941908e-01);
    p = WIDE_FMA(p, z, 6.666666666666735130e-01) * z;
    return WIDE_FMA(s, half_square + p, more);
}

static inline double double_log(double x) {
    double n, f = double_log_reduce(x, &n), h = 0.5 * f * f;
    double rest = double_log_rest(f, h, n * 1.90821492927058770002e-10);
    return wide_log_special(x, WIDE_FMA(n, 6.93147180369123816490e-01, f - (h - rest)));
}

/* ln(1 + f) = high + low, where high has 21 bits: its product with a constant of 32 bits is exact. */
static inline double double_log_parts(double f, double *low) {
    double h = 0.5 * f * f, high = bits_double(double_bits(f - h) & 0xffffffff00000000);
    *low = double_log_rest(f, h, (f - high) - h);
    return high;
}

/* 1 / ln(2), 1 / ln(10) and log10(2) are in two parts each. */
static inline double double_log2(double x) {
    double n, f = double_log_reduce(x, &n), low, high = double_log_parts(f, &low);
    double most = high * 1.44269504072144627571,
           rest = WIDE_FMA(low + high, 1.67517131648865118353e-10, low * 1.44269504072144627571);
    double sum = n + most;
    return wide_log_special(x, sum + (rest + ((n - sum) + most)));
}

static inline double double_log10(double x) {
    double n, f = double_log_reduce(x, &n), low, high = double_log_parts(f, &low);
    double most = high * 4.34294481878168880939e-01, whole = n * 3.01029995663611771306e-01;
    double rest = WIDE_FMA(low + high, 2.50829467116452752298e-11, n * 3.69423907715893078616e-13);
    rest = WIDE_FMA(low, 4.34294481878168880939e-01, rest);
    double sum = whole + most;
    return wide_log_special(x, sum + (rest + ((whole - sum) + most)));
}

/* ln((u + low) · 2^more), where low is at most what u was rounded by, and u at least 2^-1000. 1 / (1 + f) is near enough. */
static inline double double_log_of_sum(double u, double low, double more) {
    double n, exact = wide_log_reduce(u, &n);
    double scaled = low * wide_power(WIDE_ROUND - (n > 1000 ? 1000 : n));
    double f = exact + scaled, lost = scaled - (f - exact), h = 0.5 * f * f;
    double inverse = WIDE_FMA(f, WIDE_FMA(f, 0.9142426492398721, -1.080616526548544), 1.004995312976516);
    n += more;
    double rest = double_log_rest(f, h, WIDE_FMA(n, 1.90821492927058770002e-10, lost * inverse));
    return WIDE_FMA(n, 6.93147180369123816490e-01, f - (h - rest));
}

static inline double double_log1p(double x) {
    double u = 1 + x, low = x > 1 ? 1 - (u - x) : x - (u - 1);
    return x == 0 ? x : wide_log_special(u, double_log_of_sum(u, low, 0));
}

/* x = q · π/2 + r + *rest, and q in the low bits of *shifted. π/2 is in three parts, of which the first two have 33 bits: q times each of
 * them is exact while |x| < DOUBLE_TURNS. Callers compute greater arguments in another way. */
#define DOUBLE_TURNS 1e6
static inline double double_turn(double x, double *shifted, double *rest) {
    *shifted = WIDE_FMA(x, 0.63661977236758134, WIDE_ROUND);
    double q = *shifted - WIDE_ROUND;
    double first = x - q * 1.5707963267341256, second = q * 6.077100506303966e-11;
    double near = first - second, lost = (first - near) - second;
    double third = q * 2.0222662487959506e-21 - lost, r = near - third;
    *rest = (near - r) - third;
    return r;
}

static inline double double_sin_near(double r, double rest) {
    double z = r * r, cube = z * r;
    double p = 1.58969099521155010221e-10;
    p = WIDE_FMA(p, z, -2.50507602534068634195e-08);
    p = WIDE_FMA(p, z, 2.75573137070700676789e-06);
    p = WIDE_FMA(p, z, -1.98412698298579493134e-04);
    p = WIDE_FMA(p, z, 8.33333333332248946124e-03);
    return r - ((z * (0.5 * rest - cube * p) - rest) + cube * 1.66666666666666324348e-01);
}

static inline double double_cos_near(double r, double rest) {
    double z = r * r, half = 0.5 * z, most = 1 - half;
    double p = -1.13596475577881948265e-11;
    p = WIDE_FMA(p, z, 2.08757232129817482790e-09);
    p = WIDE_FMA(p, z, -2.75573143513906633035e-07);
    p = WIDE_FMA(p, z, 2.48015872894767294178e-05);
    p = WIDE_FMA(p, z, -1.38888888888741095749e-03);
    p = WIDE_FMA(p, z, 4.16666666666666019037e-02);
    return most + (((1 - most) - half) + (z * z * p - r * rest));
}

static inline double double_sin(double x) {
    double shifted, rest, r = double_turn(x, &shifted, &rest);
    uint64_t q = double_bits(shifted);
    double result = q & 1 ? double_cos_near(r, rest) : double_sin_near(r, rest);
    return x == 0 ? x : bits_double(double_bits(result) ^ (q & 2) << 62);
}

static inline double double_cos(double x) {
    double shifted, rest, r = double_turn(x, &shifted, &rest);
    uint64_t q = double_bits(shifted);
    double result = q & 1 ? double_sin_near(r, rest) : double_cos_near(r, rest);
    return bits_double(double_bits(result) ^ ((q + 1) & 2) << 62);
}

#define DOUBLE_OF_LIBM(name)                                                                                           \
    static inline double double_##name(double x) {                                                                     \
        return __builtin_##name(x);                                                                                    \
    }
#define DOUBLE_OF_LIBM_2(name)                                                                                         \
    static inline double double_##name(double x, double y) {                                                           \
        return __builtin_##name(x, y);                                                                                 \
    }
/* clang-format off */
DOUBLE_OF_LIBM(erf) DOUBLE_OF_LIBM(erfc) DOUBLE_OF_LIBM(tan) DOUBLE_OF_LIBM(asin) DOUBLE_OF_LIBM(acos)
DOUBLE_OF_LIBM(atan) DOUBLE_OF_LIBM(asinh) DOUBLE_OF_LIBM(acosh) DOUBLE_OF_LIBM(atanh)
DOUBLE_OF_LIBM_2(atan2) DOUBLE_OF_LIBM_2(hypot) DOUBLE_OF_LIBM_2(fmod)
    /* clang-format on */
