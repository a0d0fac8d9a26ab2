/* Rules of scans. */
#include "proto/ops/op_rules.h"

#include <inttypes.h>

int op_rule_cumulative(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct cumulative_attributes attributes;
    int axis;
    cumulative_attributes_read(call->attributes, &attributes);
    op_copy_shape(out, call->inputs[0]);
    int status = shape_axis(attributes.axis, out->rank, &axis, fault);
    if (status == STATUS_OK && attributes.include_initial) {
        if (out->shape[axis] == INT64_MAX) {
            return fault_set(fault, STATUS_SHAPE,
                             "axis %d has %" PRId64 " elements already: there can be no initial one", axis,
                             out->shape[axis]);
        }
        out->shape[axis]++;
    }
    return status;
}

int op_rule_cummax(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct scan_attributes attributes;
    int axis;
    scan_attributes_read(call->attributes, &attributes);
    op_copy_shape(&out[0], call->inputs[0]);
    op_copy_shape(&out[1], call->inputs[0]);
    return shape_axis(attributes.axis, call->inputs[0]->rank, &axis, fault);
}
