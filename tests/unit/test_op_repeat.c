#include "tests/unit/infer.h"

#include <criterion/criterion.h>

Test(op_repeat, the_axis_has_the_length) {
    static const struct infer_case cases[] = {
        {OP_REPEAT_EACH, "f32(3) i64(3)", INTS(5, 0), .result = "f32(5)"},
        {OP_REPEAT_EACH, "c64(2,3) u8(3)", INTS(0, 1), .result = "c64(2,0)"},
        {OP_REPEAT_EACH, "bool(2,3,4) i32(3)", INTS(7, -2), .result = "bool(2,7,4)"},
        {OP_REPEAT_EACH, "f8e4m3(0,3) i32(3)", INTS(7, 1), .result = "f8e4m3(0,7)"},
    };
    INFER_CHECK(cases);
}

Test(op_repeat, what_is_refused) {
    static const struct infer_case cases[] = {
        {OP_REPEAT_EACH, "f32(2,3) i64(2)", INTS(5, 1), FAILS(SHAPE, "3 elements of axis 1 have not one count each")},
        {OP_REPEAT_EACH, "f32(3) i64(1,3)", INTS(5, 0), FAILS(SHAPE, "not one count each")},
        {OP_REPEAT_EACH, "f32(0) i64(0)", INTS(5, 0), FAILS(SHAPE, "0 elements of axis 0")},
        {OP_REPEAT_EACH, "f32(3) f32(3)", INTS(5, 0), FAILS(DTYPE, "f32")},
        {OP_REPEAT_EACH, "f32(3) i64(3)", INTS(-1, 0), FAILS(INVALID_ARGUMENT, "the length is -1")},
        {OP_REPEAT_EACH, "f32(3) i64(3)", INTS((INT64_C(1) << 53) + 1, 0), FAILS(INVALID_ARGUMENT, "the length is")},
        {OP_REPEAT_EACH, "f32(3) i64(3)", INTS(5, 1), FAILS(INVALID_ARGUMENT, "axis")},
        {OP_REPEAT_EACH, "f32() i64(1)", INTS(5, 0), FAILS(INVALID_ARGUMENT, "axis")},
    };
    INFER_CHECK(cases);
}
