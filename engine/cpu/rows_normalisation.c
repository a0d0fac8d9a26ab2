/* Passes over parts of a row of a normalisation. Sums are in f64. A NULL weight is 1, a NULL bias 0. */
#include "engine/cpu/rows.h"

#define NORMALISATION(name, T)                                                                                         \
    static double sum_##name(int64_t n, const void *from, int64_t stride) {                                            \
        const T *x = from;                                                                                             \
        double sum = 0;                                                                                                \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum += (double)x[i * stride];                                                                              \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static double squares_##name(int64_t n, const void *from, int64_t stride, double mean) {                           \
        const T *x = from;                                                                                             \
        double sum = 0;                                                                                                \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const double d = (double)x[i * stride] - mean;                                                             \
            sum += d * d;                                                                                              \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void write_##name(int64_t n, const void *from, int64_t stride, double mean, double scale, double shift,     \
                             void *to) {                                                                               \
        const T *x = from, m = (T)mean, a = (T)scale, b = (T)shift;                                                    \
        T *out = to;                                                                                                   \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i * stride] = (x[i * stride] - m) * a + b;                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    static void write_along_##name(int64_t n, const void *from, double mean, double scale, const void *weight,         \
                                   const void *bias, void *to) {                                                       \
        const T *x = from, *w = weight, *b = bias, m = (T)mean, a = (T)scale;                                          \
        T *out = to;                                                                                                   \
        if (!w) {                                                                                                      \
            write_##name(n, from, 1, mean, scale, 0, to);                                                              \
        } else if (!b) {                                                                                               \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                out[i] = (x[i] - m) * a * w[i];                                                                        \
            }                                                                                                          \
        } else {                                                                                                       \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                out[i] = (x[i] - m) * a * w[i] + b[i];                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static double plain_##name(int64_t n, const void *gradient, const void *from, int64_t stride, double mean,         \
                               double *with_x) {                                                                       \
        const T *g = gradient, *x = from;                                                                              \
        double sum = 0, product = 0;                                                                                   \
        CPU_PRAGMA(omp simd reduction(+ : sum, product))                                                               \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const double value = (double)g[i * stride];                                                                \
            sum += value;                                                                                              \
            product += value * ((double)x[i * stride] - mean);                                                         \
        }                                                                                                              \
        *with_x = product;                                                                                             \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static double dots_##name(int64_t n, const void *gradient, const void *from, int64_t stride, double mean,          \
                              const void *weight, double *with_x) {                                                    \
        const T *g = gradient, *x = from, *w = weight;                                                                 \
        double sum = 0, product = 0;                                                                                   \
        if (!w) {                                                                                                      \
            return plain_##name(n, gradient, from, stride, mean, with_x);                                              \
        }                                                                                                              \
        CPU_PRAGMA(omp simd reduction(+ : sum, product))                                                               \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const double value = (double)g[i] * (double)w[i];                                                          \
            sum += value;                                                                                              \
            product += value * ((double)x[i] - mean);                                                                  \
        }                                                                                                              \
        *with_x = product;                                                                                             \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void back_##name(int64_t n, const void *gradient, const void *from, int64_t stride, double mean,            \
                            const void *weight, double scale, double shift, double slope, void *to) {                  \
        const T *g = gradient, *x = from, *w = weight, m = (T)mean, a = (T)scale, b = (T)shift, c = (T)slope;          \
        T *out = to;                                                                                                   \
        if (w) {                                                                                                       \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                out[i] = g[i] * w[i] * a - b - (x[i] - m) * c;                                                         \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i * stride] = g[i * stride] * a - b - (x[i * stride] - m) * c;                                         \
        }                                                                                                              \
    }                                                                                                                  \
    static void collect_##name(int64_t n, const void *gradient, const void *from, double mean, double scale,           \
                               double *weights, double *biases) {                                                      \
        const T *g = gradient, *x = from;                                                                              \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            weights[i] += (double)g[i] * ((double)x[i] - mean) * scale;                                                \
            biases[i] += (double)g[i];                                                                                 \
        }                                                                                                              \
    }
NORMALISATION(f32, float)
NORMALISATION(f64, double)

const struct cpu_normalisation CPU_NAME(normalisation)[2] = {
    {sum_f32, squares_f32, write_f32, write_along_f32, dots_f32, back_f32, collect_f32},
    {sum_f64, squares_f64, write_f64, write_along_f64, dots_f64, back_f64, collect_f64},
};
