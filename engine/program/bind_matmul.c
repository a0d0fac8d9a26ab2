/* Products of matrices: operands become batches of matrices, or more rows where b is the same for them. */
#include <string.h>

#include "engine/program/program_impl.h"

/* A vector becomes a row on the left and a column on the right. */
static void matmul_promote(struct view *view, bool left) {
    if (view->rank != 1)
        return;
    int at = left ? 0 : 1;
    view->shape[1 - at] = view->shape[0];
    view->strides[1 - at] = view->strides[0];
    view->shape[at] = 1;
    view->strides[at] = 1;
    view->rank = 2;
}

/* Broadcasts the batch axes of an operand against the output's. */
static void matmul_batch(struct view *view, int batch_rank, const int64_t *batch_shape) {
    int own = view->rank - 2;
    struct view old = *view;
    layout_broadcast(own, old.shape, old.strides, batch_rank, batch_shape, view->strides);
    memcpy(view->shape, batch_shape, (size_t)batch_rank * sizeof *batch_shape);
    for (int i = 0; i < 2; i++) {
        view->shape[batch_rank + i] = old.shape[own + i];
        view->strides[batch_rank + i] = old.strides[own + i];
    }
    view->rank = batch_rank + 2;
}

static void matmul_merge(struct view *out, struct view *a, struct view *b, int batch_rank) {
    struct view *views[3] = {out, a, b};
    struct layout_space space = {.rank = batch_rank, .operands = 3};
    memcpy(space.shape, out->shape, sizeof space.shape);
    for (int k = 0; k < 3; k++)
        memcpy(space.strides[k], views[k]->strides, sizeof space.strides[k]);
    int merged = layout_merge(&space, 0, batch_rank);
    for (int k = 0; k < 3; k++) {
        struct view *view = views[k];
        for (int i = 0; i < 2; i++) {
            view->shape[merged + i] = view->shape[batch_rank + i];
            view->strides[merged + i] = view->strides[batch_rank + i];
        }
        memcpy(view->shape, space.shape, (size_t)merged * sizeof *space.shape);
        memcpy(view->strides, space.strides[k], (size_t)merged * sizeof *space.shape);
        view->rank = merged + 2;
    }
}

static void view_drop_axis(struct view *view, int axis) {
    view->rank--;
    for (int i = axis; i < view->rank; i++) {
        view->shape[i] = view->shape[i + 1];
        view->strides[i] = view->strides[i + 1];
    }
}

/* Makes batches that share b, and whose rows of a follow one another, just more rows: one large product is faster than many
 * small ones. */
static void matmul_fold(struct view *out, struct view *a, struct view *b) {
    for (int last = a->rank - 3; last >= 0; last--) {
        int64_t rows = a->shape[last + 1];
        if (b->strides[last] != 0 || a->strides[last] == 0 ||
            (rows != 1 && a->strides[last] != rows * a->strides[last + 1]))
            return;
        if (rows == 1) {
            a->strides[last + 1] = a->strides[last];
            out->strides[last + 1] = out->strides[last];
        }
        a->shape[last + 1] *= a->shape[last];
        out->shape[last + 1] = a->shape[last + 1];
        view_drop_axis(out, last);
        view_drop_axis(a, last);
        view_drop_axis(b, last);
    }
}

static void matmul_shape(const struct step *step, struct view *out, struct view *a, struct view *b) {
    bool row = a->rank == 1, column = b->rank == 1;
    matmul_promote(a, true);
    matmul_promote(b, false);
    view_init(out, step->output);
    int batch_rank = out->rank - !row - !column;
    out->shape[batch_rank] = a->shape[a->rank - 2];
    out->shape[batch_rank + 1] = b->shape[b->rank - 1];
    out->rank = batch_rank + 2;
    layout_contiguous(out->rank, out->shape, out->strides);
    matmul_batch(a, batch_rank, out->shape);
    matmul_batch(b, batch_rank, out->shape);
    matmul_merge(out, a, b, batch_rank);
    matmul_fold(out, a, b);
}

