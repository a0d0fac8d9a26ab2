#include "tests/unit/infer.h"

#include <criterion/criterion.h>

Test(op_elementwise, binary_operations_broadcast_and_promote) {
    static const struct infer_case cases[] = {
        {OP_ADD, "f32(16) f32(16)", .result = "f32(16)"},
        {OP_ADD, "f32() f32()", .result = "f32()"},
        {OP_ADD, "f32(0) f32(1)", .result = "f32(0)"},
        {OP_ADD, "f32(8,1,6,1) f64(7,1,5)", .result = "f64(8,7,6,5)"},
        {OP_MULTIPLY, "u8(2,1) i8(3)", .result = "i16(2,3)"},
        {OP_SUBTRACT, "i64(2) f16()", .result = "f16(2)"},
        {OP_ADD, "u16(2) i8(2)", .result = "i32(2)"},
        {OP_ADD, "u64(2) u16(2)", .result = "u64(2)"},
        {OP_ADD, "u64(2) f16(2)", .result = "f16(2)"},
        {OP_ADD, "u64(2) i8(2)", FAILS(DTYPE, "u64 and i8 do not promote: cast one of them first")},
        {OP_LOGICAL_OR, "u64(2) i8(2)", .result = "bool(2)"},
        {OP_LOGICAL_AND, "u64(2) f8e4m3(2)", FAILS(DTYPE, "takes no f8e4m3")},
        {OP_EQUAL, "i64(2) u64(2)", FAILS(DTYPE, "i64 and u64 do not promote: cast one of them first")},
        {OP_MAXIMUM, "f16(2) bf16(2)", .result = "f32(2)"},
        {OP_ADD, "bool(2) bool(2)", .result = "bool(2)"},
        {OP_POW, "i32(2) i32(2)", .result = "i32(2)"},
        {OP_DIVIDE, "i32(2) i64(2)", .result = "f32(2)"},
        {OP_DIVIDE, "f16(2) i64(2)", .result = "f16(2)"},
        {OP_DIVIDE, "bool(2) bool(2)", .result = "f32(2)"},
    };
    INFER_CHECK(cases);
}

Test(op_elementwise, comparisons_and_logic_give_bool) {
    static const struct infer_case cases[] = {
        {OP_EQUAL, "f32(2,3) i64(3)", .result = "bool(2,3)"},
        {OP_LESS, "bool() bool()", .result = "bool()"},
        {OP_LOGICAL_AND, "f32(2) i8(1)", .result = "bool(2)"},
        {OP_LOGICAL_NOT, "f64(4)", .result = "bool(4)"},
    };
    INFER_CHECK(cases);
}

Test(op_elementwise, unary_operations_keep_the_shape) {
    static const struct infer_case cases[] = {
        {OP_NEGATIVE, "i8(2,0)", .result = "i8(2,0)"}, {OP_ABS, "f16()", .result = "f16()"},
        {OP_EXP, "i64(3)", .result = "f32(3)"},        {OP_SIGMOID, "bf16(3)", .result = "bf16(3)"},
        {OP_LOG, "bool(3)", .result = "f32(3)"},       {OP_RELU, "i32(3)", .result = "i32(3)"},
        {OP_COPY, "bool(3)", .result = "bool(3)"},     {OP_CAST, "f32(3)", INTS(DTYPE_BOOL), .result = "bool(3)"},
        {OP_COPY, "f8e4m3(3)", .result = "f8e4m3(3)"}, {OP_CAST, "f32(3)", INTS(DTYPE_F8E5M2), .result = "f8e5m2(3)"},
    };
    INFER_CHECK(cases);
}

