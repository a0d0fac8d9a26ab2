#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

static td_tensor *batch_norm(td_tensor *x, td_tensor *mean, td_tensor *variance, td_tensor *weight, td_tensor *bias,
                             int axis, int which) {
    td_tensor *results[3] = {NULL, NULL, NULL};
    td_batch_norm(x, mean, variance, weight, bias, axis, 0.01, 0.3, &results[0], &results[1], &results[2]);
    return results[which];
}

/* The gradients of a normalisation, weighted, as one sum. */
static td_tensor *sum_of(td_tensor *const *gradients, int count) {
    td_tensor *sum = td_sum(td_sin(gradients[0]), TD_ALL_AXES, 0);
    for (int i = 1; i < count; i++)
        sum = td_add(sum, td_sum(td_multiply(td_sin(gradients[i]), gradients[i]), TD_ALL_AXES, 0));
    return sum;
}

static td_tensor *batch_plain(td_tensor **x) {
    return batch_norm(x[0], x[1], x[2], NULL, NULL, -1, 0);
}
static const struct autograd_case batch_plain_case = {OP_BATCH_NORM, "no weight, axis -1", batch_plain, 0.5, 2, true, 3,
                                                      {2, 1, 1},     {{4, 3}, {3}, {3}}};

static td_tensor *batch_weight(td_tensor **x) {
    return batch_norm(td_square(x[0]), x[1], x[2], x[3], NULL, 1, 0);
}
static const struct autograd_case batch_weight_case = {
    OP_BATCH_NORM, "weight without a bias", batch_weight, 0.5, 2, true, 4, {3, 1, 1, 1}, {{3, 2, 2}, {2}, {2}, {2}}};

static td_tensor *batch_bias(td_tensor **x) {
    return batch_norm(td_square(x[0]), x[1], x[2], x[3], x[4], 1, 0);
}
static const struct autograd_case batch_bias_case = {
    OP_BATCH_NORM, "weight and bias", batch_bias, 0.5, 2, true, 5, {4, 1, 1, 1, 1}, {{2, 3, 2, 2}, {3}, {3}, {3}, {3}}};

static td_tensor *batch_mean(td_tensor **x) {
    return batch_norm(td_square(x[0]), td_square(x[1]), x[2], NULL, NULL, 1, 1);
}
static const struct autograd_case batch_mean_case = {OP_BATCH_NORM, "the new mean alone", batch_mean, 0.5, 2, true, 3,
                                                     {3, 1, 1},     {{3, 2, 2}, {2}, {2}}};

static td_tensor *batch_variance(td_tensor **x) {
    return batch_norm(td_square(x[0]), x[1], td_square(x[2]), NULL, NULL, 1, 2);
}
static const struct autograd_case batch_variance_case = {
    OP_BATCH_NORM, "the new variance alone", batch_variance, 0.5, 2, true, 3, {3, 1, 1}, {{3, 2, 2}, {2}, {2}}};

static td_tensor *batch_every(td_tensor **x) {
    td_tensor *results[3] = {NULL, NULL, NULL};
    td_batch_norm(td_square(x[0]), x[1], x[2], x[3], x[4], 1, 0.01, 0.3, &results[0], &results[1], &results[2]);
    td_tensor *last = td_reshape(td_multiply(results[1], results[2]), TD_SHAPE(2, 1));
    return td_multiply(results[0], last);
}
static const struct autograd_case batch_every_case = {
    OP_BATCH_NORM,   "all results together",         batch_every, 0.5, 2, true, 5,
    {3, 1, 1, 1, 1}, {{3, 2, 2}, {2}, {2}, {2}, {2}}};

static td_tensor *inference_plain(td_tensor **x) {
    return td_batch_norm_inference(td_square(x[0]), x[1], x[2], NULL, NULL, -1, 0.01);
}
static const struct autograd_case inference_plain_case = {
    OP_BATCH_NORM_INFERENCE, "no weight, axis -1", inference_plain, 0.5, 2, true, 3, {2, 1, 1}, {{4, 3}, {3}, {3}}};

static td_tensor *inference_bias(td_tensor **x) {
    return td_batch_norm_inference(td_square(x[0]), x[1], x[2], x[3], x[4], 1, 0.01);
}
static const struct autograd_case inference_bias_case = {
    OP_BATCH_NORM_INFERENCE,           "weight and bias", inference_bias, 0.5, 2, true, 5, {4, 1, 1, 1, 1},
    {{2, 3, 2, 2}, {3}, {3}, {3}, {3}}};

