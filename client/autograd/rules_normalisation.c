/* Rules of normalisations. First derivatives are the library's gradients; those of the gradients are composed.
 *
 * Names in formulas: x̂ is the normalised x without weight and bias, r is 1 / √(variance + epsilon), and m() the mean of a group, of N
 * elements. The derivative of x̂ is symmetric: J(h) = r·(h - m(h) - x̂·m(h·x̂)), of rms_norm without m(h). */
#include "client/autograd/rule.h"

/* x as a tensor of rank 4, in which a group and what shares a weight are whole axes. */
struct groups {
    int64_t shape[4], factors[4]; /* of x; of the weight and the bias, which broadcast to it */
    int64_t axes[3];              /* of a group */
    int n_axes;
    double elements, epsilon;
    bool centred; /* by the mean */
};

static int64_t product(const struct tensor_type *type, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= type->shape[i];
    return n;
}

/* (before, channels, 1, behind): a group is a channel. */
static struct groups by_channel(const struct tensor_type *x, int64_t given, double epsilon) {
    int axis = (int)(given < 0 ? given + x->rank : given);
    int64_t before = product(x, 0, axis), behind = product(x, axis + 1, x->rank), channels = x->shape[axis];
    return (struct groups){.shape = {before, channels, 1, behind},
                           .factors = {1, channels, 1, 1},
                           .axes = {0, 2, 3},
                           .n_axes = 3,
                           .elements = (double)(before * behind),
                           .epsilon = epsilon,
                           .centred = true};
}

/* (rows, 1, row, 1) */
static struct groups by_row(const struct tensor_type *x, int64_t axes, double epsilon, bool centred) {
    int first = x->rank - (int)axes;
    int64_t row = product(x, first, x->rank);
    return (struct groups){.shape = {product(x, 0, first), 1, row, 1},
                           .factors = {1, 1, row, 1},
                           .axes = {2, 3},
                           .n_axes = 2,
                           .elements = (double)row,
                           .epsilon = epsilon,
                           .centred = centred};
}

/* (batch, groups, channels of a group, places) */
static struct groups by_group(const struct tensor_type *x, int64_t groups, double epsilon) {
    int64_t channels = x->shape[1] / groups, places = product(x, 2, x->rank);
    return (struct groups){.shape = {x->shape[0], groups, channels, places},
                           .factors = {1, groups, channels, 1},
                           .axes = {2, 3},
                           .n_axes = 2,
                           .elements = (double)(channels * places),
                           .epsilon = epsilon,
                           .centred = true};
}

/* ---- parts ---- */

static td_tensor *mean(const struct groups *at, td_tensor *x) {
    return rule_scale(td_sum(x, at->n_axes, at->axes, 1), 1 / at->elements);
}

static td_tensor *centred(const struct groups *at, td_tensor *x) {
    return at->centred ? td_subtract(x, mean(at, x)) : x;
}

/* The sum over all that shares a weight. */
static td_tensor *factor_sum(const struct groups *at, td_tensor *x) {
    int64_t axes[4];
    int count = 0;
    for (int i = 0; i < 4; i++)
        if (at->factors[i] == 1)
            axes[count++] = i;
    return td_sum(x, count, axes, 1);
}

static td_tensor *as_groups(const struct groups *at, td_tensor *x) {
    return td_reshape(rule_widen(x), 4, at->shape);
}
static td_tensor *as_factors(const struct groups *at, td_tensor *factor) {
    return td_reshape(rule_widen(factor), 4, at->factors);
}

/* r, and in *normal x̂. */
static td_tensor *normalised(const struct groups *at, td_tensor *x, td_tensor **normal) {
    td_tensor *difference = centred(at, x);
    td_tensor *r = td_rsqrt(rule_shift(mean(at, td_square(difference)), at->epsilon));
    *normal = td_multiply(difference, r);
    return r;
}

/* J(h) */
static td_tensor *slope(const struct groups *at, td_tensor *r, td_tensor *normal, td_tensor *h) {
    td_tensor *along = td_multiply(normal, mean(at, td_multiply(h, normal)));
    return td_multiply(r, td_subtract(centred(at, h), along));
}

/* ---- derivatives of gradients ---- */

