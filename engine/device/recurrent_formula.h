/* The cells of recurrent layers, for one unit: the same text for the CPU's loops and for CUDA's kernels. The formulas of elementwise operations
 * (formula.h) are included before, with the functions of the backend. For a device, RECURRENT_FUNCTION is defined before. */
#pragma once

#include "engine/device/recurrent.h"

#ifndef RECURRENT_FUNCTION
#define RECURRENT_FUNCTION static inline
#endif

/* k: the sums of a unit's gates, then what is kept of them. The back functions get the gradient by the state h, and of an LSTM that by c, and leave those
 * by the states before; slopes: the gradients by the sums. */
#define RECURRENT_FORMULAS(name, T)                                                                                    \
    RECURRENT_FUNCTION void recurrent_lstm_##name(T *k, T before, T *c, T *h) {                                        \
        k[0] = formula_sigmoid_##name(k[0]);                                                                           \
        k[1] = formula_sigmoid_##name(k[1]);                                                                           \
        k[2] = formula_tanh_##name(k[2]);                                                                              \
        k[3] = formula_sigmoid_##name(k[3]);                                                                           \
        *c = k[1] * before + k[0] * k[2];                                                                              \
        *h = k[3] * formula_tanh_##name(*c);                                                                           \
    }                                                                                                                  \
    RECURRENT_FUNCTION void recurrent_lstm_back_##name(const T *k, T before, T c, T by_h, T *by_c, T *slopes) {        \
        const T t = formula_tanh_##name(c), by = *by_c + by_h * k[3] * (1 - t * t);                                    \
        slopes[0] = by * k[2] * k[0] * (1 - k[0]);                                                                     \
        slopes[1] = by * before * k[1] * (1 - k[1]);                                                                   \
        slopes[2] = by * k[0] * (1 - k[2] * k[2]);                                                                     \
        slopes[3] = by_h * t * k[3] * (1 - k[3]);                                                                      \
        *by_c = by * k[1];                                                                                             \
    }                                                                                                                  \
    RECURRENT_FUNCTION void recurrent_gru_##name(T *k, T before, T *h) {                                               \
        k[0] = formula_sigmoid_##name(k[0]);                                                                           \
        k[1] = formula_sigmoid_##name(k[1]);                                                                           \
        k[2] = formula_tanh_##name(k[2] + k[0] * k[3]);                                                                \
        *h = (1 - k[1]) * k[2] + k[1] * before;                                                                        \
    }                                                                                                                  \
    RECURRENT_FUNCTION void recurrent_gru_back_##name(const T *k, T before, T *by_h, T *slopes) {                      \
        const T by = *by_h;                                                                                            \
        slopes[2] = by * (1 - k[1]) * (1 - k[2] * k[2]);                                                               \
        slopes[1] = by * (before - k[2]) * k[1] * (1 - k[1]);                                                          \
        slopes[0] = slopes[2] * k[3] * k[0] * (1 - k[0]);                                                              \
        slopes[3] = slopes[2] * k[0];                                                                                  \
        *by_h = by * k[1];                                                                                             \
    }
RECURRENT_FORMULAS(f32, float)
RECURRENT_FORMULAS(f64, double)
