/* Scans. As in reductions, sums and products of f32 and of halves are accumulated in f64, sums of f64 with their rounding errors, and
 * integers wrap around in 64 bits. An element is added to all before it, one after another: so results do not depend on how lines are
 * shared out. */
#include <float.h>
#include <math.h>

#include "engine/cpu/vector_math.h"

#define INLINE static inline __attribute__((always_inline))
#define VALUES(T) T *const value = (void *)accumulators->value
#define EXTRA(T) T *const extra = (void *)accumulators->extra

/* LOOP twice, over x[i * sx] and z[i * sz]: the compiler makes better code where neither has gaps. */
#define ROW_LOOPS(T, R, ...)                                                                                           \
    const T *x = row->x;                                                                                               \
    R *z = row->out;                                                                                                   \
    const int64_t n = row->n;                                                                                          \
    if (row->x_stride == 1 && row->out_stride == 1) {                                                                  \
        const int64_t sx = 1, sz = 1;                                                                                  \
        __VA_ARGS__                                                                                                    \
    } else {                                                                                                           \
        const int64_t sx = row->x_stride, sz = row->out_stride;                                                        \
        __VA_ARGS__                                                                                                    \
    }

#define SCAN_TABLE(name, base) static const struct cpu_scan name = {base##_start, name##_along, name##_down};

/* ---- sums and products; STORE makes a result of the accumulator ---- */

#define SIMPLE_START(name, A, neutral)                                                                                 \
    static void name##_start(int64_t n, struct cpu_accumulators *accumulators) {                                       \
        VALUES(A);                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            value[i] = neutral;                                                                                        \
        }                                                                                                              \
    }
#define SIMPLE_SCAN(name, base, T, A, R, operator, STORE)                                                              \
    static void name##_along(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {                  \
        VALUES(A);                                                                                                     \
        A v = *value;                                                                                                  \
        ROW_LOOPS(                                                                                                     \
            T, R, for (int64_t i = 0; i < n; i++) {                                                                    \
                v = v operator(A) x[i * sx];                                                                           \
                z[i * sz] = STORE(v);                                                                                  \
            })                                                                                                         \
        *value = v;                                                                                                    \
    }                                                                                                                  \
    static void name##_down(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {                   \
        VALUES(A);                                                                                                     \
        ROW_LOOPS(                                                                                                     \
            T, R, CPU_LOOP for (int64_t i = 0; i < n; i++) {                                                           \
                const A v = value[i] operator(A) x[i * sx];                                                            \
                value[i] = v;                                                                                          \
                z[i * sz] = STORE(v);                                                                                  \
            })                                                                                                         \
    }                                                                                                                  \
    SCAN_TABLE(name, base)

#define STORE_PLAIN(v) (v)
#define STORE_F32(v) (float)(v)
#define STORE_F16(v) half_to_f16(formula_odd(v))
#define STORE_BF16(v) half_to_bf16(formula_odd(v))
SIMPLE_START(sum_i64, uint64_t, 0)
SIMPLE_START(prod_i64, uint64_t, 1)
SIMPLE_START(sum_f32, double, 0)
SIMPLE_START(prod_f32, double, 1)
SIMPLE_SCAN(sum_i64, sum_i64, uint64_t, uint64_t, uint64_t, +, STORE_PLAIN)
SIMPLE_SCAN(prod_i64, prod_i64, uint64_t, uint64_t, uint64_t, *, STORE_PLAIN)
SIMPLE_SCAN(sum_f32, sum_f32, float, double, float, +, STORE_F32)
SIMPLE_SCAN(prod_f32, prod_f32, float, double, float, *, STORE_F32)
SIMPLE_SCAN(prod_f64, prod_f32, double, double, double, *, STORE_PLAIN)

