/* Rules of operations that read positions out of a tensor. The positions themselves are checked on the device. */
#include "proto/ops/op_rules.h"

#include <inttypes.h>
#include <math.h>

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

/* scatter and scatter_add have the same attributes. */
int op_rule_scatter(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0], *indices = call->inputs[1], *values = call->inputs[2];
    char x_text[SHAPE_TEXT_MAX], text[SHAPE_TEXT_MAX];
    struct scatter_attributes attributes;
    int axis;
    scatter_attributes_read(call->attributes, &attributes);
    int status = shape_axis(attributes.axis, x->rank, &axis, fault);
    if (status != STATUS_OK) {
        return status;
    }
    struct tensor_type places = *x, both = *x; /* x with the indices' extent on the axis */
    bool fits = indices->rank == x->rank;
    if (fits) {
        places.shape[axis] = indices->shape[axis];
        fits = shape_broadcast(&both, &places, indices, NULL) == STATUS_OK && shape_equal(&both, &places);
    }
    if (!fits) {
        return fault_set(fault, STATUS_SHAPE, "indices %s do not fit %s along axis %d", shape_text(indices, text),
                         shape_text(x, x_text), axis);
    }
    if (shape_broadcast(&both, &places, values, NULL) != STATUS_OK || !shape_equal(&both, &places)) {
        return fault_set(fault, STATUS_SHAPE, "values %s do not broadcast to %s", shape_text(values, text),
                         shape_text(&places, x_text));
    }
    op_copy_shape(out, x);
    status = check_axis(x, axis, &places, fault);
    return status == STATUS_OK ? type_check(&places, fault) : status;
}

/* ---- results whose number the data gives: the greatest shape that is possible, and the number ---- */

static int count_type(struct tensor_type *out, struct fault *fault) {
    return type_make(out, DTYPE_I64, NULL, 0, fault);
}

int op_rule_nonzero(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    if (x->rank == 0) {
        return fault_set(fault, STATUS_SHAPE, "() has no axis: the indices would have no rows");
    }
    int status = type_make(&out[0], DTYPE_I64, (int64_t[]){x->rank, type_elements(x)}, 2, fault);
    return status == STATUS_OK ? count_type(&out[1], fault) : status;
}

int op_rule_masked_select(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct tensor_type both = *call->inputs[0];
    int status = shape_broadcast(&both, call->inputs[0], call->inputs[1], fault);
    if (status == STATUS_OK) {
        status = type_check(&both, fault);
    }
    if (status == STATUS_OK) {
        int64_t elements = type_elements(&both);
        status = type_make(&out[0], out[0].dtype, &elements, 1, fault);
    }
    return status == STATUS_OK ? count_type(&out[1], fault) : status;
}

int op_rule_unique_runs(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *sorted = call->inputs[0], *positions = call->inputs[1];
    if (sorted->rank != 1 || !shape_equal(sorted, positions)) {
        char text[SHAPE_TEXT_MAX], other[SHAPE_TEXT_MAX];
        return fault_set(fault, STATUS_SHAPE, "%s and positions %s are not two equal vectors", shape_text(sorted, text),
                         shape_text(positions, other));
    }
    for (int i = 0; i < 4; i++) {
        op_copy_shape(&out[i], sorted);
    }
    return count_type(&out[4], fault);
}

int op_rule_repeat_each(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0], *counts = call->inputs[1];
    struct repeat_each_attributes given;
    int axis;
    repeat_each_attributes_read(call->attributes, &given);
    int status = shape_axis(given.axis, x->rank, &axis, fault);
    if (status != STATUS_OK) {
        return status;
    }
    if (counts->rank != 1 || counts->shape[0] != x->shape[axis] || counts->shape[0] == 0) {
        return fault_set(fault, STATUS_SHAPE, "%" PRId64 " elements of axis %d have not one count each", x->shape[axis],
                         axis);
    }
    if (given.length < 0 || given.length > INT64_C(1) << 53) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the length is %" PRId64, given.length);
    }
    op_copy_shape(&out[0], x);
    out[0].shape[axis] = given.length;
    return count_type(&out[1], fault);
}

int op_rule_histogram(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct histogram_attributes given;
    histogram_attributes_read(call->attributes, &given);
    double width = given.high - given.low;
    if (given.bins <= 0 || given.bins > INT32_MAX) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRId64 " bins are not between 1 and %d", given.bins,
                         INT32_MAX);
    }
    if (!(given.low < given.high) || !isfinite(width) || !isfinite((double)given.bins / width)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no %" PRId64 " bins from %g to %g", given.bins, given.low,
                         given.high);
    }
    return type_make(out, out->dtype, &given.bins, 1, fault);
}
