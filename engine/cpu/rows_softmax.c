/* Softmax of one row, and its logarithm, in three passes: the maximum, the sum of exponentials (in f64), the results. Each pass goes block
 * by block through f32 (or f64) buffers, so that strides and halves need no loops of their own. */
#include <math.h>

#include "engine/cpu/vector_math.h"

#if defined(__AVX512F__)
#include "engine/cpu/vector_avx512.h"
#endif

#define LOAD_PLAIN(name, T)                                                                                            \
    static inline void load_##name(int64_t n, const T *x, int64_t stride, T *out) {                                    \
        if (stride == 1) {                                                                                             \
            memcpy(out, x, (size_t)n * sizeof *x);                                                                     \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i] = x[i * stride];                                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void store_##name(int64_t n, const T *x, T *out, int64_t stride) {                                   \
        if (stride == 1) {                                                                                             \
            memcpy(out, x, (size_t)n * sizeof *x);                                                                     \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i * stride] = x[i];                                                                                    \
        }                                                                                                              \
    }
LOAD_PLAIN(f32, float)
LOAD_PLAIN(f64, double)
/* Not inlined: else the compiler would not vectorise the loop of the maximum behind it. */
static __attribute__((noinline)) void load_f16(int64_t n, const uint16_t *x, int64_t stride, float *out) {
    half_load_f16(n, x, stride, out);
}
#define store_f16 half_store_f16
#define load_bf16 half_load_bf16
#define store_bf16 half_store_bf16

enum {
    LANES = 16,  /* blocks are filled up to a multiple of this: short rows then have no scalar rest */
    HELD = 4096, /* elements of a row that stay in a buffer from the first pass to the last */
};

static inline int64_t padded(int64_t n) {
    return (n + LANES - 1) / LANES * LANES;
}

/* Not inlined: else, with several callers, the compiler would not inline the exponential, and the loop would not be vectorised. A NaN in x
 * reaches the sum through exp, so the maximum may ignore it. Elements from n on are overwritten. */
#define SOFTMAX_MAXIMUM(T, name)                                                                                       \
    static inline void pad_##name(int64_t n, T value, T *x) {                                                          \
        for (int64_t i = n; i < padded(n); i++) {                                                                      \
            x[i] = value;                                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static inline T maximum_##name(int64_t n, T *x) {                                                                  \
        const int64_t wide = padded(n);                                                                                \
        T best = -(T)__builtin_inff();                                                                                 \
        pad_##name(n, best, x);                                                                                        \
        CPU_PRAGMA(omp simd reduction(max : best))                                                                     \
        for (int64_t i = 0; i < wide; i++) {                                                                           \
            best = x[i] > best ? x[i] : best;                                                                          \
        }                                                                                                              \
        return best;                                                                                                   \
    }
#define SOFTMAX_EXPONENTIALS(T, name, exponential)                                                                     \
    static __attribute__((noinline)) double exponentials_##name(int64_t n, T maximum, T *x) {                          \
        const int64_t wide = padded(n);                                                                                \
        double sum = 0;                                                                                                \
        pad_##name(n, maximum, x);                                                                                     \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < wide; i++) {                                                                           \
            x[i] = exponential(x[i] - maximum);                                                                        \
        }                                                                                                              \
        pad_##name(n, 0, x);                                                                                           \
        CPU_LOOP_SUM(sum)                                                                                              \
        for (int64_t i = 0; i < wide; i++) {                                                                           \
            sum += (double)x[i];                                                                                       \
        }                                                                                                              \
        return sum;                                                                                                    \
    }
SOFTMAX_MAXIMUM(float, f32)
SOFTMAX_MAXIMUM(double, f64)
SOFTMAX_EXPONENTIALS(double, f64, double_exp)

#if defined(__AVX512F__)
static __attribute__((noinline)) double exponentials_f32(int64_t n, float maximum, float *x) {
    return avx512_exponentials(n, maximum, x, x, true, false);
}
#else
SOFTMAX_EXPONENTIALS(float, f32, vector_exp)
#endif

