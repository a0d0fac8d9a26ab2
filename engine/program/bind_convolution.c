/* Convolutions: kernels see channels on axis 1, and for results of x's shape the weight of each group transposed; unless they take all
 * operands as they are (op_kernel.as_given). */
#include <string.h>

#include "engine/program/bind_dense.h"
#include "proto/ops/convolution.h"

/* The operands by their roles; the first output is one of them. */
struct roles {
    struct view *x, *weight, *y;
};

static struct roles convolution_roles(struct dense *dense) {
    struct view *out = &dense->out[0], *in = dense->in;
    switch (dense->step->request->opcode) {
    case OP_CONV:
        return (struct roles){.x = &in[0], .weight = &in[1], .y = out};
    case OP_CONV_GRAD_WEIGHT:
        return (struct roles){.x = &in[0], .weight = out, .y = &in[1]};
    default:
        return (struct roles){.x = out, .weight = &in[1], .y = &in[0]};
    }
}

/* [y's channels, x's of a group, kernel...] to [groups, x's of a group, y's of a group, kernel...]. */
static void weight_transpose(struct view *weight, int64_t groups) {
    for (int i = weight->rank; i > 1; i--) {
        weight->shape[i] = weight->shape[i - 1];
        weight->strides[i] = weight->strides[i - 1];
    }
    weight->rank++;
    weight->shape[1] = weight->shape[0] / groups;
    weight->strides[1] = weight->strides[0];
    weight->shape[0] = groups;
    weight->strides[0] = weight->shape[1] * weight->strides[1];
    dense_move_axis(weight, 1, 2);
}

/* Then, as it is contiguous, to [x's channels, y's of a group, kernel...]. */
static void weight_merge(struct dense *dense) {
    struct view *weight = convolution_roles(dense).weight;
    weight->shape[0] *= weight->shape[1];
    weight->rank--;
    memmove(&weight->shape[1], &weight->shape[2], (size_t)(weight->rank - 1) * sizeof *weight->shape);
    layout_contiguous(weight->rank, weight->shape, weight->strides);
}

static uint64_t convolution_weight(const struct step *step, const struct convolution *c) {
    double places = (double)c->batch * (double)convolution_volume(c->y), groups = (double)c->groups;
    double channels = (double)c->y_channels / groups;
    double depth = (double)c->x_channels / groups * (double)convolution_volume(c->kernel);
    enum dtype dtype = step->output->type.dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    return cost_product(&step->session->order->cost, dtype, false, groups, channels, places, depth);
}

int bind_convolution(struct step *step) {
    struct dense dense;
    struct convolution convolution;
    dense_begin(&dense, step);
    struct roles roles = convolution_roles(&dense);
    unsigned opcode = step->request->opcode;
    bool as_given = dense_kernel(step)->as_given;
    /* Only the attributes tell whether the channels are last. */
    convolution_make(&convolution, opcode, &step->request->attributes, roles.x->rank, roles.x->shape,
                     roles.weight->shape, roles.y->shape, false);
    if (convolution.channels_last && as_given) {
        convolution_make(&convolution, opcode, &step->request->attributes, roles.x->rank, roles.x->shape,
                         roles.weight->shape, roles.y->shape, true);
    } else if (convolution.channels_last) {
        dense_move_axis(roles.x, roles.x->rank - 1, 1);
        dense_move_axis(roles.y, roles.y->rank - 1, 1);
        convolution_make(&convolution, opcode, &step->request->attributes, roles.x->rank, roles.x->shape,
                         roles.weight->shape, roles.y->shape, false);
    }
    if (roles.x == &dense.out[0] && !as_given) {
        weight_transpose(roles.weight, convolution.groups);
        dense.merge = weight_merge;
    }
    return dense_push(&dense, convolution_weight(step, &convolution));
}
