/* Pooling: kernels see channels on axis 1. */
#include "engine/program/bind_dense.h"
#include "proto/ops/pooling.h"

int bind_pooling(struct step *step) {
    struct dense dense;
    struct pooling pooling;
    dense_begin(&dense, step);
    const struct view *x = &dense.in[0];
    pooling_make(&pooling, step->request->opcode, &step->request->attributes, x->rank, x->shape, x->shape, false);
    for (unsigned i = 0; i < dense.n_inputs && pooling.channels_last; i++)
        dense_move_axis(&dense.in[i], x->rank - 1, 1);
    for (unsigned i = 0; i < dense.n_outputs && pooling.channels_last; i++)
        dense_move_axis(&dense.out[i], x->rank - 1, 1);
    return dense_push(&dense, plan_weight(&step->session->order->cost, &dense.out[0], x) * step->info->passes);
}
