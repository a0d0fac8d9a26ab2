/* Recurrent layers. The gradient takes the results of the forward operation. */
#include <string.h>

#include "tests/device/cases.h"

enum { INPUTS_MOST = 11, OUTPUTS_MOST = 6 };

struct sizes {
    int64_t n, batch, in, hidden;
};

static struct sample small(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape) {
    return suite_input(suite, dtype, rank, shape, FILL_NEAR_ONE);
}

/* Weights are small, so that gates do not all come to an end of their range. */
static struct sample weights(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, int64_t width) {
    struct values *values = values_create(dtype, rank, shape);
    suite_fill(suite, values, FILL_NEAR_ONE);
    for (int64_t k = 0; k < values->count; k++)
        values->f[k] = value_round(dtype, values->f[k] / (long double)(width > 2 ? width : 2));
    return suite_upload(suite, values);
}

/* The inputs of the forward operation; returns their number. */
static unsigned inputs_make(struct suite *suite, bool gru, enum dtype dtype, const struct sizes *s, struct sample *in) {
    int64_t gates = (gru ? 3 : 4) * s->hidden;
    int64_t x[] = {s->n, s->batch, s->in}, state[] = {s->batch, s->hidden}, ih[] = {gates, s->in},
            hh[] = {gates, s->hidden};
    unsigned n = 0;
    in[n++] = small(suite, dtype, 3, x);
    in[n++] = small(suite, dtype, 2, state);
    if (!gru)
        in[n++] = small(suite, dtype, 2, state);
    in[n++] = weights(suite, dtype, 2, ih, s->in);
    in[n++] = weights(suite, dtype, 2, hh, s->hidden);
    for (int i = 0, biases = suite_chance(suite, 70) ? 2 : 0; i < biases; i++)
        in[n++] = weights(suite, dtype, 1, &gates, 4);
    return n;
}

static void recurrent_once(struct suite *suite, const struct op_case *row, enum dtype dtype, const struct sizes *s) {
    bool gru = row->opcode == OP_GRU || row->opcode == OP_GRU_GRAD;
    bool back = row->opcode == OP_LSTM_GRAD || row->opcode == OP_GRU_GRAD;
    int64_t steps[] = {s->n, s->batch, s->hidden};
    struct sample in[INPUTS_MOST], out[OUTPUTS_MOST], seeds[3], gradients[OUTPUTS_MOST];
    const struct sample *inputs[INPUTS_MOST];
    unsigned n = inputs_make(suite, gru, dtype, s, in), n_out = gru ? 3 : 5, n_seeds = gru ? 2 : 3, plain = gru ? 4 : 5,
             at = 0;
    for (unsigned i = 0; i < n; i++)
        inputs[i] = &in[i];
    struct suite_call call = {.opcode = gru ? OP_GRU : OP_LSTM, .n_inputs = n, .inputs = inputs};
    call.attributes = SUITE_ATTRIBUTES(recurrent, .reverse = suite_chance(suite, 50));
    suite_run_several(suite, &call, out, n_out);
    for (unsigned i = 0; i < n_out; i++)
        suite_adopt(suite, &out[i]);
    if (back) {
        for (unsigned i = 0; i < n_seeds; i++) {
            seeds[i] = suite_input(suite, dtype, i ? 2 : 3, i ? steps + 1 : steps, FILL_ORDINARY);
            inputs[at++] = &seeds[i];
        }
        for (unsigned i = 0; i < plain; i++)
            inputs[at++] = &in[i];
        inputs[at++] = &out[0];
        inputs[at++] = &out[gru ? 2 : 3];
        if (!gru)
            inputs[at++] = &out[4];
        call.opcode = row->opcode;
        call.n_inputs = at;
        suite_run_several(suite, &call, gradients, OUTPUTS_MOST);
        for (unsigned i = 0; i < OUTPUTS_MOST; i++)
            case_settle(suite, &gradients[i]);
        for (unsigned i = 0; i < n_seeds; i++)
            suite_free(suite, &seeds[i]);
    }
    for (unsigned i = 0; i < n; i++)
        suite_free(suite, &in[i]);
    for (unsigned i = 0; i < n_out; i++)
        suite_free(suite, &out[i]);
}

static void case_recurrent(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(60); i++) {
        struct sizes s = {suite_below(suite, 5), suite_below(suite, 5), 1 + suite_below(suite, 9),
                          1 + suite_below(suite, 9)};
        recurrent_once(suite, row, op_case_dtype(suite, row), &s);
    }
    /* Several strips and blocks of units, of images, and of what the gradients by the weights sum over. */
    static const struct sizes large[] = {{3, 70, 40, 48}, {20, 60, 5, 7}, {2, 3, 100, 290}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        recurrent_once(suite, row, i % 2 ? DTYPE_F64 : DTYPE_F32, &large[i]);
}

const struct op_case op_case_lstm = {case_recurrent, OP_LSTM, FILL_ORDINARY};
const struct op_case op_case_lstm_grad = {case_recurrent, OP_LSTM_GRAD, FILL_ORDINARY};
const struct op_case op_case_gru = {case_recurrent, OP_GRU, FILL_ORDINARY};
const struct op_case op_case_gru_grad = {case_recurrent, OP_GRU_GRAD, FILL_ORDINARY};