Test(op_elementwise, functions_give_floats_and_tests_bools) {
    static const struct infer_case cases[] = {
        {OP_SIN, "i64(3)", .result = "f32(3)"},
        {OP_SIN, "f16(3)", .result = "f16(3)"},
        {OP_ATAN2, "i32(2,1) i64(3)", .result = "f32(2,3)"},
        {OP_HYPOT, "f16(2) f64()", .result = "f64(2)"},
        {OP_ISNAN, "f16(3)", .result = "bool(3)"},
        {OP_ISFINITE, "i64(3)", .result = "bool(3)"},
        {OP_SIGNBIT, "bool(3)", .result = "bool(3)"},
        {OP_FLOOR, "i16(3)", .result = "i16(3)"},
        {OP_ROUND, "bf16(3)", .result = "bf16(3)"},
        {OP_RECIPROCAL, "u8(3)", .result = "f32(3)"},
        {OP_NEXTAFTER, "f32(3) f64(3)", .result = "f64(3)"},
        {OP_LOGICAL_XOR, "f32(3) i8()", .result = "bool(3)"},
        {OP_SIGN, "bool(3)", FAILS(DTYPE, "takes numbers, not bool")},
        {OP_NEXTAFTER, "f16(3) f16(3)", FAILS(DTYPE, "takes f32 and f64, not f16")},
        {OP_NEXTAFTER, "i32(3) i32(3)", FAILS(DTYPE, "i32")},
    };
    INFER_CHECK(cases);
}

Test(op_elementwise, bits_are_those_of_integers) {
    static const struct infer_case cases[] = {
        {OP_BITWISE_AND, "u8(3) i8(3)", .result = "i16(3)"},
        {OP_BITWISE_XOR, "bool(3) bool()", .result = "bool(3)"},
        {OP_BITWISE_OR, "bool(3) i32()", .result = "i32(3)"},
        {OP_BITWISE_INVERT, "bool(3)", .result = "bool(3)"},
        {OP_BITWISE_LEFT_SHIFT, "i32(3) u8()", .result = "i32(3)"},
        {OP_BITWISE_AND, "f32(3) i8(3)", FAILS(DTYPE, "takes integers and bool, not f32")},
        {OP_BITWISE_INVERT, "f64(3)", FAILS(DTYPE, "takes integers and bool, not f64")},
        {OP_BITWISE_RIGHT_SHIFT, "bool(3) bool(3)", FAILS(DTYPE, "takes integers, not bool")},
    };
    INFER_CHECK(cases);
}

Test(op_elementwise, quotients_with_a_rest_take_numbers) {
    static const struct infer_case cases[] = {
        {OP_FLOOR_DIVIDE, "i32(2) i64(1)", .result = "i64(2)"},
        {OP_REMAINDER, "u8(2) f16(2)", .result = "f16(2)"},
        {OP_FMOD, "f32() f32(0)", .result = "f32(0)"},
        {OP_FLOOR_DIVIDE, "bool(2) bool(2)", FAILS(DTYPE, "takes real numbers, not bool")},
    };
    INFER_CHECK(cases);
}

Test(op_elementwise, attributes_are_counted) {
    static const struct infer_case cases[] = {
        {OP_LEAKY_RELU, "f32(2)", FLOATS(0.01), .result = "f32(2)"},
        {OP_ELU, "i8(2)", FLOATS(1), .result = "f32(2)"},
        {OP_SOFTPLUS, "f16(2)", FLOATS(1, 20), .result = "f16(2)"},
        {OP_LEAKY_RELU, "f32(2)", FAILS(INVALID_ARGUMENT, "does not take 0 float")},
        {OP_SOFTPLUS, "f32(2)", FLOATS(1), FAILS(INVALID_ARGUMENT, "does not take 1 float")},
        {OP_ELU, "f32(2)", FLOATS(1, 2), FAILS(INVALID_ARGUMENT, "float")},
        {OP_LEAKY_RELU, "f8e4m3(2)", FLOATS(1), FAILS(DTYPE, "f8e4m3")},
    };
    INFER_CHECK(cases);
}

Test(op_elementwise, clip_broadcasts_and_promotes_three) {
    static const struct infer_case cases[] = {
        {OP_CLIP, "f32(4,1) i8(3) f32()", .result = "f32(4,3)"},
        {OP_CLIP, "i32(4) i64() i8()", .result = "i64(4)"},
        {OP_CLIP, "bool(4) bool() bool()", FAILS(DTYPE, "takes real numbers, not bool")},
        {OP_CLIP, "f32(4) f32(3) f32()", FAILS(SHAPE, "cannot broadcast (4,) with (3,)")},
        {OP_CLIP, "f32(4) f32()", FAILS(INVALID_ARGUMENT, "clip takes 3 inputs, not 2")},
    };
    INFER_CHECK(cases);
}

