/* Rules of operations that read positions out of a tensor. The positions themselves are checked on the device. */
#include "proto/ops/op_rules.h"

#include <inttypes.h>

/* An empty axis has no valid index. It is refused here, because a launch on an empty input could not find that out. */
static int check_axis(const struct tensor_type *x, int axis, const struct tensor_type *out, struct fault *fault) {
    if (x->shape[axis] == 0 && type_elements(out) > 0) {
        char text[SHAPE_TEXT_MAX];
        return fault_set(fault, STATUS_OUT_OF_RANGE, "no index is in range: axis %d of %s is empty", axis,
                         shape_text(x, text));
    }
    return STATUS_OK;
}

int op_rule_take(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0], *indices = call->inputs[1];
    struct take_attributes attributes;
    int axis;
    take_attributes_read(call->attributes, &attributes);
    int status = shape_axis(attributes.axis, x->rank, &axis, fault);
    if (status != STATUS_OK) {
        return status;
    }
    if (indices->rank != 1) {
        char text[SHAPE_TEXT_MAX];
        return fault_set(fault, STATUS_SHAPE, "indices have shape %s, not one axis", shape_text(indices, text));
    }
    op_copy_shape(out, x);
    out->shape[axis] = indices->shape[0];
    return check_axis(x, axis, out, fault);
}

int op_rule_take_along_axis(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0], *indices = call->inputs[1];
    char x_text[SHAPE_TEXT_MAX], text[SHAPE_TEXT_MAX];
    struct take_along_axis_attributes attributes;
    int axis;
    take_along_axis_attributes_read(call->attributes, &attributes);
    int status = shape_axis(attributes.axis, x->rank, &axis, fault);
    if (status != STATUS_OK) {
        return status;
    }
    struct tensor_type along = *x; /* x with the indices' extent on the axis */
    bool fits = indices->rank == x->rank;
    if (fits) {
        along.shape[axis] = indices->shape[axis];
        fits = shape_broadcast(out, &along, indices, NULL) == STATUS_OK;
    }
    if (!fits) {
        return fault_set(fault, STATUS_SHAPE, "indices %s do not fit %s along axis %d", shape_text(indices, text),
                         shape_text(x, x_text), axis);
    }
    return check_axis(x, axis, out, fault);
}

int op_rule_one_hot(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *indices = call->inputs[0];
    struct one_hot_attributes attributes;
    one_hot_attributes_read(call->attributes, &attributes);
    int64_t classes = attributes.classes;
    if (classes <= 0 || classes > INT32_MAX) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRId64 " classes are not between 1 and %d", classes,
                         INT32_MAX);
    }
    if (indices->rank == SHAPE_RANK_MAX) {
        return fault_set(fault, STATUS_SHAPE, "rank %d is the highest there is", indices->rank);
    }
    int64_t shape[SHAPE_RANK_MAX];
    for (int i = 0; i < indices->rank; i++) {
        shape[i] = indices->shape[i];
    }
    shape[indices->rank] = classes;
    return type_make(out, out->dtype, shape, (size_t)indices->rank + 1, fault);
}
