#include "client/autograd/rule.h"

#include <stdio.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/device.h"
#include "client/lib/error.h"

/* Numbers that rules of one walk share, of each device and dtype: most rules of a network need the same few. */
static _Thread_local struct rule_numbers *numbers_innermost;

void rule_numbers_begin(struct rule_numbers *numbers) {
    numbers->n = 0;
    numbers->outer = numbers_innermost;
    numbers_innermost = numbers;
}

void rule_numbers_end(void) {
    struct rule_numbers *numbers = numbers_innermost;
    numbers_innermost = numbers->outer;
    for (unsigned i = 0; i < numbers->n; i++)
        td_release(numbers->all[i].tensor);
}

static td_tensor *number_find(const td_tensor *like, double value) {
    const struct rule_numbers *numbers = numbers_innermost;
    for (unsigned i = 0; i < numbers->n; i++) {
        td_tensor *number = numbers->all[i].tensor;
        if (number->device == like->device && number->type.dtype == like->type.dtype &&
            !memcmp(&numbers->all[i].value, &value, sizeof value))
            return number;
    }
    return NULL;
}

/* It outlives the rule's scope. */
static void number_share(td_tensor *number, double value) {
    struct rule_numbers *numbers = numbers_innermost;
    if (number && numbers->n < RULE_NUMBERS_MAX)
        numbers->all[numbers->n++] = (struct rule_number){td_keep(number), value};
}

/* Whether somebody else has this handle: the rule, for what it has given before; the tape; or other rules, if it is a number. A gradient of an
 * output may be given as it is, for td_gradients() counts its uses. */
static bool is_shared(const struct rule_call *call, const td_tensor *tensor) {
    const struct rule_numbers *numbers = numbers_innermost;
    const struct tape_node *node = call->node;
    for (unsigned k = 0; k < node->n_outputs; k++)
        if (call->g[k] == tensor)
            return false;
    for (unsigned k = 0; k < node->n_inputs; k++)
        if (call->given[k] == tensor || node->inputs[k].tensor == tensor)
            return true;
    for (unsigned k = 0; k < node->n_outputs; k++)
        if (node->outputs[k].tensor == tensor)
            return true;
    for (unsigned k = 0; k < numbers->n; k++)
        if (numbers->all[k].tensor == tensor)
            return true;
    return false;
}

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
    bool leading = count == more; /* the sum has the shape without them */
    td_tensor *sum = count ? td_sum(x, count, axes, !leading) : x;
    return leading ? sum : td_reshape(sum, type->rank, type->shape);
}

/* A real input of a complex result has the real part of the gradient. */
static td_tensor *cast_to(const struct tensor_type *type, td_tensor *x) {
    if (x && dtype_is_complex(x->type.dtype) && !dtype_is_complex(type->dtype))
        x = td_real(x);
    return !x || x->type.dtype == type->dtype ? x : td_cast(x, (td_dtype)type->dtype);
}

void rule_give(struct rule_call *call, unsigned i, td_tensor *gradient) {
    const struct tensor_type *type = rule_type(call, i);
    td_tensor *given = gradient;
    if (given && !shape_equal(&given->type, type))
        given = sum_to(type, given);
    given = cast_to(type, given);
    call->given[i] = given && is_shared(call, given) ? td_reshape(given, type->rank, type->shape) : given;
    if (!call->given[i])
        rule_fail(call);
}

void rule_give_reshaped(struct rule_call *call, unsigned i, td_tensor *gradient) {
    const struct tensor_type *type = rule_type(call, i);
    rule_give(call, i,
              gradient && !shape_equal(&gradient->type, type) ? td_reshape(gradient, type->rank, type->shape)
                                                              : gradient);
}

td_tensor *rule_operand(const struct rule_call *call, unsigned i) {
    enum dtype dtype = call->node->outputs[0].type.dtype;
    td_tensor *x = rule_input(call, i);
    return rule_type(call, i)->dtype == dtype ? x : td_cast(x, (td_dtype)dtype);
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
    td_tensor *number = like ? number_find(like, value) : NULL;
    if (!like || number)
        return number;
    number = td_full(like->device, (td_dtype)like->type.dtype, 0, NULL, value);
    number_share(number, value);
    return number;
}

td_tensor *rule_scale(td_tensor *x, double factor) {
    return factor == 1 ? x : td_multiply(x, rule_number(x, factor));
}

td_tensor *rule_shift(td_tensor *x, double term) {
    return td_add(x, rule_number(x, term));
}

