/* The CPU device's rows of functions of complex numbers, at each vector level that this processor has: they are the formulas
 * (engine/device/formula_complex.h) for special values and at the ends of the range in which they compute in another way, and within some units
 * of the exact value for others. */
#include <complex.h>
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "engine/cpu/kernels.h"
#include "engine/device/formula.h"

typedef long double complex wide;

static wide exact_expm1(wide x) {
    return fabsl(creall(x)) < 1 && fabsl(cimagl(x)) < 1 ? 2 * cexpl(x / 2) * csinhl(x / 2) : cexpl(x) - 1;
}
static wide exact_log1p(wide x) {
    return cabsl(x) < 0.5L ? 2 * catanhl(x / (2 + x)) : clogl(1 + x);
}
static wide exact_log2(wide x) {
    return clogl(x) / logl(2);
}
static wide exact_log10(wide x) {
    return clogl(x) / logl(10);
}
static wide exact_sign(wide x) {
    return x / cabsl(x);
}
static wide exact_reciprocal(wide x) {
    return 1 / x;
}

static const struct function {
    const char *name;
    enum cpu_row_number rows[2]; /* of c64, c128 */
    formula_c64 (*narrow)(formula_c64);
    formula_c128 (*formula)(formula_c128);
    wide (*exact)(wide);
    double ulps[2]; /* the most that a part may differ from the exact value, in units of the larger part */
} functions[] = {
#define OF(name, exact, narrow_ulps, ulps)                                                                             \
    {                                                                                                                  \
#name, {CPU_ROW_##name##_c64, CPU_ROW_##name##_c128 }, formula_##name##_c64, formula_##name##_c128, exact, {   \
            narrow_ulps, ulps                                                                                          \
        }                                                                                                              \
    }
    OF(exp, cexpl, 0.51, 3),         OF(expm1, exact_expm1, 0.51, 4), OF(log, clogl, 0.51, 1.5),
    OF(log1p, exact_log1p, 0.51, 2), OF(log2, exact_log2, 0.51, 3),   OF(log10, exact_log10, 0.51, 3),
    OF(sqrt, csqrtl, 0.56, 2.2),     OF(sign, exact_sign, 0.56, 2.5), OF(reciprocal, exact_reciprocal, 0.56, 3),
    OF(sinh, csinhl, 0.51, 3.5),     OF(cosh, ccoshl, 0.51, 3.5),     OF(tanh, ctanhl, 0.51, 6),
    OF(sin, csinl, 0.51, 3.5),       OF(cos, ccosl, 0.51, 3.5),       OF(tan, ctanl, 0.51, 6),
    OF(asin, casinl, 0.51, 5),       OF(acos, cacosl, 0.51, 4),       OF(asinh, casinhl, 0.51, 5),
    OF(acosh, cacoshl, 0.51, 4),     OF(atanh, catanhl, 0.51, 4),     OF(atan, catanl, 0.51, 4),
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Ordinary numbers, the ends of ranges at which functions have another way, and what is beyond f64. */
static const double parts[] = {0.0,     -0.0,     1,      -1,       0.5,       -0.75,        3,       -2.5,
                               1e-8,    1e300,    -1e300, 1e308,    1e-300,    5e-324,       -1e-310, 699.9,
                               700.5,   -700.5,   1e-16,  INFINITY, -INFINITY, NAN,          -3e38,   1e-45,
                               0x1p500, 0x1p-401, 1e6,    999999,   -22.5,     0x1.fffffep-1};
enum { PARTS = sizeof parts / sizeof *parts, GRID = PARTS * PARTS, MOST = 2048 };

static _Alignas(64) char x[MOST * 16], y[MOST * 16], out[(MOST + 1) * 16], alone[MOST * 16];

static formula_c128 get(int kind, const char *from, int64_t i) {
    if (kind == 1)
        return ((const formula_c128 *)(const void *)from)[i];
    return formula_c64_to_c128(((const formula_c64 *)(const void *)from)[i]);
}

static void put(int kind, char *to, int64_t i, double re, double im) {
    if (kind == 1)
        ((formula_c128 *)(void *)to)[i] = formula_make_c128(re, im);
    else
        ((formula_c64 *)(void *)to)[i] = formula_make_c64((float)re, (float)im);
}

