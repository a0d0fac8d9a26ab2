/* Rules of reductions. */
#include "client/autograd/rule.h"

#include <math.h>

/* The gradient of a reduction over `axes`, with an axis of extent 1 for each axis that it lost: so it broadcasts against the input. */
static td_tensor *unreduced(const struct rule_call *call, td_tensor *g, struct op_ints axes) {
    const struct tensor_type *type = rule_type(call, 0);
    int64_t shape[TD_RANK_MAX];
    for (int i = 0; i < type->rank; i++)
        shape[i] = axes.count ? type->shape[i] : 1;
    for (unsigned i = 0; i < axes.count; i++)
        shape[axes.values[i] < 0 ? axes.values[i] + type->rank : axes.values[i]] = 1;
    return td_reshape(g, type->rank, shape);
}

/* Divided by a number that the dtype need not hold: f16 and bf16 divide in f32. */
static td_tensor *divided(td_tensor *x, double divisor) {
    if (!x)
        return NULL;
    td_dtype dtype = td_tensor_dtype(x);
    bool wide = dtype == TD_F64 || dtype == TD_C128;
    td_tensor *number = td_full(td_tensor_device(x), wide ? TD_F64 : TD_F32, 0, NULL, divisor);
    td_tensor *quotient = td_divide(x, number);
    return quotient && td_tensor_dtype(quotient) != dtype ? td_cast(quotient, dtype) : quotient;
}

/* Bit i: axis i of the input is reduced. */
static uint32_t reduced_axes(const struct rule_call *call, struct op_ints axes) {
    struct fault fault;
    uint32_t mask = 0;
    op_reduced_axes(&axes, rule_type(call, 0)->rank, &mask, &fault); /* succeeds: the reduction was made */
    return mask;
}

/* How many elements each element of the result comes from. */
static double reduced_count(const struct rule_call *call, struct op_ints axes) {
    const struct tensor_type *type = rule_type(call, 0);
    uint32_t mask = reduced_axes(call, axes);
    double count = 1;
    for (int i = 0; i < type->rank; i++)
        count *= mask & 1U << i ? (double)type->shape[i] : 1;
    return count;
}

RULE(sum) {
    struct reduction_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    reduction_attributes_read(&call->node->attributes, &attributes);
    rule_give(call, 0, td_broadcast_to(unreduced(call, call->g[0], attributes.axes), type->rank, type->shape));
}

RULE(mean) {
    struct reduction_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    reduction_attributes_read(&call->node->attributes, &attributes);
    td_tensor *g = divided(call->g[0], reduced_count(call, attributes.axes));
    rule_give(call, 0, td_broadcast_to(unreduced(call, g, attributes.axes), type->rank, type->shape));
}

/* The product of the others: of those before, and of those behind, which has a value where elements are 0, too. */
static td_tensor *product_of_others(td_tensor *x, int axis) {
    td_tensor *before = td_slice(td_cumulative_prod(x, axis, 1), axis, 0, -1, 1);
    td_tensor *behind = td_slice(td_cumulative_prod(td_flip(x, TD_AXES(axis)), axis, 1), axis, 0, -1, 1);
    return td_multiply(before, td_flip(behind, TD_AXES(axis)));
}

RULE(prod) {
    struct reduction_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    int rank = type->rank, place = 0;
    int64_t axes[TD_RANK_MAX], inverse[TD_RANK_MAX], shape[TD_RANK_MAX], rows = 1, columns = 1;
    reduction_attributes_read(&call->node->attributes, &attributes);
    uint32_t mask = reduced_axes(call, attributes.axes);
    for (int reduced = 0; reduced < 2; reduced++) {
        for (int i = 0; i < rank; i++) {
            if ((mask >> i & 1) == (uint32_t)reduced) {
                axes[place] = i;
                inverse[i] = place;
                shape[place++] = type->shape[i];
                *(reduced ? &columns : &rows) *= type->shape[i];
            }
        }
    }
    td_tensor *lines = td_reshape(td_permute(rule_conjugate(rule_input(call, 0)), rank, axes), TD_SHAPE(rows, columns));
    td_tensor *others = td_reshape(product_of_others(lines, 1), rank, shape);
    rule_give(call, 0, td_multiply(unreduced(call, call->g[0], attributes.axes), td_permute(others, rank, inverse)));
}

