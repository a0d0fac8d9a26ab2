/* The formulas of complex numbers beside those of the C library, which follow Annex G: on a grid of ordinary, huge, tiny and special
 * values. CUDA's kernels are made of the same text. */
#include <complex.h>
#include <criterion/criterion.h>
#include <math.h>

#include "engine/device/formula.h"

static const double parts[] = {0.0,    -0.0,  1,        -1,        0.5,    -0.75,        3,       -2.5,
                               1e-8,   1e300, -1e300,   1e308,     1e-300, 5e-324,       -1e-310, 700.5,
                               -700.5, 1e-16, INFINITY, -INFINITY, NAN,    0x1.fffffep-1};
enum { PARTS = sizeof parts / sizeof *parts };

static bool near(double got, double want, double size) {
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return got == want;
    return fabs(got - want) <= 4 * 0x1p-52 * size + 4 * 0x1p-1074;
}

static void check(const char *name, double complex x, formula_c128 got, double complex want) {
    double size = fmax(fabs(creal(want)), fabs(cimag(want)));
    /* C leaves the sign of a zero or an infinity open where the other part, or the angle, is not a number. */
    bool open = isnan(creal(want)) || isnan(cimag(want)) || !isfinite(cimag(x));
    double re = open ? fabs(got.re) : got.re, im = open ? fabs(got.im) : got.im;
    double want_re = open ? fabs(creal(want)) : creal(want), want_im = open ? fabs(cimag(want)) : cimag(want);
    cr_expect(near(re, want_re, size) && near(im, want_im, size), "%s(%a %+ai): %a %+ai, not %a %+ai", name, creal(x),
              cimag(x), got.re, got.im, creal(want), cimag(want));
    if (!open && isfinite(size))
        cr_expect(signbit(got.re) == signbit(creal(want)) && signbit(got.im) == signbit(cimag(want)),
                  "%s(%a %+ai): the signs of %a %+ai", name, creal(x), cimag(x), got.re, got.im);
}

Test(formula_complex, functions_are_those_of_the_library) {
    for (int i = 0; i < PARTS; i++) {
        for (int j = 0; j < PARTS; j++) {
            double complex x = CMPLX(parts[i], parts[j]);
            formula_c128 own = formula_make_c128(parts[i], parts[j]);
            check("exp", x, formula_exp_c128(own), cexp(x));
            check("log", x, formula_log_c128(own), clog(x));
            check("sqrt", x, formula_sqrt_c128(own), csqrt(x));
            check("sinh", x, formula_sinh_c128(own), csinh(x));
            check("cosh", x, formula_cosh_c128(own), ccosh(x));
            check("tanh", x, formula_tanh_c128(own), ctanh(x));
            check("asinh", x, formula_asinh_c128(own), casinh(x));
            check("acosh", x, formula_acosh_c128(own), cacosh(x));
            check("atanh", x, formula_atanh_c128(own), catanh(x));
            check("sin", x, formula_sin_c128(own), csin(x));
            check("cos", x, formula_cos_c128(own), ccos(x));
            check("tan", x, formula_tan_c128(own), ctan(x));
            check("asin", x, formula_asin_c128(own), casin(x));
            check("acos", x, formula_acos_c128(own), cacos(x));
            check("atan", x, formula_atan_c128(own), catan(x));
            double length = cabs(x), angle = carg(x);
            cr_expect(near(formula_abs_c128(own), length, length), "abs(%a %+ai)", parts[i], parts[j]);
            cr_expect(near(formula_angle_c128(own), angle, fabs(angle)), "angle(%a %+ai)", parts[i], parts[j]);
        }
    }
}

/* The array API's special cases of functions that C's library has not for complex numbers, and ordinary numbers. */
Test(formula_complex, exponentials_and_logarithms_near_one) {
    static const struct {
        double re, im, expm1_re, expm1_im;
    } powers[] = {
        {0, 0, 0, 0},
        {-0.0, 0, 0, 0},
        {0, -0.0, 0, -0.0},
        {-0.0, -0.0, 0, -0.0},
        {1, INFINITY, NAN, NAN},
        {1, NAN, NAN, NAN},
        {INFINITY, 0, INFINITY, 0},
        {-INFINITY, 1, -1, 0},
        {-INFINITY, -1, -1, -0.0},
        {INFINITY, 2, -INFINITY, INFINITY},
        {-INFINITY, INFINITY, -1, 0},
        {INFINITY, INFINITY, INFINITY, NAN},
        {-INFINITY, NAN, -1, 0},
        {INFINITY, NAN, INFINITY, NAN},
        {NAN, 0, NAN, 0},
        {NAN, 1, NAN, NAN},
        {NAN, NAN, NAN, NAN},
    };
    for (size_t i = 0; i < sizeof powers / sizeof *powers; i++)
        check("expm1", CMPLX(powers[i].re, powers[i].im),
              formula_expm1_c128(formula_make_c128(powers[i].re, powers[i].im)),
              CMPLX(powers[i].expm1_re, powers[i].expm1_im));
    for (int i = 0; i < PARTS; i++) {
        for (int j = 0; j < PARTS; j++) {
            double complex x = CMPLX(parts[i], parts[j]);
            formula_c128 own = formula_make_c128(parts[i], parts[j]);
            bool near_one = fabs(parts[i]) < 0.6 && fabs(parts[j]) < 0.6 && parts[i] != 0;
            check("log1p", x, formula_log1p_c128(own),
                  parts[j] == 0 && parts[i] > -1 ? CMPLX(log1p(parts[i]), parts[j])
                  : near_one                     ? 2 * catanh(x / (2 + x))
                                                 : clog(CMPLX(1 + parts[i], parts[j])));
            double complex natural = clog(x);
            check("log2", x, formula_log2_c128(own), CMPLX(creal(natural) / log(2), cimag(natural) / log(2)));
            check("log10", x, formula_log10_c128(own), CMPLX(creal(natural) / log(10), cimag(natural) / log(10)));
            if (isfinite(parts[i]) && isfinite(parts[j]) && fabs(parts[i]) < 700 && parts[i] != 0 &&
                fabs(parts[j]) < 1e3)
                check("expm1", x, formula_expm1_c128(own),
                      parts[j] == 0 ? CMPLX(expm1(parts[i]), parts[j]) : 2 * cexp(x / 2) * csinh(x / 2));
            formula_c128 round = formula_round_c128(own);
            check("round", x, round, CMPLX(rint(parts[i]), rint(parts[j])));
        }
    }
}

