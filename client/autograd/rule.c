#include "client/autograd/rule.h"

#include <stdio.h>

#include "client/lib/call.h"
#include "client/lib/device.h"
#include "client/lib/error.h"

static void rule_fail(struct rule_call *call) {
    call->failed = true;
}

/* The sum over the axes along which a tensor of `type` was broadcast. */
static td_tensor *sum_to(const struct tensor_type *type, td_tensor *x) {
    int64_t axes[TD_RANK_MAX];
    int count = 0, more = x->type.rank - type->rank;
    for (int i = 0; i < x->type.rank; i++)
        if (i < more || (type->shape[i - more] == 1 && x->type.shape[i] != 1))
            axes[count++] = i;
    td_tensor *sum = count ? td_sum(x, count, axes, 1) : x;
    return more ? td_reshape(sum, type->rank, type->shape) : sum;
}

static td_tensor *cast_to(const struct tensor_type *type, td_tensor *x) {
    return !x || x->type.dtype == type->dtype ? x : td_cast(x, (td_dtype)type->dtype);
}

void rule_give(struct rule_call *call, unsigned i, td_tensor *gradient) {
    const struct tensor_type *type = rule_type(call, i);
    td_tensor *given = gradient;
    if (given && !shape_equal(&given->type, type))
        given = sum_to(type, given);
    call->given[i] = cast_to(type, given);
    if (!call->given[i])
        rule_fail(call);
}

void rule_give_reshaped(struct rule_call *call, unsigned i, td_tensor *gradient) {
    const struct tensor_type *type = rule_type(call, i);
    call->given[i] = cast_to(type, gradient ? td_reshape(gradient, type->rank, type->shape) : NULL);
    if (!call->given[i])
        rule_fail(call);
}

td_tensor *rule_zeros(const struct rule_call *call, const struct tensor_type *type) {
    return td_full(call->node->device, (td_dtype)type->dtype, type->rank, type->shape, 0);
}

td_tensor *rule_gradient(struct rule_call *call, unsigned i) {
    const struct tape_value *output = &call->node->outputs[i];
    return call->g[i] ? call->g[i]
                      : td_full(output->device, (td_dtype)output->type.dtype, output->type.rank, output->type.shape, 0);
}

td_tensor *rule_put_back(struct rule_call *call, const struct tensor_type *type, td_tensor *indices, int64_t axis) {
    return td_scatter_add(rule_zeros(call, type), indices, rule_gradient(call, 0), (int)axis);
}

td_tensor *rule_number(const td_tensor *like, double value) {
    return like ? td_full(like->device, (td_dtype)like->type.dtype, 0, NULL, value) : NULL;
}

td_tensor *rule_scale(td_tensor *x, double factor) {
    return factor == 1 ? x : td_multiply(x, rule_number(x, factor));
}

td_tensor *rule_shift(td_tensor *x, double term) {
    return td_add(x, rule_number(x, term));
}

td_tensor *rule_widen(td_tensor *x) {
    return x && (x->type.dtype == DTYPE_F16 || x->type.dtype == DTYPE_BF16) ? td_cast(x, TD_F32) : x;
}

int rule_unsupported(const struct tape_node *node, const char *why) {
    struct fault fault = {.code = STATUS_UNSUPPORTED};
    snprintf(fault.message, sizeof fault.message, "%s", why);
    return error_fault(&fault, node->rule ? node->rule->name : op_rows[node->opcode].name, NULL);
}

void rule_refuse(struct rule_call *call, const char *why) {
    rule_unsupported(call->node, why);
    rule_fail(call);
}