/* grad_x is J(h), with h = gradient·weight, grad_weight is Σ gradient·x̂ and grad_bias Σ gradient. With u, v and b as the gradients by these
 * three: the gradient by `gradient` is weight·J(u) + v·x̂ + b, as J is symmetric, and by the weight Σ gradient·J(u). The sum of u·J(h) is
 * N·r·E with E = m(u·h) - m(u)·m(h) - m(u·x̂)·m(h·x̂), and the derivative of r is -r²·x̂ / N. So the gradient by x is
 * J(v·gradient - r·(u·m(h·x̂) + h·m(u·x̂))) - r²·E·x̂. */
static void second(struct rule_call *call, const struct groups *at, bool bias) {
    td_tensor *g = as_groups(at, rule_input(call, 0)), *normal, *weight = rule_optional(call, 2);
    td_tensor *r = normalised(at, as_groups(at, rule_input(call, 1)), &normal);
    td_tensor *u = as_groups(at, rule_gradient(call, 0)), *v = as_factors(at, rule_gradient(call, 1));
    td_tensor *slope_u = slope(at, r, normal, u);
    weight = weight ? as_factors(at, weight) : NULL;
    if (rule_wants(call, 0)) {
        td_tensor *by_x = weight ? td_multiply(weight, slope_u) : slope_u;
        td_tensor *sum = td_add(by_x, td_multiply(v, normal));
        rule_give_reshaped(call, 0, bias ? td_add(sum, as_factors(at, rule_gradient(call, 2))) : sum);
    }
    if (rule_wants(call, 1)) {
        td_tensor *h = weight ? td_multiply(g, weight) : g;
        td_tensor *mean_u = mean(at, td_multiply(u, normal)), *mean_h = mean(at, td_multiply(h, normal));
        td_tensor *both = td_add(td_multiply(u, mean_h), td_multiply(h, mean_u));
        td_tensor *inner = slope(at, r, normal, td_subtract(td_multiply(v, g), td_multiply(r, both)));
        td_tensor *e = td_subtract(mean(at, td_multiply(centred(at, u), h)), td_multiply(mean_u, mean_h));
        td_tensor *by_r = td_multiply(td_multiply(td_square(r), e), normal);
        rule_give_reshaped(call, 1, td_subtract(inner, by_r));
    }
    if (rule_wants(call, 2))
        rule_give_reshaped(call, 2, factor_sum(at, td_multiply(g, slope_u)));
}

RULE(batch_norm_grad) {
    struct channel_norm_attributes read;
    channel_norm_attributes_read(&call->node->attributes, &read);
    const struct groups at = by_channel(rule_type(call, 1), read.axis, read.epsilon);
    second(call, &at, true);
}
RULE(layer_norm_grad) {
    struct row_norm_attributes read;
    row_norm_attributes_read(&call->node->attributes, &read);
    const struct groups at = by_row(rule_type(call, 1), read.axes, read.epsilon, true);
    second(call, &at, true);
}
RULE(rms_norm_grad) {
    struct row_norm_attributes read;
    row_norm_attributes_read(&call->node->attributes, &read);
    const struct groups at = by_row(rule_type(call, 1), read.axes, read.epsilon, false);
    second(call, &at, false);
}
RULE(group_norm_grad) {
    struct group_norm_attributes read;
    group_norm_attributes_read(&call->node->attributes, &read);
    const struct groups at = by_group(rule_type(call, 1), read.groups, read.epsilon);
    second(call, &at, true);
}

/* ---- first derivatives ---- */

/* What one of the gradients' functions has given, to x, which is input 0, and to the weight and the bias, which are inputs from `first` on. */
static void give(struct rule_call *call, unsigned first, td_tensor *x, td_tensor *weight, td_tensor *bias) {
    if (rule_wants(call, 0))
        rule_give(call, 0, x);
    if (rule_wants(call, first))
        rule_give(call, first, weight);
    if (rule_wants(call, first + 1))
        rule_give(call, first + 1, bias);
}

RULE(layer_norm) {
    struct row_norm_attributes at;
    td_tensor *x = NULL, *weight = NULL, *bias = NULL;
    row_norm_attributes_read(&call->node->attributes, &at);
    td_layer_norm_grad(call->g[0], rule_input(call, 0), rule_optional(call, 1), at.axes, at.epsilon, &x, &weight,
                       &bias);
    give(call, 1, x, weight, bias);
}

