/* Makes row functions out of expressions. Only for sources compiled once for each vector level. */
#pragma once

#include "engine/cpu/vector_math.h"

/* The formulas, with this backend's functions of real numbers: vector_math.h. */
#define FORMULA_MATH_f32(function) vector_##function
#define FORMULA_MATH_f64(function) double_##function
#define FORMULA_FMA_f32(a, b, c) CPU_FMA(a, b, c)
#define FORMULA_WIDE(function) wide_##function
#define FORMULA_ATAN2_ONCE wide_atan2
#define FORMULA_POW_f32 vector_pow
#define FORMULA_POW_f64 double_pow
#include "engine/device/formula.h"

/* z = expression of a. The contiguous loop stands alone, since the compiler vectorises only that loop well. */
#define ROW1(name, T, R, expression)                                                                                   \
    static void name(const struct cpu_row *row) {                                                                      \
        const int64_t n = row->n, sa = row->stride[1];                                                                 \
        const T *x = (const void *)row->data[1];                                                                       \
        R *z = (void *)row->data[0];                                                                                   \
        if (sa == 1) {                                                                                                 \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T a = x[i];                                                                                      \
                z[i] = expression;                                                                                     \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T a = x[i * sa];                                                                                     \
            z[i] = expression;                                                                                         \
        }                                                                                                              \
    }

/* z = expression of a and b. Loops for: both contiguous, one contiguous and one a scalar, any strides. */
#define ROW2(name, T, R, expression)                                                                                   \
    static void name(const struct cpu_row *row) {                                                                      \
        const int64_t n = row->n, sa = row->stride[1], sb = row->stride[2];                                            \
        const T *x = (const void *)row->data[1], *y = (const void *)row->data[2];                                      \
        R *z = (void *)row->data[0];                                                                                   \
        if (sa == 1 && sb == 1) {                                                                                      \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T a = x[i], b = y[i];                                                                            \
                z[i] = expression;                                                                                     \
            }                                                                                                          \
        } else if (sa == 1 && sb == 0) {                                                                               \
            const T b = *y;                                                                                            \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T a = x[i];                                                                                      \
                z[i] = expression;                                                                                     \
            }                                                                                                          \
        } else if (sa == 0 && sb == 1) {                                                                               \
            const T a = *x;                                                                                            \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T b = y[i];                                                                                      \
                z[i] = expression;                                                                                     \
            }                                                                                                          \
        } else {                                                                                                       \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const T a = x[i * sa], b = y[i * sb];                                                                  \
                z[i] = expression;                                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }

/* rows_cast.c: an element copied as it is, by size. */
cpu_row_function CPU_NAME(copy_1), CPU_NAME(copy_2), CPU_NAME(copy_4), CPU_NAME(copy_8), CPU_NAME(copy_16);

/* A loop over contiguous arguments, and the row that calls it: arguments with other strides are copied to buffers, block by block. For
 * functions that take longer than the copies, so that a loop for each layout would only be more code. */
