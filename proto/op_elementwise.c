/* Rules of elementwise operations: shapes broadcast, dtypes promote. */
#include <string.h>

#include "proto/op_rules.h"

static void copy_shape(struct tensor_type *out, const struct tensor_type *from) {
    out->rank = from->rank;
    memcpy(out->shape, from->shape, sizeof out->shape); /* all of them: a fixed count is a few vector moves */
}

static int refuse_bool(struct fault *fault) {
    return fault_set(fault, STATUS_DTYPE, "takes numbers, not bool");
}

int op_rule_same(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    (void)fault;
    *out = *call->inputs[0];
    return STATUS_OK;
}

int op_rule_cast(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    return type_make(out, call->ints[0], x->shape, (size_t)x->rank, fault);
}

int op_rule_numeric1(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    *out = *call->inputs[0];
    return out->dtype == DTYPE_BOOL ? refuse_bool(fault) : STATUS_OK;
}

int op_rule_floating1(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    (void)fault;
    copy_shape(out, call->inputs[0]);
    out->dtype = dtype_to_float(call->inputs[0]->dtype);
    return STATUS_OK;
}

/* Shape of the result and promoted dtype of two inputs. */
static inline int combine(const struct tensor_type *a, const struct tensor_type *b, struct tensor_type *out,
                          struct fault *fault) {
    out->dtype = a->dtype;
    if (a->dtype != b->dtype) {
        int status = op_promote(a->dtype, b->dtype, &out->dtype, fault);
        if (status != STATUS_OK) {
            return status;
        }
    }
    if (shape_equal(a, b)) {
        copy_shape(out, a);
        return STATUS_OK;
    }
    return shape_broadcast(out, a, b, fault);
}

int op_rule_arithmetic(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return combine(call->inputs[0], call->inputs[1], out, fault);
}

int op_rule_numeric2(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = combine(call->inputs[0], call->inputs[1], out, fault);
    return status == STATUS_OK && out->dtype == DTYPE_BOOL ? refuse_bool(fault) : status;
}

int op_rule_floating2(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = combine(call->inputs[0], call->inputs[1], out, fault);
    out->dtype = dtype_to_float(out->dtype);
    return status;
}

int op_rule_compare(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = combine(call->inputs[0], call->inputs[1], out, fault);
    out->dtype = DTYPE_BOOL;
    return status;
}

int op_rule_logical(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = combine(call->inputs[0], call->inputs[call->n_inputs - 1], out, fault);
    out->dtype = DTYPE_BOOL;
    return status;
}

int op_rule_where(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *condition = call->inputs[0];
    if (condition->dtype != DTYPE_BOOL) {
        return fault_set(fault, STATUS_DTYPE, "the condition is %s, not bool", dtype_name(condition->dtype));
    }
    struct tensor_type values;
    int status = combine(call->inputs[1], call->inputs[2], &values, fault);
    if (status == STATUS_OK) {
        out->dtype = values.dtype;
        status = shape_broadcast(out, condition, &values, fault);
    }
    return status;
}
