/* Rules of losses. */
#include <criterion/criterion.h>

#include "tests/unit/infer.h"

enum { NONE = OP_REDUCTION_NONE, MEAN = OP_REDUCTION_MEAN, SUM = OP_REDUCTION_SUM };

Test(op_loss, losses_have_the_shape_of_the_targets) {
    static const struct infer_case cases[] = {
        {OP_CROSS_ENTROPY, "f32(8,10) i64(8)", INTS(-100, NONE), FLOATS(0), .result = "f32(8)"},
        {OP_CROSS_ENTROPY, "f32(8,10,3,4) u8(8,3,4)", INTS(-100, NONE), FLOATS(0.5), .result = "f32(8,3,4)"},
        {OP_CROSS_ENTROPY, "f64(10) i32()", INTS(-100, NONE), FLOATS(0), .result = "f64()"},
        {OP_CROSS_ENTROPY, "f32(8,10) i64(8) f64(10)", INTS(-100, MEAN), FLOATS(0), .result = "f64()"},
        {OP_CROSS_ENTROPY_GRAD, "f32(8) bf16(8,10) i64(8)", INTS(-100, NONE), FLOATS(0), .result = "f32(8,10)"},
        {OP_CROSS_ENTROPY_GRAD, "f32() f32(8,10) i64(8)", INTS(-100, SUM), FLOATS(0), .result = "f32(8,10)"},
        {OP_SOFT_CROSS_ENTROPY, "f32(8,10,3) f32(8,10,3)", INTS(NONE), FLOATS(0), .result = "f32(8,3)"},
        {OP_SOFT_CROSS_ENTROPY_GRAD, "f32() f32(8,10) f32(8,10)", INTS(MEAN), FLOATS(0), .result = "f32(8,10)"},
        {OP_NLL_LOSS, "f32(8,10) i64(8)", INTS(-100, SUM), .result = "f32()"},
        {OP_NLL_LOSS_GRAD, "f32(8) f32(8,10) i64(8)", INTS(-100, NONE), .result = "f32(8,10)"},
    };
    INFER_CHECK(cases);
}

Test(op_loss, losses_of_elements_have_their_shape) {
    static const struct infer_case cases[] = {
        {OP_MSE_LOSS, "f32(2,3) f64(2,3)", INTS(NONE), .result = "f64(2,3)"},
        {OP_L1_LOSS, "f32(2,3) f32(2,3)", INTS(MEAN), .result = "f32()"},
        {OP_HUBER_LOSS_GRAD, "f32() f32(2,3) f32(2,3)", INTS(SUM), FLOATS(2), .result = "f32(2,3)"},
        {OP_BCE_WITH_LOGITS, "f32(2,3) f32(2,3) f32() f32(3)", INTS(MEAN), .result = "f32()"},
        {OP_KL_DIV_GRAD, "f16(2,3) f16(2,3) f16(2,3)", INTS(NONE, 1), .result = "f16(2,3)"},
    };
    INFER_CHECK(cases);
}

Test(op_loss, errors_name_the_shapes) {
    static const struct infer_case cases[] = {
        {OP_CROSS_ENTROPY, "f32(8,10) i64(7)", INTS(-100, NONE), FLOATS(0),
         FAILS(SHAPE, "scores (8, 10), targets (7,)")},
        {OP_CROSS_ENTROPY, "f32(8,0) i64(8)", INTS(-100, NONE), FLOATS(0), FAILS(SHAPE, "no classes")},
        {OP_CROSS_ENTROPY, "f32() i64()", INTS(-100, NONE), FLOATS(0), FAILS(SHAPE, "no classes")},
        {OP_CROSS_ENTROPY, "f32(8,10) f32(8)", INTS(-100, NONE), FLOATS(0), FAILS(DTYPE, "integers")},
        {OP_CROSS_ENTROPY, "f32(8,10) i64(8)", INTS(-100, NONE), FLOATS(1.5),
         FAILS(INVALID_ARGUMENT, "label_smoothing is 1.5")},
        {OP_CROSS_ENTROPY, "f32(8,10) i64(8)", INTS(-100, 3), FLOATS(0), FAILS(INVALID_ARGUMENT, "reduction")},
        {OP_CROSS_ENTROPY, "f32(8,10) i64(8) f32(9)", INTS(-100, NONE), FLOATS(0), FAILS(SHAPE, "weight (9,)")},
        {OP_CROSS_ENTROPY_GRAD, "f32(7) f32(8,10) i64(8)", INTS(-100, NONE), FLOATS(0), FAILS(SHAPE, "gradient (7,)")},
        {OP_CROSS_ENTROPY_GRAD, "f32(8) f32(8,10) i64(8)", INTS(-100, MEAN), FLOATS(0), FAILS(SHAPE, "gradient (8,)")},
        {OP_SOFT_CROSS_ENTROPY, "f32(8,10) f32(8)", INTS(NONE), FLOATS(0), FAILS(SHAPE, "probabilities (8,)")},
        {OP_MSE_LOSS, "f32(2,3) f32(3)", INTS(NONE), FAILS(SHAPE, "x (2, 3), target (3,)")},
        {OP_HUBER_LOSS, "f32(2,3) f32(2,3)", INTS(NONE), FLOATS(0), FAILS(INVALID_ARGUMENT, "delta is 0")},
        {OP_BCE_WITH_LOGITS, "f32(2,3) f32(2,3) f32(4)", INTS(NONE), FAILS(SHAPE, "weight (4,)")},
        {OP_BCE_WITH_LOGITS, "f32(3) f32(3) f32(2,3)", INTS(NONE), FAILS(SHAPE, "weight (2, 3)")},
        {OP_MSE_LOSS_GRAD, "f32() f32(2,3) f32(2,3)", INTS(NONE), FAILS(SHAPE, "gradient ()")},
    };
    INFER_CHECK(cases);
}
