#include "tests/unit/infer.h"

#include <criterion/criterion.h>

Test(op_join, matmul_follows_numpy) {
    static const struct infer_case cases[] = {
        {OP_MATMUL, "f32(2,3) f32(3,4)", .result = "f32(2,4)"},
        {OP_MATMUL, "f32(3) f32(3)", .result = "f32()"},
        {OP_MATMUL, "f32(3) f32(3,4)", .result = "f32(4)"},
        {OP_MATMUL, "f32(2,3) f32(3)", .result = "f32(2)"},
        {OP_MATMUL, "f32(5,1,2,3) f32(7,3,4)", .result = "f32(5,7,2,4)"},
        {OP_MATMUL, "f32(5,2,3) f32(3)", .result = "f32(5,2)"},
        {OP_MATMUL, "f32(3) f32(5,3,2)", .result = "f32(5,2)"},
        {OP_MATMUL, "f32(2,0) f32(0,4)", .result = "f32(2,4)"},
        {OP_MATMUL, "f16(2,3) bf16(3,4)", .result = "f32(2,4)"},
        {OP_MATMUL, "i8(2,3) u8(3,4)", .result = "i16(2,4)"},
        {OP_MATMUL, "f8e4m3(2,3) f8e4m3(3,4)", .result = "f32(2,4)"},
        {OP_MATMUL, "f8e4m3(2,3) f8e5m2(3)", .result = "f32(2)"},
        {OP_MATMUL, "f8e5m2(3) f8e5m2(3)", .result = "f32()"},
        {OP_MATMUL, "f8e4m3(2,3) f16(3,4)", FAILS(DTYPE, "f8e4m3 and f16 do not promote: cast one")},
        {OP_MATMUL, "i8(2,3) f8e5m2(3,4)", FAILS(DTYPE, "i8 and f8e5m2 do not promote")},
        {OP_MATMUL, "f32(2,3) f32(4,5)", FAILS(SHAPE, "cannot multiply (2, 3) by (4, 5): inner")},
        {OP_MATMUL, "f32(2,3) f32(2)", FAILS(SHAPE, "inner")},
        {OP_MATMUL, "f32(2,2,3) f32(3,3,4)", FAILS(SHAPE, "leading")},
        {OP_MATMUL, "f32() f32(3)", FAILS(SHAPE, "scalar")},
        {OP_MATMUL, "f32(3) f32()", FAILS(SHAPE, "scalar")},
        {OP_MATMUL, "bool(2,3) bool(3,4)", FAILS(DTYPE, "bool")},
        {OP_MATMUL, "f32(2147483648,1) f32(1,2147483648)", FAILS(SHAPE, "2^63")},
    };
    INFER_CHECK(cases);
}

Test(op_join, concat) {
    static const struct infer_case cases[] = {
        {OP_CONCAT, "f32(2,3) i8(4,3)", INTS(0), .result = "f32(6,3)"},
        {OP_CONCAT, "u8(2,3) i8(2,1) u8(2,0)", INTS(-1), .result = "i16(2,4)"},
        {OP_CONCAT, "f32(3)", INTS(0), .result = "f32(3)"},
        {OP_CONCAT, "f8e4m3(3) f8e4m3(2)", INTS(0), .result = "f8e4m3(5)"},
        {OP_CONCAT, "f8e4m3(3) f8e4m3(3) f32(3)", INTS(0), FAILS(DTYPE, "f8e4m3 and f32")},
        {OP_CONCAT, "f8e4m3(3) f8e5m2(3)", INTS(0), FAILS(DTYPE, "f8e4m3 and f8e5m2")},
        {OP_CONCAT, "f32(2,3) f32(2,4)", INTS(0), FAILS(SHAPE, "cannot join (2, 4) (input 1) to (2, 3)")},
        {OP_CONCAT, "f32(2,3) f32(2)", INTS(0), FAILS(SHAPE, NULL)},
        {OP_CONCAT, "f32(2) f32(2,3)", INTS(0), FAILS(SHAPE, NULL)},
        {OP_CONCAT, "f32(2) f32(2)", INTS(1), FAILS(INVALID_ARGUMENT, "axis 1")},
        {OP_CONCAT, "f32() f32()", INTS(0), FAILS(INVALID_ARGUMENT, "rank 0")},
        {OP_CONCAT, "u8(9223372036854775807) u8(1)", INTS(0), FAILS(SHAPE, "2^63")},
        {OP_CONCAT, "", INTS(0), FAILS(INVALID_ARGUMENT, "1 to 8192 inputs, not 0")},
    };
    INFER_CHECK(cases);
}

Test(op_join, stack) {
    static const struct infer_case cases[] = {
        {OP_STACK, "f32(2,3) i8(2,3)", INTS(0), .result = "f32(2,2,3)"},
        {OP_STACK, "f32(2,3) f32(2,3) f32(2,3)", INTS(-1), .result = "f32(2,3,3)"},
        {OP_STACK, "f32() f32()", INTS(0), .result = "f32(2)"},
        {OP_STACK, "f8e5m2() f8e5m2()", INTS(0), .result = "f8e5m2(2)"},
        {OP_STACK, "f8e5m2() bool()", INTS(0), FAILS(DTYPE, "f8e5m2 and bool")},
        {OP_STACK, "f32(2) f32(3)", INTS(0), FAILS(SHAPE, "input 1")},
        {OP_STACK, "f32(2)", INTS(2), FAILS(INVALID_ARGUMENT, "axis 2")},
        {OP_STACK, "f32(1,1,1,1,1,1,1,1)", INTS(0), FAILS(SHAPE, "rank 8")},
    };
    INFER_CHECK(cases);
}

