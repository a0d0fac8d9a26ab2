/* Functions of f64, written as those of vector_math.h, which includes this, so that loops over them vectorise at each level. Errors are below 2
 * units in the last place, tanh's below 2.5. The greatest that were found among millions of arguments, with FMA: log, log2, log10, log1p, sin,
 * cos, atan, asinh, acosh and atanh 0.9; exp, exp2 and tan 1; acos, atan2 and hypot 1.3; erf, sinh and cosh 1.4; pow 1.5; asin 1.7; expm1 and
 * erfc 1.9. Without FMA some have 0.5 more, and erf, erfc and pow are libm's. NaN, infinities, zeros and subnormal numbers come out as
 * libm has them. With AVX-512 some have rows of their own: vector_avx512_double.h. */
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
    return x != x || __builtin_fabs(x) < 0x1p-60 ? x : result; /* half of x might be lost */
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

/* (over + over_low) / (under + under_low) for normal results: the quotient, and in *low what it is less than that. Without FMA *low has only
 * what the two low parts do, for which an inverse is near enough that is made of the exponent and one step of Newton's iteration; the quotient
 * has one rounding then. */
static inline double double_quotient(double over, double over_low, double under, double under_low, double *low) {
#if defined(__FMA__) || defined(__aarch64__)
    double inverse = 1 / under, q = over * inverse;
    *low = __builtin_fma(-q, under_low, over_low - double_product_rest(q, under, over)) * inverse;
#else
    double near = bits_double(0x7fde6f0000000000 - double_bits(under));
    double q = over / under, inverse = near * (2 - under * near);
    *low = (over_low - q * under_low) * inverse;
#endif
    return q;
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

/* sin(r + rest) and cos(r + rest) with what they are rounded by. The coefficients are those of FreeBSD's msun, k_sin.c and k_cos.c. */
static inline double double_sin_parts(double r, double rest, double *low) {
    double z = r * r, cube = z * r;
    double p = 1.58969099521155010221e-10;
    p = WIDE_FMA(p, z, -2.50507602534068634195e-08);
    p = WIDE_FMA(p, z, 2.75573137070700676789e-06);
    p = WIDE_FMA(p, z, -1.98412698298579493134e-04);
    p = WIDE_FMA(p, z, 8.33333333332248946124e-03);
    double less = (z * (0.5 * rest - cube * p) - rest) + cube * 1.66666666666666324348e-01, high = r - less;
    *low = (r - high) - less;
    return high;
}

static inline double double_cos_parts(double r, double rest, double *low) {
    double z = r * r, half = 0.5 * z, most = 1 - half;
    double p = -1.13596475577881948265e-11;
    p = WIDE_FMA(p, z, 2.08757232129817482790e-09);
    p = WIDE_FMA(p, z, -2.75573143513906633035e-07);
    p = WIDE_FMA(p, z, 2.48015872894767294178e-05);
    p = WIDE_FMA(p, z, -1.38888888888741095749e-03);
    p = WIDE_FMA(p, z, 4.16666666666666019037e-02);
    double more = ((1 - most) - half) + (z * z * p - r * rest), high = most + more;
    *low = (most - high) + more;
    return high;
}

static inline double double_sin_near(double r, double rest) {
    double low;
    return double_sin_parts(r, rest, &low);
}

static inline double double_cos_near(double r, double rest) {
    double low;
    return double_cos_parts(r, rest, &low);
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

static inline double double_tan(double x) {
    double shifted, rest, r = double_turn(x, &shifted, &rest), sin_low, cos_low;
    double sin = double_sin_parts(r, rest, &sin_low), cos = double_cos_parts(r, rest, &cos_low);
    bool odd = double_bits(shifted) & 1;
    double over = odd ? -cos : sin, over_low = odd ? -cos_low : sin_low;
    double under = odd ? sin : cos, under_low = odd ? sin_low : cos_low;
    double lost, q = double_quotient(over, over_low, under, under_low, &lost);
    return x == 0 ? x : q + lost;
}

/* arcsin(s) = s + s · p, for s = |x|, or if that is above 1/2 for s = √z = √((1 - |x|) / 2), as arccos(x) = 2 arcsin(s): p, and what s
 * was rounded by. That matters for s above 1/4, where 3 - 4s is near enough to 1 / 2s. */
static inline double double_asin_near(double a, double *s, double *lost) {
    bool far = a > 0.5;
    double z = far ? 0.5 * (1 - a) : a * a;
    *s = far ? __builtin_sqrt(z) : a;
    *lost = -double_product_rest(*s, *s, z) * WIDE_FMA(*s, -4.0, 3.0);
    double p = 0.031912187113470845;
    p = WIDE_FMA(p, z, -0.016224133354533925);
    p = WIDE_FMA(p, z, 0.01952819040788433);
    p = WIDE_FMA(p, z, 0.0065280018758410675);
    p = WIDE_FMA(p, z, 0.01216920571244654);
    p = WIDE_FMA(p, z, 0.013885236330905664);
    p = WIDE_FMA(p, z, 0.017359704679101626);
    p = WIDE_FMA(p, z, 0.022371758055878783);
    p = WIDE_FMA(p, z, 0.030381959136741975);
    p = WIDE_FMA(p, z, 0.044642856828333854);
    p = WIDE_FMA(p, z, 0.07500000000337008);
    p = WIDE_FMA(p, z, 0.16666666666665408);
    return p * z;
}

static inline double double_asin(double x) {
    double a = __builtin_fabs(x), s, lost, p = double_asin_near(a, &s, &lost);
    double near = WIDE_FMA(s, p, s);
    double far = (1.5707963267948966 - 2 * s) - 2 * (WIDE_FMA(s, p, lost) - 3.061616997868383e-17);
    return __builtin_copysign(a > 0.5 ? far : near, x);
}

static inline double double_acos(double x) {
    double a = __builtin_fabs(x), s, lost, p = double_asin_near(a, &s, &lost);
    double near = 1.5707963267948966 - (x - WIDE_FMA(-x, p, 6.123233995736766e-17));
    double angle = WIDE_FMA(s, p, s);
    double far = x > 0 ? 2 * angle : 3.1415926535897931 - 2 * (angle - 6.123233995736766e-17);
    return a > 0.5 ? far : near;
}

/* The angle of less / more, 0 <= less <= more, more > 0, in the octant that the others say: ± arctan(t) from a multiple of π/4, where t is
 * less / more, or (less - more) / (less + more) if that is nearer to 0. What t and its terms were rounded by is added to the angle. */
static inline double double_angle(double less, double more, bool swapped, bool negative) {
    bool high = less > more * 0.41421356237309505;
    double with_less = high ? less : 0, with_more = high ? more : 0; /* so that there is one quotient for both cases */
    double over = less - with_more, over_lost = less - (with_more + over);
    double under = more + with_less, under_lost = (more - under) + with_less;
    double lost, t = double_quotient(over, over_lost, under, under_lost, &lost), z = t * t;
    double p = -0.017922251372569364;
    p = WIDE_FMA(p, z, 0.03807829426990485);
    p = WIDE_FMA(p, z, -0.05039844409143445);
    p = WIDE_FMA(p, z, 0.058480086587419385);
    p = WIDE_FMA(p, z, -0.06663120346479602);
    p = WIDE_FMA(p, z, 0.07692061633615364);
    p = WIDE_FMA(p, z, -0.09090897836238093);
    p = WIDE_FMA(p, z, 0.11111110786129923);
    p = WIDE_FMA(p, z, -0.14285714280248338);
    p = WIDE_FMA(p, z, 0.1999999999995408);
    p = WIDE_FMA(p, z, -0.333333333333332);
    double whole = negative ? 3.1415926535897931 : 0, quarter = negative ? 2.3561944901923448 : 0.78539816339744831;
    double base = high ? quarter : swapped ? 1.5707963267948966 : whole;
    double low = WIDE_FMA(p * z, t, lost);
    t = swapped ? -t : t;
    low = swapped ? -low : low;
    t = negative ? -t : t;
    low = negative ? -low : low;
    return base + (t + WIDE_FMA(base, 3.8981718325193755e-17, low));
}

static inline double double_atan(double x) {
    double magnitude = __builtin_fabs(x), a = magnitude > 0x1p1000 ? 0x1p1000 : magnitude;
    double angle = double_angle(a > 1 ? 1 : a, a > 1 ? a : 1, a > 1, false);
    return x != x ? x : __builtin_copysign(angle, x);
}

/* Numbers are scaled so that neither their sum nor its inverse overflows; infinite ones are as if they were 1 beside 0. */
static inline double double_atan2(double y, double x) {
    double a = __builtin_fabs(y), b = __builtin_fabs(x), infinity = __builtin_inf();
    double more = a > b ? a : b, less = a > b ? b : a;
    double scale = more > 0x1p1000 ? 0x1p-30 : more < 0x1p-900 ? 0x1p120 : 1;
    less = more == infinity ? (less == infinity ? 1 : 0) : less * scale;
    more = more == infinity || more == 0 ? 1 : more * scale;
    double angle = double_angle(less, more, a > b, __builtin_copysign(1.0, x) < 0);
    return x != x || y != y ? x + y : __builtin_copysign(angle, y);
}

/* Where x² may overflow ln(2|x|) is the result; near 0 it is x. */
static inline double double_asinh(double x) {
    double magnitude = __builtin_fabs(x);
    bool great = magnitude > 0x1p500;
    double a = great ? 1 : magnitude, square = a * a, sum = 1 + square;
    double sum_lost = (a > 1 ? (square - sum) + 1 : (1 - sum) + square) + double_product_rest(a, a, square);
    double root = __builtin_sqrt(sum), root_lost = (sum_lost - double_product_rest(root, root, sum)) * (0.5 / root);
    double u = root + a, low = ((root - u) + a) + root_lost;
    double result = double_log_of_sum(great ? magnitude : u, great ? 0 : low, great ? 1 : 0);
    return magnitude < 0x1p-28 || !(magnitude < __builtin_inf()) ? x : __builtin_copysign(result, x);
}

static inline double double_acosh(double x) {
    bool great = x > 0x1p500;
    double a = great ? 2 : x, less = a - 1, more = a + 1, more_lost = (a - more) + 1, product = less * more;
    double lost = WIDE_FMA(less, more_lost, double_product_rest(less, more, product));
    double root = __builtin_sqrt(product), divisor = root == 0 ? 1 : root;
    double root_lost = (lost - double_product_rest(root, root, product)) * (0.5 / divisor);
    double u = a + root, low = ((a - u) + root) + root_lost;
    double result = double_log_of_sum(great ? x : u, great ? 0 : low, great ? 1 : 0);
    return x < 1 ? __builtin_nan("") : x < __builtin_inf() ? result : x;
}

/* Half of ln((1 + |x|) / (1 - |x|)). */
static inline double double_atanh(double x) {
    double a = __builtin_fabs(x), over = 1 + a, over_lost = (1 - over) + a, under = 1 - a, under_lost = (1 - under) - a;
    double inverse = 1 / (a < 1 ? under : 1), q = over * inverse;
    double rest = WIDE_FMA(-q, under_lost, over_lost - double_product_rest(q, under, over));
    double result = 0.5 * double_log_of_sum(q, rest * inverse, 0);
    result = a == 1 ? __builtin_inf() : result;
    return a < 0x1p-28 ? x : a <= 1 ? __builtin_copysign(result, x) : __builtin_nan("");
}

static inline double double_hypot(double a, double b) {
    double x = __builtin_fabs(a), y = __builtin_fabs(b), infinity = __builtin_inf(), greater = x > y ? x : y;
    double scale = greater > 0x1p500 ? 0x1p-600 : greater < 0x1p-500 ? 0x1p600 : 1;
    double back = greater > 0x1p500 ? 0x1p600 : greater < 0x1p-500 ? 0x1p-600 : 1;
    x *= scale;
    y *= scale;
    double result = __builtin_sqrt(x * x + y * y) * back;
    return x == infinity || y == infinity ? infinity : result;
}

#if defined(__FMA__) || defined(__aarch64__)
/* erfc(a) = e^(-a²) · p / (1 + a) for 0 <= a <= 27.3, where p is smooth in u = (a - 4) / (a + 4) and a polynomial there. Both quotients are
 * made of one. What a², sums and the quotient were rounded by is added again. Returns the result without its power of two, which is in
 * *shifted. */
static inline double double_erfc_part(double a, double *shifted) {
    double square = a * a, square_low = double_product_rest(a, a, square);
    *shifted = WIDE_FMA(square, -1.4426950408889634, WIDE_ROUND);
    double n = *shifted - WIDE_ROUND, near = WIDE_FMA(n, -6.93147180369123816490e-01, -square);
    double r = WIDE_FMA(n, -1.90821492927058770002e-10, near);
    double r_low = WIDE_FMA(n, -1.90821492927058770002e-10, near - r) - square_low;
    double e = double_expm1_near(r);
    e = WIDE_FMA(r_low, 1 + e, e);
    double under = 1 + a, under_low = a > 1 ? (a - under) + 1 : (1 - under) + a, more = a + 4;
    double inverse = 1 / (under * more), inverse_under = inverse * more, u = (a - 4) * (inverse * under);
    double p = -6.505362408628066e-10;
    p = WIDE_FMA(p, u, -5.974469557928949e-09);
    p = WIDE_FMA(p, u, -5.552191382725333e-09);
    p = WIDE_FMA(p, u, 4.9912724560262706e-08);
    p = WIDE_FMA(p, u, 4.475015416922291e-08);
    p = WIDE_FMA(p, u, -3.6910288067359274e-07);
    p = WIDE_FMA(p, u, 8.09993149660387e-09);
    p = WIDE_FMA(p, u, 2.654208083644344e-06);
    p = WIDE_FMA(p, u, -4.1398953730632175e-06);
    p = WIDE_FMA(p, u, -1.3152992829396784e-05);
    p = WIDE_FMA(p, u, 6.403304789625837e-05);
    p = WIDE_FMA(p, u, -6.0136227236064704e-05);
    p = WIDE_FMA(p, u, -0.0003897675241013834);
    p = WIDE_FMA(p, u, 0.0021164214842079566);
    p = WIDE_FMA(p, u, -0.00606873521779057);
    p = WIDE_FMA(p, u, 0.012161784763961332);
    p = WIDE_FMA(p, u, -0.017515654646478144);
    p = WIDE_FMA(p, u, 0.01531250967863756);
    p = WIDE_FMA(p, u, 0.003962055681282076);
    p = WIDE_FMA(p, u, -0.04808038122128929);
    p = WIDE_FMA(p, u, 0.11704966551044267);
    p = WIDE_FMA(p, u, -0.19934458280036724);
    double v = p * u, first = 0.6849972881253069 + v;
    double first_low = ((0.6849972881253069 - first) + v) + 3.5376167587690975e-17;
    double second = first * e, over = first + second;
    double over_low =
        WIDE_FMA(first_low, e, first_low) + double_product_rest(first, e, second) + ((first - over) + second);
    double q = over * inverse_under;
    double lost = WIDE_FMA(-q, under_low, over_low - double_product_rest(q, under, over));
    return WIDE_FMA(lost, inverse_under, q);
}

static inline double double_erfc(double x) {
    double magnitude = __builtin_fabs(x), a = magnitude > 27.3 ? 27.3 : magnitude, shifted;
    double part = double_erfc_part(a, &shifted), result = double_scale(part, shifted);
    return x < 0 ? 2 - result : result;
}

/* x + x · p(x²), or 1 - erfc(|x|). */
static inline double double_erf(double x) {
    double magnitude = __builtin_fabs(x), a = magnitude > 6 ? 6 : magnitude, z = a * a, shifted;
    double p = -7.801190384553536e-10;
    p = WIDE_FMA(p, z, 1.3722976042030932e-08);
    p = WIDE_FMA(p, z, -1.6209175573543467e-07);
    p = WIDE_FMA(p, z, 1.644751758884308e-06);
    p = WIDE_FMA(p, z, -1.4924744651760684e-05);
    p = WIDE_FMA(p, z, 0.00012055295319620248);
    p = WIDE_FMA(p, z, -0.0008548325989656709);
    p = WIDE_FMA(p, z, 0.0052239776074223645);
    p = WIDE_FMA(p, z, -0.026866170643276045);
    p = WIDE_FMA(p, z, 0.11283791670945252);
    p = WIDE_FMA(p, z, -0.3761263890318355);
    p = WIDE_FMA(p, z, 0.12837916709551256);
    double near = WIDE_FMA(p, a, a), part = double_erfc_part(a, &shifted);
    double far = 1 - part * wide_power(shifted);
    return x != x ? x : __builtin_copysign(a < 1 ? near : far, x);
}
#else /* the rests of products take longer than libm's branches */
static inline double double_erfc(double x) {
    return __builtin_erfc(x);
}

static inline double double_erf(double x) {
    return __builtin_erf(x);
}
#endif

#if defined(__FMA__) || defined(__aarch64__)
/* ln(x) = 2 artanh(s), s = f / (2 + f), to about 2^-64 of it, as a sum of the result and *low: s and the first terms of the series, 2s + 2s · s²/3,
 * are such sums as well. */
static inline double double_log_sum(double x, double *low) {
    double n, f = double_log_reduce(x, &n), under = 2 + f, s_low;
    double s = double_quotient(f, 0, under, (2 - under) + f, &s_low), z = s * s;
    double z_low = WIDE_FMA(2 * s, s_low, double_product_rest(s, s, z));
    double p = 0.05862065707081608;
    p = WIDE_FMA(p, z, 0.0585306863226072);
    p = WIDE_FMA(p, z, 0.06667404370245546);
    p = WIDE_FMA(p, z, 0.07692297440288062);
    p = WIDE_FMA(p, z, 0.09090909168122181);
    p = WIDE_FMA(p, z, 0.11111111110825836);
    p = WIDE_FMA(p, z, 0.14285714285714687);
    p = WIDE_FMA(p, z, 0.2);
    const double third = 0.33333333333333331, third_low = 1.850371707708594e-17;
    double w = z * third, w_low = WIDE_FMA(z, third_low, z_low * third) + double_product_rest(z, third, w);
    w_low = WIDE_FMA(z * z, p, w_low);
    double first = 2 * s, second = first * w;
    double second_low =
        WIDE_FMA(first, w_low, double_product_rest(first, w, second)) + WIDE_FMA(2 * s_low, w, 2 * s_low);
    double whole = n * 6.93147180369123816490e-01, sum = whole + first, total = sum + second;
    double rest = ((whole - sum) + first) + WIDE_FMA(n, 1.90821492927058770002e-10, second_low);
    rest += (sum - total) + second;
    double result = total + rest;
    *low = (total - result) + rest;
    return wide_log_special(x, result);
}

/* sign(x) · |x|^y = e^(y · ln|x|), with C's special cases. */
static inline double double_pow(double x, double y) {
    double magnitude = __builtin_fabs(x), low, log = double_log_sum(magnitude, &low);
    double exponent = magnitude == 1 ? 0 : y * log,
           exponent_low = WIDE_FMA(y, low, double_product_rest(y, log, exponent));
    bool inside = __builtin_fabs(exponent) < 800;
    exponent_low = inside && magnitude != 1 ? exponent_low : 0;
    exponent = exponent < -746 ? -746 : exponent > 710 ? 710 : exponent;
    double shifted, r = double_exp_reduce(exponent, &shifted), e = double_expm1_near(r);
    double result = double_scale(1 + WIDE_FMA(exponent_low, 1 + e, e), shifted);
    bool whole = __builtin_rint(y) == y, odd = whole && __builtin_rint(y * 0.5) != y * 0.5;
    result = odd ? __builtin_copysign(result, x) : result;
    result = x < 0 && !whole && magnitude < __builtin_inf() ? __builtin_nan("") : result;
    result = x != x || y != y ? x + y : result;
    return y == 0 || x == 1 ? 1 : result;
}
#else /* as erf */
static inline double double_pow(double x, double y) {
    return __builtin_pow(x, y);
}
#endif

static inline double double_fmod(double x, double y) {
    return __builtin_fmod(x, y);
}
