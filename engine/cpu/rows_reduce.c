/* Reductions. Sums of f32 and of halves are accumulated in f64, of elements in eights, which are added in f32 (if they
 * overflow there, in f64); sums of f64 with their rounding errors; integers wrap around in 64 bits. So all sums are at least as exact as
 * pairwise summation, in any order of the axes. Eights, since to convert an element takes as long as to add two.
 *
 * A row with a stride is read as four streams, a quarter each, so that an addition need not wait for the one before; so is a contiguous one,
 * unless there are loops over vectors for it, which read it from its beginning to its end, as processors foresee it best. */
#include <float.h>
#include <math.h>

#include "engine/cpu/vector_math.h"

#define VALUES(T) T *const value = (void *)accumulators->value
#define EXTRA(T) T *const extra = (void *)accumulators->extra
#define FROM_VALUES(T) const T *const other = (const void *)from->value
#define FROM_EXTRA(T) const T *const other_extra = (const void *)from->extra
#define INLINE static inline __attribute__((always_inline))

enum {
    SHORT_ROW = 32,  /* a row of fewer elements is one stream */
    SUM_BLOCK = 512, /* f64 elements that are added plainly between two additions that keep the error */
};

/* Vectors of the level: so many f64 are one, and as many f32 or twice as many. */
#if defined(__AVX512F__)
enum { WIDE = 8 };
#define WIDE_LOW(x) __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7)
#define WIDE_HIGH(x) __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)
#elif defined(__AVX__)
enum { WIDE = 4 };
#define WIDE_LOW(x) __builtin_shufflevector(x, x, 0, 1, 2, 3)
#define WIDE_HIGH(x) __builtin_shufflevector(x, x, 4, 5, 6, 7)
#else
enum { WIDE = 2 };
#define WIDE_LOW(x) __builtin_shufflevector(x, x, 0, 1)
#define WIDE_HIGH(x) __builtin_shufflevector(x, x, 2, 3)
#endif
typedef double wide_f64 __attribute__((vector_size(WIDE * sizeof(double))));
typedef double read_f64 __attribute__((vector_size(WIDE * sizeof(double)), aligned(8), may_alias));
typedef float read_f32 __attribute__((vector_size(WIDE * sizeof(float)), aligned(4), may_alias));
typedef float wide_f32 __attribute__((vector_size(2 * WIDE * sizeof(float))));
typedef uint32_t wide_u32 __attribute__((vector_size(2 * WIDE * sizeof(float))));
typedef float narrow_f32 __attribute__((vector_size(2 * WIDE * sizeof(float)), aligned(4), may_alias));
typedef uint32_t read_u32 __attribute__((vector_size(2 * WIDE * sizeof(float)), aligned(2), may_alias));

INLINE double wide_sum(wide_f64 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_pd((__m512d)v);
#elif defined(__AVX__)
    return (v[0] + v[1]) + (v[2] + v[3]);
#else
    return v[0] + v[1];
#endif
}

/* ---- what the reductions have in common ---- */

#define MAP_PLAIN(x) (x)

#define START(name, A, neutral)                                                                                        \
    static void name##_start(int64_t n, struct cpu_accumulators *accumulators) {                                       \
        VALUES(A);                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            value[i] = neutral;                                                                                        \
        }                                                                                                              \
    }

/* `result` is an expression of the accumulator v and `parameter`. */
#define FINISH(name, A, R, result)                                                                                     \
    static void name##_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {      \
        const A *value = (const void *)accumulators->value;                                                            \
        const double parameter = accumulators->parameter;                                                              \
        R *z = out;                                                                                                    \
        (void)count, (void)parameter;                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const A v = value[i];                                                                                      \
            z[i] = result;                                                                                             \
        }                                                                                                              \
    }

/* TAKE(v, x) is the accumulator v with x, and MAP(x) what is taken of an element, which is converted to C first. Four steps are taken at a
 * time, so that an accumulator is loaded and stored once for all of them. */
#define COLUMNS(name, T, C, A, TAKE, MAP)                                                                              \
    INLINE void name##_step(int64_t n, const T *x, int64_t stride, A *value, double parameter) {                       \
        (void)parameter;                                                                                               \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            value[i] = TAKE(value[i], MAP((C)x[i * stride]));                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void name##_steps(int64_t n, const T *x, int64_t stride, int64_t step, A *value, double parameter) {        \
        const T *x1 = x + step, *x2 = x1 + step, *x3 = x2 + step;                                                      \
        (void)parameter;                                                                                               \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            A v = value[i];                                                                                            \
            v = TAKE(v, MAP((C)x[i * stride]));                                                                        \
            v = TAKE(v, MAP((C)x1[i * stride]));                                                                       \
            v = TAKE(v, MAP((C)x2[i * stride]));                                                                       \
            value[i] = TAKE(v, MAP((C)x3[i * stride]));                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_columns(int64_t n, const void *elements, int64_t stride, int64_t steps, int64_t step,           \
                               int64_t position, struct cpu_accumulators *accumulators) {                              \
        VALUES(A);                                                                                                     \
        const double parameter = accumulators->parameter;                                                              \
        const T *x = elements;                                                                                         \
        (void)position;                                                                                                \
        for (; steps >= 4; steps -= 4, x += 4 * step) {                                                                \
            if (stride == 1) {                                                                                         \
                name##_steps(n, x, 1, step, value, parameter);                                                         \
            } else {                                                                                                   \
                name##_steps(n, x, stride, step, value, parameter);                                                    \
            }                                                                                                          \
        }                                                                                                              \
        for (; steps > 0; steps--, x += step) {                                                                        \
            if (stride == 1) {                                                                                         \
                name##_step(n, x, 1, value, parameter);                                                                \
            } else {                                                                                                   \
                name##_step(n, x, stride, value, parameter);                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }

/* The result of n elements, 0 or more. `operation` is TAKE's name in a reduction clause. */
#define STREAMS(name, T, C, A, operation, neutral, TAKE, MAP)                                                          \
    INLINE A name##_streams(int64_t n, const T *x, int64_t stride, double parameter) {                                 \
        A v0 = neutral, v1 = neutral, v2 = neutral, v3 = neutral;                                                      \
        const int64_t quarter = n < SHORT_ROW ? 0 : n / 4;                                                             \
        const T *x1 = x + quarter * stride, *x2 = x1 + quarter * stride, *x3 = x2 + quarter * stride;                  \
        (void)parameter;                                                                                               \
        CPU_PRAGMA(omp simd reduction(operation : v0, v1, v2, v3))                                                     \
        for (int64_t i = 0; i < quarter; i++) {                                                                        \
            v0 = TAKE(v0, MAP((C)x[i * stride]));                                                                      \
            v1 = TAKE(v1, MAP((C)x1[i * stride]));                                                                     \
            v2 = TAKE(v2, MAP((C)x2[i * stride]));                                                                     \
            v3 = TAKE(v3, MAP((C)x3[i * stride]));                                                                     \
        }                                                                                                              \
        v0 = TAKE(TAKE(v0, v1), TAKE(v2, v3));                                                                         \
        for (int64_t i = 4 * quarter; i < n; i++) {                                                                    \
            v0 = TAKE(v0, MAP((C)x[i * stride]));                                                                      \
        }                                                                                                              \
        return v0;                                                                                                     \
    }
/* `contiguous`: the function for a row without a stride. */
#define ROW(name, T, C, A, operation, neutral, TAKE, MAP, contiguous)                                                  \
    static void name##_row(int64_t n, const void *x, int64_t stride, int64_t position,                                 \
                           struct cpu_accumulators *accumulators) {                                                    \
        VALUES(A);                                                                                                     \
        const double parameter = accumulators->parameter;                                                              \
        (void)position;                                                                                                \
        A v = stride == 1 ? contiguous(n, x, 1, parameter) : name##_streams(n, x, stride, parameter);                  \
        *value = TAKE(*value, v);                                                                                      \
    }

/* The sum of n elements, contiguous, in f64. */
#define VECTOR_SUM(name, T, MAP)                                                                                       \
    INLINE double name##_vectors(int64_t n, const void *elements, int64_t stride, double parameter) {                  \
        const T *x = elements;                                                                                         \
        wide_f64 v0 = {0}, v1 = v0, v2 = v0, v3 = v0, v4 = v0, v5 = v0, v6 = v0, v7 = v0;                              \
        int64_t i = 0;                                                                                                 \
        (void)stride, (void)parameter;                                                                                 \
        for (; i + 8 * WIDE <= n; i += 8 * WIDE) {                                                                     \
            VECTOR_SUM_ADD(v0, T, 0, MAP);                                                                             \
            VECTOR_SUM_ADD(v1, T, 1, MAP);                                                                             \
            VECTOR_SUM_ADD(v2, T, 2, MAP);                                                                             \
            VECTOR_SUM_ADD(v3, T, 3, MAP);                                                                             \
            VECTOR_SUM_ADD(v4, T, 4, MAP);                                                                             \
            VECTOR_SUM_ADD(v5, T, 5, MAP);                                                                             \
            VECTOR_SUM_ADD(v6, T, 6, MAP);                                                                             \
            VECTOR_SUM_ADD(v7, T, 7, MAP);                                                                             \
        }                                                                                                              \
        for (; i + WIDE <= n; i += WIDE) {                                                                             \
            VECTOR_SUM_ADD(v0, T, 0, MAP);                                                                             \
        }                                                                                                              \
        double sum = wide_sum(((v0 + v1) + (v2 + v3)) + ((v4 + v5) + (v6 + v7)));                                      \
        for (; i < n; i++) {                                                                                           \
            sum += MAP((double)x[i]);                                                                                  \
        }                                                                                                              \
        return sum;                                                                                                    \
    }
