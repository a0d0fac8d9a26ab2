/* Passes over a row of a block of attention's scores. */
#include "engine/cpu/rows.h"

/* A dot product has so many sums, two vectors of the widest kind: so an addition need not wait for the one before. And so many elements are fetched
 * ahead, for rows of a batch follow one another, and a processor stops at the end of a page. */
enum { DOT_WIDTH = 16, DOT_AHEAD = 256 };

/* Not inlined: else the compiler would not inline the exponential, and the loop would not be vectorised. */
#define ATTENTION(name, T)                                                                                             \
    static void add_##name(int64_t n, void *scores, const void *mask, int64_t stride) {                                \
        T *s = scores;                                                                                                 \
        const T *b = mask;                                                                                             \
        if (stride == 1) {                                                                                             \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                s[i] += b[i];                                                                                          \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            s[i] += b[i * stride];                                                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void hide_##name(int64_t n, void *scores, const uint8_t *seen, int64_t stride) {                            \
        const T never = -(T)__builtin_inff();                                                                          \
        T *s = scores;                                                                                                 \
        if (stride == 1) {                                                                                             \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                s[i] = seen[i] ? s[i] : never;                                                                         \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            s[i] = seen[i * stride] ? s[i] : never;                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static double maximum_##name(int64_t n, const void *scores) {                                                      \
        const T *s = scores;                                                                                           \
        T best = -(T)__builtin_inff();                                                                                 \
        CPU_PRAGMA(omp simd reduction(max : best))                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            best = s[i] > best ? s[i] : best;                                                                          \
        }                                                                                                              \
        return (double)best;                                                                                           \
    }                                                                                                                  \
    static __attribute__((noinline)) double exponentials_##name(int64_t n, void *scores, double shift) {               \
        T *s = scores;                                                                                                 \
        const T by = (T)shift;                                                                                         \
        double sum = 0;                                                                                                \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            s[i] = FORMULA_MATH_##name(exp)(s[i] - by);                                                                \
        }                                                                                                              \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum += (double)s[i];                                                                                       \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void scale_##name(int64_t n, void *values, double factor) {                                                 \
        T *x = values;                                                                                                 \
        const T by = (T)factor;                                                                                        \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i] *= by;                                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static double dot_##name(int64_t n, const void *a, const void *b) {                                                \
        const T *x = a, *y = b;                                                                                        \
        double sums[DOT_WIDTH] = {0}, sum = 0;                                                                         \
        int64_t i = 0;                                                                                                 \
        for (; i + DOT_WIDTH <= n; i += DOT_WIDTH) {                                                                   \
            __builtin_prefetch(&x[i + DOT_AHEAD]);                                                                     \
            __builtin_prefetch(&y[i + DOT_AHEAD]);                                                                     \
            CPU_LOOP                                                                                                   \
            for (int j = 0; j < DOT_WIDTH; j++) {                                                                      \
                sums[j] += (double)x[i + j] * (double)y[i + j];                                                        \
            }                                                                                                          \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            sums[0] += (double)x[i] * (double)y[i];                                                                    \
        }                                                                                                              \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int j = 0; j < DOT_WIDTH; j++) {                                                                          \
            sum += sums[j];                                                                                            \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void slopes_##name(int64_t n, void *slopes, const void *parts, double shift, double factor) {               \
        T *z = slopes;                                                                                                 \
        const T *p = parts, d = (T)shift, f = (T)factor;                                                               \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            z[i] = p[i] * (z[i] - d) * f;                                                                              \
        }                                                                                                              \
    }
ATTENTION(f32, float)
ATTENTION(f64, double)

const struct cpu_attention CPU_NAME(attention)[2] = {
    {add_f32, hide_f32, maximum_f32, exponentials_f32, scale_f32, dot_f32, slopes_f32},
    {add_f64, hide_f64, maximum_f64, exponentials_f64, scale_f64, dot_f64, slopes_f64},
};
