/* Rules of pooling. All of these operations are linear in what they are differentiated by, once the positions are known: the derivative of
 * a gradient is the pooling itself. */
#include "client/autograd/rule.h"

#define LIST(list) (int)(list).count, (list).values

RULE(max_pool) {
    struct max_pool_attributes at;
    const struct tensor_type *x = rule_type(call, 0);
    max_pool_attributes_read(&call->node->attributes, &at);
    rule_give(call, 0,
              td_max_pool_grad(call->g[0], rule_output(call, 1), x->rank, x->shape, LIST(at.kernel), LIST(at.stride),
                               LIST(at.padding), LIST(at.dilation), at.ceil_mode, (td_layout)at.layout));
}

/* `type` with its places on one axis: (batch, channels, places) or (batch, places, channels). Returns that axis. */
static int flattened(const struct tensor_type *type, enum op_layout layout, int64_t *shape) {
    int places = layout == OP_LAYOUT_CHANNELS_LAST ? 1 : 2;
    shape[0] = type->shape[0];
    shape[3 - places] = type->shape[places == 1 ? type->rank - 1 : 1];
    shape[places] = 1;
    for (int i = 0; i < type->rank - 2; i++)
        shape[places] *= type->shape[places + i];
    return places;
}

/* The elements at the positions; a window that saw nothing has the position -1, and no part of the result. */
RULE(max_pool_grad) {
    struct max_pool_grad_attributes at;
    int64_t all[3], taken[3];
    max_pool_grad_attributes_read(&call->node->attributes, &at);
    int axis = flattened(&call->node->outputs[0].type, at.layout, all);
    flattened(rule_type(call, 0), at.layout, taken);
    td_tensor *indices = td_reshape(rule_input(call, 1), 3, taken);
    td_tensor *none = rule_number(indices, 0), *seen = td_greater_equal(indices, none);
    td_tensor *g = td_take_along_axis(td_reshape(call->g[0], 3, all), td_maximum(indices, none), axis);
    rule_give_reshaped(call, 0, td_where(seen, g, rule_number(g, 0)));
}

RULE(avg_pool) {
    struct avg_pool_attributes at;
    const struct tensor_type *x = rule_type(call, 0);
    avg_pool_attributes_read(&call->node->attributes, &at);
    rule_give(call, 0,
              td_avg_pool_grad(call->g[0], x->rank, x->shape, LIST(at.kernel), LIST(at.stride), LIST(at.padding),
                               at.ceil_mode, at.count_include_pad, (td_layout)at.layout));
}

RULE(avg_pool_grad) {
    struct avg_pool_grad_attributes at;
    avg_pool_grad_attributes_read(&call->node->attributes, &at);
    rule_give(call, 0,
              td_avg_pool(call->g[0], LIST(at.kernel), LIST(at.stride), LIST(at.padding), at.ceil_mode,
                          at.count_include_pad, (td_layout)at.layout));
}

RULE(adaptive_avg_pool) {
    struct adaptive_avg_pool_attributes at;
    const struct tensor_type *x = rule_type(call, 0);
    adaptive_avg_pool_attributes_read(&call->node->attributes, &at);
    rule_give(call, 0, td_adaptive_avg_pool_grad(call->g[0], x->rank, x->shape, (td_layout)at.layout));
}

RULE(adaptive_avg_pool_grad) {
    struct adaptive_avg_pool_grad_attributes at;
    const struct tensor_type *type = rule_type(call, 0);
    adaptive_avg_pool_grad_attributes_read(&call->node->attributes, &at);
    const int64_t *extents = type->shape + (at.layout == OP_LAYOUT_CHANNELS_LAST ? 1 : 2);
    rule_give(call, 0, td_adaptive_avg_pool(call->g[0], type->rank - 2, extents, (td_layout)at.layout));
}
