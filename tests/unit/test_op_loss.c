/* Rules of losses. */
#include <criterion/criterion.h>

#include "tests/unit/infer.h"

Test(op_loss, losses_have_the_shape_of_the_targets) {
    static const struct infer_case cases[] = {
        {OP_CROSS_ENTROPY, "f32(8,10) i64(8)", INTS(-100), FLOATS(0), .result = "f32(8)"},
        {OP_CROSS_ENTROPY, "f32(8,10,3,4) u8(8,3,4)", INTS(-100), FLOATS(0.5), .result = "f32(8,3,4)"},
        {OP_CROSS_ENTROPY, "f64(10) i32()", INTS(-100), FLOATS(0), .result = "f64()"},
        {OP_CROSS_ENTROPY_GRAD, "f32(8) bf16(8,10) i64(8)", INTS(-100), FLOATS(0), .result = "f32(8,10)"},
    };
    INFER_CHECK(cases);
}

Test(op_loss, errors_name_the_shapes) {
    static const struct infer_case cases[] = {
        {OP_CROSS_ENTROPY, "f32(8,10) i64(7)", INTS(-100), FLOATS(0), FAILS(SHAPE, "scores (8, 10), targets (7,)")},
        {OP_CROSS_ENTROPY, "f32(8,0) i64(8)", INTS(-100), FLOATS(0), FAILS(SHAPE, "no classes")},
        {OP_CROSS_ENTROPY, "f32() i64()", INTS(-100), FLOATS(0), FAILS(SHAPE, "no classes")},
        {OP_CROSS_ENTROPY, "f32(8,10) f32(8)", INTS(-100), FLOATS(0), FAILS(DTYPE, "integers")},
        {OP_CROSS_ENTROPY, "f32(8,10) i64(8)", INTS(-100), FLOATS(1.5),
         FAILS(INVALID_ARGUMENT, "label_smoothing is 1.5")},
        {OP_CROSS_ENTROPY_GRAD, "f32(7) f32(8,10) i64(8)", INTS(-100), FLOATS(0), FAILS(SHAPE, "gradient (7,)")},
    };
    INFER_CHECK(cases);
}
