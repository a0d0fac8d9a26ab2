/* Optimisers: the formulas of the papers, for one element of one result. */
#include <math.h>

#include "tests/device/reference.h"

/* One element of a parameter, its gradient and its state, and what becomes of them: [0] the parameter, then the state. */
struct element {
    long double x[4], y[3], scale;
};

static void step_sgd(const struct op_attributes *given, struct element *e) {
    struct sgd_attributes a;
    sgd_attributes_read(given, &a);
    long double g = e->x[1] + (long double)a.weight_decay * e->x[0];
    e->y[1] = (long double)a.momentum * e->x[2] + g;
    long double by = a.momentum == 0 ? g : a.nesterov ? g + (long double)a.momentum * e->y[1] : e->y[1];
    e->y[0] = e->x[0] - (long double)a.rate * by;
}

static void step_adam(struct element *e, long double p, long double g, int64_t step, long double rate, long double b1,
                      long double b2, long double epsilon) {
    e->y[1] = b1 * e->x[2] + (1 - b1) * g;
    e->y[2] = b2 * e->x[3] + (1 - b2) * g * g;
    long double first = e->y[1] / (1 - powl(b1, (long double)step)),
                second = e->y[2] / (1 - powl(b2, (long double)step));
    e->y[0] = p - rate * first / (sqrtl(second) + epsilon);
}

static void step_squares(struct element *e, long double g, long double keep, long double add, long double rate,
                         long double epsilon) {
    e->y[1] = keep * e->x[2] + add * g * g;
    e->y[0] = e->x[0] - rate * g / (sqrtl(e->y[1]) + epsilon);
}

static void step_run(unsigned opcode, const struct op_attributes *given, struct element *e) {
    if (opcode == OP_SGD) {
        step_sgd(given, e);
    } else if (opcode == OP_ADAM) {
        struct adam_attributes a;
        adam_attributes_read(given, &a);
        step_adam(e, e->x[0], e->x[1] + (long double)a.weight_decay * e->x[0], a.step, a.rate, a.beta1, a.beta2,
                  a.epsilon);
    } else if (opcode == OP_ADAMW) {
        struct adamw_attributes a;
        adamw_attributes_read(given, &a);
        step_adam(e, e->x[0] - (long double)a.rate * (long double)a.weight_decay * e->x[0], e->x[1], a.step, a.rate,
                  a.beta1, a.beta2, a.epsilon);
    } else if (opcode == OP_RMSPROP) {
        struct rmsprop_attributes a;
        rmsprop_attributes_read(given, &a);
        step_squares(e, e->x[1] + (long double)a.weight_decay * e->x[0], a.alpha, 1 - (long double)a.alpha, a.rate,
                     a.epsilon);
    } else if (opcode == OP_ADAGRAD) {
        struct adagrad_attributes a;
        adagrad_attributes_read(given, &a);
        step_squares(e, e->x[1] + (long double)a.weight_decay * e->x[0], 1, 1, a.rate, a.epsilon);
    } else {
        struct moving_average_attributes a;
        moving_average_attributes_read(given, &a);
        e->y[0] = (long double)a.decay * e->x[0] + (1 - (long double)a.decay) * e->x[1];
    }
}

static unsigned lists_of(const struct reference_request *r) {
    struct sgd_attributes sgd;
    if (r->opcode == OP_SGD) {
        sgd_attributes_read(&r->attributes, &sgd);
        return sgd.momentum == 0 ? 2 : 3;
    }
    return r->opcode == OP_ADAM || r->opcode == OP_ADAMW ? 4 : r->opcode == OP_MOVING_AVERAGE ? 2 : 3;
}

struct values *reference_optimiser(const struct reference_request *r) {
    unsigned lists = lists_of(r), n = r->n_inputs / lists, number = r->output % n, which = r->output / n;
    const struct values *parameter = r->inputs[number];
    struct values *out = values_create(parameter->dtype, parameter->rank, parameter->shape);
    values_scaled(out, 4);
    for (int64_t k = 0; k < out->count; k++) {
        struct element e = {.scale = 1};
        for (unsigned list = 0; list < lists; list++) {
            e.x[list] = r->inputs[list * n + number]->f[k];
            e.scale += fabsl(e.x[list]);
        }
        step_run(r->opcode, &r->attributes, &e);
        out->f[k] = value_round(out->dtype, e.y[which]);
        out->scale[k] = e.scale + fabsl(e.y[0]);
    }
    return out;
}
