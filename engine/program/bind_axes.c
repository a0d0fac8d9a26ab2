/* Launches whose axes have roles: reductions, softmax, scans, cross products. */
#include <string.h>

#include "engine/program/program_impl.h"

/* Reorders a view's axes: those in `last` (a mask) behind the others. Returns how many come first. */
static int view_axes_last(struct view *view, uint32_t last) {
    struct view old = *view;
    int n = 0, first;
    for (int i = 0; i < old.rank; i++)
        if (!(last >> i & 1)) {
            view->shape[n] = old.shape[i];
            view->strides[n++] = old.strides[i];
        }
    first = n;
    for (int i = 0; i < old.rank; i++)
        if (last >> i & 1) {
            view->shape[n] = old.shape[i];
            view->strides[n++] = old.strides[i];
        }
    return first;
}

static void space_from_view(struct layout_space *space, const struct view *view) {
    space->rank = view->rank;
    space->operands = 1;
    memcpy(space->shape, view->shape, sizeof space->shape);
    memcpy(space->strides[0], view->strides, sizeof space->strides[0]);
}

/* A view of complex numbers as one of their parts, which are a new axis at `axis`. */
static void view_as_parts(struct view *view, int axis) {
    for (int i = 0; i < view->rank; i++)
        view->strides[i] *= 2;
    for (int i = view->rank++; i > axis; i--) {
        view->shape[i] = view->shape[i - 1];
        view->strides[i] = view->strides[i - 1];
    }
    view->shape[axis] = 2;
    view->strides[axis] = 1;
    view->dtype = view->as = dtype_real(view->dtype);
}

/* The reduction of complex numbers as one of real numbers, which has twice as many results. */
static int reduce_by_parts(struct step *step, struct view *out, struct view *in) {
    int code = STATUS_OK;
    if (in->rank == SHAPE_RANK_MAX) {
        int kept = out->rank;
        code = view_make_contiguous(&step->session->ledger, step->stream, in, in->dtype, step->fault);
        if (code != STATUS_OK)
            return code;
        /* The axes of a contiguous view merge into one for each group. */
        in->shape[1] = 1;
        for (int i = kept; i < in->rank; i++)
            in->shape[1] *= in->shape[i];
        in->shape[0] = view_elements(out);
        out->rank = 1;
        out->shape[0] = in->shape[0];
        in->rank = 2;
        layout_contiguous(1, out->shape, out->strides);
        layout_contiguous(2, in->shape, in->strides);
    }
    view_as_parts(in, out->rank);
    view_as_parts(out, out->rank);
    return code;
}

/* A norm of complex numbers as one of real numbers: Euclid's of both parts, any other of the magnitudes. */
static int norm_by_parts(struct step *step, struct view *in) {
    if (step->request->floats[0] == 2 && in->rank < SHAPE_RANK_MAX) {
        view_as_parts(in, in->rank);
        return STATUS_OK;
    }
    return view_magnitudes(&step->session->ledger, step->stream, in, step->fault);
}

int bind_reduce(struct step *step) {
    struct view out, in;
    struct layout_space space;
    struct reduction_attributes attributes;
    uint32_t mask = 0;
    reduction_attributes_read(&step->request->attributes, &attributes);
    int code = bind_input(step, 0, &in);
    if (code == STATUS_OK)
        code = op_reduced_axes(&attributes.axes, in.rank, &mask, step->fault);
    if (code == STATUS_OK) {
        int64_t kept = view_axes_last(&in, mask);
        space_from_view(&space, &in);
        kept = layout_merge(&space, 0, (int)kept);
        layout_merge(&space, (int)kept, space.rank);
        in.rank = space.rank;
        memcpy(in.shape, space.shape, sizeof in.shape);
        memcpy(in.strides, space.strides[0], sizeof in.strides);
        view_init(&out, step->output);
        out.rank = (int)kept;
        memcpy(out.shape, in.shape, sizeof out.shape);
        layout_contiguous(out.rank, out.shape, out.strides);
        if (dtype_is_complex(in.dtype) && device_takes_parts(step->request->opcode))
            code =
                step->request->opcode == OP_VECTOR_NORM ? norm_by_parts(step, &in) : reduce_by_parts(step, &out, &in);
    }
    if (code == STATUS_OK) {
        struct plan plan = bind_plan(step, &out, &in, 1);
        plan.attributes.floats = step->request->floats;
        plan.attributes.n_floats = step->request->n_floats;
        plan.weight = plan_weight(&step->session->order->cost, &out, &in) * step->info->passes +
                      (uint64_t)((double)view_elements(&out) * step->session->order->cost.rates.row_ns);
        code = plan_push(step->stream, &plan, step->fault);
    }
    view_finish(&in);
    return code;
}

/* Moves the axis of all views behind the others, which are merged where all views allow that. All have one shape, but that the axis of the
 * outputs may be longer. */