#define VECTOR_SUM_ADD(v, T, k, MAP)                                                                                   \
    const wide_f64 element_##k =                                                                                       \
        __builtin_convertvector(*(const VECTOR_READ_##T *)(const void *)(x + i + k * WIDE), wide_f64);                 \
    v += MAP(element_##k)
#define VECTOR_READ_float read_f32
#define VECTOR_READ_double read_f64

/* The same in eights, and in fours what is left. Where they overflow the result is not finite; so it may be elsewhere, too. */
#define EIGHTS_SUM(name, T, FOUR, WIDEN)                                                                               \
    INLINE double name(int64_t n, const T *x) {                                                                        \
        wide_f64 v0 = {0}, v1 = v0, v2 = v0, v3 = v0;                                                                  \
        int64_t i = 0;                                                                                                 \
        for (; i + 32 * WIDE <= n; i += 32 * WIDE) {                                                                   \
            const wide_f32 a = FOUR(x + i) + FOUR(x + i + 8 * WIDE);                                                   \
            const wide_f32 b = FOUR(x + i + 16 * WIDE) + FOUR(x + i + 24 * WIDE);                                      \
            v0 += __builtin_convertvector(WIDE_LOW(a), wide_f64);                                                      \
            v1 += __builtin_convertvector(WIDE_HIGH(a), wide_f64);                                                     \
            v2 += __builtin_convertvector(WIDE_LOW(b), wide_f64);                                                      \
            v3 += __builtin_convertvector(WIDE_HIGH(b), wide_f64);                                                     \
        }                                                                                                              \
        for (; i + 16 * WIDE <= n; i += 16 * WIDE) {                                                                   \
            const wide_f32 a = FOUR(x + i), b = FOUR(x + i + 8 * WIDE);                                                \
            v0 += __builtin_convertvector(WIDE_LOW(a), wide_f64);                                                      \
            v1 += __builtin_convertvector(WIDE_HIGH(a), wide_f64);                                                     \
            v2 += __builtin_convertvector(WIDE_LOW(b), wide_f64);                                                      \
            v3 += __builtin_convertvector(WIDE_HIGH(b), wide_f64);                                                     \
        }                                                                                                              \
        double sum = wide_sum((v0 + v1) + (v2 + v3));                                                                  \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t k = i; k < n; k++) {                                                                              \
            sum += (double)WIDEN(x[k]);                                                                                \
        }                                                                                                              \
        return sum;                                                                                                    \
    }
INLINE wide_f32 four_f32(const float *x) {
    const narrow_f32 *at = (const void *)x;
    return (at[0] + at[1]) + (at[2] + at[3]);
}
/* An element of read_u32 is two halves. */
INLINE wide_f32 four_bf16(const uint16_t *x) {
    const wide_u32 a = ((const read_u32 *)(const void *)x)[0], b = ((const read_u32 *)(const void *)x)[1];
    return ((wide_f32)(a << 16) + (wide_f32)(a & 0xffff0000)) + ((wide_f32)(b << 16) + (wide_f32)(b & 0xffff0000));
}
EIGHTS_SUM(eights_f32, float, four_f32, MAP_PLAIN)
EIGHTS_SUM(eights_bf16, uint16_t, four_bf16, half_from_bf16)
#if defined(__F16C__)
INLINE wide_f32 wide_from_f16(const uint16_t *x) {
#if defined(__AVX512F__)
    return (wide_f32)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)x));
#else
    return (wide_f32)_mm256_cvtph_ps(_mm_loadu_si128((const void *)x));
#endif
}
INLINE wide_f32 four_f16(const uint16_t *x) {
    return (wide_from_f16(x) + wide_from_f16(x + 2 * WIDE)) +
           (wide_from_f16(x + 4 * WIDE) + wide_from_f16(x + 6 * WIDE));
}
EIGHTS_SUM(eights_f16, uint16_t, four_f16, half_from_f16)
#else
INLINE double eights_f16(int64_t n, const uint16_t *x) {
    double sum = 0;
    CPU_LOOP_SUM(sum)
    for (int64_t i = 0; i < n; i++) {
        sum += (double)half_from_f16(x[i]);
    }
    return sum;
}
#endif

#define MERGE(name, A, TAKE)                                                                                           \
    static void name##_merge(int64_t n, struct cpu_accumulators *accumulators, const struct cpu_accumulators *from) {  \
        VALUES(A);                                                                                                     \
        FROM_VALUES(A);                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            value[i] = TAKE(value[i], other[i]);                                                                       \
        }                                                                                                              \
    }

