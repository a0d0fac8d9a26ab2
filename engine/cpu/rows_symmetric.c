/* Products of symmetric matrices and vectors: an element of the triangle counts for its row and for its column while it is in a register. */
#include "engine/cpu/lanes.h"
#include "engine/cpu/symmetric.h"

enum { TOGETHER = 4 }; /* columns */
#if defined(__AVX512F__)
enum { BYTES = 64 };
#elif defined(__AVX__)
enum { BYTES = 32 };
#else
enum { BYTES = 16 };
#endif

/* some: columns that lie beside each other, from the row behind their triangle on; their own sums are returned. The columns that follow are
 * fetched meanwhile: from column to column the processor does not foresee that. */
#define SYMMETRIC(name, T)                                                                                             \
    typedef T vector_##name __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));                        \
    static void some_##name(int64_t n, const T *a, int64_t step, const T *factors, const T *x, T *y, T *sums) {        \
        enum { WIDTH = BYTES / sizeof(T) };                                                                            \
        const T *b = a + step, *c = b + step, *d = c + step, *next = d + step;                                         \
        const T f = factors[0], g = factors[1], h = factors[2], k = factors[3];                                        \
        vector_##name p = {0}, q = {0}, r = {0}, s = {0};                                                              \
        int64_t i = 0;                                                                                                 \
        for (; i + WIDTH <= n; i += WIDTH) {                                                                           \
            const vector_##name own = *(const vector_##name *)(const void *)(x + i);                                   \
            const vector_##name a0 = *(const vector_##name *)(const void *)(a + i);                                    \
            const vector_##name b0 = *(const vector_##name *)(const void *)(b + i);                                    \
            const vector_##name c0 = *(const vector_##name *)(const void *)(c + i);                                    \
            const vector_##name d0 = *(const vector_##name *)(const void *)(d + i);                                    \
            __builtin_prefetch(next + i);                                                                              \
            __builtin_prefetch(next + i + step);                                                                       \
            __builtin_prefetch(next + i + 2 * step);                                                                   \
            __builtin_prefetch(next + i + 3 * step);                                                                   \
            *(vector_##name *)(void *)(y + i) += (a0 * f + b0 * g) + (c0 * h + d0 * k);                                \
            p += a0 * own;                                                                                             \
            q += b0 * own;                                                                                             \
            r += c0 * own;                                                                                             \
            s += d0 * own;                                                                                             \
        }                                                                                                              \
        sums[0] = sums[1] = sums[2] = sums[3] = 0;                                                                     \
        for (int64_t lane = 0; lane < WIDTH; lane++) {                                                                 \
            sums[0] += p[lane];                                                                                        \
            sums[1] += q[lane];                                                                                        \
            sums[2] += r[lane];                                                                                        \
            sums[3] += s[lane];                                                                                        \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            y[i] += (a[i] * f + b[i] * g) + (c[i] * h + d[i] * k);                                                     \
            sums[0] += a[i] * x[i];                                                                                    \
            sums[1] += b[i] * x[i];                                                                                    \
            sums[2] += c[i] * x[i];                                                                                    \
            sums[3] += d[i] * x[i];                                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static T one_##name(int64_t n, const T *a, T factor, const T *x, T *y) {                                           \
        T sum = 0;                                                                                                     \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            y[i] += a[i] * factor;                                                                                     \
            sum += a[i] * x[i];                                                                                        \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void symmetric_##name(int64_t n, int64_t columns, const void *matrix, int64_t a_step, const void *vector,   \
                                 void *result) {                                                                       \
        const T *a = matrix, *x = vector;                                                                              \
        T *y = result;                                                                                                 \
        int64_t c = 0;                                                                                                 \
        for (; c + TOGETHER <= columns; c += TOGETHER) {                                                               \
            const int64_t behind = c + TOGETHER;                                                                       \
            const T *first = a + c * a_step;                                                                           \
            T sums[TOGETHER];                                                                                          \
            some_##name(n - behind, first + behind, a_step, x + c, x + behind, y + behind, sums);                      \
            for (int64_t i = 0; i < TOGETHER; i++) {                                                                   \
                for (int64_t k = 0; k < TOGETHER; k++) {                                                               \
                    sums[i] += first[k < i ? c + i + k * a_step : c + k + i * a_step] * x[c + k];                      \
                }                                                                                                      \
                y[c + i] += sums[i];                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
        for (; c < columns; c++) {                                                                                     \
            const T *own = a + c * a_step + c;                                                                         \
            y[c] += *own * x[c] + one_##name(n - c - 1, own + 1, x[c], x + c + 1, y + c + 1);                          \
        }                                                                                                              \
    }
SYMMETRIC(f32, float)
SYMMETRIC(f64, double)

const struct cpu_symmetric CPU_NAME(symmetric) = {symmetric_f32, symmetric_f64};
