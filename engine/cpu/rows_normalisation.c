/* Passes over parts of a row of a normalisation, in blocks. A block of f32 is added up in f32, a few elements in each lane of a vector, and the
 * sums of blocks in f64; squares are of distances from the block's own mean, so that nothing cancels. A block whose sums f32 has no range for
 * is added up again in f64. */
#include <math.h>

#include "engine/cpu/rows.h"

#define INLINE static inline __attribute__((always_inline))

enum { BLOCK = 1024 }; /* elements of a block: they stay in the first-level cache for its passes */
/* Sums of squares that f32 has range for, with those of single elements. */
#define LEAST_SQUARES 0x1p-90
#define MOST_SQUARES 0x1p127

/* x̂ = (x - mean) · scale as (x - m) · a + rest, with m and a of the elements' dtype: `rest` is what rounding the mean has taken. */
INLINE double rest_of(double m, double mean, double scale) {
    return m == mean ? 0 : (m - mean) * scale;
}

/* ---- sums of a block ---- */

/* Vectors of the level, as they lie in memory. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
typedef float vector_f32 __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef double vector_f64 __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));

INLINE double lanes_sum_f32(vector_f32 v) {
#if defined(__AVX512F__)
    return (double)_mm512_reduce_add_ps((__m512)v);
#elif defined(__AVX__)
    return (double)(((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])));
#else
    return (double)((v[0] + v[1]) + (v[2] + v[3]));
#endif
}
INLINE double lanes_sum_f64(vector_f64 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_pd((__m512d)v);
#elif defined(__AVX__)
    return (v[0] + v[1]) + (v[2] + v[3]);
#else
    return v[0] + v[1];
#endif
}
#define STREAMS_SUM(name, v) lanes_sum_##name((v[0] + v[1]) + (v[2] + v[3]))

/* Runs `step` for each vector of n elements, at `at`, in one of four streams `k`, so that an addition need not wait for the one before; then
 * `single` for each element that is left. */
enum { STREAMS = 4 };
#define IN_STREAMS(n, lanes, step, single)                                                                             \
    int64_t next = 0;                                                                                                  \
    for (; next + STREAMS * (lanes) <= (n); next += STREAMS * (lanes)) {                                               \
        for (int64_t k = 0; k < STREAMS; k++) {                                                                        \
            const int64_t at = next + k * (lanes);                                                                     \
            step;                                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    for (; next + (lanes) <= (n); next += (lanes)) {                                                                   \
        const int64_t at = next, k = 0;                                                                                \
        step;                                                                                                          \
    }                                                                                                                  \
    for (; next < (n); next++) {                                                                                       \
        const int64_t at = next;                                                                                       \
        single;                                                                                                        \
    }
#define VECTOR_AT(name, x) (*(const vector_##name *)(const void *)(x))

#define BLOCK_SUMS(name, T)                                                                                            \
    enum { LANES_##name = VECTOR_BYTES / sizeof(T) };                                                                  \
    static double sum_##name(int64_t n, const T *x) {                                                                  \
        vector_##name v[STREAMS] = {{0}};                                                                              \
        double rest = 0;                                                                                               \
        IN_STREAMS(n, LANES_##name, v[k] += VECTOR_AT(name, x + at), rest += (double)x[at])                            \
        return STREAMS_SUM(name, v) + rest;                                                                            \
    }                                                                                                                  \
    /* Of the distances from m, and of their squares. What follows the block is most often the next one. */            \
    static double distances_##name(int64_t n, const T *x, double from, double *squares) {                              \
        const T m = (T)from;                                                                                           \
        vector_##name v[STREAMS] = {{0}}, s[STREAMS] = {{0}};                                                          \
        double sum = 0, rest = 0;                                                                                      \
        IN_STREAMS(                                                                                                    \
            n, LANES_##name,                                                                                           \
            {                                                                                                          \
                __builtin_prefetch(x + at + n);                                                                        \
                const vector_##name d = VECTOR_AT(name, x + at) - m;                                                   \
                v[k] += d;                                                                                             \
                s[k] += d * d;                                                                                         \
            },                                                                                                         \
            {                                                                                                          \
                const double d = (double)(x[at] - m);                                                                  \
                sum += d;                                                                                              \
                rest += d * d;                                                                                         \
            })                                                                                                         \
        *squares = STREAMS_SUM(name, s) + rest;                                                                        \
        return STREAMS_SUM(name, v) + sum;                                                                             \
    }                                                                                                                  \
    /* Of gradient · weight, and of these times x̂. */                                                               \
    INLINE double weighted_##name(int64_t n, const T *g, const T *x, double mean, double scale, const T *w,            \
                                  double *with_x) {                                                                    \
        const T m = (T)mean, a = (T)scale, shift = (T)rest_of((double)m, mean, scale);                                 \
        vector_##name v[STREAMS] = {{0}}, s[STREAMS] = {{0}};                                                          \
        double sum = 0, rest = 0;                                                                                      \
        IN_STREAMS(                                                                                                    \
            n, LANES_##name,                                                                                           \
            {                                                                                                          \
                vector_##name value = VECTOR_AT(name, g + at);                                                         \
                if (w) {                                                                                               \
                    value *= VECTOR_AT(name, w + at);                                                                  \
                }                                                                                                      \
                v[k] += value;                                                                                         \
                s[k] += value * ((VECTOR_AT(name, x + at) - m) * a + shift);                                           \
            },                                                                                                         \
            {                                                                                                          \
                const T value = w ? g[at] * w[at] : g[at];                                                             \
                sum += (double)value;                                                                                  \
                rest += (double)(value * ((x[at] - m) * a + shift));                                                   \
            })                                                                                                         \
        *with_x = STREAMS_SUM(name, s) + rest;                                                                         \
        return STREAMS_SUM(name, v) + sum;                                                                             \
    }                                                                                                                  \
    static double gradients_##name(int64_t n, const T *g, const T *x, double mean, double scale, const T *w,           \
                                   double *with_x) {                                                                   \
        return w ? weighted_##name(n, g, x, mean, scale, w, with_x)                                                    \
                 : weighted_##name(n, g, x, mean, scale, NULL, with_x);                                                \
    }
