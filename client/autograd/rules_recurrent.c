/* Rules of recurrent layers. A layer's gradient is an operation of its own, which makes it from what the layer has kept: states and gates. Its own
 * derivatives, and those by what was kept, go through the same steps made of ordinary operations. */
#include "client/autograd/rule.h"
#include "client/lib/error.h"
#include "proto/ops/cleanup.h"

#include <stdlib.h>

enum { GATES_MOST = 4, STATES_MOST = 2, OUTPUTS_MOST = 6 };

static void give_all(struct rule_call *call, unsigned count, td_tensor *const *gradients) {
    for (unsigned i = 0; i < count; i++)
        if (rule_wants(call, i))
            rule_give(call, i, gradients[i]);
}

/* Makes the outputs that have gradients again; what fails is NULL. In the dtype that operations compute in. */
typedef void steps_function(struct rule_call *call, bool reverse, td_tensor **ys);

/* Gives the gradients that go back through these steps. */
static void through_steps(struct rule_call *call, steps_function *run) {
    const struct tape_node *node = call->node;
    struct recurrent_attributes at;
    td_tensor *ys[OUTPUTS_MOST] = {NULL};
    struct tape *innermost = tape_innermost, *tape = tape_begin_internal(false);
    recurrent_attributes_read(&node->attributes, &at);
    call->failed |= !tape;
    if (tape)
        run(call, at.reverse, ys);
    for (unsigned i = 0; i < node->n_outputs && !call->failed; i++) {
        td_dtype dtype = (td_dtype)node->outputs[i].type.dtype;
        if (ys[i] && td_tensor_dtype(ys[i]) != dtype)
            ys[i] = td_cast(ys[i], dtype);
        call->failed |= call->g[i] && !ys[i];
    }
    if (!call->failed)
        rule_go_through(call, tape, node->n_outputs, ys);
    tape_end_until(innermost);
}

/* The place of step k, of those in the order of time. */
static int64_t place_of(int64_t k, int64_t steps, bool reverse) {
    return reverse ? steps - 1 - k : k;
}
static td_tensor *at_step(td_tensor *x, int64_t t) {
    return td_squeeze(td_slice(x, 0, t, t + 1, 1), TD_AXES(0));
}

/* A list with room for a tensor of each step, which the caller frees; NULL, with the error set, if there is no memory. */
static td_tensor **list_create(int64_t steps) {
    td_tensor **list = calloc((size_t)steps + 1, sizeof(td_tensor *));
    if (!list)
        error_set(STATUS_NO_HOST_MEMORY, "no memory for gradients");
    return list;
}

/* A block of the last axis for each gate, and back. */
static void gates_of(td_tensor *all, unsigned n, td_tensor **gates) {
    int64_t width = all ? td_tensor_shape(all)[td_tensor_rank(all) - 1] / n : 0;
    for (unsigned i = 0; i < n; i++)
        gates[i] = td_slice(all, -1, i * width, (i + 1) * width, 1);
}
static td_tensor *of_gates(td_tensor *a, td_tensor *b, td_tensor *c, td_tensor *d) {
    return td_concat((td_tensor *const[]){a, b, c, d}, d ? 4 : 3, -1);
}

/* ---- a layer step by step ---- */

struct layer {
    td_tensor *state[STATES_MOST]; /* h, and of an LSTM c */
    td_tensor *gates;              /* as the result has them */
};

static void lstm_step(struct layer *layer, td_tensor *a, td_tensor *q) {
    td_tensor *gate[GATES_MOST];
    gates_of(td_add(a, q), 4, gate);
    for (unsigned i = 0; i < 4; i++)
        gate[i] = i == 2 ? td_tanh(gate[i]) : td_sigmoid(gate[i]);
    layer->state[1] = td_add(td_multiply(gate[1], layer->state[1]), td_multiply(gate[0], gate[2]));
    layer->state[0] = td_multiply(gate[3], td_tanh(layer->state[1]));
    layer->gates = of_gates(gate[0], gate[1], gate[2], gate[3]);
}

/* n + z · (h - n) */
static void gru_step(struct layer *layer, td_tensor *a, td_tensor *q) {
    td_tensor *of_x[GATES_MOST], *of_h[GATES_MOST], *h = layer->state[0];
    gates_of(a, 3, of_x);
    gates_of(q, 3, of_h);
    td_tensor *reset = td_sigmoid(td_add(of_x[0], of_h[0])), *keep = td_sigmoid(td_add(of_x[1], of_h[1]));
    td_tensor *new = td_tanh(td_add(of_x[2], td_multiply(reset, of_h[2])));
    layer->state[0] = td_add(new, td_multiply(keep, td_subtract(h, new)));
    layer->gates = of_gates(reset, keep, new, of_h[2]);
}

