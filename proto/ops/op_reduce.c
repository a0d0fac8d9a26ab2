/* Rules of reductions and softmax. */
#include "proto/ops/op_rules.h"

#include <math.h>

int op_reduced_axes(const struct op_ints *axes, int rank, uint32_t *mask, struct fault *fault) {
    uint32_t found = 0;
    for (unsigned i = 0; i < axes->count; i++) {
        int axis;
        int status = shape_axis(axes->values[i], rank, &axis, fault);
        if (status != STATUS_OK) {
            return status;
        }
        if (found & 1U << axis) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "axis %d is named twice", axis);
        }
        found |= 1U << axis;
    }
    *mask = axes->count ? found : (1U << rank) - 1;
    return STATUS_OK;
}

int op_rule_reduce(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct reduction_attributes attributes;
    uint32_t mask = 0;
    reduction_attributes_read(call->attributes, &attributes);
    int status = op_reduced_axes(&attributes.axes, x->rank, &mask, fault);
    if (status != STATUS_OK) {
        return status;
    }
    out->rank = 0;
    for (int i = 0; i < x->rank; i++) {
        if (!(mask & 1U << i)) {
            out->shape[out->rank++] = x->shape[i];
        } else if (attributes.keepdims) {
            out->shape[out->rank++] = 1;
        }
    }
    return STATUS_OK;
}

int op_rule_variance(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct variance_attributes attributes;
    variance_attributes_read(call->attributes, &attributes);
    if (!isfinite(attributes.correction)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the correction is %g, not a finite number",
                         attributes.correction);
    }
    return op_rule_reduce(call, out, fault); /* the axes and keepdims are where a sum has them */
}

int op_rule_vector_norm(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct vector_norm_attributes attributes;
    vector_norm_attributes_read(call->attributes, &attributes);
    if (isnan(attributes.ord)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "there is no norm of order NaN");
    }
    return op_rule_reduce(call, out, fault);
}

/* max, min and their positions need at least one element: the result may be empty, but no element of it may come from no elements. */
static int reduce_nothing(const struct op_call *call, struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    return fault_set(fault, STATUS_SHAPE, "there are no elements to choose from: the input is %s",
                     shape_text(call->inputs[0], text));
}

int op_rule_reduce_something(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = op_rule_reduce(call, out, fault);
    if (status == STATUS_OK && type_elements(call->inputs[0]) == 0 && type_elements(out) > 0) {
        return reduce_nothing(call, fault);
    }
    return status;
}

int op_rule_reduce_position(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct reduction_attributes attributes;
    reduction_attributes_read(call->attributes, &attributes);
    if (attributes.axes.count > 1) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "takes one axis or none, not %u", attributes.axes.count);
    }
    int status = op_rule_reduce_something(call, out, fault), axis;
    /* As in NumPy: along an axis without elements there is no position, even if the result is empty, too. */
    if (status == STATUS_OK && attributes.axes.count == 1 &&
        shape_axis(attributes.axes.values[0], x->rank, &axis, fault) == STATUS_OK && x->shape[axis] == 0) {
        return reduce_nothing(call, fault);
    }
    return status;
}

int op_rule_softmax(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int axis;
    struct softmax_attributes attributes;
    softmax_attributes_read(call->attributes, &attributes);
    op_copy_shape(out, call->inputs[0]);
    return shape_axis(attributes.axis, out->rank, &axis, fault);
}
