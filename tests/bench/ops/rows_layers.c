/* Rows of networks and their training that rows.c does not have: losses, gradients, normalisation, windows, recurrent layers,
 * optimisers. */
#include "tests/bench/ops/operands.h"

#include <math.h>

#define MEAN TD_REDUCTION_MEAN
#define LOSSES(X)                                                                                                      \
    X(cross_entropy_back, "cross_entropy back", scores, td_cross_entropy_grad(x[3], x[0], x[2], NULL, -1, MEAN, 0))    \
    X(soft_cross_entropy, "cross_entropy of probabilities", scores, td_soft_cross_entropy(x[0], x[1], NULL, MEAN, 0))  \
    X(soft_cross_entropy_back, "cross_entropy of probabilities back", scores,                                          \
      td_soft_cross_entropy_grad(x[3], x[0], x[1], NULL, MEAN, 0))                                                     \
    X(nll_loss, "nll_loss", scores, td_nll_loss(x[4], x[2], NULL, -1, MEAN))                                           \
    X(nll_loss_back, "nll_loss back", scores, td_nll_loss_grad(x[3], x[4], x[2], NULL, -1, MEAN))                      \
    X(kl_div, "kl_div", scores, td_kl_div(x[4], x[1], MEAN, 0))                                                        \
    X(kl_div_back, "kl_div back", scores, td_kl_div_grad(x[3], x[4], x[1], MEAN, 0))                                   \
    X(kl_div_back_target, "kl_div back by target", scores, td_kl_div_target_grad(x[3], x[4], x[1], MEAN, 0))           \
    X(mse_loss_back, "mse_loss back", losses, td_mse_loss_grad(x[2], x[0], x[1], MEAN))                                \
    X(l1_loss, "l1_loss", losses, td_l1_loss(x[0], x[1], MEAN))                                                        \
    X(l1_loss_back, "l1_loss back", losses, td_l1_loss_grad(x[2], x[0], x[1], MEAN))                                   \
    X(huber_loss_back, "huber_loss back", losses, td_huber_loss_grad(x[2], x[0], x[1], MEAN, 1))                       \
    X(bce_back, "bce_with_logits back", losses, td_bce_with_logits_grad(x[2], x[0], x[1], NULL, NULL, MEAN))           \
    X(bce_back_target, "bce_with_logits back by target", losses,                                                       \
      td_bce_with_logits_target_grad(x[2], x[0], x[1], NULL, NULL, MEAN))

#define NORMALISATION(X)                                                                                               \
    X(batch_norm_inference, "batch_norm of inference", images,                                                         \
      td_batch_norm_inference(x[0], x[4], x[4], x[4], x[4], 1, 1e-5))                                                  \
    X(group_norm_back, "group_norm back", images,                                                                      \
      ops_first(td_group_norm_grad(x[2], x[0], x[4], 8, 1e-5, &made[0], &made[1], &made[2]), 3, made))                 \
    X(instance_norm, "instance_norm", images, td_group_norm(x[0], x[4], x[4], CHANNELS, 1e-5))                         \
    X(rms_norm_back, "rms_norm back", layers,                                                                          \
      ops_first(td_rms_norm_grad(x[1], x[0], x[2], 1, 1e-5, &made[0], &made[1]), 2, made))

