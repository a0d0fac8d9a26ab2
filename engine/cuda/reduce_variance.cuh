/* Variances and standard deviations, in f64. A thread adds up the distances of its elements from the first of them, and their squares: since
 * that is an element, little cancels. Threads are merged by means and squared distances from these (Chan, Golub, LeVeque). */
#pragma once

#include "engine/cuda/reduce_ops.cuh"

struct variance_found {
    double pivot, sum, squares; /* of distances from the pivot */
    double taken;
};

template <class Element> struct variance {
    typedef Element T;
    typedef Element R;
    typedef variance_found A;
    double divisor;
    bool root;
    __host__ __device__ explicit variance(const reduce_numbers &numbers) : divisor(numbers.divisor), root(numbers.root) {
    }
    __host__ __device__ A neutral() const {
        return {0, 0, 0, 0};
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
        a.pivot = a.taken == 0 ? (double)reduce_load(x[0]) : a.pivot;
        a.taken += N;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const double distance = (double)reduce_load(x[i]) - a.pivot;
            a.sum += distance;
            a.squares += distance * distance;
        }
    }
    /* The squares of distances from the mean. */
    static __device__ double about_mean(const A &a) {
        const double squares = a.squares - a.sum * (a.sum / a.taken);
        return squares < 0 ? 0 : squares;
    }
    __device__ void merge(A &a, const A &b) const {
        if (b.taken == 0) {
            return;
        }
        if (a.taken == 0) {
            a = b;
            return;
        }
        const double all = a.taken + b.taken, share = b.taken / all, mean = a.pivot + a.sum / a.taken;
        const double distance = b.pivot + b.sum / b.taken - mean;
        a.squares = about_mean(a) + about_mean(b) + distance * (distance * (a.taken * share));
        a.pivot = mean + distance * share;
        a.sum = 0;
        a.taken = all;
    }
    __device__ R finish(const A &a) const {
        const double value = about_mean(a) / divisor;
        R result;
        sum_store(root ? sqrt(value) : value, &result);
        return result;
    }
};