Test(op_elementwise, where_broadcasts_three_and_promotes_two) {
    static const struct infer_case cases[] = {
        {OP_WHERE, "bool(4,1) i8(3) f32()", .result = "f32(4,3)"},
        {OP_WHERE, "bool(0) f32(1) f32()", .result = "f32(0)"},
        {OP_WHERE, "bool(3) f8e5m2(3) f8e5m2()", .result = "f8e5m2(3)"},
        {OP_WHERE, "u8(3) f32(3) f32(3)", FAILS(DTYPE, "u8, not bool")},
        {OP_WHERE, "bool(2) f32(3) f32(3)", FAILS(SHAPE, "cannot broadcast (2,) with (3,)")},
    };
    INFER_CHECK(cases);
}

Test(op_elementwise, what_does_not_fit_is_named) {
    static const struct infer_case cases[] = {
        {OP_ADD, "f32(2,3) f32(4,3)", FAILS(SHAPE, "cannot broadcast (2, 3) with (4, 3)")},
        {OP_SUBTRACT, "bool(2) bool(2)", FAILS(DTYPE, "bool")},
        {OP_POW, "bool(2) bool(2)", FAILS(DTYPE, "bool")},
        {OP_NEGATIVE, "bool(2)", FAILS(DTYPE, "bool")},
        {OP_RELU, "bool(2)", FAILS(DTYPE, "bool")},
        {OP_CAST, "f32(2)", INTS(0), FAILS(DTYPE, "0 is no dtype")},
        {OP_ADD, "f8e4m3(2) f8e4m3(2)", FAILS(DTYPE, "takes no f8e4m3: cast to f16, bf16 or f32 first")},
        {OP_MULTIPLY, "f32(2) f8e5m2(2)", FAILS(DTYPE, "takes no f8e5m2: cast")},
        {OP_EQUAL, "f8e5m2(2) f8e5m2(2)", FAILS(DTYPE, "f8e5m2")},
        {OP_LOGICAL_NOT, "f8e4m3(2)", FAILS(DTYPE, "f8e4m3")},
        {OP_EXP, "f8e4m3(2)", FAILS(DTYPE, "f8e4m3")},
        {OP_WHERE, "bool(2) f8e4m3(2) f32(2)", FAILS(DTYPE, "f8e4m3 and f32 do not promote: cast one of them first")},
        {OP_WHERE, "f8e4m3(2) f32(2) f32(2)", FAILS(DTYPE, "f8e4m3, not bool")},
        {OP_CAST, "f32(2)", INTS(99), FAILS(DTYPE, "99 is no dtype")},
        {OP_CAST, "u8(9223372036854775807)", INTS(DTYPE_I16), FAILS(SHAPE, "2^63")},
        {OP_ADD, "u8(4294967296,1) u8(1,4294967296)", FAILS(SHAPE, "2^63")},
        {OP_ADD, "u8(4611686018427387904) f64(1)", FAILS(SHAPE, "2^63")},
    };
    INFER_CHECK(cases);
}

Test(op_elementwise, wrong_counts_are_refused) {
    static const struct infer_case cases[] = {
        {OP_ADD, "f32(2)", FAILS(INVALID_ARGUMENT, "add takes 2 inputs, not 1")},
        {OP_ADD, "f32(2) f32(2) f32(2)", FAILS(INVALID_ARGUMENT, "not 3")},
        {OP_ADD, "f32(2) f32(2)", INTS(1), FAILS(INVALID_ARGUMENT, "1 integer")},
        {OP_ADD, "f32(2) f32(2)", FLOATS(1), FAILS(INVALID_ARGUMENT, "1 float")},
        {OP_CAST, "f32(2)", FAILS(INVALID_ARGUMENT, "dtype is missing")},
        {OP_WHERE, "", FAILS(INVALID_ARGUMENT, "3 inputs, not 0")},
    };
    INFER_CHECK(cases);
}