/* In units in the last place of `size`. */
static double distance(int kind, double got, long double want, long double size) {
    int least = kind == 1 ? -1022 : -126, exponent = size == 0 ? least : ilogbl(size);
    exponent = exponent < least ? least : exponent;
    return (double)(fabsl((long double)got - want) / ldexpl(1, exponent - (kind == 1 ? 52 : 23)));
}

static bool part_is(int kind, double got, double want, double size, double ulps) {
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got) || (want == 0 && got == 0))
        return got == want && !signbit(got) == !signbit(want);
    return distance(kind, got, want, size) <= ulps;
}

/* The signs of zeros count, but those of quotients of c64, which are made of other products than the formula's. */
static bool number_is(int kind, formula_c128 got, formula_c128 want, double ulps, bool quotient) {
    double size = fmax(fabs(want.re), fabs(want.im)), zero = quotient && kind == 0 ? 0.0 : -0.0;
    return part_is(kind, got.re + zero, want.re + zero, size, ulps) &&
           part_is(kind, got.im + zero, want.im + zero, size, ulps);
}

/* Volatile: GCC 12 leaves out both conversions where it makes a vector of the two parts. */
static formula_c128 narrowed(formula_c128 a) {
    volatile float re = (float)a.re, im = (float)a.im;
    return formula_make_c128((double)re, (double)im);
}

static int64_t number_size(int kind) {
    return kind == 1 ? 16 : 8;
}

Test(vector_complex, special_values_are_the_formulas) {
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        for (int f = 0; f < FUNCTIONS; f++)
            for (int kind = 0; kind < 2; kind++) {
                for (int i = 0; i < GRID; i++)
                    put(kind, x, i, parts[i / PARTS], parts[i % PARTS]);
                kernels->elementwise[functions[f].rows[kind]](&(struct cpu_row){GRID, {out, x}, {1, 1}});
                for (int i = 0; i < GRID; i++) {
                    formula_c128 a = get(kind, x, i), got = get(kind, out, i), want = functions[f].formula(a);
                    if (kind == 0)
                        want = formula_c64_to_c128(functions[f].narrow(formula_c128_to_c64(a)));
                    bool quotient = functions[f].formula == formula_reciprocal_c128;
                    cr_expect(number_is(kind, got, want, kind == 1 ? 8 : 1, quotient),
                              "%s, %s of %s, %a %+ai: %a %+ai, not %a %+ai", kernels->level, functions[f].name,
                              kind == 1 ? "c128" : "c64", a.re, a.im, got.re, got.im, want.re, want.im);
                }
            }
    }
}

static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-52 - 1;
}

/* From -3 to 3, to 30, of many sizes, and next to the unit circle. */
static formula_c128 draw(uint64_t *state, int round) {
    double re = uniform(state), im = uniform(state), size = uniform(state);
    if (round % 4 < 2)
        return formula_make_c128(re * (round % 4 ? 30 : 3), im * (round % 4 ? 30 : 3));
    if (round % 4 == 2)
        return formula_make_c128(ldexp(re, (int)(30 * size)), ldexp(im, (int)(30 * uniform(state))));
    double length = 1 + ldexp(re, (int)(-50 * fabs(size)));
    return formula_make_c128(cos(7 * im) * length, sin(7 * im) * length);
}

Test(vector_complex, functions_are_exact, .timeout = 120) {
    uint64_t state = 3;
    for (int f = 0; f < FUNCTIONS; f++)
        for (int kind = 0; kind < 2; kind++)
            for (int round = 0; round < 8; round++) {
                static wide want[MOST];
                for (int i = 0; i < MOST; i++) {
                    formula_c128 a = draw(&state, round);
                    put(kind, x, i, a.re, a.im);
                    a = get(kind, x, i);
                    want[i] = functions[f].exact(CMPLXL(a.re, a.im));
                }
                for (unsigned level = 0; cpu_kernels_level(level); level++) {
                    const struct cpu_kernels *kernels = cpu_kernels_level(level);
                    kernels->elementwise[functions[f].rows[kind]](&(struct cpu_row){MOST, {out, x}, {1, 1}});
                    for (int i = 0; i < MOST; i++) {
                        formula_c128 a = get(kind, x, i), got = get(kind, out, i);
                        long double re = creall(want[i]), im = cimagl(want[i]), size = fmaxl(fabsl(re), fabsl(im));
                        double off = fmax(distance(kind, got.re, re, size), distance(kind, got.im, im, size));
                        cr_assert(off <= functions[f].ulps[kind] || size > (kind == 1 ? 1e308L : 3e38L),
                                  "%s, %s of %s, %a %+ai: %a %+ai, not %La %+Lai: %.2f units", kernels->level,
                                  functions[f].name, kind == 1 ? "c128" : "c64", a.re, a.im, got.re, got.im, re, im,
                                  off);
                    }
                }
            }
}

