/* Shapes of elementwise operations: the inputs broadcast. */
#include "proto/ops/op_rules.h"

int op_rule_same(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    (void)fault;
    op_copy_shape(out, call->inputs[0]);
    return STATUS_OK;
}

int op_rule_cast(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    enum dtype from = call->inputs[0]->dtype;
    if (dtype_is_complex(from) && !dtype_is_complex(out->dtype) && out->dtype != DTYPE_BOOL) {
        return fault_set(fault, STATUS_DTYPE, "a %s is not cast to %s: take its real or imag part, or abs",
                         dtype_name(from), dtype_name(out->dtype));
    }
    return op_rule_same(call, out, fault);
}

int op_rule_broadcast(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    op_copy_shape(out, call->inputs[0]);
    for (unsigned i = 1; i < call->n_inputs; i++) {
        const struct tensor_type *input = call->inputs[i];
        if (shape_equal(out, input)) {
            continue;
        }
        struct tensor_type before = *out;
        int status = shape_broadcast(out, &before, input, fault);
        if (status != STATUS_OK) {
            return status;
        }
    }
    return STATUS_OK;
}
