/* Launches whose axes have roles: reductions, softmax, matrix products, Fourier transforms; those that read positions out of an index tensor; those that
 * put the elements of one axis in order, or search it; and those that move elements to other places. */
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
        if (dtype_is_complex(in.dtype) && device_adds_parts(step->request->opcode))
            code = reduce_by_parts(step, &out, &in);
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
        if (dtype_is_complex(in.dtype) &&
            in.rank == SHAPE_RANK_MAX) /* axes merge then, so that there is room for one */
            code = view_make_contiguous(&step->session->ledger, step->stream, &in, in.dtype, step->fault);
    }
    if (code == STATUS_OK) {
        views_line_up(all, (int)n_outputs + 1, axis);
        for (unsigned i = 0; i <= n_outputs && dtype_is_complex(all[i]->dtype); i++)
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

int bind_matmul(struct step *step) {
    struct view out, views[3] = {0};
    unsigned made = 0, n_inputs = step->request->n_inputs;
    bool linear = step->request->opcode == OP_LINEAR;
    int code = STATUS_OK;
    for (; made < n_inputs && code == STATUS_OK; made++)
        code = bind_input(step, made, &views[made]);
    if (code == STATUS_OK && linear)
        code = linear_present(step, views);
    if (code == STATUS_OK) {
        matmul_shape(step, &out, &views[0], &views[1]);
        struct plan plan = bind_plan(step, &out, views, n_inputs);
        int64_t depth = views[0].shape[views[0].rank - 1];
        double rows = (double)out.shape[out.rank - 2], columns = (double)out.shape[out.rank - 1];
        double batches = (double)view_elements(&out) / (rows * columns);
        plan.tf32 = step->session->limits.allow_tf32;
        plan.attributes = step->request->attributes;
        plan.weight =
            cost_product(&step->session->order->cost, views[0].dtype, plan.tf32, batches, rows, columns, (double)depth);
        code = plan_push(step->stream, &plan, step->fault);
    }
    bind_finish_views(views, made);
    return code;
}

/* ---- elements that meet random numbers ---- */

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

/* ---- positions out of an index tensor ---- */

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

/* Indices, contiguous, as i64 or what the kernel reads as such; those of take_along_axis broadcast against x off the axis. */
static int take_indices(struct step *step, unsigned i, int axis, struct view *view) {
    view_init(view, step->inputs[i]);
    if (step->request->opcode == OP_TAKE_ALONG_AXIS) {
        int64_t shape[SHAPE_RANK_MAX];
        memcpy(shape, step->output->type.shape, sizeof shape);
        shape[axis] = view->shape[axis];
        view_broadcast(view, step->output->type.rank, shape);
    }
    enum dtype read = bind_converts(step, view->dtype, DTYPE_I64) ? view->dtype : DTYPE_I64;
    int code = view_make_contiguous(&step->session->ledger, step->stream, view, read, step->fault);
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

/* x as [outer, n, inner]; take_along_axis broadcasts x off the axis as well. */
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
        if (step->request->opcode == OP_TAKE_ALONG_AXIS)
            view_set3(&views[1], out.shape[0], out.shape[1], out.shape[2]);
        struct plan plan = bind_plan(step, &out, views, n_inputs);
        plan.report = step->guard->report;
        plan.weight = plan_weight(&step->session->order->cost, &out, NULL) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    bind_finish_views(views, made);
    return code;
}

/* ---- positions in an index tensor, to which values go ---- */

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

/* The indices as i64, contiguous: [1, k, 1] if they are the same everywhere off the axis, else [outer, k, inner]. */
static int scatter_indices(struct step *step, int axis, const struct tensor_type *places, struct view *view) {
    view_init(view, step->inputs[1]);
    bool same = true;
    for (int i = 0; i < view->rank; i++)
        same &= i == axis || view->shape[i] == 1;
    if (!same)
        view_broadcast(view, places->rank, places->shape);
    int code = view_make_contiguous(&step->session->ledger, step->stream, view, DTYPE_I64, step->fault);
    if (code == STATUS_OK)
        view_fold3(view, axis); /* contiguous: it always folds */
    return code;
}

static int scatter_values(struct step *step, int axis, const struct tensor_type *places, struct view *view) {
    int code = bind_input(step, 2, view);
    view_broadcast(view, places->rank, places->shape);
    if (code != STATUS_OK || view_fold3(view, axis))
        return code;
    code = view_convert(&step->session->ledger, step->stream, view, view->dtype, step->fault);
    if (code == STATUS_OK)
        view_fold3(view, axis);
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
    if (code == STATUS_OK) {
        code = bind_input(step, 0, &views[0]);
        made = 1;
    }
    if (code == STATUS_OK && type_elements(&places) == 0) { /* nothing goes anywhere */
        code = out.data == views[0].data ? STATUS_OK
                                         : view_copy(&step->session->ledger, step->stream, out, views[0], step->fault);
        bind_finish_views(views, made);
        return code;
    }
    if (code == STATUS_OK)
        code = view_make_contiguous(&step->session->ledger, step->stream, &views[0], views[0].dtype, step->fault);
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

/* ---- the elements of one axis in order ---- */

/* A contiguous operand as [outer, axis, inner]. */
static void sort_shape(struct view *view, int axis) {
    int64_t shape[3] = {1, view->shape[axis], 1};
    for (int i = 0; i < view->rank; i++)
        if (i != axis)
            shape[i < axis ? 0 : 2] *= view->shape[i];
    view->rank = 3;
    for (int i = 0; i < 3; i++)
        view->shape[i] = shape[i];
    layout_contiguous(3, view->shape, view->strides);
}

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
        sort_shape(&x, axis);
        for (unsigned i = 0; i < step->n_outputs; i++)
            sort_shape(&out[i], axis);
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
        sort_shape(&x, axis);
        sort_shape(&out, axis);
        struct plan plan = bind_plan(step, &out, &x, 1);
        plan.attributes = step->request->attributes;
        plan.weight = plan_weight(&step->session->order->cost, &out, &x) * step->info->passes;
        code = plan_push(step->stream, &plan, step->fault);
    }
    view_finish(&x);
    return code;
}

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

int bind_search(struct step *step) {
    struct view out, views[2];
    unsigned made = 0;
    int code = STATUS_OK;
    view_init(&out, step->output);
    for (; made < 2 && code == STATUS_OK; made++) {
        view_init(&views[made], step->inputs[made]);
        enum dtype dtype = op_operand_dtype(step->request->opcode, step->types, made, &step->output->type);
        code = view_make_contiguous(&step->session->ledger, step->stream, &views[made], dtype, step->fault);
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
    if (step->request->opcode == OP_MASKED_SELECT)
        view_broadcast(view, both->rank, both->shape);
    int code = view_make_contiguous(&step->session->ledger, step->stream, view, dtype, step->fault);
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
