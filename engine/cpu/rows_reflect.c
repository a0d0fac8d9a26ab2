/* Householder's reflections of some columns of a matrix, which lie column by column, and the triangle that joins them. */
#include <math.h>

#include "engine/cpu/lanes.h"

/* dots, dot: sums of products of one column with each of four, or with one. subtract: a multiple of it from another. squares: the
 * sum of a column's squares, times scale².
 *
 * reflection: the column *first with n elements behind it becomes its reflection's vector, whose first element, 1, is left out, and *first what
 * the reflection makes of the column. Returns tau. A column of tiny or huge numbers is scaled meanwhile, so that no square is lost. */
#define COLUMNS(name, T)                                                                                               \
    static void dots_##name(int64_t n, const T *v, const T *x, int64_t step, T sums[4]) {                              \
        T a = 0, b = 0, c = 0, d = 0;                                                                                  \
        CPU_PRAGMA(omp simd reduction(+ : a, b, c, d))                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            a += v[i] * x[i];                                                                                          \
            b += v[i] * x[i + step];                                                                                   \
            c += v[i] * x[i + 2 * step];                                                                               \
            d += v[i] * x[i + 3 * step];                                                                               \
        }                                                                                                              \
        sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;                                                            \
    }                                                                                                                  \
    static T dot_##name(int64_t n, const T *v, const T *x) {                                                           \
        T sum = 0;                                                                                                     \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum += v[i] * x[i];                                                                                        \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void subtract_##name(int64_t n, T factor, const T *v, T *x) {                                               \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i] -= factor * v[i];                                                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static double squares_##name(int64_t n, const T *x, double scale) {                                                \
        double sum = 0;                                                                                                \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const double element = (double)x[i] * scale;                                                               \
            sum += element * element;                                                                                  \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static T reflection_##name(int64_t n, T *first) {                                                                  \
        T *x = first + 1;                                                                                              \
        double alpha = (double)*first, sum = squares_##name(n, x, 1), most = 0, scale = 1;                             \
        if (!(sum >= 0x1p-900 && sum + alpha * alpha <= 0x1p900)) {                                                    \
            for (int64_t i = 0; i < n && most == most; i++) {                                                          \
                const double size = fabs((double)x[i]);                                                                \
                most = size <= most ? most : size;                                                                     \
            }                                                                                                          \
            if (most == 0) {                                                                                           \
                return 0;                                                                                              \
            }                                                                                                          \
            const double largest = fmax(most, fabs(alpha));                                                            \
            scale = largest < 0x1p-400 ? 0x1p600 : largest > 0x1p400 ? 0x1p-600 : 1;                                   \
            alpha *= scale;                                                                                            \
            sum = squares_##name(n, x, scale);                                                                         \
        }                                                                                                              \
        const double norm = sqrt(sum + alpha * alpha), beta = alpha < 0 ? norm : -norm, under = alpha - beta;          \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i] = (T)((double)x[i] * scale / under);                                                                  \
        }                                                                                                              \
        *first = (T)(beta / scale);                                                                                    \
        return (T)(under / -beta);                                                                                     \
    }                                                                                                                  \
    static void reflect_##name(int64_t m, int64_t n, void *matrix, int64_t a_step, void *triangle, int64_t t_step) {   \
        T *a = matrix, *t = triangle, with[CPU_REFLECT_MAX];                                                           \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            const int64_t below = m - j - 1;                                                                           \
            T *own = a + j * a_step + j, *v = own + 1;                                                                 \
            const T tau = reflection_##name(below, own);                                                               \
            int64_t k = j + 1;                                                                                         \
            for (; k + 4 <= n; k += 4) {                                                                               \
                T *other = a + k * a_step + j, sums[4];                                                                \
                dots_##name(below, v, other + 1, a_step, sums);                                                        \
                for (int64_t c = 0; c < 4; c++, other += a_step) {                                                     \
                    const T factor = tau * (*other + sums[c]);                                                         \
                    *other -= factor;                                                                                  \
                    subtract_##name(below, factor, v, other + 1);                                                      \
                }                                                                                                      \
            }                                                                                                          \
            for (; k < n; k++) {                                                                                       \
                T *other = a + k * a_step + j;                                                                         \
                const T factor = tau * (*other + dot_##name(below, v, other + 1));                                     \
                *other -= factor;                                                                                      \
                subtract_##name(below, factor, v, other + 1);                                                          \
            }                                                                                                          \
            for (k = 0; k + 4 <= j; k += 4) {                                                                          \
                dots_##name(below, v, a + k * a_step + j + 1, a_step, with + k);                                       \
            }                                                                                                          \
            for (; k < j; k++) {                                                                                       \
                with[k] = dot_##name(below, v, a + k * a_step + j + 1);                                                \
            }                                                                                                          \
            for (k = 0; k < j; k++) {                                                                                  \
                with[k] += a[k * a_step + j];                                                                          \
            }                                                                                                          \
            for (int64_t i = 0; i < j; i++) {                                                                          \
                T sum = 0;                                                                                             \
                for (k = i; k < j; k++) {                                                                              \
                    sum += t[k * t_step + i] * with[k];                                                                \
                }                                                                                                      \
                t[j * t_step + i] = -tau * sum;                                                                        \
            }                                                                                                          \
            t[j * t_step + j] = tau;                                                                                   \
        }                                                                                                              \
    }
COLUMNS(f32, float)
COLUMNS(f64, double)

cpu_reflect_function *const CPU_NAME(reflect)[] = {reflect_f32, reflect_f64};
