/* What the reductions of rows have in common: a reduction of a dtype is put together of the macros below, and REDUCTION() names its table,
 * which rows_reduce.c puts among the others.
 *
 * A row with a stride is read as four streams, a quarter each, so that an addition need not wait for the one before; so is a contiguous one,
 * unless there are loops over vectors for it, which read it from its beginning to its end, as processors foresee it best. */
#pragma once

#include "engine/cpu/vector_math.h"

#define VALUES(T) T *const value = (void *)accumulators->value
#define EXTRA(T) T *const extra = (void *)accumulators->extra
#define FROM_VALUES(T) const T *const other = (const void *)from->value
#define FROM_EXTRA(T) const T *const other_extra = (const void *)from->extra
#define INLINE static inline __attribute__((always_inline))

enum { SHORT_ROW = 32 }; /* a row of fewer elements is one stream */

/* The table of one reduction, by dtype. A bool is a u8 of 0 or 1. */
#define REDUCTION(name, ...) const struct cpu_reduction *const CPU_NAME(reduce_##name)[DTYPE_COUNT] = __VA_ARGS__;
#define X(NAME, name) extern const struct cpu_reduction *const CPU_NAME(reduce_##name)[DTYPE_COUNT];
CPU_REDUCTIONS(X)
#undef X
#define FLOATS(name)                                                                                                   \
    [DTYPE_F16] = &name##_f16, [DTYPE_BF16] = &name##_bf16, [DTYPE_F32] = &name##_f32, [DTYPE_F64] = &name##_f64

#define MAP_PLAIN(x) (x)
#define MAP_ABS(x) __builtin_fabs(x)

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
