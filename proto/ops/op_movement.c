/* Rules of views, which have the same elements in another shape, and of joins: concat and stack. */
#include "proto/ops/op_rules.h"

#include <inttypes.h>
#include <string.h>

/* ---- views ---- */

static int refuse_reshape(const struct op_call *call, const struct op_ints *shape, struct fault *fault) {
    struct tensor_type wanted = {.rank = (int)shape->count};
    char from[SHAPE_TEXT_MAX], to[SHAPE_TEXT_MAX];
    memcpy(wanted.shape, shape->values, shape->count * sizeof(int64_t));
    return fault_set(fault, STATUS_SHAPE, "cannot reshape %s to %s", shape_text(call->inputs[0], from),
                     shape_text(&wanted, to));
}

/* The product of the extents except a -1, whose place is *open. Negative: there are two of -1, or other negative extents. */
static int64_t reshape_product(const struct op_ints *shape, int *open) {
    int64_t product = 1;
    bool empty = false;
    *open = -1;
    for (unsigned i = 0; i < shape->count; i++) {
        int64_t extent = shape->values[i];
        if (extent == -1 && *open < 0) {
            *open = (int)i;
        } else if (extent < 0 || (extent > 0 && __builtin_mul_overflow(product, extent, &product))) {
            return -1;
        }
        empty |= extent == 0;
    }
    return empty ? 0 : product;
}

int op_rule_reshape(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct reshape_attributes attributes;
    reshape_attributes_read(call->attributes, &attributes);
    const struct op_ints *shape = &attributes.shape;
    if (shape->count > SHAPE_RANK_MAX) {
        return fault_set(fault, STATUS_SHAPE, "rank %u is above %d", shape->count, SHAPE_RANK_MAX);
    }
    int open;
    int64_t elements = type_elements(call->inputs[0]), product = reshape_product(shape, &open);
    bool fits = open < 0 ? product == elements : product > 0 && elements % product == 0;
    if (!fits) {
        return refuse_reshape(call, shape, fault);
    }
    out->rank = (int)shape->count;
    for (int i = 0; i < out->rank; i++) {
        out->shape[i] = i == open ? elements / product : shape->values[i];
    }
    return STATUS_OK;
}

/* The next axis of a list that may name each axis only once. */
static int next_axis(int64_t value, int rank, uint32_t *seen, int *axis, struct fault *fault) {
    int status = shape_axis(value, rank, axis, fault);
    if (status == STATUS_OK && (*seen & 1U << *axis)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "axis %d is named twice", *axis);
    }
    if (status == STATUS_OK) {
        *seen |= 1U << *axis;
    }
    return status;
}

int op_rule_permute_dims(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct permute_dims_attributes attributes;
    permute_dims_attributes_read(call->attributes, &attributes);
    if (attributes.axes.count != (unsigned)x->rank) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u axes for rank %d", attributes.axes.count, x->rank);
    }
    uint32_t seen = 0;
    for (int i = 0; i < x->rank; i++) {
        int axis;
        int status = next_axis(attributes.axes.values[i], x->rank, &seen, &axis, fault);
        if (status != STATUS_OK) {
            return status;
        }
        out->shape[i] = x->shape[axis];
    }
    out->rank = x->rank;
    return STATUS_OK;
}

int op_rule_matrix_transpose(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    if (x->rank < 2) {
        char text[SHAPE_TEXT_MAX];
        return fault_set(fault, STATUS_SHAPE, "%s has fewer than two axes", shape_text(x, text));
    }
    op_copy_shape(out, x);
    out->shape[x->rank - 1] = x->shape[x->rank - 2];
    out->shape[x->rank - 2] = x->shape[x->rank - 1];
    return STATUS_OK;
}

/* A bound of a slice as an index from `low` to `high`; a negative bound counts from the end, as in Python. */
static int64_t slice_bound(int64_t bound, int64_t extent, int64_t low, int64_t high) {
    if (bound < 0) {
        bound += extent; /* no overflow: the signs differ */
    }
    return bound < low ? low : bound > high ? high : bound;
}

