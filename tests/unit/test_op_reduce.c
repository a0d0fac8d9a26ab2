#include "tests/unit/infer.h"

#include <criterion/criterion.h>
#include <math.h>

Test(op_reduce, axes_and_keepdims) {
    static const struct infer_case cases[] = {
        {OP_SUM, "f32(2,3,4)", INTS(0), .result = "f32()"},
        {OP_SUM, "f32(2,3,4)", INTS(1), .result = "f32(1,1,1)"},
        {OP_SUM, "f32(2,3,4)", INTS(0, 1), .result = "f32(2,4)"},
        {OP_SUM, "f32(2,3,4)", INTS(1, -1, 0), .result = "f32(1,3,1)"},
        {OP_SUM, "f32()", INTS(0), .result = "f32()"},
        {OP_SUM, "f32(1,1,1,1,1,1,1,1)", INTS(0, 7, 6, 5, 4, 3, 2, 1, 0), .result = "f32()"},
        {OP_SUM, "f32(2)", FAILS(INVALID_ARGUMENT, "keepdims")},
        {OP_SUM, "f32(2)", INTS(2), FAILS(INVALID_ARGUMENT, "keepdims")},
        {OP_SUM, "f32(2)", INTS(-1), FAILS(INVALID_ARGUMENT, "keepdims")},
        {OP_SUM, "f32(2)", INTS(0, 1), FAILS(INVALID_ARGUMENT, "axis 1 is out of range for rank 1")},
        {OP_SUM, "f32()", INTS(0, 0), FAILS(INVALID_ARGUMENT, "rank 0")},
        {OP_SUM, "f32(2,3)", INTS(0, 1, -1), FAILS(INVALID_ARGUMENT, "axis 1 is named twice")},
        {OP_SUM, "f32(2,3)", INTS(0, INT64_MIN), FAILS(INVALID_ARGUMENT, NULL)},
    };
    INFER_CHECK(cases);
}

Test(op_reduce, dtypes) {
    static const struct infer_case cases[] = {
        {OP_SUM, "bool(2)", INTS(0), .result = "i64()"},   {OP_SUM, "i8(2)", INTS(0), .result = "i64()"},
        {OP_SUM, "u8(2)", INTS(0), .result = "u64()"},     {OP_PROD, "u16(2)", INTS(0), .result = "u64()"},
        {OP_SUM, "u64(2)", INTS(0), .result = "u64()"},    {OP_MEAN, "u32(2)", INTS(0), .result = "f32()"},
        {OP_PROD, "i64(2)", INTS(0), .result = "i64()"},   {OP_SUM, "f16(2)", INTS(0), .result = "f16()"},
        {OP_MEAN, "i32(2)", INTS(0), .result = "f32()"},   {OP_MEAN, "f64(2)", INTS(0), .result = "f64()"},
        {OP_MAX, "u8(2)", INTS(0), .result = "u8()"},      {OP_MIN, "bool(2)", INTS(0), .result = "bool()"},
        {OP_ANY, "f32(2)", INTS(0), .result = "bool()"},   {OP_ALL, "i8(2)", INTS(0), .result = "bool()"},
        {OP_ARGMAX, "f32(2)", INTS(0), .result = "i64()"}, {OP_ARGMIN, "f32(2,3)", INTS(1, 0), .result = "i64(1,3)"},
    };
    INFER_CHECK(cases);
}

Test(op_reduce, sums_of_nothing_are_fine_and_maxima_of_nothing_are_not) {
    static const struct infer_case cases[] = {
        {OP_SUM, "f32(0,3)", INTS(0, 0), .result = "f32(3)"},
        {OP_MEAN, "f32(0)", INTS(0), .result = "f32()"},
        {OP_ALL, "f32(0)", INTS(0), .result = "bool()"},
        {OP_MAX, "f32(0,3)", INTS(0, 1), .result = "f32(0)"},
        {OP_MAX, "f32(0,0)", INTS(0, 1), .result = "f32(0)"},
        {OP_MAX, "f32(0,3)", INTS(0, 0), FAILS(SHAPE, "no elements to choose from: the input is (0, 3)")},
        {OP_MIN, "f32(0)", INTS(0), FAILS(SHAPE, NULL)},
        {OP_MIN, "f32(0)", INTS(1), FAILS(SHAPE, NULL)},
        {OP_ARGMAX, "f32(0,3)", INTS(0), FAILS(SHAPE, "no elements")},
        {OP_ARGMAX, "f32(0,0)", INTS(0, 1), FAILS(SHAPE, "(0, 0)")},
        {OP_ARGMIN, "f32(2,0,0)", INTS(1, 2), FAILS(SHAPE, "(2, 0, 0)")},
        {OP_ARGMIN, "f32(0,3)", INTS(0, -1), .result = "i64(0)"},
        {OP_ARGMIN, "f32(3,0)", INTS(0, 0), .result = "i64(0)"},
    };
    INFER_CHECK(cases);
}

