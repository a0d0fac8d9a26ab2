/* Normalisations of random shapes, with and without weight and bias. */
#include <math.h>
#include <string.h>

#include "tests/device/cases.h"

enum { INPUTS_MOST = 5, OUTPUTS_MOST = 3, GROUPS_MOST = 64 };

/* What an operation takes of an x of some shape: attributes, the shape of weight and bias, and how many results it has. */
struct setting {
    struct op_packed attributes;
    int64_t factors[VALUES_RANK_MAX];
    int factors_rank;
    unsigned outputs;
    bool gradient, statistics;
    unsigned factors_most; /* weight, and bias */
};

static struct setting setting_of(struct suite *suite, unsigned opcode, int rank, const int64_t *shape, int exponent) {
    struct setting s = {.outputs = 3, .factors_rank = 1, .factors_most = 2};
    int64_t axis = opcode == OP_BATCH_NORM && rank > 2 ? suite_below(suite, rank) : 1,
            axes = 1 + suite_below(suite, shape[0] ? rank : rank - 1); /* an axis that is normalised has elements */
    double epsilon = ldexp(suite_chance(suite, 50) ? 1e-5 : 0.25, exponent < 0 ? 2 * exponent : 0);
    s.gradient = opcode == OP_BATCH_NORM_GRAD || opcode == OP_LAYER_NORM_GRAD || opcode == OP_GROUP_NORM_GRAD ||
                 opcode == OP_RMS_NORM_GRAD;
    s.statistics = opcode == OP_BATCH_NORM || opcode == OP_BATCH_NORM_INFERENCE;
    s.factors[0] = shape[1];
    if (opcode == OP_BATCH_NORM) {
        s.factors[0] = shape[axis];
        s.attributes = SUITE_ATTRIBUTES(batch_norm, .axis = suite_chance(suite, 30) ? axis - rank : axis,
                                        .epsilon = epsilon, .momentum = 0.125);
    } else if (opcode == OP_BATCH_NORM_INFERENCE || opcode == OP_BATCH_NORM_GRAD) {
        s.attributes = SUITE_ATTRIBUTES(channel_norm, .axis = 1, .epsilon = epsilon);
    } else if (opcode == OP_GROUP_NORM || opcode == OP_GROUP_NORM_GRAD) {
        /* A GPU has a block of threads for each group of each image: tens of thousands of blocks show no more than thousands. */
        int64_t groups = 1 + suite_below(suite, shape[1] < GROUPS_MOST ? shape[1] : GROUPS_MOST);
        while (shape[1] % groups)
            groups--;
        s.attributes = SUITE_ATTRIBUTES(group_norm, .groups = groups, .epsilon = epsilon);
    } else {
        s.factors_rank = (int)axes;
        memcpy(s.factors, shape + rank - axes, (size_t)axes * sizeof *shape);
        s.attributes = SUITE_ATTRIBUTES(row_norm, .axes = axes, .epsilon = epsilon);
    }
    if (!s.gradient && opcode != OP_BATCH_NORM)
        s.outputs = 1;
    if (opcode == OP_RMS_NORM || s.gradient)
        s.factors_most = 1;
    if (opcode == OP_RMS_NORM_GRAD)
        s.outputs = 2;
    return s;
}

static struct sample variances(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape) {
    struct values *values = values_create(dtype, rank, shape);
    suite_fill(suite, values, FILL_NEAR_ONE);
    for (int64_t k = 0; k < values->count; k++)
        values->f[k] = fabsl(values->f[k]);
    return suite_upload(suite, values);
}

/* Ordinary numbers times 2^exponent. */
static struct sample scaled(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, int exponent) {
    if (!exponent)
        return suite_input(suite, dtype, rank, shape, FILL_ORDINARY);
    struct values *values = values_create(dtype, rank, shape);
    suite_fill(suite, values, FILL_ORDINARY);
    for (int64_t k = 0; k < values->count; k++)
        values->f[k] = ldexpl(values->f[k], exponent);
    return suite_upload(suite, values);
}

