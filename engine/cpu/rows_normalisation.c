/* Passes over parts of a row of a normalisation, in blocks. A block of f32 is added up in f32, a few elements in each lane of a vector, and the
 * sums of blocks in f64; squares are of distances from the block's own mean, so that nothing cancels. A block whose sums f32 has no range for
 * is added up again in f64. */
#include "engine/cpu/rows.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    BLOCK = 1024, /* elements of a block: they stay in the first-level cache for its passes */
    SHORT = 64,   /* fewer elements are one stream */
};
/* Sums of squares that f32 has range for, with those of single elements. */
#define LEAST_SQUARES 0x1p-90
#define MOST_SQUARES 0x1p127

/* x̂ = (x - mean) · scale as (x - m) · a + rest, with m and a of the elements' dtype: `rest` is what rounding the mean has taken. */
INLINE double rest_of(double m, double mean, double scale) {
    return m == mean ? 0 : (m - mean) * scale;
}

/* ---- sums of a block ---- */

/* Two sums of terms `first` and `second`, which TERMS(i) declares, in four streams, so that an addition need not wait for the one before. */
#define TWO_SUMS(A, n, TERMS, first_sum, second_sum)                                                                   \
    A f0 = 0, f1 = 0, f2 = 0, f3 = 0, s0 = 0, s1 = 0, s2 = 0, s3 = 0;                                                  \
    const int64_t quarter = n < SHORT ? 0 : n / 4;                                                                     \
    CPU_PRAGMA(omp simd reduction(+ : f0, f1, f2, f3, s0, s1, s2, s3))                                                 \
    for (int64_t i = 0; i < quarter; i++) {                                                                            \
        TWO_SUMS_ADD(A, TERMS, i, f0, s0);                                                                             \
        TWO_SUMS_ADD(A, TERMS, i + quarter, f1, s1);                                                                   \
        TWO_SUMS_ADD(A, TERMS, i + 2 * quarter, f2, s2);                                                               \
        TWO_SUMS_ADD(A, TERMS, i + 3 * quarter, f3, s3);                                                               \
    }                                                                                                                  \
    CPU_PRAGMA(omp simd reduction(+ : f0, s0))                                                                         \
    for (int64_t i = 4 * quarter; i < n; i++) {                                                                        \
        TWO_SUMS_ADD(A, TERMS, i, f0, s0);                                                                             \
    }                                                                                                                  \
    first_sum = ((double)f0 + (double)f1) + ((double)f2 + (double)f3);                                                 \
    second_sum = ((double)s0 + (double)s1) + ((double)s2 + (double)s3)
#define TWO_SUMS_ADD(A, TERMS, at, f, s)                                                                               \
    do {                                                                                                               \
        A first, second;                                                                                               \
        TERMS(at);                                                                                                     \
        f += first;                                                                                                    \
        s += second;                                                                                                   \
    } while (0)

#define TERMS_DISTANCE(i) first = (A)x[i] - m, second = first * first
#define TERMS_GRADIENT(i) first = (A)g[i], second = first * (((A)x[i] - m) * a + rest)
#define TERMS_WEIGHTED(i) first = (A)g[i] * (A)w[i], second = first * (((A)x[i] - m) * a + rest)

/* Sums in B of elements of T. */
#define BLOCK_SUMS(name, T, B)                                                                                         \
    static double sum_##name(int64_t n, const T *x) {                                                                  \
        typedef B A;                                                                                                   \
        A v0 = 0, v1 = 0, v2 = 0, v3 = 0;                                                                              \
        const int64_t quarter = n < SHORT ? 0 : n / 4;                                                                 \
        CPU_PRAGMA(omp simd reduction(+ : v0, v1, v2, v3))                                                             \
        for (int64_t i = 0; i < quarter; i++) {                                                                        \
            v0 += (A)x[i];                                                                                             \
            v1 += (A)x[i + quarter];                                                                                   \
            v2 += (A)x[i + 2 * quarter];                                                                               \
            v3 += (A)x[i + 3 * quarter];                                                                               \
        }                                                                                                              \
        CPU_LOOP_SUM(v0)                                                                                               \
        for (int64_t i = 4 * quarter; i < n; i++) {                                                                    \
            v0 += (A)x[i];                                                                                             \
        }                                                                                                              \
        return ((double)v0 + (double)v1) + ((double)v2 + (double)v3);                                                  \
    }                                                                                                                  \
    /* Of the distances from m, and of their squares. */                                                               \
    static double distances_##name(int64_t n, const T *x, double from, double *squares) {                              \
        typedef B A;                                                                                                   \
        const A m = (A)from;                                                                                           \
        double sum;                                                                                                    \
        TWO_SUMS(A, n, TERMS_DISTANCE, sum, *squares);                                                                 \
        return sum;                                                                                                    \
    }                                                                                                                  \
    /* Of gradient · weight, and of these times x̂. */                                                               \
    static double gradients_##name(int64_t n, const T *g, const T *x, double mean, double scale, const T *w,           \
                                   double *with_x) {                                                                   \
        typedef B A;                                                                                                   \
        const A m = (A)mean, a = (A)scale, rest = (A)rest_of((double)m, mean, scale);                                  \
        double sum;                                                                                                    \
        if (w) {                                                                                                       \
            TWO_SUMS(A, n, TERMS_WEIGHTED, sum, *with_x);                                                              \
            return sum;                                                                                                \
        }                                                                                                              \
        TWO_SUMS(A, n, TERMS_GRADIENT, sum, *with_x);                                                                  \
        return sum;                                                                                                    \
    }