/* E is the element's type, T the type in which it is computed. */
#define SOFTMAX_ROW(half, E, T, name)                                                                                  \
    static double maximum_of_##half(int64_t n, const void *x, int64_t x_stride) {                                      \
        T buffer[CPU_BLOCK], best = -(T)__builtin_inff();                                                              \
        for (int64_t i = 0; i < n; i += CPU_BLOCK) {                                                                   \
            int64_t block = n - i < CPU_BLOCK ? n - i : CPU_BLOCK;                                                     \
            load_##half(block, (const E *)x + i * x_stride, x_stride, buffer);                                         \
            T highest = maximum_##name(block, buffer);                                                                 \
            best = highest > best ? highest : best;                                                                    \
        }                                                                                                              \
        return (double)best;                                                                                           \
    }                                                                                                                  \
    static double sum_of_##half(int64_t n, const void *x, int64_t x_stride, double maximum) {                          \
        T buffer[CPU_BLOCK];                                                                                           \
        double sum = 0;                                                                                                \
        for (int64_t i = 0; i < n; i += CPU_BLOCK) {                                                                   \
            int64_t block = n - i < CPU_BLOCK ? n - i : CPU_BLOCK;                                                     \
            load_##half(block, (const E *)x + i * x_stride, x_stride, buffer);                                         \
            sum += exponentials_##name(block, (T)maximum, buffer);                                                     \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void softmax_write_##half(int64_t n, const void *x, int64_t x_stride, void *out, int64_t out_stride,        \
                                     double maximum, double total) {                                                   \
        const T share = (T)(1 / total);                                                                                \
        T buffer[CPU_BLOCK];                                                                                           \
        for (int64_t i = 0; i < n; i += CPU_BLOCK) {                                                                   \
            int64_t block = n - i < CPU_BLOCK ? n - i : CPU_BLOCK;                                                     \
            load_##half(block, (const E *)x + i * x_stride, x_stride, buffer);                                         \
            exponentials_##name(block, (T)maximum, buffer);                                                            \
            CPU_LOOP                                                                                                   \
            for (int64_t k = 0; k < padded(block); k++) {                                                              \
                buffer[k] *= share;                                                                                    \
            }                                                                                                          \
            store_##half(block, buffer, (E *)out + i * out_stride, out_stride);                                        \
        }                                                                                                              \
    }                                                                                                                  \
    static void log_softmax_write_##half(int64_t n, const void *x, int64_t x_stride, void *out, int64_t out_stride,    \
                                         double maximum, double total) {                                               \
        T buffer[CPU_BLOCK], shift = (T)log(total);                                                                    \
        for (int64_t i = 0; i < n; i += CPU_BLOCK) {                                                                   \
            int64_t block = n - i < CPU_BLOCK ? n - i : CPU_BLOCK;                                                     \
            load_##half(block, (const E *)x + i * x_stride, x_stride, buffer);                                         \
            CPU_LOOP                                                                                                   \
            for (int64_t k = 0; k < block; k++) {                                                                      \
                buffer[k] = buffer[k] - (T)maximum - shift;                                                            \
            }                                                                                                          \
            store_##half(block, buffer, (E *)out + i * out_stride, out_stride);                                        \
        }                                                                                                              \
    }                                                                                                                  \
    /* A row that fits is read once, and its exponentials are taken once. */                                           \
    static void softmax_##half(int64_t n, const void *x, int64_t x_stride, void *out, int64_t out_stride) {            \
        T buffer[HELD];                                                                                                \
        if (n > HELD) {                                                                                                \
            double maximum = maximum_of_##half(n, x, x_stride);                                                        \
            softmax_write_##half(n, x, x_stride, out, out_stride, maximum, sum_of_##half(n, x, x_stride, maximum));    \
            return;                                                                                                    \
        }                                                                                                              \
        load_##half(n, x, x_stride, buffer);                                                                           \
        const T share = (T)(1 / exponentials_##name(n, maximum_##name(n, buffer), buffer));                            \
        CPU_LOOP                                                                                                       \
        for (int64_t k = 0; k < padded(n); k++) {                                                                      \
            buffer[k] *= share;                                                                                        \
        }                                                                                                              \
        store_##half(n, buffer, out, out_stride);                                                                      \
    }                                                                                                                  \
    static void log_softmax_##half(int64_t n, const void *x, int64_t x_stride, void *out, int64_t out_stride) {        \
        T buffer[HELD];                                                                                                \
        if (n > HELD) {                                                                                                \
            double maximum = maximum_of_##half(n, x, x_stride);                                                        \
            log_softmax_write_##half(n, x, x_stride, out, out_stride, maximum,                                         \
                                     sum_of_##half(n, x, x_stride, maximum));                                          \
            return;                                                                                                    \
        }                                                                                                              \
        load_##half(n, x, x_stride, buffer);                                                                           \
        T maximum = maximum_##name(n, buffer);                                                                         \
        double sum = exponentials_##name(n, maximum, buffer);                                                          \
        log_softmax_write_##half(n, x, x_stride, out, out_stride, (double)maximum, sum);                               \
    }                                                                                                                  \
    __attribute__((unused)) static const struct cpu_softmax table_softmax_##half = {                                   \
        softmax_##half, maximum_of_##half, sum_of_##half, softmax_write_##half};                                       \
    __attribute__((unused)) static const struct cpu_softmax table_log_softmax_##half = {                               \
        log_softmax_##half, maximum_of_##half, sum_of_##half, log_softmax_write_##half};
