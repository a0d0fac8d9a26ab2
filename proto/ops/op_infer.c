#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/ops/op_rules.h"
#include "proto/ops/utf8.h"

static int refuse_inputs(const struct op_info *info, unsigned n_inputs, struct fault *fault) {
    if (info->inputs_min == info->inputs_max) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s takes %d inputs, not %u", info->name, info->inputs_min,
                         n_inputs);
    }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s takes %d to %d inputs, not %u", info->name, info->inputs_min,
                     info->inputs_max, n_inputs);
}

/* Checks enough that rules can index their tables; extents were checked when the types were made. */
static inline __attribute__((always_inline)) int check_inputs(const struct op_info *info, const struct op_call *call,
                                                              struct fault *fault) {
    if (call->n_inputs < (unsigned)info->inputs_min || call->n_inputs > (unsigned)info->inputs_max) {
        return refuse_inputs(info, call->n_inputs, fault);
    }
    for (unsigned i = 0; i < call->n_inputs; i++) {
        const struct tensor_type *input = call->inputs[i];
        if ((unsigned)input->rank > SHAPE_RANK_MAX || !((unsigned)input->dtype - 1 < DTYPE_COUNT - 1)) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "input %u has no valid type: dtype %d, rank %d", i,
                             (int)input->dtype, input->rank);
        }
    }
    return STATUS_OK;
}

/* ---- attributes ---- */

/* The name of the attribute that stands at this place among the integers. */
static const char *attribute_name(const struct op_info *info, unsigned at) {
    for (unsigned i = 0; i < info->n_attributes; i++) {
        enum op_attribute_type type = info->attributes[i].type;
        if (type != OP_ATTRIBUTE_FLOAT && type != OP_ATTRIBUTE_FLOATS && at-- == 0) {
            return info->attributes[i].name;
        }
    }
    return "an attribute";
}

static int check_counts(const struct op_info *info, const struct op_attributes *attributes, struct fault *fault) {
    unsigned n_ints = attributes->n_ints, n_floats = attributes->n_floats;
    if (n_ints < info->ints_min) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s is missing", attribute_name(info, n_ints));
    }
    if (info->ints != OP_VARIES ? n_ints != (unsigned)info->ints : n_ints > OP_INTS_MAX) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s does not take %u integer attributes", info->name, n_ints);
    }
    if (info->floats != OP_VARIES ? n_floats != (unsigned)info->floats
                                  : n_floats < info->floats_min || n_floats > OP_FLOATS_MAX) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s does not take %u float attributes", info->name, n_floats);
    }
    return STATUS_OK;
}

static int refuse_value(const struct op_attribute *attribute, int64_t value, struct fault *fault) {
    char names[128] = "";
    size_t used = 0;
    for (unsigned i = 0; i < attribute->n_values && used < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%u (%s)",
                                 i == 0                        ? ""
                                 : i + 1 < attribute->n_values ? ", "
                                                               : " and ",
                                 i, attribute->values[i]);
    }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRId64 " is no %s: %s are", value, attribute->name, names);
}

/* Checks that `count` integers are one string and nothing else: zero bytes are only at its end, and it needs all these integers. */
static int check_string(const char *name, const int64_t *ints, unsigned count, struct fault *fault) {
    const char *string = (const char *)ints;
    size_t room = count * sizeof *ints, bytes = strnlen(string, room);
    if (bytes == room) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the string %s has no end", name);
    }
    for (size_t i = bytes; i < room; i++) {
        if (string[i] || bytes / sizeof *ints != count - 1) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "the string %s has a zero byte before its end", name);
        }
    }
    if (bytes > OP_STRING_MAX) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the string %s has more than %d bytes", name, OP_STRING_MAX);
    }
    return utf8_is_valid(string) ? STATUS_OK
                                 : fault_set(fault, STATUS_INVALID_ARGUMENT, "the string %s is not UTF-8", name);
}

