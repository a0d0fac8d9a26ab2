#include "proto/op_rules.h"

static op_rule *const rules[OP_CODE_MAX] = {
#define X(NAME, value, text, family, rule, ...) [value] = op_rule_##rule,
    OP_TABLE(X)
#undef X
};

enum {
#define X(rule, operands) OPERANDS_OF_##rule = OP_OPERAND_##operands,
    OP_RULE_TABLE(X)
#undef X
};

static const unsigned char operands[OP_CODE_MAX] = {
#define X(NAME, value, text, family, rule, ...) [value] = OPERANDS_OF_##rule,
    OP_TABLE(X)
#undef X
};

static int refuse_inputs(const struct op_info *info, unsigned n_inputs, struct fault *fault) {
    if (info->inputs_min == info->inputs_max) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s takes %d inputs, not %u", info->name, info->inputs_min,
                         n_inputs);
    }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s takes %d to %d inputs, not %u", info->name, info->inputs_min,
                     info->inputs_max, n_inputs);
}

static int check_counts(const struct op_info *info, const struct op_call *call, struct fault *fault) {
    if (call->n_inputs < (unsigned)info->inputs_min || call->n_inputs > (unsigned)info->inputs_max) {
        return refuse_inputs(info, call->n_inputs, fault);
    }
    if (info->ints != OP_VARIES ? call->n_ints != (unsigned)info->ints : call->n_ints > OP_INTS_MAX) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s does not take %u integer attributes", info->name,
                         call->n_ints);
    }
    if (info->floats != OP_VARIES ? call->n_floats != (unsigned)info->floats : call->n_floats > OP_FLOATS_MAX) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s does not take %u float attributes", info->name,
                         call->n_floats);
    }
    return STATUS_OK;
}

/* Enough that rules may index their tables; extents were checked when the types were made. */
static int check_inputs(const struct op_call *call, struct fault *fault) {
    for (unsigned i = 0; i < call->n_inputs; i++) {
        const struct tensor_type *input = call->inputs[i];
        if ((unsigned)input->rank > SHAPE_RANK_MAX || !((unsigned)input->dtype - 1 < DTYPE_COUNT - 1)) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "input %u has no valid type: dtype %d, rank %d", i,
                             (int)input->dtype, input->rank);
        }
    }
    return STATUS_OK;
}

int op_infer(unsigned opcode, const struct tensor_type *const inputs[], unsigned n_inputs,
             const struct op_attributes *attributes, struct tensor_type *out, struct fault *fault) {
    const struct op_info *info = op_info(opcode);
    if (!info) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u is no operation", opcode);
    }
    struct op_call call = {.opcode = opcode, .n_inputs = n_inputs, .inputs = inputs};
    if (attributes) {
        call.ints = attributes->ints;
        call.floats = attributes->floats;
        call.n_ints = attributes->n_ints;
        call.n_floats = attributes->n_floats;
    }
    int status = check_counts(info, &call, fault);
    if (status == STATUS_OK) {
        status = check_inputs(&call, fault);
    }
    if (status != STATUS_OK || info->family == OP_FAMILY_FREE) {
        return status;
    }
    /* `out` may be one of the inputs, and stays as it is on failure. */
    struct tensor_type result;
    status = rules[opcode](&call, &result, fault);
    if (status == STATUS_OK) {
        status = type_check(&result, fault);
    }
    if (status == STATUS_OK) {
        *out = result;
    }
    return status;
}

int op_rule_none(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    (void)out;
    return fault_set(fault, STATUS_INTERNAL, "operation %u has no result", call->opcode);
}

enum dtype op_operand_dtype(unsigned opcode, const struct tensor_type *const inputs[], unsigned i,
                            const struct tensor_type *out) {
    switch (opcode < OP_CODE_MAX ? (enum op_operand)operands[opcode] : OP_OPERAND_OWN) {
    case OP_OPERAND_OWN:
        return inputs[i]->dtype;
    case OP_OPERAND_RESULT:
        return out->dtype;
    case OP_OPERAND_BOOL:
        return DTYPE_BOOL;
    case OP_OPERAND_PROMOTED:
        return dtype_promote(inputs[0]->dtype, inputs[1]->dtype);
    case OP_OPERAND_INDEX:
        return DTYPE_I64;
    case OP_OPERAND_WHERE:
        return i == 0 ? DTYPE_BOOL : out->dtype;
    case OP_OPERAND_TAKE:
        return i == 0 ? out->dtype : DTYPE_I64;
    }
    return DTYPE_INVALID;
}
