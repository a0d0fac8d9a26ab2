/* Rules of views: other extents over the same elements. */
#include "proto/op_rules.h"

#include <inttypes.h>
#include <string.h>

static int refuse_reshape(const struct op_call *call, struct fault *fault) {
    struct tensor_type wanted = {.rank = (int)call->n_ints};
    char from[SHAPE_TEXT_MAX], to[SHAPE_TEXT_MAX];
    memcpy(wanted.shape, call->ints, call->n_ints * sizeof(int64_t));
    return fault_set(fault, STATUS_SHAPE, "cannot reshape %s to %s", shape_text(call->inputs[0], from),
                     shape_text(&wanted, to));
}

/* Product of the extents but for a -1, whose place is told; negative: there are two, or other negative extents. */
static int64_t reshape_product(const struct op_call *call, int *open) {
    int64_t product = 1;
    bool empty = false;
    *open = -1;
    for (unsigned i = 0; i < call->n_ints; i++) {
        int64_t extent = call->ints[i];
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
    const struct tensor_type *x = call->inputs[0];
    if (call->n_ints > SHAPE_RANK_MAX) {
        return fault_set(fault, STATUS_SHAPE, "rank %u is above %d", call->n_ints, SHAPE_RANK_MAX);
    }
    int open;
    int64_t elements = type_elements(x), product = reshape_product(call, &open);
    bool fits = open < 0 ? product == elements : product > 0 && elements % product == 0;
    if (!fits) {
        return refuse_reshape(call, fault);
    }
    out->dtype = x->dtype;
    out->rank = (int)call->n_ints;
    for (int i = 0; i < out->rank; i++) {
        out->shape[i] = i == open ? elements / product : call->ints[i];
    }
    return STATUS_OK;
}

int op_rule_permute_dims(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    if (call->n_ints != (unsigned)x->rank) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u axes for rank %d", call->n_ints, x->rank);
    }
    uint32_t seen = 0;
    for (int i = 0; i < x->rank; i++) {
        int axis;
        int status = shape_axis(call->ints[i], x->rank, &axis, fault);
        if (status != STATUS_OK) {
            return status;
        }
        if (seen & 1U << axis) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "axis %d is named twice", axis);
        }
        seen |= 1U << axis;
        out->shape[i] = x->shape[axis];
    }
    out->dtype = x->dtype;
    out->rank = x->rank;
    return STATUS_OK;
}

int op_rule_matrix_transpose(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    if (x->rank < 2) {
        char text[SHAPE_TEXT_MAX];
        return fault_set(fault, STATUS_SHAPE, "%s has fewer than two axes", shape_text(x, text));
    }
    *out = *x;
    out->shape[x->rank - 1] = x->shape[x->rank - 2];
    out->shape[x->rank - 2] = x->shape[x->rank - 1];
    return STATUS_OK;
}

int op_rule_slice(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    if (call->n_ints != 3 * (unsigned)x->rank) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "rank %d needs %d numbers, not %u", x->rank, 3 * x->rank,
                         call->n_ints);
    }
    for (int i = 0; i < x->rank; i++) {
        const int64_t *ints = call->ints + (ptrdiff_t)i * 3;
        struct op_slice slice;
        int status = op_slice(x->shape[i], ints[0], ints[1], ints[2], &slice, fault);
        if (status != STATUS_OK) {
            return status;
        }
        out->shape[i] = slice.count;
    }
    out->dtype = x->dtype;
    out->rank = x->rank;
    return STATUS_OK;
}

int op_rule_broadcast_to(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    int status = type_make(out, x->dtype, call->ints, call->n_ints, fault);
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
    uint32_t dropped = 0;
    for (unsigned i = 0; i < call->n_ints; i++) {
        int axis;
        int status = shape_axis(call->ints[i], x->rank, &axis, fault);
        if (status != STATUS_OK) {
            return status;
        }
        if (dropped & 1U << axis) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "axis %d is named twice", axis);
        }
        if (x->shape[axis] != 1) {
            char text[SHAPE_TEXT_MAX];
            return fault_set(fault, STATUS_SHAPE, "axis %d of %s has extent %" PRId64 ", not 1", axis,
                             shape_text(x, text), x->shape[axis]);
        }
        dropped |= 1U << axis;
    }
    out->dtype = x->dtype;
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
    int axis;
    if (x->rank == SHAPE_RANK_MAX) {
        return fault_set(fault, STATUS_SHAPE, "rank %d is the highest there is", x->rank);
    }
    int status = shape_axis(call->ints[0], x->rank + 1, &axis, fault);
    if (status != STATUS_OK) {
        return status;
    }
    out->dtype = x->dtype;
    out->rank = x->rank + 1;
    for (int i = 0; i < out->rank; i++) {
        out->shape[i] = i < axis ? x->shape[i] : i == axis ? 1 : x->shape[i - 1];
    }
    return STATUS_OK;
}
