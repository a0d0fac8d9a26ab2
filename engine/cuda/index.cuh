/* Which elements a thread works on. Everything here runs on the host too.
 *
 * Of a space (space.h), tile t, thread i, step u are the position e = u · SPACE_THREADS + i of the tile:
 *
 *     inner axis  (t mod tiles side by side) · 2^width + e mod 2^width
 *     row         (t div tiles side by side) · 2^depth + e div 2^width
 *
 * and the row is taken apart into the indices of its axes, the fastest first. */
#pragma once

#include "engine/cuda/space.h"

#define INDEX_FUNCTION static __host__ __device__ __forceinline__

INDEX_FUNCTION uint32_t index_high(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    return __umulhi(a, b);
#else
    return (uint32_t)((uint64_t)a * b >> 32);
#endif
}

INDEX_FUNCTION uint32_t index_divide(const struct divisor &divisor, uint32_t n) {
    return (index_high(n, divisor.magic) + n) >> divisor.shift;
}

INDEX_FUNCTION int64_t index_divide_wide(const struct divisor_wide &divisor, int64_t n) {
    return divisor.narrow ? (int64_t)index_divide(divisor.fast, (uint32_t)n) : n / divisor.extent;
}

struct index_position {
    int64_t inner;
    uint32_t row;
    bool inside;
};

INDEX_FUNCTION struct index_position index_locate(const struct space &space, uint32_t tile, uint32_t element) {
    uint32_t down = index_divide(space.across, tile), side = tile - down * space.across.extent;
    struct index_position at;
    at.inner = ((int64_t)side << space.width) + (element & ((1u << space.width) - 1));
    at.row = (down << space.depth) + (element >> space.width);
    at.inside = at.inner < space.inner && at.row < space.rows;
    return at;
}

/* Offsets of the first `operands` operands, in elements. */
template <int operands>
INDEX_FUNCTION void index_offsets(const struct space &space, const struct index_position &at, int64_t *offset) {
    for (int k = 0; k < operands; k++) {
        offset[k] = at.inner * space.inner_stride[k];
    }
    uint32_t row = at.row;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (uint32_t a = 0; a < space.outer; a++) {
        uint32_t next = index_divide(space.axis[a].extent, row);
        uint32_t index = row - next * space.axis[a].extent.extent;
        row = next;
        for (int k = 0; k < operands; k++) {
            offset[k] += (int64_t)index * space.axis[a].stride[k];
        }
    }
}
