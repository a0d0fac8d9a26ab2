/* Rules of attention. Where the library's gradient is not enough (it has none for a mask that is added, nor one of logsumexp), and for second
 * derivatives, the matrices of weights are in memory.
 *
 * Names in formulas: s is the scale, P the weights, exp(s·q·kᵀ + mask - logsumexp), O the result, G its gradient, and
 * D = P∘(G·vᵀ - Σ G∘O) the gradient of what the exponential is taken of, with the sum over the last axis. */
#include <math.h>

#include "client/autograd/rule.h"

/* The call's operands as (batch, heads of k and v, heads of q that share one of these, rows or keys, …). */
struct heads {
    struct rule_call *call;
    unsigned first, mask; /* inputs: q, k and v, and the mask */
    int64_t batch, shared, share, rows, keys;
    struct attention_attributes given;
    double scale;
    td_tensor *q, *k, *v, *result, *weights; /* weights: P */
};

/* A tensor of q's heads, with `last` as its last extent. */
static td_tensor *as_q(const struct heads *at, td_tensor *x, int64_t last) {
    return td_reshape(rule_widen(x), TD_SHAPE(at->batch, at->shared, at->share, at->rows, last));
}
static td_tensor *as_k(const struct heads *at, td_tensor *x, int64_t last) {
    return td_reshape(rule_widen(x), TD_SHAPE(at->batch, at->shared, 1, at->keys, last));
}

static td_tensor *as_mask(const struct heads *at, td_tensor *mask) {
    const struct tensor_type *q = rule_type(at->call, at->first);
    int64_t shape[TD_RANK_MAX];
    for (int i = 0; i < q->rank; i++)
        shape[i] = q->shape[i];
    shape[q->rank - 1] = at->keys;
    return as_q(at, td_broadcast_to(mask, q->rank, shape), at->keys);
}

/* P; zeros in a row that sees no key, whose logsumexp is -inf. */
static td_tensor *weights_of(const struct heads *at, td_tensor *logsumexp) {
    td_tensor *mask = rule_optional(at->call, at->mask), *of_rows = as_q(at, logsumexp, 1);
    td_tensor *scores = rule_scale(td_matmul(at->q, td_transpose(at->k)), at->scale);
    td_tensor *seen = td_not_equal(of_rows, rule_number(of_rows, -INFINITY));
    if (mask && td_tensor_dtype(mask) == TD_BOOL)
        seen = td_logical_and(seen, as_mask(at, mask));
    else if (mask)
        scores = td_add(scores, as_mask(at, mask));
    if (at->given.is_causal) {
        td_device *device = at->call->node->device;
        td_tensor *row = td_reshape(td_arange(device, TD_I64, 0, (double)at->rows, 1), TD_SHAPE(at->rows, 1));
        seen = td_logical_and(seen, td_greater_equal(row, td_arange(device, TD_I64, 0, (double)at->keys, 1)));
    }
    td_tensor *shifted = td_subtract(scores, of_rows);
    return td_exp(td_where(seen, shifted, rule_number(shifted, -INFINITY)));
}

/* `first` is q, with k and v behind it. */
static struct heads heads_of(struct rule_call *call, unsigned first, unsigned mask, td_tensor *result,
                             td_tensor *logsumexp) {
    const struct tensor_type *q = rule_type(call, first), *k = rule_type(call, first + 1),
                             *v = rule_type(call, first + 2);
    int rank = q->rank;
    struct heads at = {.call = call, .first = first, .mask = mask, .batch = 1, .shared = 1, .share = 1};
    for (int i = 0; i + 3 < rank; i++)
        at.batch *= q->shape[i];
    if (rank > 2) {
        at.shared = k->shape[rank - 3];
        at.share = at.shared ? q->shape[rank - 3] / at.shared : 1;
    }
    at.rows = q->shape[rank - 2];
    at.keys = k->shape[rank - 2];
    attention_attributes_read(&call->node->attributes, &at.given);
    int64_t d = q->shape[rank - 1], e = v->shape[rank - 1];
    at.scale = at.given.scale == 0 ? 1 / sqrt((double)d) : at.given.scale;
    at.q = as_q(&at, rule_input(call, first), d);
    at.k = as_k(&at, rule_input(call, first + 1), d);
    at.v = as_k(&at, rule_input(call, first + 2), e);
    at.result = as_q(&at, result, e);
    at.weights = weights_of(&at, logsumexp);
    return at;
}

static td_tensor *last_sum(td_tensor *x) {
    return td_sum(x, TD_AXES(-1), 1);
}

/* aᵀ·b, added up over the heads of q that share one of k and v. */
static td_tensor *to_keys(td_tensor *a, td_tensor *b) {
    return td_sum(td_matmul(td_transpose(a), b), TD_AXES(2), 1);
}

