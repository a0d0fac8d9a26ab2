#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

#define NONE TD_REDUCTION_NONE
#define MEAN TD_REDUCTION_MEAN
#define SUM TD_REDUCTION_SUM

/* ---- losses of classes, of which there are 4 ---- */

enum { IGNORED = 3, NEVER = -100 };

static td_tensor *targets(td_tensor *x, int rank, const int64_t *shape) {
    static const int64_t classes[] = {2, 0, 3, 1, 1, 0};
    return td_upload(td_tensor_device(x), TD_I64, rank, shape, classes);
}
static td_tensor *weights(td_tensor *x) {
    return td_arange(td_tensor_device(x), TD_F64, 1, 5, 1);
}
static td_tensor *probabilities(td_tensor *x) {
    return td_square(td_cos(td_full(td_tensor_device(x), TD_F64, td_tensor_rank(x), td_tensor_shape(x), 1)));
}

#define ROWS targets(x[0], TD_SHAPE(3))
#define PLACES targets(x[0], TD_SHAPE(2, 3))
#define ONE targets(x[0], 0, NULL)

#define CLASSES(X)                                                                                                     \
    X(ce, CROSS_ENTROPY, -2, 2, true, 1, (2), ({3, 4}), td_cross_entropy(x[0], ROWS, NULL, NEVER, MEAN, 0))            \
    X(ce_none, CROSS_ENTROPY, -2, 2, true, 1, (2), ({3, 4}), td_cross_entropy(x[0], ROWS, NULL, IGNORED, NONE, 0.2))   \
    X(ce_one, CROSS_ENTROPY, -2, 2, true, 1, (1), ({4}), td_cross_entropy(x[0], ONE, weights(x[0]), NEVER, SUM, 0.2))  \
    X(ce_one_none, CROSS_ENTROPY, 0.5, 2, false, 2, (1, 1), ({4}, {4}),                                                \
      td_cross_entropy(x[0], ONE, x[1], NEVER, NONE, 0.2))                                                             \
    X(ce_weights, CROSS_ENTROPY, 0.5, 2, false, 2, (3, 1), ({2, 4, 3}, {4}),                                           \
      td_cross_entropy(x[0], PLACES, x[1], IGNORED, MEAN, 0.2))                                                        \
    X(ce_weights_sum, CROSS_ENTROPY, 0.5, 2, false, 2, (3, 1), ({2, 4, 3}, {4}),                                       \
      td_cross_entropy(x[0], PLACES, x[1], IGNORED, SUM, 0.2))                                                         \
    X(ce_weights_none, CROSS_ENTROPY, 0.5, 2, false, 2, (3, 1), ({2, 4, 3}, {4}),                                      \
      td_cross_entropy(x[0], PLACES, x[1], 1, NONE, 0.2))                                                              \
    X(ce_grad, CROSS_ENTROPY_GRAD, -2, 2, true, 2, (2, 3), ({2, 3}, {2, 4, 3}),                                        \
      td_cross_entropy_grad(x[0], x[1], PLACES, weights(x[1]), IGNORED, NONE, 0.2))                                    \
    X(ce_grad_mean, CROSS_ENTROPY_GRAD, -2, 2, true, 2, (0, 3), ({}, {2, 4, 3}),                                       \
      td_cross_entropy_grad(x[0], x[1], PLACES, weights(x[1]), IGNORED, MEAN, 0.2))                                    \
    X(ce_grad_one, CROSS_ENTROPY_GRAD, -2, 2, true, 2, (0, 1), ({}, {4}),                                              \
      td_cross_entropy_grad(x[0], x[1], ONE, NULL, NEVER, SUM, 0.2))                                                   \
    X(soft, SOFT_CROSS_ENTROPY, 0.1, 1, false, 2, (2, 2), ({3, 4}, {3, 4}),                                            \
      td_soft_cross_entropy(x[0], x[1], NULL, MEAN, 0.2))                                                              \
    X(soft_weights, SOFT_CROSS_ENTROPY, 0.1, 1, false, 3, (3, 3, 1), ({2, 4, 2}, {2, 4, 2}, {4}),                      \
      td_soft_cross_entropy(x[0], x[1], x[2], MEAN, 0.2))                                                              \
    X(soft_none, SOFT_CROSS_ENTROPY, 0.1, 1, false, 3, (2, 2, 1), ({3, 4}, {3, 4}, {4}),                               \
      td_soft_cross_entropy(x[0], x[1], x[2], NONE, 0.2))                                                              \
    X(soft_constant, SOFT_CROSS_ENTROPY, 0.1, 1, true, 1, (2), ({3, 4}),                                               \
      td_soft_cross_entropy(x[0], td_cos(td_full(td_tensor_device(x[0]), TD_F64, TD_SHAPE(3, 4), 1)), NULL, SUM, 0))   \
    X(soft_grad, SOFT_CROSS_ENTROPY_GRAD, -1, 1, true, 2, (1, 2), ({3}, {3, 4}),                                       \
      td_soft_cross_entropy_grad(x[0], x[1], probabilities(x[1]), weights(x[1]), NONE, 0.2))                           \
    X(soft_grad_mean, SOFT_CROSS_ENTROPY_GRAD, -1, 1, true, 2, (0, 3), ({}, {2, 4, 2}),                                \
      td_soft_cross_entropy_grad(x[0], x[1], probabilities(x[1]), NULL, MEAN, 0))                                      \
    X(nll, NLL_LOSS, -2, 2, true, 1, (2), ({3, 4}), td_nll_loss(td_square(x[0]), ROWS, NULL, NEVER, MEAN))             \
    X(nll_weights, NLL_LOSS, 0.5, 2, false, 2, (3, 1), ({2, 4, 3}, {4}), td_nll_loss(x[0], PLACES, x[1], 3, MEAN))     \
    X(nll_weights_none, NLL_LOSS, 0.5, 2, false, 2, (3, 1), ({2, 4, 3}, {4}),                                          \
      td_nll_loss(x[0], PLACES, x[1], 1, NONE))                                                                        \
    X(nll_one, NLL_LOSS, 0.5, 2, false, 2, (1, 1), ({4}, {4}), td_nll_loss(x[0], ONE, x[1], NEVER, SUM))               \
    X(nll_grad, NLL_LOSS_GRAD, -2, 2, true, 2, (2, 3), ({2, 3}, {2, 4, 3}),                                            \
      td_nll_loss_grad(td_square(x[0]), x[1], PLACES, weights(x[1]), IGNORED, NONE))                                   \
    X(nll_grad_mean, NLL_LOSS_GRAD, -2, 2, true, 2, (0, 3), ({}, {2, 4, 3}),                                           \
      td_nll_loss_grad(td_square(x[0]), x[1], PLACES, weights(x[1]), IGNORED, MEAN))

