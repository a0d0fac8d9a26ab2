/* The formulas of engine/device/formula.h as types, over which kernels are templates: of_<name>_<dtype>::of(arguments). Those of halves are
 * f32's. CUDA C++ only. */
#pragma once

#include "engine/cuda/elementwise.cuh"

#define OPERATION static __device__ __forceinline__
#define FORMULA_TYPE_f16 __half
#define FORMULA_TYPE_bf16 __nv_bfloat16

#define FORMULA(name, inputs, parameters, dtype, result)                                                               \
    struct of_##name##_##dtype {                                                                                       \
        template <typename... T> OPERATION auto of(T... arguments) {                                                   \
            return formula_##name##_##dtype(arguments...);                                                             \
        }                                                                                                              \
    };
#define FORMULA_HALF(name, inputs, parameters, dtype, result) typedef of_##name##_f32 of_##name##_##dtype;

/* F of elementwise.cuh: formula O of so many inputs, and attributes after them. */
template <class O, int inputs_, int parameters_, typename T, typename R> struct applied {
    enum { inputs = inputs_, parameters = parameters_ };
    typedef T first, second, third;
    typedef R result;
    OPERATION R apply(T a, T b, T c) {
        if constexpr (inputs + parameters == 1) {
            return number_store<R>::from(O::of(number_widen(a)));
        } else if constexpr (inputs + parameters == 2) {
            return number_store<R>::from(O::of(number_widen(a), number_widen(b)));
        } else {
            return number_store<R>::from(O::of(number_widen(a), number_widen(b), number_widen(c)));
        }
    }
};