static void norm_scaled(struct suite *suite, const struct op_case *row, enum dtype dtype, int rank,
                        const int64_t *shape, int exponent) {
    struct setting s = setting_of(suite, row->opcode, rank, shape, exponent);
    struct sample in[INPUTS_MOST], out[OUTPUTS_MOST];
    const struct sample *inputs[INPUTS_MOST];
    unsigned n = 0, factors = (unsigned)suite_below(suite, s.factors_most + 1);
    if (s.gradient)
        in[n++] = suite_input(suite, dtype, rank, shape, FILL_ORDINARY);
    in[n++] = scaled(suite, dtype, rank, shape, exponent);
    if (s.statistics) {
        in[n++] = suite_input(suite, dtype, s.factors_rank, s.factors, FILL_ORDINARY);
        in[n++] = variances(suite, dtype, s.factors_rank, s.factors);
    }
    for (unsigned i = 0; i < factors; i++)
        in[n++] = suite_input(suite, suite_chance(suite, 80) ? dtype : op_case_partner(suite, row, dtype),
                              s.factors_rank, s.factors, FILL_ORDINARY);
    for (unsigned i = 0; i < n; i++)
        inputs[i] = &in[i];
    suite_run_several(
        suite, &(struct suite_call){.opcode = row->opcode, .n_inputs = n, .inputs = inputs, .attributes = s.attributes},
        out, s.outputs);
    for (unsigned i = 0; i < s.outputs; i++)
        case_settle(suite, &out[i]);
    for (unsigned i = 0; i < n; i++)
        suite_free(suite, &in[i]);
}

static void norm_once(struct suite *suite, const struct op_case *row, enum dtype dtype, int rank,
                      const int64_t *shape) {
    norm_scaled(suite, row, dtype, rank, shape, 0);
}

static void case_normalisation(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        for (int i = 0; op_case_takes(row, dtype) && i < SUITE_REPEAT(30); i++) {
            int64_t shape[4] = {2 + suite_below(suite, 4), 2 + suite_below(suite, 7), 1 + suite_below(suite, 6),
                                1 + suite_below(suite, 9)};
            norm_once(suite, row, dtype, 2 + (int)suite_below(suite, 3), shape);
        }
    }
    norm_once(suite, row, DTYPE_F32, 2, (int64_t[]){120, 700});
    norm_once(suite, row, DTYPE_F32, 4, (int64_t[]){9, 6, 33, 30});
    norm_once(suite, row, DTYPE_F64, 3, (int64_t[]){3, 4, 20000});
    /* halves, which are converted some at a time */
    norm_once(suite, row, DTYPE_F16, 2, (int64_t[]){9, 2500});
    norm_once(suite, row, DTYPE_BF16, 4, (int64_t[]){3, 4, 33, 60});
    norm_once(suite, row, DTYPE_BF16, 2, (int64_t[]){1500, 3});
    norm_once(suite, row, DTYPE_F16, 2, (int64_t[]){2, 17001});
    /* squares that f32 has no range for, and sums of them */
    norm_scaled(suite, row, DTYPE_F32, 2, (int64_t[]){12, 700}, 63);
    norm_scaled(suite, row, DTYPE_F32, 2, (int64_t[]){12, 700}, -75);
    norm_scaled(suite, row, DTYPE_F32, 4, (int64_t[]){3, 6, 33, 30}, 63);
    norm_scaled(suite, row, DTYPE_F32, 4, (int64_t[]){3, 6, 33, 30}, -75);
    if (row->opcode == OP_LAYER_NORM_GRAD || row->opcode == OP_GROUP_NORM_GRAD) /* sums of nothing are 0 */
        norm_once(suite, row, DTYPE_F32, 2, (int64_t[]){0, 4});
}

#define CASE(name, NAME) const struct op_case op_case_##name = {case_normalisation, OP_##NAME, FILL_ORDINARY};
CASE(batch_norm, BATCH_NORM)
CASE(batch_norm_inference, BATCH_NORM_INFERENCE)
CASE(batch_norm_grad, BATCH_NORM_GRAD)
CASE(layer_norm, LAYER_NORM)
CASE(layer_norm_grad, LAYER_NORM_GRAD)
CASE(group_norm, GROUP_NORM)
CASE(group_norm_grad, GROUP_NORM_GRAD)
CASE(rms_norm, RMS_NORM)
CASE(rms_norm_grad, RMS_NORM_GRAD)
