/* Rules of concat and stack. */
#include "proto/ops/op_rules.h"

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
