/* Rules of reading and writing positions: what was read gets its gradient back, what was written over gets none. */
#include "client/autograd/rule.h"

static int64_t axis_of(int64_t axis, int rank) {
    return axis < 0 ? axis + rank : axis;
}

/* A vector along one axis of a tensor: other axes have extent 1. */
static td_tensor *along(td_tensor *vector, int64_t axis, int rank) {
    int64_t shape[TD_RANK_MAX];
    for (int i = 0; i < rank; i++)
        shape[i] = i == axis ? -1 : 1;
    return td_reshape(vector, rank, shape);
}

RULE(take) {
    struct take_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    take_attributes_read(&call->node->attributes, &attributes);
    int64_t axis = axis_of(attributes.axis, type->rank);
    rule_give(call, 0, rule_put_back(call, type, along(rule_input(call, 1), axis, type->rank), axis));
}

/* x may have been broadcast to the indices. */
RULE(take_along_axis) {
    struct take_along_axis_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    struct tensor_type broadcast = call->node->outputs[0].type;
    take_along_axis_attributes_read(&call->node->attributes, &attributes);
    int64_t axis = axis_of(attributes.axis, type->rank);
    broadcast.shape[axis] = type->shape[axis];
    rule_give(call, 0, rule_put_back(call, &broadcast, rule_input(call, 1), axis));
}

/* Of several values for one element the last one counts: the positions, scattered in the same way, say which. */
static td_tensor *of_last_values(struct rule_call *call, int64_t axis) {
    td_tensor *indices = rule_input(call, 1);
    struct tensor_type type = *rule_type(call, 0);
    type.dtype = DTYPE_I64;
    td_tensor *numbers = td_arange(call->node->device, TD_I64, 0, (double)rule_type(call, 1)->shape[axis], 1);
    td_tensor *position = along(numbers, axis, type.rank);
    td_tensor *last =
        td_take_along_axis(td_scatter(rule_zeros(call, &type), indices, position, (int)axis), indices, (int)axis);
    td_tensor *g = td_take_along_axis(call->g[0], indices, (int)axis);
    return td_where(td_equal(last, position), g, rule_number(g, 0));
}

RULE(scatter) {
    struct scatter_attributes attributes;
    scatter_attributes_read(&call->node->attributes, &attributes);
    int64_t axis = axis_of(attributes.axis, rule_type(call, 0)->rank);
    if (rule_wants(call, 0))
        rule_give(call, 0, td_scatter(call->g[0], rule_input(call, 1), rule_number(call->g[0], 0), (int)axis));
    if (rule_wants(call, 2))
        rule_give(call, 2, of_last_values(call, axis));
}

RULE(scatter_add) {
    struct scatter_add_attributes attributes;
    scatter_add_attributes_read(&call->node->attributes, &attributes);
    if (rule_wants(call, 0))
        rule_give(call, 0, call->g[0]);
    if (rule_wants(call, 2))
        rule_give(call, 2, td_take_along_axis(call->g[0], rule_input(call, 1), (int)attributes.axis));
}

/* An element that was selected is result number (selected up to and with it) - 1. */
RULE(masked_select) {
    const struct tensor_type *x = rule_type(call, 0), *mask = rule_type(call, 1);
    struct tensor_type both = *x;
    shape_broadcast(&both, x, mask, NULL); /* succeeds: the selection was made */
    td_tensor *chosen = td_reshape(td_broadcast_to(rule_input(call, 1), both.rank, both.shape), TD_SHAPE(-1));
    td_tensor *count = td_cumulative_sum(chosen, 0, 0);
    td_tensor *place = td_maximum(td_subtract(count, rule_number(count, 1)), rule_number(count, 0));
    td_tensor *g = td_where(chosen, td_take(call->g[0], place, 0), rule_number(call->g[0], 0));
    rule_give(call, 0, td_reshape(g, both.rank, both.shape));
}

/* The value of a run is its first element; behind the last run there are none. */
RULE(unique_runs) {
    const struct tensor_type *type = rule_type(call, 0);
    td_tensor *g = rule_gradient(call, 0);
    td_tensor *number = td_arange(call->node->device, TD_I64, 0, (double)type->shape[0], 1);
    td_tensor *own = td_where(td_less(number, rule_output(call, 4)), g, rule_number(g, 0));
    rule_give(call, 0, td_scatter_add(rule_zeros(call, type), rule_output(call, 1), own, 0));
}

/* Back to the element that an element of the result came from: the first whose sum of counts, up to and with its own, is above its place. What is
 * behind the last one comes from an element more. */
RULE(repeat_each) {
    struct repeat_each_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    repeat_each_attributes_read(&call->node->attributes, &attributes);
    int64_t axis = axis_of(attributes.axis, type->rank);
    struct tensor_type longer = *type;
    longer.shape[axis]++;
    td_tensor *counts = td_cast(rule_input(call, 1), TD_I64), *none = counts ? rule_number(counts, 0) : NULL;
    td_tensor *sums = td_cumulative_sum(td_maximum(counts, none), 0, 0);
    td_tensor *all = td_arange(call->node->device, TD_I64, 0, (double)attributes.length, 1);
    td_tensor *places = td_searchsorted(sums, all, 1, NULL);
    td_tensor *back = rule_put_back(call, &longer, along(places, axis, type->rank), axis);
    rule_give(call, 0, td_slice(back, (int)axis, 0, -1, 1));
}