/* How many batches there are beside the longest axis of batches. */
static int64_t batches_apart(const struct view *out) {
    int64_t longest = 1, all = 1;
    for (int i = 0; i + 2 < out->rank; i++) {
        longest = out->shape[i] > longest ? out->shape[i] : longest;
        all *= out->shape[i];
    }
    return all / longest;
}

/* The same, of operands that are copied where their batches lie too far apart for the device's kernel. */
static int matmul_present(struct step *step, struct view *out, struct view *views) {
    const struct op_kernel *kernel = step->session->order->device->vtable->operations[step->request->opcode];
    struct view given[2] = {views[0], views[1]};
    int code = STATUS_OK;
    matmul_shape(step, out, &views[0], &views[1]);
    if (!kernel->batches_apart || batches_apart(out) <= kernel->batches_apart)
        return STATUS_OK;
    for (int i = 0; i < 2 && code == STATUS_OK; i++) {
        views[i] = given[i];
        code = view_make_contiguous(&step->session->ledger, step->stream, &views[i], views[i].dtype, step->fault);
    }
    if (code == STATUS_OK)
        matmul_shape(step, out, &views[0], &views[1]);
    return code;
}

/* The weight (n, k) as the matrix (k, n) that x is multiplied by, and the bias as n numbers one after another. */
static int linear_present(struct step *step, struct view *views) {
    struct view *weight = &views[1], *bias = &views[2];
    if (weight->rank == 2) {
        struct view old = *weight;
        for (int i = 0; i < 2; i++) {
            weight->shape[i] = old.shape[1 - i];
            weight->strides[i] = old.strides[1 - i];
        }
    }
    if (step->request->n_inputs < 3)
        return STATUS_OK;
    if (bias->rank == 0) {
        bias->rank = 1;
        bias->shape[0] = bias->strides[0] = 1;
    }
    return view_make_contiguous(&step->session->ledger, step->stream, bias, bias->dtype, step->fault);
}

/* Where kernels convert what they read, all but the few elements of a bias, and an operand beside which the other is much larger: a kernel
 * that converts one packs copies of both, and the larger could be read as it is. Elsewhere the library that multiplies wants one dtype, and
 * whole operands are converted. */
static int matmul_convert(struct step *step, struct view *views, unsigned n_inputs) {
    enum { MUCH = 8 };
    int code = STATUS_OK;
    for (unsigned i = 0; i < n_inputs && code == STATUS_OK; i++) {
        const struct view *other = &views[i == 0];
        bool small = other->as == other->dtype && view_elements(&views[i]) <= view_elements(other) / MUCH;
        if (views[i].as != views[i].dtype && (i == 2 || small))
            code = view_cast(&step->session->ledger, step->stream, &views[i], views[i].as, step->fault);
    }
    return code;
}

int bind_matmul(struct step *step) {
    struct view out, views[3] = {0};
    unsigned made = 0, n_inputs = step->request->n_inputs;
    bool linear = step->request->opcode == OP_LINEAR;
    int code = STATUS_OK;
    for (; made < n_inputs && code == STATUS_OK; made++)
        code = bind_input(step, made, &views[made]);
    if (code == STATUS_OK)
        code = matmul_convert(step, views, n_inputs);
    if (code == STATUS_OK && linear)
        code = linear_present(step, views);
    if (code == STATUS_OK)
        code = matmul_present(step, &out, views);
    if (code == STATUS_OK) {
        struct plan plan = bind_plan(step, &out, views, n_inputs);
        int64_t depth = views[0].shape[views[0].rank - 1];
        double rows = (double)out.shape[out.rank - 2], columns = (double)out.shape[out.rank - 1];
        double batches = (double)view_elements(&out) / (rows * columns);
        plan.tf32 = step->session->limits.allow_tf32;
        plan.attributes = step->request->attributes;
        plan.weight =
            cost_product(&step->session->order->cost, views[0].as, plan.tf32, batches, rows, columns, (double)depth);
        code = plan_push(step->stream, &plan, step->fault);
    }
    bind_finish_views(views, made);
    return code;
}
