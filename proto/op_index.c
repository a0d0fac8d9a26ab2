/* Rules of operations that read positions out of a tensor. The positions themselves are checked on the device. */
#include "proto/op_rules.h"

#include <inttypes.h>

static int check_indices(const struct tensor_type *indices, struct fault *fault) {
    if (dtype_kind(indices->dtype) != DTYPE_KIND_INT) {
        return fault_set(fault, STATUS_DTYPE, "indices are integers, not %s", dtype_name(indices->dtype));
    }
    return STATUS_OK;
}

/* No index is in range of an empty axis, and nothing would be launched that could find out. */
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
    int axis;
    int status = check_indices(indices, fault);
    if (status == STATUS_OK) {
        status = shape_axis(call->ints[0], x->rank, &axis, fault);
    }
    if (status != STATUS_OK) {
        return status;
    }
    if (indices->rank != 1) {
        char text[SHAPE_TEXT_MAX];
        return fault_set(fault, STATUS_SHAPE, "indices have shape %s, not one axis", shape_text(indices, text));
    }
    *out = *x;
    out->shape[axis] = indices->shape[0];
    return check_axis(x, axis, out, fault);
}

int op_rule_take_along_axis(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0], *indices = call->inputs[1];
    char x_text[SHAPE_TEXT_MAX], text[SHAPE_TEXT_MAX];
    int axis;
    int status = check_indices(indices, fault);
    if (status == STATUS_OK) {
        status = shape_axis(call->ints[0], x->rank, &axis, fault);
    }
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
    out->dtype = x->dtype;
    return check_axis(x, axis, out, fault);
}

int op_rule_one_hot(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *indices = call->inputs[0];
    int64_t classes = call->ints[0];
    int status = check_indices(indices, fault);
    if (status != STATUS_OK) {
        return status;
    }
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
    return type_make(out, call->ints[1], shape, (size_t)indices->rank + 1, fault);
}