/* Sums and products of halves, which are converted block by block; the accumulator is rounded once, to the half. */
#define HALF_SCAN(name, half, base, operator, STORE)                                                                   \
    static void name##_along(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {                  \
        float buffer[CPU_BLOCK];                                                                                       \
        VALUES(double);                                                                                                \
        double v = *value;                                                                                             \
        for (int64_t i = 0; i < row->n; i += CPU_BLOCK) {                                                              \
            const int64_t block = row->n - i < CPU_BLOCK ? row->n - i : CPU_BLOCK;                                     \
            uint16_t *z = (uint16_t *)row->out + i * row->out_stride;                                                  \
            half_load_##half(block, (const uint16_t *)row->x + i * row->x_stride, row->x_stride, buffer);              \
            for (int64_t k = 0; k < block; k++) {                                                                      \
                v = v operator(double) buffer[k];                                                                      \
                z[k * row->out_stride] = STORE(v);                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        *value = v;                                                                                                    \
    }                                                                                                                  \
    static void name##_down(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {                   \
        float buffer[CPU_REDUCE_WIDTH];                                                                                \
        VALUES(double);                                                                                                \
        uint16_t *z = row->out;                                                                                        \
        half_load_##half(row->n, row->x, row->x_stride, buffer);                                                       \
        for (int64_t i = 0; i < row->n; i++) {                                                                         \
            value[i] = value[i] operator(double) buffer[i];                                                            \
            z[i * row->out_stride] = STORE(value[i]);                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    SCAN_TABLE(name, base)
HALF_SCAN(sum_f16, f16, sum_f32, +, STORE_F16)
HALF_SCAN(sum_bf16, bf16, sum_f32, +, STORE_BF16)
HALF_SCAN(prod_f16, f16, prod_f32, *, STORE_F16)
HALF_SCAN(prod_bf16, bf16, prod_f32, *, STORE_BF16)

/* Products of complex numbers: the real part is in `value`, the imaginary part in `extra`. Sums are those of the parts. */
static void prod_complex_start(int64_t n, struct cpu_accumulators *accumulators) {
    VALUES(double);
    EXTRA(double);
    for (int64_t i = 0; i < n; i++) {
        value[i] = 1;
        extra[i] = 0;
    }
}
INLINE void prod_complex_take(double *re, double *im, double x, double y) {
    const double before = *re;
    *re = before * x - *im * y;
    *im = before * y + *im * x;
}
typedef struct {
    float re, im;
} pair_c64;
typedef struct {
    double re, im;
} pair_c128;
#define COMPLEX_PRODUCT(name, C, T)                                                                                    \
    static void name##_along(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {                  \
        VALUES(double);                                                                                                \
        EXTRA(double);                                                                                                 \
        double re = *value, im = *extra;                                                                               \
        ROW_LOOPS(                                                                                                     \
            C, C, for (int64_t i = 0; i < n; i++) {                                                                    \
                prod_complex_take(&re, &im, (double)x[i * sx].re, (double)x[i * sx].im);                               \
                z[i * sz] = (C){(T)re, (T)im};                                                                         \
            })                                                                                                         \
        *value = re;                                                                                                   \
        *extra = im;                                                                                                   \
    }                                                                                                                  \
    static void name##_down(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {                   \
        VALUES(double);                                                                                                \
        EXTRA(double);                                                                                                 \
        ROW_LOOPS(                                                                                                     \
            C, C, CPU_LOOP for (int64_t i = 0; i < n; i++) {                                                           \
                prod_complex_take(&value[i], &extra[i], (double)x[i * sx].re, (double)x[i * sx].im);                   \
                z[i * sz] = (C){(T)value[i], (T)extra[i]};                                                             \
            })                                                                                                         \
    }                                                                                                                  \
    SCAN_TABLE(name, prod_complex)
COMPLEX_PRODUCT(prod_c64, pair_c64, float)
COMPLEX_PRODUCT(prod_c128, pair_c128, double)

