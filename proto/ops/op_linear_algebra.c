/* Rules of products: matmul; linear, which follows torch.nn.functional.linear; and cross. */
#include "proto/ops/op_rules.h"

static int refuse_matmul(const struct op_call *call, const char *why, struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    return fault_set(fault, STATUS_SHAPE, "cannot multiply %s by %s: %s", shape_text(call->inputs[0], a),
                     shape_text(call->inputs[1], b), why);
}

/* The axes before the matrix. */
static struct tensor_type batch_of(const struct tensor_type *type) {
    struct tensor_type batch = *type;
    batch.rank = type->rank > 2 ? type->rank - 2 : 0;
    return batch;
}

int op_rule_matmul(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *a = call->inputs[0], *b = call->inputs[1];
    if (a->rank == 0 || b->rank == 0) {
        return refuse_matmul(call, "neither may be a scalar", fault);
    }
    if (a->shape[a->rank - 1] != b->shape[b->rank >= 2 ? b->rank - 2 : 0]) {
        return refuse_matmul(call, "inner extents differ", fault);
    }
    struct tensor_type a_batch = batch_of(a), b_batch = batch_of(b);
    if (shape_broadcast(out, &a_batch, &b_batch, NULL) != STATUS_OK) {
        return refuse_matmul(call, "leading axes do not broadcast", fault);
    }
    if (a->rank >= 2) { /* a vector on the left is a row, and leaves no axis behind; on the right, a column */
        out->shape[out->rank++] = a->shape[a->rank - 2];
    }
    if (b->rank >= 2) {
        out->shape[out->rank++] = b->shape[b->rank - 1];
    }
    return STATUS_OK;
}

static int refuse_linear(const struct op_call *call, unsigned i, const char *why, struct fault *fault) {
    static const char *const names[] = {"x", "weight", "bias"};
    char x[SHAPE_TEXT_MAX], other[SHAPE_TEXT_MAX];
    return fault_set(fault, STATUS_SHAPE, "%s %s %s; %s is %s", names[i], shape_text(call->inputs[i], other), why,
                     names[i == 1 ? 0 : 1], shape_text(call->inputs[i == 1 ? 0 : 1], x));
}

static int check_shapes(const struct op_call *call, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0], *weight = call->inputs[1];
    if (x->rank == 0) {
        return refuse_linear(call, 0, "has no last axis", fault);
    }
    if (weight->rank != 1 && weight->rank != 2) {
        return refuse_linear(call, 1, "is neither (n, k) nor (k)", fault);
    }
    if (weight->shape[weight->rank - 1] != x->shape[x->rank - 1]) {
        return refuse_linear(call, 1, "does not end in x's last extent", fault);
    }
    if (call->n_inputs < 3) {
        return STATUS_OK;
    }
    struct tensor_type outputs = {.rank = weight->rank - 1, .shape = {weight->shape[0]}};
    if (!shape_equal(call->inputs[2], &outputs)) {
        return refuse_linear(call, 2, "is not one number for each row of the weight", fault);
    }
    return STATUS_OK;
}

int op_rule_linear(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0], *weight = call->inputs[1];
    struct linear_attributes attributes;
    linear_attributes_read(call->attributes, &attributes);
    if (attributes.activation == OP_ACTIVATION_GELU_TANH && dtype_kind(out->dtype) != DTYPE_KIND_FLOAT) {
        return fault_set(fault, STATUS_DTYPE, "gelu_tanh takes floats, not %s", dtype_name(out->dtype));
    }
    int status = check_shapes(call, fault);
    if (status != STATUS_OK) {
        return status;
    }
    op_copy_shape(out, x);
    out->rank = x->rank - 1;
    if (weight->rank == 2) {
        out->shape[out->rank++] = weight->shape[0];
    }
    return STATUS_OK;
}

/* The axis counts from the end, so that it is the same one of both. */
int op_rule_cross(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *a = call->inputs[0], *b = call->inputs[1];
    struct cross_attributes attributes;
    cross_attributes_read(call->attributes, &attributes);
    const int64_t axis = attributes.axis;
    const int least = a->rank < b->rank ? a->rank : b->rank;
    char a_text[SHAPE_TEXT_MAX], b_text[SHAPE_TEXT_MAX];
    if (axis >= 0 || axis < -least) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "%s x %s: axis %lld is not -1 to -%d, an axis of both counted from the end",
                         shape_text(a, a_text), shape_text(b, b_text), (long long)axis, least);
    }
    if (a->shape[a->rank + axis] != 3 || b->shape[b->rank + axis] != 3) {
        return fault_set(fault, STATUS_SHAPE, "%s x %s: the extents of the axis are not 3", shape_text(a, a_text),
                         shape_text(b, b_text));
    }
    return op_rule_broadcast(call, out, fault);
}
