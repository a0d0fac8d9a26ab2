/* What linear does to an element at its end, in the type in which it is computed. CUDA C++ only. */
#pragma once

#include <type_traits>

#include "engine/cuda/number.cuh"

/* x/2 · (1 + tanh(u)) with u = √(2/π) · (x + 0.044715 x³), as x / (1 + e^-2u), in which nothing cancels. */
NUMBER_FUNCTION float activation_gelu_tanh(float x) {
    return x / (1.0f + expf(-1.59576912f * (x + 0.044715f * x * x * x)));
}
NUMBER_FUNCTION double activation_gelu_tanh(double x) {
    return x / (1.0 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
}

/* Integers know no GELU. A NaN stays one. */
template <typename C> NUMBER_FUNCTION C activation_apply(unsigned activation, C x) {
    if constexpr (std::is_floating_point<C>::value) {
        if (activation == OP_ACTIVATION_GELU_TANH) {
            return activation_gelu_tanh(x);
        }
    }
    return activation == OP_ACTIVATION_RELU && x <= 0 ? (C)0 : x;
}
