/* Small triangles of equations, for many right sides at once: x of each side lies across vectors, so that a row of the triangle is subtracted
 * from all of them by multiplications alone. */
#include "engine/cpu/lanes.h"

#if defined(__AVX512F__)
enum { BYTES = 64 };

/* Four vectors, so that their sums do not wait for each other; what is left by single ones, and then one by one, in the same order. */
#define TRIANGLE(name, T)                                                                                              \
    typedef T vector_##name __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));                        \
    static inline __attribute__((always_inline)) void some_##name(int vectors, int64_t n, const T *t, const T *d,      \
                                                                  T *x, int64_t step) {                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            vector_##name sums[4];                                                                                     \
            vector_##name *own = (vector_##name *)(void *)(x + i * step);                                              \
            _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) {                                                \
                sums[v] = own[v];                                                                                      \
            }                                                                                                          \
            for (int64_t k = 0; k < i; k++) {                                                                          \
                const vector_##name *before = (const vector_##name *)(const void *)(x + k * step);                     \
                const T factor = t[i * CPU_TRIANGLE_MAX + k];                                                          \
                _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) {                                            \
                    sums[v] -= factor * before[v];                                                                     \
                }                                                                                                      \
            }                                                                                                          \
            const T by = d ? d[i] : 1;                                                                                 \
            _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) {                                                \
                own[v] = sums[v] / by;                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void solve_##name(int64_t n, int64_t sides, const void *rows, const void *diagonal, void *first,            \
                             int64_t step) {                                                                           \
        enum { WIDTH = BYTES / sizeof(T) };                                                                            \
        const T *t = rows, *d = diagonal;                                                                              \
        int64_t at = 0;                                                                                                \
        for (; at + 4 * WIDTH <= sides; at += 4 * WIDTH) {                                                             \
            some_##name(4, n, t, d, (T *)first + at, step);                                                            \
        }                                                                                                              \
        for (; at + WIDTH <= sides; at += WIDTH) {                                                                     \
            some_##name(1, n, t, d, (T *)first + at, step);                                                            \
        }                                                                                                              \
        for (; at < sides; at++) {                                                                                     \
            T *x = (T *)first + at;                                                                                    \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                T sum = x[i * step];                                                                                   \
                for (int64_t k = 0; k < i; k++) {                                                                      \
                    sum -= t[i * CPU_TRIANGLE_MAX + k] * x[k * step];                                                  \
                }                                                                                                      \
                x[i * step] = sum / (d ? d[i] : 1);                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }
TRIANGLE(f32, float)
TRIANGLE(f64, double)

cpu_triangle_function *const CPU_NAME(triangle)[] = {solve_f32, solve_f64};
#else /* OpenBLAS is as fast */
cpu_triangle_function *const CPU_NAME(triangle)[2] = {NULL};
#endif
