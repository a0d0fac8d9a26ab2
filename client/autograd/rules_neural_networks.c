/* Rules of the operations of neural networks. */
#include "client/autograd/rule.h"

/* y · (gradient - Σ gradient · y) */
RULE(softmax) {
    struct softmax_attributes attributes;
    td_tensor *g = call->g[0], *y = rule_output(call, 0);
    softmax_attributes_read(&call->node->attributes, &attributes);
    td_tensor *sum = td_sum(td_multiply(g, y), TD_AXES(attributes.axis), 1);
    rule_give(call, 0, td_multiply(y, td_subtract(g, sum)));
}

/* gradient - exp(y) · Σ gradient */
RULE(log_softmax) {
    struct log_softmax_attributes attributes;
    td_tensor *g = call->g[0];
    log_softmax_attributes_read(&call->node->attributes, &attributes);
    td_tensor *sum = td_sum(g, TD_AXES(attributes.axis), 1);
    rule_give(call, 0, td_subtract(g, td_multiply(td_exp(rule_output(call, 0)), sum)));
}