#define FIRST TD_LAYOUT_CHANNELS_FIRST
#define WINDOWS(X)                                                                                                     \
    X(max_pool_back, "max_pool2d back", pooled,                                                                        \
      td_max_pool_grad(x[3], x[5], 4, td_tensor_shape(x[0]), LIST(2), 0, NULL, 0, NULL, 0, NULL, 0, FIRST))            \
    X(max_pool_three, "max_pool2d of 3 × 3 by 2", images,                                                              \
      ops_first(td_max_pool(x[0], LIST(3), LIST(2), LIST(1), 0, NULL, 0, FIRST, &made[0], &made[1]), 2, made))         \
    X(adaptive_pool_back, "adaptive_avg_pool2d back", pooled,                                                          \
      td_adaptive_avg_pool_grad(x[6], 4, td_tensor_shape(x[0]), FIRST))                                                \
    X(conv_transpose_two, "conv_transpose2d by 2", images,                                                             \
      td_conv_transpose(x[3], x[1], NULL, LIST(2), LIST(1), LIST(1), 0, NULL, 1, FIRST))                               \
    X(conv_two, "conv2d by 2", images, td_conv(x[0], x[1], NULL, LIST(2), LIST(1), 0, NULL, 1, FIRST))                 \
    X(conv_one, "conv2d of 1 × 1", narrow, td_conv(x[0], x[1], NULL, LIST(1), LIST(0), 0, NULL, 1, FIRST))             \
    X(conv_dilated, "conv2d dilated by 2", images, td_conv(x[0], x[1], NULL, LIST(1), LIST(2), LIST(2), 1, FIRST))     \
    X(conv1d_by_x, "conv1d by x", signals,                                                                             \
      td_conv_grad_input(x[2], x[1], 3, td_tensor_shape(x[0]), LIST(1), LIST(1), 0, NULL, 1, FIRST))                   \
    X(conv1d_by_weight, "conv1d by weight", signals,                                                                   \
      td_conv_grad_weight(x[0], x[2], 3, td_tensor_shape(x[1]), LIST(1), LIST(1), 0, NULL, 1, FIRST))

#define SCALE 1 / sqrt((double)FEATURES)
#define SEQUENCES(X)                                                                                                   \
    X(attention_back, "attention back", heads_back, attention_back(x, 0, made))                                        \
    X(attention_back_causal, "causal attention back", heads_back_causal, attention_back(x, 1, made))                   \
    X(lstm_back, "lstm back", four_gates_back,                                                                         \
      ops_first(td_lstm_grad(x[6], x[7], x[8], x[0], x[1], x[5], x[2], x[3], x[9], x[10], x[11], 0, &made[0],          \
                             &made[1], &made[2], &made[3], &made[4], &made[5]),                                        \
                6, made))                                                                                              \
    X(gru_back, "gru back", three_gates_back,                                                                          \
      ops_first(td_gru_grad(x[6], x[7], x[0], x[1], x[2], x[3], x[9], x[10], 0, &made[0], &made[1], &made[2],          \
                            &made[3], &made[4], &made[5]),                                                             \
                6, made))                                                                                              \
    X(embedding, "embedding", words, td_embedding(x[0], x[1]))                                                         \
    X(embedding_back, "embedding back", words, td_embedding_grad(x[2], x[1], 1000, -1))

#define OPTIMISERS(X)                                                                                                  \
    X(sgd, "sgd", parameter, ops_replaced(td_sgd(1, &x[0], &x[1], NULL, 0.001, 0, 0, 0), x[1]))                        \
    X(sgd_momentum, "sgd with momentum", parameter,                                                                    \
      ops_replaced(td_sgd(1, &x[0], &x[1], &x[2], 0.001, 0.9, 0, 0), x[1]))                                            \
    X(adamw, "adamw", parameter,                                                                                       \
      ops_replaced(td_adamw(1, &x[0], &x[1], &x[2], &x[3], 3, 0.001, 0.9, 0.999, 1e-8, 0.01), x[1]))                   \
    X(rmsprop, "rmsprop", parameter, ops_replaced(td_rmsprop(1, &x[0], &x[1], &x[2], 0.01, 0.99, 1e-8, 0), x[1]))      \
    X(adagrad, "adagrad", parameter, ops_replaced(td_adagrad(1, &x[0], &x[1], &x[2], 0.01, 1e-10, 0), x[1]))           \
    X(moving_average, "moving_average", parameter, ops_replaced(td_moving_average(1, &x[0], &x[1], 0.9), x[1]))

#define ROWS(X) LOSSES(X) NORMALISATION(X) WINDOWS(X) SEQUENCES(X) OPTIMISERS(X)

static td_tensor *attention_back(td_tensor *const *x, int causal, td_tensor **made) {
    return ops_first(td_scaled_dot_product_attention_grad(x[3], x[0], x[1], x[2], x[4], x[5], NULL, causal, SCALE,
                                                          &made[0], &made[1], &made[2]),
                     3, made);
}

ROWS(OPS_RUN)
static const struct ops_row rows[] = {ROWS(OPS_ROW)};
const struct ops_rows ops_rows_of_layers = {rows, sizeof rows / sizeof *rows};
