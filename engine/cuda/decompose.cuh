/* What kernels of decompositions share: a block of threads works on one matrix, which lies row by row in the workspace; reflections. */
#pragma once

#include "engine/cuda/cuda.h"
#include "engine/cuda/space.h"

namespace {

/* What all threads of a block work on. */
template <typename T> struct place {
    T *a, *b, *tau;
    int64_t *order;
    int64_t m, n, r;
};

/* The report is host memory. What a matrix reports is one word, so that blocks which write at the same time do not mix theirs; `limit`, the
 * extent, is the same for all. The code comes last. By all threads of a block. */
__device__ __forceinline__ void report_singular(struct report *report, int64_t n, int64_t number, int64_t row) {
    if (threadIdx.x == 0 && *(volatile report_code *)&report->code == STATUS_OK) {
        *(volatile int64_t *)&report->limit = n;
        *(volatile int64_t *)&report->value = number * n + row;
        __threadfence_system();
        *(volatile report_code *)&report->code = STATUS_SINGULAR;
    }
}

/* The sum over the block, for all threads; the same at each run. */
__device__ __forceinline__ double block_sum(double value) {
    __shared__ double sums[SPACE_THREADS];
    sums[threadIdx.x] = value;
    __syncthreads();
    for (uint32_t width = SPACE_THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) {
            sums[threadIdx.x] += sums[threadIdx.x + width];
        }
        __syncthreads();
    }
    const double sum = sums[0];
    __syncthreads();
    return sum;
}

/* x's columns become (I - tau v vᵀ) · x, for v in column k of a below its diagonal, where it is 1. */
template <typename T>
__device__ void reflect(const struct place<T> &own, int64_t k, T *x, int64_t columns, int64_t first) {
    const T tau = own.tau[k];
#pragma unroll 1
    for (int64_t j = first + threadIdx.x; j < columns; j += SPACE_THREADS) {
        T product = x[k * columns + j];
#pragma unroll 1
        for (int64_t i = k + 1; i < own.m; i++) {
            product += own.a[i * own.n + k] * x[i * columns + j];
        }
        product *= tau;
        x[k * columns + j] -= product;
#pragma unroll 1
        for (int64_t i = k + 1; i < own.m; i++) {
            x[i * columns + j] -= own.a[i * own.n + k] * product;
        }
    }
    __syncthreads();
}

/* R and, below it, the vectors of the reflections in the place of a. */
template <typename T> __device__ void triangulate(const struct place<T> &own) {
    const int64_t steps = own.m < own.n ? own.m : own.n;
#pragma unroll 1
    for (int64_t k = 0; k < steps; k++) {
        double below = 0;
#pragma unroll 1
        for (int64_t i = k + 1 + threadIdx.x; i < own.m; i += SPACE_THREADS) {
            below += (double)own.a[i * own.n + k] * (double)own.a[i * own.n + k];
        }
        below = block_sum(below);
        const double alpha = (double)own.a[k * own.n + k];
        const double beta = below == 0 ? alpha : -copysign(sqrt(alpha * alpha + below), alpha);
        __syncthreads();
#pragma unroll 1
        for (int64_t i = k + 1 + threadIdx.x; i < own.m && below != 0; i += SPACE_THREADS) {
            own.a[i * own.n + k] = (T)((double)own.a[i * own.n + k] / (alpha - beta));
        }
        if (threadIdx.x == 0) {
            own.tau[k] = (T)(below == 0 ? 0 : (beta - alpha) / beta);
        }
        __syncthreads();
        reflect(own, k, own.a, own.n, k + 1);
        if (threadIdx.x == 0) {
            own.a[k * own.n + k] = (T)beta;
        }
        __syncthreads();
    }
}

} // namespace

static inline int64_t rounded(int64_t bytes) {
    return (bytes + 63) & ~INT64_C(63);
}