/* Of at least one step. ys: the result, the last states, the gates, and of an LSTM the cells. */
static void run_layer(struct rule_call *call, bool reverse, unsigned n_states, td_tensor **ys) {
    int64_t steps = rule_type(call, 0)->shape[0];
    unsigned weights = 1 + n_states; /* the input from which on weights and biases are */
    struct layer layer;
    td_tensor *weight = rule_widen(rule_input(call, weights + 1)), *bias = rule_widen(rule_optional(call, weights + 3));
    td_tensor *a = td_linear(rule_widen(rule_input(call, 0)), rule_widen(rule_input(call, weights)),
                             rule_widen(rule_optional(call, weights + 2)), TD_ACTIVATION_NONE);
    CLEANUP(free) td_tensor **results = list_create(steps), **gates = list_create(steps), **cells = list_create(steps);
    if (!results || !gates || !cells)
        return;
    for (unsigned i = 0; i < n_states; i++)
        layer.state[i] = rule_widen(rule_input(call, 1 + i));
    for (int64_t k = 0; k < steps; k++) {
        int64_t t = place_of(k, steps, reverse);
        td_tensor *q = td_linear(layer.state[0], weight, bias, TD_ACTIVATION_NONE);
        (n_states == 2 ? lstm_step : gru_step)(&layer, at_step(a, t), q);
        results[t] = layer.state[0];
        gates[t] = layer.gates;
        cells[t] = layer.state[n_states - 1];
    }
    ys[0] = td_stack(results, (int)steps, 0);
    for (unsigned i = 0; i < n_states; i++)
        ys[1 + i] = layer.state[i];
    ys[1 + n_states] = td_stack(gates, (int)steps, 0);
    if (n_states == 2)
        ys[4] = td_stack(cells, (int)steps, 0);
}

static void lstm_steps(struct rule_call *call, bool reverse, td_tensor **ys) {
    run_layer(call, reverse, 2, ys);
}
static void gru_steps(struct rule_call *call, bool reverse, td_tensor **ys) {
    run_layer(call, reverse, 1, ys);
}

/* One gradient for both biases. */
RULE(lstm) {
    struct recurrent_attributes at;
    td_tensor *by[6] = {NULL, NULL, NULL, NULL, NULL, NULL};
    if ((call->g[3] || call->g[4]) && rule_type(call, 0)->shape[0]) {
        through_steps(call, lstm_steps);
        return;
    }
    recurrent_attributes_read(&call->node->attributes, &at);
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
    if (call->g[2] && rule_type(call, 0)->shape[0]) {
        through_steps(call, gru_steps);
        return;
    }
    recurrent_attributes_read(&call->node->attributes, &at);
    td_gru_grad(rule_gradient(call, 0), rule_gradient(call, 1), rule_input(call, 0), rule_input(call, 1),
                rule_input(call, 2), rule_input(call, 3), rule_output(call, 0), rule_output(call, 2), at.reverse,
                &by[0], &by[1], &by[2], &by[3], &by[4], &by[5]);
    give_all(call, 6, by);
}

/* ---- a layer's gradient step by step ---- */

/* Input i, as a tensor that the tape knows also if nothing is done with it. */
static td_tensor *taken(const struct rule_call *call, unsigned i) {
    const struct tensor_type *type = rule_type(call, i);
    return td_reshape(rule_widen(rule_input(call, i)), type->rank, type->shape);
}

/* The state before each step: `first`, and then the one after the step before. */
static td_tensor *states_before(td_tensor *first, td_tensor *after, bool reverse) {
    int64_t steps = after ? td_tensor_shape(after)[0] : 0;
    if (!steps)
        return after;
    td_tensor *others = reverse ? td_slice(after, 0, 1, steps, 1) : td_slice(after, 0, 0, steps - 1, 1);
    first = td_expand_dims(first, 0);
    return td_concat((td_tensor *const[]){reverse ? others : first, reverse ? first : others}, 2, 0);
}

/* The rows of all steps as one matrix. */
static td_tensor *as_rows(td_tensor *x) {
    const int64_t *shape = x ? td_tensor_shape(x) : NULL;
    return x ? td_reshape(x, TD_SHAPE(shape[0] * shape[1], shape[2])) : NULL;
}
/* The gradient by a weight whose products with x have the gradient g. */
static td_tensor *by_weight(td_tensor *g, td_tensor *x) {
    return td_matmul(td_transpose(as_rows(g)), as_rows(x));
}
static td_tensor *by_bias(td_tensor *g) {
    return td_sum(g, TD_AXES(0, 1), 0);
}

static td_tensor *one_minus(td_tensor *x) {
    return rule_shift(td_negative(x), 1);
}
/* The slopes of sigmoid and tanh where they have these values. */
static td_tensor *sigmoid_slope(td_tensor *value) {
    return td_multiply(value, one_minus(value));
}
static td_tensor *tanh_slope(td_tensor *value) {
    return one_minus(td_square(value));
}

