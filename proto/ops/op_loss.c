/* Rules of losses. They follow torch.nn.functional. */
#include "proto/ops/op_rules.h"

/* Targets, and gradients by losses, have the shape of the scores without the axis of the classes. */
static int check_places(const struct tensor_type *scores, const struct tensor_type *other, const char *name,
                        struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    int axis = scores->rank == 1 ? 0 : 1;
    if (scores->rank == 0 || scores->shape[axis] < 1) {
        return fault_set(fault, STATUS_SHAPE, "scores %s have no classes", shape_text(scores, a));
    }
    struct tensor_type wanted = {.rank = scores->rank - 1};
    for (int i = 0; i < wanted.rank; i++) {
        wanted.shape[i] = scores->shape[i < axis ? i : i + 1];
    }
    if (shape_equal(&wanted, other)) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_SHAPE, "scores %s, %s %s: not one for each place without the axis of the classes",
                     shape_text(scores, a), name, shape_text(other, b));
}

static int check_smoothing(const struct op_call *call, struct fault *fault) {
    struct cross_entropy_attributes given;
    cross_entropy_attributes_read(call->attributes, &given);
    if (given.label_smoothing >= 0 && given.label_smoothing <= 1) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "label_smoothing is %g, not 0 to 1", given.label_smoothing);
}

int op_rule_cross_entropy(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    op_copy_shape(out, call->inputs[1]);
    int status = check_places(call->inputs[0], call->inputs[1], "targets", fault);
    return status == STATUS_OK ? check_smoothing(call, fault) : status;
}

int op_rule_cross_entropy_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    op_copy_shape(out, call->inputs[1]);
    int status = check_places(call->inputs[1], call->inputs[2], "targets", fault);
    if (status == STATUS_OK) {
        status = check_places(call->inputs[1], call->inputs[0], "gradient", fault);
    }
    return status == STATUS_OK ? check_smoothing(call, fault) : status;
}
