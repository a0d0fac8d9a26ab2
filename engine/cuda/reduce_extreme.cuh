/* Greatest and least elements. A NaN wins and stays. any and all are the greatest and the least of bytes that are 0 or
 * 1.
 *
 * One kernel does both: the least of x is found as the greatest of ~x (integers) or -x (floats), which turns the order
 * around and is exact. */
#pragma once

#include <math.h>

#include "engine/cuda/reduce_ops.cuh"

template <class C> __device__ inline C extreme_turn(C x, bool lowest) {
    return lowest ? ~x : x;
}
template <> __device__ inline float extreme_turn(float x, bool lowest) {
    return lowest ? -x : x;
}
template <> __device__ inline double extreme_turn(double x, bool lowest) {
    return lowest ? -x : x;
}

template <class C> struct extreme_least;
template <> struct extreme_least<int32_t> {
    __host__ __device__ static int32_t value() {
        return INT32_MIN;
    }
};
template <> struct extreme_least<int64_t> {
    __host__ __device__ static int64_t value() {
        return INT64_MIN;
    }
};
template <> struct extreme_least<uint32_t> {
    __host__ __device__ static uint32_t value() {
        return 0;
    }
};
template <> struct extreme_least<uint64_t> {
    __host__ __device__ static uint64_t value() {
        return 0;
    }
};
template <> struct extreme_least<float> {
    __host__ __device__ static float value() {
        return -HUGE_VALF;
    }
};
template <> struct extreme_least<double> {
    __host__ __device__ static double value() {
        return -HUGE_VAL;
    }
};

template <class T> __device__ inline T extreme_store(typename reduce_compute<T>::type x) {
    return (T)x;
}
template <> __device__ inline __half extreme_store<__half>(float x) {
    return __float2half_rn(x);
}
template <> __device__ inline __nv_bfloat16 extreme_store<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

template <class Element> struct extreme {
    typedef Element T;
    typedef Element R;
    typedef typename reduce_compute<Element>::type A;
    bool lowest;
    __host__ __device__ explicit extreme(const reduce_numbers &numbers) : lowest(numbers.lowest) {
    }
    __host__ __device__ A neutral() const {
        return extreme_least<A>::value();
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            merge(a, extreme_turn((A)reduce_load(x[i]), lowest));
        }
    }
    __device__ void merge(A &a, const A &b) const {
        a = b > a || b != b ? b : a;
    }
    __device__ R finish(const A &a) const {
        return extreme_store<R>(extreme_turn(a, lowest));
    }
};
