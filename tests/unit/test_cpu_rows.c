/* The ends of the CPU device's rows, at each vector level that this processor has: quotients of the extreme integers, sums of exponentials of
 * infinite elements, rows of any length and stride. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "engine/cpu/kernels.h"

enum { SIDE = 256, PAIRS = SIDE * SIDE };

/* What the operations' contract says, by C's division of wider integers. */
static int64_t exact_floor_divide(int64_t a, int64_t b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static int64_t exact_remainder(int64_t a, int64_t b) {
    return b == 0 ? 0 : a - b * exact_floor_divide(a, b);
}
static int64_t exact_fmod(int64_t a, int64_t b) {
    return b == 0 ? 0 : a % b;
}

static const struct integer {
    const char *name;
    int bits;
    bool is_signed;
    enum cpu_row_number rows[3];
} integers[] = {
#define INTEGER(name, bits, is_signed)                                                                                 \
    {                                                                                                                  \
#name, bits, is_signed, {                                                                                      \
            CPU_ROW_floor_divide_##name, CPU_ROW_remainder_##name, CPU_ROW_fmod_##name                                 \
        }                                                                                                              \
    }
    INTEGER(i8, 8, true),    INTEGER(u8, 8, false),  INTEGER(i16, 16, true),
    INTEGER(u16, 16, false), INTEGER(i32, 32, true), INTEGER(u32, 32, false),
};

/* One of SIDE integers: all of 8 bits; of wider ones those next to powers of two, and their negatives. */
static int64_t operand(const struct integer *of, int i) {
    int64_t least = of->is_signed ? -((int64_t)1 << (of->bits - 1)) : 0, most = least + ((int64_t)1 << of->bits) - 1;
    if (of->bits == 8)
        return least + i;
    int64_t power = (int64_t)1 << (i / 2 % 43 * (of->bits - of->is_signed) / 42), near = power + i / 86 - 1;
    int64_t value = i % 2 && of->is_signed ? -near : i % 2 ? most - near : near;
    return value < least ? least : value > most ? most : value;
}

static void put(const struct integer *of, char *to, int i, int64_t value) {
    memcpy(to + i * (of->bits / 8), &value, (size_t)of->bits / 8); /* little-endian */
}

static int64_t got(const struct integer *of, const char *from, int i) {
    int64_t value = 0;
    memcpy(&value, from + i * (of->bits / 8), (size_t)of->bits / 8);
    return of->is_signed ? (int64_t)((uint64_t)value << (64 - of->bits)) >> (64 - of->bits) : value;
}

Test(cpu_rows, quotients_of_integers_are_exact) {
    static char a[PAIRS * 4], b[PAIRS * 4], out[PAIRS * 4];
    static int64_t (*const exact[3])(int64_t, int64_t) = {exact_floor_divide, exact_remainder, exact_fmod};
    for (size_t t = 0; t < sizeof integers / sizeof *integers; t++) {
        const struct integer *of = &integers[t];
        for (int i = 0; i < PAIRS; i++) {
            put(of, a, i, operand(of, i / SIDE));
            put(of, b, i, operand(of, i % SIDE));
        }
        for (int k = 0; k < 3; k++)
            for (unsigned level = 0; cpu_kernels_level(level); level++) {
                const struct cpu_kernels *kernels = cpu_kernels_level(level);
                kernels->elementwise[of->rows[k]](&(struct cpu_row){PAIRS, {out, a, b}, {1, 1, 1}});
                for (int i = 0; i < PAIRS; i++) {
                    int64_t x = got(of, a, i), y = got(of, b, i);
                    char want[8];
                    put(of, want, 0, exact[k](x, y)); /* wraps around */
                    cr_assert(got(of, out, i) == got(of, want, 0), "%s, %s, row %d of %lld and %lld: %lld, not %lld",
                              kernels->level, of->name, k, (long long)x, (long long)y, (long long)got(of, out, i),
                              (long long)got(of, want, 0));
                }
            }
    }
}

/* ---- rows of any length ---- */

static const enum cpu_row_number rows_f64[] = {
    CPU_ROW_exp_f64,   CPU_ROW_exp2_f64, CPU_ROW_log_f64,   CPU_ROW_log2_f64,  CPU_ROW_log10_f64, CPU_ROW_log1p_f64,
    CPU_ROW_erf_f64,   CPU_ROW_tan_f64,  CPU_ROW_atan_f64,  CPU_ROW_asinh_f64, CPU_ROW_acosh_f64, CPU_ROW_atanh_f64,
    CPU_ROW_atan2_f64, CPU_ROW_pow_f64,  CPU_ROW_hypot_f64, CPU_ROW_sin_f64,
};

