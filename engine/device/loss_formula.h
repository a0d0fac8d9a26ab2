/* The formulas of losses of elements and of their gradients, for one element: the same text for the CPU's loops and for CUDA's kernels. The
 * formulas of elementwise operations (formula.h) are included before, with the functions of the backend. For a device, LOSS_FUNCTION is defined
 * before. */
#pragma once

#include "engine/device/loss.h"

#ifndef LOSS_FUNCTION
#define LOSS_FUNCTION static inline
#endif

/* Of x, the target t, weight w, pos_weight p, and huber's delta d. */

#define LOSS_FORMULA(way, name, T, expression)                                                                         \
    LOSS_FUNCTION T loss_##way##_##name(T x, T t, T w, T p, T d) {                                                     \
        (void)x, (void)t, (void)w, (void)p, (void)d;                                                                   \
        return expression;                                                                                             \
    }
/* log(1 + e^-x), without a threshold from which on it would be rounded. */
#define LOSS_SOFTPLUS(name, T) formula_softplus_##name(-x, (T)1, (T)1e30)
#define LOSS_FORMULAS(name, T)                                                                                         \
    LOSS_FORMULA(mse, name, T, (x - t) * (x - t))                                                                      \
    LOSS_FORMULA(mse_back, name, T, 2 * (x - t))                                                                       \
    LOSS_FORMULA(l1, name, T, formula_abs_##name(x - t))                                                               \
    LOSS_FORMULA(l1_back, name, T, formula_sign_##name(x - t))                                                         \
    LOSS_FORMULA(huber, name, T,                                                                                       \
                 formula_abs_##name(x - t) <= d ? (T)0.5 * (x - t) * (x - t)                                           \
                                                : d * (formula_abs_##name(x - t) - (T)0.5 * d))                        \
    LOSS_FORMULA(huber_back, name, T, x - t > d ? d : x - t < -d ? -d : x - t)                                         \
    LOSS_FORMULA(bce, name, T, (1 - t) * x + LOSS_SOFTPLUS(name, T))                                                   \
    LOSS_FORMULA(bce_back, name, T, formula_sigmoid_##name(x) - t)                                                     \
    LOSS_FORMULA(bce_weight, name, T, w *((1 - t) * x + LOSS_SOFTPLUS(name, T)))                                       \
    LOSS_FORMULA(bce_weight_back, name, T, w *(formula_sigmoid_##name(x) - t))                                         \
    LOSS_FORMULA(bce_both, name, T, w *((1 - t) * x + (1 + (p - 1) * t) * LOSS_SOFTPLUS(name, T)))                     \
    LOSS_FORMULA(bce_both_back, name, T, w *((1 - t + p * t) * formula_sigmoid_##name(x) - p * t))                     \
    LOSS_FORMULA(kl, name, T, (t == 0 ? 0 : t * formula_log_##name(t == 0 ? 1 : t)) - t * x)                           \
    LOSS_FORMULA(kl_back, name, T, -t)                                                                                 \
    LOSS_FORMULA(kl_log, name, T, formula_exp_##name(t) * (t - x))                                                     \
    LOSS_FORMULA(kl_log_back, name, T, -formula_exp_##name(t))                                                         \
    LOSS_FORMULA(bce_target_back, name, T, -x)                                                                         \
    LOSS_FORMULA(bce_weight_target_back, name, T, -w *x)                                                               \
    LOSS_FORMULA(bce_both_target_back, name, T, w *((p - 1) * LOSS_SOFTPLUS(name, T) - x))                             \
    LOSS_FORMULA(kl_target_back, name, T, t == 0 ? 0 : formula_log_##name(t == 0 ? 1 : t) + 1 - x)                     \
    LOSS_FORMULA(kl_log_target_back, name, T, formula_exp_##name(t) * (t - x + 1))                                     \
    LOSS_FORMULA(bce_target, name, T, loss_bce_##name(x, t, w, p, d))                                                  \
    LOSS_FORMULA(bce_weight_target, name, T, loss_bce_weight_##name(x, t, w, p, d))                                    \
    LOSS_FORMULA(bce_both_target, name, T, loss_bce_both_##name(x, t, w, p, d))                                        \
    LOSS_FORMULA(kl_target, name, T, loss_kl_##name(x, t, w, p, d))                                                    \
    LOSS_FORMULA(kl_log_target, name, T, loss_kl_log_##name(x, t, w, p, d))
LOSS_FORMULAS(f32, float)
LOSS_FORMULAS(f64, double)