td_tensor *rule_divisor(td_tensor *x) {
    return td_where(td_equal(x, rule_number(x, 0)), rule_number(x, 1), x);
}

td_tensor *rule_conjugate(td_tensor *x) {
    return x && dtype_is_complex(x->type.dtype) ? td_conj(x) : x;
}

td_tensor *rule_adjoint(td_tensor *x) {
    return td_transpose(rule_conjugate(x));
}

td_tensor *rule_widen(td_tensor *x) {
    return x && (x->type.dtype == DTYPE_F16 || x->type.dtype == DTYPE_BF16) ? td_cast(x, TD_F32) : x;
}

int rule_unsupported(const struct tape_node *node, const char *why) {
    struct fault fault = {.code = STATUS_UNSUPPORTED};
    snprintf(fault.message, sizeof fault.message, "%s", why);
    return error_fault(&fault, node->rule ? node->rule->name : op_rows[node->opcode].name, NULL);
}

/* The rules that are right for complex numbers, too. */
static const bool complex_rules[OP_CODE_MAX] = {
    [OP_ADD] = true,
    [OP_SUBTRACT] = true,
    [OP_MULTIPLY] = true,
    [OP_DIVIDE] = true,
    [OP_POW] = true,
    [OP_WHERE] = true,
    [OP_NEGATIVE] = true,
    [OP_POSITIVE] = true,
    [OP_ABS] = true,
    [OP_SIGN] = true,
    [OP_SQUARE] = true,
    [OP_RECIPROCAL] = true,
    [OP_SQRT] = true,
    [OP_EXP] = true,
    [OP_EXPM1] = true,
    [OP_LOG] = true,
    [OP_LOG1P] = true,
    [OP_LOG2] = true,
    [OP_LOG10] = true,
    [OP_SIN] = true,
    [OP_COS] = true,
    [OP_TAN] = true,
    [OP_ASIN] = true,
    [OP_ACOS] = true,
    [OP_ATAN] = true,
    [OP_SINH] = true,
    [OP_COSH] = true,
    [OP_TANH] = true,
    [OP_ASINH] = true,
    [OP_ACOSH] = true,
    [OP_ATANH] = true,
    [OP_REAL] = true,
    [OP_IMAG] = true,
    [OP_CONJ] = true,
    [OP_COMPLEX] = true,
    [OP_ANGLE] = true,
    [OP_FFT] = true,
    [OP_IFFT] = true,
    [OP_RFFT] = true,
    [OP_IRFFT] = true,
    [OP_CAST] = true,
    [OP_COPY] = true,
    [OP_RESHAPE] = true,
    [OP_PERMUTE_DIMS] = true,
    [OP_SLICE] = true,
    [OP_MATRIX_TRANSPOSE] = true,
    [OP_BROADCAST_TO] = true,
    [OP_SQUEEZE] = true,
    [OP_EXPAND_DIMS] = true,
    [OP_CONCAT] = true,
    [OP_STACK] = true,
    [OP_DIAGONAL] = true,
    [OP_PAD] = true,
    [OP_TRIL] = true,
    [OP_TRIU] = true,
    [OP_TAKE] = true,
    [OP_TAKE_ALONG_AXIS] = true,
    [OP_SCATTER] = true,
    [OP_SCATTER_ADD] = true,
    [OP_MASKED_SELECT] = true,
    [OP_UNIQUE_RUNS] = true,
    [OP_REPEAT_EACH] = true,
    [OP_SUM] = true,
    [OP_PROD] = true,
    [OP_MEAN] = true,
    [OP_VECTOR_NORM] = true,
    [OP_CUMULATIVE_SUM] = true,
    [OP_CUMULATIVE_PROD] = true,
    [OP_MATMUL] = true,
    [OP_CROSS] = true,
    [OP_CHOLESKY] = true,
    [OP_LU] = true,
    [OP_QR] = true,
    [OP_SOLVE] = true,
    [OP_TRIANGULAR_SOLVE] = true,
    [OP_INV] = true,
    [OP_DET] = true,
    [OP_SLOGDET] = true,
    [OP_LSTSQ] = true,
    [OP_EIGH] = true,
    [OP_EIGVALSH] = true,
    [OP_SVD] = true,
    [OP_SVDVALS] = true,
};

bool rule_takes_complex(unsigned opcode) {
    return complex_rules[opcode];
}

void rule_refuse(struct rule_call *call, const char *why) {
    rule_unsupported(call->node, why);
    rule_fail(call);
}
