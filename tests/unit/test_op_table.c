#include "tests/unit/random.h"

#include <criterion/criterion.h>
#include <string.h>

#include "proto/ops/op.h"

Test(op_table, every_row_is_found_and_sane) {
    unsigned rows = 0;
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++) {
        const struct op_info *info = op_info(opcode);
        if (info) {
            rows++;
            cr_assert_gt(strlen(info->name), 0u);
            cr_assert_neq(info->family, OP_FAMILY_NONE);
            cr_assert(info->inputs_min >= 0 && info->inputs_min <= info->inputs_max);
            cr_assert(info->n_outputs <= OP_OUTPUTS_MAX && (info->n_outputs > 0) == (opcode != OP_FREE));
            cr_assert(info->n_outputs < 2 || info->further);
            cr_assert(info->inputs_max <= OP_INPUTS_MAX && info->ints <= OP_PACKED_INTS &&
                      info->floats <= OP_PACKED_FLOATS);
        }
    }
    cr_assert_gt(rows, 50u);
}

Test(op_table, numbers_that_are_no_operation_are_refused) {
    const unsigned numbers[] = {0, 1000, OP_CODE_MAX, 65535, 0xffffffffu};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct tensor_type out;
        struct fault fault;
        cr_assert_null(op_info(numbers[i]));
        cr_assert_eq(op_infer(numbers[i], NULL, 0, NULL, &out, &fault), STATUS_INVALID_ARGUMENT);
    }
}

Test(op_table, free_has_no_result) {
    struct tensor_type x = {.dtype = DTYPE_F32, .rank = 0}, out = {.rank = 5};
    const struct tensor_type *inputs[] = {&x};
    cr_assert_eq(op_infer(OP_FREE, inputs, 1, NULL, &out, NULL), STATUS_OK);
    cr_assert_eq(out.rank, 5);
}

Test(op_table, inputs_without_a_valid_type_are_refused) {
    struct tensor_type good = {.dtype = DTYPE_F32, .rank = 0}, bad[] = {{.dtype = DTYPE_F32, .rank = 9},
                                                                        {.dtype = DTYPE_F32, .rank = -1},
                                                                        {.dtype = DTYPE_INVALID, .rank = 0},
                                                                        {.dtype = DTYPE_COUNT, .rank = 0},
                                                                        {.dtype = (enum dtype) - 1, .rank = 0}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct tensor_type *inputs[] = {&good, &bad[i]};
        struct tensor_type out;
        cr_assert_eq(op_infer(OP_ADD, inputs, 2, NULL, &out, NULL), STATUS_INVALID_ARGUMENT);
    }
}

Test(op_table, work_grows_with_what_the_description_says) {
    struct tensor_type a = {.dtype = DTYPE_F32, .rank = 2, .shape = {3, 5}},
                       b = {.dtype = DTYPE_F32, .rank = 1, .shape = {7}}, scalar = {.dtype = DTYPE_F32};
    const struct tensor_type *large[] = {&a}, *vector[] = {&b}, *none[] = {&scalar};
    cr_assert_eq(op_work(op_info(OP_ADD), vector, &a), 15);
    cr_assert_eq(op_work(op_info(OP_SUM), large, &scalar), 15);
    cr_assert_eq(op_work(op_info(OP_TOPK), large, &b), 15);
    cr_assert_eq(op_work(op_info(OP_MATMUL), large, &b), 35);
    cr_assert_eq(op_work(op_info(OP_MATMUL), none, &b), 7);
    cr_assert_eq(op_work(op_info(OP_UNIFORM), NULL, &b), 7);
    cr_assert_eq(op_work(op_info(OP_RESHAPE), large, &a), 0);
    cr_assert_eq(op_info(OP_MATMUL)->flop, 2);
    cr_assert_eq(op_info(OP_POW)->flop, 40);
    cr_assert_eq(op_info(OP_ADD)->flop, 1);
}

static enum dtype operand(unsigned opcode, unsigned i, enum dtype a, enum dtype b, enum dtype result) {
    struct tensor_type types[] = {{.dtype = a}, {.dtype = b}, {.dtype = b}}, out = {.dtype = result};
    const struct tensor_type *inputs[] = {&types[0], &types[1], &types[2]};
    return op_operand_dtype(opcode, inputs, i, &out);
}