int op_slice(int64_t extent, int64_t start, int64_t stop, int64_t step, struct op_slice *out, struct fault *fault) {
    if (extent < 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "extent %" PRId64 " is negative", extent);
    }
    if (step == 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the step of a slice is 0");
    }
    if (step == OP_SLICE_NONE) {
        step = 1;
    }
    int64_t count;
    if (step > 0) {
        start = start == OP_SLICE_NONE ? 0 : slice_bound(start, extent, 0, extent);
        stop = stop == OP_SLICE_NONE ? extent : slice_bound(stop, extent, 0, extent);
        count = start < stop ? (stop - start - 1) / step + 1 : 0;
    } else {
        start = start == OP_SLICE_NONE ? extent - 1 : slice_bound(start, extent, -1, extent - 1);
        stop = stop == OP_SLICE_NONE ? -1 : slice_bound(stop, extent, -1, extent - 1);
        count = stop < start ? (start - stop - 1) / -step + 1 : 0;
    }
    *out = (struct op_slice){.start = count > 0 ? start : 0, .step = count > 1 ? step : 1, .count = count};
    return STATUS_OK;
}

int op_rule_slice(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct slice_attributes attributes;
    slice_attributes_read(call->attributes, &attributes);
    if (attributes.ranges.count != 3 * (unsigned)x->rank) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "rank %d needs %d numbers, not %u", x->rank, 3 * x->rank,
                         attributes.ranges.count);
    }
    for (int i = 0; i < x->rank; i++) {
        const int64_t *range = attributes.ranges.values + (ptrdiff_t)i * 3;
        struct op_slice slice = {0};
        int status = op_slice(x->shape[i], range[0], range[1], range[2], &slice, fault);
        if (status != STATUS_OK) {
            return status;
        }
        out->shape[i] = slice.count;
    }
    out->rank = x->rank;
    return STATUS_OK;
}

int op_rule_broadcast_to(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct broadcast_to_attributes attributes;
    broadcast_to_attributes_read(call->attributes, &attributes);
    int status = type_make(out, out->dtype, attributes.shape.values, attributes.shape.count, fault);
    if (status != STATUS_OK) {
        return status;
    }
    bool fits = out->rank >= x->rank;
    for (int i = 1; fits && i <= x->rank; i++) {
        int64_t extent = x->shape[x->rank - i];
        fits = extent == 1 || extent == out->shape[out->rank - i];
    }
    if (!fits) {
        char from[SHAPE_TEXT_MAX], to[SHAPE_TEXT_MAX];
        return fault_set(fault, STATUS_SHAPE, "cannot broadcast %s to %s", shape_text(x, from), shape_text(out, to));
    }
    return STATUS_OK;
}

int op_rule_squeeze(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct squeeze_attributes attributes;
    squeeze_attributes_read(call->attributes, &attributes);
    uint32_t dropped = 0;
    for (unsigned i = 0; i < attributes.axes.count; i++) {
        int axis;
        int status = next_axis(attributes.axes.values[i], x->rank, &dropped, &axis, fault);
        if (status != STATUS_OK) {
            return status;
        }
        if (x->shape[axis] != 1) {
            char text[SHAPE_TEXT_MAX];
            return fault_set(fault, STATUS_SHAPE, "axis %d of %s has extent %" PRId64 ", not 1", axis,
                             shape_text(x, text), x->shape[axis]);
        }
    }
    out->rank = 0;
    for (int i = 0; i < x->rank; i++) {
        if (!(dropped & 1U << i)) {
            out->shape[out->rank++] = x->shape[i];
        }
    }
    return STATUS_OK;
}

int op_rule_expand_dims(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct expand_dims_attributes attributes;
    int axis;
    expand_dims_attributes_read(call->attributes, &attributes);
    if (x->rank == SHAPE_RANK_MAX) {
        return fault_set(fault, STATUS_SHAPE, "rank %d is the highest there is", x->rank);
    }
    int status = shape_axis(attributes.axis, x->rank + 1, &axis, fault);
    if (status != STATUS_OK) {
        return status;
    }
    out->rank = x->rank + 1;
    for (int i = 0; i < out->rank; i++) {
        out->shape[i] = i < axis ? x->shape[i] : i == axis ? 1 : x->shape[i - 1];
    }
    return STATUS_OK;
}

/* ---- diagonals, triangles, borders ---- */

int op_rule_diagonal(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct diagonal_attributes attributes;
    uint32_t seen = 0;
    int rows, columns;
    diagonal_attributes_read(call->attributes, &attributes);
    int status = next_axis(attributes.axis1, x->rank, &seen, &rows, fault);
    if (status == STATUS_OK) {
        status = next_axis(attributes.axis2, x->rank, &seen, &columns, fault);
    }
    if (status != STATUS_OK) {
        return status;
    }
    int64_t offset = attributes.offset, down = x->shape[rows], across = x->shape[columns];
    /* An offset beyond the matrix leaves nothing; compared first, so that nothing overflows. */
    if (offset > 0) {
        across = offset < across ? across - offset : 0;
    } else {
        down = offset > -down ? down + offset : 0;
    }
    out->rank = 0;
    for (int i = 0; i < x->rank; i++) {
        if (!(seen & 1U << i)) {
            out->shape[out->rank++] = x->shape[i];
        }
    }
    out->shape[out->rank++] = down < across ? down : across;
    return STATUS_OK;
}

