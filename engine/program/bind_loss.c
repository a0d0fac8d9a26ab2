/* Losses: of classes with their operands as they are, of elements with the weights in x's shape. */
#include "engine/program/bind_dense.h"

int bind_loss(struct step *step) {
    struct dense dense;
    dense_begin(&dense, step);
    return dense_push_whole(&dense);
}

int bind_element_loss(struct step *step) {
    struct dense dense;
    dense_begin(&dense, step);
    bool back =
        step->request->opcode == OP_BCE_WITH_LOGITS_GRAD || step->request->opcode == OP_BCE_WITH_LOGITS_TARGET_GRAD;
    unsigned weights = back || step->request->opcode == OP_BCE_WITH_LOGITS ? 2u + back : dense.n_inputs;
    for (unsigned i = weights; i < dense.n_inputs; i++)
        view_broadcast(&dense.in[i], dense.in[back].rank, dense.in[back].shape);
    return dense_push_whole(&dense);
}
