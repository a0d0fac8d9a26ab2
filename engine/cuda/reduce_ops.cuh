/* What reductions are made of: elements, accumulators, and how the threads of a group merge theirs. For the kernels of reduce.cuh, and as text for those
 * of fused launches (fused_text.c), so that both give the same bits: no header of the host's but what formula_text.py knows of.
 *
 * A reduction is a class: the element's type T, an accumulator A (plain, a multiple of 4 bytes), the result's type R,
 * neutral(), take(a, x, position, step): N elements, at positions that far apart, increasing for one accumulator,
 * merge(a, b), which does not mind the order, and finish(a). It is made of numbers. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

struct reduce_numbers {
    double divisor;   /* by which the mean divides the sum, or the variance the squares */
    double parameter; /* the order of a norm */
    uint64_t mask;    /* the bits of an element that are 0 if it is */
    bool root;        /* the root of the variance */
    bool lowest;      /* finds the least element, not the greatest */
};

/* ---- elements ---- */

/* The type in which an element is computed. */
template <class T> struct reduce_compute { typedef int32_t type; };
template <> struct reduce_compute<int64_t> { typedef int64_t type; };
template <> struct reduce_compute<uint32_t> { typedef uint32_t type; };
template <> struct reduce_compute<uint64_t> { typedef uint64_t type; };
template <> struct reduce_compute<__half> { typedef float type; };
template <> struct reduce_compute<__nv_bfloat16> { typedef float type; };
template <> struct reduce_compute<float> { typedef float type; };
template <> struct reduce_compute<double> { typedef double type; };

template <class T> __device__ inline T reduce_load(T x) {
    return x;
}
__device__ inline float reduce_load(__half x) {
    return __half2float(x);
}
__device__ inline float reduce_load(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

/* Rounds a result once. */
__device__ inline void sum_store(double x, float *out) {
    *out = (float)x;
}
__device__ inline void sum_store(double x, double *out) {
    *out = x;
}
__device__ inline void sum_store(double x, __half *out) {
    *out = __double2half(x);
}
__device__ inline void sum_store(double x, __nv_bfloat16 *out) {
    *out = __double2bfloat16(x);
}

/* A sum in f64 and the rounding errors that it has made (Knuth's TwoSum). Infinities and NaN make the error NaN: the sum is right by itself
 * then. */
struct sum_carried {
    double value, error;
};
__device__ inline void sum_add(sum_carried &a, double x) {
    double before = a.value, after = before + x, part = after - before;
    a.error += (before - (after - part)) + (x - part);
    a.value = after;
}
__device__ inline double sum_result(const sum_carried &a) {
    return a.error - a.error == 0 ? a.value + a.error : a.value;
}

/* Elements of one load: 16 bytes, but 8 elements at most, so that the code for bytes does not grow too large. */
template <class T> struct reduce_vector {
    enum { n = sizeof(T) == 1 ? 8 : 16 / sizeof(T) };
    struct alignas(n * sizeof(T)) type {
        T x[n];
    };
};

/* ---- threads ---- */

template <class A> __device__ inline A reduce_shuffle(const A &a, int distance, int width) {
    uint32_t words[sizeof(A) / 4];
    A result;
    static_assert(sizeof(A) % 4 == 0, "an accumulator is made of words");
    memcpy(words, &a, sizeof a);
#pragma unroll
    for (unsigned i = 0; i < sizeof(A) / 4; i++) {
        words[i] = __shfl_down_sync(0xffffffffu, words[i], (unsigned)distance, width);
    }
    memcpy(&result, words, sizeof result);
    return result;
}

/* Merges the accumulators of each group of `lanes` neighbours; its first thread gets the result. `shared` has room for
 * one of each warp. All threads of the block call this. */
template <class Op>
__device__ inline void reduce_group(const Op &op, typename Op::A &a, int lanes, typename Op::A *shared) {
    int width = lanes < 32 ? lanes : 32, warp = (int)threadIdx.x / 32;
    for (int distance = width / 2; distance > 0; distance /= 2) {
        op.merge(a, reduce_shuffle(a, distance, width));
    }
    if (lanes <= 32) {
        return;
    }
    if (threadIdx.x % 32 == 0) {
        shared[warp] = a;
    }
    __syncthreads();
    if ((threadIdx.x & (unsigned)(lanes - 1)) == 0) {
        for (int i = 1; i < lanes / 32; i++) {
            op.merge(a, shared[warp + i]);
        }
    }
    __syncthreads(); /* the next round writes to it */
}

/* The part of the thread `at` of `across` threads that share n elements of a row, of which `head` are before the first address at which memory is
 * read a load at a time: in the order of reduce_contiguous(), wherever the elements are now. */
template <class Op>
__device__ inline void reduce_elements(const Op &op, typename Op::A &a, const typename Op::T *x, int64_t n,
                                       int64_t head, int64_t at, int across) {
    typedef typename Op::T T;
    typedef reduce_vector<T> V;
    typedef typename V::type vector;
    head = head < n ? head : n;
    for (int64_t i = at; i < head; i += across) {
        const T one[1] = {x[i]};
        op.take(a, one, i, 1);
    }
    const int64_t vectors = (n - head) / V::n;
    const bool aligned = (uint64_t)(x + head) % sizeof(vector) == 0;
    for (int64_t i = at; i < vectors; i += across) {
        const T *from = x + head + i * V::n;
        vector loaded;
        if (aligned) {
            loaded = *(const vector *)(const void *)from;
        } else {
#pragma unroll
            for (int u = 0; u < V::n; u++) {
                loaded.x[u] = from[u];
            }
        }
        op.take(a, loaded.x, head + i * V::n, 1);
    }
    for (int64_t i = head + vectors * V::n + at; i < n; i += across) {
        const T one[1] = {x[i]};
        op.take(a, one, i, 1);
    }
}
