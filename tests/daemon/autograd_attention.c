#include <math.h>
#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

static td_tensor *attention(td_tensor *q, td_tensor *k, td_tensor *v, td_tensor *mask, int is_causal, double scale) {
    td_tensor *result = NULL, *logsumexp = NULL;
    td_scaled_dot_product_attention(q, k, v, mask, is_causal, scale, &result, &logsumexp);
    return result;
}

/* The result times logsumexp, so that both have gradients. */
static td_tensor *both(td_tensor *q, td_tensor *k, td_tensor *v, td_tensor *mask, int is_causal, double scale) {
    td_tensor *result = NULL, *logsumexp = NULL;
    td_scaled_dot_product_attention(q, k, v, mask, is_causal, scale, &result, &logsumexp);
    const int64_t *shape = logsumexp ? td_tensor_shape(logsumexp) : NULL;
    int64_t column[TD_RANK_MAX] = {0};
    int rank = logsumexp ? td_tensor_rank(logsumexp) : 0;
    for (int i = 0; i < rank; i++)
        column[i] = shape[i];
    column[rank] = 1;
    return td_multiply(result, td_reshape(logsumexp, rank + 1, column));
}

static td_tensor *logsumexp_of(td_tensor *q, td_tensor *k, td_tensor *v) {
    td_tensor *result = NULL, *logsumexp = NULL;
    td_scaled_dot_product_attention(q, k, v, NULL, 0, 0, &result, &logsumexp);
    return logsumexp;
}

/* The gradients, each with factors of its own, in one row. */
static td_tensor *gradients(td_tensor **x, td_tensor *mask, int is_causal, double scale) {
    td_tensor *result = NULL, *logsumexp = NULL, *by[3] = {NULL, NULL, NULL};
    td_scaled_dot_product_attention(x[0], x[1], x[2], mask, is_causal, scale, &result, &logsumexp);
    td_scaled_dot_product_attention_grad(x[3], x[0], x[1], x[2], result, logsumexp, mask, is_causal, scale, &by[0],
                                         &by[1], &by[2]);
    td_tensor *sum = td_sum(td_sin(by[0]), TD_ALL_AXES, 0);
    sum = td_add(sum, td_sum(td_multiply(by[1], td_sin(by[1])), TD_ALL_AXES, 0));
    return td_add(sum, td_sum(td_exp(td_negative(td_square(by[2]))), TD_ALL_AXES, 0));
}

/* A mask of 3 rows by 4 keys, whose last row sees no key. */
static td_tensor *seen(td_tensor *like) {
    static const int64_t keys[] = {2, 4, 0};
    td_tensor *places = td_arange(td_tensor_device(like), TD_I64, 0, 4, 1);
    return td_less(places, td_upload(td_tensor_device(like), TD_I64, TD_SHAPE(3, 1), keys));
}

static td_tensor *plain(td_tensor **x) {
    return attention(td_square(x[0]), x[1], x[2], NULL, 0, 0);
}
static const struct autograd_case plain_case = {
    OP_ATTENTION, "matrices", plain, -1, 1, true, 3, {2, 2, 2}, {{3, 2}, {4, 2}, {4, 3}}};

static td_tensor *scaled(td_tensor **x) {
    return attention(td_square(x[0]), x[1], x[2], NULL, 1, 0.4);
}
static const struct autograd_case scaled_case = {OP_ATTENTION, "a scale, causal, two heads",     scaled, -1, 1, true, 3,
                                                 {3, 3, 3},    {{2, 3, 2}, {2, 4, 2}, {2, 4, 3}}};

static td_tensor *shared(td_tensor **x) {
    return attention(td_square(x[0]), x[1], x[2], NULL, 0, 0);
}
static const struct autograd_case shared_case = {OP_ATTENTION,
                                                 "four heads on two, batches",
                                                 shared,
                                                 -1,
                                                 1,
                                                 true,
                                                 3,
                                                 {4, 4, 4},
                                                 {{2, 4, 2, 2}, {2, 2, 3, 2}, {2, 2, 3, 2}}};

static td_tensor *bool_mask(td_tensor **x) {
    return attention(td_square(x[0]), x[1], x[2], seen(x[0]), 0, 0);
}
static const struct autograd_case bool_mask_case = {
    OP_ATTENTION, "a bool mask, and a row that sees no key", bool_mask, -1, 1, true, 3,
    {3, 3, 3},    {{2, 3, 2}, {1, 4, 2}, {1, 4, 3}}};

