#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

#define NONE 0, (const int64_t *)NULL /* stands for the default of each axis */

static td_tensor *max_plain(td_tensor **x) {
    td_tensor *values = NULL, *indices = NULL;
    td_max_pool(td_exp(x[0]), TD_SHAPE(2), NONE, NONE, NONE, 0, TD_LAYOUT_CHANNELS_FIRST, &values, &indices);
    return values;
}
static const struct autograd_case max_plain_case = {OP_MAX_POOL, "one axis", max_plain, -2,         2,
                                                    true,        1,          {3},       {{2, 2, 6}}};

static td_tensor *max_all(td_tensor **x) {
    td_tensor *values = NULL, *indices = NULL;
    td_max_pool(td_exp(x[0]), TD_SHAPE(3, 2), TD_SHAPE(2, 1), TD_SHAPE(1, 0), TD_SHAPE(1, 2), 1,
                TD_LAYOUT_CHANNELS_FIRST, &values, &indices);
    return values;
}
static const struct autograd_case max_all_case = {
    OP_MAX_POOL, "two axes, and every attribute", max_all, -2, 2, true, 1, {4}, {{2, 2, 6, 5}}};

static td_tensor *max_last(td_tensor **x) {
    td_tensor *values = NULL, *indices = NULL;
    td_max_pool(td_exp(x[0]), TD_SHAPE(3, 2), TD_SHAPE(1), TD_SHAPE(1), NONE, 0, TD_LAYOUT_CHANNELS_LAST, &values,
                &indices);
    return values;
}
static const struct autograd_case max_last_case = {
    OP_MAX_POOL, "windows that overlap, channels last", max_last, -2, 2, true, 1, {4}, {{2, 5, 4, 2}}};

static td_tensor *max_three(td_tensor **x) {
    td_tensor *values = NULL, *indices = NULL;
    td_max_pool(td_exp(x[0]), TD_SHAPE(2), TD_SHAPE(1, 2, 1), NONE, NONE, 0, TD_LAYOUT_CHANNELS_FIRST, &values,
                &indices);
    return values;
}
static const struct autograd_case max_three_case = {OP_MAX_POOL, "three axes", max_three,        -2, 2, true,
                                                    1,           {5},          {{1, 2, 3, 4, 3}}};

