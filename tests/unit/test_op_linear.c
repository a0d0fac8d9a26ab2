#include "tests/unit/infer.h"

#include <criterion/criterion.h>

Test(op_linear, shapes_follow_torch) {
    static const struct infer_case cases[] = {
        {OP_LINEAR, "f32(2,3) f32(4,3)", INTS(0), .result = "f32(2,4)"},
        {OP_LINEAR, "f32(2,3) f32(4,3) f32(4)", INTS(1), .result = "f32(2,4)"},
        {OP_LINEAR, "f32(3) f32(4,3) f32(4)", INTS(2), .result = "f32(4)"},
        {OP_LINEAR, "f32(5,2,3) f32(4,3)", INTS(0), .result = "f32(5,2,4)"},
        {OP_LINEAR, "f32(5,2,3) f32(3) f32()", INTS(0), .result = "f32(5,2)"},
        {OP_LINEAR, "f32(3) f32(3)", INTS(0), .result = "f32()"},
        {OP_LINEAR, "f32(2,0) f32(4,0) f32(4)", INTS(0), .result = "f32(2,4)"},
        {OP_LINEAR, "f32(0,3) f32(4,3)", INTS(0), .result = "f32(0,4)"},
        {OP_LINEAR, "f32(2,3) f32(0,3) f32(0)", INTS(0), .result = "f32(2,0)"},
        {OP_LINEAR, "f32(2,3) f32(3,4)", INTS(0), FAILS(SHAPE, "weight (3, 4) does not end in x's last extent")},
        {OP_LINEAR, "f32() f32(4,3)", INTS(0), FAILS(SHAPE, "x () has no last axis")},
        {OP_LINEAR, "f32(3) f32()", INTS(0), FAILS(SHAPE, "neither (n, k) nor (k)")},
        {OP_LINEAR, "f32(3) f32(2,4,3)", INTS(0), FAILS(SHAPE, "neither (n, k) nor (k)")},
        {OP_LINEAR, "f32(2,3) f32(4,3) f32(3)", INTS(0), FAILS(SHAPE, "bias (3,) is not")},
        {OP_LINEAR, "f32(2,3) f32(4,3) f32(1,4)", INTS(0), FAILS(SHAPE, "bias")},
        {OP_LINEAR, "f32(2,3) f32(4,3) f32()", INTS(0), FAILS(SHAPE, "bias")},
        {OP_LINEAR, "f32(2,3) f32(3) f32(1)", INTS(0), FAILS(SHAPE, "bias")},
        {OP_LINEAR, "f32(2147483648,1) f32(2147483648,1)", INTS(0), FAILS(SHAPE, "2^63")},
    };
    INFER_CHECK(cases);
}

Test(op_linear, dtypes_promote) {
    static const struct infer_case cases[] = {
        {OP_LINEAR, "f16(2,3) f16(4,3) f16(4)", INTS(2), .result = "f16(2,4)"},
        {OP_LINEAR, "f16(2,3) bf16(4,3)", INTS(0), .result = "f32(2,4)"},
        {OP_LINEAR, "f16(2,3) f16(4,3) f32(4)", INTS(0), .result = "f32(2,4)"},
        {OP_LINEAR, "i8(2,3) u8(4,3)", INTS(1), .result = "i16(2,4)"},
        {OP_LINEAR, "bool(2,3) i8(4,3)", INTS(1), .result = "i8(2,4)"},
        {OP_LINEAR, "i32(2,3) i32(4,3) f32(4)", INTS(2), .result = "f32(2,4)"},
        {OP_LINEAR, "bool(2,3) bool(4,3) bool(4)", INTS(0), FAILS(DTYPE, "bool")},
        {OP_LINEAR, "f8e4m3(2,3) f8e5m2(4,3) f16(4)", INTS(2), .result = "f32(2,4)"},
        {OP_LINEAR, "f8e4m3(2,3) f8e4m3(4,3)", INTS(0), .result = "f32(2,4)"},
        {OP_LINEAR, "f8e4m3(2,3) f8e4m3(4,3) f64(4)", INTS(0), FAILS(DTYPE, "takes no bias of f64")},
        {OP_LINEAR, "f8e4m3(2,3) f8e4m3(4,3) f8e4m3(4)", INTS(0), FAILS(DTYPE, "do not promote")},
        {OP_LINEAR, "f8e4m3(2,3) f16(4,3)", INTS(0), FAILS(DTYPE, "do not promote")},
        {OP_LINEAR, "i32(2,3) i32(4,3)", INTS(2), FAILS(DTYPE, "gelu_tanh takes floats, not i32")},
    };
    INFER_CHECK(cases);
}

Test(op_linear, activations_are_known_ones) {
    static const struct infer_case cases[] = {
        {OP_LINEAR, "f32(2,3) f32(4,3)", INTS(3), FAILS(INVALID_ARGUMENT, "3 is no activation")},
        {OP_LINEAR, "f32(2,3) f32(4,3)", INTS(-1), FAILS(INVALID_ARGUMENT, "-1 is no activation")},
        {OP_LINEAR, "f32(2,3) f32(4,3)", INTS(INT64_MAX), FAILS(INVALID_ARGUMENT, "no activation")},
        {OP_LINEAR, "f32(2,3) f32(4,3)", FAILS(INVALID_ARGUMENT, "activation is missing")},
        {OP_LINEAR, "f32(2,3)", INTS(0), FAILS(INVALID_ARGUMENT, "2 to 3 inputs, not 1")},
    };
    INFER_CHECK(cases);
}
