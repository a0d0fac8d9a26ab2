/* Rules of convolutions. */
#include <criterion/criterion.h>

#include "proto/ops/convolution.h"
#include "tests/unit/infer.h"

/* groups, layout, and the lists, each but the last with its count before it. */
#define PLAIN 1, OP_LAYOUT_CHANNELS_FIRST, 0, 0

Test(op_convolution, conv_has_an_extent_for_each_place_of_the_kernel) {
    static const struct infer_case cases[] = {
        {OP_CONV, "f32(2,3,32,32) f32(6,3,5,5)", INTS(PLAIN), .result = "f32(2,6,28,28)"},
        {OP_CONV, "f32(2,3,32,32) f32(6,3,5,5) f32(6)", INTS(PLAIN), .result = "f32(2,6,28,28)"},
        {OP_CONV, "f32(2,6,14,14) f32(16,6,5,5)", INTS(1, 0, 0, 1, 3), .result = "f32(2,16,16,16)"},
        {OP_CONV, "f32(1,4,9) f32(2,4,3)", INTS(1, 0, 1, 2, 1, 1, 2), .result = "f32(1,2,4)"},
        {OP_CONV, "f32(1,8,9) f32(4,2,3)", INTS(4, 0, 0, 0), .result = "f32(1,4,7)"},
        {OP_CONV, "f32(2,32,31,3) f32(6,3,5,5)", INTS(1, 1, 0, 0), .result = "f32(2,28,27,6)"},
        {OP_CONV, "f32(2,3,5,6,7) f32(4,3,1,2,3)", INTS(1, 0, 3, 1, 2, 3, 3, 0, 1, 0), .result = "f32(2,4,5,4,2)"},
        {OP_CONV, "f16(0,3,8) bf16(4,3,2)", INTS(PLAIN), .result = "f32(0,4,7)"},
    };
    INFER_CHECK(cases);
}

Test(op_convolution, conv_says_which_rule_does_not_hold) {
    static const struct infer_case cases[] = {
        {OP_CONV, "f32(2,3,32,32) f32(6,4,5,5)", INTS(PLAIN),
         FAILS(SHAPE, "x (2, 3, 32, 32), weight (6, 4, 5, 5): 3 channels in 1 groups != 4")},
        {OP_CONV, "f32(2,4,32,32) f32(5,2,5,5)", INTS(2, 0, 0, 0), FAILS(SHAPE, "5 channels do not make 2 groups")},
        {OP_CONV, "f32(2,4,32,32) f32(4,4,5,5)", INTS(0, 0, 0, 0), FAILS(INVALID_ARGUMENT, "groups is 0")},
        {OP_CONV, "f32(2,3,4,32) f32(6,3,5,5)", INTS(PLAIN),
         FAILS(SHAPE, "a kernel of 5 with dilation 1 is wider than 4 with padding 0")},
        {OP_CONV, "f32(2,3,32) f32(6,3,5,5)", INTS(PLAIN), FAILS(SHAPE, "ranks differ")},
        {OP_CONV, "f32(3,32) f32(6,3)", INTS(PLAIN), FAILS(SHAPE, "1 to 3 more axes")},
        {OP_CONV, "f32(2,3,32,0) f32(6,3,5,5)", INTS(PLAIN), FAILS(SHAPE, "axis 3 of x")},
        {OP_CONV, "f32(2,3,32,32) f32(6,3,5,5) f32(5)", INTS(PLAIN), FAILS(SHAPE, "bias (5,)")},
        {OP_CONV, "f32(2,3,32,32) f32(6,3,5,5)", INTS(1, 0, 1, 0, 0), FAILS(INVALID_ARGUMENT, "stride is 0")},
        {OP_CONV, "f32(2,3,32,32) f32(6,3,5,5)", INTS(1, 0, 3, 1, 1, 1, 0),
         FAILS(INVALID_ARGUMENT, "stride has 3 entries for 2 axes")},
        {OP_CONV, "f32(2,3,32,32) f32(6,3,5,5)", INTS(1, 0, 0, 1, -1), FAILS(INVALID_ARGUMENT, "padding is -1")},
        {OP_CONV, "f32(2,3,32,32) f32(6,3,5,5)", INTS(1, 7, 0, 0), FAILS(INVALID_ARGUMENT, "layout")},
        {OP_CONV, "f32(2,1,65536,65536) f32(6,1,5,5)", INTS(PLAIN), FAILS(SHAPE, "2^31 - 1 places")},
        {OP_CONV, "i32(2,3,8) i32(6,3,5)", INTS(PLAIN), FAILS(DTYPE, NULL)},
    };
    INFER_CHECK(cases);
}