static td_tensor *max_grad(td_tensor **x) {
    td_tensor *values = NULL, *indices = NULL;
    td_max_pool(x[1], TD_SHAPE(3, 2), TD_SHAPE(2, 1), TD_SHAPE(1, 0), TD_SHAPE(1, 2), 1, TD_LAYOUT_CHANNELS_FIRST,
                &values, &indices);
    return td_max_pool_grad(td_square(x[0]), indices, TD_SHAPE(2, 2, 6, 5), TD_SHAPE(3, 2), TD_SHAPE(2, 1),
                            TD_SHAPE(1, 0), TD_SHAPE(1, 2), 1, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case max_grad_case = {
    OP_MAX_POOL_GRAD, "every attribute", max_grad, -2, 2, false, 2, {4, 4}, {{2, 2, 4, 3}, {2, 2, 6, 5}}};

static td_tensor *max_grad_last(td_tensor **x) {
    td_tensor *values = NULL, *indices = NULL;
    td_max_pool(x[1], TD_SHAPE(3, 2), TD_SHAPE(1), TD_SHAPE(1), NONE, 0, TD_LAYOUT_CHANNELS_LAST, &values, &indices);
    return td_max_pool_grad(td_square(x[0]), indices, TD_SHAPE(2, 5, 4, 2), TD_SHAPE(3, 2), TD_SHAPE(1), TD_SHAPE(1),
                            NONE, 0, TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case max_grad_last_case = {
    OP_MAX_POOL_GRAD, "channels last", max_grad_last, -2, 2, false, 2, {4, 4}, {{2, 5, 5, 2}, {2, 5, 4, 2}}};

static td_tensor *max_grad_unseen(td_tensor **x) {
    td_tensor *values = NULL, *indices = NULL;
    td_max_pool(x[1], TD_SHAPE(2), TD_SHAPE(1), TD_SHAPE(2), TD_SHAPE(4), 0, TD_LAYOUT_CHANNELS_FIRST, &values,
                &indices);
    return td_max_pool_grad(td_square(x[0]), indices, TD_SHAPE(1, 2, 3), TD_SHAPE(2), TD_SHAPE(1), TD_SHAPE(2),
                            TD_SHAPE(4), 0, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case max_grad_unseen_case = {
    OP_MAX_POOL_GRAD,      "a window that sees the padding alone", max_grad_unseen, -2, 2, false, 2, {3, 3},
    {{1, 2, 3}, {1, 2, 3}}};

static td_tensor *avg_plain(td_tensor **x) {
    return td_avg_pool(td_exp(x[0]), TD_SHAPE(2), NONE, NONE, 0, 1, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case avg_plain_case = {OP_AVG_POOL, "one axis", avg_plain, -2,         2,
                                                    true,        1,          {3},       {{2, 2, 6}}};

static td_tensor *avg_all(td_tensor **x) {
    return td_avg_pool(td_exp(x[0]), TD_SHAPE(3, 2), TD_SHAPE(2, 3), TD_SHAPE(1, 0), 1, 1, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case avg_all_case = {
    OP_AVG_POOL, "two axes, padding that counts, ceil_mode", avg_all, -2, 2, true, 1, {4}, {{2, 2, 6, 5}}};

static td_tensor *avg_inside(td_tensor **x) {
    return td_avg_pool(td_exp(x[0]), TD_SHAPE(3, 2), TD_SHAPE(2, 1), TD_SHAPE(1), 1, 0, TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case avg_inside_case = {
    OP_AVG_POOL, "padding that does not count, channels last", avg_inside, -2, 2, true, 1, {4}, {{2, 6, 5, 2}}};

static td_tensor *avg_three(td_tensor **x) {
    return td_avg_pool(td_exp(x[0]), TD_SHAPE(2), TD_SHAPE(1, 2, 1), NONE, 0, 1, TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case avg_three_case = {OP_AVG_POOL, "three axes", avg_three,        -2, 2, true,
                                                    1,           {5},          {{1, 2, 3, 4, 3}}};

static td_tensor *avg_grad(td_tensor **x) {
    return td_avg_pool_grad(td_exp(x[0]), TD_SHAPE(2, 2, 6, 5), TD_SHAPE(3, 2), TD_SHAPE(2, 3), TD_SHAPE(1, 0), 1, 0,
                            TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case avg_grad_case = {OP_AVG_POOL_GRAD, "every attribute", avg_grad, -2, 2, true, 1, {4},
                                                   {{2, 2, 4, 2}}};

static td_tensor *avg_grad_last(td_tensor **x) {
    return td_avg_pool_grad(td_exp(x[0]), TD_SHAPE(2, 6, 2), TD_SHAPE(2), NONE, NONE, 0, 1, TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case avg_grad_last_case = {
    OP_AVG_POOL_GRAD, "channels last", avg_grad_last, -2, 2, true, 1, {3}, {{2, 3, 2}}};

static td_tensor *adaptive(td_tensor **x) {
    return td_adaptive_avg_pool(td_exp(x[0]), TD_SHAPE(3, 2), TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case adaptive_case = {OP_ADAPTIVE_AVG_POOL, "two axes", adaptive, -2, 2, true, 1, {4},
                                                   {{2, 2, 5, 4}}};

static td_tensor *adaptive_last(td_tensor **x) {
    return td_adaptive_avg_pool(td_exp(x[0]), TD_SHAPE(3), TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case adaptive_last_case = {
    OP_ADAPTIVE_AVG_POOL, "one extent for all, channels last", adaptive_last, -2, 2, true, 1, {4}, {{2, 5, 4, 2}}};

static td_tensor *adaptive_one(td_tensor **x) {
    return td_adaptive_avg_pool(td_exp(x[0]), TD_SHAPE(3), TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case adaptive_one_case = {
    OP_ADAPTIVE_AVG_POOL, "one axis", adaptive_one, -2, 2, true, 1, {3}, {{2, 2, 7}}};

static td_tensor *adaptive_grad(td_tensor **x) {
    return td_adaptive_avg_pool_grad(td_exp(x[0]), TD_SHAPE(2, 2, 5, 4), TD_LAYOUT_CHANNELS_FIRST);
}
static const struct autograd_case adaptive_grad_case = {
    OP_ADAPTIVE_AVG_POOL_GRAD, "two axes", adaptive_grad, -2, 2, true, 1, {4}, {{2, 2, 3, 2}}};

static td_tensor *adaptive_grad_last(td_tensor **x) {
    return td_adaptive_avg_pool_grad(td_exp(x[0]), TD_SHAPE(2, 7, 2), TD_LAYOUT_CHANNELS_LAST);
}
static const struct autograd_case adaptive_grad_last_case = {
    OP_ADAPTIVE_AVG_POOL_GRAD, "channels last", adaptive_grad_last, -2, 2, true, 1, {3}, {{2, 3, 2}}};

const struct autograd_case *const autograd_pooling_cases[] = {&max_plain_case,
                                                              &max_all_case,
                                                              &max_last_case,
                                                              &max_three_case,
                                                              &max_grad_case,
                                                              &max_grad_last_case,
                                                              &max_grad_unseen_case,
                                                              &avg_plain_case,
                                                              &avg_all_case,
                                                              &avg_inside_case,
                                                              &avg_three_case,
                                                              &avg_grad_case,
                                                              &avg_grad_last_case,
                                                              &adaptive_case,
                                                              &adaptive_last_case,
                                                              &adaptive_one_case,
                                                              &adaptive_grad_case,
                                                              &adaptive_grad_last_case,
                                                              NULL};
