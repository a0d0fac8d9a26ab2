#include "tests/unit/infer.h"

#include <criterion/criterion.h>

Test(op_cross, the_other_axes_broadcast) {
    static const struct infer_case cases[] = {
        {OP_CROSS, "f32(3) f32(3)", INTS(-1), .result = "f32(3)"},
        {OP_CROSS, "f32(5,3) f32(5,3)", INTS(-1), .result = "f32(5,3)"},
        {OP_CROSS, "f32(5,3) f32(3)", INTS(-1), .result = "f32(5,3)"},
        {OP_CROSS, "f32(2,1,3) f32(4,3)", INTS(-1), .result = "f32(2,4,3)"},
        {OP_CROSS, "f32(3,5) f32(2,3,1)", INTS(-2), .result = "f32(2,3,5)"},
        {OP_CROSS, "f32(0,3) f32(3)", INTS(-1), .result = "f32(0,3)"},
        {OP_CROSS, "i8(3) u8(3)", INTS(-1), .result = "i16(3)"},
        {OP_CROSS, "c64(3) f64(3)", INTS(-1), .result = "c128(3)"},
        {OP_CROSS, "f16(3) f16(3)", INTS(-1), .result = "f16(3)"},
    };
    INFER_CHECK(cases);
}

Test(op_cross, what_is_refused) {
    static const struct infer_case cases[] = {
        {OP_CROSS, "f32(2,3) f32(2,3)", INTS(-2), FAILS(SHAPE, "(2, 3) x (2, 3): the extents of the axis are not 3")},
        {OP_CROSS, "f32(3) f32(2)", INTS(-1), FAILS(SHAPE, "the extents of the axis are not 3")},
        {OP_CROSS, "f32(3) f32(1)", INTS(-1), FAILS(SHAPE, "the extents of the axis are not 3")},
        {OP_CROSS, "f32(2,3) f32(5,3)", INTS(-1), FAILS(SHAPE, "broadcast")},
        {OP_CROSS, "f32(3) f32(3)", INTS(0), FAILS(INVALID_ARGUMENT, "axis 0 is not -1 to -1")},
        {OP_CROSS, "f32(3,3) f32(3)", INTS(-2), FAILS(INVALID_ARGUMENT, "axis -2 is not -1 to -1")},
        {OP_CROSS, "f32() f32(3)", INTS(-1), FAILS(INVALID_ARGUMENT, "axis -1")},
        {OP_CROSS, "f32(3) f32(3)", INTS(INT64_MIN), FAILS(INVALID_ARGUMENT, "counted from the end")},
        {OP_CROSS, "bool(3) bool(3)", INTS(-1), FAILS(DTYPE, "bool")},
        {OP_CROSS, "f8e4m3(3) f8e4m3(3)", INTS(-1), FAILS(DTYPE, NULL)},
    };
    INFER_CHECK(cases);
}