/* The bits of an element's result are those of a row of this element alone, and nothing behind the row is written. */
Test(cpu_rows, results_do_not_depend_on_the_length_of_the_row_or_its_stride) {
    enum { MOST = 35 };
    static double x[2 * MOST], y[2 * MOST], want[MOST], out[MOST + 8];
    for (int i = 0; i < 2 * MOST; i++) {
        x[i] = i % 11 == 10 ? -0.75 : i % 7 == 6 ? 1e300 : 0.37 * (i % 5) + 0.01 * i;
        y[i] = 0.2 * i - 3;
    }
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        for (size_t r = 0; r < sizeof rows_f64 / sizeof *rows_f64; r++) {
            cpu_row_function *row = kernels->elementwise[rows_f64[r]];
            for (int64_t stride = 1; stride <= 2; stride++)
                for (int64_t n = 1; n <= MOST; n++) {
                    for (int64_t i = 0; i < n; i++)
                        row(&(struct cpu_row){
                            1, {(char *)&want[i], (char *)&x[i * stride], (char *)&y[i * stride]}, {1, 1, 1}});
                    for (int i = 0; i < MOST + 8; i++)
                        out[i] = 7;
                    row(&(struct cpu_row){n, {(char *)out, (char *)x, (char *)y}, {1, stride, stride}});
                    cr_assert(memcmp(out, want, (size_t)n * sizeof *out) == 0,
                              "%s, row %zu, %lld elements, stride %lld", kernels->level, r, (long long)n,
                              (long long)stride);
                    for (int64_t i = n; i < MOST + 8; i++)
                        cr_assert(out[i] == 7, "%s, row %zu writes beyond %lld elements", kernels->level, r,
                                  (long long)n);
                }
        }
    }
}

/* ---- logsumexp ---- */

enum { LENGTH = 1100 };

static void logsumexp_is(const struct cpu_kernels *kernels, int64_t n, const double *x, double want) {
    static struct cpu_accumulators accumulators;
    static float narrow[2 * LENGTH];
    static double wide[2 * LENGTH];
    for (int64_t stride = 1; stride <= 2; stride++) {
        for (int64_t i = 0; i < n; i++) {
            wide[i * stride] = x[i];
            narrow[i * stride] = (float)x[i];
        }
        double of_f64;
        float of_f32;
        const struct cpu_reduction *reduction = kernels->reductions[CPU_REDUCE_LOGSUMEXP][DTYPE_F64];
        reduction->start(1, &accumulators);
        reduction->row(n, wide, stride, 0, &accumulators);
        reduction->finish(1, &accumulators, n, &of_f64);
        reduction = kernels->reductions[CPU_REDUCE_LOGSUMEXP][DTYPE_F32];
        reduction->start(1, &accumulators);
        reduction->row(n, narrow, stride, 0, &accumulators);
        reduction->finish(1, &accumulators, n, &of_f32);
        cr_assert(isnan(want) ? isnan(of_f64) : of_f64 == want || fabs(of_f64 - want) <= 1e-14 * fabs(want),
                  "%s, f64, %lld elements, stride %lld: %a, not %a", kernels->level, (long long)n, (long long)stride,
                  of_f64, want);
        cr_assert(isnan(want) ? isnan(of_f32)
                              : of_f32 == (float)want || fabs((double)of_f32 - want) <= 3e-7 * fabs(want),
                  "%s, f32, %lld elements, stride %lld: %a, not %a", kernels->level, (long long)n, (long long)stride,
                  (double)of_f32, want);
    }
}

Test(cpu_rows, logsumexp_keeps_infinite_elements_and_nan_at_any_length) {
    static const int64_t lengths[] = {1, 5, 16, 31, 64, 77, 256, 511, LENGTH};
    static double x[LENGTH];
    for (unsigned level = 0; cpu_kernels_level(level); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_level(level);
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            const int64_t n = lengths[l];
            for (int64_t i = 0; i < n; i++)
                x[i] = 0.25;
            logsumexp_is(kernels, n, x, 0.25 + log((double)n));
            for (int64_t i = 0; i < n; i++)
                x[i] = -INFINITY;
            logsumexp_is(kernels, n, x, -INFINITY);
            x[n / 2] = 3;
            logsumexp_is(kernels, n, x, 3);
            x[n - 1] = INFINITY;
            logsumexp_is(kernels, n, x, INFINITY);
            for (int64_t i = 0; i < n; i++)
                x[i] = INFINITY;
            logsumexp_is(kernels, n, x, INFINITY);
            x[n / 3] = NAN;
            logsumexp_is(kernels, n, x, NAN);
            for (int64_t i = 0; i < n; i++)
                x[i] = i % 2 ? -1e4 : 1e4; /* whose exponentials are beyond both types */
            logsumexp_is(kernels, n, x, 1e4 + log((double)((n + 1) / 2)));
        }
    }
}
