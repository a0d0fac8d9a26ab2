/* Rules of scans. */
#include <criterion/criterion.h>

#include "tests/unit/infer.h"

Test(op_scan, sums_keep_the_shape_or_have_an_initial_element_more) {
    static const struct infer_case cases[] = {
        {OP_CUMULATIVE_SUM, "f32(2,3)", INTS(-1, 0), .result = "f32(2,3)"},
        {OP_CUMULATIVE_SUM, "u8(2,3)", INTS(0, 1), .result = "u64(3,3)"},
        {OP_CUMULATIVE_PROD, "bool(2,0)", INTS(1, 1), .result = "i64(2,1)"},
        {OP_CUMULATIVE_PROD, "bf16(2,0)", INTS(1, 0), .result = "bf16(2,0)"},
        {OP_CUMULATIVE_SUM, "f32()", INTS(0, 0), FAILS(INVALID_ARGUMENT, "rank 0")},
        {OP_CUMULATIVE_SUM, "f32(2,3)", INTS(2, 0), FAILS(INVALID_ARGUMENT, "axis 2 is out of range for rank 2")},
        {OP_CUMULATIVE_SUM, "f32(2,3)", INTS(0, 2), FAILS(INVALID_ARGUMENT, "include_initial")},
        {OP_CUMULATIVE_SUM, "f8e4m3(2)", INTS(0, 0), FAILS(DTYPE, "takes no f8e4m3: cast")},
        {OP_CUMULATIVE_SUM, "u8(9223372036854775807,0)", INTS(0, 1), FAILS(SHAPE, "elements already")},
    };
    INFER_CHECK(cases);
}

Test(op_scan, logcumsumexp_takes_floats) {
    static const struct infer_case cases[] = {
        {OP_LOGCUMSUMEXP, "f16(2,3)", INTS(0), .result = "f16(2,3)"},
        {OP_LOGCUMSUMEXP, "i32(2,3)", INTS(0), FAILS(DTYPE, "i32")},
        {OP_LOGCUMSUMEXP, "f16(2,3)", INTS(-3), FAILS(INVALID_ARGUMENT, "axis -3")},
    };
    INFER_CHECK(cases);
}

Test(op_scan, extremes_come_with_positions) {
    const struct tensor_type x = {.dtype = DTYPE_BF16, .rank = 2, .shape = {3, 7}}, *inputs[] = {&x};
    const int64_t axis = -2, wrong = 2;
    struct tensor_type out[2];
    struct fault fault;
    const unsigned opcodes[] = {OP_CUMMAX, OP_CUMMIN};
    for (int i = 0; i < 2; i++) {
        struct op_attributes attributes = {.ints = &axis, .n_ints = 1};
        cr_assert_eq(op_infer(opcodes[i], inputs, 1, &attributes, out, &fault), STATUS_OK, "%s", fault.message);
        cr_assert(out[0].dtype == DTYPE_BF16 && out[1].dtype == DTYPE_I64);
        cr_assert(shape_equal(&out[0], &x) && shape_equal(&out[1], &x));
        attributes.ints = &wrong;
        cr_assert_eq(op_infer(opcodes[i], inputs, 1, &attributes, out, &fault), STATUS_INVALID_ARGUMENT);
    }
}