static td_tensor *added_mask(td_tensor **x) {
    return attention(x[0], x[1], x[2], td_square(x[3]), 1, 0);
}
static const struct autograd_case added_mask_case = {
    OP_ATTENTION, "a mask that is added and broadcasts, causal",        added_mask, -1, 1, true, 4,
    {4, 4, 4, 3}, {{2, 4, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}, {4, 1, 4}}};

static td_tensor *constant_mask(td_tensor **x) {
    return attention(x[0], x[1], x[2],
                     td_where(seen(x[0]), td_arange(td_tensor_device(x[0]), TD_F64, 0, 4, 1),
                              td_full(td_tensor_device(x[0]), TD_F64, 0, NULL, -INFINITY)),
                     0, 0);
}
static const struct autograd_case constant_mask_case = {OP_ATTENTION,
                                                        "a mask that is added, and is a constant",
                                                        constant_mask,
                                                        -1,
                                                        1,
                                                        true,
                                                        3,
                                                        {2, 2, 2},
                                                        {{3, 2}, {4, 2}, {4, 3}}};

static td_tensor *with_logsumexp(td_tensor **x) {
    return both(td_square(x[0]), x[1], x[2], NULL, 1, 0);
}
static const struct autograd_case with_logsumexp_case = {OP_ATTENTION,
                                                         "both results",
                                                         with_logsumexp,
                                                         -1,
                                                         1,
                                                         true,
                                                         3,
                                                         {4, 4, 4},
                                                         {{1, 4, 2, 2}, {1, 2, 3, 2}, {1, 2, 3, 2}}};

static td_tensor *logsumexp_alone(td_tensor **x) {
    return logsumexp_of(td_square(x[0]), x[1], x[2]);
}
static const struct autograd_case logsumexp_alone_case = {
    OP_ATTENTION, "logsumexp alone", logsumexp_alone, -1, 1, true, 3, {2, 2, 2}, {{3, 2}, {4, 2}, {4, 3}}};

static td_tensor *grad_plain(td_tensor **x) {
    return gradients(x, NULL, 0, 0);
}
static const struct autograd_case grad_plain_case = {
    OP_ATTENTION_GRAD, "matrices", grad_plain, -1, 1, true, 4, {2, 2, 2, 2}, {{3, 2}, {4, 2}, {4, 3}, {3, 3}}};

static td_tensor *grad_shared(td_tensor **x) {
    return gradients(x, NULL, 1, 0.4);
}
static const struct autograd_case grad_shared_case = {OP_ATTENTION_GRAD,
                                                      "four heads on two, causal, a scale",
                                                      grad_shared,
                                                      -1,
                                                      1,
                                                      true,
                                                      4,
                                                      {4, 4, 4, 4},
                                                      {{1, 4, 2, 2}, {1, 2, 3, 2}, {1, 2, 3, 1}, {1, 4, 2, 1}}};

static td_tensor *grad_bool(td_tensor **x) {
    return gradients(x, seen(x[0]), 0, 0);
}
static const struct autograd_case grad_bool_case = {
    OP_ATTENTION_GRAD, "a bool mask, and a row that sees no key", grad_bool, -1, 1, true, 4,
    {2, 2, 2, 2},      {{3, 2}, {4, 2}, {4, 3}, {3, 3}}};

static td_tensor *grad_added(td_tensor **x) {
    return gradients(x, td_square(x[4]), 0, 0);
}
static const struct autograd_case grad_added_case = {OP_ATTENTION_GRAD,
                                                     "a mask that is added",
                                                     grad_added,
                                                     -1,
                                                     1,
                                                     true,
                                                     5,
                                                     {2, 2, 2, 2, 2},
                                                     {{3, 2}, {4, 2}, {4, 3}, {3, 3}, {3, 4}}};

const struct autograd_case *const autograd_attention_cases[] = {&plain_case,
                                                                &scaled_case,
                                                                &shared_case,
                                                                &bool_mask_case,
                                                                &added_mask_case,
                                                                &constant_mask_case,
                                                                &with_logsumexp_case,
                                                                &logsumexp_alone_case,
                                                                &grad_plain_case,
                                                                &grad_shared_case,
                                                                &grad_bool_case,
                                                                &grad_added_case,
                                                                NULL};
