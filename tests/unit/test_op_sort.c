/* Rules of operations that put the elements of an axis in order. */
#include <criterion/criterion.h>

#include "tests/unit/infer.h"

static int topk(const struct tensor_type *x, int64_t k, int64_t axis, struct tensor_type out[2], struct fault *fault) {
    const int64_t ints[] = {k, axis, 1};
    struct op_attributes attributes = {.ints = ints, .n_ints = 3};
    return op_infer(OP_TOPK, &x, 1, &attributes, out, fault);
}

Test(op_sort, topk_gives_values_of_the_inputs_dtype_and_positions) {
    const struct tensor_type x = {.dtype = DTYPE_BF16, .rank = 2, .shape = {3, 7}};
    struct tensor_type out[2];
    struct fault fault;
    for (int64_t axis = -2; axis < 2; axis++) {
        cr_assert_eq(topk(&x, 2, axis, out, &fault), STATUS_OK, "%s", fault.message);
        int at = (int)(axis < 0 ? axis + 2 : axis);
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(out[i].rank, 2);
            cr_assert_eq(out[i].shape[at], 2);
            cr_assert_eq(out[i].shape[1 - at], x.shape[1 - at]);
        }
        cr_assert(out[0].dtype == DTYPE_BF16 && out[1].dtype == DTYPE_I64);
    }
}

Test(op_sort, topk_of_more_than_there_are_is_refused_and_leaves_the_outputs) {
    const struct tensor_type x = {.dtype = DTYPE_F32, .rank = 1, .shape = {7}};
    struct tensor_type out[2] = {{.rank = 5}, {.rank = 6}};
    struct fault fault;
    cr_assert_eq(topk(&x, 8, 0, out, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_str_eq(fault.message, "k is 8, not between 0 and axis 0's extent of 7");
    cr_assert_eq(topk(&x, -1, 0, out, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(topk(&x, 1, 1, out, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(out[0].rank == 5 && out[1].rank == 6);
    cr_assert_eq(topk(&x, 0, 0, out, &fault), STATUS_OK);
    cr_assert_eq(out[0].shape[0], 0);
}

Test(op_sort, topk_takes_no_bool) {
    const struct tensor_type x = {.dtype = DTYPE_BOOL, .rank = 1, .shape = {7}};
    struct tensor_type out[2];
    struct fault fault;
    cr_assert_eq(topk(&x, 1, 0, out, &fault), STATUS_DTYPE);
}

Test(op_sort, sort_and_search) {
    static const struct infer_case cases[] = {
        {OP_SORT, "bool(3,4)", INTS(-1, 0), .result = "bool(3,4)"},
        {OP_SORT, "f8e5m2(3)", INTS(0, 1), .result = "f8e5m2(3)"},
        {OP_SORT, "f32()", INTS(-1, 0), FAILS(INVALID_ARGUMENT, "axis -1")},
        {OP_ARGSORT, "bf16(3,4)", INTS(0, 1), .result = "i64(3,4)"},
        {OP_ARGSORT, "f32(3)", INTS(0, 2), FAILS(INVALID_ARGUMENT, "descending is 2")},
        {OP_SEARCHSORTED, "f32(7) f32(3,4)", INTS(0), .result = "i64(3,4)"},
        {OP_SEARCHSORTED, "u8(7) f32()", INTS(1), .result = "i64()"},
        {OP_SEARCHSORTED, "f32(7,1) f32(3)", INTS(0), FAILS(SHAPE, "what is searched has shape (7, 1), not one axis")},
        {OP_SEARCHSORTED, "f8e4m3(7) f32(3)", INTS(0), FAILS(DTYPE, "do not promote")},
    };
    INFER_CHECK(cases);
}
