/* Rules of recurrent layers. They follow torch.nn.LSTM and GRU. */
#include <inttypes.h>

#include "proto/ops/op_rules.h"

/* The shapes of a layer, by what its inputs are. */
struct layer {
    const struct tensor_type *x, *h0, *w_ih, *w_hh;
    int64_t n, batch, in, hidden, gates;
};

static struct tensor_type shape_of(int rank, int64_t a, int64_t b, int64_t c) {
    return (struct tensor_type){.rank = rank, .shape = {a, b, c}};
}

static int check_is(const char *name, const struct tensor_type *is, const struct tensor_type *wanted,
                    const struct layer *layer, struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX], x[SHAPE_TEXT_MAX], h[SHAPE_TEXT_MAX];
    if (shape_equal(is, wanted)) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_SHAPE, "%s is %s, not %s; x is %s, h0 %s", name, shape_text(is, a),
                     shape_text(wanted, b), shape_text(layer->x, x), shape_text(layer->h0, h));
}

static int layer_make(struct layer *layer, int64_t gates, const struct tensor_type *x, const struct tensor_type *h0,
                      const struct tensor_type *w_ih, const struct tensor_type *w_hh, struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    *layer = (struct layer){.x = x, .h0 = h0, .w_ih = w_ih, .w_hh = w_hh, .gates = gates};
    if (x->rank != 3 || h0->rank != 2 || x->shape[2] < 1 || h0->shape[1] < 1 || h0->shape[0] != x->shape[1]) {
        return fault_set(fault, STATUS_SHAPE, "x %s, h0 %s: not (n, batch, in) and (batch, h) with in and h above 0",
                         shape_text(x, a), shape_text(h0, b));
    }
    layer->n = x->shape[0];
    layer->batch = x->shape[1];
    layer->in = x->shape[2];
    layer->hidden = h0->shape[1];
    int64_t rows;
    if (__builtin_mul_overflow(layer->hidden, 4, &rows)) {
        return fault_set(fault, STATUS_SHAPE, "h0 %s is too wide", shape_text(h0, a));
    }
    rows = gates * layer->hidden;
    struct tensor_type wanted_ih = shape_of(2, rows, layer->in, 0), wanted_hh = shape_of(2, rows, layer->hidden, 0);
    int status = check_is("w_ih", w_ih, &wanted_ih, layer, fault);
    return status == STATUS_OK ? check_is("w_hh", w_hh, &wanted_hh, layer, fault) : status;
}

/* Inputs from `first` on are the biases. */
static int check_biases(const struct op_call *call, unsigned first, const struct layer *layer, struct fault *fault) {
    struct tensor_type wanted = shape_of(1, layer->gates * layer->hidden, 0, 0);
    if (call->n_inputs == first + 1) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "b_ih is given, and b_hh is not");
    }
    int status = STATUS_OK;
    for (unsigned i = first; i < call->n_inputs && status == STATUS_OK; i++) {
        status = check_is(i == first ? "b_ih" : "b_hh", call->inputs[i], &wanted, layer, fault);
    }
    return status;
}

/* One of the shapes that belong to a layer. */
enum role { STATE, STEPS, GATES };

static struct tensor_type role_shape(const struct layer *layer, enum role role) {
    return role == STATE   ? shape_of(2, layer->batch, layer->hidden, 0)
           : role == STEPS ? shape_of(3, layer->n, layer->batch, layer->hidden)
                           : shape_of(3, layer->n, layer->batch, 4 * layer->hidden);
}

static void set_role(struct tensor_type *out, const struct layer *layer, enum role role) {
    struct tensor_type shape = role_shape(layer, role);
    op_copy_shape(out, &shape);
}

struct role_row {
    unsigned input;
    const char *name;
    enum role role;
};

static int check_roles(const struct op_call *call, const struct layer *layer, const struct role_row *rows, unsigned n,
                       struct fault *fault) {
    int status = STATUS_OK;
    for (unsigned i = 0; i < n && status == STATUS_OK; i++) {
        struct tensor_type wanted = role_shape(layer, rows[i].role);
        status = check_is(rows[i].name, call->inputs[rows[i].input], &wanted, layer, fault);
    }
    return status;
}

int op_rule_lstm(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    static const struct role_row rows[] = {{2, "c0", STATE}};
    const struct tensor_type *const *in = call->inputs;
    struct layer layer;
    int status = layer_make(&layer, 4, in[0], in[1], in[3], in[4], fault);
    if (status == STATUS_OK) {
        status = check_roles(call, &layer, rows, 1, fault);
    }
    if (status == STATUS_OK) {
        status = check_biases(call, 5, &layer, fault);
    }
    if (status == STATUS_OK) {
        set_role(&out[0], &layer, STEPS);
        set_role(&out[1], &layer, STATE);
        set_role(&out[2], &layer, STATE);
        set_role(&out[3], &layer, GATES);
        set_role(&out[4], &layer, STEPS);
    }
    return status;
}

int op_rule_gru(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *const *in = call->inputs;
    struct layer layer;
    int status = layer_make(&layer, 3, in[0], in[1], in[2], in[3], fault);
    if (status == STATUS_OK) {
        status = check_biases(call, 4, &layer, fault);
    }
    if (status == STATUS_OK) {
        set_role(&out[0], &layer, STEPS);
        set_role(&out[1], &layer, STATE);
        set_role(&out[2], &layer, GATES);
    }
    return status;
}

static void set_bias(struct tensor_type *out, const struct layer *layer) {
    struct tensor_type shape = shape_of(1, layer->gates * layer->hidden, 0, 0);
    op_copy_shape(out, &shape);
}

int op_rule_lstm_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    static const struct role_row rows[] = {{0, "grad_result", STEPS}, {1, "grad_h_n", STATE}, {2, "grad_c_n", STATE},
                                           {5, "c0", STATE},          {8, "result", STEPS},   {9, "gates", GATES},
                                           {10, "cells", STEPS}};
    const struct tensor_type *const *in = call->inputs;
    struct layer layer;
    int status = layer_make(&layer, 4, in[3], in[4], in[6], in[7], fault);
    if (status == STATUS_OK) {
        status = check_roles(call, &layer, rows, sizeof rows / sizeof *rows, fault);
    }
    if (status == STATUS_OK) {
        op_copy_shape(&out[0], layer.x);
        set_role(&out[1], &layer, STATE);
        set_role(&out[2], &layer, STATE);
        op_copy_shape(&out[3], layer.w_ih);
        op_copy_shape(&out[4], layer.w_hh);
        set_bias(&out[5], &layer);
    }
    return status;
}

int op_rule_gru_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    static const struct role_row rows[] = {
        {0, "grad_result", STEPS}, {1, "grad_h_n", STATE}, {6, "result", STEPS}, {7, "gates", GATES}};
    const struct tensor_type *const *in = call->inputs;
    struct layer layer;
    int status = layer_make(&layer, 3, in[2], in[3], in[4], in[5], fault);
    if (status == STATUS_OK) {
        status = check_roles(call, &layer, rows, sizeof rows / sizeof *rows, fault);
    }
    if (status == STATUS_OK) {
        op_copy_shape(&out[0], layer.x);
        set_role(&out[1], &layer, STATE);
        op_copy_shape(&out[2], layer.w_ih);
        op_copy_shape(&out[3], layer.w_hh);
        set_bias(&out[4], &layer);
        set_bias(&out[5], &layer);
    }
    return status;
}