BLOCK_SUMS(f32, float, float)
BLOCK_SUMS(f32_wide, float, double)
BLOCK_SUMS(f64, double, double)
#define sum_f64_wide sum_f64
#define distances_f64_wide distances_f64
#define gradients_f64_wide gradients_f64

/* Puts two sets of elements together; after Chan, Golub and LeVeque. */
static void moments_add(struct cpu_moments *moments, double count, double mean, double squares) {
    const double all = moments->count + count, far = mean - moments->mean, share = count / all;
    moments->mean += far * share;
    moments->squares += (squares < 0 ? 0 : squares) + far * far * moments->count * share;
    moments->count = all;
}

/* ---- passes ---- */

#define NORMALISATION(name, T)                                                                                         \
    /* Elements with a stride, one after another. */                                                                   \
    static const T *block_##name(int64_t n, const T *x, int64_t stride, T *buffer) {                                   \
        if (stride == 1) {                                                                                             \
            return x;                                                                                                  \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            buffer[i] = x[i * stride];                                                                                 \
        }                                                                                                              \
        return buffer;                                                                                                 \
    }                                                                                                                  \
    static void moments_##name(int64_t all, const void *from, int64_t stride, struct cpu_moments *moments) {           \
        T buffer[BLOCK];                                                                                               \
        for (int64_t i = 0; i < all; i += BLOCK) {                                                                     \
            const int64_t n = all - i < BLOCK ? all - i : BLOCK;                                                       \
            const T *x = block_##name(n, (const T *)from + i * stride, stride, buffer);                                \
            const double each = 1 / (double)n;                                                                         \
            double squares, mean = (double)(T)(sum_##name(n, x) * each), sum = distances_##name(n, x, mean, &squares); \
            if (!(squares > LEAST_SQUARES && squares < MOST_SQUARES)) {                                                \
                mean = sum_##name##_wide(n, x) * each;                                                                 \
                sum = distances_##name##_wide(n, x, mean, &squares);                                                   \
            }                                                                                                          \
            moments_add(moments, (double)n, mean + sum * each, squares - sum * sum * each);                            \
        }                                                                                                              \
    }                                                                                                                  \
    static double squares_##name(int64_t all, const void *from, int64_t stride) {                                      \
        T buffer[BLOCK];                                                                                               \
        double total = 0;                                                                                              \
        for (int64_t i = 0; i < all; i += BLOCK) {                                                                     \
            const int64_t n = all - i < BLOCK ? all - i : BLOCK;                                                       \
            const T *x = block_##name(n, (const T *)from + i * stride, stride, buffer);                                \
            double squares;                                                                                            \
            distances_##name(n, x, 0, &squares);                                                                       \
            if (!(squares > LEAST_SQUARES && squares < MOST_SQUARES)) {                                                \
                distances_##name##_wide(n, x, 0, &squares);                                                            \
            }                                                                                                          \
            total += squares;                                                                                          \
        }                                                                                                              \
        return total;                                                                                                  \
    }                                                                                                                  \
    static double dots_##name(int64_t all, const void *gradient, const void *from, int64_t stride, double mean,        \
                              double scale, const void *weight, double *with_x) {                                      \
        T buffers[2][BLOCK];                                                                                           \
        double total = 0;                                                                                              \
        *with_x = 0;                                                                                                   \
        for (int64_t i = 0; i < all; i += BLOCK) {                                                                     \
            const int64_t n = all - i < BLOCK ? all - i : BLOCK;                                                       \
            const T *g = block_##name(n, (const T *)gradient + i * stride, stride, buffers[0]);                        \
            const T *x = block_##name(n, (const T *)from + i * stride, stride, buffers[1]);                            \
            const T *w = weight ? (const T *)weight + i : NULL;                                                        \
            double dot, sum = gradients_##name(n, g, x, mean, scale, w, &dot);                                         \
            if (!(__builtin_isfinite(sum) && __builtin_isfinite(dot))) {                                               \
                sum = gradients_##name##_wide(n, g, x, mean, scale, w, &dot);                                          \
            }                                                                                                          \
            total += sum;                                                                                              \
            *with_x += dot;                                                                                            \
        }                                                                                                              \
        return total;                                                                                                  \
    }                                                                                                                  \
    INLINE void write_to_##name(int64_t n, const T *x, int64_t stride, T m, T a, T b, T *out) {                        \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i * stride] = (x[i * stride] - m) * a + b;                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    static void write_##name(int64_t n, const void *x, int64_t stride, double mean, double scale, double weight,       \
                             double bias, void *out) {                                                                 \
        const T m = (T)mean, a = (T)(scale * weight), b = (T)(rest_of((double)m, mean, scale * weight) + bias);        \
        if (stride == 1) {                                                                                             \
            write_to_##name(n, x, 1, m, a, b, out);                                                                    \
        } else {                                                                                                       \
            write_to_##name(n, x, stride, m, a, b, out);                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    static void write_along_##name(int64_t n, const void *from, double mean, double scale, const void *weight,         \
                                   const void *bias, void *to) {                                                       \
        const T *x = from, *w = weight, *b = bias;                                                                     \
        const T m = (T)mean, a = (T)scale, rest = (T)rest_of((double)m, mean, scale);                                  \
        T *out = to;                                                                                                   \
        if (!w) {                                                                                                      \
            write_to_##name(n, x, 1, m, a, rest, out);                                                                 \
        } else if (!b) {                                                                                               \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                out[i] = ((x[i] - m) * a + rest) * w[i];                                                               \
            }                                                                                                          \
        } else {                                                                                                       \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                out[i] = ((x[i] - m) * a + rest) * w[i] + b[i];                                                        \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void back_to_##name(int64_t n, const T *g, const T *x, int64_t stride, T m, T a, T rest, T w, T shift,      \
                               T slope, T *out) {                                                                      \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i * stride] = (g[i * stride] * w - shift - ((x[i * stride] - m) * a + rest) * slope) * a;              \
        }                                                                                                              \
    }                                                                                                                  \
    static void back_##name(int64_t n, const void *g, const void *x, int64_t stride, double mean, double scale,        \
                            double weight, double shift, double slope, void *out) {                                    \
        const T m = (T)mean, a = (T)scale, rest = (T)rest_of((double)m, mean, scale);                                  \
        if (stride == 1) {                                                                                             \
            back_to_##name(n, g, x, 1, m, a, rest, (T)weight, (T)shift, (T)slope, out);                                \
        } else {                                                                                                       \
            back_to_##name(n, g, x, stride, m, a, rest, (T)weight, (T)shift, (T)slope, out);                           \
        }                                                                                                              \
    }                                                                                                                  \
    static void back_along_##name(int64_t n, const void *gradient, const void *from, double mean, double scale,        \
                                  const void *weight, double by_row, double by_x, void *to, double *weights,           \
                                  double *biases) {                                                                    \
        const T *g = gradient, *x = from, *w = weight;                                                                 \
        const T m = (T)mean, a = (T)scale, rest = (T)rest_of((double)m, mean, scale);                                  \
        const T shift = (T)by_row, slope = (T)by_x;                                                                    \
        T *out = to;                                                                                                   \
        if (w) {                                                                                                       \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T hat = (x[i] - m) * a + rest;                                                                   \
                const T given = g[i];                                                                                  \
                out[i] = (given * w[i] - shift - hat * slope) * a;                                                     \
                weights[i] += (double)(given * hat);                                                                   \
                biases[i] += (double)given;                                                                            \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T hat = (x[i] - m) * a + rest;                                                                       \
            const T given = g[i];                                                                                      \
            out[i] = (given - shift - hat * slope) * a;                                                                \
            weights[i] += (double)(given * hat);                                                                       \
            biases[i] += (double)given;                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void total_##name(int64_t all, int64_t parts, int64_t step, const double *sums, void *to) {                 \
        T *out = to;                                                                                                   \
        for (int64_t i = 0; i < all; i += CPU_BLOCK) {                                                                 \
            const int64_t n = all - i < CPU_BLOCK ? all - i : CPU_BLOCK;                                               \
            double total[CPU_BLOCK] = {0};                                                                             \
            for (int64_t part = 0; part < parts; part++) {                                                             \
                const double *more = sums + part * step + i;                                                           \
                CPU_LOOP                                                                                               \
                for (int64_t k = 0; k < n; k++) {                                                                      \
                    total[k] += more[k];                                                                               \
                }                                                                                                      \
            }                                                                                                          \
            CPU_LOOP                                                                                                   \
            for (int64_t k = 0; k < n; k++) {                                                                          \
                out[i + k] = (T)total[k];                                                                              \
            }                                                                                                          \
        }                                                                                                              \
    }
NORMALISATION(f32, float)
NORMALISATION(f64, double)

const struct cpu_normalisation CPU_NAME(normalisation)[2] = {
    {moments_f32, squares_f32, dots_f32, write_f32, write_along_f32, back_f32, back_along_f32, total_f32},
    {moments_f64, squares_f64, dots_f64, write_f64, write_along_f64, back_f64, back_along_f64, total_f64},
};
