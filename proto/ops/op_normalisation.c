/* Rules of normalisations. They follow torch.nn.functional. */
#include <inttypes.h>

#include "proto/ops/op_rules.h"

/* ---- parts ---- */

static int check_epsilon(double epsilon, struct fault *fault) {
    return epsilon >= 0 && epsilon <= 1e30
               ? STATUS_OK
               : fault_set(fault, STATUS_INVALID_ARGUMENT, "epsilon is %g, not 0 to 1e30", epsilon);
}

/* Inputs from `first` on have this shape. */
static int check_factors(const struct op_call *call, unsigned first, const struct tensor_type *x,
                         const struct tensor_type *factors, struct fault *fault) {
    char is[SHAPE_TEXT_MAX], wants[SHAPE_TEXT_MAX], of[SHAPE_TEXT_MAX];
    for (unsigned i = first; i < call->n_inputs; i++) {
        if (!shape_equal(call->inputs[i], factors)) {
            return fault_set(fault, STATUS_SHAPE, "input %u is %s, not %s; x is %s", i, shape_text(call->inputs[i], is),
                             shape_text(factors, wants), shape_text(x, of));
        }
    }
    return STATUS_OK;
}

static int check_gradient(const struct op_call *call, struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    if (shape_equal(call->inputs[0], call->inputs[1])) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_SHAPE, "the gradient is %s, x %s", shape_text(call->inputs[0], a),
                     shape_text(call->inputs[1], b));
}

/* The channels, and that each has `least` elements. */
static int channels_of(const struct tensor_type *x, int64_t axis_given, int64_t least, struct tensor_type *channels,
                       struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    int axis;
    int status = shape_axis(axis_given, x->rank, &axis, fault);
    if (status != STATUS_OK) {
        return status;
    }
    *channels = (struct tensor_type){.dtype = x->dtype, .rank = 1, .shape = {x->shape[axis]}};
    int64_t elements = 1;
    for (int i = 0; i < x->rank; i++) {
        elements *= i == axis ? 1 : x->shape[i];
    }
    return elements >= least
               ? STATUS_OK
               : fault_set(fault, STATUS_SHAPE, "x %s: a channel has %" PRId64 " elements, and needs %" PRId64,
                           shape_text(x, text), elements, least);
}

static int rows_of(const struct tensor_type *x, int64_t axes, struct tensor_type *row, struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    if (axes < 1 || axes > x->rank) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "axes is %" PRId64 ", not 1 to x's rank of %d", axes, x->rank);
    }
    *row = (struct tensor_type){.dtype = x->dtype, .rank = (int)axes};
    for (int i = 0; i < row->rank; i++) {
        row->shape[i] = x->shape[x->rank - row->rank + i];
        if (row->shape[i] < 1) {
            return fault_set(fault, STATUS_SHAPE, "x %s has no elements on its last axes", shape_text(x, text));
        }
    }
    return STATUS_OK;
}

static int groups_of(const struct tensor_type *x, int64_t groups, struct tensor_type *channels, struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    if (x->rank < 2) {
        return fault_set(fault, STATUS_SHAPE, "x %s has no axis of channels", shape_text(x, text));
    }
    if (groups < 1 || x->shape[1] % groups != 0) {
        return fault_set(fault, groups < 1 ? STATUS_INVALID_ARGUMENT : STATUS_SHAPE,
                         "x %s: %" PRId64 " channels do not make %" PRId64 " groups", shape_text(x, text), x->shape[1],
                         groups);
    }
    for (int i = 1; i < x->rank; i++) {
        if (x->shape[i] < 1) {
            return fault_set(fault, STATUS_SHAPE, "x %s: a group has no elements", shape_text(x, text));
        }
    }
    *channels = (struct tensor_type){.dtype = x->dtype, .rank = 1, .shape = {x->shape[1]}};
    return STATUS_OK;
}

/* The gradients by x, weight and bias: `n` of them. */
static int set_gradients(const struct op_call *call, const struct tensor_type *factors, struct tensor_type *out,
                         unsigned n, struct fault *fault) {
    int status = check_gradient(call, fault);
    if (status == STATUS_OK) {
        status = check_factors(call, 2, call->inputs[1], factors, fault);
    }
    op_copy_shape(&out[0], call->inputs[1]);
    for (unsigned i = 1; i < n; i++) {
        op_copy_shape(&out[i], factors);
    }
    return status;
}