/* The gradient in equal parts to the elements for which `chosen` holds, of which there is one at least for each result. */
static td_tensor *in_parts(td_tensor *g, td_tensor *chosen, struct op_ints axes) {
    if (!g || !chosen)
        return NULL;
    td_tensor *count = td_cast(td_sum(chosen, (int)axes.count, axes.values, 1), td_tensor_dtype(g));
    return td_where(chosen, td_divide(g, count), rule_number(g, 0));
}

static void extreme(struct rule_call *call) {
    struct reduction_attributes attributes;
    reduction_attributes_read(&call->node->attributes, &attributes);
    td_tensor *y = unreduced(call, rule_output(call, 0), attributes.axes);
    td_tensor *g = unreduced(call, call->g[0], attributes.axes);
    rule_give(call, 0, in_parts(g, td_equal(rule_input(call, 0), y), attributes.axes));
}
RULE(max) {
    extreme(call);
}
RULE(min) {
    extreme(call);
}

/* 2 · factor / max(n - correction, 0) · (x - mean), for a factor of the result's shape. */
static void give_variance(struct rule_call *call, td_tensor *factor) {
    struct variance_attributes attributes;
    td_tensor *x = rule_input(call, 0);
    variance_attributes_read(&call->node->attributes, &attributes);
    struct op_ints axes = attributes.axes;
    double divisor = fmax(reduced_count(call, axes) - attributes.correction, 0) / 2;
    td_tensor *distance = td_subtract(x, td_mean(x, (int)axes.count, axes.values, 1));
    rule_give(call, 0, td_multiply(unreduced(call, divided(factor, divisor), axes), distance));
}
RULE(var) {
    give_variance(call, call->g[0]);
}
/* Where all elements are equal the root has no slope; there it is 0. */
RULE(std) {
    td_tensor *y = rule_output(call, 0), *zero = rule_number(y, 0);
    td_tensor *slope = td_divide(rule_scale(call->g[0], 0.5), y);
    give_variance(call, td_where(td_equal(y, zero), zero, slope));
}

/* exp(x - y) */
RULE(logsumexp) {
    struct reduction_attributes attributes;
    reduction_attributes_read(&call->node->attributes, &attributes);
    td_tensor *y = unreduced(call, rule_output(call, 0), attributes.axes);
    td_tensor *share = td_exp(td_subtract(rule_input(call, 0), y));
    rule_give(call, 0, td_multiply(unreduced(call, call->g[0], attributes.axes), share));
}

/* sign(x) · (|x| / y)^(ord - 1), and 0 where x is. At infinite orders to the elements with this magnitude, in equal parts. */
RULE(vector_norm) {
    struct vector_norm_attributes attributes;
    td_tensor *x = rule_input(call, 0), *zero = rule_number(rule_output(call, 0), 0); /* real, as the norm */
    vector_norm_attributes_read(&call->node->attributes, &attributes);
    double ord = attributes.ord;
    td_tensor *g = unreduced(call, call->g[0], attributes.axes);
    td_tensor *y = unreduced(call, rule_output(call, 0), attributes.axes);
    if (ord == 2) {
        td_tensor *quotient = td_where(td_equal(y, zero), zero, td_divide(g, rule_divisor(y)));
        rule_give(call, 0, td_multiply(quotient, x));
    } else if (ord == 1) {
        rule_give(call, 0, td_multiply(g, td_sign(x)));
    } else if (isinf(ord)) {
        td_tensor *part = in_parts(g, td_equal(td_abs(x), y), attributes.axes);
        rule_give(call, 0, td_multiply(part, td_sign(x)));
    } else if (ord != 0) { /* a number of elements has no slope */
        td_tensor *part = td_divide(rule_divisor(td_abs(x)), rule_divisor(y));
        td_tensor *slope = td_multiply(td_sign(x), td_pow(part, rule_number(y, ord - 1)));
        rule_give(call, 0, td_where(td_equal(x, zero), zero, td_multiply(g, slope)));
    }
}
