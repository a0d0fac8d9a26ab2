/* The formulas of optimisers, for one element: the same text for the CPU's loops and for CUDA's kernels. For a device, OPTIMISER_FUNCTION is
 * defined before. */
#pragma once

#include <math.h>

#include "engine/device/launch.h"

#ifndef OPTIMISER_FUNCTION
#define OPTIMISER_FUNCTION static inline
#endif

/* The kernels: an operation, or a variant of one, with its numbers of inputs. X(name, inputs): optimiser_NAME_f32() and …_f64(). */
#define OPTIMISER_WAYS(X) X(descent, 2) X(momentum, 3) X(adam, 4) X(adamw, 4) X(rmsprop, 3) X(adagrad, 3) X(average, 2)
enum optimiser_way {
#define OPTIMISER_WAY(name, inputs) OPTIMISER_WAY_##name,
    OPTIMISER_WAYS(OPTIMISER_WAY)
#undef OPTIMISER_WAY
        OPTIMISER_WAY_COUNT
};
enum { OPTIMISER_INPUTS = 4, OPTIMISER_OUTPUTS = 3 };

/* The factors of a step: of its attributes, what the formulas multiply by. */
#define OPTIMISER_FACTORS(X) X(rate) X(beta1) X(beta2) X(rest1) X(rest2) X(epsilon) X(decay) X(root) X(ahead) X(own)
struct optimiser_f64 {
#define OPTIMISER_FACTOR(name) double name;
    OPTIMISER_FACTORS(OPTIMISER_FACTOR)
#undef OPTIMISER_FACTOR
};
struct optimiser_f32 {
#define OPTIMISER_FACTOR(name) float name;
    OPTIMISER_FACTORS(OPTIMISER_FACTOR)
#undef OPTIMISER_FACTOR
};

static inline struct optimiser_f32 optimiser_narrow(const struct optimiser_f64 *from) {
    struct optimiser_f32 to;
#define OPTIMISER_FACTOR(name) to.name = (float)from->name;
    OPTIMISER_FACTORS(OPTIMISER_FACTOR)
#undef OPTIMISER_FACTOR
    return to;
}

/* `rest`: 1 - beta. `root`: what √second is multiplied by. */
static inline void optimiser_adam_factors(struct optimiser_f64 *f, int64_t step, double rate, double beta1,
                                          double beta2, double epsilon) {
    f->rate = rate / (1 - pow(beta1, (double)step));
    f->beta1 = beta1;
    f->beta2 = beta2;
    f->rest1 = 1 - beta1;
    f->rest2 = 1 - beta2;
    f->epsilon = epsilon;
    f->root = 1 / sqrt(1 - pow(beta2, (double)step));
}

/* The way of a launch, and its factors. */
static inline enum optimiser_way optimiser_make(const struct launch *launch, struct optimiser_f64 *f) {
    memset(f, 0, sizeof *f);
    if (launch->opcode == OP_SGD) {
        struct sgd_attributes given;
        sgd_attributes_read(&launch->attributes, &given);
        f->rate = given.rate;
        f->beta1 = given.momentum;
        f->decay = given.weight_decay;
        f->ahead = given.nesterov ? 1 : 0;
        f->own = given.nesterov ? given.momentum : 1;
        return launch->n_inputs == 3 ? OPTIMISER_WAY_momentum : OPTIMISER_WAY_descent;
    }
    if (launch->opcode == OP_ADAM) {
        struct adam_attributes given;
        adam_attributes_read(&launch->attributes, &given);
        optimiser_adam_factors(f, given.step, given.rate, given.beta1, given.beta2, given.epsilon);
        f->decay = given.weight_decay;
        return OPTIMISER_WAY_adam;
    }
    if (launch->opcode == OP_ADAMW) {
        struct adamw_attributes given;
        adamw_attributes_read(&launch->attributes, &given);
        optimiser_adam_factors(f, given.step, given.rate, given.beta1, given.beta2, given.epsilon);
        f->decay = 1 - given.rate * given.weight_decay;
        return OPTIMISER_WAY_adamw;
    }
    if (launch->opcode == OP_RMSPROP) {
        struct rmsprop_attributes given;
        rmsprop_attributes_read(&launch->attributes, &given);
        f->rate = given.rate;
        f->beta2 = given.alpha;
        f->rest2 = 1 - given.alpha;
        f->epsilon = given.epsilon;
        f->decay = given.weight_decay;
        return OPTIMISER_WAY_rmsprop;
    }
    if (launch->opcode == OP_ADAGRAD) {
        struct adagrad_attributes given;
        adagrad_attributes_read(&launch->attributes, &given);
        f->rate = given.rate;
        f->epsilon = given.epsilon;
        f->decay = given.weight_decay;
        return OPTIMISER_WAY_adagrad;
    }
    struct moving_average_attributes given;
    moving_average_attributes_read(&launch->attributes, &given);
    f->beta1 = given.decay;
    f->rest1 = 1 - given.decay;
    return OPTIMISER_WAY_average;
}

