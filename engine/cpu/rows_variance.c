/* Variances and standard deviations: means and sums of squared distances from them, merged after Chan, Golub and LeVeque. */
#include <math.h>

#include "engine/cpu/rows_reduce.h"

static void var_start(int64_t n, struct cpu_accumulators *accumulators) {
    memset(accumulators->value, 0, (size_t)n * sizeof(double));
    memset(accumulators->extra, 0, (size_t)n * sizeof(double));
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

REDUCTION(var, {FLOATS(var)})
REDUCTION(std, {FLOATS(std)})
