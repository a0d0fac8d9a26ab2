/* Rules of operations that move elements: borders, triangles, diagonals. */
#include "tests/unit/infer.h"

#include <criterion/criterion.h>

/* value, mode, and the widths */
Test(op_place, pad) {
    static const struct infer_case cases[] = {
        {OP_PAD, "f32(2,3)", INTS(0, 0, 1, 2, 0, 4), FLOATS(0), .result = "f32(5,7)"},
        {OP_PAD, "u8(2)", INTS(256, 0, 1, 1), FLOATS(256), FAILS(INVALID_ARGUMENT, "256 is no value of u8")},
        {OP_PAD, "f32()", INTS(0, 0), FLOATS(0), .result = "f32()"},
        {OP_PAD, "f32(0)", INTS(0, 0, 1, 1), FLOATS(0), .result = "f32(2)"},
        {OP_PAD, "f32(3)", INTS(0, 1, 2, 2), FLOATS(0), .result = "f32(7)"},
        {OP_PAD, "f32(3)", INTS(0, 1, 3, 0), FLOATS(0),
         FAILS(INVALID_ARGUMENT, "width 3 on axis 0 of extent 3 is not between 0 and 2")},
        {OP_PAD, "f32(3)", INTS(0, 2, 100, 0), FLOATS(0), .result = "f32(103)"},
        {OP_PAD, "f32(0)", INTS(0, 2, 1, 0), FLOATS(0), FAILS(INVALID_ARGUMENT, "between 0 and 0")},
        {OP_PAD, "f32(3)", INTS(0, 3, 3, 3), FLOATS(0), .result = "f32(9)"},
        {OP_PAD, "f32(3)", INTS(0, 3, 4, 0), FLOATS(0), FAILS(INVALID_ARGUMENT, "between 0 and 3")},
        {OP_PAD, "f32(3)", INTS(0, 0, -1, 0), FLOATS(0), FAILS(INVALID_ARGUMENT, "width -1")},
        {OP_PAD, "f32(3)", INTS(0, 0, 1), FLOATS(0), FAILS(INVALID_ARGUMENT, "rank 1 needs 2 widths, not 1")},
        {OP_PAD, "f32(3)", INTS(0, 0, INT64_MAX, 0), FLOATS(0), FAILS(SHAPE, "2^63")},
        {OP_PAD, "f32(3)", INTS(0, 4, 1, 1), FLOATS(0), FAILS(INVALID_ARGUMENT, "4 is no mode")},
    };
    INFER_CHECK(cases);
}

Test(op_place, triangles) {
    static const struct infer_case cases[] = {
        {OP_TRIL, "bool(2,3,4)", INTS(INT64_MIN), .result = "bool(2,3,4)"},
        {OP_TRIU, "f8e4m3(3,4)", INTS(1), .result = "f8e4m3(3,4)"},
        {OP_TRIU, "f32(3)", INTS(0), FAILS(SHAPE, "(3,) has fewer than two axes")},
    };
    INFER_CHECK(cases);
}

/* offset and the two axes */
Test(op_place, diagonal) {
    static const struct infer_case cases[] = {
        {OP_DIAGONAL, "f32(3,5)", INTS(0, -2, -1), .result = "f32(3)"},
        {OP_DIAGONAL, "f32(3,5)", INTS(3, 0, 1), .result = "f32(2)"},
        {OP_DIAGONAL, "f32(3,5)", INTS(-1, 0, 1), .result = "f32(2)"},
        {OP_DIAGONAL, "f32(3,5)", INTS(3, 1, 0), .result = "f32(0)"},
        {OP_DIAGONAL, "f32(3,5)", INTS(INT64_MIN, 0, 1), .result = "f32(0)"},
        {OP_DIAGONAL, "f32(3,5)", INTS(INT64_MAX, 0, 1), .result = "f32(0)"},
        {OP_DIAGONAL, "f32(3,4,5)", INTS(0, 0, 2), .result = "f32(4,3)"},
        {OP_DIAGONAL, "f32(3,4)", INTS(0, 1, -1), FAILS(INVALID_ARGUMENT, "axis 1 is named twice")},
        {OP_DIAGONAL, "f32(3)", INTS(0, -2, -1), FAILS(INVALID_ARGUMENT, "axis -2")},
    };
    INFER_CHECK(cases);
}
