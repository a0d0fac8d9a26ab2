#include "tests/unit/infer.h"

#include <criterion/criterion.h>

Test(op_view, reshape) {
    static const struct infer_case cases[] = {
        {OP_RESHAPE, "f32(2,6)", INTS(3, 4), .result = "f32(3,4)"},
        {OP_RESHAPE, "f32(2,6)", INTS(-1), .result = "f32(12)"},
        {OP_RESHAPE, "f32(2,6)", INTS(3, -1, 2), .result = "f32(3,2,2)"},
        {OP_RESHAPE, "f32()", INTS(1, 1), .result = "f32(1,1)"},
        {OP_RESHAPE, "f32(1)", .result = "f32()"},
        {OP_RESHAPE, "f32(0,5)", INTS(3, 0), .result = "f32(3,0)"},
        {OP_RESHAPE, "f32(0,5)", INTS(-1, 3), .result = "f32(0,3)"},
        {OP_RESHAPE, "f32(0,5)", INTS(-1, 0), FAILS(SHAPE, "cannot reshape (0, 5) to (-1, 0)")},
        {OP_RESHAPE, "f32(2,6)", INTS(-1, 0), FAILS(SHAPE, NULL)},
        {OP_RESHAPE, "f32(2,6)", INTS(5, 2), FAILS(SHAPE, "cannot reshape (2, 6) to (5, 2)")},
        {OP_RESHAPE, "f32(2,6)", INTS(-1, -1), FAILS(SHAPE, "(-1, -1)")},
        {OP_RESHAPE, "f32(2,6)", INTS(-2, -6), FAILS(SHAPE, NULL)},
        {OP_RESHAPE, "f32(2,6)", INTS(-1, 5), FAILS(SHAPE, NULL)},
        {OP_RESHAPE, "f32(2,6)", FAILS(SHAPE, "()")},
        {OP_RESHAPE, "f32(1)", INTS(1, 1, 1, 1, 1, 1, 1, 1, 1), FAILS(SHAPE, "rank 9")},
        {OP_RESHAPE, "f32(0)", INTS(INT64_MAX, INT64_MAX, 0), FAILS(SHAPE, NULL)},
        {OP_RESHAPE, "f32(0)", INTS(INT64_MAX, 0), FAILS(SHAPE, "2^63")},
        {OP_RESHAPE, "f32(16)", INTS(INT64_C(1) << 32, INT64_C(1) << 32, 16), FAILS(SHAPE, NULL)},
    };
    INFER_CHECK(cases);
}

Test(op_view, permute_and_transpose) {
    static const struct infer_case cases[] = {
        {OP_PERMUTE_DIMS, "f32(2,3,4)", INTS(2, 0, 1), .result = "f32(4,2,3)"},
        {OP_PERMUTE_DIMS, "f32(2,3,4)", INTS(-1, 0, 1), .result = "f32(4,2,3)"},
        {OP_PERMUTE_DIMS, "f32()", .result = "f32()"},
        {OP_PERMUTE_DIMS, "f32(2,3)", INTS(0), FAILS(INVALID_ARGUMENT, "1 axes for rank 2")},
        {OP_PERMUTE_DIMS, "f32(2,3)", INTS(0, -2), FAILS(INVALID_ARGUMENT, "axis 0 is named twice")},
        {OP_PERMUTE_DIMS, "f32(2,3)", INTS(0, 2), FAILS(INVALID_ARGUMENT, "axis 2")},
        {OP_MATRIX_TRANSPOSE, "f32(2,3,4)", .result = "f32(2,4,3)"},
        {OP_MATRIX_TRANSPOSE, "f32(3)", FAILS(SHAPE, "(3,)")},
    };
    INFER_CHECK(cases);
}

Test(op_view, slice) {
    static const struct infer_case cases[] = {
        {OP_SLICE, "f32(10)", INTS(1, 9, 3), .result = "f32(3)"},
        {OP_SLICE, "f32(10)", INTS(OP_SLICE_NONE, OP_SLICE_NONE, -1), .result = "f32(10)"},
        {OP_SLICE, "f32(2,3)", INTS(0, 1, 1, 5, 9, 1), .result = "f32(1,0)"},
        {OP_SLICE, "f32()", .result = "f32()"},
        {OP_SLICE, "f32(10)", INTS(0, 5, 0), FAILS(INVALID_ARGUMENT, "step")},
        {OP_SLICE, "f32(10)", INTS(0, 5), FAILS(INVALID_ARGUMENT, "3 numbers, not 2")},
        {OP_SLICE, "f32(2,3)", INTS(0, 5, 1), FAILS(INVALID_ARGUMENT, "6 numbers, not 3")},
    };
    INFER_CHECK(cases);
}

Test(op_view, broadcast_to) {
    static const struct infer_case cases[] = {
        {OP_BROADCAST_TO, "f32(3,1)", INTS(2, 3, 4), .result = "f32(2,3,4)"},
        {OP_BROADCAST_TO, "f32()", INTS(0), .result = "f32(0)"},
        {OP_BROADCAST_TO, "f32()", .result = "f32()"},
        {OP_BROADCAST_TO, "f32(3)", INTS(4), FAILS(SHAPE, "cannot broadcast (3,) to (4,)")},
        {OP_BROADCAST_TO, "f32(3)", INTS(3, 1), FAILS(SHAPE, NULL)},
        {OP_BROADCAST_TO, "f32(1,3)", INTS(3), FAILS(SHAPE, NULL)},
        {OP_BROADCAST_TO, "f32(1)", INTS(-1), FAILS(SHAPE, "-1")},
        {OP_BROADCAST_TO, "f32(1)", INTS(INT64_MAX), FAILS(SHAPE, "2^63")},
        {OP_BROADCAST_TO, "f32(1)", INTS(1, 1, 1, 1, 1, 1, 1, 1, 1), FAILS(SHAPE, "rank 9")},
    };
    INFER_CHECK(cases);
}

Test(op_view, squeeze_and_expand_dims) {
    static const struct infer_case cases[] = {
        {OP_SQUEEZE, "f32(1,3,1)", INTS(0, -1), .result = "f32(3)"},
        {OP_SQUEEZE, "f32(1,3,1)", .result = "f32(1,3,1)"},
        {OP_SQUEEZE, "f32(1,3,1)", INTS(1), FAILS(SHAPE, "axis 1 of (1, 3, 1) has extent 3")},
        {OP_SQUEEZE, "f32(1,3,1)", INTS(0, -3), FAILS(INVALID_ARGUMENT, "twice")},
        {OP_SQUEEZE, "f32(1,3,1)", INTS(3), FAILS(INVALID_ARGUMENT, "axis 3")},
        {OP_SQUEEZE, "f32()", INTS(0), FAILS(INVALID_ARGUMENT, "axis 0")},
        {OP_EXPAND_DIMS, "f32(2,3)", INTS(0), .result = "f32(1,2,3)"},
        {OP_EXPAND_DIMS, "f32(2,3)", INTS(-1), .result = "f32(2,3,1)"},
        {OP_EXPAND_DIMS, "f32(2,3)", INTS(1), .result = "f32(2,1,3)"},
        {OP_EXPAND_DIMS, "f32()", INTS(0), .result = "f32(1)"},
        {OP_EXPAND_DIMS, "f32(2,3)", INTS(3), FAILS(INVALID_ARGUMENT, "axis 3")},
        {OP_EXPAND_DIMS, "f32(1,1,1,1,1,1,1,1)", INTS(0), FAILS(SHAPE, "rank 8")},
    };
    INFER_CHECK(cases);
}
