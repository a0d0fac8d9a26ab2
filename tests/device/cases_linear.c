#include <math.h>

#include "tests/device/cases.h"

/* Runs it on inputs that are freed then; `bias` NULL: without. */
static void linear_once(struct suite *suite, struct sample *x, struct sample *weight, struct sample *bias,
                        enum op_activation activation) {
    const struct sample *inputs[] = {x, weight, bias};
    struct sample result =
        suite_run(suite, &(struct suite_call){.opcode = OP_LINEAR,
                                              .n_inputs = bias ? 3 : 2,
                                              .inputs = inputs,
                                              .attributes = SUITE_ATTRIBUTES(linear, .activation = activation)});
    case_settle(suite, &result);
    suite_free(suite, x);
    suite_free(suite, weight);
    if (bias)
        suite_free(suite, bias);
}

/* Of x and weight; DTYPE_INVALID: they do not go together. Two of f8 make f32. */
static enum dtype linear_dtype(enum dtype x, enum dtype weight) {
    if (dtype_is_f8(x) || dtype_is_f8(weight))
        return dtype_is_f8(x) && dtype_is_f8(weight) ? DTYPE_F32 : DTYPE_INVALID;
    return reference_promote(x, weight);
}

/* Of a bias that goes with a product of this dtype: mostly the same. To one of f8 none is added that would widen it. */
static enum dtype linear_bias(struct suite *suite, const struct op_case *row, enum dtype x, enum dtype product) {
    enum dtype other = op_case_dtype(suite, row);
    bool alone = dtype_is_f8(x) || reference_promote(product, other) == DTYPE_INVALID;
    return alone || suite_chance(suite, 70) ? product : other;
}

static enum op_activation linear_activation(struct suite *suite, enum dtype dtype) {
    return (enum op_activation)suite_below(suite,
                                           value_is_float(dtype) ? OP_ACTIVATION_COUNT : OP_ACTIVATION_GELU_TANH);
}

static int64_t linear_extent(struct suite *suite) {
    return suite_chance(suite, 8) ? 0 : suite_chance(suite, 15) ? 1 : 1 + suite_below(suite, 34);
}

static void linear_random(struct suite *suite, enum dtype dtype_x, enum dtype dtype_weight, enum dtype dtype_bias) {
    int64_t x[VALUES_RANK_MAX], weight[2] = {linear_extent(suite), linear_extent(suite)};
    int rank = suite_shape(suite, 3, x), weight_rank = suite_chance(suite, 85) ? 2 : 1;
    for (int i = 0; i < rank; i++)
        x[i] = x[i] > 9 ? 9 : x[i];
    x[rank++] = weight[1];
    enum dtype dtype = linear_dtype(dtype_x, dtype_weight);
    bool with_bias = suite_chance(suite, 70);
    if (with_bias)
        dtype = reference_promote(dtype, dtype_bias);
    struct sample a = suite_input(suite, dtype_x, rank, x, FILL_ORDINARY), c;
    struct sample b = suite_input(suite, dtype_weight, weight_rank, weight + 2 - weight_rank, FILL_ORDINARY);
    if (with_bias)
        c = suite_input(suite, dtype_bias, weight_rank - 1, weight, FILL_ORDINARY);
    linear_once(suite, &a, &b, with_bias ? &c : NULL, linear_activation(suite, dtype));
}

