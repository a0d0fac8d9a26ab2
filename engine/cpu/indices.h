/* Indices, which are integers of any dtype, read as i64. */
#pragma once

#include "engine/cpu/cpu.h"

enum { CPU_INDICES_BLOCK = 512 }; /* indices that are converted at a time */

/* op_kernel.index_dtypes: all integers. */
#define CPU_INDEX_DTYPES                                                                                               \
    (UINT32_C(1) << DTYPE_I8 | UINT32_C(1) << DTYPE_I16 | UINT32_C(1) << DTYPE_I32 | UINT32_C(1) << DTYPE_I64 |        \
     UINT32_C(1) << DTYPE_U8 | UINT32_C(1) << DTYPE_U16 | UINT32_C(1) << DTYPE_U32 | UINT32_C(1) << DTYPE_U64)

struct cpu_indices {
    const void *data;
    enum dtype dtype;
    int64_t size;           /* bytes of an element */
    cpu_row_function *cast; /* to i64 */
};

static inline struct cpu_indices cpu_indices_of(const struct cpu *cpu, const struct operand *operand) {
    enum dtype dtype = (enum dtype)operand->dtype;
    return (struct cpu_indices){operand->data, dtype, (int64_t)dtype_size(dtype), cpu->kernels->cast[dtype][DTYPE_I64]};
}

/* The index at an offset. Those of 64 bits have the same bits with and without a sign. */
static inline int64_t cpu_index(const struct cpu_indices *indices, int64_t offset) {
    switch (indices->dtype) {
    case DTYPE_I8:
        return ((const int8_t *)indices->data)[offset];
    case DTYPE_U8:
        return ((const uint8_t *)indices->data)[offset];
    case DTYPE_I16:
        return ((const int16_t *)indices->data)[offset];
    case DTYPE_U16:
        return ((const uint16_t *)indices->data)[offset];
    case DTYPE_I32:
        return ((const int32_t *)indices->data)[offset];
    case DTYPE_U32:
        return ((const uint32_t *)indices->data)[offset];
    default:
        return ((const int64_t *)indices->data)[offset];
    }
}

/* The address of an index of 64 bits. */
static inline const int64_t *cpu_indices_at(const struct cpu_indices *indices, int64_t offset) {
    return (const int64_t *)indices->data + offset;
}

/* n indices from an offset on, at most CPU_INDICES_BLOCK, one after another: as they lie in memory, or in `block`. */
static inline const int64_t *cpu_indices_read(const struct cpu_indices *indices, int64_t offset, int64_t stride,
                                              int64_t n, int64_t *block) {
    if (indices->size == 8 && stride == 1) {
        return cpu_indices_at(indices, offset);
    }
    char *from = (char *)(uintptr_t)indices->data + offset * indices->size;
    indices->cast(&(struct cpu_row){n, {(char *)block, from}, {1, stride}});
    return block;
}
