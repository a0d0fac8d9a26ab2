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
    bool narrow; /* they are i32; else i64 */
};

__device__ __forceinline__ int64_t take_index(const struct take_indices &indices, int64_t position) {
    return indices.narrow ? (int64_t)((const int32_t *)indices.index)[position]
                          : ((const int64_t *)indices.index)[position];
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
__device__ unsigned long long take_first(const struct take_indices &indices, unsigned long long met,
                                         unsigned long long *smallest) {
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
__device__ __forceinline__ void take_finish(const struct take_indices &indices, unsigned long long bad) {
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
