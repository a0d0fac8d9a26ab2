/* Attention: kernels see one batch axis and one axis of heads, and a mask that is not spread out. */
#include <string.h>

#include "engine/program/bind_dense.h"

/* Makes one axis of all before the heads, which are before the last `own` axes; axes that are missing have extent 1. */
static void shape_fold(int rank, const int64_t *shape, int own, int64_t folded[4]) {
    int first = rank - own;
    folded[0] = 1;
    for (int i = 0; i + 1 < first; i++)
        folded[0] *= shape[i];
    folded[1] = first > 0 ? shape[first - 1] : 1;
    memcpy(folded + 2, shape + first, (size_t)own * sizeof *shape);
}

static void view_fold(struct view *view, int own) {
    int64_t folded[4];
    shape_fold(view->rank, view->shape, own, folded);
    view->rank = 2 + own;
    memcpy(view->shape, folded, (size_t)view->rank * sizeof *folded);
    layout_contiguous(view->rank, view->shape, view->strides);
}

/* The mask, broadcast to the scores' shape; false: only a copy has strides in the folded shape. */
static bool mask_fold(struct view *mask) {
    int64_t folded[4], strides[4];
    shape_fold(mask->rank, mask->shape, 2, folded);
    if (!layout_reshape(mask->rank, mask->shape, mask->strides, 4, folded, strides))
        return false;
    mask->rank = 4;
    memcpy(mask->shape, folded, sizeof folded);
    memcpy(mask->strides, strides, sizeof strides);
    return true;
}

static void attention_merge(struct dense *dense) {
    bool back = dense->step->request->opcode == OP_ATTENTION_GRAD;
    unsigned plain = back ? 6 : 3;
    for (unsigned i = 0; i < plain; i++)
        view_fold(&dense->in[i], back && i == 5 ? 1 : 2);
    if (dense->n_inputs > plain && !(dense->strided >> plain & 1))
        view_fold(&dense->in[plain], 2);
    for (unsigned i = 0; i < dense->n_outputs; i++)
        view_fold(&dense->out[i], !back && i == 1 ? 1 : 2);
}

int bind_attention(struct step *step) {
    struct dense dense;
    bool back = step->request->opcode == OP_ATTENTION_GRAD;
    unsigned plain = back ? 6 : 3;
    dense_begin(&dense, step);
    const struct view *q = &dense.in[back], *k = &dense.in[1 + back], *v = &dense.in[2 + back];
    int last = q->rank - 1;
    double n = (double)q->shape[last - 1], m = (double)k->shape[last - 1];
    double batches = n > 0 ? (double)view_elements(q) / (n * (double)q->shape[last]) : 0;
    double depth = (double)(q->shape[last] + v->shape[last]) * (back ? 2.5 : 1);
    enum dtype dtype = step->output->type.dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    if (dense.n_inputs > plain) {
        struct view *mask = &dense.in[plain];
        int64_t scores[SHAPE_RANK_MAX];
        memcpy(scores, q->shape, sizeof scores);
        scores[last] = k->shape[last - 1];
        view_broadcast(mask, q->rank, scores);
        dense.strided = mask_fold(mask) ? 1u << plain : 0;
    }
    dense.merge = attention_merge;
    return dense_push(&dense, cost_product(&step->session->order->cost, dtype, false, batches, n, m, depth));
}
