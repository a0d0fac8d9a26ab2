/* Softmax by groups of threads, one row for each group: where the row lies, and how the group's maxima and sums are merged. softmax.cu has
 * the ways to hold a row, and chooses one. */
#pragma once

#include "engine/cuda/softmax_ops.cuh"

/* ---- the plan ---- */

struct softmax_plan {
    const void *in;
    void *out;
    void *partials; /* softmax_sum [rows][parts]; NULL where there is one part */
    int rank;       /* axes of rows */
    int64_t shape[SHAPE_RANK_MAX], in_strides[SHAPE_RANK_MAX], out_strides[SHAPE_RANK_MAX];
    int64_t rows, n, in_stride, out_stride;
    int64_t parts, part; /* elements of a part */
    int wide, beside;    /* powers of two */
    int threads, grid;
    int shared; /* bytes of shared memory */
    bool across, vectors, logarithm;
};

struct softmax_place {
    int64_t in, out;
};

__device__ inline int64_t softmax_divide(int64_t a, int64_t b) {
    return ((uint64_t)(a | b) >> 32) == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/* Where a row begins. */
__device__ inline softmax_place softmax_row(const softmax_plan &plan, int64_t row) {
    softmax_place place = {0, 0};
    for (int i = plan.rank - 1; i >= 0; i--) {
        int64_t left = i > 0 ? softmax_divide(row, plan.shape[i]) : 0, index = row - left * plan.shape[i];
        place.in += index * plan.in_strides[i];
        place.out += index * plan.out_strides[i];
        row = left;
    }
    return place;
}

/* Which part of a tile a thread has. */
struct softmax_thread {
    int row, lane;
};

__device__ inline softmax_thread softmax_thread_of(const softmax_plan &plan) {
    int tid = (int)threadIdx.x;
    if (plan.across) {
        return {tid & (plan.beside - 1), tid / plan.beside};
    }
    return {tid / plan.wide, tid & (plan.wide - 1)};
}

/* ---- merging over a group; every thread of it gets the same result ---- */

template <class C> struct softmax_sum { C maximum, sum; /* of exp(x - maximum) */ };

/* The number that is subtracted in exponentials. If there has been only -inf so far, it is 0: then -inf counts as exp(-inf) = 0, and a NaN
 * as itself. */
template <class C> __device__ inline C softmax_shift(C maximum) {
    return maximum == (C)-INFINITY ? (C)0 : maximum;
}

struct softmax_both {
    template <class C> __device__ static softmax_sum<C> merge(const softmax_sum<C> &a, const softmax_sum<C> &b) {
        C maximum = b.maximum > a.maximum ? b.maximum : a.maximum, shift = softmax_shift(maximum);
        return {maximum, a.sum * softmax_exp(a.maximum - shift) + b.sum * softmax_exp(b.maximum - shift)};
    }
};

template <class C>
__device__ inline softmax_sum<C> softmax_exchange(const softmax_sum<C> &value, int distance, int width) {
    return {softmax_exchange(value.maximum, distance, width), softmax_exchange(value.sum, distance, width)};
}

/* `shared` has room for one value of each thread. All threads of the block call this. */
template <class Merge, class V>
__device__ inline V softmax_group(const softmax_plan &plan, const softmax_thread &thread, V value, V *shared) {
    int tid = (int)threadIdx.x;
    if (plan.across) {
        shared[tid] = value;
        __syncthreads();
        for (int half = plan.wide / 2; half > 0; half /= 2) {
            if (thread.lane < half) {
                shared[tid] = Merge::merge(shared[tid], shared[tid + half * plan.beside]);
            }
            __syncthreads();
        }
        value = shared[thread.row];
        __syncthreads(); /* the next use writes to it */
        return value;
    }
    return softmax_along<Merge>(value, plan.wide, thread.row * plan.wide / 32, shared);
}

/* The same over a whole block of full warps; `shared` has room for one value of each warp. */
template <int THREADS, class Merge, class V> __device__ inline V softmax_warps(V value, V *shared) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value = Merge::merge(value, softmax_exchange(value, distance, 32));
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = shared[0];
    for (int i = 1; i < THREADS / 32; i++) {
        value = Merge::merge(value, shared[i]);
    }
    __syncthreads(); /* the next one writes to it */
    return value;
}
