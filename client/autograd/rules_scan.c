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

/* With y[i] = x[0] · … · x[i]: Σ gradient[i] · y[i] / x[j] for i from j on, as long as x[j] is not 0. For the first zero of a line, y without it
 * stands in place of y / x; for elements behind it, all y are 0. (The second derivative by two zeros of one line is not right: the
 * later one is a constant here.) */
RULE(cumulative_prod) {
    struct cumulative_attributes attributes;
    td_tensor *x = rule_conjugate(rule_input(call, 0)), *zero = rule_number(x, 0), *one = rule_number(x, 1);
    cumulative_attributes_read(&call->node->attributes, &attributes);
    int axis = (int)attributes.axis;
    td_tensor *g = without_initial(call, &attributes);
    td_tensor *zeros = td_equal(x, zero), *count = td_cumulative_sum(zeros, axis, 0);
    td_tensor *first = td_logical_and(zeros, td_equal(count, rule_number(count, 1)));
    td_tensor *others = td_cumulative_prod(td_where(first, one, x), axis, 0);
    td_tensor *sum = sum_from(td_multiply(g, td_cumulative_prod(x, axis, 0)), axis);
    td_tensor *sum_first = sum_from(td_multiply(g, others), axis);
    rule_give(call, 0, td_where(first, sum_first, td_divide(sum, td_where(zeros, one, x))));
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
