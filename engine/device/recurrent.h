/* The geometry of a recurrent layer, and its operands by their roles. */
#pragma once

#include <string.h>

#include "engine/device/launch.h"

/* The numbers that are kept of a step's gates: those of an LSTM are i, f, g, o; those of a GRU r, z, n, and q, the state's part of n. */
enum { RECURRENT_KEPT = 4 };

struct recurrent {
    bool gru, back, reverse;
    int64_t n, batch, in, hidden, gates;
    const void *x, *h0, *c0, *w_ih, *w_hh, *b_ih, *b_hh; /* NULL: there is none */
    /* Forward they are written, backward read. */
    void *result, *kept, *cells, *h_n, *c_n;
    const void *grad_result, *grad_h_n, *grad_c_n;
    void *grad_x, *grad_h0, *grad_c0, *grad_w_ih, *grad_w_hh, *grad_b_ih,
        *grad_b_hh; /* of an LSTM the last one is NULL */
};

static inline struct recurrent recurrent_make(const struct launch *launch) {
    const struct operand *in = launch->inputs, *x, *h0;
    struct recurrent r;
    struct recurrent_attributes given;
    void *out[6] = {launch->output.data};
    for (unsigned i = 1; i <= launch->further && i < 6; i++)
        out[i] = launch_further(launch, i)->data;
    memset(&r, 0, sizeof r);
    recurrent_attributes_read(&launch->attributes, &given);
    r.reverse = given.reverse;
    r.gru = launch->opcode == OP_GRU || launch->opcode == OP_GRU_GRAD;
    r.back = launch->opcode == OP_LSTM_GRAD || launch->opcode == OP_GRU_GRAD;
    r.gates = r.gru ? 3 : 4;
    if (r.back) {
        r.grad_result = in[0].data;
        r.grad_h_n = in[1].data;
        in += 2;
        if (!r.gru)
            r.grad_c_n = (in++)->data;
    }
    x = in++;
    h0 = in++;
    r.x = x->data;
    r.h0 = h0->data;
    if (!r.gru)
        r.c0 = (in++)->data;
    r.w_ih = (in++)->data;
    r.w_hh = (in++)->data;
    r.n = x->shape[0];
    r.batch = x->shape[1];
    r.in = x->shape[2];
    r.hidden = h0->shape[1];
    if (!r.back) {
        const bool biases = in + 1 < launch->inputs + launch->n_inputs;
        r.b_ih = biases ? in[0].data : NULL;
        r.b_hh = biases ? in[1].data : NULL;
        r.result = out[0];
        r.h_n = out[1];
        r.c_n = r.gru ? NULL : out[2];
        r.kept = out[r.gru ? 2 : 3];
        r.cells = r.gru ? NULL : out[4];
        return r;
    }
    r.result = in[0].data;
    r.kept = in[1].data;
    r.cells = r.gru ? NULL : in[2].data;
    r.grad_x = out[0];
    r.grad_h0 = out[1];
    r.grad_c0 = r.gru ? NULL : out[2];
    r.grad_w_ih = out[r.gru ? 2 : 3];
    r.grad_w_hh = out[r.gru ? 3 : 4];
    r.grad_b_ih = out[r.gru ? 4 : 5];
    r.grad_b_hh = r.gru ? out[5] : NULL;
    return r;
}

/* The place in the sequence of step number `step`, which counts in the order of computation. */
static inline int64_t recurrent_at(const struct recurrent *r, int64_t step) {
    return r->reverse ? r->n - 1 - step : step;
}
