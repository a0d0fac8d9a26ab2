/* Launches whose operands are vectors, or whole tensors as they are: elements that meet random numbers, searches, elements in other places, and
 * results that are filled up to a number. */
#include <string.h>

#include "engine/program/program_impl.h"

/* Writes one value everywhere: an operation's result if an input is empty, because nothing empty is launched. */
static int bind_fill(struct step *step, struct view *out, struct op_scalar value) {
    struct op_packed packed;
    struct plan plan = bind_plan(step, out, NULL, 0);
    full_attributes_write(&(struct full_attributes){.dtype = out->dtype, .value = value}, &packed);
    plan.opcode = OP_FULL;
    plan.attributes = (struct op_attributes){packed.ints, packed.floats, packed.n_ints, packed.n_floats};
    plan.weight = plan_weight(&step->session->order->cost, out, NULL) * 2;
    view_merge((struct view *const[]){out}, 1);
    return plan_push(step->stream, &plan, step->fault);
}

int bind_draw(struct step *step) {
    struct view out, in;
    view_init(&in, step->inputs[0]);
    int code = view_make_contiguous(&step->session->ledger, step->stream, &in, in.dtype, step->fault);
    if (code == STATUS_OK) {
        view_init(&out, step->output);
        view_merge((struct view *const[]){&out, &in}, 2);
        struct plan plan = bind_plan(step, &out, &in, 1);
        plan.attributes = step->request->attributes;
        plan.weight = plan_weight(&step->session->order->cost, &out, &in) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    view_finish(&in);
    return code;
}

int bind_search(struct step *step) {
    struct view out, views[2];
    unsigned made = 0;
    int code = STATUS_OK;
    view_init(&out, step->output);
    for (; made < 2 && code == STATUS_OK; made++) {
        view_init(&views[made], step->inputs[made]);
        enum dtype dtype = op_operand_dtype(step->request->opcode, step->types, made, &step->output->type);
        bool reads = made == 1 && bind_converts(step, views[1].dtype, dtype); /* values once each; the others often */
        code = view_make_contiguous(&step->session->ledger, step->stream, &views[made], reads ? views[1].dtype : dtype,
                                    step->fault);
        views[made].as = dtype;
    }
    if (code == STATUS_OK && view_elements(&views[0]) == 0) {
        code = bind_fill(step, &out, (struct op_scalar){0, 0});
    } else if (code == STATUS_OK) {
        view_merge((struct view *const[]){&out, &views[1]}, 2);
        struct plan plan = bind_plan(step, &out, views, 2);
        plan.attributes = step->request->attributes;
        plan.weight = plan_weight(&step->session->order->cost, &out, &views[1]) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    bind_finish_views(views, made);
    return code;
}

int bind_place(struct step *step) {
    struct view out, x;
    view_init(&out, step->output);
    view_init(&x, step->inputs[0]);
    if (view_elements(&x) == 0) { /* a border around nothing */
        struct pad_attributes given;
        pad_attributes_read(&step->request->attributes, &given);
        return bind_fill(step, &out, given.value);
    }
    struct plan plan = bind_plan(step, &out, &x, 1);
    plan.attributes = step->request->attributes;
    plan.weight = plan_weight(&step->session->order->cost, &out, NULL) * step->info->passes;
    return plan_push(step->stream, &plan, step->fault);
}

/* ---- results that are filled up to a number ---- */

/* An input as the kernel wants it: contiguous, and, but for nonzero, a vector. */
static int compact_input(struct step *step, unsigned i, const struct tensor_type *both, struct view *view) {
    view_init(view, step->inputs[i]);
    enum dtype dtype = op_operand_dtype(step->request->opcode, step->types, i, &step->output->type);
    int code = STATUS_OK;
    if (step->info->index_inputs >> i & 1) {
        code = bind_indices(step, view);
        dtype = view->dtype;
    }
    if (step->request->opcode == OP_MASKED_SELECT)
        view_broadcast(view, both->rank, both->shape);
    if (code == STATUS_OK)
        code = view_make_contiguous(&step->session->ledger, step->stream, view, dtype, step->fault);
    if (step->info->index_inputs >> i & 1)
        view->as = DTYPE_I64;
    if (code == STATUS_OK && step->request->opcode != OP_NONZERO)
        view_merge((struct view *const[]){view}, 1);
    return code;
}

int bind_compact(struct step *step) {
    struct view out[PLAN_OUTPUTS_MAX], views[2];
    unsigned made = 0, n_inputs = step->request->n_inputs, n_outputs = step->n_outputs;
    int code = STATUS_OK;
    for (unsigned i = 0; i < n_outputs; i++)
        view_init(&out[i], step->outputs[i]);
    if (step->facts.elements == 0)
        return bind_fill(step, &out[n_outputs - 1], (struct op_scalar){0, 0});
    struct tensor_type both = *step->types[0];
    if (step->request->opcode == OP_MASKED_SELECT)
        shape_broadcast(&both, step->types[0], step->types[1], NULL);
    for (; made < n_inputs && code == STATUS_OK; made++)
        code = compact_input(step, made, &both, &views[made]);
    if (code == STATUS_OK) {
        struct plan plan = bind_plan(step, &out[0], views, n_inputs);
        plan.further = n_outputs - 1;
        for (unsigned i = 1; i < n_outputs; i++)
            plan.outputs[i - 1] = &out[i];
        plan.weight = plan_weight(&step->session->order->cost, &out[0], &views[0]) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    bind_finish_views(views, made);
    return code;
}

int bind_count(struct step *step) {
    struct view out, x;
    view_init(&out, step->output);
    view_init(&x, step->inputs[0]);
    if (view_elements(&x) == 0)
        return bind_fill(step, &out, (struct op_scalar){0, 0});
    int code = view_make_contiguous(&step->session->ledger, step->stream, &x, x.dtype, step->fault);
    if (code == STATUS_OK) {
        view_merge((struct view *const[]){&x}, 1);
        struct plan plan = bind_plan(step, &out, &x, 1);
        plan.attributes = step->request->attributes;
        plan.weight = plan_weight(&step->session->order->cost, &out, &x) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    view_finish(&x);
    return code;
}