/* ---- losses of elements: x[0] and x[1]; of gradients, x[0] is the gradient by the loss ---- */

#define ELEMENTS(X)                                                                                                    \
    X(mse, MSE_LOSS, -2, 2, true, 2, (2, 2), ({2, 3}, {2, 3}), td_mse_loss(x[0], td_square(x[1]), MEAN))               \
    X(mse_none, MSE_LOSS, -2, 2, true, 2, (2, 2), ({2, 3}, {2, 3}), td_mse_loss(x[0], x[1], NONE))                     \
    X(mse_same, MSE_LOSS, -2, 2, true, 1, (1), ({5}), td_mse_loss(x[0], td_square(x[0]), SUM))                         \
    X(mse_grad, MSE_LOSS_GRAD, -2, 2, true, 3, (0, 1, 1), ({}, {5}, {5}), td_mse_loss_grad(x[0], x[1], x[2], MEAN))    \
    X(mse_grad_none, MSE_LOSS_GRAD, -2, 2, true, 3, (1, 1, 1), ({5}, {5}, {5}),                                        \
      td_mse_loss_grad(x[0], x[1], x[2], NONE))                                                                        \
    X(l1, L1_LOSS, -2, 2, false, 2, (2, 2), ({2, 3}, {2, 3}), td_l1_loss(x[0], x[1], MEAN))                            \
    X(l1_none, L1_LOSS, -2, 2, true, 2, (2, 2), ({2, 3}, {2, 3}), td_l1_loss(td_square(x[0]), x[1], NONE))             \
    X(l1_grad, L1_LOSS_GRAD, -2, 2, true, 3, (0, 1, 1), ({}, {5}, {5}),                                                \
      td_l1_loss_grad(td_square(x[0]), x[1], x[2], MEAN))                                                              \
    X(huber, HUBER_LOSS, -2, 2, true, 2, (2, 2), ({2, 3}, {2, 3}), td_huber_loss(x[0], x[1], MEAN, 0.7))               \
    X(huber_none, HUBER_LOSS, -2, 2, true, 2, (2, 2), ({2, 3}, {2, 3}), td_huber_loss(x[0], x[1], NONE, 1.5))          \
    X(huber_grad, HUBER_LOSS_GRAD, -2, 2, true, 3, (0, 1, 1), ({}, {5}, {5}),                                          \
      td_huber_loss_grad(x[0], x[1], x[2], MEAN, 1.2))                                                                 \
    X(bce, BCE_WITH_LOGITS, 0.1, 0.9, true, 2, (2, 2), ({2, 3}, {2, 3}),                                               \
      td_bce_with_logits(x[0], x[1], NULL, NULL, MEAN))                                                                \
    X(bce_weight, BCE_WITH_LOGITS, 0.1, 0.9, true, 3, (2, 2, 1), ({2, 3}, {2, 3}, {3}),                                \
      td_bce_with_logits(x[0], x[1], x[2], NULL, NONE))                                                                \
    X(bce_pos, BCE_WITH_LOGITS, 0.1, 0.9, true, 3, (2, 2, 1), ({2, 3}, {2, 3}, {3}),                                   \
      td_bce_with_logits(x[0], x[1], NULL, x[2], MEAN))                                                                \
    X(bce_both, BCE_WITH_LOGITS, 0.1, 0.9, true, 4, (2, 2, 0, 1), ({2, 3}, {2, 3}, {}, {3}),                           \
      td_bce_with_logits(td_log(x[0]), x[1], x[2], x[3], MEAN))                                                        \
    X(bce_both_sum, BCE_WITH_LOGITS, 0.1, 0.9, true, 4, (2, 2, 2, 2), ({2, 3}, {2, 3}, {2, 1}, {2, 3}),                \
      td_bce_with_logits(x[0], x[1], x[2], x[3], SUM))                                                                 \
    X(bce_grad, BCE_WITH_LOGITS_GRAD, 0.1, 0.9, true, 3, (0, 2, 2), ({}, {2, 3}, {2, 3}),                              \
      td_bce_with_logits_grad(x[0], x[1], x[2], NULL, NULL, MEAN))                                                     \
    X(bce_grad_both, BCE_WITH_LOGITS_GRAD, 0.1, 0.9, true, 5, (2, 2, 2, 0, 1), ({2, 3}, {2, 3}, {2, 3}, {}, {3}),      \
      td_bce_with_logits_grad(x[0], x[1], x[2], x[3], x[4], NONE))                                                     \
    X(bce_target_grad, BCE_WITH_LOGITS_TARGET_GRAD, 0.1, 0.9, true, 3, (0, 2, 2), ({}, {2, 3}, {2, 3}),                \
      td_bce_with_logits_target_grad(x[0], x[1], x[2], NULL, NULL, MEAN))                                              \
    X(bce_target_grad_both, BCE_WITH_LOGITS_TARGET_GRAD, 0.1, 0.9, true, 5, (0, 2, 2, 1, 0),                           \
      ({}, {2, 3}, {2, 3}, {3}, {}), td_bce_with_logits_target_grad(x[0], x[1], x[2], x[3], x[4], MEAN))               \
    X(kl, KL_DIV, 0.1, 1, true, 2, (2, 2), ({2, 3}, {2, 3}), td_kl_div(x[0], x[1], MEAN, 0))                           \
    X(kl_log, KL_DIV, -2, 2, true, 2, (2, 2), ({2, 3}, {2, 3}), td_kl_div(x[0], x[1], NONE, 1))                        \
    X(kl_grad, KL_DIV_GRAD, 0.1, 1, true, 3, (0, 2, 2), ({}, {2, 3}, {2, 3}),                                          \
      td_kl_div_grad(x[0], x[1], x[2], MEAN, 0))                                                                       \
    X(kl_grad_log, KL_DIV_GRAD, -2, 2, true, 3, (2, 2, 2), ({2, 3}, {2, 3}, {2, 3}),                                   \
      td_kl_div_grad(x[0], x[1], x[2], NONE, 1))                                                                       \
    X(kl_target_grad, KL_DIV_TARGET_GRAD, 0.1, 1, true, 3, (0, 2, 2), ({}, {2, 3}, {2, 3}),                            \
      td_kl_div_target_grad(x[0], x[1], x[2], MEAN, 0))                                                                \
    X(kl_target_grad_log, KL_DIV_TARGET_GRAD, -2, 2, true, 3, (2, 2, 2), ({2, 3}, {2, 3}, {2, 3}),                     \
      td_kl_div_target_grad(x[0], x[1], x[2], NONE, 1))

CLASSES(AUTOGRAD_SHAPED)
ELEMENTS(AUTOGRAD_SHAPED)

const struct autograd_case *const autograd_loss_cases[] = {CLASSES(AUTOGRAD_SHAPED_ROW) ELEMENTS(AUTOGRAD_SHAPED_ROW)
                                                               NULL};