/* With gh and gc the gradients by the states: gc += gh · o · (1 - tanh(c)²), what goes to the gates is gc · (g, c before, i) and gh · tanh(c), each by the
 * slope of its function, and gc · f goes to the step before. */
static void lstm_grad_steps(struct rule_call *call, bool reverse, td_tensor **ys) {
    enum { RESULT, H_N, C_N, X, H0, C0, W_IH, W_HH, RESULTS, GATES, CELLS };
    int64_t steps = rule_type(call, X)->shape[0];
    td_tensor *g_result = taken(call, RESULT), *gh = taken(call, H_N), *gc = taken(call, C_N), *gate[GATES_MOST];
    td_tensor *cells = taken(call, CELLS), *w_hh = taken(call, W_HH), *values = td_tanh(cells);
    td_tensor *before = states_before(taken(call, C0), cells, reverse);
    gates_of(taken(call, GATES), 4, gate);
    td_tensor *to_c = td_multiply(gate[3], tanh_slope(values));
    td_tensor *to_gates =
        of_gates(td_multiply(gate[2], sigmoid_slope(gate[0])), td_multiply(before, sigmoid_slope(gate[1])),
                 td_multiply(gate[0], tanh_slope(gate[2])), td_multiply(values, sigmoid_slope(gate[3])));
    CLEANUP(free) td_tensor **all = list_create(steps);
    if (!all)
        return;
    for (int64_t k = steps; k-- > 0;) {
        int64_t t = place_of(k, steps, reverse);
        gh = td_add(gh, at_step(g_result, t));
        gc = td_add(gc, td_multiply(gh, at_step(to_c, t)));
        all[t] = td_multiply(of_gates(gc, gc, gc, gh), at_step(to_gates, t));
        gc = td_multiply(gc, at_step(gate[1], t));
        gh = td_matmul(all[t], w_hh);
    }
    td_tensor *sums = steps ? td_stack(all, (int)steps, 0) : to_gates;
    ys[0] = td_matmul(sums, taken(call, W_IH));
    ys[1] = gh;
    ys[2] = gc;
    ys[3] = by_weight(sums, taken(call, X));
    ys[4] = by_weight(sums, states_before(taken(call, H0), taken(call, RESULTS), reverse));
    ys[5] = by_bias(sums);
}

RULE(lstm_grad) {
    through_steps(call, lstm_grad_steps);
}

/* With gh the gradient by the state: gh · (1 - z) goes to n, gh · (h before - n) to z, and what n's sum has, times q, to r, each by the slope of its
 * function; gh · z goes to the state before, besides what goes through q. */
static void gru_grad_steps(struct rule_call *call, bool reverse, td_tensor **ys) {
    enum { RESULT, H_N, X, H0, W_IH, W_HH, RESULTS, GATES };
    int64_t steps = rule_type(call, X)->shape[0];
    td_tensor *g_result = taken(call, RESULT), *gh = taken(call, H_N), *w_hh = taken(call, W_HH), *gate[GATES_MOST];
    td_tensor *before = states_before(taken(call, H0), taken(call, RESULTS), reverse);
    gates_of(taken(call, GATES), 4, gate);
    td_tensor *to_n = td_multiply(one_minus(gate[1]), tanh_slope(gate[2]));
    td_tensor *to_z = td_multiply(td_subtract(before, gate[2]), sigmoid_slope(gate[1]));
    td_tensor *to_r = td_multiply(td_multiply(to_n, gate[3]), sigmoid_slope(gate[0]));
    td_tensor *to_a = of_gates(to_r, to_z, to_n, NULL);
    td_tensor *to_q = of_gates(to_r, to_z, td_multiply(to_n, gate[0]), NULL);
    CLEANUP(free) td_tensor **all = list_create(steps);
    if (!all)
        return;
    for (int64_t k = steps; k-- > 0;) {
        int64_t t = place_of(k, steps, reverse);
        gh = all[t] = td_add(gh, at_step(g_result, t));
        td_tensor *by_q = td_multiply(of_gates(gh, gh, gh, NULL), at_step(to_q, t));
        gh = td_add(td_multiply(gh, at_step(gate[1], t)), td_matmul(by_q, w_hh));
    }
    td_tensor *states = steps ? td_stack(all, (int)steps, 0) : g_result;
    td_tensor *each = of_gates(states, states, states, NULL), *by_a = td_multiply(each, to_a);
    td_tensor *by_q = td_multiply(each, to_q);
    ys[0] = td_matmul(by_a, taken(call, W_IH));
    ys[1] = gh;
    ys[2] = by_weight(by_a, taken(call, X));
    ys[3] = by_weight(by_q, before);
    ys[4] = by_bias(by_a);
    ys[5] = by_bias(by_q);
}

RULE(gru_grad) {
    through_steps(call, gru_grad_steps);
}
