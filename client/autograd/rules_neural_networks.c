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