/* The sum so far and its error (Knuth's TwoSum); where infinities and NaN make the error NaN, the sum alone is right. */
INLINE double sum_f64_next(double x, double *sum, double *error) {
    double before = *sum, after = before + x, part = after - before;
    *error += (before - (after - part)) + (x - part);
    *sum = after;
    return __builtin_isfinite(*error) ? after + *error : after;
}

static void sum_f64_start(int64_t n, struct cpu_accumulators *accumulators) {
    memset(accumulators->value, 0, (size_t)n * sizeof(double));
    memset(accumulators->extra, 0, (size_t)n * sizeof(double));
}

static void sum_f64_along(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {
    VALUES(double);
    EXTRA(double);
    double sum = *value, error = *extra;
    ROW_LOOPS(
        double, double, for (int64_t i = 0; i < n; i++) { z[i * sz] = sum_f64_next(x[i * sx], &sum, &error); })
    *value = sum;
    *extra = error;
}

static void sum_f64_down(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {
    VALUES(double);
    EXTRA(double);
    ROW_LOOPS(
        double, double,
        CPU_LOOP for (int64_t i = 0; i < n; i++) { z[i * sz] = sum_f64_next(x[i * sx], &value[i], &extra[i]); })
}
SCAN_TABLE(sum_f64, sum_f64)

/* ---- extremes and their positions; TAKES(x, v): whether x takes the place of v. Halves stay as they are, and are compared as f32. ---- */

/* A negative position: nothing seen yet. */
static void extreme_start(int64_t n, struct cpu_accumulators *accumulators) {
    EXTRA(int64_t);
    memset(accumulators->value, 0, (size_t)n * 8);
    for (int64_t i = 0; i < n; i++) {
        extra[i] = -1;
    }
}

#define EXTREME_SCAN(name, T, LOAD, TAKES)                                                                             \
    static void name##_along(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {                  \
        VALUES(T);                                                                                                     \
        EXTRA(int64_t);                                                                                                \
        T v = *value;                                                                                                  \
        int64_t at = *extra;                                                                                           \
        ROW_LOOPS(                                                                                                     \
            T, T, for (int64_t i = 0; i < n; i++) {                                                                    \
                const T e = x[i * sx];                                                                                 \
                const bool takes = (at < 0) | TAKES(LOAD(e), LOAD(v));                                                 \
                v = takes ? e : v;                                                                                     \
                at = takes ? row->position + i : at;                                                                   \
                z[i * sz] = v;                                                                                         \
                row->positions[i * sz] = at;                                                                           \
            })                                                                                                         \
        *value = v;                                                                                                    \
        *extra = at;                                                                                                   \
    }                                                                                                                  \
    static void name##_down(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {                   \
        VALUES(T);                                                                                                     \
        EXTRA(int64_t);                                                                                                \
        const int64_t position = row->position;                                                                        \
        int64_t *positions = row->positions;                                                                           \
        ROW_LOOPS(                                                                                                     \
            T, T, CPU_LOOP for (int64_t i = 0; i < n; i++) {                                                           \
                const T e = x[i * sx], v = value[i];                                                                   \
                const bool takes = (extra[i] < 0) | TAKES(LOAD(e), LOAD(v));                                           \
                value[i] = takes ? e : v;                                                                              \
                extra[i] = takes ? position : extra[i];                                                                \
                z[i * sz] = value[i];                                                                                  \
                positions[i * sz] = extra[i];                                                                          \
            })                                                                                                         \
    }                                                                                                                  \
    SCAN_TABLE(name, extreme)

