/* Rules of operations that write to positions of an axis. */
#include "tests/unit/infer.h"

#include <criterion/criterion.h>

Test(op_scatter, shapes) {
    static const struct infer_case cases[] = {
        {OP_SCATTER, "f32(3,4) i64(2,4) f32(2,4)", INTS(0), .result = "f32(3,4)"},
        {OP_SCATTER, "f32(3,4) u8(7,1) f32()", INTS(0), .result = "f32(3,4)"},
        {OP_SCATTER, "f32(3,4) i32(1,9) f32(3,1)", INTS(-1), .result = "f32(3,4)"},
        {OP_SCATTER, "bool(3) i64(2) bool(2)", INTS(0), .result = "bool(3)"},
        {OP_SCATTER, "i8(3) i64(2) f32(2)", INTS(0), .result = "f32(3)"},
        {OP_SCATTER, "f32(0) i64(0) f32(0)", INTS(0), .result = "f32(0)"},
        {OP_SCATTER, "f32(0) i64(2) f32(2)", INTS(0), FAILS(OUT_OF_RANGE, "axis 0 of (0,) is empty")},
        {OP_SCATTER, "f32(3,4) i64(2) f32(2)", INTS(0), FAILS(SHAPE, "indices (2,) do not fit (3, 4) along axis 0")},
        {OP_SCATTER, "f32(3,1) i64(2,4) f32(2,4)", INTS(0), FAILS(SHAPE, "indices (2, 4) do not fit (3, 1)")},
        {OP_SCATTER, "f32(3,4) i64(2,4) f32(3,4)", INTS(0), FAILS(SHAPE, "values (3, 4) do not broadcast to (2, 4)")},
        {OP_SCATTER, "f32(3,4) i64(2,1) f32(5,2,4)", INTS(0), FAILS(SHAPE, "do not broadcast")},
        {OP_SCATTER, "f32(3) f32(2) f32(2)", INTS(0), FAILS(DTYPE, "indices are integers")},
        {OP_SCATTER, "f32() i64() f32()", INTS(0), FAILS(INVALID_ARGUMENT, "axis 0")},
        {OP_SCATTER_ADD, "f16(3) i64(2) f16(2)", INTS(0), .result = "f16(3)"},
        {OP_SCATTER_ADD, "bool(3) i64(2) bool(2)", INTS(0), FAILS(DTYPE, "numbers")},
    };
    INFER_CHECK(cases);
}