RULE(group_norm) {
    struct group_norm_attributes at;
    td_tensor *x = NULL, *weight = NULL, *bias = NULL;
    group_norm_attributes_read(&call->node->attributes, &at);
    td_group_norm_grad(call->g[0], rule_input(call, 0), rule_optional(call, 1), at.groups, at.epsilon, &x, &weight,
                       &bias);
    give(call, 1, x, weight, bias);
}

RULE(rms_norm) {
    struct row_norm_attributes at;
    td_tensor *x = NULL, *weight = NULL;
    row_norm_attributes_read(&call->node->attributes, &at);
    td_rms_norm_grad(call->g[0], rule_input(call, 0), rule_optional(call, 1), at.axes, at.epsilon, &x, &weight);
    give(call, 1, x, weight, NULL);
}

/* The gradient by x of the new mean, momentum·Σ x / N, and of the new variance, momentum·Σ (x - mean)² / (N - 1), as far as there are any. */
static td_tensor *by_statistics(struct rule_call *call, const struct groups *at, double momentum) {
    td_tensor *sum = NULL;
    if (call->g[1])
        sum = td_broadcast_to(rule_scale(as_factors(at, call->g[1]), momentum / at->elements), 4, at->shape);
    if (call->g[2]) {
        td_tensor *difference = centred(at, as_groups(at, rule_input(call, 0)));
        td_tensor *scale = rule_scale(as_factors(at, call->g[2]), 2 * momentum / (at->elements - 1));
        td_tensor *spread = td_multiply(difference, scale);
        sum = sum ? td_add(sum, spread) : spread;
    }
    const struct tensor_type *x = rule_type(call, 0);
    return td_reshape(sum, x->rank, x->shape);
}

/* The new statistics depend on x, too. */
RULE(batch_norm) {
    struct batch_norm_attributes read;
    td_tensor *x = NULL, *weight = NULL, *bias = NULL;
    batch_norm_attributes_read(&call->node->attributes, &read);
    const struct groups at = by_channel(rule_type(call, 0), read.axis, read.epsilon);
    if (call->g[0]) {
        td_batch_norm_grad(call->g[0], rule_input(call, 0), rule_optional(call, 3), (int)read.axis, read.epsilon, &x,
                           &weight, &bias);
        give(call, 3, x, weight, bias);
    }
    if (rule_wants(call, 0) && (call->g[1] || call->g[2])) {
        td_tensor *more = by_statistics(call, &at, read.momentum);
        rule_give(call, 0, call->g[0] ? td_add(x, more) : more);
    }
    for (unsigned i = 1; i <= 2; i++)
        if (rule_wants(call, i) && call->g[i])
            rule_give(call, i, rule_scale(call->g[i], 1 - read.momentum));
}

/* With r = 1 / √(variance + epsilon), as numbers that are given: (x - mean)·r·weight + bias. */
RULE(batch_norm_inference) {
    struct channel_norm_attributes read;
    channel_norm_attributes_read(&call->node->attributes, &read);
    const struct groups at = by_channel(rule_type(call, 0), read.axis, read.epsilon);
    td_tensor *weight = rule_optional(call, 3), *g = as_groups(&at, call->g[0]);
    td_tensor *r = td_rsqrt(rule_shift(as_factors(&at, rule_input(call, 2)), at.epsilon));
    td_tensor *scale = weight ? td_multiply(r, as_factors(&at, weight)) : r;
    td_tensor *sum = rule_wants(call, 1) || rule_wants(call, 4) ? factor_sum(&at, g) : NULL;
    if (rule_wants(call, 0))
        rule_give_reshaped(call, 0, td_multiply(g, scale));
    if (rule_wants(call, 1))
        rule_give_reshaped(call, 1, td_negative(td_multiply(sum, scale)));
    if (rule_wants(call, 2) || rule_wants(call, 3)) {
        td_tensor *x = as_groups(&at, rule_input(call, 0));
        td_tensor *along = factor_sum(&at, td_multiply(g, td_subtract(x, as_factors(&at, rule_input(call, 1)))));
        if (rule_wants(call, 2))
            rule_give_reshaped(call, 2, rule_scale(td_multiply(along, td_multiply(scale, td_square(r))), -0.5));
        if (rule_wants(call, 3))
            rule_give_reshaped(call, 3, td_multiply(along, r));
    }
    if (rule_wants(call, 4))
        rule_give_reshaped(call, 4, sum);
}
