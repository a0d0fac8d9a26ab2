/* What a launch of a loss computes. loss_formula.h has the formulas. */
#pragma once

#include <string.h>

#include "engine/device/launch.h"

/* The kernels: an operation, or a variant of one, with its numbers of inputs, which are x, the target, weight and pos_weight.
 * X(name, inputs): loss_NAME_f32() and loss_NAME_back_f32(), and those of f64. Of the ways with `target` the latter are gradients by
 * the target, in the order of the losses' ways from bce on. */
#define LOSS_WAYS(X)                                                                                                   \
    X(mse, 2)                                                                                                          \
    X(l1, 2)                                                                                                           \
    X(huber, 2)                                                                                                        \
    X(bce, 2) X(bce_weight, 3) X(bce_both, 4) X(kl, 2) X(kl_log, 2) X(bce_target, 2) X(bce_weight_target, 3)           \
        X(bce_both_target, 4) X(kl_target, 2) X(kl_log_target, 2)
enum loss_way {
#define LOSS_WAY(name, inputs) LOSS_WAY_##name,
    LOSS_WAYS(LOSS_WAY)
#undef LOSS_WAY
        LOSS_WAY_COUNT
};
enum { LOSS_INPUTS = 4 };

/* A loss of elements. `scale`: what the sum of the losses, or the gradient by the loss, is multiplied by. */
struct element_loss {
    enum loss_way way;
    enum op_reduction reduction;
    bool back;
    int64_t elements;
    double delta, scale;
    unsigned n_inputs; /* from x on */
    const struct operand *x, *gradient;
};

static inline struct element_loss element_loss_make(const struct launch *launch) {
    struct element_loss loss;
    struct reduced_attributes given; /* those of others begin with the reduction, too */
    reduced_attributes_read(&launch->attributes, &given);
    loss.back = launch->opcode == OP_MSE_LOSS_GRAD || launch->opcode == OP_L1_LOSS_GRAD ||
                launch->opcode == OP_HUBER_LOSS_GRAD || launch->opcode == OP_BCE_WITH_LOGITS_GRAD ||
                launch->opcode == OP_KL_DIV_GRAD || launch->opcode == OP_BCE_WITH_LOGITS_TARGET_GRAD ||
                launch->opcode == OP_KL_DIV_TARGET_GRAD;
    loss.reduction = given.reduction;
    loss.gradient = loss.back ? &launch->inputs[0] : NULL;
    loss.x = &launch->inputs[loss.back ? 1 : 0];
    loss.n_inputs = launch->n_inputs - (loss.back ? 1 : 0);
    loss.elements = 1;
    loss.delta = 0;
    for (int i = 0; i < loss.x->rank; i++)
        loss.elements *= loss.x->shape[i];
    loss.scale = loss.reduction == OP_REDUCTION_MEAN ? 1 / (double)loss.elements : 1;
    switch (launch->opcode) {
    case OP_MSE_LOSS:
    case OP_MSE_LOSS_GRAD:
        loss.way = LOSS_WAY_mse;
        break;
    case OP_L1_LOSS:
    case OP_L1_LOSS_GRAD:
        loss.way = LOSS_WAY_l1;
        break;
    case OP_HUBER_LOSS:
    case OP_HUBER_LOSS_GRAD:
        loss.way = LOSS_WAY_huber;
        loss.delta = launch->attributes.floats[0];
        break;
    case OP_KL_DIV:
    case OP_KL_DIV_GRAD:
    case OP_KL_DIV_TARGET_GRAD:
        loss.way = launch->attributes.ints[1] ? LOSS_WAY_kl_log : LOSS_WAY_kl;
        break;
    default:
        loss.way = loss.n_inputs == 4 ? LOSS_WAY_bce_both : loss.n_inputs == 3 ? LOSS_WAY_bce_weight : LOSS_WAY_bce;
        break;
    }
    if (launch->opcode == OP_BCE_WITH_LOGITS_TARGET_GRAD || launch->opcode == OP_KL_DIV_TARGET_GRAD)
        loss.way = (enum loss_way)(loss.way + LOSS_WAY_bce_target - LOSS_WAY_bce);
    return loss;
}

/* A loss of classes. The rows of scores are (outer, inner); each has `classes` scores, `inner` apart. */
struct class_loss {
    enum op_reduction reduction;
    bool back, soft, plain; /* the targets are probabilities; the scores are logarithms already */
    int64_t rows, classes, inner, ignored;
    double smoothing;
    const struct operand *scores, *gradient, *targets, *weight; /* NULL: there is none */
};

static inline struct class_loss class_loss_make(const struct launch *launch) {
    struct class_loss loss;
    memset(&loss, 0, sizeof loss);
    loss.back = launch->opcode == OP_CROSS_ENTROPY_GRAD || launch->opcode == OP_SOFT_CROSS_ENTROPY_GRAD ||
                launch->opcode == OP_NLL_LOSS_GRAD;
    const unsigned first = loss.back ? 1 : 0;
    loss.gradient = loss.back ? &launch->inputs[0] : NULL;
    loss.scores = &launch->inputs[first];
    loss.targets = &launch->inputs[first + 1];
    loss.weight = launch->n_inputs > first + 2 ? &launch->inputs[first + 2] : NULL;
    if (launch->opcode == OP_NLL_LOSS || launch->opcode == OP_NLL_LOSS_GRAD) {
        struct nll_loss_attributes given;
        nll_loss_attributes_read(&launch->attributes, &given);
        loss.plain = true;
        loss.reduction = given.reduction;
        loss.ignored = given.ignore_index;
    } else if (launch->opcode == OP_CROSS_ENTROPY || launch->opcode == OP_CROSS_ENTROPY_GRAD) {
        struct cross_entropy_attributes given;
        cross_entropy_attributes_read(&launch->attributes, &given);
        loss.reduction = given.reduction;
        loss.ignored = given.ignore_index;
        loss.smoothing = given.label_smoothing;
    } else {
        struct soft_cross_entropy_attributes given;
        soft_cross_entropy_attributes_read(&launch->attributes, &given);
        loss.soft = true;
        loss.reduction = given.reduction;
        loss.smoothing = given.label_smoothing;
    }
    const int axis = loss.scores->rank == 1 ? 0 : 1;
    loss.classes = loss.scores->shape[axis];
    loss.rows = loss.inner = 1;
    for (int i = 0; i < loss.scores->rank; i++) {
        loss.rows *= i == axis ? 1 : loss.scores->shape[i];
        loss.inner *= i > axis ? loss.scores->shape[i] : 1;
    }
    return loss;
}