Test(op_convolution, conv_transpose_undoes_the_extents_of_conv) {
    static const struct infer_case cases[] = {
        {OP_CONV_TRANSPOSE, "f32(2,6,28,28) f32(6,3,5,5) f32(3)", INTS(1, 0, 0, 0, 0), .result = "f32(2,3,32,32)"},
        {OP_CONV_TRANSPOSE, "f32(2,6,7) f32(6,4,4)", INTS(2, 0, 1, 2, 1, 1, 1, 1), .result = "f32(2,8,15)"},
        {OP_CONV_TRANSPOSE, "f32(2,6,7) f32(6,4,4)", INTS(1, 0, 1, 2, 1, 1, 1, 2),
         FAILS(INVALID_ARGUMENT, "output_padding is 2")},
        {OP_CONV_TRANSPOSE, "f32(2,5,7) f32(6,4,4)", INTS(1, 0, 0, 0, 0),
         FAILS(SHAPE, "x (2, 5, 7), weight (6, 4, 4): 5 channels != 6")},
        {OP_CONV_TRANSPOSE, "f32(2,6,1) f32(6,4,1)", INTS(1, 0, 0, 1, 3, 0), FAILS(SHAPE, "axis 2 of the result")},
    };
    INFER_CHECK(cases);
}

Test(op_convolution, gradients_have_the_shape_that_is_asked_for) {
    static const struct infer_case cases[] = {
        {OP_CONV_GRAD_INPUT, "f32(2,6,28,28) f32(6,3,5,5)", INTS(1, 0, 4, 2, 3, 32, 32, 0, 0),
         .result = "f32(2,3,32,32)"},
        {OP_CONV_GRAD_INPUT, "f32(2,6,28,28) f32(6,3,5,5)", INTS(1, 0, 4, 2, 3, 32, 33, 0, 0),
         FAILS(SHAPE, "the gradient is (2, 6, 28, 28), not (2, 6, 28, 29)")},
        {OP_CONV_GRAD_INPUT, "f32(2,6,28,28) f32(6,3,5,5)", INTS(1, 0, 1, 2, 0, 0), FAILS(SHAPE, NULL)},
        {OP_CONV_GRAD_WEIGHT, "f32(2,3,32,32) f32(2,6,28,28)", INTS(1, 0, 4, 6, 3, 5, 5, 0, 0),
         .result = "f32(6,3,5,5)"},
        {OP_CONV_GRAD_WEIGHT, "f32(0,3,32,32) f32(0,6,28,28)", INTS(1, 0, 4, 6, 3, 5, 5, 0, 0),
         .result = "f32(6,3,5,5)"},
        {OP_CONV_GRAD_WEIGHT, "f32(2,3,32,32) f32(2,6,28,28)", INTS(1, 0, 4, 6, 3, 5, 4, 0, 0),
         FAILS(SHAPE, "the gradient is")},
        {OP_CONV_GRAD_WEIGHT, "f32(2,3,32,32) f32(2,6,28,28)", INTS(1, 0, 4, 6, 3, -5, 4, 0, 0), FAILS(SHAPE, NULL)},
    };
    INFER_CHECK(cases);
}

Test(op_convolution, work_is_the_number_of_products) {
    const struct tensor_type x = {.dtype = DTYPE_F32, .rank = 3, .shape = {2, 4, 9}};
    const struct tensor_type weight = {.dtype = DTYPE_F32, .rank = 3, .shape = {6, 4, 3}};
    const struct tensor_type y = {.dtype = DTYPE_F32, .rank = 3, .shape = {2, 6, 7}};
    cr_assert_eq(op_work(op_info(OP_CONV), (const struct tensor_type *[]){&x, &weight}, &y), 2 * 6 * 7 * 12);
    cr_assert_eq(op_work(op_info(OP_CONV_GRAD_INPUT), (const struct tensor_type *[]){&y, &weight}, &x), 2 * 6 * 7 * 12);
    cr_assert_eq(op_work(op_info(OP_CONV_GRAD_WEIGHT), (const struct tensor_type *[]){&x, &y}, &weight),
                 2 * 6 * 7 * 12);
}
