/* Circular and hyperbolic functions of complex numbers, their inverses, and what else is made of real functions of both parts: part of
 * formula_complex.h, whose words hold for them, too.
 *
 * Hyperbolic functions and the arcsine are computed; the others are these on a plane that is turned by a right angle, iz = -im + re · i. */
#pragma once

#define FORMULA_PI 3.1415926535897932
#define FORMULA_LN_2 0.69314718055994531
#define FORMULA_LN_10 2.3025850929940457

FORMULA_FUNCTION bool formula_is_finite(double x) {
    return x - x == 0;
}

FORMULA_FUNCTION formula_c128 formula_turned(formula_c128 a) {
    return formula_make_c128(-a.im, a.re);
}
FORMULA_FUNCTION formula_c128 formula_turned_back(formula_c128 a) {
    return formula_make_c128(a.im, -a.re);
}

/* ---- hyperbolic and circular functions ---- */

/* Where e^|re| may be beyond f64 and the product is not, both functions are e^|re| / 2, which is taken in two steps. */
FORMULA_FUNCTION formula_c128 formula_sinh_c128(formula_c128 a) {
    if (a.im == 0) {
        return formula_make_c128(sinh(a.re), a.im);
    }
    if (!formula_is_finite(a.im)) {
        const double none = a.im - a.im;
        return formula_make_c128(a.re == 0 || formula_is_infinite(a.re) ? a.re : none, none);
    }
    if (fabs(a.re) > 700) {
        const double root = exp(fabs(a.re) * 0.5), half = root * 0.5;
        return formula_make_c128(copysign(half, a.re) * cos(a.im) * root, half * sin(a.im) * root);
    }
    return formula_make_c128(sinh(a.re) * cos(a.im), cosh(a.re) * sin(a.im));
}

FORMULA_FUNCTION formula_c128 formula_cosh_c128(formula_c128 a) {
    if (a.im == 0) {
        return formula_make_c128(cosh(a.re), copysign(1.0, a.re) * a.im);
    }
    if (!formula_is_finite(a.im)) {
        const double none = a.im - a.im;
        return formula_make_c128(formula_is_infinite(a.re) ? fabs(a.re) : none, a.re == 0 ? a.re : none);
    }
    if (fabs(a.re) > 700) {
        const double root = exp(fabs(a.re) * 0.5), half = root * 0.5;
        return formula_make_c128(half * cos(a.im) * root, copysign(half, a.re) * sin(a.im) * root);
    }
    return formula_make_c128(cosh(a.re) * cos(a.im), sinh(a.re) * sin(a.im));
}

/* After W. Kahan, "Branch cuts for complex elementary functions" (1987), by the tangent of im: nothing cancels. Far from 0, re is 1. */
FORMULA_FUNCTION formula_c128 formula_tanh_c128(formula_c128 a) {
    if (formula_is_infinite(a.re)) {
        return formula_make_c128(copysign(1.0, a.re),
                                 copysign(0.0, formula_is_finite(a.im) ? sin(a.im) * cos(a.im) : a.im));
    }
    if (a.im == 0) {
        return formula_make_c128(tanh(a.re), a.im);
    }
    if (!formula_is_finite(a.im)) {
        const double none = a.im - a.im;
        return formula_make_c128(a.re == 0 ? a.re : none, none);
    }
    if (fabs(a.re) > 22) {
        return formula_make_c128(copysign(1.0, a.re), 4 * sin(a.im) * cos(a.im) * exp(-2 * fabs(a.re)));
    }
    const double t = tan(a.im), s = sinh(a.re), slope = 1 + t * t, divisor = 1 + slope * s * s;
    return formula_make_c128(slope * cosh(a.re) * s / divisor, t / divisor);
}

FORMULA_FUNCTION formula_c128 formula_sin_c128(formula_c128 a) {
    return formula_turned_back(formula_sinh_c128(formula_turned(a)));
}
FORMULA_FUNCTION formula_c128 formula_cos_c128(formula_c128 a) {
    return formula_cosh_c128(formula_turned(a));
}
FORMULA_FUNCTION formula_c128 formula_tan_c128(formula_c128 a) {
    return formula_turned_back(formula_tanh_c128(formula_turned(a)));
}

/* ---- their inverses ---- */

/* After Kahan, too. With p = √(1 - z) and q = √(1 + z), which lie on opposite sides of the real axis, the parts are sums of two terms of one
 * sign. Far from 0, im is the logarithm of 2 |z|. `cosine`: the real part is that of the arccosine, which is π/2 less the arcsine;
 * the imaginary part has then the other sign. */
