#include "tests/device/cases.h"

static const struct op_case op_cases[] = {
    {case_free, OP_FREE, TAKES_STORED, FILL_ANY},
    {case_create, OP_FULL, TAKES_STORED, FILL_ANY},
    {case_create, OP_ARANGE, TAKES_NUMBERS, FILL_ANY},
    {case_create, OP_EYE, TAKES_STORED, FILL_ANY},
    {case_random, OP_UNIFORM, TAKES_FLOATS, FILL_ANY},
    {case_random, OP_NORMAL, TAKES_FLOATS, FILL_ANY},
    {case_cast, OP_CAST, TAKES_STORED, FILL_ANY},
    {case_unary, OP_COPY, TAKES_STORED, FILL_ANY},
    {case_view, OP_RESHAPE, TAKES_STORED, FILL_ANY},
    {case_view, OP_PERMUTE_DIMS, TAKES_STORED, FILL_ANY},
    {case_view, OP_MATRIX_TRANSPOSE, TAKES_STORED, FILL_ANY},
    {case_view, OP_SLICE, TAKES_STORED, FILL_ANY},
    {case_view, OP_BROADCAST_TO, TAKES_STORED, FILL_ANY},
    {case_view, OP_SQUEEZE, TAKES_STORED, FILL_ANY},
    {case_view, OP_EXPAND_DIMS, TAKES_STORED, FILL_ANY},
    {case_binary, OP_ADD, TAKES_ALL, FILL_ANY},
    {case_binary, OP_SUBTRACT, TAKES_NUMBERS, FILL_ANY},
    {case_binary, OP_MULTIPLY, TAKES_ALL, FILL_ANY},
    {case_binary, OP_DIVIDE, TAKES_ALL, FILL_ANY},
    {case_binary, OP_POW, TAKES_NUMBERS, FILL_ANY},
    {case_binary, OP_MAXIMUM, TAKES_ALL, FILL_ANY},
    {case_binary, OP_MINIMUM, TAKES_ALL, FILL_ANY},
    {case_binary, OP_EQUAL, TAKES_ALL, FILL_ANY},
    {case_binary, OP_NOT_EQUAL, TAKES_ALL, FILL_ANY},
    {case_binary, OP_LESS, TAKES_ALL, FILL_ANY},
    {case_binary, OP_LESS_EQUAL, TAKES_ALL, FILL_ANY},
    {case_binary, OP_GREATER, TAKES_ALL, FILL_ANY},
    {case_binary, OP_GREATER_EQUAL, TAKES_ALL, FILL_ANY},
    {case_binary, OP_LOGICAL_AND, TAKES_ALL, FILL_ANY},
    {case_binary, OP_LOGICAL_OR, TAKES_ALL, FILL_ANY},
    {case_unary, OP_LOGICAL_NOT, TAKES_ALL, FILL_ANY},
    {case_unary, OP_NEGATIVE, TAKES_NUMBERS, FILL_ANY},
    {case_unary, OP_ABS, TAKES_NUMBERS, FILL_ANY},
    {case_unary, OP_EXP, TAKES_ALL, FILL_ANY},
    {case_unary, OP_LOG, TAKES_ALL, FILL_ANY},
    {case_unary, OP_SQRT, TAKES_ALL, FILL_ANY},
    {case_unary, OP_TANH, TAKES_ALL, FILL_ANY},
    {case_unary, OP_SIGMOID, TAKES_ALL, FILL_ANY},
    {case_unary, OP_RELU, TAKES_NUMBERS, FILL_ANY},
    {case_where, OP_WHERE, TAKES_STORED, FILL_ANY},
    {case_reduce, OP_SUM, TAKES_ALL, FILL_ORDINARY},
    {case_reduce, OP_PROD, TAKES_ALL, FILL_NEAR_ONE},
    {case_reduce, OP_MEAN, TAKES_ALL, FILL_ORDINARY},
    {case_reduce, OP_MAX, TAKES_ALL, FILL_ANY},
    {case_reduce, OP_MIN, TAKES_ALL, FILL_ANY},
    {case_reduce, OP_ANY, TAKES_ALL, FILL_COUNT},
    {case_reduce, OP_ALL, TAKES_ALL, FILL_COUNT},
    {case_arg, OP_ARGMAX, TAKES_ALL, FILL_ANY},
    {case_arg, OP_ARGMIN, TAKES_ALL, FILL_ANY},
    {case_softmax, OP_SOFTMAX, TAKES_FLOATS, FILL_ORDINARY},
    {case_softmax, OP_LOG_SOFTMAX, TAKES_FLOATS, FILL_ORDINARY},
    {case_matmul, OP_MATMUL, TAKES_NUMBERS | TAKES_F8, FILL_ORDINARY},
    {case_linear, OP_LINEAR, TAKES_NUMBERS | TAKES_F8, FILL_ORDINARY},
    {case_join, OP_CONCAT, TAKES_STORED, FILL_ANY},
    {case_join, OP_STACK, TAKES_STORED, FILL_ANY},
    {case_take, OP_TAKE, TAKES_STORED, FILL_ANY},
    {case_take_along_axis, OP_TAKE_ALONG_AXIS, TAKES_STORED, FILL_ANY},
    {case_one_hot, OP_ONE_HOT, TAKES_STORED, FILL_ANY},
};

const struct op_case *op_case_find(unsigned opcode) {
    for (size_t i = 0; i < sizeof op_cases / sizeof *op_cases; i++)
        if (op_cases[i].opcode == opcode)
            return &op_cases[i];
    return NULL;
}

bool op_case_takes(const struct op_case *row, enum dtype dtype) {
    return row->dtypes >> dtype & 1;
}

enum dtype op_case_dtype(struct suite *suite, const struct op_case *row) {
    for (;;) {
        enum dtype dtype = (enum dtype)(1 + suite_below(suite, DTYPE_COUNT - 1));
        if (op_case_takes(row, dtype))
            return dtype;
    }
}

enum dtype op_case_partner(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    for (;;) {
        enum dtype partner = op_case_dtype(suite, row);
        if (reference_promote(dtype, partner) != DTYPE_INVALID)
            return partner;
    }
}

const int64_t case_lengths[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 1000};
const int case_length_count = sizeof case_lengths / sizeof *case_lengths;

void case_settle(struct suite *suite, struct sample *result) {
    suite_check(suite, result);
    suite_free(suite, result);
}
