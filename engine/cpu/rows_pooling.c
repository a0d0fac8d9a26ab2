/* Pooling of a row of places: for each place of the kernel one pass over the row, so that the passes vectorise. */
#include "engine/cpu/rows.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Rows are short: in parts of a constant number of elements, and the last part overlaps the one before, no element is left to a slower loop. */
#define PAIRS_ROW(name, count)                                                                                         \
    for (int64_t i = 0, next; i < n; i = next) {                                                                       \
        next = i + count;                                                                                              \
        i = next <= n ? i : n - count;                                                                                 \
        nan |= pairs_some_##name(count, x + 2 * i, width, position + 2 * (int32_t)i, out + i, positions + i);          \
    }

/* The greatest so far and its position, -1 while there is none. The first of equals stays; so does a NaN before numbers. */
#define POOLING(name, T)                                                                                               \
    static void greatest_##name(int64_t n, const void *from, int64_t stride, int32_t position, int32_t step,           \
                                void *values, int32_t *positions) {                                                    \
        const T *x = from;                                                                                             \
        T *best = values;                                                                                              \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T value = x[i * stride];                                                                             \
            const bool better = (positions[i] < 0) | (value > best[i]) | ((value != value) & (best[i] == best[i]));    \
            best[i] = better ? value : best[i];                                                                        \
            positions[i] = better ? position + (int32_t)i * step : positions[i];                                       \
        }                                                                                                              \
    }                                                                                                                  \
    static void add_##name(int64_t n, const void *from, int64_t from_stride, void *to, int64_t to_stride) {            \
        const T *x = from;                                                                                             \
        T *sum = to;                                                                                                   \
        if (from_stride == 1 && to_stride == 1) {                                                                      \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                sum[i] += x[i];                                                                                        \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum[i * to_stride] += x[i * from_stride];                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    /* Positions may repeat. */                                                                                        \
    static void scatter_##name(int64_t n, const void *from, const int64_t *positions, int64_t extent, void *to) {      \
        const T *x = from;                                                                                             \
        T *out = to;                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            if ((uint64_t)positions[i] < (uint64_t)extent) {                                                           \
                out[positions[i]] += x[i];                                                                             \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* Without the case of a NaN the choices become vectors. True if it met one. */                                    \
    static ALWAYS_INLINE bool pairs_some_##name(int count, const T *x, int64_t width, int32_t position, T *values,     \
                                                int64_t *positions) {                                                  \
        const T *below = x + width;                                                                                    \
        int32_t unordered = 0;                                                                                         \
        CPU_PRAGMA(omp simd reduction(| : unordered))                                                                  \
        for (int i = 0; i < count; i++) {                                                                              \
            const T a = x[2 * i], b = x[2 * i + 1], c = below[2 * i], d = below[2 * i + 1];                            \
            const int32_t at = position + 2 * i, at_below = at + (int32_t)width;                                       \
            const T upper = b > a ? b : a, lower = d > c ? d : c;                                                      \
            const int32_t upper_at = b > a ? at + 1 : at, lower_at = d > c ? at_below + 1 : at_below;                  \
            values[i] = lower > upper ? lower : upper;                                                                 \
            positions[i] = lower > upper ? lower_at : upper_at;                                                        \
            unordered |= (a != a) | (b != b) | (c != c) | (d != d);                                                    \
        }                                                                                                              \
        return unordered;                                                                                              \
    }                                                                                                                  \
    static bool pairs_##name(int64_t n, const void *from, int64_t width, int32_t position, void *values,               \
                             int64_t *positions) {                                                                     \
        const T *x = from;                                                                                             \
        T *out = values;                                                                                               \
        bool nan = false;                                                                                              \
        if (n >= 8) {                                                                                                  \
            PAIRS_ROW(name, 8)                                                                                         \
        } else if (n >= 4) {                                                                                           \
            PAIRS_ROW(name, 4)                                                                                         \
        } else if (n >= 2) {                                                                                           \
            PAIRS_ROW(name, 2)                                                                                         \
        } else {                                                                                                       \
            PAIRS_ROW(name, 1)                                                                                         \
        }                                                                                                              \
        return !nan;                                                                                                   \
    }
POOLING(f32, float)
POOLING(f64, double)

const struct cpu_pooling CPU_NAME(pooling)[2] = {
    {greatest_f32, add_f32, scatter_f32, pairs_f32},
    {greatest_f64, add_f64, scatter_f64, pairs_f64},
};