BLOCK_SUMS(f32, float)
BLOCK_SUMS(f64, double)

/* The same of f32, in f64 from the first term on. */
static double sum_f32_wide(int64_t n, const float *x) {
    double sum = 0;
    CPU_LOOP_SUM(sum)
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
    }
    return sum;
}
static double distances_f32_wide(int64_t n, const float *x, double mean, double *squares) {
    double sum = 0, products = 0;
    CPU_PRAGMA(omp simd reduction(+ : sum, products))
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)x[i] - mean;
        sum += d;
        products += d * d;
    }
    *squares = products;
    return sum;
}
static double gradients_f32_wide(int64_t n, const float *g, const float *x, double mean, double scale, const float *w,
                                 double *with_x) {
    double sum = 0, products = 0;
    CPU_PRAGMA(omp simd reduction(+ : sum, products))
    for (int64_t i = 0; i < n; i++) {
        const double value = (double)g[i] * (w ? (double)w[i] : 1);
        sum += value;
        products += value * (((double)x[i] - mean) * scale);
    }
    *with_x = products;
    return sum;
}
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
    static void write_streamed_##name(int64_t all, const T *x, double mean, double scale, const T *w, const T *b,      \
                                      T *out) {                                                                        \
        _Alignas(64) T buffer[BLOCK];                                                                                  \
        for (int64_t i = 0; i < all; i += BLOCK) {                                                                     \
            const int64_t n = all - i < BLOCK ? all - i : BLOCK, bytes = n * (int64_t)sizeof(T);                       \
            const bool whole = ((uintptr_t)(out + i) | (uintptr_t)bytes) % 64 == 0;                                    \
            write_along_##name(n, x + i, mean, scale, w ? w + i : NULL, b ? b + i : NULL, whole ? buffer : out + i);   \
            if (whole) {                                                                                               \
                CPU_NAME(stream)(out + i, buffer, (size_t)bytes);                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void rows_##name(int64_t rows, int64_t n, const void *from, const struct cpu_normalised *how, void *to) {   \
        const T *x = from, *w = how->weight, *b = how->bias;                                                           \
        T *out = to;                                                                                                   \
        for (int64_t row = 0; row < rows; row++, x += n, out += n) {                                                   \
            struct cpu_moments moments = {0};                                                                          \
            if (how->centred) {                                                                                        \
                moments_##name(n, x, 1, &moments);                                                                     \
            } else {                                                                                                   \
                moments.squares = squares_##name(n, x, 1);                                                             \
            }                                                                                                          \
            const double scale = 1 / sqrt(moments.squares / (double)n + how->epsilon);                                 \
            if (how->streamed) {                                                                                       \
                write_streamed_##name(n, x, moments.mean, scale, w, b, out);                                           \
            } else {                                                                                                   \
                write_along_##name(n, x, moments.mean, scale, w, b, out);                                              \
            }                                                                                                          \
        }                                                                                                              \
        if (how->streamed) {                                                                                           \
            CPU_NAME(stream_end)();                                                                                    \
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
    {rows_f32, moments_f32, squares_f32, dots_f32, write_f32, write_along_f32, back_f32, back_along_f32, total_f32},
    {rows_f64, moments_f64, squares_f64, dots_f64, write_f64, write_along_f64, back_f64, back_along_f64, total_f64},
};
