/* Sums over the threads of a block, and over numbers in memory, for kernels that find out where each thread's part of a result begins. */
#pragma once

#include "engine/cuda/space.h"

/* The sum of the numbers of all threads up to and with this one; `sums` has room for all. */
__device__ __forceinline__ unsigned long long block_scan(unsigned long long own, unsigned long long *sums) {
    const unsigned me = threadIdx.x;
    sums[me] = own;
    for (unsigned distance = 1; distance < SPACE_THREADS; distance *= 2) {
        __syncthreads();
        const unsigned long long lower = me >= distance ? sums[me - distance] : 0;
        __syncthreads();
        sums[me] += lower;
    }
    __syncthreads();
    return sums[me];
}

/* By one block: each of n numbers in memory becomes the sum of those before it. Returns the sum of all. */
__device__ __forceinline__ unsigned long long block_scan_all(unsigned long long *x, int64_t n,
                                                             unsigned long long *sums) {
    unsigned long long before = 0;
    for (int64_t begin = 0; begin < n; begin += SPACE_THREADS) {
        const int64_t at = begin + threadIdx.x;
        const unsigned long long own = at < n ? x[at] : 0, sum = block_scan(own, sums);
        if (at < n) {
            x[at] = before + sum - own;
        }
        before += sums[SPACE_THREADS - 1];
        __syncthreads(); /* all have read the sums before these change */
    }
    return before;
}
