/* Rules of operations whose results have a number that the data gives, and of histogram. */
#include "tests/unit/infer.h"

#include <criterion/criterion.h>

static int infer(unsigned opcode, const struct tensor_type *a, const struct tensor_type *b, struct tensor_type *out,
                 struct fault *fault) {
    const struct tensor_type *inputs[] = {a, b};
    return op_infer(opcode, inputs, b ? 2 : 1, NULL, out, fault);
}

Test(op_compact, results_have_the_greatest_shape_and_a_number) {
    const struct tensor_type x = {.dtype = DTYPE_F32, .rank = 2, .shape = {3, 7}};
    const struct tensor_type mask = {.dtype = DTYPE_BOOL, .rank = 3, .shape = {2, 1, 7}};
    const struct tensor_type sorted = {.dtype = DTYPE_I8, .rank = 1, .shape = {9}};
    const struct tensor_type positions = {.dtype = DTYPE_I64, .rank = 1, .shape = {9}};
    struct tensor_type out[5];
    struct fault fault;
    cr_assert_eq(infer(OP_NONZERO, &x, NULL, out, &fault), STATUS_OK, "%s", fault.message);
    cr_assert(out[0].dtype == DTYPE_I64 && out[0].rank == 2 && out[0].shape[0] == 2 && out[0].shape[1] == 21);
    cr_assert(out[1].dtype == DTYPE_I64 && out[1].rank == 0);
    cr_assert_eq(infer(OP_MASKED_SELECT, &x, &mask, out, &fault), STATUS_OK, "%s", fault.message);
    cr_assert(out[0].dtype == DTYPE_F32 && out[0].rank == 1 && out[0].shape[0] == 42 && out[1].rank == 0);
    cr_assert_eq(infer(OP_UNIQUE_RUNS, &sorted, &positions, out, &fault), STATUS_OK, "%s", fault.message);
    for (int i = 0; i < 4; i++)
        cr_assert(out[i].dtype == (i ? DTYPE_I64 : DTYPE_I8) && out[i].rank == 1 && out[i].shape[0] == 9);
    cr_assert(out[4].dtype == DTYPE_I64 && out[4].rank == 0);
}

Test(op_compact, what_does_not_fit_is_refused) {
    const struct tensor_type scalar = {.dtype = DTYPE_F32, .rank = 0};
    const struct tensor_type x = {.dtype = DTYPE_F32, .rank = 1, .shape = {3}};
    const struct tensor_type mask = {.dtype = DTYPE_BOOL, .rank = 1, .shape = {4}};
    const struct tensor_type positions = {.dtype = DTYPE_I64, .rank = 1, .shape = {4}};
    struct tensor_type out[5];
    struct fault fault;
    cr_assert_eq(infer(OP_NONZERO, &scalar, NULL, out, &fault), STATUS_SHAPE);
    cr_assert_eq(infer(OP_MASKED_SELECT, &x, &mask, out, &fault), STATUS_SHAPE);
    cr_assert_eq(infer(OP_MASKED_SELECT, &x, &x, out, &fault), STATUS_DTYPE);
    cr_assert_eq(infer(OP_UNIQUE_RUNS, &x, &positions, out, &fault), STATUS_SHAPE);
    cr_assert_str_eq(fault.message, "(3,) and positions (4,) are not two equal vectors");
}

Test(op_compact, histogram) {
    static const struct infer_case cases[] = {
        {OP_HISTOGRAM, "f32(2,3)", INTS(7), FLOATS(0, 1), .result = "i64(7)"},
        {OP_HISTOGRAM, "u8()", INTS(1), FLOATS(-1, 1), .result = "i64(1)"},
        {OP_HISTOGRAM, "f32(3)", INTS(0), FLOATS(0, 1), FAILS(INVALID_ARGUMENT, "0 bins are not between 1 and")},
        {OP_HISTOGRAM, "f32(3)", INTS(4), FLOATS(1, 1), FAILS(INVALID_ARGUMENT, "no 4 bins from 1 to 1")},
        {OP_HISTOGRAM, "f32(3)", INTS(4), FLOATS(0, 1e-320), FAILS(INVALID_ARGUMENT, "no 4 bins")},
        {OP_HISTOGRAM, "bool(3)", INTS(4), FLOATS(0, 1), FAILS(DTYPE, "numbers")},
    };
    INFER_CHECK(cases);
}