#define LOAD_PLAIN(x) (x)
#define NOT_BELOW(x, v) ((x) >= (v))
#define NOT_ABOVE(x, v) ((x) <= (v))
#define NOT_BELOW_NAN(x, v) (((x) >= (v)) | ((x) != (x)))
#define NOT_ABOVE_NAN(x, v) (((x) <= (v)) | ((x) != (x)))
#define INTEGER_SCANS(NAME, name, T, U, minimum, maximum)                                                              \
    EXTREME_SCAN(max_##name, T, LOAD_PLAIN, NOT_BELOW)                                                                 \
    EXTREME_SCAN(min_##name, T, LOAD_PLAIN, NOT_ABOVE)
CPU_INTEGERS(INTEGER_SCANS)
#define FLOAT_SCANS(name, T, LOAD)                                                                                     \
    EXTREME_SCAN(max_##name, T, LOAD, NOT_BELOW_NAN)                                                                   \
    EXTREME_SCAN(min_##name, T, LOAD, NOT_ABOVE_NAN)
FLOAT_SCANS(f16, uint16_t, half_from_f16)
FLOAT_SCANS(bf16, uint16_t, half_from_bf16)
FLOAT_SCANS(f32, float, LOAD_PLAIN)
FLOAT_SCANS(f64, double, LOAD_PLAIN)

/* ---- log of running sums of exponentials: a level and the sum of exp(x - level), as in rows_logsumexp.c ---- */

enum { LEVEL_SLACK = 16 };

/* A block along a line takes four loops, of which those with functions are vectorised: how far each element is from its level, exponentials,
 * running sums, logarithms. Where the level rises, the exponential is that of the way back, with which the sum so far is multiplied. */
#define LOGSUMEXP_SCAN(name, T, lowest, EXP, LOG)                                                                      \
    static void name##_start(int64_t n, struct cpu_accumulators *accumulators) {                                       \
        VALUES(T);                                                                                                     \
        EXTRA(double);                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            value[i] = lowest;                                                                                         \
            extra[i] = 0;                                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static __attribute__((noinline)) void name##_exponentials(int64_t n, T *x) {                                       \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i] = EXP(x[i]);                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static __attribute__((noinline)) void name##_logarithms(int64_t n, T *x, const T *level) {                         \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i] = level[i] + LOG(x[i]);                                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    /* x becomes the results. */                                                                                       \
    static void name##_block(int64_t n, T *x, T *value, double *extra) {                                               \
        T levels[CPU_BLOCK], level = *value;                                                                           \
        bool rises[CPU_BLOCK];                                                                                         \
        double sum = *extra;                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T distance = x[i] == level ? 0 : x[i] - level;                                                       \
            rises[i] = distance > LEVEL_SLACK;                                                                         \
            level = rises[i] ? x[i] : level;                                                                           \
            x[i] = rises[i] ? -distance : distance;                                                                    \
            levels[i] = level;                                                                                         \
        }                                                                                                              \
        name##_exponentials(n, x);                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const double share = (double)x[i];                                                                         \
            sum = rises[i] ? sum * share + 1 : sum + share;                                                            \
            x[i] = (T)sum;                                                                                             \
        }                                                                                                              \
        name##_logarithms(n, x, levels);                                                                               \
        *value = level;                                                                                                \
        *extra = sum;                                                                                                  \
    }                                                                                                                  \
    static __attribute__((noinline)) void name##_step(int64_t n, T *x, T *value, double *extra) {                      \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T level = value[i], distance = x[i] == level ? 0 : x[i] - level;                                     \
            const bool rises = distance > LEVEL_SLACK;                                                                 \
            const double share = (double)EXP(rises ? -distance : distance);                                            \
            value[i] = rises ? x[i] : level;                                                                           \
            extra[i] = rises ? extra[i] * share + 1 : extra[i] + share;                                                \
            x[i] = (T)extra[i];                                                                                        \
        }                                                                                                              \
        name##_logarithms(n, x, value);                                                                                \
    }
LOGSUMEXP_SCAN(logsumexp_f32, float, -FLT_MAX, vector_exp, vector_log)
LOGSUMEXP_SCAN(logsumexp_f64, double, -DBL_MAX, exp, log)

#define PLAIN_COPIES(name, T)                                                                                          \
    static inline void load_##name(int64_t n, const T *x, int64_t stride, T *out) {                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i] = x[i * stride];                                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void store_##name(int64_t n, const T *x, T *out, int64_t stride) {                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i * stride] = x[i];                                                                                    \
        }                                                                                                              \
    }