#define TABLE(name, base, finish)                                                                                      \
    static const struct cpu_reduction name = {base##_start, base##_row, base##_columns, base##_merge, finish##_finish};

/* All but finish(). */
#define STEPS(name, T, A, operation, neutral, TAKE, MAP)                                                               \
    STREAMS(name, T, A, A, operation, neutral, TAKE, MAP)                                                              \
    STEPS_ROW(name, T, A, operation, neutral, TAKE, MAP, name##_streams)
#define STEPS_ROW(name, T, A, operation, neutral, TAKE, MAP, contiguous)                                               \
    START(name, A, neutral)                                                                                            \
    COLUMNS(name, T, A, A, TAKE, MAP)                                                                                  \
    ROW(name, T, A, A, operation, neutral, TAKE, MAP, contiguous)                                                      \
    MERGE(name, A, TAKE)

#define TAKE_SUM(v, x) ((v) + (x))
#define TAKE_PRODUCT(v, x) ((v) * (x))
#define TAKE_OR(v, x) ((v) | (x))
#define TAKE_AND(v, x) ((v) & (x))
#define TAKE_MAX(v, x) ((x) > (v) ? (x) : (v))
#define TAKE_MIN(v, x) ((x) < (v) ? (x) : (v))

/* The reduction of halves is that of f32, on converted blocks. */
#define HALF_STEPS(name, half, base)                                                                                   \
    static void name##_columns(int64_t n, const void *x, int64_t stride, int64_t steps, int64_t step,                  \
                               int64_t position, struct cpu_accumulators *accumulators) {                              \
        float buffer[4 * CPU_REDUCE_WIDTH];                                                                            \
        for (int64_t i = 0; i < steps; i += 4) {                                                                       \
            int64_t together = steps - i < 4 ? steps - i : 4;                                                          \
            for (int64_t k = 0; k < together; k++) {                                                                   \
                half_load_##half(n, (const uint16_t *)x + (i + k) * step, stride, buffer + k * n);                     \
            }                                                                                                          \
            base##_columns(n, buffer, 1, together, n, position + i, accumulators);                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_row(int64_t n, const void *x, int64_t stride, int64_t position,                                 \
                           struct cpu_accumulators *accumulators) {                                                    \
        float buffer[4 * CPU_BLOCK];                                                                                   \
        for (int64_t i = 0; i < n; i += 4 * CPU_BLOCK) {                                                               \
            int64_t block = n - i < 4 * CPU_BLOCK ? n - i : 4 * CPU_BLOCK;                                             \
            half_load_##half(block, (const uint16_t *)x + i * stride, stride, buffer);                                 \
            base##_row(block, buffer, 1, position + i, accumulators);                                                  \
        }                                                                                                              \
    }
#define HALF_TABLE(name, base, finish)                                                                                 \
    static const struct cpu_reduction name = {base##_start, name##_row, name##_columns, base##_merge, finish##_finish};
#define HALF_REDUCTION(name, half, base, A, result)                                                                    \
    HALF_STEPS(name, half, base)                                                                                       \
    FINISH(name, A, uint16_t, half_to_##half(result))                                                                  \
    HALF_TABLE(name, base, name)

/* f32 and halves of a reduction that accumulates in f64 and gives `result`. */
#define NARROW_FLOATS(name, base, result)                                                                              \
    FINISH(name##_f32, double, float, (float)(result))                                                                 \
    TABLE(name##_f32, base##_f32, name##_f32)                                                                          \
    HALF_REDUCTION(name##_f16, f16, base##_f32, double, formula_odd(result))                                           \
    HALF_REDUCTION(name##_bf16, bf16, base##_f32, double, formula_odd(result))

/* ---- sums and products ---- */

/* Of u64, too; integers of fewer bits come converted. */
STEPS(sum_i64, uint64_t, uint64_t, +, 0, TAKE_SUM, MAP_PLAIN)
FINISH(sum_i64, uint64_t, uint64_t, v)
TABLE(sum_i64, sum_i64, sum_i64)
STEPS(prod_i64, uint64_t, uint64_t, *, 1, TAKE_PRODUCT, MAP_PLAIN)
FINISH(prod_i64, uint64_t, uint64_t, v)
TABLE(prod_i64, prod_i64, prod_i64)

STEPS(prod_f64, double, double, *, 1, TAKE_PRODUCT, MAP_PLAIN)
FINISH(prod_f64, double, double, v)
TABLE(prod_f64, prod_f64, prod_f64)
STEPS(prod_f32, float, double, *, 1, TAKE_PRODUCT, MAP_PLAIN)
NARROW_FLOATS(prod, prod, v)

/* Products of complex numbers: the real part is in `value`, the imaginary part in `extra`. Sums are those of the parts. */
INLINE void prod_complex_take(double *value, double *extra, double re, double im) {
    const double before = *value;
    *value = before * re - *extra * im;
    *extra = before * im + *extra * re;
}
static void prod_complex_start(int64_t n, struct cpu_accumulators *accumulators) {
    VALUES(double);
    EXTRA(double);
    for (int64_t i = 0; i < n; i++) {
        value[i] = 1;
        extra[i] = 0;
    }
}
static void prod_complex_merge(int64_t n, struct cpu_accumulators *accumulators, const struct cpu_accumulators *from) {
    VALUES(double);
    EXTRA(double);
    FROM_VALUES(double);
    FROM_EXTRA(double);
    for (int64_t i = 0; i < n; i++) {
        prod_complex_take(&value[i], &extra[i], other[i], other_extra[i]);
    }
}
#define COMPLEX_PRODUCT(name, T)                                                                                       \
    static void name##_columns(int64_t n, const void *elements, int64_t stride, int64_t steps, int64_t step,           \
                               int64_t position, struct cpu_accumulators *accumulators) {                              \
        VALUES(double);                                                                                                \
        EXTRA(double);                                                                                                 \
        const T *x = elements;                                                                                         \
        (void)position;                                                                                                \
        for (; steps > 0; steps--, x += 2 * step) {                                                                    \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                prod_complex_take(&value[i], &extra[i], (double)x[2 * i * stride], (double)x[2 * i * stride + 1]);     \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_row(int64_t n, const void *x, int64_t stride, int64_t position,                                 \
                           struct cpu_accumulators *accumulators) {                                                    \
        name##_columns(1, x, 1, n, stride, position, accumulators);                                                    \
    }                                                                                                                  \
    static void name##_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {      \
        const double *value = (const void *)accumulators->value, *extra = (const void *)accumulators->extra;           \
        T *z = out;                                                                                                    \
        (void)count;                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            z[2 * i] = (T)value[i];                                                                                    \
            z[2 * i + 1] = (T)extra[i];                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct cpu_reduction name = {prod_complex_start, name##_row, name##_columns, prod_complex_merge,      \
                                              name##_finish};
COMPLEX_PRODUCT(prod_c64, float)
COMPLEX_PRODUCT(prod_c128, double)

/* Adds x to *sum, and the rounding error to *error (Knuth's TwoSum). Infinities and NaN make the error NaN: then the sum is right without
 * it, and finish ignores it. */
INLINE void sum_f64_add(double x, double *sum, double *error) {
    double before = *sum, after = before + x, part = after - before;
    *error += (before - (after - part)) + (x - part);
    *sum = after;
}

INLINE double sum_f64_result(double sum, double error) {
    return __builtin_isfinite(error) ? sum + error : sum;
}

static void sum_f64_start(int64_t n, struct cpu_accumulators *accumulators) {
    memset(accumulators->value, 0, (size_t)n * sizeof(double));
    memset(accumulators->extra, 0, (size_t)n * sizeof(double));
}

static void sum_f64_merge(int64_t n, struct cpu_accumulators *accumulators, const struct cpu_accumulators *from) {
    VALUES(double);
    EXTRA(double);
    FROM_VALUES(double);
    FROM_EXTRA(double);
    for (int64_t i = 0; i < n; i++) {
        sum_f64_add(other[i], &value[i], &extra[i]);
        extra[i] += other_extra[i];
    }
}

/* A sum of MAP(x), in f64 with its error. */
#define SUM_F64(name, MAP, contiguous)                                                                                 \
    INLINE void name##_step(int64_t n, const double *x, int64_t stride, double *value, double *extra,                  \
                            double parameter) {                                                                        \
        (void)parameter;                                                                                               \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum_f64_add(MAP(x[i * stride]), &value[i], &extra[i]);                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_columns(int64_t n, const void *x, int64_t stride, int64_t steps, int64_t step,                  \
                               int64_t position, struct cpu_accumulators *accumulators) {                              \
        VALUES(double);                                                                                                \
        EXTRA(double);                                                                                                 \
        (void)position;                                                                                                \
        for (int64_t i = 0; i < steps; i++) {                                                                          \
            if (stride == 1) {                                                                                         \
                name##_step(n, (const double *)x + i * step, 1, value, extra, accumulators->parameter);                \
            } else {                                                                                                   \
                name##_step(n, (const double *)x + i * step, stride, value, extra, accumulators->parameter);           \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    STREAMS(name, double, double, double, +, 0, TAKE_SUM, MAP)                                                         \
    SUM_F64_ROW(name, contiguous)
#define SUM_F64_ROW(name, contiguous)                                                                                  \
    static void name##_row(int64_t n, const void *x, int64_t stride, int64_t position,                                 \
                           struct cpu_accumulators *accumulators) {                                                    \
        VALUES(double);                                                                                                \
        EXTRA(double);                                                                                                 \
        const double parameter = accumulators->parameter;                                                              \
        (void)position;                                                                                                \
        for (int64_t i = 0; i < n; i += SUM_BLOCK) {                                                                   \
            const int64_t block = n - i < SUM_BLOCK ? n - i : SUM_BLOCK;                                               \
            const double *from = (const double *)x + i * stride;                                                       \
            sum_f64_add(stride == 1 ? contiguous(block, from, 1, parameter)                                            \
                                    : name##_streams(block, from, stride, parameter),                                  \
                        value, extra);                                                                                 \
        }                                                                                                              \
    }
#define SUM_F64_FINISH(name, result)                                                                                   \
    static void name##_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {      \
        const double *value = (const void *)accumulators->value, *extra = (const void *)accumulators->extra;           \
        const double parameter = accumulators->parameter;                                                              \
        double *z = out;                                                                                               \
        (void)count, (void)parameter;                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const double v = sum_f64_result(value[i], extra[i]);                                                       \
            z[i] = result;                                                                                             \
        }                                                                                                              \
    }
#define SUM_F64_TABLE(name, base)                                                                                      \
    static const struct cpu_reduction name = {sum_f64_start, base##_row, base##_columns, sum_f64_merge, name##_finish};

/* The sum of MAP(x) for all floats; `result` is made of it. */
#define FLOAT_SUMS(name, MAP, result)                                                                                  \
    STEPS(name##_f32, float, double, +, 0, TAKE_SUM, MAP)                                                              \
    NARROW_FLOATS(name, name, result)                                                                                  \
    FLOAT_SUMS_F64(name, MAP, result, name##_f64_streams)
#define FLOAT_SUMS_F64(name, MAP, result, contiguous)                                                                  \
    SUM_F64(name##_f64, MAP, contiguous)                                                                               \
    SUM_F64_FINISH(name##_f64, result)                                                                                 \
    SUM_F64_TABLE(name##_f64, name##_f64)

VECTOR_SUM(sum_f32, float, MAP_PLAIN)
INLINE double sum_f32_contiguous(int64_t n, const void *x, int64_t stride, double parameter) {
    const double sum = eights_f32(n, x);
    return __builtin_isfinite(sum) ? sum : sum_f32_vectors(n, x, stride, parameter);
}
STREAMS(sum_f32, float, double, double, +, 0, TAKE_SUM, MAP_PLAIN)
START(sum_f32, double, 0)
COLUMNS(sum_f32_exact, float, double, double, TAKE_SUM, MAP_PLAIN)
ROW(sum_f32, float, double, double, +, 0, TAKE_SUM, MAP_PLAIN, sum_f32_contiguous)
MERGE(sum_f32, double, TAKE_SUM)

static void sum_f32_columns(int64_t n, const void *elements, int64_t stride, int64_t steps, int64_t step,
                            int64_t position, struct cpu_accumulators *accumulators) {
    VALUES(double);
    float four[CPU_REDUCE_WIDTH];
    const float *x = elements;
    for (; stride == 1 && steps >= 4; steps -= 4, x += 4 * step) {
        const float *x1 = x + step, *x2 = x1 + step, *x3 = x2 + step;
        float zero = 0; /* NaN if some sum is not finite */
        CPU_LOOP_SUM(zero)
        for (int64_t i = 0; i < n; i++) {
            const float sum = (x[i] + x1[i]) + (x2[i] + x3[i]);
            four[i] = sum;
            zero += sum * 0;
        }
        if (zero != 0) {
            sum_f32_exact_columns(n, x, 1, 4, step, position, accumulators);
            continue;
        }
        CPU_LOOP
        for (int64_t i = 0; i < n; i++) {
            value[i] += (double)four[i];
        }
    }
    sum_f32_exact_columns(n, x, stride, steps, step, position, accumulators);
}

#define HALF_SUM(half)                                                                                                 \
    HALF_STEPS(sum_##half##_exact, half, sum_f32)                                                                      \
    static void sum_##half##_row(int64_t n, const void *x, int64_t stride, int64_t position,                           \
                                 struct cpu_accumulators *accumulators) {                                              \
        VALUES(double);                                                                                                \
        const double sum = stride == 1 ? eights_##half(n, x) : (double)NAN;                                            \
        if (__builtin_isfinite(sum)) {                                                                                 \
            *value += sum;                                                                                             \
        } else {                                                                                                       \
            sum_##half##_exact_row(n, x, stride, position, accumulators);                                              \
        }                                                                                                              \
    }
HALF_SUM(f16)
HALF_SUM(bf16)

/* A reduction of sums of f32 or halves, `result` of an accumulator v. */
#define OF_SUM(name, result)                                                                                           \
    FINISH(name##_f32, double, float, (float)(result))                                                                 \
    TABLE(name##_f32, sum_f32, name##_f32)                                                                             \
    OF_HALF_SUM(name##_f16, f16, formula_odd(result))                                                                  \
    OF_HALF_SUM(name##_bf16, bf16, formula_odd(result))
#define OF_HALF_SUM(name, half, result)                                                                                \
    FINISH(name, double, uint16_t, half_to_##half(result))                                                             \
    static const struct cpu_reduction name = {sum_f32_start, sum_##half##_row, sum_##half##_exact_columns,             \
                                              sum_f32_merge, name##_finish};
OF_SUM(sum, v)
OF_SUM(mean, (v / (double)count))

VECTOR_SUM(sum_f64, double, MAP_PLAIN)
FLOAT_SUMS_F64(sum, MAP_PLAIN, v, sum_f64_vectors)
SUM_F64_FINISH(mean_f64, v / (double)count)
SUM_F64_TABLE(mean_f64, sum_f64)

/* ---- norms that are sums ---- */

#define MAP_NONZERO(x) ((x) != 0 ? 1.0 : 0.0)
#define MAP_ABS(x) __builtin_fabs(x)
#define MAP_SQUARE(x) ((x) * (x))
#define MAP_POWER(x) pow(__builtin_fabs(x), parameter)
FLOAT_SUMS(norm_0, MAP_NONZERO, v)
FLOAT_SUMS(norm_1, MAP_ABS, v)
VECTOR_SUM(norm_2_f32, float, MAP_SQUARE)
VECTOR_SUM(norm_2_f64, double, MAP_SQUARE)
STREAMS(norm_2_f32, float, double, double, +, 0, TAKE_SUM, MAP_SQUARE)
STEPS_ROW(norm_2_f32, float, double, +, 0, TAKE_SUM, MAP_SQUARE, norm_2_f32_vectors)
NARROW_FLOATS(norm_2, norm_2, sqrt(v))
FLOAT_SUMS_F64(norm_2, MAP_SQUARE, sqrt(v), norm_2_f64_vectors)
FLOAT_SUMS(norm_power, MAP_POWER, pow(v, 1 / parameter))

/* ---- variance: means and sums of squared distances from them, merged after Chan, Golub and LeVeque ---- */

static void var_start(int64_t n, struct cpu_accumulators *accumulators) {
    sum_f64_start(n, accumulators);
    accumulators->taken = 0;
}

/* The weight of the distance between the means of two groups, and of the second mean in the whole's. */
struct var_weights {
    double distance, second;
};

INLINE struct var_weights var_weights(int64_t first, int64_t second) {
    double share = (double)second / ((double)first + (double)second);
    return (struct var_weights){(double)first * share, share};
}

/* A distance's square may overflow where its weight is 0, so it comes last. */
INLINE void var_join(struct var_weights weights, double mean, double squares, double *value, double *extra) {
    double distance = mean - *value;
    *value += distance * weights.second;
    *extra += squares + distance * (distance * weights.distance);
}

static void var_merge(int64_t n, struct cpu_accumulators *accumulators, const struct cpu_accumulators *from) {
    VALUES(double);
    EXTRA(double);
    FROM_VALUES(double);
    FROM_EXTRA(double);
    if (from->taken > 0) {
        const struct var_weights weights = var_weights(accumulators->taken, from->taken);
        for (int64_t i = 0; i < n; i++) {
            var_join(weights, other[i], other_extra[i], &value[i], &extra[i]);
        }
        accumulators->taken += from->taken;
    }
}

#define VAR_STEPS(name, T)                                                                                             \
    INLINE void name##_four(int64_t n, const T *x, int64_t stride, int64_t step, struct var_weights weights,           \
                            double *value, double *extra) {                                                            \
        const T *x1 = x + step, *x2 = x1 + step, *x3 = x2 + step;                                                      \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            double a = (double)x[i * stride], b = (double)x1[i * stride];                                              \
            double c = (double)x2[i * stride], d = (double)x3[i * stride];                                             \
            double mean = a * 0.25 + b * 0.25 + (c * 0.25 + d * 0.25);                                                 \
            a -= mean, b -= mean, c -= mean, d -= mean;                                                                \
            var_join(weights, mean, a *a + b * b + (c * c + d * d), &value[i], &extra[i]);                             \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_columns(int64_t n, const void *elements, int64_t stride, int64_t steps, int64_t step,           \
                               int64_t position, struct cpu_accumulators *accumulators) {                              \
        VALUES(double);                                                                                                \
        EXTRA(double);                                                                                                 \
        const T *x = elements;                                                                                         \
        (void)position;                                                                                                \
        for (; steps >= 4; steps -= 4, x += 4 * step, accumulators->taken += 4) {                                      \
            const struct var_weights weights = var_weights(accumulators->taken, 4);                                    \
            if (stride == 1) {                                                                                         \
                name##_four(n, x, 1, step, weights, value, extra);                                                     \
            } else {                                                                                                   \
                name##_four(n, x, stride, step, weights, value, extra);                                                \
            }                                                                                                          \
        }                                                                                                              \
        for (; steps > 0; steps--, x += step, accumulators->taken++) {                                                 \
            const struct var_weights weights = var_weights(accumulators->taken, 1);                                    \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                var_join(weights, (double)x[i * stride], 0 * (double)x[i * stride], &value[i], &extra[i]);             \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void name##_block(int64_t n, const T *x, int64_t stride, struct cpu_accumulators *accumulators) {           \
        double sum = 0, squares = 0;                                                                                   \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum += (double)x[i * stride];                                                                              \
        }                                                                                                              \
        const double mean = sum / (double)n;                                                                           \
        CPU_LOOP_SUM(squares)                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            squares += ((double)x[i * stride] - mean) * ((double)x[i * stride] - mean);                                \
        }                                                                                                              \
        VALUES(double);                                                                                                \
        EXTRA(double);                                                                                                 \
        var_join(var_weights(accumulators->taken, n), mean, squares, value, extra);                                    \
        accumulators->taken += n;                                                                                      \
    }                                                                                                                  \
    static void name##_row(int64_t n, const void *x, int64_t stride, int64_t position,                                 \
                           struct cpu_accumulators *accumulators) {                                                    \
        (void)position;                                                                                                \
        for (int64_t i = 0; i < n; i += CPU_BLOCK) {                                                                   \
            const int64_t block = n - i < CPU_BLOCK ? n - i : CPU_BLOCK;                                               \
            if (stride == 1) {                                                                                         \
                name##_block(block, (const T *)x + i, 1, accumulators);                                                \
            } else {                                                                                                   \
                name##_block(block, (const T *)x + i * stride, stride, accumulators);                                  \
            }                                                                                                          \
        }                                                                                                              \
    }
VAR_STEPS(var_f32, float)
VAR_STEPS(var_f64, double)
HALF_STEPS(var_f16, f16, var_f32)
HALF_STEPS(var_bf16, bf16, var_f32)

#define VAR_DIVISOR ((double)count > parameter ? (double)count - parameter : 0)
#define VAR_TABLE(name, dtype, R, store, result)                                                                       \
    static void name##_##dtype##_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count,         \
                                        void *out) {                                                                   \
        const double *extra = (const void *)accumulators->extra, parameter = accumulators->parameter;                  \
        R *z = out;                                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const double v = extra[i] / VAR_DIVISOR;                                                                   \
            z[i] = store(result);                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct cpu_reduction name##_##dtype = {var_start, var_##dtype##_row, var_##dtype##_columns,           \
                                                        var_merge, name##_##dtype##_finish};
#define VAR_TABLES(name, result)                                                                                       \
    VAR_TABLE(name, f16, uint16_t, half_to_f16, formula_odd(result))                                                   \
    VAR_TABLE(name, bf16, uint16_t, half_to_bf16, formula_odd(result))                                                 \
    VAR_TABLE(name, f32, float, (float), result)                                                                       \
    VAR_TABLE(name, f64, double, (double), result)
VAR_TABLES(var, v)
VAR_TABLES(std, sqrt(v))

/* ---- any and all ---- */

STEPS(any_bool, uint8_t, uint8_t, |, 0, TAKE_OR, MAP_PLAIN)
FINISH(any_bool, uint8_t, uint8_t, v)
TABLE(any_bool, any_bool, any_bool)
STEPS(all_bool, uint8_t, uint8_t, &, 1, TAKE_AND, MAP_PLAIN)
FINISH(all_bool, uint8_t, uint8_t, v)
TABLE(all_bool, all_bool, all_bool)

/* ---- elements that are not 0; N has the number of a block ---- */

enum { COUNT_BLOCK = 1 << 20 };
#define COUNT(name, T, N, NONZERO)                                                                                     \
    INLINE N name##_block(int64_t n, const T *x, int64_t stride) {                                                     \
        N count = 0;                                                                                                   \
        CPU_LOOP_SUM(count)                                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            count += NONZERO(x[i * stride]);                                                                           \
        }                                                                                                              \
        return count;                                                                                                  \
    }                                                                                                                  \
    static void name##_row(int64_t n, const void *x, int64_t stride, int64_t position,                                 \
                           struct cpu_accumulators *accumulators) {                                                    \
        VALUES(uint64_t);                                                                                              \
        (void)position;                                                                                                \
        for (int64_t i = 0; i < n; i += COUNT_BLOCK) {                                                                 \
            const int64_t block = n - i < COUNT_BLOCK ? n - i : COUNT_BLOCK;                                           \
            *value += stride == 1 ? name##_block(block, (const T *)x + i, 1)                                           \
                                  : name##_block(block, (const T *)x + i * stride, stride);                            \
        }                                                                                                              \
    }                                                                                                                  \
    COLUMNS(name, T, T, uint64_t, TAKE_SUM, NONZERO)                                                                   \
    static const struct cpu_reduction name = {sum_i64_start, name##_row, name##_columns, sum_i64_merge, sum_i64_finish};
#define NONZERO(x) ((x) != 0)
#define NONZERO_HALF(x) (((x)&0x7fff) != 0)
COUNT(count_1, uint8_t, uint32_t, NONZERO)
COUNT(count_2, uint16_t, uint32_t, NONZERO)
COUNT(count_4, uint32_t, uint32_t, NONZERO)
COUNT(count_8, uint64_t, uint64_t, NONZERO)
COUNT(count_half, uint16_t, uint32_t, NONZERO_HALF)
COUNT(count_f32, float, uint32_t, NONZERO)
COUNT(count_f64, double, uint64_t, NONZERO)

/* ---- extremes ---- */

#define EXTREME(name, T, operation, neutral, TAKE)                                                                     \
    STEPS(name, T, T, operation, neutral, TAKE, MAP_PLAIN)                                                             \
    FINISH(name, T, T, v)                                                                                              \
    TABLE(name, name, name)
#define INTEGER_EXTREMES(NAME, name, T, U, minimum, maximum)                                                           \
    EXTREME(max_##name, T, max, minimum, TAKE_MAX)                                                                     \
    EXTREME(min_##name, T, min, maximum, TAKE_MIN)
CPU_INTEGERS(INTEGER_EXTREMES)

/* A NaN wins and stays. The streams of a row overlook it, for a comparison alone is one instruction; they note whether there is one. */
#define TAKE_MAX_NAN(v, x) ((x) > (v) || (x) != (x) ? (x) : (v))
#define TAKE_MIN_NAN(v, x) ((x) < (v) || (x) != (x) ? (x) : (v))
#define FLOAT_STREAMS(name, T, N, operation, neutral, TAKE, MAP)                                                       \
    INLINE T name##_streams(int64_t n, const T *x, int64_t stride) {                                                   \
        T v0 = neutral, v1 = neutral, v2 = neutral, v3 = neutral;                                                      \
        N nan = 0;                                                                                                     \
        const int64_t quarter = n < SHORT_ROW ? 0 : n / 4;                                                             \
        const T *x1 = x + quarter * stride, *x2 = x1 + quarter * stride, *x3 = x2 + quarter * stride;                  \
        CPU_PRAGMA(omp simd reduction(operation : v0, v1, v2, v3) reduction(| : nan))                                  \
        for (int64_t i = 0; i < quarter; i++) {                                                                        \
            const T a = MAP(x[i * stride]), b = MAP(x1[i * stride]), c = MAP(x2[i * stride]), d = MAP(x3[i * stride]); \
            v0 = TAKE(v0, a);                                                                                          \
            v1 = TAKE(v1, b);                                                                                          \
            v2 = TAKE(v2, c);                                                                                          \
            v3 = TAKE(v3, d);                                                                                          \
            nan |= (N)(__builtin_isunordered(a, b) | __builtin_isunordered(c, d));                                     \
        }                                                                                                              \
        v0 = TAKE(v0, v1);                                                                                             \
        v2 = TAKE(v2, v3);                                                                                             \
        v0 = TAKE(v0, v2);                                                                                             \
        for (int64_t i = 4 * quarter; i < n; i++) {                                                                    \
            const T a = MAP(x[i * stride]);                                                                            \
            v0 = TAKE(v0, a);                                                                                          \
            nan |= (N)(a != a);                                                                                        \
        }                                                                                                              \
        return nan ? (T)__builtin_nan("") : v0;                                                                        \
    }                                                                                                                  \
    static __attribute__((noinline)) T name##_strided(int64_t n, const T *x, int64_t stride) {                         \
        return name##_streams(n, x, stride);                                                                           \
    }
/* Of a row without a stride, in vectors. */
#if defined(__AVX512F__)
#define EXTREME_VECTOR_ps __m512
#define EXTREME_VECTOR_pd __m512d
#define EXTREME_CALL(name, suffix) _mm512_##name##_##suffix
#define EXTREME_OF(operation, suffix, TAKE, v) _mm512_reduce_##operation##_##suffix(v)
#define EXTREME_NAN_ps(v) (_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0)
#define EXTREME_NAN_pd(v) (_mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q) != 0)
#elif defined(__AVX__)
#define EXTREME_VECTOR_ps __m256
#define EXTREME_VECTOR_pd __m256d
#define EXTREME_CALL(name, suffix) _mm256_##name##_##suffix
#define EXTREME_OF(operation, suffix, TAKE, v) EXTREME_OF_##suffix(TAKE, v)
#define EXTREME_OF_pd(TAKE, v) TAKE(TAKE((v)[0], (v)[1]), TAKE((v)[2], (v)[3]))
#define EXTREME_OF_ps(TAKE, v)                                                                                         \
    TAKE(TAKE(TAKE((v)[0], (v)[1]), TAKE((v)[2], (v)[3])), TAKE(TAKE((v)[4], (v)[5]), TAKE((v)[6], (v)[7])))
#define EXTREME_NAN_ps(v) (_mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0)
#define EXTREME_NAN_pd(v) (_mm256_movemask_pd(_mm256_cmp_pd(v, v, _CMP_UNORD_Q)) != 0)
#endif
#if defined(__AVX__)
/* Intel's max and min give their second operand where one is a NaN, as TAKE does. Sums are NaN if an element is: an addition is faster than a
 * comparison. They may be NaN because of infinities, too: then the streams know. */
#define EXTREME_VECTORS(name, T, suffix, operation, neutral, TAKE)                                                     \
    INLINE T name##_vectors(int64_t n, const T *x) {                                                                   \
        enum { LANES = sizeof(EXTREME_VECTOR_##suffix) / sizeof(T) };                                                  \
        EXTREME_VECTOR_##suffix v[4], s[4];                                                                            \
        for (int k = 0; k < 4; k++) {                                                                                  \
            v[k] = EXTREME_CALL(set1, suffix)(neutral);                                                                \
            s[k] = EXTREME_CALL(set1, suffix)(0);                                                                      \
        }                                                                                                              \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 * LANES <= n; i += 4 * LANES) {                                                                   \
            for (int k = 0; k < 4; k++) {                                                                              \
                const EXTREME_VECTOR_##suffix a = EXTREME_CALL(loadu, suffix)(x + i + k * LANES);                      \
                v[k] = EXTREME_CALL(operation, suffix)(a, v[k]);                                                       \
                s[k] = EXTREME_CALL(add, suffix)(a, s[k]);                                                             \
            }                                                                                                          \
        }                                                                                                              \
        for (int k = 1; k < 4; k++) {                                                                                  \
            v[0] = EXTREME_CALL(operation, suffix)(v[0], v[k]);                                                        \
            s[0] = EXTREME_CALL(add, suffix)(s[0], s[k]);                                                              \
        }                                                                                                              \
        T best = EXTREME_OF(operation, suffix, TAKE, v[0]);                                                            \
        bool nan = EXTREME_NAN_##suffix(s[0]);                                                                         \
        for (; i < n; i++) {                                                                                           \
            best = TAKE(best, x[i]);                                                                                   \
            nan |= x[i] != x[i];                                                                                       \
        }                                                                                                              \
        return nan ? name##_strided(n, x, 1) : best;                                                                   \
    }
#else
#define EXTREME_VECTORS(name, T, suffix, operation, neutral, TAKE)                                                     \
    INLINE T name##_vectors(int64_t n, const T *x) {                                                                   \
        return name##_streams(n, x, 1);                                                                                \
    }
#endif
#define EXTREME_STREAMS(name, T, suffix, operation, neutral, TAKE)                                                     \
    INLINE T name##_vectors(int64_t n, const T *x) {                                                                   \
        return name##_streams(n, x, 1);                                                                                \
    }

#define FLOAT_EXTREME(name, T, N, suffix, operation, neutral, TAKE, MAP, CONTIGUOUS)                                   \
    FLOAT_STREAMS(name, T, N, operation, neutral, TAKE, MAP)                                                           \
    CONTIGUOUS(name, T, suffix, operation, neutral, TAKE)                                                              \
    INLINE T name##_of_row(int64_t n, const T *x, int64_t stride) {                                                    \
        return stride == 1 ? name##_vectors(n, x) : name##_strided(n, x, stride);                                      \
    }                                                                                                                  \
    START(name, T, neutral)                                                                                            \
    COLUMNS(name, T, T, T, TAKE##_NAN, MAP)                                                                            \
    static void name##_row(int64_t n, const void *x, int64_t stride, int64_t position,                                 \
                           struct cpu_accumulators *accumulators) {                                                    \
        VALUES(T);                                                                                                     \
        (void)position;                                                                                                \
        const T v = name##_of_row(n, x, stride);                                                                       \
        *value = TAKE##_NAN(*value, v);                                                                                \
    }                                                                                                                  \
    MERGE(name, T, TAKE##_NAN)                                                                                         \
    FINISH(name, T, T, v)                                                                                              \
    TABLE(name, name, name)
#define FLOAT_EXTREMES(name, operation, INFINITY_, TAKE, MAP32, MAP64, CONTIGUOUS)                                     \
    FLOAT_EXTREME(name##_f32, float, uint32_t, ps, operation, INFINITY_##f(), TAKE, MAP32, CONTIGUOUS)                 \
    FLOAT_EXTREME(name##_f64, double, uint64_t, pd, operation, INFINITY_(), TAKE, MAP64, CONTIGUOUS)                   \
    HALF_REDUCTION(name##_f16, f16, name##_f32, float, v)                                                              \
    HALF_REDUCTION(name##_bf16, bf16, name##_f32, float, v)
#define MAP_ABS32(x) __builtin_fabsf(x)
#define ZERO() 0.0
#define ZEROf() 0.0f
#define LOWEST() (-__builtin_inf())
#define LOWESTf() (-__builtin_inff())
FLOAT_EXTREMES(max, max, LOWEST, TAKE_MAX, MAP_PLAIN, MAP_PLAIN, EXTREME_VECTORS)
FLOAT_EXTREMES(min, min, __builtin_inf, TAKE_MIN, MAP_PLAIN, MAP_PLAIN, EXTREME_VECTORS)
FLOAT_EXTREMES(norm_max, max, ZERO, TAKE_MAX, MAP_ABS32, MAP_ABS, EXTREME_STREAMS)
FLOAT_EXTREMES(norm_min, min, __builtin_inf, TAKE_MIN, MAP_ABS32, MAP_ABS, EXTREME_STREAMS)

/* ---- positions of extremes: of a block first the extreme, then, if it is better than all before, where it is ---- */

enum {
    POSITION_BLOCK = 1024, /* elements, which stay in the first-level cache until the extreme is looked for */
    POSITION_SEARCH = 64,  /* elements that are compared with it at a time */
};

/* A negative position: nothing seen yet. */
static void position_start(int64_t n, struct cpu_accumulators *accumulators) {
    EXTRA(int64_t);
    memset(accumulators->value, 0, (size_t)n * 8);
    for (int64_t i = 0; i < n; i++) {
        extra[i] = -1;
    }
}

static void position_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {
    (void)count;
    memcpy(out, accumulators->extra, (size_t)n * sizeof(int64_t));
}

/* BEATS(x, v): whether x is more extreme than v. SAME(x, v): whether x is the extreme v. `of` is a reduction of a row to the extreme. */
#define POSITION(name, T, BEATS, SAME, of)                                                                             \
    static void name##_columns(int64_t n, const void *elements, int64_t stride, int64_t steps, int64_t step,           \
                               int64_t position, struct cpu_accumulators *accumulators) {                              \
        VALUES(T);                                                                                                     \
        EXTRA(int64_t);                                                                                                \
        const T *e = elements;                                                                                         \
        for (int64_t k = 0; k < steps; k++, e += step) {                                                               \
            const int64_t here = position + k;                                                                         \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T x = e[i * stride], v = value[i];                                                               \
                const bool take = (extra[i] < 0) | BEATS(x, v);                                                        \
                value[i] = take ? x : v;                                                                               \
                extra[i] = take ? here : extra[i];                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* The first of n elements that is v; there is one. */                                                             \
    INLINE int64_t name##_find(int64_t n, const T *e, int64_t stride, T v) {                                           \
        int64_t i = 0;                                                                                                 \
        for (; i + POSITION_SEARCH <= n; i += POSITION_SEARCH) {                                                       \
            uint8_t found = 0;                                                                                         \
            CPU_PRAGMA(omp simd reduction(| : found))                                                                  \
            for (int64_t k = i; k < i + POSITION_SEARCH; k++) {                                                        \
                found |= SAME(e[k * stride], v);                                                                       \
            }                                                                                                          \
            if (found) {                                                                                               \
                break;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        while (!SAME(e[i * stride], v)) {                                                                              \
            i++;                                                                                                       \
        }                                                                                                              \
        return i;                                                                                                      \
    }                                                                                                                  \
    INLINE void name##_block(int64_t n, const T *e, int64_t stride, int64_t position, T *value, int64_t *at) {         \
        const T v = of;                                                                                                \
        if (*at < 0 || BEATS(v, *value)) {                                                                             \
            *at = position + name##_find(n, e, stride, v);                                                             \
            *value = v;                                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_row(int64_t n, const void *elements, int64_t stride, int64_t position,                          \
                           struct cpu_accumulators *accumulators) {                                                    \
        VALUES(T);                                                                                                     \
        EXTRA(int64_t);                                                                                                \
        const T *e = elements;                                                                                         \
        for (int64_t i = 0; i < n; i += POSITION_BLOCK) {                                                              \
            const int64_t block = n - i < POSITION_BLOCK ? n - i : POSITION_BLOCK;                                     \
            if (stride == 1) {                                                                                         \
                name##_block(block, e + i, 1, position + i, value, extra);                                             \
            } else {                                                                                                   \
                name##_block(block, e + i * stride, stride, position + i, value, extra);                               \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_merge(int64_t n, struct cpu_accumulators *accumulators, const struct cpu_accumulators *from) {  \
        VALUES(T);                                                                                                     \
        EXTRA(int64_t);                                                                                                \
        FROM_VALUES(T);                                                                                                \
        FROM_EXTRA(int64_t);                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            if (other_extra[i] >= 0 && (extra[i] < 0 || BEATS(other[i], value[i]))) {                                  \
                value[i] = other[i];                                                                                   \
                extra[i] = other_extra[i];                                                                             \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct cpu_reduction name = {position_start, name##_row, name##_columns, name##_merge,                \
                                              position_finish};

#define GREATER(x, v) ((x) > (v))
#define LESS(x, v) ((x) < (v))
#define EQUAL(x, v) ((x) == (v))
#define INTEGER_POSITIONS(NAME, name, T, U, minimum, maximum)                                                          \
    POSITION(argmax_##name, T, GREATER, EQUAL, max_##name##_streams(n, e, stride, 0))                                  \
    POSITION(argmin_##name, T, LESS, EQUAL, min_##name##_streams(n, e, stride, 0))
CPU_INTEGERS(INTEGER_POSITIONS)
#define GREATER_NAN(x, v) (((x) > (v)) | (((x) != (x)) & ((v) == (v))))
#define LESS_NAN(x, v) (((x) < (v)) | (((x) != (x)) & ((v) == (v))))
#define EQUAL_NAN(x, v) (((x) == (v)) | (((x) != (x)) & ((v) != (v))))
#define FLOAT_POSITIONS(name, T)                                                                                       \
    POSITION(argmax_##name, T, GREATER_NAN, EQUAL_NAN, max_##name##_of_row(n, e, stride))                              \
    POSITION(argmin_##name, T, LESS_NAN, EQUAL_NAN, min_##name##_of_row(n, e, stride))
FLOAT_POSITIONS(f32, float)
FLOAT_POSITIONS(f64, double)
#define HALF_POSITIONS(name, half, base)                                                                               \
    HALF_STEPS(name, half, base)                                                                                       \
    static const struct cpu_reduction name = {position_start, name##_row, name##_columns, base##_merge,                \
                                              position_finish};
HALF_POSITIONS(argmax_f16, f16, argmax_f32)
HALF_POSITIONS(argmin_f16, f16, argmin_f32)
HALF_POSITIONS(argmax_bf16, bf16, argmax_f32)
HALF_POSITIONS(argmin_bf16, bf16, argmin_f32)

/* ---- log of a sum of exponentials ----
 *
 * An accumulator is a level m and the sum of exp(x - m), in f64. The level is at most LEVEL_SLACK below the greatest element, and rises
 * rarely: each time the sum is scaled, with a rounding error. */
enum { LEVEL_SLACK = 16 };

/* `lowest` is finite: an element that is -infinity then is exp(-infinity) = 0 like others. The distance of an infinite element from an
 * infinite level is 0. */
#define LOGSUMEXP_STEPS(name, T, lowest, EXP)                                                                          \
    static void name##_start(int64_t n, struct cpu_accumulators *accumulators) {                                       \
        VALUES(T);                                                                                                     \
        EXTRA(double);                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            value[i] = lowest;                                                                                         \
            extra[i] = 0;                                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void name##_step(int64_t n, const T *x, int64_t stride, T *value, double *extra) {                          \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T e = x[i * stride], level = value[i], distance = e == level ? 0 : e - level;                        \
            const bool rises = distance > LEVEL_SLACK;                                                                 \
            const double share = (double)EXP(rises ? -distance : distance);                                            \
            value[i] = rises ? e : level;                                                                              \
            extra[i] = rises ? extra[i] * share + 1 : extra[i] + share;                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_columns(int64_t n, const void *x, int64_t stride, int64_t steps, int64_t step,                  \
                               int64_t position, struct cpu_accumulators *accumulators) {                              \
        VALUES(T);                                                                                                     \
        EXTRA(double);                                                                                                 \
        (void)position;                                                                                                \
        for (int64_t i = 0; i < steps; i++) {                                                                          \
            name##_step(n, (const T *)x + i * step, stride, value, extra);                                             \
        }                                                                                                              \
    }                                                                                                                  \
    static __attribute__((noinline)) double name##_exponentials(int64_t n, const T *x, int64_t stride, T level) {      \
        T buffer[CPU_BLOCK];                                                                                           \
        double sum = 0;                                                                                                \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T e = x[i * stride];                                                                                 \
            buffer[i] = EXP(e == level ? 0 : e - level);                                                               \
        }                                                                                                              \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum += (double)buffer[i];                                                                                  \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void name##_row(int64_t n, const void *elements, int64_t stride, int64_t position,                          \
                           struct cpu_accumulators *accumulators) {                                                    \
        VALUES(T);                                                                                                     \
        EXTRA(double);                                                                                                 \
        (void)position;                                                                                                \
        for (int64_t i = 0; i < n; i += CPU_BLOCK) {                                                                   \
            const int64_t block = n - i < CPU_BLOCK ? n - i : CPU_BLOCK;                                               \
            const T *x = (const T *)elements + i * stride;                                                             \
            T highest = lowest;                                                                                        \
            CPU_PRAGMA(omp simd reduction(max : highest))                                                              \
            for (int64_t k = 0; k < block; k++) {                                                                      \
                highest = x[k * stride] > highest ? x[k * stride] : highest;                                           \
            }                                                                                                          \
            if (highest > *value + LEVEL_SLACK) {                                                                      \
                *extra *= exp((double)*value - (double)highest);                                                       \
                *value = highest;                                                                                      \
            }                                                                                                          \
            *extra += name##_exponentials(block, x, stride, *value);                                                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_merge(int64_t n, struct cpu_accumulators *accumulators, const struct cpu_accumulators *from) {  \
        VALUES(T);                                                                                                     \
        EXTRA(double);                                                                                                 \
        FROM_VALUES(T);                                                                                                \
        FROM_EXTRA(double);                                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T higher = other[i] > value[i] ? other[i] : value[i];                                                \
            const double own = higher == value[i] ? 0 : (double)value[i] - (double)higher;                             \
            const double others = higher == other[i] ? 0 : (double)other[i] - (double)higher;                          \
            extra[i] = extra[i] * exp(own) + other_extra[i] * exp(others);                                             \
            value[i] = higher;                                                                                         \
        }                                                                                                              \
    }
#define LOGSUMEXP_TABLE(name, base, T, R, store)                                                                       \
    static void name##_finish(int64_t n, const struct cpu_accumulators *accumulators, int64_t count, void *out) {      \
        const T *value = (const void *)accumulators->value;                                                            \
        const double *extra = (const void *)accumulators->extra;                                                       \
        R *z = out;                                                                                                    \
        (void)count;                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            z[i] = store((double)value[i] + log(extra[i]));                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct cpu_reduction name = {base##_start, name##_row, name##_columns, base##_merge, name##_finish};
#define STORE_F16(x) half_to_f16(formula_odd(x))
#define STORE_BF16(x) half_to_bf16(formula_odd(x))
LOGSUMEXP_STEPS(logsumexp_f32, float, -FLT_MAX, vector_exp)
LOGSUMEXP_STEPS(logsumexp_f64, double, -DBL_MAX, exp)
HALF_STEPS(logsumexp_f16, f16, logsumexp_f32)
HALF_STEPS(logsumexp_bf16, bf16, logsumexp_f32)
LOGSUMEXP_TABLE(logsumexp_f16, logsumexp_f32, float, uint16_t, STORE_F16)
LOGSUMEXP_TABLE(logsumexp_bf16, logsumexp_f32, float, uint16_t, STORE_BF16)
LOGSUMEXP_TABLE(logsumexp_f32, logsumexp_f32, float, float, (float))
LOGSUMEXP_TABLE(logsumexp_f64, logsumexp_f64, double, double, (double))

/* ---- the table; a bool is a u8 of 0 or 1 ---- */

/* clang-format off */
#define FLOATS(name)                                                                                                   \
    [DTYPE_F16] = &name##_f16, [DTYPE_BF16] = &name##_bf16, [DTYPE_F32] = &name##_f32, [DTYPE_F64] = &name##_f64
#define ALL_DTYPES(name)                                                                                               \
    {[DTYPE_BOOL] = &name##_u8, [DTYPE_U8] = &name##_u8, [DTYPE_I8] = &name##_i8, [DTYPE_I16] = &name##_i16,           \
     [DTYPE_I32] = &name##_i32, [DTYPE_I64] = &name##_i64, [DTYPE_U16] = &name##_u16, [DTYPE_U32] = &name##_u32,       \
     [DTYPE_U64] = &name##_u64, FLOATS(name)}
#define SUMS(name) {[DTYPE_I64] = &name##_i64, [DTYPE_U64] = &name##_i64, FLOATS(name)}

const struct cpu_reduction *const CPU_NAME(reductions)[CPU_REDUCE_COUNT][DTYPE_COUNT] = {
    [CPU_REDUCE_SUM] = SUMS(sum),
    [CPU_REDUCE_PROD] = {[DTYPE_I64] = &prod_i64,
                         [DTYPE_U64] = &prod_i64,
                         FLOATS(prod),
                         [DTYPE_C64] = &prod_c64,
                         [DTYPE_C128] = &prod_c128},
    [CPU_REDUCE_MEAN] = {FLOATS(mean)},
    [CPU_REDUCE_MAX] = ALL_DTYPES(max),
    [CPU_REDUCE_MIN] = ALL_DTYPES(min),
    [CPU_REDUCE_ANY] = {[DTYPE_BOOL] = &any_bool},
    [CPU_REDUCE_ALL] = {[DTYPE_BOOL] = &all_bool},
    [CPU_REDUCE_ARGMAX] = ALL_DTYPES(argmax),
    [CPU_REDUCE_ARGMIN] = ALL_DTYPES(argmin),
    [CPU_REDUCE_VAR] = {FLOATS(var)},
    [CPU_REDUCE_STD] = {FLOATS(std)},
    [CPU_REDUCE_COUNT_NONZERO] =
        {[DTYPE_BOOL] = &count_1, [DTYPE_U8] = &count_1, [DTYPE_I8] = &count_1, [DTYPE_I16] = &count_2,
         [DTYPE_I32] = &count_4, [DTYPE_I64] = &count_8, [DTYPE_U16] = &count_2, [DTYPE_U32] = &count_4,
         [DTYPE_U64] = &count_8, [DTYPE_F16] = &count_half, [DTYPE_BF16] = &count_half, [DTYPE_F32] = &count_f32,
         [DTYPE_F64] = &count_f64},
    [CPU_REDUCE_LOGSUMEXP] = {FLOATS(logsumexp)},
    [CPU_REDUCE_NORM_0] = {FLOATS(norm_0)},
    [CPU_REDUCE_NORM_1] = {FLOATS(norm_1)},
    [CPU_REDUCE_NORM_2] = {FLOATS(norm_2)},
    [CPU_REDUCE_NORM_POWER] = {FLOATS(norm_power)},
    [CPU_REDUCE_NORM_MAX] = {FLOATS(norm_max)},
    [CPU_REDUCE_NORM_MIN] = {FLOATS(norm_min)},
};
/* clang-format on */
