/* Steps of optimisers, of several parameters at once, with and without memory that the results may take. */
#include <math.h>

#include "tests/device/cases.h"

enum { PARAMETERS_MOST = 4, LISTS_MOST = 4 };

static struct op_packed attributes_random(struct suite *suite, unsigned opcode, unsigned *lists) {
    double decay = suite_chance(suite, 50) ? 0 : 0.03125;
    bool moves = suite_chance(suite, 60);
    int64_t step = 1 + suite_below(suite, 20);
    *lists = 3;
    switch (opcode) {
    case OP_SGD:
        *lists = moves ? 3 : 2;
        return SUITE_ATTRIBUTES(sgd, .rate = 0.125, .momentum = moves ? 0.9 : 0, .weight_decay = decay,
                                .nesterov = suite_chance(suite, 50));
    case OP_ADAM:
        *lists = 4;
        return SUITE_ATTRIBUTES(adam, .step = step, .rate = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6,
                                .weight_decay = decay);
    case OP_ADAMW:
        *lists = 4;
        return SUITE_ATTRIBUTES(adamw, .step = step, .rate = 0.01, .beta1 = 0.875, .beta2 = 0.99, .epsilon = 1e-6,
                                .weight_decay = decay);
    case OP_RMSPROP:
        return SUITE_ATTRIBUTES(rmsprop, .rate = 0.01, .alpha = 0.99, .epsilon = 1e-6, .weight_decay = decay);
    case OP_ADAGRAD:
        return SUITE_ATTRIBUTES(adagrad, .rate = 0.01, .epsilon = 1e-6, .weight_decay = decay);
    default:
        *lists = 2;
        return SUITE_ATTRIBUTES(moving_average, .decay = 0.9375);
    }
}

/* The state of squares is not negative, nor near 0, where a rounding error of the gradient would be all that is left. */
static struct sample tensor_random(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, bool state) {
    if (!state)
        return suite_input(suite, dtype, rank, shape, FILL_ORDINARY);
    struct values *values = values_create(dtype, rank, shape);
    suite_fill(suite, values, FILL_NEAR_ONE);
    for (int64_t k = 0; k < values->count; k++)
        values->f[k] = fabsl(values->f[k]);
    return suite_upload(suite, values);
}

static void step_once(struct suite *suite, const struct op_case *row, unsigned n, int64_t elements) {
    struct sample in[PARAMETERS_MOST * LISTS_MOST], out[PARAMETERS_MOST * LISTS_MOST];
    const struct sample *inputs[PARAMETERS_MOST * LISTS_MOST];
    unsigned lists;
    struct suite_call call = {.opcode = row->opcode, .inputs = inputs};
    call.attributes = attributes_random(suite, row->opcode, &lists);
    call.n_inputs = n * lists;
    for (unsigned i = 0; i < n; i++) {
        int64_t shape[VALUES_RANK_MAX] = {elements};
        int rank = elements ? 1 : suite_shape(suite, 3, shape);
        enum dtype dtype = op_case_dtype(suite, row);
        for (unsigned list = 0; list < lists; list++) {
            in[list * n + i] = tensor_random(suite, dtype, rank, shape, list > 1);
            inputs[list * n + i] = &in[list * n + i];
        }
    }
    if (suite_chance(suite, 60))
        for (unsigned i = 0; i < call.n_inputs; i++)
            call.consume |= (uint16_t)((i / n != 1) << i);
    suite_run_several(suite, &call, out, n * (lists - 1));
    for (unsigned i = 0; i < n * (lists - 1); i++)
        case_settle(suite, &out[i]);
    for (unsigned i = 0; i < call.n_inputs; i++) {
        if (call.consume >> i & 1)
            suite_forget(&in[i]);
        else
            suite_free(suite, &in[i]);
    }
}

/* A tensor that is one parameter and the gradient of another: no result may take its memory before it has been read. */
static void step_shared(struct suite *suite, const struct op_case *row) {
    unsigned lists;
    struct suite_call call = {.opcode = row->opcode};
    do
        call.attributes = attributes_random(suite, row->opcode, &lists);
    while (lists > 3);
    struct sample in[6], out[4];
    const struct sample *inputs[6];
    for (unsigned i = 0; i < 2 * lists; i++) {
        in[i] = tensor_random(suite, DTYPE_F32, 1, (int64_t[]){300}, i > 3);
        inputs[i] = &in[i];
    }
    inputs[3] = &in[0]; /* the gradient of the second parameter */
    call.n_inputs = 2 * lists;
    call.inputs = inputs;
    call.consume = 1u | 1u << 3;
    suite_run_several(suite, &call, out, 2 * (lists - 1));
    for (unsigned i = 0; i < 2 * (lists - 1); i++)
        case_settle(suite, &out[i]);
    suite_forget(&in[0]);
    for (unsigned i = 1; i < 2 * lists; i++)
        suite_free(suite, &in[i]);
}

static void case_optimiser(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(60); i++)
        step_once(suite, row, 1 + (unsigned)suite_below(suite, PARAMETERS_MOST), 0);
    step_once(suite, row, 2, 70000);
    if (row->opcode != OP_ADAM && row->opcode != OP_ADAMW)
        step_shared(suite, row);
}

const struct op_case op_case_sgd = {case_optimiser, OP_SGD, FILL_ORDINARY};
const struct op_case op_case_adam = {case_optimiser, OP_ADAM, FILL_ORDINARY};
const struct op_case op_case_adamw = {case_optimiser, OP_ADAMW, FILL_ORDINARY};
const struct op_case op_case_rmsprop = {case_optimiser, OP_RMSPROP, FILL_ORDINARY};
const struct op_case op_case_adagrad = {case_optimiser, OP_ADAGRAD, FILL_ORDINARY};
const struct op_case op_case_moving_average = {case_optimiser, OP_MOVING_AVERAGE, FILL_ORDINARY};
