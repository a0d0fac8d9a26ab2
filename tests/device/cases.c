#include "tests/device/cases.h"

#define ELEMENTWISE(ID, inputs, flop) {case_elementwise_##inputs, OP_##ID, FILL_ANY},
/* clang-format off */
static const struct op_case op_cases[] = {
    {case_free, OP_FREE, FILL_ANY},
    {case_create, OP_FULL, FILL_ANY},
    {case_create, OP_ARANGE, FILL_ANY},
    {case_create, OP_EYE, FILL_ANY},
    {case_random, OP_UNIFORM, FILL_ANY},
    {case_random, OP_NORMAL, FILL_ANY},
    {case_cast, OP_CAST, FILL_ANY},
    {case_elementwise_1, OP_COPY, FILL_ANY},
    {case_view, OP_RESHAPE, FILL_ANY},
    {case_view, OP_PERMUTE_DIMS, FILL_ANY},
    {case_view, OP_MATRIX_TRANSPOSE, FILL_ANY},
    {case_view, OP_SLICE, FILL_ANY},
    {case_view, OP_BROADCAST_TO, FILL_ANY},
    {case_view, OP_SQUEEZE, FILL_ANY},
    {case_view, OP_EXPAND_DIMS, FILL_ANY},
    OP_ELEMENTWISE(ELEMENTWISE)
    {case_reduce, OP_SUM, FILL_ORDINARY},
    {case_reduce, OP_PROD, FILL_NEAR_ONE},
    {case_reduce, OP_MEAN, FILL_ORDINARY},
    {case_reduce, OP_MAX, FILL_ANY},
    {case_reduce, OP_MIN, FILL_ANY},
    {case_reduce, OP_ANY, FILL_COUNT},
    {case_reduce, OP_ALL, FILL_COUNT},
    {case_arg, OP_ARGMAX, FILL_ANY},
    {case_arg, OP_ARGMIN, FILL_ANY},
    {case_softmax, OP_SOFTMAX, FILL_ORDINARY},
    {case_softmax, OP_LOG_SOFTMAX, FILL_ORDINARY},
    {case_matmul, OP_MATMUL, FILL_ORDINARY},
    {case_linear, OP_LINEAR, FILL_ORDINARY},
    {case_join, OP_CONCAT, FILL_ANY},
    {case_join, OP_STACK, FILL_ANY},
    {case_take, OP_TAKE, FILL_ANY},
    {case_take_along_axis, OP_TAKE_ALONG_AXIS, FILL_ANY},
    {case_one_hot, OP_ONE_HOT, FILL_ANY},
    {case_topk, OP_TOPK, FILL_ANY},
};
/* clang-format on */

const struct op_case *op_case_find(unsigned opcode) {
    for (size_t i = 0; i < sizeof op_cases / sizeof *op_cases; i++)
        if (op_cases[i].opcode == opcode)
            return &op_cases[i];
    return NULL;
}

bool op_case_takes(const struct op_case *row, enum dtype dtype) {
    return op_info(row->opcode)->dtypes >> dtype & 1;
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
