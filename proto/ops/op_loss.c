/* Rules of losses. They follow torch.nn.functional. */
#include <math.h>

#include "proto/ops/op_rules.h"

/* ---- losses of classes ---- */

/* The scores' shape without the axis of the classes. */
static int places_of(const struct tensor_type *scores, struct tensor_type *places, int64_t *classes,
                     struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    int axis = scores->rank == 1 ? 0 : 1;
    if (scores->rank == 0 || scores->shape[axis] < 1) {
        return fault_set(fault, STATUS_SHAPE, "scores %s have no classes", shape_text(scores, text));
    }
    *classes = scores->shape[axis];
    *places = (struct tensor_type){.rank = scores->rank - 1};
    for (int i = 0; i < places->rank; i++) {
        places->shape[i] = scores->shape[i < axis ? i : i + 1];
    }
    return STATUS_OK;
}

static int check_places(const struct tensor_type *scores, const struct tensor_type *places,
                        const struct tensor_type *other, const char *name, struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    if (shape_equal(places, other)) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_SHAPE, "scores %s, %s %s: not one for each place without the axis of the classes",
                     shape_text(scores, a), name, shape_text(other, b));
}

static int check_equal(const struct tensor_type *x, const char *x_name, const struct tensor_type *other,
                       const char *name, struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    if (shape_equal(x, other)) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_SHAPE, "%s %s, %s %s: they have one shape", x_name, shape_text(x, a), name,
                     shape_text(other, b));
}

/* The gradient by a loss has the loss' shape. */
static int check_gradient(const struct tensor_type *gradient, const struct tensor_type *losses, int64_t reduction,
                          struct fault *fault) {
    static const struct tensor_type one = {.rank = 0};
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    const struct tensor_type *wanted = reduction == OP_REDUCTION_NONE ? losses : &one;
    if (shape_equal(gradient, wanted)) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_SHAPE, "gradient %s: the loss is %s", shape_text(gradient, a),
                     shape_text(wanted, b));
}

static int check_smoothing(double smoothing, struct fault *fault) {
    return smoothing >= 0 && smoothing <= 1
               ? STATUS_OK
               : fault_set(fault, STATUS_INVALID_ARGUMENT, "label_smoothing is %g, not 0 to 1", smoothing);
}

/* What the rules of all losses of classes have in common. */
static int rule_classes(const struct op_call *call, bool back, bool soft, int64_t reduction, struct tensor_type *out,
                        struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    const struct tensor_type *const *inputs = call->inputs + back, *scores = inputs[0];
    struct tensor_type places;
    int64_t classes = 0;
    int status = places_of(scores, &places, &classes, fault);
    if (status == STATUS_OK) {
        status = soft ? check_equal(scores, "scores", inputs[1], "probabilities", fault)
                      : check_places(scores, &places, inputs[1], "targets", fault);
    }
    struct tensor_type weights = {.rank = 1, .shape = {classes}};
    if (status == STATUS_OK && call->n_inputs - back > 2 && !shape_equal(inputs[2], &weights)) {
        return fault_set(fault, STATUS_SHAPE, "scores %s, weight %s: not one number for each class",
                         shape_text(scores, a), shape_text(inputs[2], b));
    }
    if (status == STATUS_OK && back) {
        status = check_gradient(call->inputs[0], &places, reduction, fault);
    }
    if (status != STATUS_OK) {
        return status;
    }
    op_copy_shape(out, back ? scores : &places);
    if (!back && reduction != OP_REDUCTION_NONE) {
        out->rank = 0;
    }
    return STATUS_OK;
}

static int rule_indices(const struct op_call *call, bool back, struct tensor_type *out, struct fault *fault) {
    if (call->opcode == OP_NLL_LOSS || call->opcode == OP_NLL_LOSS_GRAD) {
        struct nll_loss_attributes given;
        nll_loss_attributes_read(call->attributes, &given);
        return rule_classes(call, back, false, given.reduction, out, fault);
    }
    struct cross_entropy_attributes given;
    cross_entropy_attributes_read(call->attributes, &given);
    int status = check_smoothing(given.label_smoothing, fault);
    return status == STATUS_OK ? rule_classes(call, back, false, given.reduction, out, fault) : status;
}

int op_rule_cross_entropy(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_indices(call, false, out, fault);
}

int op_rule_cross_entropy_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_indices(call, true, out, fault);
}

static int rule_probabilities(const struct op_call *call, bool back, struct tensor_type *out, struct fault *fault) {
    struct soft_cross_entropy_attributes given;
    soft_cross_entropy_attributes_read(call->attributes, &given);
    int status = check_smoothing(given.label_smoothing, fault);
    return status == STATUS_OK ? rule_classes(call, back, true, given.reduction, out, fault) : status;
}

int op_rule_soft_cross_entropy(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_probabilities(call, false, out, fault);
}

int op_rule_soft_cross_entropy_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_probabilities(call, true, out, fault);
}

/* ---- losses of elements ---- */

static int rule_elements(const struct op_call *call, bool back, struct tensor_type *out, struct fault *fault) {
    static const char *const names[] = {"weight", "pos_weight"};
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    const struct tensor_type *const *inputs = call->inputs + back, *x = inputs[0];
    struct reduced_attributes given; /* those of others begin with the reduction, too */
    reduced_attributes_read(call->attributes, &given);
    if (call->opcode == OP_HUBER_LOSS || call->opcode == OP_HUBER_LOSS_GRAD) {
        double delta = call->attributes->floats[0];
        if (!(delta > 0) || isinf(delta)) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "delta is %g, not a finite number above 0", delta);
        }
    }
    int status = check_equal(x, "x", inputs[1], "target", fault);
    for (unsigned i = 2; i + back < call->n_inputs && status == STATUS_OK; i++) {
        struct tensor_type both = {.rank = 0};
        if (shape_broadcast(&both, x, inputs[i], NULL) != STATUS_OK || !shape_equal(&both, x)) {
            return fault_set(fault, STATUS_SHAPE, "%s %s does not broadcast to x %s", names[i - 2],
                             shape_text(inputs[i], a), shape_text(x, b));
        }
    }
    if (status == STATUS_OK && back) {
        status = check_gradient(call->inputs[0], x, given.reduction, fault);
    }
    if (status != STATUS_OK) {
        return status;
    }
    op_copy_shape(out, x);
    if (!back && given.reduction != OP_REDUCTION_NONE) {
        out->rank = 0;
    }
    return STATUS_OK;
}

int op_rule_element_loss(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_elements(call, false, out, fault);
}

int op_rule_element_loss_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_elements(call, true, out, fault);
}
