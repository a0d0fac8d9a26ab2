/* What softmax is made of where a group of threads holds a row in registers. For the kernels of softmax.cu, and as text for those of fused launches
 * (fused_text.c), so that both give the same bits: no header of the host's but what formula_text.py knows of. */
#pragma once

#include <math.h>

#include "engine/cuda/number.cuh"

/* ---- elements; a half computes in f32 ---- */

template <class T> struct softmax_type {
    typedef float C; /* the type in which it is computed */
    enum { held = 16, vector = 16 / sizeof(T), chunk = 8 /* elements between two looks at the maximum */ };
};
template <> struct softmax_type<double> {
    typedef double C;
    enum { held = 8, vector = 2, chunk = 4 };
};

/* ---- merging over a group; every thread of it gets the same result ---- */

/* In f32 as a power of two: x · log2(e) is rounded once more than in expf(), which is an error of |x| / 2^24 of the result, as much as
 * rounding x itself makes. */
__device__ inline float softmax_exp(float x) {
    return exp2f(x * 1.44269504f);
}
__device__ inline double softmax_exp(double x) {
    return exp(x);
}
__device__ inline float softmax_log(float x) {
    return logf(x);
}
__device__ inline double softmax_log(double x) {
    return log(x);
}

struct softmax_greater {
    template <class C> __device__ static C merge(C a, C b) {
        return b > a ? b : a;
    }
};
struct softmax_plus {
    template <class C> __device__ static C merge(C a, C b) {
        return a + b;
    }
};
template <class C> __device__ inline C softmax_exchange(C value, int distance, int width) {
    return __shfl_xor_sync(0xffffffffu, value, distance, width);
}
/* The values of `wide` neighbouring threads. `shared` has room for one value of each warp, and `first` is the number of the group's first warp. All
 * threads of the block call this. */
template <class Merge, class V> __device__ inline V softmax_along(V value, int wide, int first, V *shared) {
    /* A butterfly: a + b is b + a, so all lanes end with the same bits. */
    const int width = wide < 32 ? wide : 32;
    for (int distance = width / 2; distance > 0; distance /= 2) {
        value = Merge::merge(value, softmax_exchange(value, distance, width));
    }
    if (wide > 32) {
        if (threadIdx.x % 32 == 0) {
            shared[threadIdx.x / 32] = value;
        }
        __syncthreads();
        value = shared[first];
        for (int i = 1; i < wide / 32; i++) {
            value = Merge::merge(value, shared[first + i]);
        }
        __syncthreads();
    }
    return value;
}

/* ---- rows held in registers ---- */

/* What one access moves: with vectors, 16 bytes, thread after thread; else one element. */
template <class T, bool VECTORS> struct softmax_vector {
    enum { n = VECTORS ? (int)softmax_type<T>::vector : 1 };
    struct alignas(n * sizeof(T)) type {
        T x[n];
    };
};

/* To memory of any kind. */
struct softmax_store {
    template <class Vector> static __device__ __forceinline__ void store(void *out, const Vector &vector) {
        *(Vector *)out = vector;
    }
};

template <class T, bool VECTORS>
__device__ inline void softmax_read(const T *x, int wide, int64_t row_stride, int lane, int n,
                                    typename softmax_type<T>::C *held) {
    typedef typename softmax_type<T>::C C;
    typedef softmax_vector<T, VECTORS> V;
    int element = lane * V::n;
    const int step = wide * V::n;
    const int64_t stride = VECTORS ? 1 : row_stride;
    x += element * stride;
#pragma unroll
    for (int i = 0; i < softmax_type<T>::held; i += V::n, element += step, x += step * stride) {
        if (element < n) { /* n is a multiple of V::n */
            const typename V::type loaded = *(const typename V::type *)(const void *)x;
#pragma unroll
            for (int v = 0; v < V::n; v++) {
                held[i + v] = number_widen(loaded.x[v]);
            }
        } else { /* a share of nothing: exp(-inf) */
#pragma unroll
            for (int v = 0; v < V::n; v++) {
                held[i + v] = (C)-INFINITY;
            }
        }
    }
}

/* held · factor + shift */
template <class T, bool VECTORS, class Store>
__device__ inline void softmax_write(T *out, int wide, int64_t row_stride, int lane, int n,
                                     const typename softmax_type<T>::C *held, typename softmax_type<T>::C factor,
                                     typename softmax_type<T>::C shift) {
    typedef softmax_vector<T, VECTORS> V;
    int element = lane * V::n;
    const int step = wide * V::n;
    const int64_t stride = VECTORS ? 1 : row_stride;
    out += element * stride;
#pragma unroll
    for (int i = 0; i < softmax_type<T>::held; i += V::n, element += step, out += step * stride) {
        if (element < n) {
            typename V::type stored;
#pragma unroll
            for (int v = 0; v < V::n; v++) {
                stored.x[v] = number_store<T>::from(held[i + v] * factor - shift);
            }
            Store::store(out, stored);
        }
    }
}

/* A row of n elements that `wide` threads hold. Elements that are not there are -inf, and their exponentials 0; unless the maximum is infinite, when
 * the row is NaN whatever they are. group.merge<Merge>(value) merges the threads' values; each gets the result. */
template <class T, bool VECTORS, class Store, class Group>
__device__ __forceinline__ void softmax_hold(const T *x, int64_t in_stride, T *out, int64_t out_stride, int wide,
                                             int lane, int n, bool logarithm, const Group &group) {
    typedef typename softmax_type<T>::C C;
    enum { HELD = softmax_type<T>::held };
    C held[HELD], maximum = (C)-INFINITY, sum = 0;
    softmax_read<T, VECTORS>(x, wide, in_stride, lane, n, held);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        maximum = held[i] > maximum ? held[i] : maximum; /* passes over NaN, which the sum will meet */
    }
    maximum = group.template merge<softmax_greater>(maximum);
    if (logarithm) {
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            held[i] -= maximum;
            sum += softmax_exp(held[i]);
        }
        sum = group.template merge<softmax_plus>(sum);
        softmax_write<T, VECTORS, Store>(out, wide, out_stride, lane, n, held, (C)1, softmax_log(sum));
    } else {
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            held[i] = softmax_exp(held[i] - maximum);
            sum += held[i];
        }
        sum = group.template merge<softmax_plus>(sum);
        softmax_write<T, VECTORS, Store>(out, wide, out_stride, lane, n, held, (C)1 / sum, (C)0);
    }
}
