/* Positions drawn by weights: one launch, or without replacement a second one that puts random keys in order. */
#include <string.h>

#include "engine/program/program_impl.h"

/* A contiguous view as (rows, last axis, 1). */
static void view_rows(struct view *view, int rank) {
    int64_t last = view->shape[view->rank - 1], rows = 1;
    for (int i = 0; i + 1 < view->rank; i++)
        rows *= view->shape[i];
    view->rank = rank;
    view->shape[0] = rows;
    view->shape[1] = last;
    view->shape[2] = 1;
    layout_contiguous(rank, view->shape, view->strides);
}

/* A temporary of f64 in the shape of another view. */
static int view_temporary(struct step *step, struct view *view, const struct view *like) {
    struct ledger *ledger = &step->session->ledger;
    uint64_t bytes;
    *view = (struct view){.dtype = DTYPE_F64, .as = DTYPE_F64, .rank = like->rank, .temporary = true};
    memcpy(view->shape, like->shape, sizeof view->shape);
    layout_contiguous(view->rank, view->shape, view->strides);
    if (__builtin_mul_overflow((uint64_t)view_elements(view), sizeof(double), &bytes))
        return fault_set(step->fault, STATUS_SHAPE, "the keys of the weights are too large");
    int code = ledger_storage(ledger, bytes, step->stream, &view->storage, step->fault);
    if (code == STATUS_OK)
        code = plan_wait_memory(step->stream, view->storage, step->fault);
    view->data = view->storage ? view->storage->data : NULL;
    return code;
}

static int multinomial_launch(struct step *step, struct view *out, struct view *weights) {
    struct plan plan = bind_plan(step, out, weights, 1);
    plan.attributes = step->request->attributes;
    plan.weight = plan_weight(&step->session->order->cost, out, weights) * step->info->passes;
    return plan_push(step->stream, &plan, step->fault);
}

/* The positions of the greatest keys. */
static int multinomial_order(struct step *step, struct view *out, struct view *keys, struct view *best) {
    struct topk_attributes attributes = {.k = out->shape[1], .axis = 1, .largest = true};
    struct op_packed packed;
    topk_attributes_write(&attributes, &packed);
    view_rows(out, 3);
    view_rows(keys, 3);
    view_rows(best, 3);
    struct plan plan = bind_plan(step, best, keys, 1);
    plan.opcode = OP_TOPK;
    plan.further = 1;
    plan.outputs[0] = out;
    plan.attributes = (struct op_attributes){packed.ints, packed.floats, packed.n_ints, packed.n_floats};
    plan.weight = plan_weight(&step->session->order->cost, out, keys) * step->info->passes;
    return plan_push(step->stream, &plan, step->fault);
}

static int multinomial_race(struct step *step, struct view *out, struct view *weights) {
    struct view keys, best = {.temporary = false};
    int code = view_temporary(step, &keys, weights);
    if (code == STATUS_OK)
        code = multinomial_launch(step, &keys, weights);
    if (code == STATUS_OK)
        code = view_temporary(step, &best, out);
    if (code == STATUS_OK)
        code = multinomial_order(step, out, &keys, &best);
    view_finish(&keys);
    view_finish(&best);
    return code;
}

int bind_multinomial(struct step *step) {
    struct view out, weights;
    struct multinomial_attributes attributes;
    multinomial_attributes_read(&step->request->attributes, &attributes);
    view_init(&weights, step->inputs[0]);
    int code = view_make_contiguous(&step->session->ledger, step->stream, &weights, weights.dtype, step->fault);
    if (code == STATUS_OK) {
        view_init(&out, step->output);
        view_rows(&out, 2);
        view_rows(&weights, 2);
        code =
            attributes.replacement ? multinomial_launch(step, &out, &weights) : multinomial_race(step, &out, &weights);
    }
    view_finish(&weights);
    return code;
}