static td_tensor *layer_plain(td_tensor **x) {
    return td_layer_norm(x[0], NULL, NULL, 1, 0.01);
}
static const struct autograd_case layer_plain_case = {OP_LAYER_NORM, "no weight", layer_plain, 0.5,     2,
                                                      true,          1,           {2},         {{3, 4}}};

static td_tensor *layer_weight(td_tensor **x) {
    return td_layer_norm(td_square(x[0]), x[1], NULL, 1, 0.01);
}
static const struct autograd_case layer_weight_case = {
    OP_LAYER_NORM, "weight without a bias", layer_weight, 0.5, 2, true, 2, {3, 1}, {{2, 2, 3}, {3}}};

static td_tensor *layer_bias(td_tensor **x) {
    return td_layer_norm(td_square(x[0]), x[1], x[2], 2, 0.01);
}
static const struct autograd_case layer_bias_case = {
    OP_LAYER_NORM, "two axes, weight and bias", layer_bias, 0.5, 2, true, 3, {3, 2, 2}, {{2, 2, 3}, {2, 3}, {2, 3}}};

static td_tensor *layer_whole(td_tensor **x) {
    return td_layer_norm(td_square(x[0]), x[1], NULL, 2, 0.01);
}
static const struct autograd_case layer_whole_case = {OP_LAYER_NORM, "all axes",      layer_whole, 0.5, 2, true, 2,
                                                      {2, 2},        {{2, 3}, {2, 3}}};

static td_tensor *group_plain(td_tensor **x) {
    return td_group_norm(td_square(x[0]), NULL, NULL, 2, 0.01);
}
static const struct autograd_case group_plain_case = {OP_GROUP_NORM, "no weight", group_plain, 0.5,        2,
                                                      true,          1,           {3},         {{2, 4, 3}}};

static td_tensor *group_weight(td_tensor **x) {
    return td_group_norm(td_square(x[0]), x[1], NULL, 1, 0.01);
}
static const struct autograd_case group_weight_case = {
    OP_GROUP_NORM, "weight without a bias", group_weight, 0.5, 2, true, 2, {3, 1}, {{2, 4, 2}, {4}}};

static td_tensor *group_bias(td_tensor **x) {
    return td_group_norm(td_square(x[0]), x[1], x[2], 2, 0.01);
}
static const struct autograd_case group_bias_case = {
    OP_GROUP_NORM, "weight and bias", group_bias, 0.5, 2, true, 3, {4, 1, 1}, {{2, 4, 2, 2}, {4}, {4}}};

static td_tensor *group_matrix(td_tensor **x) {
    return td_group_norm(td_square(x[0]), x[1], NULL, 2, 0.01);
}
static const struct autograd_case group_matrix_case = {
    OP_GROUP_NORM, "no axis besides the channels", group_matrix, 0.5, 2, true, 2, {2, 1}, {{3, 6}, {6}}};

static td_tensor *rms_plain(td_tensor **x) {
    return td_rms_norm(td_square(x[0]), NULL, 1, 0.01);
}
static const struct autograd_case rms_plain_case = {OP_RMS_NORM, "no weight", rms_plain, 0.5,     2,
                                                    true,        1,           {2},       {{3, 4}}};

static td_tensor *rms_weight(td_tensor **x) {
    return td_rms_norm(td_square(x[0]), x[1], 2, 0.01);
}
static const struct autograd_case rms_weight_case = {OP_RMS_NORM, "two axes, weight", rms_weight, 0.5, 2, true, 2,
                                                     {3, 2},      {{2, 2, 3}, {2, 3}}};

static td_tensor *batch_grad_weight(td_tensor **x) {
    td_tensor *by[3] = {NULL, NULL, NULL};
    td_batch_norm_grad(x[0], td_square(x[2]), x[1], 1, 0.01, &by[0], &by[1], &by[2]);
    return sum_of(by, 3);
}
static const struct autograd_case batch_grad_weight_case = {
    OP_BATCH_NORM_GRAD, "all results, weight",      batch_grad_weight, 0.5, 2, true, 3,
    {3, 1, 3},          {{2, 3, 2}, {3}, {2, 3, 2}}};

