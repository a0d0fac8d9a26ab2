/* Recurrent layers: operands as they are, and an estimate by their products. */
#include "engine/program/bind_dense.h"

int bind_recurrent(struct step *step) {
    struct dense dense;
    dense_begin(&dense, step);
    unsigned opcode = step->request->opcode;
    bool back = opcode == OP_LSTM_GRAD || opcode == OP_GRU_GRAD;
    unsigned x = opcode == OP_LSTM_GRAD ? 3 : opcode == OP_GRU_GRAD ? 2 : 0;
    const struct view *in = &dense.in[x],
                      *weights = &dense.in[opcode == OP_LSTM || opcode == OP_LSTM_GRAD ? x + 3 : x + 2];
    double rows = (double)in->shape[0] * (double)in->shape[1], gates = (double)weights->shape[0];
    double depth = (double)(in->shape[2] + dense.in[x + 1].shape[1]) * (back ? 2 : 1);
    enum dtype dtype = step->output->type.dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    return dense_push(&dense, cost_product(&step->session->order->cost, dtype, step->session->limits.allow_tf32, 1,
                                           rows, gates, depth));
}
