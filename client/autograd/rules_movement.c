/* Rules of operations that move elements: the gradient moves back. */
#include "client/autograd/rule.h"

RULE(reshape) {
    rule_give_reshaped(call, 0, call->g[0]);
}
RULE(squeeze) {
    rule_give_reshaped(call, 0, call->g[0]);
}
RULE(expand_dims) {
    rule_give_reshaped(call, 0, call->g[0]);
}

RULE(broadcast_to) {
    rule_give(call, 0, call->g[0]);
}

RULE(matrix_transpose) {
    rule_give(call, 0, td_transpose(call->g[0]));
}

RULE(permute_dims) {
    struct permute_dims_attributes attributes;
    int64_t inverse[TD_RANK_MAX] = {0};
    permute_dims_attributes_read(&call->node->attributes, &attributes);
    int rank = (int)attributes.axes.count;
    for (int i = 0; i < rank; i++) {
        int64_t axis = attributes.axes.values[i];
        inverse[axis < 0 ? axis + rank : axis] = i;
    }
    rule_give(call, 0, td_permute(call->g[0], rank, inverse));
}

/* ---- slices ---- */

/* step - 1 zeros behind each element of an axis except the last one; `type` is the tensor's, and then the result's. */
static td_tensor *spread(td_tensor *x, struct tensor_type *type, int axis, int64_t step) {
    int64_t outer = 1, inner = 1, count = type->shape[axis];
    for (int i = 0; i < type->rank; i++) {
        outer *= i < axis ? type->shape[i] : 1;
        inner *= i > axis ? type->shape[i] : 1;
    }
    td_tensor *apart = td_reshape(x, TD_SHAPE(outer, count, 1, inner));
    td_tensor *padded = td_pad(apart, TD_SHAPE(0, 0, 0, 0, 0, step - 1, 0, 0), TD_PAD_MODE_CONSTANT, 0);
    type->shape[axis] = count * step;
    td_tensor *line = td_reshape(padded, type->rank, type->shape);
    type->shape[axis] = (count - 1) * step + 1;
    return td_slice(line, axis, 0, type->shape[axis], 1);
}

RULE(slice) {
    struct slice_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    struct tensor_type now = call->node->outputs[0].type;
    td_tensor *g = call->g[0];
    int64_t widths[2 * TD_RANK_MAX], added = 0;
    slice_attributes_read(&call->node->attributes, &attributes);
    for (int axis = 0; axis < type->rank; axis++) {
        const int64_t *range = attributes.ranges.values + (ptrdiff_t)axis * 3;
        struct op_slice slice = {0};
        struct fault fault;
        op_slice(type->shape[axis], range[0], range[1], range[2], &slice, &fault); /* succeeds: the slice was made */
        int64_t first = slice.start;
        if (slice.step < 0) {
            g = td_flip(g, TD_AXES(axis));
            first += (slice.count - 1) * slice.step;
            slice.step = -slice.step;
        }
        if (slice.step > 1)
            g = spread(g, &now, axis, slice.step);
        widths[2 * axis] = first;
        widths[2 * axis + 1] = type->shape[axis] - first - now.shape[axis];
        added += widths[2 * axis] + widths[2 * axis + 1];
    }
    rule_give(call, 0, added ? td_pad(g, 2 * type->rank, widths, TD_PAD_MODE_CONSTANT, 0) : g);
}

/* ---- joins ---- */

RULE(concat) {
    struct concat_attributes attributes;
    concat_attributes_read(&call->node->attributes, &attributes);
    int rank = rule_type(call, 0)->rank, axis = (int)(attributes.axis < 0 ? attributes.axis + rank : attributes.axis);
    int64_t from = 0;
    for (unsigned i = 0; i < call->node->n_inputs; i++) {
        int64_t to = from + rule_type(call, i)->shape[axis];
        if (rule_wants(call, i))
            rule_give(call, i, td_slice(call->g[0], axis, from, to, 1));
        from = to;
    }
}

RULE(stack) {
    struct stack_attributes attributes;
    stack_attributes_read(&call->node->attributes, &attributes);
    for (unsigned i = 0; i < call->node->n_inputs; i++)
        if (rule_wants(call, i))
            rule_give_reshaped(call, i, td_slice(call->g[0], (int)attributes.axis, i, (int64_t)i + 1, 1));
}

