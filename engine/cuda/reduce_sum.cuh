/* Sums, means and products. As on the CPU: f32 and halves accumulate in f64, f64 carries its rounding errors along,
 * integers wrap in 64 bits (smaller ones come as i64 or u64). Adding an f64 for each f32 costs no time even where a device
 * does 2 of them per clock and multiprocessor, since memory does not bring more elements. Halves come twice as fast:
 * those of one load are first added in f32. */
#pragma once

#include "engine/cuda/formula.cuh"
#include "engine/cuda/reduce_ops.cuh"

/* The sum of a few elements as a tree. */
template <class C, int N> __device__ inline C sum_tree(C *x) {
#pragma unroll
    for (int width = N / 2; width > 0; width /= 2) {
#pragma unroll
        for (int i = 0; i < width; i++) {
            x[i] += x[i + width];
        }
    }
    return x[0];
}

__device__ inline double sum_few_scale(const __nv_bfloat16 *) {
    return 16; /* 8 times the largest bf16 is beyond f32; a 16th of it is not, and exact even where it is subnormal */
}
__device__ inline double sum_few_scale(const __half *) {
    return 1;
}

template <int N> __device__ inline double sum_few(const float (&x)[N]) {
    double wide[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        wide[i] = (double)x[i];
    }
    return sum_tree<double, N>(wide);
}
template <class T, int N> __device__ inline double sum_few(const T (&x)[N]) {
    float values[N];
    const double scale = sum_few_scale(x);
#pragma unroll
    for (int i = 0; i < N; i++) {
        values[i] = reduce_load(x[i]) * (float)(1 / scale);
    }
    return (double)sum_tree<float, N>(values) * scale;
}

template <class Element> struct sum_float {
    typedef Element T;
    typedef Element R;
    typedef double A;
    double divisor;
    __host__ __device__ explicit sum_float(const reduce_numbers &numbers) : divisor(numbers.divisor) {
    }
    __host__ __device__ A neutral() const {
        return 0;
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
        a += sum_few(x);
    }
    __device__ void merge(A &a, const A &b) const {
        a += b;
    }
    __device__ R finish(const A &a) const {
        R result;
        sum_store(a / divisor, &result);
        return result;
    }
};

struct sum_double {
    typedef double T;
    typedef double R;
    typedef sum_carried A;
    double divisor;
    __host__ __device__ explicit sum_double(const reduce_numbers &numbers) : divisor(numbers.divisor) {
    }
    __host__ __device__ A neutral() const {
        return {0, 0};
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            sum_add(a, x[i]);
        }
    }
    __device__ void merge(A &a, const A &b) const {
        sum_add(a, b.value);
        a.error += b.error;
    }
    __device__ R finish(const A &a) const {
        return sum_result(a) / divisor;
    }
};

struct sum_integer {
    typedef uint64_t T;
    typedef uint64_t R;
    typedef uint64_t A;
    __host__ __device__ explicit sum_integer(const reduce_numbers &) {
    }
    __host__ __device__ A neutral() const {
        return 0;
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            a += x[i];
        }
    }
    __device__ void merge(A &a, const A &b) const {
        a += b;
    }
    __device__ R finish(const A &a) const {
        return a;
    }
};

__device__ inline void sum_store(uint64_t x, uint64_t *out) {
    *out = x;
}

__device__ inline void sum_store(const formula_c128 &x, formula_c64 *out) {
    *out = formula_c128_to_c64(x);
}
__device__ inline void sum_store(const formula_c128 &x, formula_c128 *out) {
    *out = x;
}

template <class Element, class Accumulator> struct product {
    typedef Element T;
    typedef Element R;
    typedef Accumulator A;
    __host__ __device__ explicit product(const reduce_numbers &) {
    }
    __host__ __device__ A neutral() const {
        return 1;
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            a *= (A)reduce_load(x[i]);
        }
    }
    __device__ void merge(A &a, const A &b) const {
        a *= b;
    }
    __device__ R finish(const A &a) const {
        R result;
        sum_store(a, &result);
        return result;
    }
};

template <class Element> struct product_complex {
    typedef Element T;
    typedef Element R;
    typedef formula_c128 A;
    __host__ __device__ explicit product_complex(const reduce_numbers &) {
    }
    __host__ __device__ A neutral() const {
        return formula_make_c128(1, 0);
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
#pragma unroll
        for (int i = 0; i < N; i++) {
            merge(a, formula_make_c128((double)x[i].re, (double)x[i].im));
        }
    }
    __device__ void merge(A &a, const A &b) const {
        a = formula_multiply_c128(a, b);
    }
    __device__ R finish(const A &a) const {
        R result;
        sum_store(a, &result);
        return result;
    }
};

typedef product<uint64_t, uint64_t> product_integer;
typedef product<__half, double> product_f16;
typedef product<__nv_bfloat16, double> product_bf16;
typedef product<float, double> product_f32;
typedef product<double, double> product_f64;
