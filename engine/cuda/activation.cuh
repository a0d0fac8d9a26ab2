/* The activations of linear for one element, in the type in which it is computed. CUDA C++ only. */
#pragma once

#include <type_traits>

#include "engine/cuda/number.cuh"

NUMBER_FUNCTION float activation_gelu_tanh(float x) {
    return formula_gelu_tanh_f32(x);
}
NUMBER_FUNCTION double activation_gelu_tanh(double x) {
    return formula_gelu_tanh_f64(x);
}

/* Integers have no GELU. A NaN stays a NaN. */
template <typename C> NUMBER_FUNCTION C activation_apply(unsigned activation, C x) {
    if constexpr (std::is_floating_point<C>::value) {
        if (activation == OP_ACTIVATION_GELU_TANH) {
            return activation_gelu_tanh(x);
        }
    }
    return activation == OP_ACTIVATION_RELU && x <= 0 ? (C)0 : x;
}