/* ---- diagonals, triangles, borders ---- */

/* The gradient stands in each row (with an offset below 0: in each column) of a matrix, of which the diagonal stays. */
RULE(diagonal) {
    struct diagonal_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0), *result = &call->node->outputs[0].type;
    diagonal_attributes_read(&call->node->attributes, &attributes);
    int rank = type->rank;
    int64_t axis1 = attributes.axis1 < 0 ? attributes.axis1 + rank : attributes.axis1;
    int64_t axis2 = attributes.axis2 < 0 ? attributes.axis2 + rank : attributes.axis2;
    int64_t rows = type->shape[axis1], columns = type->shape[axis2], length = result->shape[rank - 2];
    if (length == 0)
        return;
    bool above = attributes.offset >= 0;
    int64_t widths[2 * TD_RANK_MAX] = {0}, axes[TD_RANK_MAX];
    widths[2 * (rank - 2) + 1] = (above ? rows : columns) - length;
    td_tensor *line = td_pad(call->g[0], 2 * (rank - 1), widths, TD_PAD_MODE_CONSTANT, 0);
    td_tensor *lines = td_expand_dims(line, above ? -1 : -2);
    td_tensor *there = td_eye(call->node->device, TD_BOOL, rows, columns, attributes.offset);
    td_tensor *matrix = td_where(there, lines, rule_number(lines, 0));
    for (int i = 0, next = 0; i < rank; i++)
        axes[i] = i == axis1 ? rank - 2 : i == axis2 ? rank - 1 : next++;
    rule_give(call, 0, td_permute(matrix, rank, axes));
}

RULE(tril) {
    struct tril_attributes attributes;
    tril_attributes_read(&call->node->attributes, &attributes);
    rule_give(call, 0, td_tril(call->g[0], attributes.diagonal));
}
RULE(triu) {
    struct triu_attributes attributes;
    triu_attributes_read(&call->node->attributes, &attributes);
    rule_give(call, 0, td_triu(call->g[0], attributes.diagonal));
}

/* What the elements from `start` to `stop` of an axis, which were added on one side, give to x, which has n elements on the axis: with the
 * others' zeros around. In x their place begins at `at`. */
static td_tensor *border(td_tensor *g, int axis, enum op_pad_mode mode, int64_t start, int64_t stop, int64_t at,
                         int64_t n) {
    int64_t widths[2 * TD_RANK_MAX] = {0}, extent = stop - start;
    if (!g)
        return NULL;
    td_tensor *side = td_slice(g, axis, start, stop, 1);
    if (mode == OP_PAD_MODE_EDGE) {
        side = td_sum(side, TD_AXES(axis), 1);
        extent = 1;
    }
    if (mode == OP_PAD_MODE_REFLECT)
        side = td_flip(side, TD_AXES(axis));
    widths[2 * axis] = at;
    widths[2 * axis + 1] = n - at - extent;
    return td_pad(side, 2 * td_tensor_rank(g), widths, TD_PAD_MODE_CONSTANT, 0);
}

/* The gradient before x was padded along one axis, which has n elements. */
static td_tensor *unpadded(td_tensor *g, int axis, enum op_pad_mode mode, int64_t before, int64_t after, int64_t n) {
    bool wrap = mode == OP_PAD_MODE_WRAP, reflect = mode == OP_PAD_MODE_REFLECT;
    td_tensor *sum = td_slice(g, axis, before, before + n, 1);
    if (mode != OP_PAD_MODE_CONSTANT && before)
        sum = td_add(sum, border(g, axis, mode, 0, before, wrap ? n - before : reflect ? 1 : 0, n));
    if (mode != OP_PAD_MODE_CONSTANT && after) {
        int64_t at = wrap ? 0 : reflect ? n - 1 - after : n - 1;
        sum = td_add(sum, border(g, axis, mode, before + n, before + n + after, at, n));
    }
    return sum;
}

RULE(pad) {
    struct pad_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    td_tensor *g = call->g[0];
    pad_attributes_read(&call->node->attributes, &attributes);
    for (int axis = 0; axis < type->rank; axis++) {
        const int64_t *widths = attributes.widths.values + (ptrdiff_t)axis * 2;
        if (widths[0] || widths[1])
            g = unpadded(g, axis, attributes.mode, widths[0], widths[1], type->shape[axis]);
    }
    rule_give(call, 0, g);
}
