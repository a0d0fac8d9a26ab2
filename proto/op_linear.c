/* Rule of linear, after torch.nn.functional.linear. */
#include "proto/op_rules.h"

#include <inttypes.h>

static int refuse_linear(const struct op_call *call, unsigned i, const char *why, struct fault *fault) {
    static const char *const names[] = {"x", "weight", "bias"};
    char x[SHAPE_TEXT_MAX], other[SHAPE_TEXT_MAX];
    return fault_set(fault, STATUS_SHAPE, "%s %s %s; %s is %s", names[i], shape_text(call->inputs[i], other), why,
                     names[i == 1 ? 0 : 1], shape_text(call->inputs[i == 1 ? 0 : 1], x));
}

/* All three promote; f8 tensors make an f32 product, as in matmul, to which a wider bias cannot be added. */
static int linear_dtype(const struct op_call *call, enum dtype *dtype, struct fault *fault) {
    enum dtype x = call->inputs[0]->dtype, weight = call->inputs[1]->dtype;
    bool f8 = dtype_is_f8(x) && dtype_is_f8(weight);
    int status = STATUS_OK;
    *dtype = DTYPE_F32;
    if (!f8) {
        status = op_promote(x, weight, dtype, fault);
    }
    if (status == STATUS_OK && call->n_inputs == 3) {
        status = op_promote(*dtype, call->inputs[2]->dtype, dtype, fault);
    }
    if (status == STATUS_OK && f8 && *dtype != DTYPE_F32) {
        return fault_set(fault, STATUS_DTYPE, "a product of %s and %s is f32 and takes no bias of %s", dtype_name(x),
                         dtype_name(weight), dtype_name(call->inputs[2]->dtype));
    }
    return status;
}

static int check_activation(int64_t activation, enum dtype dtype, struct fault *fault) {
    if (activation < 0 || activation >= OP_ACTIVATION_COUNT) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "%" PRId64 " is no activation: 0 (none), 1 (relu) and 2 (gelu_tanh) are", activation);
    }
    if (dtype == DTYPE_BOOL) {
        return fault_set(fault, STATUS_DTYPE, "takes numbers, not bool");
    }
    if (activation == OP_ACTIVATION_GELU_TANH && dtype_kind(dtype) != DTYPE_KIND_FLOAT) {
        return fault_set(fault, STATUS_DTYPE, "gelu_tanh takes floats, not %s", dtype_name(dtype));
    }
    return STATUS_OK;
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
    enum dtype dtype;
    int status = linear_dtype(call, &dtype, fault);
    if (status == STATUS_OK) {
        status = check_activation(call->ints[0], dtype, fault);
    }
    if (status == STATUS_OK) {
        status = check_shapes(call, fault);
    }
    if (status != STATUS_OK) {
        return status;
    }
    *out = *x;
    out->dtype = dtype;
    out->rank = x->rank - 1;
    if (weight->rank == 2) {
        out->shape[out->rank++] = weight->shape[0];
    }
    return STATUS_OK;
}