/* Sums of infinities and NaNs; the weight's numbers are positive, so that infinities stay what they are. */
static void linear_special(struct suite *suite, enum dtype dtype, enum op_activation activation) {
    enum { ROWS = 9, DEPTH = 21, COLUMNS = 18 };
    const long double specials[] = {NAN, INFINITY, activation == OP_ACTIVATION_GELU_TANH ? 3 : -INFINITY, -0.0L};
    struct values *x = values_create(dtype, 2, (int64_t[]){ROWS, DEPTH});
    struct values *weight = values_create(dtype, 2, (int64_t[]){COLUMNS, DEPTH});
    struct values *bias = values_create(dtype, 1, (int64_t[]){COLUMNS});
    suite_fill(suite, x, FILL_ORDINARY);
    suite_fill(suite, weight, FILL_NEAR_ONE);
    suite_fill(suite, bias, FILL_ORDINARY);
    for (int64_t i = 0; i < weight->count; i++)
        weight->f[i] = fabsl(weight->f[i]);
    for (int64_t i = 0; i < ROWS - 1; i++)
        x->f[i * DEPTH + suite_below(suite, DEPTH)] = specials[i % 4];
    for (int64_t i = 0; i < 4; i++)
        bias->f[3 * i] = specials[i];
    struct sample a = suite_upload(suite, x), b = suite_upload(suite, weight), c = suite_upload(suite, bias);
    linear_once(suite, &a, &b, suite_chance(suite, 80) ? &c : NULL, activation);
}

/* With a weight that was stored the other way round, and one that is every second row and column of another. */
static void linear_turned(struct suite *suite, enum dtype dtype, int64_t rows, int64_t k, int64_t n) {
    for (enum op_activation activation = 0; activation < (value_is_float(dtype) ? 3 : 2); activation++) {
        struct sample x = suite_sample(suite, dtype, 2, (int64_t[]){rows, k}, FILL_ORDINARY);
        struct sample bias =
            suite_sample(suite, dtype_is_f8(dtype) ? DTYPE_F32 : dtype, 1, (int64_t[]){n}, FILL_ORDINARY);
        struct sample stored = suite_sample(suite, dtype, 2, (int64_t[]){k, n}, FILL_ORDINARY);
        struct sample weight = suite_unary(suite, OP_MATRIX_TRANSPOSE, &stored);
        suite_free(suite, &stored);
        linear_once(suite, &x, &weight, &bias, activation);
        x = suite_sample(suite, dtype, 2, (int64_t[]){rows, k}, FILL_ORDINARY);
        stored = suite_sample(suite, dtype, 2, (int64_t[]){2 * n, 2 * k}, FILL_ORDINARY);
        weight = suite_attributes(
            suite, OP_SLICE, &stored,
            SUITE_ATTRIBUTES(slice, .ranges = SUITE_LIST(1, OP_SLICE_NONE, 2, OP_SLICE_NONE, OP_SLICE_NONE, 2)));
        suite_free(suite, &stored);
        linear_once(suite, &x, &weight, NULL, activation);
    }
}

static void case_linear(struct suite *suite, const struct op_case *row) {
    for (enum dtype a = DTYPE_BOOL; a < DTYPE_COUNT; a++) {
        for (enum dtype b = DTYPE_BOOL; b < DTYPE_COUNT; b++) {
            enum dtype both = linear_dtype(a, b);
            for (int i = 0; op_case_takes(row, both) && i < SUITE_REPEAT(a == b ? 40 : 3); i++)
                linear_random(suite, a, b, linear_bias(suite, row, a, both));
        }
        if (!op_case_takes(row, a))
            continue;
        linear_turned(suite, a, 17, 33, 9);
        for (enum op_activation activation = 0;
             activation < OP_ACTIVATION_COUNT && value_is_float(a) && !dtype_is_f8(a); activation++)
            for (int i = 0; i < SUITE_REPEAT(6); i++)
                linear_special(suite, a, activation);
    }
    linear_turned(suite, DTYPE_F32, SUITE_REPEAT(150), 131, 520);
    linear_turned(suite, DTYPE_BF16, 40, SUITE_REPEAT(500), 530);
    linear_turned(suite, DTYPE_I8, 300, 20, 30);
    linear_turned(suite, DTYPE_I8, 60, 48, 32);
}

const struct op_case op_case_linear = {case_linear, OP_LINEAR, FILL_ORDINARY};
