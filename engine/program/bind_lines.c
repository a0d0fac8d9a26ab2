/* Launches along one axis of operands that become [outer, axis, inner]: those that read or write positions that an index tensor has, those that
 * repeat elements, those that put elements in order, and Fourier transforms. */
#include <string.h>

#include "engine/program/program_impl.h"

/* ---- the shape ---- */

static void view_set3(struct view *view, int64_t outer, int64_t middle, int64_t inner) {
    view->rank = 3;
    view->shape[0] = outer;
    view->shape[1] = middle;
    view->shape[2] = inner;
    layout_contiguous(3, view->shape, view->strides);
}

static void take_shape(struct view *view, const struct tensor_type *type, int axis) {
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis; i++)
        outer *= type->shape[i];
    for (int i = axis + 1; i < type->rank; i++)
        inner *= type->shape[i];
    view_set3(view, outer, type->shape[axis], inner);
}

/* Presents a view as [outer, axis, inner]. False: its axes before or behind do not merge. */
static bool view_fold3(struct view *view, int axis) {
    int64_t outer = 1, inner = 1, strides[SHAPE_RANK_MAX], extent = view->shape[axis];
    for (int i = 0; i < view->rank; i++)
        if (i != axis)
            *(i < axis ? &outer : &inner) *= view->shape[i];
    if (!layout_reshape(view->rank, view->shape, view->strides, 3, (int64_t[]){outer, extent, inner}, strides))
        return false;
    view_set3(view, outer, extent, inner);
    memcpy(view->strides, strides, 3 * sizeof *strides);
    return true;
}

/* The same for any view: of one whose axes do not merge by a copy. */
static int view_make_lines(struct step *step, struct view *view, int axis) {
    if (view_fold3(view, axis))
        return STATUS_OK;
    int code = view_convert(&step->session->ledger, step->stream, view, view->dtype, step->fault);
    if (code == STATUS_OK)
        view_fold3(view, axis);
    return code;
}

/* A contiguous operand as [outer, axis, inner]. */
static void view_lines(struct view *view, int axis) {
    struct tensor_type type = {.rank = view->rank};
    memcpy(type.shape, view->shape, sizeof type.shape);
    take_shape(view, &type, axis);
}

/* ---- positions out of an index tensor ---- */

/* Indices of take, with any stride, and of take_along_axis, [outer, count, inner], which broadcast against x off the axis; those of
 * one_hot one after another. */
static int take_indices(struct step *step, unsigned i, int axis, struct view *view) {
    view_init(view, step->inputs[i]);
    int code = bind_indices(step, view);
    if (code == STATUS_OK && step->request->opcode == OP_TAKE_ALONG_AXIS) {
        int64_t shape[SHAPE_RANK_MAX];
        memcpy(shape, step->output->type.shape, sizeof shape);
        shape[axis] = view->shape[axis];
        guard_set_broadcast(step->guard, view->rank, view->shape, shape);
        view_broadcast(view, step->output->type.rank, shape);
        code = view_make_lines(step, view, axis);
    } else if (code == STATUS_OK && step->request->opcode == OP_ONE_HOT) {
        code = view_make_contiguous(&step->session->ledger, step->stream, view, view->dtype, step->fault);
    }
    view->as = DTYPE_I64;
    return code;
}

static void one_hot_shape(struct view *out, struct view *indices) {
    int64_t count = view_elements(indices);
    out->shape[1] = out->shape[out->rank - 1];
    out->shape[0] = count;
    out->rank = 2;
    layout_contiguous(2, out->shape, out->strides);
    indices->rank = 1;
    indices->shape[0] = count;
    indices->strides[0] = 1;
}

/* x as [outer, n, inner], contiguous for take; take_along_axis broadcasts x off the axis as well, and takes any strides. */
static int take_source(struct step *step, int axis, struct view *x) {
    view_init(x, step->inputs[0]);
    struct tensor_type type = step->inputs[0]->type;
    if (step->request->opcode == OP_TAKE_ALONG_AXIS) {
        int64_t extent = type.shape[axis];
        memcpy(type.shape, step->output->type.shape, sizeof type.shape);
        type.shape[axis] = extent;
        int wide = type_check(&type, step->fault); /* its own axis and the others' are together for the first time */
        if (wide != STATUS_OK)
            return wide;
        view_broadcast(x, type.rank, type.shape);
        return view_make_lines(step, x, axis);
    }
    int code = view_make_contiguous(&step->session->ledger, step->stream, x, x->dtype, step->fault);
    take_shape(x, &type, axis);
    return code;
}