PLAIN_COPIES(f32, float)
PLAIN_COPIES(f64, double)
#define load_f16 half_load_f16
#define load_bf16 half_load_bf16
#define store_f16 half_store_f16
#define store_bf16 half_store_bf16
_Static_assert((int)CPU_REDUCE_WIDTH <= (int)CPU_BLOCK, "a step is one block");

#define LOGSUMEXP_TABLE(name, base, T, E)                                                                              \
    static void logsumexp_##name##_scan_along(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) { \
        T buffer[CPU_BLOCK];                                                                                           \
        for (int64_t i = 0; i < row->n; i += CPU_BLOCK) {                                                              \
            const int64_t block = row->n - i < CPU_BLOCK ? row->n - i : CPU_BLOCK;                                     \
            load_##name(block, (const E *)row->x + i * row->x_stride, row->x_stride, buffer);                          \
            base##_block(block, buffer, (void *)accumulators->value, (void *)accumulators->extra);                     \
            store_##name(block, buffer, (E *)row->out + i * row->out_stride, row->out_stride);                         \
        }                                                                                                              \
    }                                                                                                                  \
    static void logsumexp_##name##_scan_down(const struct cpu_scan_row *row, struct cpu_accumulators *accumulators) {  \
        T buffer[CPU_BLOCK];                                                                                           \
        load_##name(row->n, row->x, row->x_stride, buffer);                                                            \
        base##_step(row->n, buffer, (void *)accumulators->value, (void *)accumulators->extra);                         \
        store_##name(row->n, buffer, row->out, row->out_stride);                                                       \
    }                                                                                                                  \
    SCAN_TABLE(logsumexp_##name##_scan, base)
LOGSUMEXP_TABLE(f16, logsumexp_f32, float, uint16_t)
LOGSUMEXP_TABLE(bf16, logsumexp_f32, float, uint16_t)
LOGSUMEXP_TABLE(f32, logsumexp_f32, float, float)
LOGSUMEXP_TABLE(f64, logsumexp_f64, double, double)

/* ---- the table; a bool is a u8 of 0 or 1 ---- */

/* clang-format off */
#define FLOATS(name)                                                                                                   \
    [DTYPE_F16] = &name##_f16, [DTYPE_BF16] = &name##_bf16, [DTYPE_F32] = &name##_f32, [DTYPE_F64] = &name##_f64
#define ALL_DTYPES(name)                                                                                               \
    {[DTYPE_BOOL] = &name##_u8, [DTYPE_U8] = &name##_u8, [DTYPE_I8] = &name##_i8, [DTYPE_I16] = &name##_i16,           \
     [DTYPE_I32] = &name##_i32, [DTYPE_I64] = &name##_i64, [DTYPE_U16] = &name##_u16, [DTYPE_U32] = &name##_u32,       \
     [DTYPE_U64] = &name##_u64, FLOATS(name)}

const struct cpu_scan *const CPU_NAME(scans)[CPU_SCAN_COUNT][DTYPE_COUNT] = {
    [CPU_SCAN_SUM] = {[DTYPE_I64] = &sum_i64, [DTYPE_U64] = &sum_i64, FLOATS(sum)},
    [CPU_SCAN_PROD] = {[DTYPE_I64] = &prod_i64, [DTYPE_U64] = &prod_i64, FLOATS(prod), [DTYPE_C64] = &prod_c64,
                       [DTYPE_C128] = &prod_c128},
    [CPU_SCAN_MAX] = ALL_DTYPES(max),
    [CPU_SCAN_MIN] = ALL_DTYPES(min),
    [CPU_SCAN_LOGSUMEXP] = {[DTYPE_F16] = &logsumexp_f16_scan, [DTYPE_BF16] = &logsumexp_bf16_scan,
                            [DTYPE_F32] = &logsumexp_f32_scan, [DTYPE_F64] = &logsumexp_f64_scan},
};
/* clang-format on */
