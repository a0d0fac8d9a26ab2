/* Sums, products, and what is made of sums. Sums of f32 and of halves are accumulated in f64, of elements in eights, which are added in f32
 * (if they overflow there, in f64); sums of f64 with their rounding errors; integers wrap around in 64 bits. So all sums are at least as
 * exact as pairwise summation, in any order of the axes. Eights, since to convert an element takes as long as to add two. */
#include <math.h>

#include "engine/cpu/rows_reduce.h"

enum { SUM_BLOCK = 512 }; /* f64 elements that are added plainly between two additions that keep the error */

/* ---- contiguous rows ---- */

/* Vectors of the level: so many f64 are one, and as many f32 or twice as many. */
#if defined(__AVX512F__)
enum { WIDE = 8 };
#elif defined(__AVX__)
enum { WIDE = 4 };
#else
enum { WIDE = 2 };
#endif
typedef double wide_f64 __attribute__((vector_size(WIDE * sizeof(double))));
typedef double read_f64 __attribute__((vector_size(WIDE * sizeof(double)), aligned(8), may_alias));
typedef float read_f32 __attribute__((vector_size(WIDE * sizeof(float)), aligned(4), may_alias));
typedef float wide_f32 __attribute__((vector_size(2 * WIDE * sizeof(float))));
typedef uint32_t wide_u32 __attribute__((vector_size(2 * WIDE * sizeof(float))));
typedef float narrow_f32 __attribute__((vector_size(2 * WIDE * sizeof(float)), aligned(4), may_alias));
typedef uint32_t read_u32 __attribute__((vector_size(2 * WIDE * sizeof(float)), aligned(2), may_alias));

/* In f64: a vector of f32, and the halves of one that is twice as long. */
#if defined(__AVX512F__)
#define WIDE_FROM_float(x) ((wide_f64)_mm512_cvtps_pd((__m256)(x)))
#define WIDE_LOW(x) ((wide_f64)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)(x))))
#define WIDE_HIGH(x) ((wide_f64)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)(x), 1)))
#elif defined(__AVX__)
#define WIDE_FROM_float(x) __builtin_convertvector(x, wide_f64)
#define WIDE_LOW(x) __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1, 2, 3), wide_f64)
#define WIDE_HIGH(x) __builtin_convertvector(__builtin_shufflevector(x, x, 4, 5, 6, 7), wide_f64)
#else
#define WIDE_FROM_float(x) __builtin_convertvector(x, wide_f64)
#define WIDE_LOW(x) __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1), wide_f64)
#define WIDE_HIGH(x) __builtin_convertvector(__builtin_shufflevector(x, x, 2, 3), wide_f64)
#endif
#define WIDE_FROM_double(x) (x)

