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

/* Operations of f8 tensors: what makes, moves and converts elements, and products. The others would compute in numbers of
 * 3 or 4 bits, and are asked for in a wider dtype. */
static const bool takes_f8[OP_CODE_MAX] = {
    [OP_FULL] = true,         [OP_EYE] = true,         [OP_CAST] = true,
    [OP_COPY] = true,         [OP_RESHAPE] = true,     [OP_PERMUTE_DIMS] = true,
    [OP_SLICE] = true,        [OP_SQUEEZE] = true,     [OP_MATRIX_TRANSPOSE] = true,
    [OP_BROADCAST_TO] = true, [OP_EXPAND_DIMS] = true, [OP_WHERE] = true,
    [OP_MATMUL] = true,       [OP_CONCAT] = true,      [OP_STACK] = true,
    [OP_TAKE] = true,         [OP_ONE_HOT] = true,     [OP_TAKE_ALONG_AXIS] = true,
    [OP_FREE] = true,         [OP_LINEAR] = true,
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
        if (dtype_is_f8(input->dtype) && !takes_f8[call->opcode]) {
            return fault_set(fault, STATUS_DTYPE, "takes no %s: cast to f16, bf16 or f32 first",
                             dtype_name(input->dtype));
        }
    }
    return STATUS_OK;
}

/* Also where it has no inputs to tell from. */
static int check_result(const struct op_call *call, const struct tensor_type *result, struct fault *fault) {
    if (dtype_is_f8(result->dtype) && !takes_f8[call->opcode]) {
        return fault_set(fault, STATUS_DTYPE, "gives no %s: ask for f16, bf16 or f32, and cast that",
                         dtype_name(result->dtype));
    }
    return type_check(result, fault);
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
        status = check_result(&call, &result, fault);
    }
    if (status == STATUS_OK) {
        *out = result;
    }
    return status;
}

int op_promote(enum dtype a, enum dtype b, enum dtype *out, struct fault *fault) {
    enum dtype both = dtype_promote(a, b);
    if (both == DTYPE_INVALID) {
        return fault_set(fault, STATUS_DTYPE, "%s and %s do not promote: cast one of them first", dtype_name(a),
                         dtype_name(b));
    }
    *out = both;
    return STATUS_OK;
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
        return dtype_is_f8(inputs[i]->dtype) ? inputs[i]->dtype : out->dtype;
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