/* The bits of an element's result are those of a row of this element alone, whatever is beside it, and nothing behind the row is written; the
 * output may be the input. */
static void row_is_its_elements(const char *level, const char *name, int kind, cpu_row_function *row, int64_t n,
                                int64_t x_stride, int64_t y_stride) {
    const int64_t size = number_size(kind);
    for (int64_t i = 0; i < n; i++)
        row(&(struct cpu_row){1, {alone + i * size, x + i * x_stride * size, y + i * y_stride * size}, {1, 1, 1}});
    memset(out, 7, sizeof out);
    row(&(struct cpu_row){n, {out, x, y}, {1, x_stride, y_stride}});
    cr_assert(memcmp(out, alone, (size_t)(n * size)) == 0, "%s, %s of %s, %lld elements, strides %lld and %lld", level,
              name, kind == 1 ? "c128" : "c64", (long long)n, (long long)x_stride, (long long)y_stride);
    for (int64_t i = n * size; i < (n + 1) * size; i++)
        cr_assert(out[i] == 7, "%s, %s writes beyond %lld elements", level, name, (long long)n);
    if (x_stride == 1) {
        memcpy(out, x, (size_t)(n * size));
        row(&(struct cpu_row){n, {out, out, y}, {1, 1, y_stride}});
        cr_assert(memcmp(out, alone, (size_t)(n * size)) == 0, "%s, %s of %s, %lld elements in place", level, name,
                  kind == 1 ? "c128" : "c64", (long long)n);
    }
}

Test(vector_complex, results_do_not_depend_on_the_row) {
    static const struct {
        const char *name;
        enum cpu_row_number rows[2];
    } more[] = {{"divide", {CPU_ROW_divide_c64, CPU_ROW_divide_c128}},
                {"pow", {CPU_ROW_pow_c64, CPU_ROW_pow_c128}},
                {"multiply", {CPU_ROW_multiply_c64, CPU_ROW_multiply_c128}},
                {"square", {CPU_ROW_square_c64, CPU_ROW_square_c128}}};
    static const int64_t strides[][2] = {{1, 1}, {2, 2}, {1, 0}, {0, 1}, {2, 1}};
    enum { MORE = sizeof more / sizeof *more };
    static const int64_t lengths[] = {1, 2, 7, 8, 9, 15, 17, 31, 64, 127, 128, 129, 137, 256, 259, 300};
    uint64_t state = 5;
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        for (int kind = 0; kind < 2; kind++) {
            for (int i = 0; i < MOST; i++) {
                formula_c128 a = draw(&state, i), b = draw(&state, 0);
                bool special = i % 13 == 12;
                put(kind, x, i, special ? parts[i % PARTS] : a.re, special ? parts[i / 2 % PARTS] : a.im);
                put(kind, y, i, i % 5 == 4 ? i % 7 - 3 : b.re, i % 5 == 4 ? 0 : b.im);
            }
            for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
                for (size_t k = 0; k < sizeof strides / sizeof *strides; k++) {
                    for (int f = 0; f < FUNCTIONS; f++)
                        row_is_its_elements(kernels->level, functions[f].name, kind,
                                            kernels->elementwise[functions[f].rows[kind]], lengths[l], strides[k][0],
                                            strides[k][1]);
                    for (int f = 0; f < MORE; f++)
                        row_is_its_elements(kernels->level, more[f].name, kind,
                                            kernels->elementwise[more[f].rows[kind]], lengths[l], strides[k][0],
                                            strides[k][1]);
                }
        }
    }
}

