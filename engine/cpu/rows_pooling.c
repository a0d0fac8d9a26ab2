/* Pooling of a row of places: for each place of the kernel one pass over the row, so that the passes vectorise. */
#include "engine/cpu/rows.h"

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
    }
POOLING(f32, float)
POOLING(f64, double)

const struct cpu_pooling CPU_NAME(pooling)[2] = {
    {greatest_f32, add_f32, scatter_f32},
    {greatest_f64, add_f64, scatter_f64},
};
