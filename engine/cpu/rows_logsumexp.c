/* The logarithm of a sum of exponentials.
 *
 * An accumulator is a level m and the sum of exp(x - m), in f64. The level is at most LEVEL_SLACK below the greatest element, and rises
 * rarely: each time the sum is scaled, with a rounding error. */
#include <float.h>
#include <math.h>

#include "engine/cpu/rows_reduce.h"

#if defined(__AVX512F__)
#include "engine/cpu/vector_avx512.h"
#endif

enum { LEVEL_SLACK = 16 };

/* Loops over double_exp() take longer than libm's where vectors have two elements. */
#if defined(__FMA__) || defined(__aarch64__)
#define LOGSUMEXP_DOUBLE double_exp
#else
#define LOGSUMEXP_DOUBLE exp
#endif

/* The greatest of n elements that follow one another, at most CPU_BLOCK, NaNs apart, and the sum of their exponentials less `level`. Not
 * inlined, as in rows_softmax.c. */
#define LOGSUMEXP_BLOCK(name, T, lowest, EXP)                                                                          \
    static __attribute__((noinline)) T name##_maximum(int64_t n, const T *x) {                                         \
        T highest = lowest;                                                                                            \
        CPU_PRAGMA(omp simd reduction(max : highest))                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            highest = x[i] > highest ? x[i] : highest;                                                                 \
        }                                                                                                              \
        return highest;                                                                                                \
    }                                                                                                                  \
    static __attribute__((noinline)) double name##_exponentials(int64_t n, const T *x, T level) {                      \
        T buffer[CPU_BLOCK];                                                                                           \
        double sum = 0;                                                                                                \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            buffer[i] = EXP(x[i] == level ? 0 : x[i] - level);                                                         \
        }                                                                                                              \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum += (double)buffer[i];                                                                                  \
        }                                                                                                              \
        return sum;                                                                                                    \
    }
#if defined(__AVX512F__)
static float logsumexp_f32_maximum(int64_t n, const float *x) {
    return avx512_maximum(n, x);
}
static double logsumexp_f32_exponentials(int64_t n, const float *x, float level) {
    return avx512_exponentials(n, level, x, NULL, false, true);
}
#else
LOGSUMEXP_BLOCK(logsumexp_f32, float, -FLT_MAX, vector_exp)
#endif
LOGSUMEXP_BLOCK(logsumexp_f64, double, -DBL_MAX, LOGSUMEXP_DOUBLE)

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
    static void name##_row(int64_t n, const void *elements, int64_t stride, int64_t position,                          \
                           struct cpu_accumulators *accumulators) {                                                    \
        VALUES(T);                                                                                                     \
        EXTRA(double);                                                                                                 \
        T buffer[CPU_BLOCK];                                                                                           \
        (void)position;                                                                                                \
        for (int64_t i = 0; i < n; i += CPU_BLOCK) {                                                                   \
            const int64_t block = n - i < CPU_BLOCK ? n - i : CPU_BLOCK;                                               \
            const T *x = (const T *)elements + i * stride;                                                             \
            if (stride != 1) {                                                                                         \
                for (int64_t k = 0; k < block; k++) {                                                                  \
                    buffer[k] = x[k * stride];                                                                         \
                }                                                                                                      \
                x = buffer;                                                                                            \
            }                                                                                                          \
            const T highest = name##_maximum(block, x);                                                                \
            if (highest > *value + LEVEL_SLACK) {                                                                      \
                *extra *= exp((double)*value - (double)highest);                                                       \
                *value = highest;                                                                                      \
            }                                                                                                          \
            *extra += name##_exponentials(block, x, *value);                                                           \
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
LOGSUMEXP_STEPS(logsumexp_f64, double, -DBL_MAX, LOGSUMEXP_DOUBLE)
HALF_STEPS(logsumexp_f16, f16, logsumexp_f32)
HALF_STEPS(logsumexp_bf16, bf16, logsumexp_f32)
LOGSUMEXP_TABLE(logsumexp_f16, logsumexp_f32, float, uint16_t, STORE_F16)
LOGSUMEXP_TABLE(logsumexp_bf16, logsumexp_f32, float, uint16_t, STORE_BF16)
LOGSUMEXP_TABLE(logsumexp_f32, logsumexp_f32, float, float, (float))
LOGSUMEXP_TABLE(logsumexp_f64, logsumexp_f64, double, double, (double))

REDUCTION(logsumexp, {FLOATS(logsumexp)})