static void views_line_up(struct view *const views[], int n, int axis) {
    struct layout_space space;
    int64_t extents[LAYOUT_OPERANDS_MAX];
    for (int k = 0; k < n; k++) {
        view_axes_last(views[k], 1u << axis);
        extents[k] = views[k]->shape[views[k]->rank - 1];
    }
    space_from_view(&space, views[0]);
    space.operands = n;
    for (int k = 1; k < n; k++)
        memcpy(space.strides[k], views[k]->strides, sizeof space.strides[k]);
    if (layout_merge(&space, 0, space.rank - 1) == 0) { /* rank 2 at least */
        space.shape[1] = space.shape[0];
        space.shape[0] = 1;
        for (int k = 0; k < n; k++) {
            space.strides[k][1] = space.strides[k][0];
            space.strides[k][0] = 0;
        }
        space.rank = 2;
    }
    for (int k = 0; k < n; k++) {
        views[k]->rank = space.rank;
        memcpy(views[k]->shape, space.shape, sizeof space.shape);
        memcpy(views[k]->strides, space.strides[k], sizeof space.strides[k]);
        views[k]->shape[space.rank - 1] = extents[k];
    }
}

int bind_softmax(struct step *step) {
    struct view out, in;
    int axis = 0;
    struct softmax_attributes attributes;
    softmax_attributes_read(&step->request->attributes, &attributes);
    int code = bind_input(step, 0, &in);
    if (code == STATUS_OK)
        code = shape_axis(attributes.axis, in.rank, &axis, step->fault);
    if (code == STATUS_OK) {
        view_init(&out, step->output);
        views_line_up((struct view *const[]){&in, &out}, 2, axis);
        struct plan plan = bind_plan(step, &out, &in, 1);
        plan.weight = plan_weight(&step->session->order->cost, &out, &in) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    view_finish(&in);
    return code;
}

/* Nothing but the initial elements. */
static int scan_initial(struct step *step) {
    struct view out;
    view_init(&out, step->output);
    view_merge((struct view *const[]){&out}, 1);
    int64_t value = step->request->opcode == OP_CUMULATIVE_PROD;
    struct full_attributes attributes = {.dtype = out.dtype,
                                         .value = {dtype_is_complex(out.dtype) ? 0 : value, (double)value}};
    struct op_packed packed;
    full_attributes_write(&attributes, &packed);
    struct plan plan = bind_plan(step, &out, NULL, 0);
    plan.opcode = OP_FULL;
    plan.attributes = (struct op_attributes){packed.ints, packed.floats, packed.n_ints, packed.n_floats};
    plan.weight = plan_weight(&step->session->order->cost, &out, NULL);
    return plan_push(step->stream, &plan, step->fault);
}

int bind_scan(struct step *step) {
    struct view in, outs[2];
    struct view *const all[] = {&in, &outs[0], &outs[1]};
    unsigned n_outputs = step->n_outputs;
    int axis = 0;
    struct scan_attributes attributes; /* those of others begin with the axis, too */
    if (type_elements(&step->inputs[0]->type) == 0)
        return scan_initial(step);
    scan_attributes_read(&step->request->attributes, &attributes);
    int code = bind_input(step, 0, &in);
    if (code == STATUS_OK)
        code = shape_axis(attributes.axis, in.rank, &axis, step->fault);
    if (code == STATUS_OK) {
        for (unsigned i = 0; i < n_outputs; i++)
            view_init(&outs[i], step->outputs[i]);
        if (dtype_is_complex(in.dtype) && device_takes_parts(step->request->opcode) &&
            in.rank == SHAPE_RANK_MAX) /* axes merge then, so that there is room for one */
            code = view_make_contiguous(&step->session->ledger, step->stream, &in, in.dtype, step->fault);
    }
    if (code == STATUS_OK) {
        views_line_up(all, (int)n_outputs + 1, axis);
        bool by_parts = dtype_is_complex(in.dtype) && device_takes_parts(step->request->opcode);
        for (unsigned i = 0; i <= n_outputs && by_parts; i++)
            view_as_parts(all[i], 0);
        struct plan plan = bind_plan(step, &outs[0], &in, 1);
        plan.further = n_outputs - 1;
        plan.outputs[0] = n_outputs > 1 ? &outs[1] : NULL;
        plan.weight = plan_weight(&step->session->order->cost, &outs[0], &in) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    view_finish(&in);
    return code;
}

int bind_cross(struct step *step) {
    struct view out, views[2];
    unsigned made = 0;
    int code = STATUS_OK;
    struct cross_attributes attributes;
    cross_attributes_read(&step->request->attributes, &attributes);
    view_init(&out, step->output);
    for (; made < 2 && code == STATUS_OK; made++)
        code = bind_input(step, made, &views[made]);
    if (code == STATUS_OK) {
        int axis = out.rank + (int)attributes.axis;
        for (int i = 0; i < 2; i++)
            view_broadcast(&views[i], out.rank, out.shape);
        views_line_up((struct view *const[]){&out, &views[0], &views[1]}, 3, axis);
        struct plan plan = bind_plan(step, &out, views, 2);
        plan.weight = plan_weight(&step->session->order->cost, &out, NULL) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    bind_finish_views(views, made);
    return code;
}