/* One whole exponent for all elements: the same products as for an exponent of each. */
Test(vector_complex, powers_by_one_exponent_are_the_formulas) {
    static const double exponents[] = {0, 1, 2, 3, -1, -2, 7, 64, -64, 65, 0.5, -0.0};
    uint64_t state = 9;
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        for (int kind = 0; kind < 2; kind++)
            for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
                for (int i = 0; i < 300; i++) {
                    formula_c128 a = draw(&state, 0);
                    bool special = i % 13 == 12;
                    put(kind, x, i, special ? parts[i % PARTS] : a.re, special ? parts[i / 2 % PARTS] : a.im);
                }
                put(kind, y, 0, exponents[e], 0);
                kernels->elementwise[kind == 1 ? CPU_ROW_pow_c128 : CPU_ROW_pow_c64](
                    &(struct cpu_row){300, {out, x, y}, {1, 1, 0}});
                for (int i = 0; i < 300; i++) {
                    formula_c128 a = get(kind, x, i), got = get(kind, out, i), b = formula_make_c128(exponents[e], 0);
                    formula_c128 want = formula_pow_c128(a, b);
                    if (kind == 0)
                        want = narrowed(want);
                    double ulps = fabs(b.re) <= 64 && b.re == floor(b.re) ? 0 : kind == 0 ? 1 : 1500;
                    cr_expect(number_is(kind, got, want, ulps, false), "%s, %s, (%a %+ai) to %g: %a %+ai, not %a %+ai",
                              kernels->level, kind == 1 ? "c128" : "c64", a.re, a.im, b.re, got.re, got.im, want.re,
                              want.im);
                }
            }
    }
}

/* Quotients of c64: multiples of the divisor are exact, and zeros, infinities and NaN are the formula's. */
Test(vector_complex, quotients_are_the_formulas) {
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        for (int kind = 0; kind < 2; kind++)
            for (int j = 0; j < GRID; j++) {
                for (int i = 0; i < GRID; i++)
                    put(kind, x, i, parts[i / PARTS], parts[i % PARTS]);
                put(kind, y, 0, parts[j / PARTS], parts[j % PARTS]);
                kernels->elementwise[kind == 1 ? CPU_ROW_divide_c128 : CPU_ROW_divide_c64](
                    &(struct cpu_row){GRID, {out, x, y}, {1, 1, 0}});
                for (int i = 0; i < GRID; i++) {
                    formula_c128 a = get(kind, x, i), b = get(kind, y, 0), got = get(kind, out, i);
                    formula_c128 want = formula_divide_c128(a, b);
                    if (kind == 0)
                        want = narrowed(want);
                    cr_expect(number_is(kind, got, want, kind == 1 ? 0 : 1, true),
                              "%s, %s, (%a %+ai) / (%a %+ai): %a %+ai, not %a %+ai", kernels->level,
                              kind == 1 ? "c128" : "c64", a.re, a.im, b.re, b.im, got.re, got.im, want.re, want.im);
                }
                formula_c128 b = get(kind, y, 0);
                if (kind == 0 && isfinite(b.re) && isfinite(b.im) && (b.re != 0 || b.im != 0) && fabs(b.re) < 1e37 &&
                    fabs(b.im) < 1e37) {
                    put(kind, x, 0, 3 * b.re, 3 * b.im);
                    kernels->elementwise[CPU_ROW_divide_c64](&(struct cpu_row){1, {out, x, y}, {1, 1, 1}});
                    formula_c128 got = get(kind, out, 0), a = get(kind, x, 0);
                    if (a.re == 3 * b.re && a.im == 3 * b.im)
                        cr_expect(got.re == 3 && got.im == 0, "%s, 3 (%a %+ai) by it: %a %+ai", kernels->level, b.re,
                                  b.im, got.re, got.im);
                }
            }
    }
}

/* Lengths. */
Test(vector_complex, lengths_are_the_formulas) {
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        for (int kind = 0; kind < 2; kind++) {
            for (int i = 0; i < GRID; i++)
                put(kind, x, i, parts[i / PARTS], parts[i % PARTS]);
            kernels->elementwise[kind == 1 ? CPU_ROW_abs_c128 : CPU_ROW_abs_c64](
                &(struct cpu_row){GRID, {out, x}, {1, 1}});
            for (int i = 0; i < GRID; i++) {
                formula_c128 a = get(kind, x, i);
                double got = kind == 1 ? ((double *)(void *)out)[i] : (double)((float *)(void *)out)[i];
                double want = kind == 1 ? formula_abs_c128(a) : (double)formula_abs_c64(formula_c128_to_c64(a));
                cr_expect(part_is(kind, got, want, want, 1), "%s, |%a %+ai| of %s: %a, not %a", kernels->level, a.re,
                          a.im, kind == 1 ? "c128" : "c64", got, want);
            }
        }
    }
}
