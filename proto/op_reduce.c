/* Rules of reductions and softmax. */
#include "proto/op_rules.h"

#include <inttypes.h>

int op_reduced_axes(const struct op_attributes *attributes, int rank, uint32_t *mask, struct fault *fault) {
    if (attributes->n_ints < 1 || (attributes->ints[0] != 0 && attributes->ints[0] != 1)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "keepdims is missing or not 0 or 1");
    }
    uint32_t axes = 0;
    for (unsigned i = 1; i < attributes->n_ints; i++) {
        int axis;
        int status = shape_axis(attributes->ints[i], rank, &axis, fault);
        if (status != STATUS_OK) {
            return status;
        }
        if (axes & 1U << axis) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "axis %d is named twice", axis);
        }
        axes |= 1U << axis;
    }
    *mask = attributes->n_ints > 1 ? axes : (1U << rank) - 1;
    return STATUS_OK;
}

static int reduce(const struct op_call *call, enum dtype dtype, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    const struct op_attributes attributes = {.ints = call->ints, .n_ints = call->n_ints};
    uint32_t mask = 0;
    int status = op_reduced_axes(&attributes, x->rank, &mask, fault);
    if (status != STATUS_OK) {
        return status;
    }
    out->dtype = dtype;
    out->rank = 0;
    for (int i = 0; i < x->rank; i++) {
        if (!(mask & 1U << i)) {
            out->shape[out->rank++] = x->shape[i];
        } else if (call->ints[0]) {
            out->shape[out->rank++] = 1;
        }
    }
    return STATUS_OK;
}

/* max, min and their positions have no value for no elements: a result may be empty, but not made of nothing. */
static int reduce_nothing(const struct op_call *call, struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    return fault_set(fault, STATUS_SHAPE, "there are no elements to choose from: the input is %s",
                     shape_text(call->inputs[0], text));
}

static int reduce_something(const struct op_call *call, enum dtype dtype, struct tensor_type *out,
                            struct fault *fault) {
    int status = reduce(call, dtype, out, fault);
    if (status == STATUS_OK && type_elements(call->inputs[0]) == 0 && type_elements(out) > 0) {
        return reduce_nothing(call, fault);
    }
    return status;
}

int op_rule_reduce_sum(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    enum dtype dtype = call->inputs[0]->dtype;
    return reduce(call, dtype_kind(dtype) == DTYPE_KIND_FLOAT ? dtype : DTYPE_I64, out, fault);
}

int op_rule_reduce_mean(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return reduce(call, dtype_to_float(call->inputs[0]->dtype), out, fault);
}

int op_rule_reduce_same(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return reduce_something(call, call->inputs[0]->dtype, out, fault);
}

int op_rule_reduce_bool(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return reduce(call, DTYPE_BOOL, out, fault);
}

int op_rule_reduce_arg(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    if (call->n_ints > 2) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "takes one axis or none, not %u", call->n_ints - 1);
    }
    int status = reduce_something(call, DTYPE_I64, out, fault), axis;
    /* As in NumPy: along an axis of no elements there is no position, also where there are no results. */
    if (status == STATUS_OK && call->n_ints == 2 &&
        shape_axis(call->ints[1], call->inputs[0]->rank, &axis, fault) == STATUS_OK &&
        call->inputs[0]->shape[axis] == 0) {
        return reduce_nothing(call, fault);
    }
    return status;
}

int op_rule_softmax(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    int axis;
    if (dtype_kind(x->dtype) != DTYPE_KIND_FLOAT) {
        return fault_set(fault, STATUS_DTYPE, "takes floating dtypes, not %s", dtype_name(x->dtype));
    }
    *out = *x;
    return shape_axis(call->ints[0], x->rank, &axis, fault);
}