/* Checks the lists behind the single integers: each list except the last one has its count before it. */
static int check_lists(const struct op_info *info, unsigned first, const struct op_attributes *attributes,
                       struct fault *fault) {
    unsigned at = info->ints_min;
    int status = STATUS_OK;
    for (; first < info->n_attributes && status == STATUS_OK; first++) {
        const struct op_attribute *attribute = &info->attributes[first];
        unsigned left = attributes->n_ints - at, count = left;
        if (first + 1 < info->n_attributes) {
            int64_t given = left ? attributes->ints[at++] : -1;
            if (given < 0 || given > (int64_t)left - 1) {
                return fault_set(fault, STATUS_INVALID_ARGUMENT, "the list %s has no valid length", attribute->name);
            }
            count = (unsigned)given;
        }
        if (attribute->type == OP_ATTRIBUTE_STRING) {
            status = check_string(attribute->name, attributes->ints + at, count, fault);
        }
        at += count;
    }
    return status;
}

static int check_attributes(const struct op_info *info, const struct op_attributes *attributes, struct fault *fault) {
    unsigned at = 0;
    int status = check_counts(info, attributes, fault);
    for (unsigned i = 0; i < info->n_attributes && status == STATUS_OK; i++) {
        const struct op_attribute *attribute = &info->attributes[i];
        if (attribute->type == OP_ATTRIBUTE_FLOAT || attribute->type == OP_ATTRIBUTE_FLOATS) {
            continue;
        }
        if (attribute->type >= OP_ATTRIBUTE_SHAPE) {
            return check_lists(info, i, attributes, fault);
        }
        int64_t value = attributes->ints[at++];
        if (attribute->type == OP_ATTRIBUTE_BOOL && value != 0 && value != 1) {
            status = fault_set(fault, STATUS_INVALID_ARGUMENT, "%s is %" PRId64 ", not 0 or 1", attribute->name, value);
        } else if (attribute->type == OP_ATTRIBUTE_DTYPE && (value <= DTYPE_INVALID || value >= DTYPE_COUNT)) {
            status = fault_set(fault, STATUS_DTYPE, "%" PRId64 " is no dtype", value);
        } else if (attribute->type == OP_ATTRIBUTE_ENUM && (value < 0 || value >= attribute->n_values)) {
            status = refuse_value(attribute, value, fault);
        }
    }
    return status;
}

/* ---- dtypes ---- */

/* The dtypes that an operation takes which does not take all of them. */
static const char *taken_words(uint32_t dtypes) {
    if (dtypes == OP_DTYPES_REAL) {
        return "f32 and f64";
    }
    if (dtypes == (OP_DTYPES_REAL | OP_DTYPES_COMPLEX)) {
        return "f32, f64 and complex numbers";
    }
    if (!(dtypes & ~OP_DTYPES_COMPLEX)) {
        return "complex numbers";
    }
    if (!(dtypes & ~OP_DTYPES_FLOAT)) {
        return "floating dtypes";
    }
    if (dtypes & OP_DTYPES_COMPLEX) {
        return "numbers";
    }
    return dtypes & OP_DTYPES_FLOAT ? "real numbers" : dtypes >> DTYPE_BOOL & 1 ? "integers and bool" : "integers";
}

