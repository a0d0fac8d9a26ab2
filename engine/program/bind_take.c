/* Launches that read positions out of an index tensor. */
#include <string.h>

#include "engine/program/bind_impl.h"

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
static int take_indices(struct binding *binding, unsigned i, int axis, struct view *view) {
    view_init(view, binding->inputs[i]);
    if (binding->request->opcode == OP_TAKE_ALONG_AXIS) {
        int64_t shape[SHAPE_RANK_MAX];
        memcpy(shape, binding->output->type.shape, sizeof shape);
        shape[axis] = view->shape[axis];
        view_broadcast(view, binding->output->type.rank, shape);
    }
    enum dtype read = bind_converts(binding, view->dtype, DTYPE_I64) ? view->dtype : DTYPE_I64;
    int code = view_make_contiguous(&binding->session->ledger, binding->stream, view, read, &binding->fault);
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
static int take_source(struct binding *binding, int axis, struct view *x) {
    view_init(x, binding->inputs[0]);
    struct tensor_type type = binding->inputs[0]->type;
    if (binding->request->opcode == OP_TAKE_ALONG_AXIS) {
        int64_t extent = type.shape[axis];
        memcpy(type.shape, binding->output->type.shape, sizeof type.shape);
        type.shape[axis] = extent;
        int wide =
            type_check(&type, &binding->fault); /* its own axis and the others' are together for the first time */
        if (wide != STATUS_OK)
            return wide;
        view_broadcast(x, type.rank, type.shape);
    }
    int code = view_make_contiguous(&binding->session->ledger, binding->stream, x, x->dtype, &binding->fault);
    take_shape(x, &type, axis);
    return code;
}

int bind_take(struct binding *binding) {
    struct view out, views[2];
    unsigned n_inputs = binding->request->n_inputs, made = 0;
    bool one_hot = binding->request->opcode == OP_ONE_HOT;
    int axis = 0, code = STATUS_OK;
    view_init(&out, binding->output);
    if (!one_hot) {
        struct take_attributes attributes; /* take_along_axis has the same */
        take_attributes_read(&binding->attributes, &attributes);
        code = shape_axis(attributes.axis, binding->inputs[0]->type.rank, &axis, &binding->fault);
        if (code == STATUS_OK) {
            code = take_source(binding, axis, &views[0]);
            made = 1;
        }
    }
    if (code == STATUS_OK) {
        code = take_indices(binding, one_hot ? 0 : 1, axis, &views[made]);
        made++;
    }
    if (code == STATUS_OK) {
        if (one_hot)
            one_hot_shape(&out, &views[0]);
        else
            take_shape(&out, &binding->output->type, axis);
        if (binding->request->opcode == OP_TAKE_ALONG_AXIS)
            view_set3(&views[1], out.shape[0], out.shape[1], out.shape[2]);
        struct plan plan = bind_plan(binding, &out, views, n_inputs);
        plan.report = binding->check->report;
        plan.weight = plan_weight(&binding->order->cost, &out, NULL) * 4;
        code = plan_push(binding->stream, &plan, &binding->fault);
    }
    bind_finish_views(views, made);
    return code;
}
