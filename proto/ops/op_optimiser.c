/* Rules of optimisers. Their tensors are several lists of the same length, and so are their results. */
#include <inttypes.h>
#include <string.h>

#include "proto/ops/op_rules.h"

/* How many lists there are among the inputs. */
static unsigned lists_of(const struct op_call *call) {
    struct sgd_attributes sgd;
    switch (call->opcode) {
    case OP_SGD:
        sgd_attributes_read(call->attributes, &sgd);
        return sgd.momentum != 0 ? 3 : 2;
    case OP_ADAM:
    case OP_ADAMW:
        return 4;
    case OP_MOVING_AVERAGE:
        return 2;
    default:
        return 3;
    }
}

/* Rates and decays may not be negative or infinite, factors are at most 1, and beta1 and beta2 are less. */
static int check_float(const char *name, double value, struct fault *fault) {
    bool beta = strncmp(name, "beta", 4) == 0;
    bool factor = beta || !strcmp(name, "alpha") || !strcmp(name, "decay") || !strcmp(name, "momentum");
    double most = factor ? 1 : 1e30;
    if (value >= 0 && value <= most && !(beta && value == 1)) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s is %g, not 0 to %s%g", name, value, beta ? "less than " : "",
                     most);
}

static int check_attributes(const struct op_call *call, struct fault *fault) {
    const struct op_info *info = op_info(call->opcode);
    int status = STATUS_OK;
    unsigned at = 0;
    for (unsigned i = 0; i < info->n_attributes && status == STATUS_OK; i++) {
        if (info->attributes[i].type == OP_ATTRIBUTE_FLOAT) {
            status = check_float(info->attributes[i].name, call->attributes->floats[at++], fault);
        } else if (info->attributes[i].type == OP_ATTRIBUTE_INT && call->attributes->ints[0] < 1) {
            status = fault_set(fault, STATUS_INVALID_ARGUMENT, "step is %" PRId64 ", not 1 or more",
                               call->attributes->ints[0]);
        }
    }
    return status;
}

static int check_alike(const struct tensor_type *parameter, const struct tensor_type *other, unsigned number,
                       const char *what, struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    if (other->dtype != parameter->dtype) {
        return fault_set(fault, STATUS_DTYPE, "parameter %u is %s, its %s %s", number, dtype_name(parameter->dtype),
                         what, dtype_name(other->dtype));
    }
    if (!shape_equal(parameter, other)) {
        return fault_set(fault, STATUS_SHAPE, "parameter %u is %s, its %s %s", number, shape_text(parameter, a), what,
                         shape_text(other, b));
    }
    return STATUS_OK;
}

int op_rule_optimiser(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    unsigned lists = lists_of(call), n = call->n_inputs / lists;
    for (unsigned i = 0; i < call->n_inputs; i++) {
        if (!(op_info(call->opcode)->dtypes >> call->inputs[i]->dtype & 1)) {
            return fault_set(fault, STATUS_DTYPE, "tensor %u is %s: cast it to a floating dtype first", i,
                             dtype_name(call->inputs[i]->dtype));
        }
    }
    if (n == 0 || call->n_inputs % lists != 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u tensors are not %u lists", call->n_inputs, lists);
    }
    if (call->n_outputs != n * (lists - 1)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u results of %u parameters, not %u", call->n_outputs, n,
                         n * (lists - 1));
    }
    int status = check_attributes(call, fault);
    for (unsigned i = 0; i < n && status == STATUS_OK; i++) {
        const struct tensor_type *parameter = call->inputs[i];
        for (unsigned list = 1; list < lists && status == STATUS_OK; list++) {
            status = check_alike(parameter, call->inputs[list * n + i], i, list == 1 ? "gradient" : "state", fault);
        }
        for (unsigned list = 0; list + 1 < lists; list++) {
            out[list * n + i] = *parameter;
        }
    }
    return status;
}