/* sign: of length 1, or not a number. Powers: those of the library, but for whole ones, which are exact where products are. */
Test(formula_complex, signs_and_powers) {
    for (int i = 0; i < PARTS; i++) {
        for (int j = 0; j < PARTS; j++) {
            formula_c128 x = formula_make_c128(parts[i], parts[j]), sign = formula_sign_c128(x);
            bool none = isnan(x.re) || isnan(x.im) || (isinf(x.re) && isinf(x.im));
            double length = hypot(sign.re, sign.im), size = formula_abs_c128(x);
            bool right = none ? isnan(length) : near(length, x.re != 0 || x.im != 0, 1);
            if (isfinite(size))
                right = right && near(sign.re * size, x.re, size) && near(sign.im * size, x.im, size);
            else if (!none)
                right = right && (isinf(x.re) ? sign.re == copysign(1, x.re) : sign.re == 0);
            cr_expect(right, "sign(%a %+ai): %a %+ai", x.re, x.im, sign.re, sign.im);
        }
    }
    formula_c128 x = formula_make_c128(3, -2), i = formula_make_c128(0, 1);
    formula_c128 cube = formula_pow_c128(x, formula_make_c128(3, 0));
    cr_expect(cube.re == -9 && cube.im == -46);
    formula_c128 turned = formula_pow_c128(i, formula_make_c128(-1, 0));
    cr_expect(turned.re == 0 && turned.im == -1);
    formula_c128 one = formula_pow_c128(formula_make_c128(0, 0), formula_make_c128(0, 0));
    cr_expect(one.re == 1 && one.im == 0);
    formula_c128 nothing = formula_pow_c128(formula_make_c128(0, 0), formula_make_c128(0.5, 7));
    cr_expect(nothing.re == 0 && nothing.im == 0);
    formula_c128 undefined = formula_pow_c128(formula_make_c128(0, 0), i);
    cr_expect(isnan(undefined.re) && isnan(undefined.im));
    double complex want = cpow(CMPLX(3, -2), CMPLX(0.75, 1.5));
    formula_c128 got = formula_pow_c128(x, formula_make_c128(0.75, 1.5));
    cr_expect(near(got.re, creal(want), 4 * cabs(want)) && near(got.im, cimag(want), 4 * cabs(want)));
}

Test(formula_complex, functions_of_c64_are_within_a_unit) {
    for (int i = 0; i < PARTS; i++) {
        for (int j = 0; j < PARTS; j++) {
            float re = (float)parts[i], im = (float)parts[j];
            float length = cabsf(CMPLXF(re, im)), got = formula_abs_c64(formula_make_c64(re, im));
            cr_expect(isnan(length) ? isnan(got) : got == length || fabsf(got - length) <= 0x1p-23F * length,
                      "abs(%a %+ai): %a, not %a", (double)re, (double)im, (double)got, (double)length);
        }
    }
}

/* Ordinary numbers: a quotient times the divisor is the dividend. Zeros and infinities as NumPy has them. */
Test(formula_complex, quotients) {
    for (int i = 0; i < PARTS; i++) {
        for (int j = 0; j < PARTS; j++) {
            if (!isfinite(parts[i]) || !isfinite(parts[j]) || hypot(parts[i], parts[j]) < 1e-20 ||
                hypot(parts[i], parts[j]) > 1e20)
                continue;
            formula_c128 a = formula_make_c128(1.25, -3), b = formula_make_c128(parts[i], parts[j]);
            formula_c128 back = formula_multiply_c128(formula_divide_c128(a, b), b);
            cr_expect(near(back.re, a.re, 6) && near(back.im, a.im, 6), "by %a %+ai", parts[i], parts[j]);
        }
    }
    formula_c128 by_zero = formula_divide_c128(formula_make_c128(1, 0), formula_make_c128(0, 0));
    cr_expect(by_zero.re == INFINITY && isnan(by_zero.im));
    formula_c128 by_infinity = formula_divide_c128(formula_make_c128(1, 1), formula_make_c128(INFINITY, 0));
    cr_expect(by_infinity.re == 0 && by_infinity.im == 0);
    formula_c128 huge = formula_divide_c128(formula_make_c128(1e300, 1e300), formula_make_c128(1e300, -1e300));
    cr_expect(huge.re == 0 && huge.im == 1);
}