static td_tensor *batch_grad_plain(td_tensor **x) {
    td_tensor *by[3] = {NULL, NULL, NULL};
    td_batch_norm_grad(x[0], td_square(x[1]), NULL, 1, 0.01, &by[0], &by[1], &by[2]);
    return sum_of(by, 3);
}
static const struct autograd_case batch_grad_plain_case = {
    OP_BATCH_NORM_GRAD, "all results, no weight", batch_grad_plain, 0.5, 2, true, 2, {3, 3}, {{2, 3, 2}, {2, 3, 2}}};

static td_tensor *layer_grad_weight(td_tensor **x) {
    td_tensor *by[3] = {NULL, NULL, NULL};
    td_layer_norm_grad(x[0], td_square(x[2]), x[1], 2, 0.01, &by[0], &by[1], &by[2]);
    return sum_of(by, 3);
}
static const struct autograd_case layer_grad_weight_case = {
    OP_LAYER_NORM_GRAD, "all results, weight",         layer_grad_weight, 0.5, 2, true, 3,
    {3, 2, 3},          {{2, 2, 3}, {2, 3}, {2, 2, 3}}};

static td_tensor *layer_grad_plain(td_tensor **x) {
    td_tensor *by[3] = {NULL, NULL, NULL};
    td_layer_norm_grad(x[0], td_square(x[1]), NULL, 2, 0.01, &by[0], &by[1], &by[2]);
    return sum_of(by, 3);
}
static const struct autograd_case layer_grad_plain_case = {
    OP_LAYER_NORM_GRAD, "all results, no weight", layer_grad_plain, 0.5, 2, true, 2, {3, 3}, {{2, 2, 3}, {2, 2, 3}}};

static td_tensor *group_grad_weight(td_tensor **x) {
    td_tensor *by[3] = {NULL, NULL, NULL};
    td_group_norm_grad(x[0], td_square(x[2]), x[1], 2, 0.01, &by[0], &by[1], &by[2]);
    return sum_of(by, 3);
}
static const struct autograd_case group_grad_weight_case = {
    OP_GROUP_NORM_GRAD, "all results, weight",      group_grad_weight, 0.5, 2, true, 3,
    {3, 1, 3},          {{2, 4, 2}, {4}, {2, 4, 2}}};

static td_tensor *group_grad_plain(td_tensor **x) {
    td_tensor *by[3] = {NULL, NULL, NULL};
    td_group_norm_grad(x[0], td_square(x[1]), NULL, 2, 0.01, &by[0], &by[1], &by[2]);
    return sum_of(by, 3);
}
static const struct autograd_case group_grad_plain_case = {
    OP_GROUP_NORM_GRAD, "all results, no weight", group_grad_plain, 0.5, 2, true, 2, {3, 3}, {{2, 4, 2}, {2, 4, 2}}};

static td_tensor *rms_grad_weight(td_tensor **x) {
    td_tensor *by[2] = {NULL, NULL};
    td_rms_norm_grad(x[0], td_square(x[2]), x[1], 1, 0.01, &by[0], &by[1]);
    return sum_of(by, 2);
}
static const struct autograd_case rms_grad_weight_case = {
    OP_RMS_NORM_GRAD, "all results, weight", rms_grad_weight, 0.5, 2, true, 3, {2, 1, 2}, {{3, 4}, {4}, {3, 4}}};

static td_tensor *rms_grad_plain(td_tensor **x) {
    td_tensor *by[2] = {NULL, NULL};
    td_rms_norm_grad(x[0], td_square(x[1]), NULL, 1, 0.01, &by[0], &by[1]);
    return sum_of(by, 2);
}
static const struct autograd_case rms_grad_plain_case = {
    OP_RMS_NORM_GRAD, "all results, no weight", rms_grad_plain, 0.5, 2, true, 2, {2, 2}, {{3, 4}, {3, 4}}};

const struct autograd_case *const autograd_normalisation_cases[] = {
    &batch_plain_case,       &batch_weight_case,      &batch_bias_case,
    &batch_mean_case,        &batch_variance_case,    &batch_every_case,
    &inference_plain_case,   &inference_bias_case,    &layer_plain_case,
    &layer_weight_case,      &layer_bias_case,        &layer_whole_case,
    &group_plain_case,       &group_weight_case,      &group_bias_case,
    &group_matrix_case,      &rms_plain_case,         &rms_weight_case,
    &batch_grad_weight_case, &batch_grad_plain_case,  &layer_grad_weight_case,
    &layer_grad_plain_case,  &group_grad_weight_case, &group_grad_plain_case,
    &rms_grad_weight_case,   &rms_grad_plain_case,    NULL};