SOFTMAX_ROW(f16, uint16_t, float, f32)
SOFTMAX_ROW(bf16, uint16_t, float, f32)
SOFTMAX_ROW(f32, float, float, f32)
SOFTMAX_ROW(f64, double, double, f64)

/* Contiguous rows of f32 that fit need no buffer: their bits are those of the functions above. */
#if defined(__AVX512F__)
static void softmax_direct(int64_t n, const void *x, int64_t x_stride, void *out, int64_t out_stride) {
    float *z = out;
    if (n > HELD || x_stride != 1 || out_stride != 1) {
        softmax_f32(n, x, x_stride, out, out_stride);
        return;
    }
    const float share = (float)(1 / avx512_exponentials(n, avx512_maximum(n, x), x, z, true, false));
    CPU_LOOP
    for (int64_t i = 0; i < n; i++) {
        z[i] *= share;
    }
}
static void log_softmax_direct(int64_t n, const void *x, int64_t x_stride, void *out, int64_t out_stride) {
    const float *a = x;
    float *z = out;
    if (n > HELD || x_stride != 1 || out_stride != 1) {
        log_softmax_f32(n, x, x_stride, out, out_stride);
        return;
    }
    const float maximum = avx512_maximum(n, a);
    const float shift = (float)log(avx512_exponentials(n, maximum, a, NULL, false, false));
    CPU_LOOP
    for (int64_t i = 0; i < n; i++) {
        z[i] = a[i] - maximum - shift;
    }
}
static const struct cpu_softmax table_softmax_direct = {softmax_direct, maximum_of_f32, sum_of_f32, softmax_write_f32};
static const struct cpu_softmax table_log_softmax_direct = {log_softmax_direct, maximum_of_f32, sum_of_f32,
                                                            log_softmax_write_f32};
#define TABLE_F32(name) table_##name##_direct
#else
#define TABLE_F32(name) table_##name##_f32
#endif

const struct cpu_softmax *const CPU_NAME(softmax)[2][DTYPE_COUNT] = {
    {[DTYPE_F16] = &table_softmax_f16,
     [DTYPE_BF16] = &table_softmax_bf16,
     [DTYPE_F32] = &TABLE_F32(softmax),
     [DTYPE_F64] = &table_softmax_f64},
    {[DTYPE_F16] = &table_log_softmax_f16,
     [DTYPE_BF16] = &table_log_softmax_bf16,
     [DTYPE_F32] = &TABLE_F32(log_softmax),
     [DTYPE_F64] = &table_log_softmax_f64},
};