Test(op_reduce, positions_take_one_axis_at_most) {
    static const struct infer_case cases[] = {
        {OP_ARGMAX, "f32(2,3)", INTS(0, -1), .result = "i64(2)"},
        {OP_ARGMAX, "f32(2,3)", INTS(0, 0, 1), FAILS(INVALID_ARGUMENT, "not 2")},
    };
    INFER_CHECK(cases);
}

Test(op_reduce, a_wider_result_is_checked_again) {
    static const struct infer_case cases[] = {
        {OP_SUM, "u8(4611686018427387903,2)", INTS(0, 1), FAILS(SHAPE, "2^63")},
        {OP_SUM, "u8(4611686018427387904,0)", INTS(0, 1), FAILS(SHAPE, "2^63")},
    };
    INFER_CHECK(cases);
}

Test(op_reduce, softmax_takes_floats_and_an_axis) {
    static const struct infer_case cases[] = {
        {OP_SOFTMAX, "f32(2,3)", INTS(-1), .result = "f32(2,3)"},
        {OP_LOG_SOFTMAX, "bf16(0,3)", INTS(0), .result = "bf16(0,3)"},
        {OP_SOFTMAX, "i32(2,3)", INTS(-1), FAILS(DTYPE, "i32")},
        {OP_SOFTMAX, "f8e4m3(2,3)", INTS(-1), FAILS(DTYPE, "takes no f8e4m3: cast")},
        {OP_SUM, "f8e4m3(2,3)", INTS(0), FAILS(DTYPE, "takes no f8e4m3: cast")},
        {OP_ARGMAX, "f8e5m2(2,3)", INTS(0), FAILS(DTYPE, "takes no f8e5m2: cast")},
        {OP_SOFTMAX, "f32(2,3)", INTS(2), FAILS(INVALID_ARGUMENT, "axis 2")},
        {OP_SOFTMAX, "f32()", INTS(0), FAILS(INVALID_ARGUMENT, "rank 0")},
    };
    INFER_CHECK(cases);
}

Test(op_reduce, variances_and_norms_have_a_number_more) {
    static const struct infer_case cases[] = {
        {OP_VAR, "f32(2,3)", INTS(0, 0), FLOATS(1), .result = "f32(3)"},
        {OP_STD, "i32(2,3)", INTS(1, 1), FLOATS(0), .result = "f32(2,1)"},
        {OP_VAR, "f32(2,3)", INTS(0), FLOATS(INFINITY), FAILS(INVALID_ARGUMENT, "correction is inf")},
        {OP_VAR, "f32(2,3)", INTS(0), FAILS(INVALID_ARGUMENT, NULL)},
        {OP_VECTOR_NORM, "bf16(2,3)", INTS(0), FLOATS(-INFINITY), .result = "bf16()"},
        {OP_VECTOR_NORM, "f64(2,3)", INTS(0), FLOATS(NAN), FAILS(INVALID_ARGUMENT, "order NaN")},
        {OP_VECTOR_NORM, "f64(2,3)", INTS(0, 2), FLOATS(2), FAILS(INVALID_ARGUMENT, "axis 2")},
        {OP_COUNT_NONZERO, "f16(2,3)", INTS(0, -1), .result = "i64(2)"},
        {OP_LOGSUMEXP, "u8(0,3)", INTS(0, 0), .result = "f32(3)"},
    };
    INFER_CHECK(cases);
}

Test(op_reduce, the_mask_has_a_bit_for_each_reduced_axis) {
    struct fault fault;
    uint32_t mask = 0;
    const int64_t some[] = {-1, 0};
    struct op_ints axes = {2, some};
    cr_assert_eq(op_reduced_axes(&axes, 3, &mask, &fault), STATUS_OK);
    cr_assert_eq(mask, 5u);
    axes.count = 0;
    cr_assert_eq(op_reduced_axes(&axes, 8, &mask, &fault), STATUS_OK);
    cr_assert_eq(mask, 255u);
    cr_assert_eq(op_reduced_axes(&axes, 0, &mask, &fault), STATUS_OK);
    cr_assert_eq(mask, 0u);
}
