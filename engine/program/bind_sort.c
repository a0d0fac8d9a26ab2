/* Launches that put the elements of one axis in order. */
#include "engine/program/bind_impl.h"

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

int bind_sort(struct binding *binding) {
    struct view x, values, positions;
    struct topk_attributes attributes;
    int axis = 0;
    topk_attributes_read(&binding->attributes, &attributes);
    view_init(&x, binding->inputs[0]);
    view_init(&values, binding->outputs.tensors[0]);
    view_init(&positions, binding->outputs.tensors[1]);
    int code = shape_axis(attributes.axis, x.rank, &axis, &binding->fault);
    if (code == STATUS_OK)
        code = view_make_contiguous(&binding->session->ledger, binding->stream, &x, x.dtype, &binding->fault);
    if (code == STATUS_OK) {
        sort_shape(&x, axis);
        sort_shape(&values, axis);
        sort_shape(&positions, axis);
        struct plan plan = bind_plan(binding, &values, &x, 1);
        plan.further = 1;
        plan.outputs[0] = &positions;
        plan.attributes = binding->attributes;
        plan.weight = plan_weight(&binding->order->cost, &values, &x) * 4;
        code = plan_push(binding->stream, &plan, &binding->fault);
    }
    view_finish(&x);
    return code;
}
