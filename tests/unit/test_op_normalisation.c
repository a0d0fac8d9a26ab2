/* Rules of normalisations. */
#include <criterion/criterion.h>

#include "tests/unit/infer.h"

Test(op_normalisation, results_have_the_shape_of_x) {
    static const struct infer_case cases[] = {
        {OP_LAYER_NORM, "f32(2,5,8)", INTS(1), FLOATS(1e-5), .result = "f32(2,5,8)"},
        {OP_LAYER_NORM, "f32(2,5,8) f32(5,8) f32(5,8)", INTS(2), FLOATS(1e-5), .result = "f32(2,5,8)"},
        {OP_RMS_NORM, "bf16(2,5,8) f32(8)", INTS(1), FLOATS(1e-5), .result = "f32(2,5,8)"},
        {OP_GROUP_NORM, "f32(2,6,8,9) f32(6)", INTS(3), FLOATS(1e-5), .result = "f32(2,6,8,9)"},
        {OP_BATCH_NORM_INFERENCE, "f32(2,6,8) f32(6) f32(6) f32(6) f32(6)", INTS(1), FLOATS(1e-5),
         .result = "f32(2,6,8)"},
        {OP_BATCH_NORM_INFERENCE, "f32(2,6,8) f32(8) f32(8)", INTS(-1), FLOATS(1e-5), .result = "f32(2,6,8)"},
        {OP_LAYER_NORM, "f32(0,8)", INTS(1), FLOATS(1e-5), .result = "f32(0,8)"},
    };
    INFER_CHECK(cases);
}

Test(op_normalisation, errors_name_the_rule) {
    static const struct infer_case cases[] = {
        {OP_LAYER_NORM, "f32(2,5,8)", INTS(0), FLOATS(1e-5),
         FAILS(INVALID_ARGUMENT, "axes is 0, not 1 to x's rank of 3")},
        {OP_LAYER_NORM, "f32(2,5,8) f32(5)", INTS(1), FLOATS(1e-5),
         FAILS(SHAPE, "input 1 is (5,), not (8,); x is (2, 5, 8)")},
        {OP_LAYER_NORM, "f32(2,5,0)", INTS(1), FLOATS(1e-5), FAILS(SHAPE, "no elements on its last axes")},
        {OP_LAYER_NORM, "f32(2,5,8)", INTS(1), FLOATS(-1), FAILS(INVALID_ARGUMENT, "epsilon is -1")},
        {OP_GROUP_NORM, "f32(2,6,8,9)", INTS(4), FLOATS(1e-5), FAILS(SHAPE, "6 channels do not make 4 groups")},
        {OP_GROUP_NORM, "f32(2,6,8,9)", INTS(0), FLOATS(1e-5), FAILS(INVALID_ARGUMENT, "0 groups")},
        {OP_GROUP_NORM, "f32(6)", INTS(1), FLOATS(1e-5), FAILS(SHAPE, "no axis of channels")},
        {OP_BATCH_NORM_INFERENCE, "f32(2,6,8) f32(5) f32(6)", INTS(1), FLOATS(1e-5),
         FAILS(SHAPE, "input 1 is (5,), not (6,)")},
        {OP_BATCH_NORM_INFERENCE, "f32(2,6,8) f32(6) f32(6)", INTS(3), FLOATS(1e-5), FAILS(INVALID_ARGUMENT, NULL)},
        {OP_RMS_NORM, "i32(2,5,8)", INTS(1), FLOATS(1e-5), FAILS(DTYPE, NULL)},
    };
    INFER_CHECK(cases);
}

Test(op_normalisation, batch_norm_gives_the_statistics_too) {
    const struct tensor_type x = {.dtype = DTYPE_F32, .rank = 3, .shape = {2, 6, 8}};
    const struct tensor_type c = {.dtype = DTYPE_F32, .rank = 1, .shape = {6}};
    const struct tensor_type one = {.dtype = DTYPE_F32, .rank = 2, .shape = {1, 6}};
    const int64_t axis[] = {1};
    const double floats[] = {1e-5, 0.1};
    struct op_attributes attributes = {.ints = axis, .n_ints = 1, .floats = floats, .n_floats = 2};
    struct tensor_type out[3];
    struct fault fault;
    cr_assert_eq(op_infer(OP_BATCH_NORM, (const struct tensor_type *[]){&x, &c, &c}, 3, &attributes, out, &fault),
                 STATUS_OK, "%s", fault.message);
    cr_assert(shape_equal(&out[0], &x) && shape_equal(&out[1], &c) && shape_equal(&out[2], &c));
    cr_assert_eq(op_infer(OP_BATCH_NORM, (const struct tensor_type *[]){&one, &c, &c}, 3, &attributes, out, &fault),
                 STATUS_SHAPE);
    cr_assert_str_eq(fault.message, "x (1, 6): a channel has 1 elements, and needs 2");
}

Test(op_normalisation, gradients_are_of_x_weight_and_bias) {
    const struct tensor_type x = {.dtype = DTYPE_F32, .rank = 3, .shape = {2, 6, 8}};
    const struct tensor_type row = {.dtype = DTYPE_F32, .rank = 1, .shape = {8}};
    const int64_t axes[] = {1};
    const double epsilon[] = {1e-5};
    struct op_attributes attributes = {.ints = axes, .n_ints = 1, .floats = epsilon, .n_floats = 1};
    struct tensor_type out[3];
    struct fault fault;
    cr_assert_eq(
        op_infer(OP_LAYER_NORM_GRAD, (const struct tensor_type *[]){&x, &x, &row}, 3, &attributes, out, &fault),
        STATUS_OK, "%s", fault.message);
    cr_assert(shape_equal(&out[0], &x) && shape_equal(&out[1], &row) && shape_equal(&out[2], &row));
    cr_assert_eq(op_infer(OP_LAYER_NORM_GRAD, (const struct tensor_type *[]){&row, &x}, 2, &attributes, out, &fault),
                 STATUS_SHAPE);
    cr_assert_str_eq(fault.message, "the gradient is (8,), x (2, 6, 8)");
}
