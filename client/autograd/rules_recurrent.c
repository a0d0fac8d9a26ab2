/* Rules of recurrent layers. */
#include "client/autograd/rule.h"
#include "client/lib/error.h"
#include "proto/ops/cleanup.h"

#include <stdlib.h>

/* The results that are there for the gradient have none themselves. */
static bool check(struct rule_call *call, unsigned from) {
    for (unsigned i = from; i < call->node->n_outputs && !call->failed; i++) {
        struct fault fault;
        if (call->g[i]) {
            fault_set(&fault, STATUS_UNSUPPORTED,
                      "derivatives go through the results and the last states, and not through result %u", i);
            error_fault(&fault, op_rows[call->node->opcode].name, NULL);
            call->failed = true;
        }
    }
    return !call->failed;
}

static void give_all(struct rule_call *call, unsigned count, td_tensor *const *gradients) {
    for (unsigned i = 0; i < count; i++)
        if (rule_wants(call, i))
            rule_give(call, i, gradients[i]);
}

/* ---- a layer step by step: for the further derivatives of its gradient, which the library's own has not ---- */

enum { GATES_MOST = 4, STATES_MOST = 2 };

struct layer {
    struct rule_call *call;
    unsigned n_states, weights;    /* the input from which on weights and biases are */
    td_tensor *state[STATES_MOST]; /* h, and of an LSTM c */
};

/* A block of the last axis for each gate. */
static void gates_of(td_tensor *all, unsigned n, td_tensor **gates) {
    int64_t width = all ? td_tensor_shape(all)[1] / n : 0;
    for (unsigned i = 0; i < n; i++)
        gates[i] = td_slice(all, 1, i * width, (i + 1) * width, 1);
}

static void lstm_step(struct layer *layer, td_tensor *a, td_tensor *q) {
    td_tensor *gate[GATES_MOST];
    gates_of(td_add(a, q), 4, gate);
    td_tensor *kept = td_multiply(td_sigmoid(gate[1]), layer->state[1]);
    layer->state[1] = td_add(kept, td_multiply(td_sigmoid(gate[0]), td_tanh(gate[2])));
    layer->state[0] = td_multiply(td_sigmoid(gate[3]), td_tanh(layer->state[1]));
}

/* n + z · (h - n) */
static void gru_step(struct layer *layer, td_tensor *a, td_tensor *q) {
    td_tensor *of_x[GATES_MOST], *of_h[GATES_MOST], *h = layer->state[0];
    gates_of(a, 3, of_x);
    gates_of(q, 3, of_h);
    td_tensor *reset = td_sigmoid(td_add(of_x[0], of_h[0])), *keep = td_sigmoid(td_add(of_x[1], of_h[1]));
    td_tensor *new = td_tanh(td_add(of_x[2], td_multiply(reset, of_h[2])));
    layer->state[0] = td_add(new, td_multiply(keep, td_subtract(h, new)));
}

/* Result and last states, in the dtype that operations compute in, and then in the layer's. Returns how many; 0 after an error. */
static unsigned run_steps(struct layer *layer, bool reverse, td_tensor **ys) {
    const struct rule_call *call = layer->call;
    int64_t steps = rule_type(call, 0)->shape[0];
    td_tensor *weight = rule_widen(rule_input(call, layer->weights + 1));
    td_tensor *bias = rule_widen(rule_optional(call, layer->weights + 3));
    td_tensor *a = td_linear(rule_widen(rule_input(call, 0)), rule_widen(rule_input(call, layer->weights)),
                             rule_widen(rule_optional(call, layer->weights + 2)), TD_ACTIVATION_NONE);
    CLEANUP(free) td_tensor **results = calloc((size_t)steps, sizeof(td_tensor *));
    if (!results) {
        error_set(STATUS_NO_HOST_MEMORY, "no memory for gradients");
        return 0;
    }
    for (unsigned i = 0; i < layer->n_states; i++)
        layer->state[i] = rule_widen(rule_input(call, 1 + i));
    for (int64_t k = 0; k < steps; k++) {
        int64_t t = reverse ? steps - 1 - k : k;
        td_tensor *step = td_squeeze(td_slice(a, 0, t, t + 1, 1), TD_AXES(0));
        td_tensor *q = td_linear(layer->state[0], weight, bias, TD_ACTIVATION_NONE);
        (layer->n_states == 2 ? lstm_step : gru_step)(layer, step, q);
        results[t] = layer->state[0];
    }
    ys[0] = td_stack(results, (int)steps, 0);
    for (unsigned i = 0; i < layer->n_states; i++)
        ys[1 + i] = layer->state[i];
    for (unsigned i = 0; i <= layer->n_states; i++) {
        td_dtype dtype = (td_dtype)call->node->outputs[i].type.dtype;
        if (!ys[i] || !(ys[i] = td_tensor_dtype(ys[i]) == dtype ? ys[i] : td_cast(ys[i], dtype)))
            return 0;
    }
    return layer->n_states + 1;
}

/* Whether the gradient has been given in this way: if a tape notes the operations that it is made of. */
static bool step_by_step(struct rule_call *call, unsigned n_states, bool reverse) {
    struct layer layer = {.call = call, .n_states = n_states, .weights = 1 + n_states};
    td_tensor *ys[1 + STATES_MOST];
    if (!tapes_note() || !rule_type(call, 0)->shape[0])
        return false;
    struct tape *innermost = tape_innermost, *tape = tape_begin_internal(false);
    unsigned n_ys = tape ? run_steps(&layer, reverse, ys) : 0;
    if (n_ys)
        rule_go_through(call, tape, n_ys, ys);
    call->failed |= !n_ys;
    tape_end_until(innermost);
    return true;
}

/* One gradient for both biases. */
RULE(lstm) {
    struct recurrent_attributes at;
    td_tensor *by[6] = {NULL, NULL, NULL, NULL, NULL, NULL};
    if (!check(call, 3))
        return;
    recurrent_attributes_read(&call->node->attributes, &at);
    if (step_by_step(call, 2, at.reverse))
        return;
    td_lstm_grad(rule_gradient(call, 0), rule_gradient(call, 1), rule_gradient(call, 2), rule_input(call, 0),
                 rule_input(call, 1), rule_input(call, 2), rule_input(call, 3), rule_input(call, 4),
                 rule_output(call, 0), rule_output(call, 3), rule_output(call, 4), at.reverse, &by[0], &by[1], &by[2],
                 &by[3], &by[4], &by[5]);
    give_all(call, 6, by);
    if (rule_wants(call, 6))
        rule_give(call, 6, by[5]);
}

RULE(gru) {
    struct recurrent_attributes at;
    td_tensor *by[6] = {NULL, NULL, NULL, NULL, NULL, NULL};
    if (!check(call, 2))
        return;
    recurrent_attributes_read(&call->node->attributes, &at);
    if (step_by_step(call, 1, at.reverse))
        return;
    td_gru_grad(rule_gradient(call, 0), rule_gradient(call, 1), rule_input(call, 0), rule_input(call, 1),
                rule_input(call, 2), rule_input(call, 3), rule_output(call, 0), rule_output(call, 2), at.reverse,
                &by[0], &by[1], &by[2], &by[3], &by[4], &by[5]);
    give_all(call, 6, by);
}
