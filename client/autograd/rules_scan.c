/* Rules of scans. An element counts in all results from its own on, so that gradients are scans from the other end. */
#include "client/autograd/rule.h"

#include <math.h>

static td_tensor *flipped(td_tensor *x, int64_t axis) {
    return td_flip(x, TD_AXES(axis));
}

/* Σ of the elements from each one on. */
static td_tensor *sum_from(td_tensor *x, int64_t axis) {
    return flipped(td_cumulative_sum(flipped(x, axis), (int)axis, 0), axis);
}

/* The gradient without that of the initial element, which is a constant. */
static td_tensor *without_initial(const struct rule_call *call, const struct cumulative_attributes *attributes) {
    td_tensor *g = call->g[0];
    return attributes->include_initial ? td_slice(g, (int)attributes->axis, 1, TD_NONE, 1) : g;
}

RULE(cumulative_sum) {
    struct cumulative_attributes attributes;
    cumulative_attributes_read(&call->node->attributes, &attributes);
    rule_give(call, 0, sum_from(without_initial(call, &attributes), attributes.axis));
}

/* x[i + distance], and 0 behind the end. */
static td_tensor *shifted(td_tensor *x, int axis, int64_t distance) {
    int64_t widths[2 * TD_RANK_MAX] = {0};
    if (!x)
        return NULL;
    widths[2 * axis + 1] = distance;
    return td_pad(td_slice(x, axis, distance, TD_NONE, 1), 2 * td_tensor_rank(x), widths, TD_PAD_MODE_CONSTANT, 0);
}

/* Σ gradient[i] · x[0] · … · x[i] / x[j] for i from j on: the product of the elements before x[j], times a sum that follows from the next one,
 * S[j] = gradient[j] + x[j + 1] · S[j + 1]. The sums over 1, 2, 4, … elements give it without a division, so that zeros are like other
 * numbers, also for further derivatives. */
RULE(cumulative_prod) {
    struct cumulative_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    td_tensor *x = rule_conjugate(rule_input(call, 0));
    cumulative_attributes_read(&call->node->attributes, &attributes);
    int axis = (int)(attributes.axis < 0 ? attributes.axis + type->rank : attributes.axis);
    td_tensor *sum = without_initial(call, &attributes), *product = shifted(x, axis, 1);
    for (int64_t distance = 1; distance < type->shape[axis]; distance *= 2) {
        sum = td_add(sum, td_multiply(product, shifted(sum, axis, distance)));
        if (2 * distance < type->shape[axis])
            product = td_multiply(product, shifted(product, axis, distance));
    }
    td_tensor *before = td_slice(td_cumulative_prod(x, axis, 1), axis, 0, -1, 1);
    rule_give(call, 0, td_multiply(before, sum));
}

static void extreme(struct rule_call *call) {
    struct scan_attributes attributes;
    scan_attributes_read(&call->node->attributes, &attributes);
    rule_give(call, 0, rule_put_back(call, rule_type(call, 0), rule_output(call, 1), attributes.axis));
}
RULE(cummax) {
    extreme(call);
}
RULE(cummin) {
    extreme(call);
}

/* exp(x[j]) · Σ g[i] · exp(-y[i]) for i from j on, for g where it is above 0, else 0: as the exponential of a logarithm, which does not overflow. */
static td_tensor *share(td_tensor *x, td_tensor *y, td_tensor *g, int64_t axis) {
    td_tensor *above = td_greater(g, rule_number(g, 0));
    td_tensor *logarithm = td_log(td_where(above, g, rule_number(g, 1)));
    td_tensor *terms = td_where(above, td_subtract(logarithm, y), rule_number(y, -INFINITY));
    td_tensor *sums = flipped(td_logcumsumexp(flipped(terms, axis), (int)axis), axis);
    return td_exp(td_add(sums, x));
}

RULE(logcumsumexp) {
    struct scan_attributes attributes;
    td_tensor *x = rule_input(call, 0), *y = rule_output(call, 0), *g = call->g[0];
    scan_attributes_read(&call->node->attributes, &attributes);
    rule_give(call, 0, td_subtract(share(x, y, g, attributes.axis), share(x, y, td_negative(g), attributes.axis)));
}