/* The gradient by what the exponential is taken of, given to q, k and the mask. `q` and `k` NULL: nothing to add to theirs. */
static void give_scores(const struct heads *at, td_tensor *scores, td_tensor *q, td_tensor *k) {
    struct rule_call *call = at->call;
    if (rule_wants(call, at->first)) {
        td_tensor *by_q = rule_scale(td_matmul(scores, at->k), at->scale);
        rule_give_reshaped(call, at->first, q ? td_add(by_q, q) : by_q);
    }
    if (rule_wants(call, at->first + 1)) {
        td_tensor *by_k = rule_scale(to_keys(scores, at->q), at->scale);
        rule_give_reshaped(call, at->first + 1, k ? td_add(by_k, k) : by_k);
    }
    if (rule_wants(call, at->mask)) {
        const struct tensor_type *type = rule_type(call, at->first);
        int64_t shape[TD_RANK_MAX];
        for (int i = 0; i < type->rank; i++)
            shape[i] = type->shape[i];
        shape[type->rank - 1] = at->keys;
        rule_give(call, at->mask, td_reshape(scores, type->rank, shape));
    }
}

/* By v Pᵀ·G. The gradient of logsumexp is that of a row's sum: P of it adds to D. */
static void composed(struct rule_call *call) {
    struct heads at = heads_of(call, 0, 3, rule_output(call, 0), rule_output(call, 1));
    const struct tensor_type *v = rule_type(call, 2);
    td_tensor *g = as_q(&at, rule_gradient(call, 0), v->shape[v->rank - 1]);
    td_tensor *of_rows = last_sum(td_multiply(g, at.result));
    if (call->g[1])
        of_rows = td_subtract(of_rows, as_q(&at, call->g[1], 1));
    td_tensor *by_weights = td_matmul(g, td_transpose(at.v));
    give_scores(&at, td_multiply(at.weights, td_subtract(by_weights, of_rows)), NULL, NULL);
    if (rule_wants(call, 2))
        rule_give_reshaped(call, 2, to_keys(at.weights, g));
}

RULE(attention) {
    struct attention_attributes at;
    td_tensor *gradients[3] = {NULL, NULL, NULL};
    if (call->g[1] || rule_wants(call, 3)) {
        composed(call);
        return;
    }
    attention_attributes_read(&call->node->attributes, &at);
    td_scaled_dot_product_attention_grad(call->g[0], rule_input(call, 0), rule_input(call, 1), rule_input(call, 2),
                                         rule_output(call, 0), rule_output(call, 1), rule_optional(call, 3),
                                         at.is_causal, at.scale, &gradients[0], &gradients[1], &gradients[2]);
    for (unsigned i = 0; i < 3; i++)
        if (rule_wants(call, i))
            rule_give(call, i, gradients[i]);
}

/* The gradients are s·D·k, s·Dᵀ·q and Pᵀ·G. With a, b and c as the gradients by these three, the one by D is F = s·(a·kᵀ + q·bᵀ), by Σ G∘O
 * it is -Σ P∘F, by P it is G·cᵀ + F∘(G·vᵀ - Σ G∘O), and by what the exponential is taken of, P times that. */
RULE(attention_grad) {
    struct heads at = heads_of(call, 1, 6, rule_input(call, 4), rule_input(call, 5));
    const struct tensor_type *q = rule_type(call, 1), *v = rule_type(call, 3);
    int64_t d = q->shape[q->rank - 1], e = v->shape[v->rank - 1];
    td_tensor *g = as_q(&at, rule_input(call, 0), e), *p = at.weights;
    td_tensor *a = as_q(&at, rule_gradient(call, 0), d), *b = as_k(&at, rule_gradient(call, 1), d);
    td_tensor *c = as_k(&at, rule_gradient(call, 2), e);
    td_tensor *slope = td_subtract(td_matmul(g, td_transpose(at.v)), last_sum(td_multiply(g, at.result)));
    td_tensor *scores = td_multiply(p, slope);
    td_tensor *f = rule_scale(td_add(td_matmul(a, td_transpose(at.k)), td_matmul(at.q, td_transpose(b))), at.scale);
    td_tensor *weighted = td_multiply(p, f), *sum = td_negative(last_sum(weighted));
    td_tensor *by_weights = td_add(td_matmul(g, td_transpose(c)), td_multiply(f, slope));
    td_tensor *by_scores = td_multiply(p, by_weights);
    if (rule_wants(call, 0)) {
        td_tensor *products = td_add(td_matmul(p, c), td_matmul(weighted, at.v));
        rule_give_reshaped(call, 0, td_add(products, td_multiply(sum, at.result)));
    }
    give_scores(&at, by_scores, rule_scale(td_matmul(scores, b), at.scale), rule_scale(to_keys(scores, a), at.scale));
    if (rule_wants(call, 3))
        rule_give_reshaped(call, 3, to_keys(weighted, g));
    if (rule_wants(call, 4))
        rule_give_reshaped(call, 4, td_multiply(sum, g));
    if (rule_wants(call, 5))
        rule_give_reshaped(call, 5, td_negative(last_sum(by_scores)));
}