INLINE double wide_sum(wide_f64 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_pd((__m512d)v);
#elif defined(__AVX__)
    return (v[0] + v[1]) + (v[2] + v[3]);
#else
    return v[0] + v[1];
#endif
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
    const wide_f64 element_##k = WIDE_FROM_##T(*(const VECTOR_READ_##T *)(const void *)(x + i + k * WIDE));            \
    v += MAP(element_##k)
#define VECTOR_READ_float read_f32
#define VECTOR_READ_double read_f64

/* The same in eights, and in fours and then vector by vector what is left. Where they overflow the result is not finite; so it may be
 * elsewhere, too. */
#define EIGHTS_SUM(name, T, FOUR, ONE, step, REST)                                                                     \
    INLINE double name(int64_t n, const T *x) {                                                                        \
        wide_f64 v0 = {0}, v1 = v0, v2 = v0, v3 = v0;                                                                  \
        int64_t i = 0;                                                                                                 \
        for (; i + 32 * WIDE <= n; i += 32 * WIDE) {                                                                   \
            const wide_f32 a = FOUR(x + i) + FOUR(x + i + 8 * WIDE);                                                   \
            const wide_f32 b = FOUR(x + i + 16 * WIDE) + FOUR(x + i + 24 * WIDE);                                      \
            v0 += WIDE_LOW(a);                                                                                         \
            v1 += WIDE_HIGH(a);                                                                                        \
            v2 += WIDE_LOW(b);                                                                                         \
            v3 += WIDE_HIGH(b);                                                                                        \
        }                                                                                                              \
        for (; i + 16 * WIDE <= n; i += 16 * WIDE) {                                                                   \
            const wide_f32 a = FOUR(x + i), b = FOUR(x + i + 8 * WIDE);                                                \
            v0 += WIDE_LOW(a);                                                                                         \
            v1 += WIDE_HIGH(a);                                                                                        \
            v2 += WIDE_LOW(b);                                                                                         \
            v3 += WIDE_HIGH(b);                                                                                        \
        }                                                                                                              \
        for (; i + step <= n; i += step) {                                                                             \
            const wide_f32 a = ONE(x + i);                                                                             \
            v0 += WIDE_LOW(a);                                                                                         \
            v1 += WIDE_HIGH(a);                                                                                        \
        }                                                                                                              \
        REST return sum;                                                                                               \
    }
#define REST_ONE_BY_ONE(WIDEN)                                                                                         \
    double sum = wide_sum((v0 + v1) + (v2 + v3));                                                                      \
    for (; i < n; i++) {                                                                                               \
        sum += (double)WIDEN(x[i]);                                                                                    \
    }
/* A vector of which the elements from n on are zeros. */
#define REST_AT_ONCE(elements)                                                                                         \
    if (i < n) {                                                                                                       \
        const uint32_t lanes = ((uint32_t)1 << (n - i)) - 1;                                                           \
        const wide_f32 rest = elements;                                                                                \
        v2 += WIDE_LOW(rest);                                                                                          \
        v3 += WIDE_HIGH(rest);                                                                                         \
    }                                                                                                                  \
    const double sum = wide_sum((v0 + v1) + (v2 + v3));
INLINE wide_f32 one_f32(const float *x) {
    return *(const narrow_f32 *)(const void *)x;
}
INLINE wide_f32 four_f32(const float *x) {
    const narrow_f32 *at = (const void *)x;
    return (at[0] + at[1]) + (at[2] + at[3]);
}
/* An element of read_u32 is two halves. */
INLINE wide_f32 pairs_bf16(wide_u32 pairs) {
    return (wide_f32)(pairs << 16) + (wide_f32)(pairs & 0xffff0000);
}
INLINE wide_f32 one_bf16(const uint16_t *x) {
    return pairs_bf16(*(const read_u32 *)(const void *)x);
}
INLINE wide_f32 four_bf16(const uint16_t *x) {
    return one_bf16(x) + one_bf16(x + 4 * WIDE);
}
#if defined(__AVX512F__)
#define REST_F32 REST_AT_ONCE((wide_f32)_mm512_maskz_loadu_ps((__mmask16)lanes, x + i))
#define REST_BF16 REST_AT_ONCE(pairs_bf16((wide_u32)_mm512_maskz_loadu_epi16(lanes, x + i)))
#define REST_F16 REST_AT_ONCE((wide_f32)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16((__mmask16)lanes, x + i)))
#else
#define REST_F32 REST_ONE_BY_ONE(MAP_PLAIN)
#define REST_BF16 REST_ONE_BY_ONE(half_from_bf16)
#define REST_F16 REST_ONE_BY_ONE(half_from_f16)
#endif
EIGHTS_SUM(eights_f32, float, four_f32, one_f32, 2 * WIDE, REST_F32)
EIGHTS_SUM(eights_bf16, uint16_t, four_bf16, one_bf16, 4 * WIDE, REST_BF16)
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
EIGHTS_SUM(eights_f16, uint16_t, four_f16, wide_from_f16, 2 * WIDE, REST_F16)
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
STREAMS(prod_f32, float, double, double, *, 1, TAKE_PRODUCT, MAP_PLAIN)
#if defined(__AVX512F__)
/* Short rows: their rests would take most of the time of the loop above. */
INLINE double prod_f32_contiguous(int64_t n, const float *x, int64_t stride, double parameter) {
    __m512d v0 = _mm512_set1_pd(1), v1 = v0;
    int64_t i = 0;
    if (n >= 128) {
        return prod_f32_streams(n, x, stride, parameter);
    }
    for (; i + 16 <= n; i += 16) {
        v0 = _mm512_mul_pd(v0, _mm512_cvtps_pd(_mm256_loadu_ps(x + i)));
        v1 = _mm512_mul_pd(v1, _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8)));
    }
    for (; i < n; i += 8) {
        const __mmask8 lanes = (__mmask8)(n - i < 8 ? (1 << (n - i)) - 1 : 0xff);
        v0 = _mm512_mask_mul_pd(v0, lanes, v0, _mm512_cvtps_pd(_mm256_maskz_loadu_ps(lanes, x + i)));
    }
    return _mm512_reduce_mul_pd(_mm512_mul_pd(v0, v1));
}
#else
#define prod_f32_contiguous prod_f32_streams
#endif
STEPS_ROW(prod_f32, float, double, *, 1, TAKE_PRODUCT, MAP_PLAIN, prod_f32_contiguous)
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

/* clang-format off */
REDUCTION(sum, {[DTYPE_I64] = &sum_i64, [DTYPE_U64] = &sum_i64, FLOATS(sum)})
REDUCTION(prod, {[DTYPE_I64] = &prod_i64, [DTYPE_U64] = &prod_i64, FLOATS(prod), [DTYPE_C64] = &prod_c64, [DTYPE_C128] = &prod_c128})
REDUCTION(mean, {FLOATS(mean)})
/* clang-format on */

/* ---- norms that are sums ---- */

#define MAP_NONZERO(x) ((x) != 0 ? 1.0 : 0.0)
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

REDUCTION(norm_0, {FLOATS(norm_0)})
REDUCTION(norm_1, {FLOATS(norm_1)})
REDUCTION(norm_2, {FLOATS(norm_2)})
REDUCTION(norm_power, {FLOATS(norm_power)})

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

/* clang-format off */
REDUCTION(count_nonzero,
    {[DTYPE_BOOL] = &count_1, [DTYPE_U8] = &count_1, [DTYPE_I8] = &count_1, [DTYPE_I16] = &count_2,
     [DTYPE_I32] = &count_4, [DTYPE_I64] = &count_8, [DTYPE_U16] = &count_2, [DTYPE_U32] = &count_4,
     [DTYPE_U64] = &count_8, [DTYPE_F16] = &count_half, [DTYPE_BF16] = &count_half, [DTYPE_F32] = &count_f32,
     [DTYPE_F64] = &count_f64})
/* clang-format on */
