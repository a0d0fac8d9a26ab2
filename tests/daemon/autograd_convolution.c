#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

#define NONE 0, (const int64_t *)NULL /* stands for the default of each axis */

static td_tensor *conv_plain(td_tensor **x) {
    return td_conv(td_square(x[0]), x[1], NULL, NONE, NONE, NONE, 1, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case conv_plain_case = {OP_CONV, "one axis, no bias",   conv_plain, -2, 2, true, 2,
                                                     {3, 3},  {{2, 2, 5}, {3, 2, 3}}};

static td_tensor *conv_all(td_tensor **x) {
    return td_conv(td_square(x[0]), x[1], x[2], TD_SHAPE(2, 1), TD_SHAPE(1, 2), TD_SHAPE(2, 1), 2,
                   TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case conv_all_case = {
    OP_CONV,   "two axes, bias, and every attribute", conv_all, -2, 2, true, 3,
    {4, 4, 1}, {{2, 4, 6, 5}, {4, 2, 2, 3}, {4}}};

static td_tensor *conv_last(td_tensor **x) {
    return td_conv(td_square(x[0]), x[1], x[2], TD_SHAPE(2), TD_SHAPE(1), TD_SHAPE(1, 2), 1, TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case conv_last_case = {
    OP_CONV, "two axes, channels last", conv_last, -2, 2, true, 3, {4, 4, 1}, {{2, 6, 5, 2}, {3, 2, 3, 2}, {3}}};

static td_tensor *conv_three(td_tensor **x) {
    return td_conv(td_square(x[0]), x[1], x[2], TD_SHAPE(1, 2, 1), TD_SHAPE(0, 1, 1), NONE, 2,
                   TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case conv_three_case = {
    OP_CONV, "three axes", conv_three, -2, 2, true, 3, {5, 5, 1}, {{1, 2, 3, 4, 3}, {2, 1, 2, 2, 2}, {2}}};

static td_tensor *conv_three_last(td_tensor **x) {
    return td_conv(td_square(x[0]), x[1], NULL, TD_SHAPE(1, 2, 1), TD_SHAPE(0, 1, 1), NONE, 1, TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case conv_three_last_case = {
    OP_CONV, "three axes, channels last", conv_three_last, -2, 2, true, 2, {5, 5}, {{1, 3, 4, 3, 2}, {2, 2, 2, 2, 2}}};

static td_tensor *conv_bias(td_tensor **x) {
    td_device *device = td_tensor_device(x[0]);
    td_tensor *image = td_full(device, TD_F64, TD_SHAPE(1, 2, 3), 2),
              *weight = td_full(device, TD_F64, TD_SHAPE(2, 2, 1), 3);
    return td_conv(image, weight, x[0], NONE, NONE, NONE, 1, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case conv_bias_case = {OP_CONV, "the bias alone", conv_bias, -2, 2, false, 1, {1}, {{2}}};

static td_tensor *transpose_plain(td_tensor **x) {
    return td_conv_transpose(td_square(x[0]), x[1], NULL, NONE, NONE, NONE, NONE, 1, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case transpose_plain_case = {
    OP_CONV_TRANSPOSE, "one axis, no bias", transpose_plain, -2, 2, true, 2, {3, 3}, {{2, 2, 4}, {2, 3, 3}}};

static td_tensor *transpose_all(td_tensor **x) {
    return td_conv_transpose(td_square(x[0]), x[1], x[2], TD_SHAPE(2, 3), TD_SHAPE(1, 2), TD_SHAPE(1, 2),
                             TD_SHAPE(2, 1), 2, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case transpose_all_case = {
    OP_CONV_TRANSPOSE, "two axes, bias, and every attribute", transpose_all, -2, 2, true, 3,
    {4, 4, 1},         {{2, 4, 3, 3}, {4, 2, 2, 3}, {4}}};

static td_tensor *transpose_last(td_tensor **x) {
    return td_conv_transpose(td_square(x[0]), x[1], x[2], TD_SHAPE(2), TD_SHAPE(1), TD_SHAPE(1, 0), NONE, 1,
                             TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case transpose_last_case = {
    OP_CONV_TRANSPOSE, "two axes, channels last",        transpose_last, -2, 2, true, 3,
    {4, 4, 1},         {{2, 3, 3, 3}, {3, 2, 2, 3}, {2}}};

static td_tensor *transpose_three(td_tensor **x) {
    return td_conv_transpose(td_square(x[0]), x[1], NULL, TD_SHAPE(1, 2, 1), TD_SHAPE(0, 1, 0), TD_SHAPE(0, 1, 0), NONE,
                             1, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case transpose_three_case = {
    OP_CONV_TRANSPOSE, "three axes", transpose_three, -2, 2, true, 2, {5, 5}, {{1, 2, 2, 3, 2}, {2, 2, 2, 2, 2}}};

static td_tensor *transpose_wide(td_tensor **x) {
    return td_conv_transpose(td_square(x[0]), x[1], x[2], TD_SHAPE(1, 2), TD_SHAPE(0, 1), TD_SHAPE(2, 3),
                             TD_SHAPE(3, 4), 1, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case transpose_wide_case = {
    OP_CONV_TRANSPOSE, "output padding of a stride and more", transpose_wide, -2, 2, false, 3,
    {4, 4, 1},         {{2, 2, 3, 3}, {2, 2, 2, 2}, {2}}};

static td_tensor *transpose_wide_last(td_tensor **x) {
    return td_conv_transpose(td_square(x[0]), x[1], x[2], TD_SHAPE(1, 2), TD_SHAPE(1, 1), TD_SHAPE(2, 3),
                             TD_SHAPE(3, 4), 1, TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case transpose_wide_last_case = {
    OP_CONV_TRANSPOSE, "the same, channels last",        transpose_wide_last, -2, 2, false, 3,
    {4, 4, 1},         {{2, 3, 3, 2}, {2, 2, 2, 2}, {2}}};

static td_tensor *grad_input(td_tensor **x) {
    return td_conv_grad_input(td_square(x[0]), x[1], TD_SHAPE(2, 4, 6, 5), TD_SHAPE(2, 1), TD_SHAPE(1, 2),
                              TD_SHAPE(2, 1), 2, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case grad_input_case = {
    OP_CONV_GRAD_INPUT, "every attribute", grad_input, -2, 2, true, 2, {4, 4}, {{2, 4, 3, 7}, {4, 2, 2, 3}}};

static td_tensor *grad_input_last(td_tensor **x) {
    return td_conv_grad_input(td_square(x[0]), x[1], TD_SHAPE(2, 6, 2), TD_SHAPE(2), NONE, NONE, 1,
                              TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case grad_input_last_case = {
    OP_CONV_GRAD_INPUT, "channels last", grad_input_last, -2, 2, true, 2, {3, 3}, {{2, 3, 3}, {3, 2, 2}}};

static td_tensor *grad_weight(td_tensor **x) {
    return td_conv_grad_weight(td_square(x[0]), x[1], TD_SHAPE(4, 2, 2, 3), TD_SHAPE(2, 1), TD_SHAPE(1, 2),
                               TD_SHAPE(2, 1), 2, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case grad_weight_case = {
    OP_CONV_GRAD_WEIGHT, "every attribute", grad_weight, -2, 2, true, 2, {4, 4}, {{2, 4, 6, 5}, {2, 4, 3, 7}}};

static td_tensor *grad_weight_last(td_tensor **x) {
    return td_conv_grad_weight(td_square(x[0]), x[1], TD_SHAPE(3, 2, 2), TD_SHAPE(2), NONE, NONE, 1,
                               TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case grad_weight_last_case = {
    OP_CONV_GRAD_WEIGHT, "channels last", grad_weight_last, -2, 2, true, 2, {3, 3}, {{2, 6, 2}, {2, 3, 3}}};

const struct autograd_case *const autograd_convolution_cases[] = {&conv_plain_case,
                                                                  &conv_all_case,
                                                                  &conv_last_case,
                                                                  &conv_three_case,
                                                                  &conv_three_last_case,
                                                                  &conv_bias_case,
                                                                  &transpose_plain_case,
                                                                  &transpose_all_case,
                                                                  &transpose_last_case,
                                                                  &transpose_three_case,
                                                                  &transpose_wide_case,
                                                                  &transpose_wide_last_case,
                                                                  &grad_input_case,
                                                                  &grad_input_last_case,
                                                                  &grad_weight_case,
                                                                  &grad_weight_last_case,
                                                                  NULL};
