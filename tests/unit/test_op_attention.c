/* Rules of attention. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/unit/infer.h"

Test(op_attention, heads_may_be_shared) {
    static const struct infer_case cases[] = {
        {OP_ATTENTION, "f32(2,8,5,16) f32(2,8,7,16) f32(2,8,7,4)", INTS(0), FLOATS(0), .result = "f32(2,8,5,4)"},
        {OP_ATTENTION, "f16(2,8,5,16) f16(2,2,7,16) f16(2,2,7,16)", INTS(1), FLOATS(0.5), .result = "f16(2,8,5,16)"},
        {OP_ATTENTION, "f32(5,16) f32(7,16) f32(7,16) bool(7)", INTS(0), FLOATS(0), .result = "f32(5,16)"},
        {OP_ATTENTION, "f32(2,5,16) f32(2,7,16) f32(2,7,16) f64(1,5,7)", INTS(0), FLOATS(0), .result = "f32(2,5,16)"},
        {OP_ATTENTION_GRAD, "f16(2,5,4) f16(2,5,3) f16(1,7,3) f16(1,7,4) f16(2,5,4) f32(2,5)", INTS(0), FLOATS(0),
         .result = "f16(2,5,3)"},
    };
    INFER_CHECK(cases);
}

Test(op_attention, errors_name_the_shapes) {
    static const struct infer_case cases[] = {
        {OP_ATTENTION, "f32(4) f32(4) f32(4)", INTS(0), FLOATS(0), FAILS(SHAPE, "one rank")},
        {OP_ATTENTION, "f32(5,16) f32(7,15) f32(7,16)", INTS(0), FLOATS(0), FAILS(SHAPE, "q (5, 16), k (7, 15)")},
        {OP_ATTENTION, "f32(5,0) f32(7,0) f32(7,16)", INTS(0), FLOATS(0), FAILS(SHAPE, "no last extent is 0")},
        {OP_ATTENTION, "f32(5,16) f32(7,16) f32(8,16)", INTS(0), FLOATS(0), FAILS(SHAPE, "one number of keys")},
        {OP_ATTENTION, "f32(3,5,16) f32(2,7,16) f32(2,7,16)", INTS(0), FLOATS(0), FAILS(SHAPE, "no multiple")},
        {OP_ATTENTION, "f32(4,3,5,16) f32(2,3,7,16) f32(2,3,7,16)", INTS(0), FLOATS(0), FAILS(SHAPE, "leading axes")},
        {OP_ATTENTION, "f32(5,16) f32(7,16) f32(7,16) f32(6,7)", INTS(0), FLOATS(0),
         FAILS(SHAPE, "the mask (6, 7) does not broadcast to (5, 7)")},
        {OP_ATTENTION, "f32(5,16) f32(7,16) f32(7,16) i32(5,7)", INTS(0), FLOATS(0), FAILS(DTYPE, "mask is i32")},
        {OP_ATTENTION, "f32(5,16) f32(7,16) f32(7,16)", INTS(0), FLOATS(INFINITY), FAILS(INVALID_ARGUMENT, "scale")},
        {OP_ATTENTION_GRAD, "f32(5,4) f32(5,3) f32(7,3) f32(7,4) f32(5,4) f32(6)", INTS(0), FLOATS(0),
         FAILS(SHAPE, "logsumexp (6,) is not (5,)")},
        {OP_ATTENTION_GRAD, "f16(5,4) f16(5,3) f16(7,3) f16(7,4) f16(5,4) f16(5)", INTS(0), FLOATS(0),
         FAILS(DTYPE, "logsumexp is f16")},
    };
    INFER_CHECK(cases);
}