/* ---- rules ---- */

int op_rule_batch_norm(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct tensor_type channels = {.rank = 0};
    struct batch_norm_attributes given;
    batch_norm_attributes_read(call->attributes, &given);
    int status = channels_of(x, given.axis, 2, &channels, fault);
    if (status == STATUS_OK) {
        status = check_factors(call, 1, x, &channels, fault);
    }
    if (status == STATUS_OK && !(given.momentum >= 0 && given.momentum <= 1)) {
        status = fault_set(fault, STATUS_INVALID_ARGUMENT, "momentum is %g, not 0 to 1", given.momentum);
    }
    op_copy_shape(&out[0], x);
    op_copy_shape(&out[1], &channels);
    op_copy_shape(&out[2], &channels);
    return status == STATUS_OK ? check_epsilon(given.epsilon, fault) : status;
}

int op_rule_batch_norm_inference(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct tensor_type channels;
    struct channel_norm_attributes given;
    channel_norm_attributes_read(call->attributes, &given);
    int status = channels_of(call->inputs[0], given.axis, 0, &channels, fault);
    if (status == STATUS_OK) {
        status = check_factors(call, 1, call->inputs[0], &channels, fault);
    }
    op_copy_shape(out, call->inputs[0]);
    return status == STATUS_OK ? check_epsilon(given.epsilon, fault) : status;
}

int op_rule_batch_norm_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct tensor_type channels = {.rank = 0};
    struct channel_norm_attributes given;
    channel_norm_attributes_read(call->attributes, &given);
    int status = channels_of(call->inputs[1], given.axis, 1, &channels, fault);
    if (status == STATUS_OK) {
        status = set_gradients(call, &channels, out, 3, fault);
    }
    return status == STATUS_OK ? check_epsilon(given.epsilon, fault) : status;
}

int op_rule_row_norm(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct tensor_type row;
    struct row_norm_attributes given;
    row_norm_attributes_read(call->attributes, &given);
    int status = rows_of(call->inputs[0], given.axes, &row, fault);
    if (status == STATUS_OK) {
        status = check_factors(call, 1, call->inputs[0], &row, fault);
    }
    op_copy_shape(out, call->inputs[0]);
    return status == STATUS_OK ? check_epsilon(given.epsilon, fault) : status;
}

static int rule_row_grad(const struct op_call *call, struct tensor_type *out, unsigned n, struct fault *fault) {
    struct tensor_type row = {.rank = 0};
    struct row_norm_attributes given;
    row_norm_attributes_read(call->attributes, &given);
    int status = rows_of(call->inputs[1], given.axes, &row, fault);
    if (status == STATUS_OK) {
        status = set_gradients(call, &row, out, n, fault);
    }
    return status == STATUS_OK ? check_epsilon(given.epsilon, fault) : status;
}

int op_rule_row_norm_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_row_grad(call, out, 3, fault);
}
int op_rule_rms_norm_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_row_grad(call, out, 2, fault);
}

int op_rule_group_norm(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct tensor_type channels;
    struct group_norm_attributes given;
    group_norm_attributes_read(call->attributes, &given);
    int status = groups_of(call->inputs[0], given.groups, &channels, fault);
    if (status == STATUS_OK) {
        status = check_factors(call, 1, call->inputs[0], &channels, fault);
    }
    op_copy_shape(out, call->inputs[0]);
    return status == STATUS_OK ? check_epsilon(given.epsilon, fault) : status;
}

int op_rule_group_norm_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct tensor_type channels = {.rank = 0};
    struct group_norm_attributes given;
    group_norm_attributes_read(call->attributes, &given);
    int status = groups_of(call->inputs[1], given.groups, &channels, fault);
    if (status == STATUS_OK) {
        status = set_gradients(call, &channels, out, 3, fault);
    }
    return status == STATUS_OK ? check_epsilon(given.epsilon, fault) : status;
}
