/* Pooling of a row of places: for each place of the kernel, or two neighbours, one pass over the row, so that the passes vectorise. */
#include "engine/cpu/rows.h"

#define INLINE static inline __attribute__((always_inline))
enum { TOGETHER = 16 }; /* windows whose greatest elements are looked for in one loop without a rest */

/* Calls a function with constants for the strides that most windows have. */
#define BY_STRIDE(function, ...)                                                                                       \
    do {                                                                                                               \
        if (pair) {                                                                                                    \
            function(2, true, __VA_ARGS__);                                                                            \
        } else if (stride == 1) {                                                                                      \
            function(1, false, __VA_ARGS__);                                                                           \
        } else if (stride == 2) {                                                                                      \
            function(2, false, __VA_ARGS__);                                                                           \
        } else {                                                                                                       \
            function(stride, false, __VA_ARGS__);                                                                      \
        }                                                                                                              \
    } while (0)

/* The greatest so far and its position, -1 while there is none. The first of equals stays; so does a NaN before numbers. */
#define POOLING(name, T)                                                                                               \
    INLINE bool better_##name(T value, T best) {                                                                       \
        return (value > best) | ((value != value) & (best == best));                                                   \
    }                                                                                                                  \
    /* The greatest of each window alone. `step`: from a window's position to the next one's. */                       \
    INLINE void see_##name(int64_t stride, bool pair, const T *x, int32_t position, int32_t step, T *values,           \
                           int32_t *positions) {                                                                       \
        CPU_LOOP                                                                                                       \
        for (int32_t i = 0; i < TOGETHER; i++) {                                                                       \
            const T one = x[i * stride], two = pair ? x[i * stride + 1] : one;                                         \
            const bool second = pair & better_##name(two, one);                                                        \
            values[i] = second ? two : one;                                                                            \
            positions[i] = position + i * step + (second ? 1 : 0);                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    /* Windows may be taken again: that changes nothing. Two loops, of which the compiler vectorises each. */          \
    INLINE void take_##name(int64_t stride, bool pair, bool first, const T *x, int32_t position, int32_t step,         \
                            T *values, int32_t *positions) {                                                           \
        T found[TOGETHER];                                                                                             \
        int32_t at[TOGETHER];                                                                                          \
        if (first) {                                                                                                   \
            see_##name(stride, pair, x, position, step, values, positions);                                            \
            return;                                                                                                    \
        }                                                                                                              \
        see_##name(stride, pair, x, position, step, found, at);                                                        \
        CPU_LOOP                                                                                                       \
        for (int32_t i = 0; i < TOGETHER; i++) {                                                                       \
            const bool better = (positions[i] < 0) | better_##name(found[i], values[i]);                               \
            values[i] = better ? found[i] : values[i];                                                                 \
            positions[i] = better ? at[i] : positions[i];                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void take_all_##name(int64_t stride, bool pair, bool first, int64_t n, const T *x, int32_t position,        \
                                T *values, int32_t *positions) {                                                       \
        for (int64_t i = 0; i < n; i += TOGETHER) {                                                                    \
            i = i < n - TOGETHER ? i : n - TOGETHER;                                                                   \
            take_##name(stride, pair, first, x + i * stride, position + (int32_t)(i * stride), (int32_t)stride,        \
                        values + i, positions + i);                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    /* Fewer windows than are taken together, by way of buffers. */                                                    \
    static void take_few_##name(int64_t stride, bool pair, bool first, int64_t n, const T *x, int32_t position,        \
                                T *values, int32_t *positions) {                                                       \
        T elements[2 * TOGETHER] = {0}, bests[TOGETHER] = {0};                                                         \
        int32_t kept[TOGETHER] = {0};                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            elements[2 * i] = x[i * stride];                                                                           \
            elements[2 * i + 1] = x[i * stride + pair];                                                                \
        }                                                                                                              \
        if (first) {                                                                                                   \
            take_##name(2, true, true, elements, position, (int32_t)stride, bests, kept);                              \
        } else {                                                                                                       \
            memcpy(bests, values, (size_t)n * sizeof *bests);                                                          \
            memcpy(kept, positions, (size_t)n * sizeof *kept);                                                         \
            take_##name(2, true, false, elements, position, (int32_t)stride, bests, kept);                             \
        }                                                                                                              \
        memcpy(values, bests, (size_t)n * sizeof *bests);                                                              \
        memcpy(positions, kept, (size_t)n * sizeof *kept);                                                             \
    }                                                                                                                  \
    static void greatest_##name(int64_t n, const void *x, int64_t stride, bool pair, bool first, int32_t position,     \
                                void *values, int32_t *positions) {                                                    \
        if (n < TOGETHER) {                                                                                            \
            take_few_##name(stride, pair, first, n, x, position, values, positions);                                   \
        } else if (first) {                                                                                            \
            BY_STRIDE(take_all_##name, true, n, x, position, values, positions);                                       \
        } else {                                                                                                       \
            BY_STRIDE(take_all_##name, false, n, x, position, values, positions);                                      \
        }                                                                                                              \
    }                                                                                                                  \
    static void none_##name(int64_t n, void *values, int32_t *positions) {                                             \
        T *best = values;                                                                                              \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            best[i] = -(T)__builtin_inff();                                                                            \
            positions[i] = -1;                                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void add_to_##name(int64_t stride, bool pair, int64_t n, const T *x, T *sum) {                              \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum[i] += pair ? x[i * stride] + x[i * stride + 1] : x[i * stride];                                        \
        }                                                                                                              \
    }                                                                                                                  \
    static void add_##name(int64_t n, const void *x, int64_t stride, bool pair, void *sums) {                          \
        BY_STRIDE(add_to_##name, n, x, sums);                                                                          \
    }                                                                                                                  \
    INLINE void spread_to_##name(int64_t stride, bool pair, int64_t n, const T *value, T *x) {                         \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i * stride] += value[i];                                                                                 \
            if (pair) {                                                                                                \
                x[i * stride + 1] += value[i];                                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void spread_##name(int64_t n, const void *values, int64_t stride, bool pair, void *x) {                     \
        BY_STRIDE(spread_to_##name, n, values, x);                                                                     \
    }                                                                                                                  \
    static void add_run_##name(int64_t n, const void *from, void *to) {                                                \
        const T *x = from;                                                                                             \
        T sum = 0;                                                                                                     \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sum += x[i];                                                                                               \
        }                                                                                                              \
        *(T *)to += sum;                                                                                               \
    }                                                                                                                  \
    static void spread_run_##name(int64_t n, const void *from, void *to) {                                             \
        const T value = *(const T *)from;                                                                              \
        T *x = to;                                                                                                     \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i] += value;                                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    static void divide_##name(int64_t n, const void *from, double rows, const void *numbers, void *to) {               \
        const T *x = from, *by = numbers;                                                                              \
        T *out = to;                                                                                                   \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i] = x[i] / ((T)rows * by[i]);                                                                         \
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

static void widen(int64_t n, const int32_t *positions, int64_t *out) {
    CPU_LOOP
    for (int64_t i = 0; i < n; i++) {
        out[i] = positions[i];
    }
}

const struct cpu_pooling CPU_NAME(pooling)[2] = {
    {greatest_f32, none_f32, widen, add_f32, spread_f32, add_run_f32, spread_run_f32, divide_f32, scatter_f32},
    {greatest_f64, none_f64, widen, add_f64, spread_f64, add_run_f64, spread_run_f64, divide_f64, scatter_f64},
};