int op_rule_matrix(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    if (call->inputs[0]->rank < 2) {
        char text[SHAPE_TEXT_MAX];
        return fault_set(fault, STATUS_SHAPE, "%s has fewer than two axes", shape_text(call->inputs[0], text));
    }
    op_copy_shape(out, call->inputs[0]);
    return STATUS_OK;
}

/* How many elements may be added on a side of an axis. */
static int64_t pad_most(enum op_pad_mode mode, int64_t extent) {
    return mode == OP_PAD_MODE_CONSTANT || (mode == OP_PAD_MODE_EDGE && extent > 0) ? INT64_MAX
           : mode == OP_PAD_MODE_REFLECT && extent > 0                              ? extent - 1
           : mode == OP_PAD_MODE_WRAP                                               ? extent
                                                                                    : 0;
}

int op_rule_pad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct pad_attributes given;
    pad_attributes_read(call->attributes, &given);
    if (given.widths.count != 2 * (unsigned)x->rank) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "rank %d needs %d widths, not %u", x->rank, 2 * x->rank,
                         given.widths.count);
    }
    if (dtype_kind(out->dtype) < DTYPE_KIND_FLOAT &&
        !dtype_holds(out->dtype, given.value.i, op_scalar_above(&given.value, out->dtype))) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRId64 " is no value of %s", given.value.i,
                         dtype_name(out->dtype));
    }
    op_copy_shape(out, x);
    for (int i = 0; i < x->rank; i++) {
        int64_t most = pad_most(given.mode, x->shape[i]);
        for (int side = 0; side < 2; side++) {
            int64_t width = given.widths.values[2 * i + side];
            if (width < 0 || width > most) {
                return fault_set(fault, STATUS_INVALID_ARGUMENT,
                                 "width %" PRId64 " on axis %d of extent %" PRId64 " is not between 0 and %" PRId64,
                                 width, i, x->shape[i], most);
            }
            if (__builtin_add_overflow(out->shape[i], width, &out->shape[i])) {
                return fault_set(fault, STATUS_SHAPE, "axis %d would have more than 2^63 elements", i);
            }
        }
    }
    return STATUS_OK;
}

/* ---- joins ---- */

static int refuse_join(const struct op_call *call, unsigned i, struct fault *fault) {
    char first[SHAPE_TEXT_MAX], other[SHAPE_TEXT_MAX];
    return fault_set(fault, STATUS_SHAPE, "cannot join %s (input %u) to %s", shape_text(call->inputs[i], other), i,
                     shape_text(call->inputs[0], first));
}

int op_rule_concat(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct tensor_type sum = *call->inputs[0];
    struct concat_attributes attributes;
    int axis;
    concat_attributes_read(call->attributes, &attributes);
    int status = shape_axis(attributes.axis, sum.rank, &axis, fault);
    for (unsigned i = 1; status == STATUS_OK && i < call->n_inputs; i++) {
        struct tensor_type next = *call->inputs[i];
        int64_t extent = next.rank == sum.rank ? next.shape[axis] : 0;
        next.shape[axis] = sum.shape[axis]; /* all but this axis must agree */
        if (!shape_equal(&next, &sum)) {
            return refuse_join(call, i, fault);
        }
        if (__builtin_add_overflow(sum.shape[axis], extent, &sum.shape[axis])) {
            return fault_set(fault, STATUS_SHAPE, "extents along axis %d add up to more than 2^63 - 1", axis);
        }
    }
    op_copy_shape(out, &sum);
    return status;
}

int op_rule_stack(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    int axis;
    if (x->rank == SHAPE_RANK_MAX) {
        return fault_set(fault, STATUS_SHAPE, "rank %d is the highest there is", x->rank);
    }
    struct stack_attributes attributes;
    stack_attributes_read(call->attributes, &attributes);
    int status = shape_axis(attributes.axis, x->rank + 1, &axis, fault);
    if (status != STATUS_OK) {
        return status;
    }
    for (unsigned i = 1; i < call->n_inputs; i++) {
        if (!shape_equal(call->inputs[i], x)) {
            return refuse_join(call, i, fault);
        }
    }
    out->rank = x->rank + 1;
    for (int i = 0; i < out->rank; i++) {
        out->shape[i] = i < axis ? x->shape[i] : i == axis ? (int64_t)call->n_inputs : x->shape[i - 1];
    }
    return STATUS_OK;
}