int bind_take(struct step *step) {
    struct view out, views[2];
    unsigned n_inputs = step->request->n_inputs, made = 0;
    bool one_hot = step->request->opcode == OP_ONE_HOT;
    int axis = 0, code = STATUS_OK;
    view_init(&out, step->output);
    if (!one_hot) {
        struct take_attributes attributes; /* take_along_axis has the same */
        take_attributes_read(&step->request->attributes, &attributes);
        code = shape_axis(attributes.axis, step->inputs[0]->type.rank, &axis, step->fault);
        if (code == STATUS_OK) {
            code = take_source(step, axis, &views[0]);
            made = 1;
        }
    }
    if (code == STATUS_OK) {
        code = take_indices(step, one_hot ? 0 : 1, axis, &views[made]);
        made++;
    }
    if (code == STATUS_OK) {
        if (one_hot)
            one_hot_shape(&out, &views[0]);
        else
            take_shape(&out, &step->output->type, axis);
        struct plan plan = bind_plan(step, &out, views, n_inputs);
        plan.report = step->guard->report;
        plan.weight = plan_weight(&step->session->order->cost, &out, NULL) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    bind_finish_views(views, made);
    return code;
}

/* ---- positions in an index tensor, to which values go ---- */

/* The indices: [1, k, 1] if they are the same everywhere off the axis, else [outer, k, inner]. */
static int scatter_indices(struct step *step, int axis, const struct tensor_type *places, struct view *view) {
    bool same = true;
    view_init(view, step->inputs[1]);
    int code = bind_indices(step, view);
    for (int i = 0; i < view->rank; i++)
        same &= i == axis || view->shape[i] == 1;
    if (!same) {
        guard_set_broadcast(step->guard, view->rank, view->shape, places->shape);
        view_broadcast(view, places->rank, places->shape);
    }
    if (code == STATUS_OK)
        code = view_make_lines(step, view, axis);
    view->as = DTYPE_I64;
    return code;
}

static int scatter_values(struct step *step, int axis, const struct tensor_type *places, struct view *view) {
    int code = bind_input(step, 2, view);
    enum dtype as = view->as;
    view_broadcast(view, places->rank, places->shape);
    if (code == STATUS_OK)
        code = view_make_lines(step, view, axis);
    view->as = as;
    return code;
}

/* x, contiguous; one of another dtype is converted where the result is going to be, and then the operation works in place. */
static int scatter_source(struct step *step, const struct view *out, struct view *x) {
    struct ledger *ledger = &step->session->ledger;
    view_init(x, step->inputs[0]);
    if (x->dtype == out->dtype)
        return view_make_contiguous(ledger, step->stream, x, x->dtype, step->fault);
    int code = view_copy(ledger, step->stream, *out, *x, step->fault);
    *x = *out;
    return code;
}

int bind_scatter(struct step *step) {
    struct view out, views[3];
    unsigned made = 0;
    int axis = 0;
    struct scatter_attributes attributes;
    scatter_attributes_read(&step->request->attributes, &attributes);
    view_init(&out, step->output);
    int code = shape_axis(attributes.axis, out.rank, &axis, step->fault);
    struct tensor_type places = step->output->type;
    places.shape[axis] = step->inputs[1]->type.shape[axis];
    if (code == STATUS_OK && type_elements(&places) == 0) { /* nothing goes anywhere */
        view_init(&views[0], step->inputs[0]);
        return out.data == views[0].data ? STATUS_OK
                                         : view_copy(&step->session->ledger, step->stream, out, views[0], step->fault);
    }
    if (code == STATUS_OK) {
        code = scatter_source(step, &out, &views[0]);
        made = 1;
    }
    if (code == STATUS_OK) {
        code = scatter_indices(step, axis, &places, &views[1]);
        made = 2;
    }
    if (code == STATUS_OK) {
        code = scatter_values(step, axis, &places, &views[2]);
        made = 3;
    }
    if (code == STATUS_OK) {
        view_fold3(&out, axis);
        view_fold3(&views[0], axis);
        struct plan plan = bind_plan(step, &out, views, 3);
        plan.report = step->guard->report;
        plan.weight = (plan_weight(&step->session->order->cost, &out, &views[0]) +
                       plan_weight(&step->session->order->cost, &views[2], &views[1])) *
                      2;
        code = plan_push(step->stream, &plan, step->fault);
    }
    bind_finish_views(views, made);
    return code;
}

/* ---- elements of one axis, each as often as the data says ---- */

/* The sum alone, where the result has no element. */
static int repeat_total(struct step *step, struct view *counts, struct view *total) {
    int code = view_make_contiguous(&step->session->ledger, step->stream, counts, DTYPE_I64, step->fault);
    if (code != STATUS_OK)
        return code;
    counts->as = DTYPE_I64;
    struct plan plan = bind_plan(step, total, counts, 1);
    plan.opcode = OP_SUM;
    plan.weight = plan_weight(&step->session->order->cost, total, counts) * 2;
    return plan_push(step->stream, &plan, step->fault);
}

int bind_repeat(struct step *step) {
    struct view out[2], views[2];
    struct ledger *ledger = &step->session->ledger;
    struct repeat_each_attributes attributes;
    int axis = 0;
    repeat_each_attributes_read(&step->request->attributes, &attributes);
    for (unsigned i = 0; i < 2; i++) {
        view_init(&out[i], step->outputs[i]);
        view_init(&views[i], step->inputs[i]);
    }
    int code = shape_axis(attributes.axis, out[0].rank, &axis, step->fault);
    if (code == STATUS_OK && view_elements(&out[0]) == 0) {
        code = repeat_total(step, &views[1], &out[1]);
    } else if (code == STATUS_OK) {
        code = view_make_contiguous(ledger, step->stream, &views[0], views[0].dtype, step->fault);
        if (code == STATUS_OK)
            code = bind_indices(step, &views[1]);
        if (code == STATUS_OK)
            code = view_make_contiguous(ledger, step->stream, &views[1], views[1].dtype, step->fault);
        views[1].as = DTYPE_I64;
        if (code == STATUS_OK) {
            view_lines(&views[0], axis);
            view_lines(&out[0], axis);
            struct plan plan = bind_plan(step, &out[0], views, 2);
            plan.further = 1;
            plan.outputs[0] = &out[1];
            plan.weight = plan_weight(&step->session->order->cost, &out[0], &views[0]) * step->info->passes;
            code = plan_push(step->stream, &plan, step->fault);
        }
    }
    bind_finish_views(views, 2);
    return code;
}

/* ---- the elements of one axis in order ---- */

/* topk has two outputs; sort and argsort have one, and their axis elsewhere among the attributes. */
int bind_sort(struct step *step) {
    struct view x, out[2];
    bool topk = step->request->opcode == OP_TOPK;
    struct topk_attributes most;
    struct sort_attributes all;
    int axis = 0;
    if (topk)
        topk_attributes_read(&step->request->attributes, &most);
    else
        sort_attributes_read(&step->request->attributes, &all);
    view_init(&x, step->inputs[0]);
    for (unsigned i = 0; i < step->n_outputs; i++)
        view_init(&out[i], step->outputs[i]);
    int code = shape_axis(topk ? most.axis : all.axis, x.rank, &axis, step->fault);
    if (code == STATUS_OK)
        code = view_make_contiguous(&step->session->ledger, step->stream, &x, x.dtype, step->fault);
    if (code == STATUS_OK) {
        view_lines(&x, axis);
        for (unsigned i = 0; i < step->n_outputs; i++)
            view_lines(&out[i], axis);
        struct plan plan = bind_plan(step, &out[0], &x, 1);
        plan.further = step->n_outputs - 1;
        plan.outputs[0] = &out[1];
        plan.attributes = step->request->attributes;
        plan.weight = plan_weight(&step->session->order->cost, &out[0], &x) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    view_finish(&x);
    return code;
}

/* ---- Fourier transforms ---- */

int bind_fft(struct step *step) {
    struct view x, out;
    struct fft_attributes attributes; /* the others have the same */
    int axis = 0;
    fft_attributes_read(&step->request->attributes, &attributes);
    view_init(&x, step->inputs[0]);
    view_init(&out, step->output);
    int code = shape_axis(attributes.axis, x.rank, &axis, step->fault);
    if (code == STATUS_OK)
        code = view_make_contiguous(&step->session->ledger, step->stream, &x, x.dtype, step->fault);
    if (code == STATUS_OK) {
        view_lines(&x, axis);
        view_lines(&out, axis);
        struct plan plan = bind_plan(step, &out, &x, 1);
        plan.attributes = step->request->attributes;
        plan.weight = plan_weight(&step->session->order->cost, &out, &x) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    view_finish(&x);
    return code;
}