static int refuse_dtype(const struct op_info *info, const char *verb, enum dtype dtype, struct fault *fault) {
    if (dtype_is_f8(dtype)) {
        return info->dtype == OP_DTYPE_ATTRIBUTE
                   ? fault_set(fault, STATUS_DTYPE, "gives no %s: ask for f16, bf16 or f32, and cast that",
                               dtype_name(dtype))
                   : fault_set(fault, STATUS_DTYPE, "takes no %s: cast to f16, bf16 or f32 first", dtype_name(dtype));
    }
    return fault_set(fault, STATUS_DTYPE, "%s %s, not %s", verb, taken_words(info->dtypes), dtype_name(dtype));
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

/* Checks an input that has a dtype of its own and does not promote with the others. */
static int check_role(const struct op_info *info, unsigned i, enum dtype dtype, struct fault *fault) {
    if ((info->index_inputs >> i & 1) && dtype_kind(dtype) != DTYPE_KIND_INT) {
        return fault_set(fault, STATUS_DTYPE, "indices are integers, not %s", dtype_name(dtype));
    }
    if ((info->bool_inputs >> i & 1) && dtype != DTYPE_BOOL) {
        return fault_set(fault, STATUS_DTYPE, "the condition is %s, not bool", dtype_name(dtype));
    }
    return STATUS_OK;
}

/* The dtype to which the operands promote, if the operation takes it; DTYPE_INVALID if there are no operands. */
static int promote_operands(const struct op_info *info, const struct op_call *call, enum dtype *out,
                            struct fault *fault) {
    uint32_t roles = info->index_inputs | info->bool_inputs | info->own_inputs;
    enum dtype both = DTYPE_INVALID;
    int status = STATUS_OK;
    for (unsigned i = 0; i < call->n_inputs && status == STATUS_OK; i++) {
        enum dtype dtype = call->inputs[i]->dtype;
        if (roles && i < 32 && (roles >> i & 1)) {
            status = check_role(info, i, dtype, fault);
        } else if (dtype_is_f8(dtype) && !(info->dtypes >> dtype & 1)) {
            status = refuse_dtype(info, "takes", dtype, fault);
        } else if (both == DTYPE_INVALID) {
            both = dtype;
        } else if (both != dtype) {
            status = op_promote(both, dtype, &both, fault);
        }
    }
    if (status == STATUS_OK && both != DTYPE_INVALID && !(info->dtypes >> both & 1)) {
        status = refuse_dtype(info, "takes", both, fault);
    }
    *out = both;
    return status;
}

/* Of logical operations each operand becomes a bool by itself, so that they need not promote. */
static int check_truths(const struct op_info *info, const struct op_call *call, struct fault *fault) {
    for (unsigned i = 0; i < call->n_inputs; i++) {
        if (!(info->dtypes >> call->inputs[i]->dtype & 1)) {
            return refuse_dtype(info, "takes", call->inputs[i]->dtype, fault);
        }
    }
    return STATUS_OK;
}

/* Products of f8 have no scale, and products of e4m3 would often exceed its largest value, 448: so the result is f32. The two formats
 * may be mixed. A third operand that is wider than f32 is refused. */
static int promote_product(const struct op_info *info, const struct op_call *call, enum dtype *out,
                           struct fault *fault) {
    enum dtype a = call->inputs[0]->dtype, b = call->inputs[1]->dtype;
    if (!dtype_is_f8(a) || !dtype_is_f8(b)) {
        return promote_operands(info, call, out, fault);
    }
    *out = DTYPE_F32;
    for (unsigned i = 2; i < call->n_inputs; i++) {
        int status = op_promote(*out, call->inputs[i]->dtype, out, fault);
        if (status != STATUS_OK) {
            return status;
        }
        if (*out != DTYPE_F32) {
            return fault_set(fault, STATUS_DTYPE, "a product of %s and %s is f32 and takes no bias of %s",
                             dtype_name(a), dtype_name(b), dtype_name(call->inputs[i]->dtype));
        }
    }
    return STATUS_OK;
}

/* The usual case is one or two operands with the same dtype, which the operation takes: this dtype. Otherwise DTYPE_INVALID. */
static inline enum dtype alike_operands(const struct op_info *info, const struct op_call *call) {
    enum dtype dtype = call->n_inputs ? call->inputs[0]->dtype : DTYPE_INVALID;
    bool alike = call->n_inputs == 1 || (call->n_inputs == 2 && call->inputs[1]->dtype == dtype);
    bool plain = info->dtype != OP_DTYPE_PRODUCT && !(info->index_inputs | info->bool_inputs | info->own_inputs);
    return alike && plain && (info->dtypes >> dtype & 1) ? dtype : DTYPE_INVALID;
}

static inline __attribute__((always_inline)) int infer_dtype(const struct op_info *info, const struct op_call *call,
                                                             enum dtype *out, struct fault *fault) {
    enum dtype operands = alike_operands(info, call);
    if (operands == DTYPE_INVALID) {
        int status = info->dtype == OP_DTYPE_PRODUCT   ? promote_product(info, call, &operands, fault)
                     : info->dtype == OP_DTYPE_LOGICAL ? check_truths(info, call, fault)
                                                       : promote_operands(info, call, &operands, fault);
        if (status != STATUS_OK) {
            return status;
        }
    }
    switch (info->dtype) {
    case OP_DTYPE_ATTRIBUTE:
        *out = (enum dtype)call->attributes->ints[info->dtype_at];
        return info->dtypes >> *out & 1 ? STATUS_OK : refuse_dtype(info, "gives", *out, fault);
    case OP_DTYPE_FLOATING:
        *out = dtype_to_float(operands);
        return STATUS_OK;
    case OP_DTYPE_REAL:
        *out = dtype_real(operands);
        return STATUS_OK;
    case OP_DTYPE_MAGNITUDE:
        *out = dtype_real(dtype_to_float(operands));
        return STATUS_OK;
    case OP_DTYPE_COMPLEX:
        *out = dtype_complex(operands);
        return STATUS_OK;
    case OP_DTYPE_COMPARED:
    case OP_DTYPE_LOGICAL:
    case OP_DTYPE_TESTED:
        *out = DTYPE_BOOL;
        return STATUS_OK;
    case OP_DTYPE_ACCUMULATED:
        *out = dtype_kind(operands) >= DTYPE_KIND_FLOAT ? operands
               : dtype_is_unsigned(operands)            ? DTYPE_U64
                                                        : DTYPE_I64;
        return STATUS_OK;
    case OP_DTYPE_POSITION:
    case OP_DTYPE_SEARCHED:
        *out = DTYPE_I64;
        return STATUS_OK;
    case OP_DTYPE_NONE:
    case OP_DTYPE_SAME:
    case OP_DTYPE_PROMOTED:
    case OP_DTYPE_PRODUCT:
    case OP_DTYPE_RULE:
        *out = operands;
        return STATUS_OK;
    case OP_DTYPE_COMPUTED: /* of further outputs alone */
        break;
    }
    return fault_set(fault, STATUS_INTERNAL, "%s has no rule for dtypes", info->name);
}

enum dtype op_operand_dtype(unsigned opcode, const struct tensor_type *const inputs[], unsigned i,
                            const struct tensor_type *out) {
    const struct op_info *info = op_info(opcode);
    enum dtype own = inputs[i]->dtype;
    if (!info) {
        return own;
    }
    if (i < 32 && (info->index_inputs >> i & 1)) {
        return DTYPE_I64;
    }
    if (i < 32 && (info->bool_inputs >> i & 1)) {
        return DTYPE_BOOL;
    }
    if (i < 32 && (info->own_inputs >> i & 1)) {
        return dtype_kind(own) == DTYPE_KIND_FLOAT ? op_computed(out->dtype) : own;
    }
    switch (info->dtype) {
    case OP_DTYPE_PROMOTED:
    case OP_DTYPE_FLOATING:
    case OP_DTYPE_ACCUMULATED:
        return out->dtype;
    case OP_DTYPE_COMPARED:
    case OP_DTYPE_SEARCHED:
        return dtype_promote(inputs[0]->dtype, inputs[1]->dtype);
    case OP_DTYPE_LOGICAL:
        return DTYPE_BOOL;
    case OP_DTYPE_TESTED: /* of one input, as the next one */
    case OP_DTYPE_MAGNITUDE:
        return dtype_to_float(own);
    case OP_DTYPE_PRODUCT:
        return dtype_is_f8(own) ? own : out->dtype;
    case OP_DTYPE_NONE:
    case OP_DTYPE_ATTRIBUTE:
    case OP_DTYPE_SAME:
    case OP_DTYPE_REAL: /* of one input */
    case OP_DTYPE_RULE:
    case OP_DTYPE_COMPUTED:
        return own;
    case OP_DTYPE_COMPLEX:
        return dtype_is_complex(own) ? own : dtype_real(out->dtype);
    case OP_DTYPE_POSITION: /* complex numbers have no order: all that counts is whether they are 0 */
        return dtype_is_complex(own) ? DTYPE_BOOL : own;
    }
    return DTYPE_INVALID;
}

/* ---- types ---- */

/* Whether all inputs have one type, and the result has it, too: the usual case. */
static inline bool keeps_type(const struct op_info *info, const struct op_call *call) {
    if (!call->n_inputs || !(info->keeps >> call->inputs[0]->dtype & 1) ||
        (call->attributes->n_ints | call->attributes->n_floats)) {
        return false;
    }
    for (unsigned i = 1; i < call->n_inputs; i++) {
        if (!type_equal(call->inputs[0], call->inputs[i])) {
            return false;
        }
    }
    return true;
}

/* Whether the operands have one shape, which has been checked, and the result's elements are no larger than theirs: the usual case. */
static inline bool keeps_shape(const struct op_info *info, const struct op_call *call, enum dtype result) {
    const struct tensor_type *x = call->inputs[0];
    return info->shape == op_rule_broadcast && call->n_inputs <= 2 &&
           (call->n_inputs == 1 || shape_equal(x, call->inputs[1])) &&
           (result == x->dtype || dtype_size(result) <= dtype_size(x->dtype));
}

static int infer_several(const struct op_info *info, const struct op_call *call, struct tensor_type *out,
                         struct fault *fault) {
    struct tensor_type results[OP_OUTPUTS_NAMED];
    int status = infer_dtype(info, call, &results[0].dtype, fault);
    for (unsigned i = 1; i < info->n_outputs && status == STATUS_OK; i++) {
        enum op_dtype_rule rule = info->further[i - 1];
        results[i].dtype = rule == OP_DTYPE_POSITION   ? DTYPE_I64
                           : rule == OP_DTYPE_SAME     ? call->inputs[0]->dtype
                           : rule == OP_DTYPE_REAL     ? dtype_real(results[0].dtype)
                           : rule == OP_DTYPE_COMPUTED ? op_computed(results[0].dtype)
                                                       : results[0].dtype;
    }
    if (status == STATUS_OK) {
        status = info->shape(call, results, fault);
    }
    for (unsigned i = 0; i < info->n_outputs && status == STATUS_OK; i++) {
        status = type_check(&results[i], fault);
    }
    if (status == STATUS_OK) {
        memcpy(out, results, info->n_outputs * sizeof *out);
    }
    return status;
}

int op_infer(unsigned opcode, const struct tensor_type *const inputs[], unsigned n_inputs,
             const struct op_attributes *attributes, struct tensor_type *out, struct fault *fault) {
    static const struct op_attributes none = {0};
    const struct op_info *info = op_info(opcode);
    if (!info) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u is no operation", opcode);
    }
    struct op_call call = {opcode, n_inputs, inputs, attributes ? attributes : &none};
    int status = check_inputs(info, &call, fault);
    if (status == STATUS_OK && keeps_type(info, &call)) {
        *out = *inputs[0];
        return STATUS_OK;
    }
    if (status == STATUS_OK && (info->n_attributes | call.attributes->n_ints | call.attributes->n_floats)) {
        status = check_attributes(info, call.attributes, fault);
    }
    if (status != STATUS_OK || info->family == OP_FAMILY_FREE) {
        return status;
    }
    if (info->n_outputs > 1) {
        return infer_several(info, &call, out, fault);
    }
    /* `out` may be one of the inputs, and stays as it is on failure. */
    struct tensor_type result;
    if (info->outputs_vary) {
        call.n_outputs = 1;
        status = info->shape(&call, &result, fault);
        if (status == STATUS_OK) {
            *out = result;
        }
        return status;
    }
    status = infer_dtype(info, &call, &result.dtype, fault);
    if (status == STATUS_OK && keeps_shape(info, &call, result.dtype)) {
        op_copy_shape(&result, inputs[0]);
        *out = result;
        return STATUS_OK;
    }
    if (status == STATUS_OK) {
        status = info->shape(&call, &result, fault);
    }
    if (status == STATUS_OK) {
        status = type_check(&result, fault);
    }
    if (status == STATUS_OK) {
        *out = result;
    }
    return status;
}

int op_infer_outputs(unsigned opcode, const struct tensor_type *const inputs[], unsigned n_inputs,
                     const struct op_attributes *attributes, unsigned n_outputs, struct tensor_type *out,
                     struct fault *fault) {
    const struct op_info *info = op_info(opcode);
    if (info && info->outputs_vary) {
        struct op_call call = {opcode, n_inputs, inputs, attributes};
        int status = check_inputs(info, &call, fault);
        if (status == STATUS_OK) {
            status = check_attributes(info, attributes, fault);
        }
        call.n_outputs = n_outputs;
        return status == STATUS_OK ? info->shape(&call, out, fault) : status;
    }
    if (info && info->n_outputs != n_outputs) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s has %u outputs, not %u", info->name, info->n_outputs,
                         n_outputs);
    }
    return op_infer(opcode, inputs, n_inputs, attributes, out, fault);
}

int op_rule_none(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    (void)out;
    return fault_set(fault, STATUS_INTERNAL, "operation %u has no result", call->opcode);
}