/* x[0] is the parameter, x[1] its gradient, x[2] and x[3] its state; y[0] the new parameter, then its state. */
#define OPTIMISER_STEPS(name, T, root_of)                                                                              \
    OPTIMISER_FUNCTION void optimiser_descent_##name(const struct optimiser_##name *f, const T *x, T *y) {             \
        y[0] = x[0] - f->rate * (x[1] + f->decay * x[0]);                                                              \
    }                                                                                                                  \
    OPTIMISER_FUNCTION void optimiser_momentum_##name(const struct optimiser_##name *f, const T *x, T *y) {            \
        const T g = x[1] + f->decay * x[0];                                                                            \
        y[1] = f->beta1 * x[2] + g;                                                                                    \
        y[0] = x[0] - f->rate * (f->ahead * g + f->own * y[1]);                                                        \
    }                                                                                                                  \
    OPTIMISER_FUNCTION void optimiser_moments_##name(const struct optimiser_##name *f, const T *x, T p, T g, T *y) {   \
        y[1] = f->beta1 * x[2] + f->rest1 * g;                                                                         \
        y[2] = f->beta2 * x[3] + f->rest2 * g * g;                                                                     \
        y[0] = p - f->rate * y[1] / (root_of(y[2]) * f->root + f->epsilon);                                            \
    }                                                                                                                  \
    OPTIMISER_FUNCTION void optimiser_adam_##name(const struct optimiser_##name *f, const T *x, T *y) {                \
        optimiser_moments_##name(f, x, x[0], x[1] + f->decay * x[0], y);                                               \
    }                                                                                                                  \
    OPTIMISER_FUNCTION void optimiser_adamw_##name(const struct optimiser_##name *f, const T *x, T *y) {               \
        optimiser_moments_##name(f, x, x[0] * f->decay, x[1], y);                                                      \
    }                                                                                                                  \
    OPTIMISER_FUNCTION void optimiser_rmsprop_##name(const struct optimiser_##name *f, const T *x, T *y) {             \
        const T g = x[1] + f->decay * x[0];                                                                            \
        y[1] = f->beta2 * x[2] + f->rest2 * g * g;                                                                     \
        y[0] = x[0] - f->rate * g / (root_of(y[1]) + f->epsilon);                                                      \
    }                                                                                                                  \
    OPTIMISER_FUNCTION void optimiser_adagrad_##name(const struct optimiser_##name *f, const T *x, T *y) {             \
        const T g = x[1] + f->decay * x[0];                                                                            \
        y[1] = x[2] + g * g;                                                                                           \
        y[0] = x[0] - f->rate * g / (root_of(y[1]) + f->epsilon);                                                      \
    }                                                                                                                  \
    OPTIMISER_FUNCTION void optimiser_average_##name(const struct optimiser_##name *f, const T *x, T *y) {             \
        y[0] = f->beta1 * x[0] + f->rest1 * x[1];                                                                      \
    }
OPTIMISER_STEPS(f32, float, sqrtf)
OPTIMISER_STEPS(f64, double, sqrt)
