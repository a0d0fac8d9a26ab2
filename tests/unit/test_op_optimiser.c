/* Rules of optimisers. */
#include <criterion/criterion.h>

#include "proto/ops/op.h"

static int infer(unsigned opcode, const struct tensor_type *types, unsigned n, const int64_t *ints, unsigned n_ints,
                 const double *floats, unsigned n_floats, unsigned n_outputs, struct tensor_type *out,
                 struct fault *fault) {
    const struct tensor_type *inputs[16];
    struct op_attributes attributes = {.ints = ints, .floats = floats, .n_ints = n_ints, .n_floats = n_floats};
    for (unsigned i = 0; i < n; i++)
        inputs[i] = &types[i];
    return op_infer_outputs(opcode, inputs, n, &attributes, n_outputs, out, fault);
}

static const struct tensor_type a = {.dtype = DTYPE_F32, .rank = 2, .shape = {3, 4}};
static const struct tensor_type b = {.dtype = DTYPE_BF16, .rank = 1, .shape = {5}};

Test(op_optimiser, results_have_the_types_of_parameters_and_state) {
    const struct tensor_type types[] = {a, b, a, b, a, b, a, b};
    const int64_t step[] = {1};
    const double floats[] = {0.1, 0.9, 0.99, 1e-8, 0};
    struct tensor_type out[6];
    struct fault fault;
    cr_assert_eq(infer(OP_ADAM, types, 8, step, 1, floats, 5, 6, out, &fault), STATUS_OK, "%s", fault.message);
    for (int i = 0; i < 6; i++)
        cr_assert(type_equal(&out[i], i % 2 ? &b : &a));
    cr_assert_eq(infer(OP_RMSPROP, types, 6, NULL, 0, floats, 4, 4, out, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(infer(OP_MOVING_AVERAGE, types, 4, NULL, 0, (double[]){0.5}, 1, 2, out, &fault), STATUS_OK, "%s",
                 fault.message);
}

Test(op_optimiser, sgd_has_velocities_with_a_momentum) {
    const struct tensor_type types[] = {a, a, a};
    const int64_t plain[] = {0};
    struct tensor_type out[2];
    struct fault fault;
    cr_assert_eq(infer(OP_SGD, types, 2, plain, 1, (double[]){0.1, 0, 0}, 3, 1, out, &fault), STATUS_OK);
    cr_assert_eq(infer(OP_SGD, types, 3, plain, 1, (double[]){0.1, 0.9, 0}, 3, 2, out, &fault), STATUS_OK);
    cr_assert_eq(infer(OP_SGD, types, 2, plain, 1, (double[]){0.1, 0.9, 0}, 3, 1, out, &fault),
                 STATUS_INVALID_ARGUMENT);
    cr_assert_str_eq(fault.message, "2 tensors are not 3 lists");
    cr_assert_eq(infer(OP_SGD, types, 2, plain, 1, (double[]){0.1, 0, 0}, 3, 2, out, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_str_eq(fault.message, "2 results of 1 parameters, not 1");
}

Test(op_optimiser, errors_name_the_parameter) {
    const struct tensor_type types[] = {a, a, a, b}, whole = {.dtype = DTYPE_I32, .rank = 1, .shape = {5}};
    const struct tensor_type wide[] = {a, {.dtype = DTYPE_F64, .rank = 2, .shape = {3, 4}}};
    struct tensor_type out[2];
    struct fault fault;
    cr_assert_eq(infer(OP_MOVING_AVERAGE, wide, 2, NULL, 0, (double[]){0.5}, 1, 1, out, &fault), STATUS_DTYPE);
    cr_assert_str_eq(fault.message, "parameter 0 is f32, its gradient f64");
    const struct tensor_type shapes[] = {a, {.dtype = DTYPE_F32, .rank = 1, .shape = {12}}};
    cr_assert_eq(infer(OP_MOVING_AVERAGE, shapes, 2, NULL, 0, (double[]){0.5}, 1, 1, out, &fault), STATUS_SHAPE);
    cr_assert_str_eq(fault.message, "parameter 0 is (3, 4), its gradient (12,)");
    cr_assert_eq(infer(OP_MOVING_AVERAGE, types, 4, NULL, 0, (double[]){0.5}, 1, 2, out, &fault), STATUS_DTYPE);
    cr_assert_eq(
        infer(OP_MOVING_AVERAGE, (struct tensor_type[]){whole, whole}, 2, NULL, 0, (double[]){0.5}, 1, 1, out, &fault),
        STATUS_DTYPE);
}

Test(op_optimiser, factors_have_ranges) {
    const struct tensor_type types[] = {a, a, a, a};
    static const double wrong[][5] = {
        {-1, 0.9, 0.99, 1e-8, 0}, {0.1, 1, 0.99, 1e-8, 0}, {0.1, 0.9, -0.1, 1e-8, 0}, {0.1, 0.9, 0.99, 1e-8, -1}};
    const double right[] = {0.1, 0.9, 0.99, 1e-8, 0};
    struct tensor_type out[3];
    struct fault fault;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_eq(infer(OP_ADAM, types, 4, (int64_t[]){1}, 1, wrong[i], 5, 3, out, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(infer(OP_ADAM, types, 4, (int64_t[]){0}, 1, right, 5, 3, out, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_str_eq(fault.message, "step is 0, not 1 or more");
    cr_assert_eq(infer(OP_ADAM, types, 4, (int64_t[]){7}, 1, right, 5, 3, out, &fault), STATUS_OK, "%s", fault.message);
}