Test(op_join, take) {
    static const struct infer_case cases[] = {
        {OP_TAKE, "f32(2,3,4) i32(5)", INTS(1), .result = "f32(2,5,4)"},
        {OP_TAKE, "bool(2) u8(0)", INTS(0), .result = "bool(0)"},
        {OP_TAKE, "f32(0) i64(0)", INTS(0), .result = "f32(0)"},
        {OP_TAKE, "f32(0) i64(2)", INTS(0), FAILS(OUT_OF_RANGE, "axis 0 of (0,) is empty")},
        {OP_TAKE, "f32(0,0) i64(2)", INTS(0), .result = "f32(2,0)"},
        {OP_TAKE, "f32(2) f32(2)", INTS(0), FAILS(DTYPE, "f32")},
        {OP_TAKE, "f8e4m3(2) i8(5)", INTS(0), .result = "f8e4m3(5)"},
        {OP_TAKE, "i8(2) f8e4m3(5)", INTS(0), FAILS(DTYPE, "indices are integers, not f8e4m3")},
        {OP_TAKE, "f32(2) bool(2)", INTS(0), FAILS(DTYPE, "bool")},
        {OP_TAKE, "f32(2) i64(2,2)", INTS(0), FAILS(SHAPE, "(2, 2)")},
        {OP_TAKE, "f32(2) i64()", INTS(0), FAILS(SHAPE, "()")},
        {OP_TAKE, "f32(2) i64(2)", INTS(1), FAILS(INVALID_ARGUMENT, "axis 1")},
        {OP_TAKE, "f32() i64(2)", INTS(0), FAILS(INVALID_ARGUMENT, "rank 0")},
        {OP_TAKE, "f32(2,4611686018427387) i64(2000)", INTS(0), FAILS(SHAPE, "2^63")},
    };
    INFER_CHECK(cases);
}

Test(op_join, take_along_axis) {
    static const struct infer_case cases[] = {
        {OP_TAKE_ALONG_AXIS, "f32(2,3) i64(2,1)", INTS(1), .result = "f32(2,1)"},
        {OP_TAKE_ALONG_AXIS, "f32(2,3) i64(1,5)", INTS(1), .result = "f32(2,5)"},
        {OP_TAKE_ALONG_AXIS, "f32(1,3) i64(4,5)", INTS(-1), .result = "f32(4,5)"},
        {OP_TAKE_ALONG_AXIS, "f32(0,3) i64(0,5)", INTS(1), .result = "f32(0,5)"},
        {OP_TAKE_ALONG_AXIS, "f32(2,0) i64(2,5)", INTS(1), FAILS(OUT_OF_RANGE, NULL)},
        {OP_TAKE_ALONG_AXIS, "f32(2,3) i64(3,1)", INTS(1),
         FAILS(SHAPE, "indices (3, 1) do not fit (2, 3) along axis 1")},
        {OP_TAKE_ALONG_AXIS, "f32(2,3) i64(3)", INTS(1), FAILS(SHAPE, NULL)},
        {OP_TAKE_ALONG_AXIS, "f32(2,3) f32(2,3)", INTS(1), FAILS(DTYPE, NULL)},
        {OP_TAKE_ALONG_AXIS, "f32() i64()", INTS(0), FAILS(INVALID_ARGUMENT, "rank 0")},
    };
    INFER_CHECK(cases);
}

Test(op_join, one_hot) {
    static const struct infer_case cases[] = {
        {OP_ONE_HOT, "u8(5)", INTS(10, DTYPE_F32), .result = "f32(5,10)"},
        {OP_ONE_HOT, "i64()", INTS(INT32_MAX, DTYPE_BOOL), .result = "bool(2147483647)"},
        {OP_ONE_HOT, "i64(0)", INTS(3, DTYPE_F32), .result = "f32(0,3)"},
        {OP_ONE_HOT, "f32(5)", INTS(10, DTYPE_F32), FAILS(DTYPE, "f32")},
        {OP_ONE_HOT, "u8(5)", INTS(0, DTYPE_F32), FAILS(INVALID_ARGUMENT, "0 classes")},
        {OP_ONE_HOT, "u8(5)", INTS(-1, DTYPE_F32), FAILS(INVALID_ARGUMENT, "-1 classes")},
        {OP_ONE_HOT, "u8(5)", INTS(INT64_C(1) << 31, DTYPE_F32), FAILS(INVALID_ARGUMENT, "2147483648")},
        {OP_ONE_HOT, "u8(5)", INTS(10, 0), FAILS(DTYPE, NULL)},
        {OP_ONE_HOT, "u8(1,1,1,1,1,1,1,1)", INTS(10, DTYPE_F32), FAILS(SHAPE, "rank 8")},
    };
    INFER_CHECK(cases);
}
