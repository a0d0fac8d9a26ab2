/* Decompositions of matrices and linear equations: all operands become contiguous batches of matrices. */
#include <string.h>

#include "engine/program/program_impl.h"

/* A contiguous operand as [batch, rows, columns]; `axes` of its own are a matrix (2), a vector (1), or a number (0). */
static void view_matrices(struct view *view, int axes) {
    int64_t shape[3] = {1, 1, 1};
    for (int i = 0; i < view->rank - axes; i++)
        shape[0] *= view->shape[i];
    for (int i = 0; i < axes; i++)
        shape[1 + i] = view->shape[view->rank - axes + i];
    view->rank = 3;
    memcpy(view->shape, shape, sizeof shape);
    layout_contiguous(3, view->shape, view->strides);
}

/* Broadcasts the batches of an operand, before its last `axes`. */
static void view_broadcast_batches(struct view *view, int axes, int rank, const int64_t *batch) {
    int64_t shape[SHAPE_RANK_MAX];
    memcpy(shape, batch, (size_t)rank * sizeof *shape);
    memcpy(shape + rank, view->shape + view->rank - axes, (size_t)axes * sizeof *shape);
    view_broadcast(view, rank + axes, shape);
}

/* How many of an operand's axes belong to a matrix. */
static int axes_of(const struct step *step, unsigned input) {
    return input == 1 && step->inputs[1]->type.rank == 1 ? 1 : 2;
}

static int decompose_input(struct step *step, unsigned i, struct view *view) {
    const struct tensor_type *out = &step->output->type;
    int axes = axes_of(step, i);
    view_init(view, step->inputs[i]);
    if (step->request->n_inputs == 2) { /* the result has the equations' batches before its own axes */
        int own = axes_of(step, 1);
        view_broadcast_batches(view, axes, out->rank - own, out->shape);
    }
    enum dtype dtype = op_operand_dtype(step->request->opcode, step->types, i, out);
    int code = view_make_contiguous(&step->session->ledger, step->stream, view, dtype, step->fault);
    view_matrices(view, axes);
    return code;
}

static int output_axes(const struct step *step, unsigned output) {
    switch (step->request->opcode) {
    case OP_DET:
    case OP_SLOGDET:
        return 0;
    case OP_EIGVALSH:
    case OP_SVDVALS:
        return 1;
    case OP_EIGH:
        return output == 0 ? 1 : 2;
    case OP_SVD:
        return output == 1 ? 1 : 2;
    default:
        return step->request->n_inputs == 2 ? axes_of(step, 1) : 2;
    }
}

int bind_decompose(struct step *step) {
    struct view inputs[2] = {0}, outputs[PLAN_OUTPUTS_MAX];
    unsigned made = 0;
    int code = STATUS_OK;
    for (; made < step->request->n_inputs && code == STATUS_OK; made++)
        code = decompose_input(step, made, &inputs[made]);
    if (code == STATUS_OK) {
        for (unsigned i = 0; i < step->n_outputs; i++) {
            view_init(&outputs[i], step->outputs[i]);
            view_matrices(&outputs[i], output_axes(step, i));
        }
        struct plan plan = bind_plan(step, &outputs[0], inputs, made);
        plan.further = step->n_outputs - 1;
        for (unsigned i = 0; i < plan.further; i++)
            plan.outputs[i] = &outputs[i + 1];
        plan.attributes = step->request->attributes;
        plan.report = step->guard->report;
        const int64_t *a = inputs[0].shape;
        double m = (double)a[1], n = (double)a[2], k = m < n ? m : n;
        plan.weight = cost_product(&step->session->order->cost, inputs[0].dtype, false, (double)a[0], m, n,
                                   k * step->info->flop / 2);
        code = plan_push(step->stream, &plan, step->fault);
    }
    bind_finish_views(inputs, made);
    return code;
}
