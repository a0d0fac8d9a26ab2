#include "engine/program/bind_dense.h"

#include <string.h>

const struct op_kernel *dense_kernel(const struct step *step) {
    return step->session->order->device->vtable->operations[step->request->opcode];
}

void dense_begin(struct dense *dense, struct step *step) {
    dense->step = step;
    dense->n_inputs = step->request->n_inputs;
    dense->n_outputs = step->n_outputs;
    dense->own_dtypes = false;
    dense->halves = dense_kernel(step)->halves;
    dense->strided = 0;
    dense->merge = NULL;
    for (unsigned i = 0; i < dense->n_inputs; i++)
        view_init(&dense->in[i], step->inputs[i]);
    for (unsigned i = 0; i < dense->n_outputs; i++)
        view_init(&dense->out[i], step->outputs[i]);
}

void dense_move_axis(struct view *view, int from, int to) {
    int64_t extent = view->shape[from], stride = view->strides[from];
    for (int i = from, step = from < to ? 1 : -1; i != to; i += step) {
        view->shape[i] = view->shape[i + step];
        view->strides[i] = view->strides[i + step];
    }
    view->shape[to] = extent;
    view->strides[to] = stride;
}

/* The dtype in which kernels compute. */
static enum dtype dense_dtype(const struct dense *dense, enum dtype dtype) {
    return !dense->halves && (dtype == DTYPE_F16 || dtype == DTYPE_BF16) ? DTYPE_F32 : dtype;
}

/* A kernel that takes halves takes a mask of attention in the halves of the other operands, too. */
static enum dtype dense_input_dtype(const struct dense *dense, unsigned i) {
    const struct step *step = dense->step;
    enum dtype own = dense->in[i].dtype;
    if (dense->own_dtypes || (dense->halves && own == step->output->type.dtype))
        return own;
    return op_operand_dtype(step->request->opcode, step->types, i, &step->output->type);
}

static int dense_inputs(struct dense *dense) {
    struct step *step = dense->step;
    int code = STATUS_OK;
    for (unsigned i = 0; i < dense->n_inputs && code == STATUS_OK; i++) {
        enum dtype dtype = dense_input_dtype(dense, i);
        struct ledger *ledger = &step->session->ledger;
        bool indices = step->info->index_inputs >> i & 1;
        if (indices) {
            code = bind_indices(step, &dense->in[i]);
            dtype = dense->in[i].dtype;
        }
        if (code == STATUS_OK && !(dense->strided >> i & 1))
            code = view_make_contiguous(ledger, step->stream, &dense->in[i], dense_dtype(dense, dtype), step->fault);
        else if (code == STATUS_OK && dense->in[i].dtype != dense_dtype(dense, dtype))
            code = view_cast(ledger, step->stream, &dense->in[i], dense_dtype(dense, dtype), step->fault);
        if (indices)
            dense->in[i].as = DTYPE_I64;
    }
    return code;
}

/* Makes a contiguous temporary with the view's shape, for the kernel to write. */
static int dense_temporary(struct dense *dense, struct view *view, enum dtype dtype) {
    struct step *step = dense->step;
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)view_elements(view), dtype_size(dtype), &bytes))
        return fault_set(step->fault, STATUS_SHAPE, "the result is too large to convert");
    view->dtype = view->as = dtype;
    layout_contiguous(view->rank, view->shape, view->strides);
    int code = ledger_storage(&step->session->ledger, bytes, step->stream, &view->storage, step->fault);
    if (code != STATUS_OK)
        return code;
    view->temporary = true;
    view->data = view->storage->data;
    return plan_wait_memory(step->stream, view->storage, step->fault);
}

/* `results` are the views of those that the kernel does not write itself. */
static int dense_outputs(struct dense *dense, struct view *results) {
    int code = STATUS_OK;
    for (unsigned i = 0; i < dense->n_outputs && code == STATUS_OK; i++) {
        struct view *out = &dense->out[i];
        enum dtype dtype = dense_dtype(dense, out->dtype);
        results[i] = *out;
        if (view_elements(out) == 0)
            continue;
        if (layout_is_contiguous(out->rank, out->shape, out->strides) && dtype == out->dtype)
            layout_contiguous(out->rank, out->shape, out->strides);
        else
            code = dense_temporary(dense, out, dtype);
    }
    return code;
}

static int dense_launch(struct dense *dense, uint64_t weight) {
    struct step *step = dense->step;
    struct plan plan = bind_plan(step, &dense->out[0], dense->in, dense->n_inputs);
    plan.further = dense->n_outputs - 1;
    for (unsigned i = 1; i < dense->n_outputs; i++)
        plan.outputs[i - 1] = &dense->out[i];
    plan.attributes = step->request->attributes;
    plan.tf32 = step->session->limits.allow_tf32;
    plan.report = step->guard ? step->guard->report : NULL;
    plan.weight = weight;
    return plan_push(step->stream, &plan, step->fault);
}

int dense_push(struct dense *dense, uint64_t weight) {
    struct view results[PLAN_OUTPUTS_MAX];
    struct step *step = dense->step;
    int code = dense_inputs(dense);
    if (code == STATUS_OK)
        code = dense_outputs(dense, results);
    if (code == STATUS_OK && dense->merge)
        dense->merge(dense);
    if (code == STATUS_OK)
        code = dense_launch(dense, weight);
    for (unsigned i = 0; i < dense->n_outputs && code == STATUS_OK; i++)
        if (dense->out[i].temporary) {
            memcpy(dense->out[i].shape, results[i].shape, sizeof results[i].shape);
            dense->out[i].rank = results[i].rank;
            layout_contiguous(dense->out[i].rank, dense->out[i].shape, dense->out[i].strides);
            code = view_copy(&step->session->ledger, step->stream, results[i], dense->out[i], step->fault);
        }
    bind_finish_views(dense->in, dense->n_inputs);
    bind_finish_views(dense->out, dense->n_outputs);
    return code;
}

/* ---- families whose operands are as they are ---- */

int dense_push_whole(struct dense *dense) {
    uint64_t weight = 0;
    for (unsigned i = 0; i < dense->n_inputs; i++)
        weight += plan_weight(&dense->step->session->order->cost, &dense->in[i], i ? NULL : &dense->out[0]);
    return dense_push(dense, weight * dense->step->info->passes / 2);
}

int bind_normalisation(struct step *step) {
    struct dense dense;
    dense_begin(&dense, step);
    return dense_push_whole(&dense);
}