Test(op_table, kernels_see_operands_in_the_dtype_they_compute_in) {
    cr_assert_eq(operand(OP_ADD, 0, DTYPE_I8, DTYPE_F32, DTYPE_F32), DTYPE_F32);
    cr_assert_eq(operand(OP_LESS, 0, DTYPE_I8, DTYPE_F32, DTYPE_BOOL), DTYPE_F32);
    cr_assert_eq(operand(OP_LOGICAL_AND, 1, DTYPE_I8, DTYPE_F32, DTYPE_BOOL), DTYPE_BOOL);
    cr_assert_eq(operand(OP_WHERE, 0, DTYPE_BOOL, DTYPE_F32, DTYPE_F32), DTYPE_BOOL);
    cr_assert_eq(operand(OP_WHERE, 2, DTYPE_BOOL, DTYPE_I8, DTYPE_F32), DTYPE_F32);
    cr_assert_eq(operand(OP_EXP, 0, DTYPE_I8, DTYPE_I8, DTYPE_F32), DTYPE_F32);
    cr_assert_eq(operand(OP_CAST, 0, DTYPE_I8, DTYPE_I8, DTYPE_F32), DTYPE_I8);
    cr_assert_eq(operand(OP_RESHAPE, 0, DTYPE_I8, DTYPE_I8, DTYPE_I8), DTYPE_I8);
    cr_assert_eq(operand(OP_SUM, 0, DTYPE_I8, DTYPE_I8, DTYPE_I64), DTYPE_I64);
    cr_assert_eq(operand(OP_SUM, 0, DTYPE_U8, DTYPE_U8, DTYPE_U64), DTYPE_U64);
    cr_assert_eq(operand(OP_ANY, 0, DTYPE_F32, DTYPE_U8, DTYPE_BOOL), DTYPE_BOOL);
    cr_assert_eq(operand(OP_ARGMAX, 0, DTYPE_F16, DTYPE_U8, DTYPE_I64), DTYPE_F16);
    cr_assert_eq(operand(OP_TAKE, 0, DTYPE_F16, DTYPE_U8, DTYPE_F16), DTYPE_F16);
    cr_assert_eq(operand(OP_TAKE, 1, DTYPE_F16, DTYPE_U8, DTYPE_F16), DTYPE_I64);
    cr_assert_eq(operand(OP_MATMUL, 0, DTYPE_I8, DTYPE_F16, DTYPE_F16), DTYPE_F16);
    cr_assert_eq(operand(OP_MATMUL, 0, DTYPE_F8E4M3, DTYPE_F8E5M2, DTYPE_F32), DTYPE_F8E4M3);
    cr_assert_eq(operand(OP_MATMUL, 1, DTYPE_F8E4M3, DTYPE_F8E5M2, DTYPE_F32), DTYPE_F8E5M2);
    cr_assert_eq(operand(OP_ONE_HOT, 0, DTYPE_U8, DTYPE_U8, DTYPE_F32), DTYPE_I64);
}

static int64_t random_number(uint64_t *state) {
    switch (random_next(state) % 4) {
    case 0:
        return (int64_t)random_next(state);
    case 1:
        return INT64_MIN + (int64_t)(random_next(state) % 3);
    default:
        return (int64_t)(random_next(state) % 12) - 3;
    }
}

static struct tensor_type random_type(uint64_t *state) {
    struct tensor_type type = {.dtype = (enum dtype)(1 + random_next(state) % (DTYPE_COUNT - 1)),
                               .rank = (int)(random_next(state) % (SHAPE_RANK_MAX + 1))};
    for (int i = 0; i < type.rank; i++) {
        type.shape[i] = (int64_t)(random_next(state) % 4);
    }
    return type;
}

Test(op_table, whatever_is_asked_the_answer_is_a_fault_or_a_valid_type) {
    uint64_t state = 1;
    unsigned good = 0;
    enum { INPUTS = 16 };
    for (int round = 0; round < 300000; round++) {
        static struct tensor_type out[OP_OUTPUTS_MAX];
        struct tensor_type types[INPUTS];
        const struct tensor_type *inputs[INPUTS];
        int64_t ints[OP_PACKED_INTS + 1];
        double floats[OP_PACKED_FLOATS + 1];
        struct op_attributes attributes = {ints, floats, 0, 0};
        struct fault fault = {.code = STATUS_OK};
        unsigned opcode = (unsigned)(random_next(&state) % (OP_CODE_MAX + 2));
        const struct op_info *info = op_info(opcode);
        unsigned n = info && info->inputs_min == info->inputs_max ? (unsigned)info->inputs_min
                                                                  : (unsigned)(random_next(&state) % 5);
        cr_assert_leq(n, INPUTS);
        for (unsigned i = 0; info && i < info->n_outputs; i++) {
            out[i].dtype = DTYPE_INVALID;
        }
        attributes.n_ints =
            info && info->ints >= 0 ? (unsigned)info->ints : (unsigned)(random_next(&state) % (OP_PACKED_INTS + 2));
        attributes.n_floats = info && info->floats >= 0 ? (unsigned)info->floats : 0;
        for (unsigned i = 0; i < attributes.n_ints; i++) {
            ints[i] = random_number(&state);
        }
        for (unsigned i = 0; i < attributes.n_floats; i++) {
            uint64_t bits = random_next(&state);
            memcpy(&floats[i], &bits, sizeof(bits));
        }
        for (unsigned i = 0; i < n; i++) {
            types[i] = random_type(&state);
            inputs[i] = &types[i];
        }
        int status = op_infer(opcode, inputs, n, &attributes, out, &fault);
        if (status != STATUS_OK) {
            cr_assert(fault.code == (enum status)status && fault.message[0], "operation %u", opcode);
        } else if (opcode != OP_FREE) {
            for (unsigned i = 0; i < info->n_outputs; i++) {
                cr_assert_eq(type_check(&out[i], NULL), STATUS_OK, "operation %u", opcode);
            }
            good++;
        }
    }
    cr_assert_gt(good, 10000u, "only %u were good", good);
}
