/* Logarithms of sums of exponentials. An accumulator is a level and the sum of exp(x - level), in f64; the level rises when an element is
 * more than a slack above it, which is rare. */
#pragma once

#include <float.h>
#include <math.h>

#include "engine/cuda/reduce_ops.cuh"

__device__ inline float exponential(float x) {
    return expf(x);
}
__device__ inline double exponential(double x) {
    return exp(x);
}
__host__ __device__ inline float exponential_lowest(float) {
    return -FLT_MAX;
}
__host__ __device__ inline double exponential_lowest(double) {
    return -DBL_MAX;
}

template <class C> struct alignas(8) exponential_sum {
    double sum;
    C level;
};

template <class Element> struct logsumexp {
    typedef Element T;
    typedef Element R;
    typedef typename reduce_compute<Element>::type C;
    typedef exponential_sum<C> A;
    __host__ __device__ explicit logsumexp(const reduce_numbers &) {
    }
    /* The lowest level is finite, so that exp(-infinity - level) is 0. */
    __host__ __device__ A neutral() const {
        return {0, exponential_lowest(C())};
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
        const C slack = 16;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const C value = reduce_load(x[i]);
            const C distance = value == a.level ? C(0) : value - a.level; /* infinity - infinity is 0 here */
            const bool rises = distance > slack;
            const double share = (double)exponential(rises ? -distance : distance);
            a.sum = rises ? a.sum * share + 1 : a.sum + share;
            a.level = rises ? value : a.level;
        }
    }
    __device__ void merge(A &a, const A &b) const {
        const C higher = b.level > a.level ? b.level : a.level;
        const double own = a.level == higher ? 1 : exp((double)a.level - (double)higher);
        const double other = b.level == higher ? 1 : exp((double)b.level - (double)higher);
        a.sum = a.sum * own + b.sum * other;
        a.level = higher;
    }
    __device__ R finish(const A &a) const {
        R result;
        sum_store((double)a.level + log(a.sum), &result);
        return result;
    }
};
