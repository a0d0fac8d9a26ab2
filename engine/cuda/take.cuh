/* The check of indices. CUDA C++ only.
 *
 * The launch's report, which is host memory that the device may write, tells of the wrong index at the smallest position. Every block that
 * meets a wrong index looks for that position itself, so that all blocks write the same report: no atomic operations on the host's memory
 * are needed, and the order of writers does not matter. The code is written last. The owner reads the report when the stream has
 * passed the launch. */
#pragma once

#include "engine/cuda/index.cuh"

namespace {

static constexpr unsigned long long none = ~0ull;

struct take_indices {
    const void *index;
    int64_t extent; /* what they should be below */
    struct report *report;
    bool narrow;    /* they are i32; else i64, or u64, which has the same bits */
    int64_t stride; /* from one to the next */
};

/* Indices [outer, count, inner] with any strides, of which the base's has no meaning. Their positions are counted row-major. */
struct take_places : take_indices {
    bool dense; /* they are contiguous */
    int64_t strides[3];
    struct divisor_wide inner, count;
};

/* op_kernel.index_dtypes */
#define TAKE_INDEX_DTYPES (UINT32_C(1) << DTYPE_I32 | UINT32_C(1) << DTYPE_I64 | UINT32_C(1) << DTYPE_U64)

__device__ __forceinline__ int64_t take_read(const struct take_indices &indices, int64_t offset) {
    return indices.narrow ? (int64_t)((const int32_t *)indices.index)[offset]
                          : ((const int64_t *)indices.index)[offset];
}

__device__ __forceinline__ int64_t take_index(const struct take_indices &indices, int64_t position) {
    return take_read(indices, position * indices.stride);
}

__device__ __forceinline__ int64_t take_index(const struct take_places &places, int64_t position) {
    if (places.dense) {
        return take_read(places, position);
    }
    const int64_t row = index_divide_wide(places.inner, position), outer = index_divide_wide(places.count, row);
    return take_read(places, outer * places.strides[0] + (row - outer * places.count.extent) * places.strides[1] +
                                 (position - row * places.inner.extent) * places.strides[2]);
}

static inline struct take_indices take_indices_of(const struct launch *launch, unsigned input, int64_t extent) {
    const struct operand *indices = &launch->inputs[input];
    return {indices->data, extent, launch->report, indices->dtype == DTYPE_I32, indices->strides[0]};
}

static inline struct take_places take_places_of(const struct launch *launch, unsigned input, int64_t extent) {
    const struct operand *indices = &launch->inputs[input];
    const int64_t *shape = indices->shape, rows = shape[0] * shape[1];
    struct take_places places = {};
    (struct take_indices &)places = take_indices_of(launch, input, extent);
    for (int i = 0; i < 3; i++) {
        places.strides[i] = indices->strides[i];
    }
    places.dense = (shape[2] == 1 || places.strides[2] == 1) && (shape[1] == 1 || places.strides[1] == shape[2]) &&
                   (shape[0] == 1 || places.strides[0] == shape[1] * shape[2]);
    places.inner = divisor_wide_make(shape[2], rows * shape[2]);
    places.count = divisor_wide_make(shape[1], rows);
    return places;
}

/* False: the index is wrong; it is noted if it is the thread's first by position. */
__device__ __forceinline__ bool take_check(const struct take_indices &indices, int64_t position, int64_t index,
                                           unsigned long long *bad) {
    if ((uint64_t)index < (uint64_t)indices.extent) {
        return true;
    }
    *bad = (unsigned long long)position < *bad ? (unsigned long long)position : *bad;
    return false;
}

/* Finds the first wrong index at a position up to `met`, if there is one; by all threads of a block. */
template <typename I>
__device__ unsigned long long take_first(const I &indices, unsigned long long met, unsigned long long *smallest) {
    for (unsigned long long begin = 0; begin < met; begin += SPACE_THREADS * SPACE_UNROLL) {
        unsigned long long bad = none;
#pragma unroll
        for (int u = SPACE_UNROLL - 1; u >= 0; u--) {
            unsigned long long position = begin + u * SPACE_THREADS + threadIdx.x;
            if (position < met && (uint64_t)take_index(indices, (int64_t)position) >= (uint64_t)indices.extent) {
                bad = position;
            }
        }
        if (__syncthreads_or(bad != none)) {
            if (bad != none) {
                atomicMin(smallest, bad);
            }
            break;
        }
    }
    __syncthreads();
    return *smallest;
}

/* The end of a kernel: writes the report if a thread of the block has met a wrong index. */
template <typename I> __device__ __forceinline__ void take_finish(const I &indices, unsigned long long bad) {
    __shared__ unsigned long long smallest;
    __shared__ bool reported;
    if (!__syncthreads_or(bad != none)) {
        return;
    }
    if (threadIdx.x == 0) {
        smallest = none;
        reported = *(volatile report_code *)&indices.report->code != STATUS_OK;
    }
    __syncthreads();
    if (reported) {
        return;
    }
    if (bad != none) {
        atomicMin(&smallest, bad);
    }
    __syncthreads();
    const unsigned long long met = smallest;
    __syncthreads(); /* all have read it before it changes */
    const unsigned long long first = take_first(indices, met, &smallest);
    if (threadIdx.x == 0) {
        indices.report->value = take_index(indices, (int64_t)first);
        indices.report->position = (int64_t)first;
        indices.report->limit = indices.extent;
        __threadfence_system();
        *(volatile report_code *)&indices.report->code = STATUS_OUT_OF_RANGE;
    }
}

} // namespace
