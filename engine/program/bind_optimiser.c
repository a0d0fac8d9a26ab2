/* Optimisers: a launch for each parameter. A result takes the memory of the tensor whose place it takes, where the caller releases that. */
#include "engine/program/bind_dense.h"

/* The number of lists among the inputs: parameters, gradients, and those of the state, which are results, too, as are the parameters. */
static unsigned lists_of(const struct step *step) {
    unsigned n_inputs = step->request->n_inputs, n_outputs = step->n_outputs;
    return n_inputs / (n_inputs - n_outputs);
}

/* A launch writes into a tensor that it takes, so no later launch may read it. Of very many tensors nobody looks for that. */
static bool output_takes(const struct step *step, unsigned input) {
    enum { INPUTS_COMPARED = 1024 };
    bool takes = step->request->n_inputs <= INPUTS_COMPARED && bind_lends(step, input);
    for (unsigned i = 0; i < step->request->n_inputs && takes; i++)
        takes = i == input || step->inputs[i] != step->inputs[input];
    return takes;
}

static int output_make(struct step *step, unsigned output, unsigned input) {
    struct tensor *out = step->outputs[output], *in = step->inputs[input];
    if (!output_takes(step, input))
        return bind_allocate(step, out);
    bind_take_memory(out, in);
    return plan_wait_memory(step->stream, out->storage, step->fault);
}

static void view_flatten(struct view *view) {
    view->shape[0] = view_elements(view);
    view->strides[0] = 1;
    view->rank = 1;
}

static void dense_flatten(struct dense *dense) {
    for (unsigned i = 0; i < dense->n_inputs; i++)
        view_flatten(&dense->in[i]);
    for (unsigned i = 0; i < dense->n_outputs; i++)
        view_flatten(&dense->out[i]);
}

static int bind_parameter(struct step *step, unsigned number, unsigned n, unsigned lists) {
    struct dense dense = {.step = step,
                          .n_inputs = lists,
                          .n_outputs = lists - 1,
                          .own_dtypes = true,
                          .halves = dense_kernel(step)->halves,
                          .merge = dense_flatten};
    int code = STATUS_OK;
    for (unsigned list = 0; list + 1 < lists && code == STATUS_OK; list++)
        code = output_make(step, list * n + number, (list ? list + 1 : 0) * n + number);
    if (code != STATUS_OK || type_elements(&step->outputs[number]->type) == 0)
        return code;
    for (unsigned list = 0; list < lists; list++)
        view_init(&dense.in[list], step->inputs[list * n + number]);
    for (unsigned list = 0; list + 1 < lists; list++)
        view_init(&dense.out[list], step->outputs[list * n + number]);
    double bytes = (double)view_elements(&dense.in[0]) * (double)dtype_size(dense.in[0].dtype) * (2 * lists - 1);
    return dense_push(&dense, cost_pass(&step->session->order->cost, bytes));
}

int bind_optimiser(struct step *step) {
    unsigned lists = lists_of(step), n = step->request->n_inputs / lists;
    int code = STATUS_OK;
    for (unsigned i = 0; i < n && code == STATUS_OK; i++)
        code = bind_parameter(step, i, n, lists);
    return code;
}