typedef void row_loop(int64_t n, void *out, const void *const *arguments);
#define LOOP_HEAD(name, T, R)                                                                                          \
    static void name##_loop(int64_t n, void *out, const void *const *arguments) {                                      \
        R *z = out;                                                                                                    \
        /* pointers of their own, which a store of bytes cannot change */                                              \
        const T *x0 = arguments[0], *x1 = arguments[1], *x2 = arguments[2];                                            \
        (void)x0, (void)x1, (void)x2;                                                                                  \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {
#define LOOP_TAIL(name, T, R, arguments)                                                                               \
    }                                                                                                                  \
    }                                                                                                                  \
    static void name(const struct cpu_row *row) {                                                                      \
        rows_in_blocks(row, arguments, sizeof(T), sizeof(R), name##_loop);                                             \
    }
#define LOOP1(name, T, R, formula)                                                                                     \
    LOOP_HEAD(name, T, R)                                                                                              \
    z[i] = formula(x0[i]);                                                                                             \
    LOOP_TAIL(name, T, R, 1)
#define LOOP2(name, T, R, formula)                                                                                     \
    LOOP_HEAD(name, T, R)                                                                                              \
    z[i] = formula(x0[i], x1[i]);                                                                                      \
    LOOP_TAIL(name, T, R, 2)
#define LOOP3(name, T, R, formula)                                                                                     \
    LOOP_HEAD(name, T, R)                                                                                              \
    z[i] = formula(x0[i], x1[i], x2[i]);                                                                               \
    LOOP_TAIL(name, T, R, 3)

static inline void row_gather(int64_t n, size_t size, const void *x, int64_t stride, void *out) {
    const struct cpu_row row = {.n = n, .data = {out, (char *)(uintptr_t)x}, .stride = {1, stride}};
    (size == 1   ? CPU_NAME(copy_1)
     : size == 2 ? CPU_NAME(copy_2)
     : size == 4 ? CPU_NAME(copy_4)
     : size == 8 ? CPU_NAME(copy_8)
                 : CPU_NAME(copy_16))(&row);
}

__attribute__((noinline, unused)) static void rows_in_blocks(const struct cpu_row *row, int n_arguments, size_t size,
                                                             size_t result_size, row_loop *loop) {
    _Alignas(64) char buffers[3][CPU_BLOCK * sizeof(struct cpu_pair)];
    const void *arguments[3] = {row->data[1], row->data[2], row->data[3]};
    bool contiguous = true;
    for (int k = 0; k < n_arguments; k++) {
        contiguous &= row->stride[k + 1] == 1;
    }
    if (contiguous) {
        loop(row->n, row->data[0], arguments);
        return;
    }
    for (int64_t i = 0; i < row->n; i += CPU_BLOCK) {
        int64_t n = row->n - i < CPU_BLOCK ? row->n - i : CPU_BLOCK;
        for (int k = 0; k < n_arguments; k++) {
            int64_t stride = row->stride[k + 1];
            const char *x = row->data[k + 1] + i * stride * (int64_t)size;
            arguments[k] = stride == 1 ? x : buffers[k];
            if (stride != 1 && (stride != 0 || i == 0)) {
                row_gather(n, size, x, stride, buffers[k]);
            }
        }
        loop(n, row->data[0] + i * (int64_t)result_size, arguments);
    }
}

/* Runs an f32 row on halves, block by block through buffers. `half` names the conversions. The result of a comparison is written directly,
 * other results are converted back. Parameters are f32 already. */
#define HALF_ROWS_THROUGH(half)                                                                                        \
    __attribute__((noinline, unused)) static void rows_through_##half(                                                 \
        const struct cpu_row *row, int inputs, int parameters, cpu_row_function *compute, bool comparison) {           \
        float buffer[4][CPU_BLOCK];                                                                                    \
        for (int64_t i = 0; i < row->n; i += CPU_BLOCK) {                                                              \
            int64_t n = row->n - i < CPU_BLOCK ? row->n - i : CPU_BLOCK;                                               \
            struct cpu_row block = {                                                                                   \
                .n = n,                                                                                                \
                .data = {(char *)buffer[0], (char *)buffer[1], (char *)buffer[2], (char *)buffer[3]},                  \
                .stride = {1, 1, 1, 1}};                                                                               \
            for (int k = 1; k <= inputs; k++) {                                                                        \
                const uint16_t *x = (const void *)row->data[k];                                                        \
                block.stride[k] = row->stride[k] != 0;                                                                 \
                half_load_##half(row->stride[k] ? n : 1, x + i * row->stride[k], row->stride[k], buffer[k]);           \
            }                                                                                                          \
            for (int k = inputs + 1; k <= inputs + parameters; k++) {                                                  \
                block.data[k] = row->data[k];                                                                          \
                block.stride[k] = 0;                                                                                   \
            }                                                                                                          \
            if (comparison) {                                                                                          \
                block.data[0] = row->data[0] + i;                                                                      \
            }                                                                                                          \
            compute(&block);                                                                                           \
            if (!comparison) {                                                                                         \
                half_store_##half(n, buffer[0], (uint16_t *)(void *)row->data[0] + i, 1);                              \
            }                                                                                                          \
        }                                                                                                              \
    }
HALF_ROWS_THROUGH(f16)
HALF_ROWS_THROUGH(bf16)

/* A row of halves, computed by the row of f32 named `compute`. */
#define HALF_ROW(name, half, inputs, parameters, compute, comparison)                                                  \
    static void name(const struct cpu_row *row) {                                                                      \
        rows_through_##half(row, inputs, parameters, compute, comparison);                                             \
    }