FORMULA_FUNCTION formula_c128 formula_arc(formula_c128 a, bool cosine) {
    const double sign = cosine ? -1 : 1;
    if (formula_is_infinite(a.re) || formula_is_infinite(a.im)) {
        return formula_make_c128(cosine ? atan2(fabs(a.im), a.re) : copysign(atan2(fabs(a.re), fabs(a.im)), a.re),
                                 sign * copysign(formula_is_infinite(a.re) ? a.re : a.im, a.im));
    }
    if (a.re != a.re || a.im != a.im) {
        const double none = a.re + a.im;
        return formula_make_c128(a.re != 0 ? none : cosine ? FORMULA_PI / 2 : a.re, none);
    }
    if (fabs(a.re) > 0x1p500 || fabs(a.im) > 0x1p500) {
        const double length = formula_log_c128(a).re + FORMULA_LN_2;
        return formula_make_c128(cosine ? atan2(fabs(a.im), a.re) : atan2(a.re, fabs(a.im)),
                                 sign * copysign(length, a.im));
    }
    const formula_c128 p = formula_sqrt_c128(formula_make_c128(1 - a.re, -a.im));
    const formula_c128 q = formula_sqrt_c128(formula_make_c128(1 + a.re, a.im));
    const double re = cosine ? 2 * atan2(p.re, q.re) : atan2(a.re, p.re * q.re - p.im * q.im);
    return formula_make_c128(re, sign * asinh(p.re * q.im - p.im * q.re));
}

FORMULA_FUNCTION formula_c128 formula_asin_c128(formula_c128 a) {
    return formula_arc(a, false);
}
FORMULA_FUNCTION formula_c128 formula_acos_c128(formula_c128 a) {
    return formula_arc(a, true);
}
FORMULA_FUNCTION formula_c128 formula_asinh_c128(formula_c128 a) {
    return formula_turned_back(formula_asin_c128(formula_turned(a)));
}
FORMULA_FUNCTION formula_c128 formula_acosh_c128(formula_c128 a) {
    const formula_c128 arc = formula_arc(a, true);
    return formula_make_c128(fabs(arc.im), copysign(arc.re, a.im));
}

/* With x = |re|: log1p(4x / ((1 - x)² + im²)) / 4 and the angle of (1 - x)(1 + x) - im² + 2 im · i, halved. */
FORMULA_FUNCTION formula_c128 formula_atanh_c128(formula_c128 a) {
    const double x = fabs(a.re), y = fabs(a.im);
    if (formula_is_infinite(a.im) || (formula_is_infinite(a.re) && y == y)) {
        return formula_make_c128(copysign(0.0, a.re), copysign(FORMULA_PI / 2, a.im));
    }
    if (x != x || y != y) {
        const double none = x + y;
        return formula_make_c128(a.re == 0 || formula_is_infinite(a.re) ? copysign(0.0, a.re) : none, none);
    }
    if (x > 0x1p500 || y > 0x1p500) {
        const double length = hypot(x * 0x1p-10, y * 0x1p-10); /* re is that of 1 / z */
        return formula_make_c128(a.re * 0x1p-10 / length / length * 0x1p-10, copysign(FORMULA_PI / 2, a.im));
    }
    const double apart = 1 - x, re = x == 1 && y < 0x1p-200 ? 0.5 * (FORMULA_LN_2 - log(y))
                                                            : 0.25 * log1p(4 * x / (apart * apart + y * y));
    return formula_make_c128(copysign(re, a.re), 0.5 * atan2(2 * a.im, apart * (1 + x) - y * y));
}

FORMULA_FUNCTION formula_c128 formula_atan_c128(formula_c128 a) {
    return formula_turned_back(formula_atanh_c128(formula_turned(a)));
}

/* ---- exponentials and logarithms ---- */

/* e^re cos im - 1 is (e^re - 1) cos im - 2 sin²(im/2). The array API has 0, not -0, as the real part of expm1(-0 + 0i). */
FORMULA_FUNCTION formula_c128 formula_expm1_c128(formula_c128 a) {
    if (a.im == 0) {
        return formula_make_c128(a.re == 0 ? 0 : expm1(a.re), a.im);
    }
    if (a.re < 0 && formula_is_infinite(a.re)) {
        return formula_make_c128(-1, formula_is_finite(a.im) ? copysign(0.0, sin(a.im)) : 0);
    }
    if (!formula_is_finite(a.im) || a.re > 700) {
        const formula_c128 power = formula_exp_c128(a);
        return formula_make_c128(power.re - 1, power.im);
    }
    const double sine = sin(a.im * 0.5);
    return formula_make_c128(expm1(a.re) * cos(a.im) - 2 * sine * sine, exp(a.re) * sin(a.im));
}

/* |1 + z|² is 1 + re (2 + re) + im². */
FORMULA_FUNCTION formula_c128 formula_log1p_c128(formula_c128 a) {
    if (fabs(a.re) < 0.5 && fabs(a.im) < 0.5) {
        return formula_make_c128(a.im == 0 ? log1p(a.re) : 0.5 * log1p(a.re * (2 + a.re) + a.im * a.im),
                                 atan2(a.im, 1 + a.re));
    }
    return formula_log_c128(formula_make_c128(1 + a.re, a.im));
}

FORMULA_FUNCTION formula_c128 formula_log2_c128(formula_c128 a) {
    const formula_c128 power = formula_log_c128(a);
    return formula_make_c128(a.im == 0 ? log2(fabs(a.re)) : power.re / FORMULA_LN_2, power.im / FORMULA_LN_2);
}
FORMULA_FUNCTION formula_c128 formula_log10_c128(formula_c128 a) {
    const formula_c128 power = formula_log_c128(a);
    return formula_make_c128(a.im == 0 ? log10(fabs(a.re)) : power.re / FORMULA_LN_10, power.im / FORMULA_LN_10);
}
