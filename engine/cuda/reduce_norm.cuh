/* Norms, in f64: the greatest or the least magnitude, or a sum of powers, which carries its rounding errors. One kernel does all of
 * them: threads of a launch do the same, and memory does not bring elements faster. */
#pragma once

#include <math.h>

#include "engine/cuda/reduce_ops.cuh"

enum norm_kind { NORM_COUNT, NORM_SUM, NORM_SQUARES, NORM_POWERS, NORM_GREATEST, NORM_LEAST };

template <class Element> struct vector_norm {
    typedef Element T;
    typedef Element R;
    typedef sum_carried A;
    double ord;
    norm_kind kind;
    __host__ __device__ explicit vector_norm(const reduce_numbers &numbers) : ord(numbers.parameter) {
        kind = ord == 0 ? NORM_COUNT : ord == 1 ? NORM_SUM : ord == 2 ? NORM_SQUARES : NORM_POWERS;
        kind = ord == HUGE_VAL ? NORM_GREATEST : ord == -HUGE_VAL ? NORM_LEAST : kind;
    }
    __host__ __device__ A neutral() const {
        return {kind == NORM_LEAST ? HUGE_VAL : 0, 0};
    }
    __device__ double power(double x) const {
        return kind == NORM_SQUARES  ? x * x
               : kind == NORM_COUNT  ? (double)(x != 0)
               : kind == NORM_POWERS ? pow(x, ord)
                                     : x;
    }
    /* NaN wins and stays. */
    __device__ void choose(A &a, double x) const {
        a.value = x != x || (kind == NORM_GREATEST ? x > a.value : x < a.value) ? x : a.value;
    }
    template <int N> __device__ void take(A &a, const T (&x)[N], int64_t, int64_t) const {
        if (kind >= NORM_GREATEST) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                choose(a, fabs((double)reduce_load(x[i])));
            }
        } else {
#pragma unroll
            for (int i = 0; i < N; i++) {
                sum_add(a, power(fabs((double)reduce_load(x[i]))));
            }
        }
    }
    __device__ void merge(A &a, const A &b) const {
        if (kind >= NORM_GREATEST) {
            choose(a, b.value);
        } else {
            sum_add(a, b.value);
            a.error += b.error;
        }
    }
    __device__ R finish(const A &a) const {
        const double value = sum_result(a);
        R result;
        sum_store(kind == NORM_SQUARES ? sqrt(value) : kind == NORM_POWERS ? pow(value, 1 / ord) : value, &result);
        return result;
    }
};
