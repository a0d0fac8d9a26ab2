/* Rules of operations that sort the elements of an axis. */
#include "proto/ops/op_rules.h"

#include <inttypes.h>

int op_rule_topk(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct topk_attributes attributes;
    int axis;
    topk_attributes_read(call->attributes, &attributes);
    int status = shape_axis(attributes.axis, x->rank, &axis, fault);
    if (status != STATUS_OK) {
        return status;
    }
    if (attributes.k < 0 || attributes.k > x->shape[axis]) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "k is %" PRId64 ", not between 0 and axis %d's extent of %" PRId64, attributes.k, axis,
                         x->shape[axis]);
    }
    for (int i = 0; i < 2; i++) {
        op_copy_shape(&out[i], x);
        out[i].shape[axis] = attributes.k;
    }
    return STATUS_OK;
}

/* sort and argsort have the same attributes. */
int op_rule_sort(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct sort_attributes attributes;
    int axis;
    sort_attributes_read(call->attributes, &attributes);
    int status = shape_axis(attributes.axis, call->inputs[0]->rank, &axis, fault);
    if (status == STATUS_OK) {
        op_copy_shape(out, call->inputs[0]);
    }
    return status;
}

int op_rule_searchsorted(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    if (call->inputs[0]->rank != 1) {
        char text[SHAPE_TEXT_MAX];
        return fault_set(fault, STATUS_SHAPE, "what is searched has shape %s, not one axis",
                         shape_text(call->inputs[0], text));
    }
    op_copy_shape(out, call->inputs[1]);
    return STATUS_OK;
}
