/* Macros for the loops of rows_*.c. Only for sources compiled once for each vector level. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "engine/cpu/kernels.h"
#include "engine/cpu/sort.h"

#define CPU_NAME__(level, name) cpu_##level##_##name
#define CPU_NAME_(level, name) CPU_NAME__(level, name)
/* The level's own name of a symbol: cpu_v3_name. */
#define CPU_NAME(name) CPU_NAME_(CPU_LEVEL, name)

/* The iterations of the next loop do not depend on each other, even if output and input are the same memory. */
#define CPU_PRAGMA(text) _Pragma(#text)
#define CPU_LOOP CPU_PRAGMA(omp simd)
#define CPU_LOOP_SUM(variable) CPU_PRAGMA(omp simd reduction(+ : variable))

/* a · b + c, in one rounding if the level has such an instruction. */
#if defined(__FMA__) || defined(__aarch64__)
#define CPU_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define CPU_FMA(a, b, c) ((a) * (b) + (c))
#endif

enum { CPU_BLOCK = 256 }; /* elements in the buffers through which f16 and bf16 compute */

/* X(NAME, name, type, unsigned type of at least 32 bits, minimum, maximum): the integer dtypes. */
#define CPU_INTEGERS(X)                                                                                                \
    X(U8, u8, uint8_t, uint32_t, 0, UINT8_MAX)                                                                         \
    X(U16, u16, uint16_t, uint32_t, 0, UINT16_MAX)                                                                     \
    X(U32, u32, uint32_t, uint32_t, 0, UINT32_MAX)                                                                     \
    X(U64, u64, uint64_t, uint64_t, 0, UINT64_MAX)                                                                     \
    X(I8, i8, int8_t, uint32_t, INT8_MIN, INT8_MAX)                                                                    \
    X(I16, i16, int16_t, uint32_t, INT16_MIN, INT16_MAX)                                                               \
    X(I32, i32, int32_t, uint32_t, INT32_MIN, INT32_MAX)                                                               \
    X(I64, i64, int64_t, uint64_t, INT64_MIN, INT64_MAX)

extern cpu_row_function *const CPU_NAME(elementwise)[CPU_ROW_COUNT];
extern cpu_row_function *CPU_NAME(cast)[DTYPE_COUNT][DTYPE_COUNT];
extern const struct cpu_reduction *const *const CPU_NAME(reductions)[CPU_REDUCE_COUNT];
extern const struct cpu_scan *const CPU_NAME(scans)[CPU_SCAN_COUNT][DTYPE_COUNT];
extern cpu_row_function *CPU_NAME(linear)[OP_ACTIVATION_COUNT][DTYPE_COUNT];
extern const struct cpu_softmax *const CPU_NAME(softmax)[2][DTYPE_COUNT];
extern cpu_random_function *const CPU_NAME(random)[CPU_RANDOM_COUNT][DTYPE_COUNT];
extern const struct cpu_pooling CPU_NAME(pooling)[2];
extern const struct cpu_normalisation CPU_NAME(normalisation)[2];
extern cpu_optimiser_function *const CPU_NAME(optimiser)[];
cpu_rotate_function CPU_NAME(rotate_f32), CPU_NAME(rotate_f64);
extern const struct cpu_attention CPU_NAME(attention)[2];
extern const struct cpu_recurrent CPU_NAME(recurrent)[2];
extern const struct cpu_loss CPU_NAME(loss)[];
extern const struct cpu_fft CPU_NAME(fft_f32), CPU_NAME(fft_f64);
extern const struct cpu_sort CPU_NAME(sort)[], CPU_NAME(argsort)[];
extern cpu_find_function *const CPU_NAME(find)[];
extern const struct cpu_select CPU_NAME(select);
extern cpu_search_function *const CPU_NAME(search)[];
void CPU_NAME(stream)(void *to, const void *from, size_t bytes), CPU_NAME(stream_end)(void);
cpu_product_function CPU_NAME(product_u32), CPU_NAME(product_u64), CPU_NAME(product_bool);
extern cpu_gather_function *const CPU_NAME(gather)[];
extern cpu_turn_function *const CPU_NAME(turn)[];
extern cpu_cross_function *const CPU_NAME(cross)[CPU_CROSS_COUNT];
extern cpu_reflect_function *const CPU_NAME(reflect)[2];
extern cpu_chain_function *const CPU_NAME(chain)[2], *const CPU_NAME(chain_tile);
extern const struct cpu_creation CPU_NAME(creation);
extern const struct cpu_symmetric CPU_NAME(symmetric);
extern cpu_triangle_function *const CPU_NAME(triangle)[2];
