/* Rules of reductions and scans. */
#include "client/autograd/rule.h"

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

RULE(sum) {
    struct reduction_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    reduction_attributes_read(&call->node->attributes, &attributes);
    rule_give(call, 0, td_broadcast_to(unreduced(call, call->g[0], attributes.axes), type->rank, type->shape));
}
