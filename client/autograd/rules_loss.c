/* Rules of losses, and of their gradients, which are what second derivatives go through. */
#include "client/autograd/rule.h"

/* ---- losses of elements ---- */

/* As much of x as one element of input i has of the loss. */
static td_tensor *share(const struct rule_call *call, unsigned i, enum op_reduction reduction, td_tensor *x) {
    const struct tensor_type *type = rule_type(call, i);
    double n = 1;
    for (int axis = 0; axis < type->rank && reduction == OP_REDUCTION_MEAN; axis++)
        n *= (double)type->shape[axis];
    return rule_scale(x, 1 / n);
}

/* Of a gradient operation: ones in the place of the gradient, input 0. It is linear in that. */
static td_tensor *ones(const struct rule_call *call) {
    const struct tensor_type *type = rule_type(call, 0);
    return td_full(call->node->device, (td_dtype)type->dtype, type->rank, type->shape, 1);
}

/* Of a gradient operation: the gradient of its result times input 0, and each element's share of it. */
static td_tensor *product(const struct rule_call *call, enum op_reduction reduction) {
    return share(call, 1, reduction, td_multiply(call->g[0], rule_input(call, 0)));
}

static void give_product(struct rule_call *call, td_tensor *slope) {
    if (rule_wants(call, 0))
        rule_give(call, 0, td_multiply(call->g[0], slope));
}

/* `gradient` to input i, and with the sign changed to the one behind it. */
static void give_difference(struct rule_call *call, unsigned i, td_tensor *gradient) {
    if (rule_wants(call, i + 1))
        rule_give(call, i + 1, td_negative(gradient));
    if (rule_wants(call, i))
        rule_give(call, i, gradient);
}

static enum op_reduction reduction_of(const struct rule_call *call) {
    struct reduced_attributes attributes;
    reduced_attributes_read(&call->node->attributes, &attributes);
    return attributes.reduction;
}

RULE(mse_loss) {
    td_tensor *x = rule_input(call, 0), *target = rule_input(call, 1);
    give_difference(call, 0, td_mse_loss_grad(call->g[0], x, target, (td_reduction)reduction_of(call)));
}

RULE(mse_loss_grad) {
    enum op_reduction reduction = reduction_of(call);
    if (rule_wants(call, 0))
        give_product(call,
                     td_mse_loss_grad(ones(call), rule_input(call, 1), rule_input(call, 2), (td_reduction)reduction));
    if (rule_wants(call, 1) || rule_wants(call, 2))
        give_difference(call, 1, rule_scale(product(call, reduction), 2));
}

RULE(l1_loss) {
    td_tensor *x = rule_input(call, 0), *target = rule_input(call, 1);
    give_difference(call, 0, td_l1_loss_grad(call->g[0], x, target, (td_reduction)reduction_of(call)));
}

/* By x and the target it is 0. */
RULE(l1_loss_grad) {
    td_tensor *x = rule_input(call, 1), *target = rule_input(call, 2);
    if (rule_wants(call, 0))
        give_product(call, td_l1_loss_grad(ones(call), x, target, (td_reduction)reduction_of(call)));
}

RULE(huber_loss) {
    struct huber_loss_attributes attributes;
    td_tensor *x = rule_input(call, 0), *target = rule_input(call, 1);
    huber_loss_attributes_read(&call->node->attributes, &attributes);
    give_difference(call, 0,
                    td_huber_loss_grad(call->g[0], x, target, (td_reduction)attributes.reduction, attributes.delta));
}

RULE(huber_loss_grad) {
    struct huber_loss_attributes attributes;
    td_tensor *x = rule_input(call, 1), *target = rule_input(call, 2);
    huber_loss_attributes_read(&call->node->attributes, &attributes);
    if (rule_wants(call, 0))
        give_product(call,
                     td_huber_loss_grad(ones(call), x, target, (td_reduction)attributes.reduction, attributes.delta));
    if (rule_wants(call, 1) || rule_wants(call, 2)) {
        td_tensor *distance = td_abs(td_subtract(x, target)), *all = product(call, attributes.reduction);
        td_tensor *inside = td_less(distance, rule_number(distance, attributes.delta));
        give_difference(call, 1, td_where(inside, all, rule_number(all, 0)));
    }
}

/* ---- the binary cross-entropy ---- */

static td_tensor *times(td_tensor *x, td_tensor *optional) {
    return optional ? td_multiply(x, optional) : x;
}

/* A pos_weight needs a weight: one that changes nothing. */
static td_tensor *no_weight(td_tensor *x, td_tensor *pos_weight) {
    return pos_weight ? rule_number(x, 1) : NULL;
}

/* log(1 + e^-x) */
static td_tensor *softplus_of_negative(td_tensor *x) {
    return td_logaddexp(td_negative(x), rule_number(x, 0));
}

/* 1 + (pos_weight - 1) · target; NULL: 1 */
static td_tensor *sigmoid_factor(td_tensor *target, td_tensor *pos_weight) {
    return pos_weight ? rule_shift(td_multiply(rule_shift(pos_weight, -1), target), 1) : NULL;
}

RULE(bce_with_logits) {
    td_reduction reduction = (td_reduction)reduction_of(call);
    td_tensor *g = call->g[0], *x = rule_input(call, 0), *target = rule_input(call, 1);
    td_tensor *weight = rule_optional(call, 2), *pos_weight = rule_optional(call, 3);
    if (rule_wants(call, 0))
        rule_give(call, 0, td_bce_with_logits_grad(g, x, target, weight, pos_weight, reduction));
    if (rule_wants(call, 1))
        rule_give(call, 1, td_bce_with_logits_target_grad(g, x, target, weight, pos_weight, reduction));
    if (!rule_wants(call, 2) && !rule_wants(call, 3))
        return;
    td_tensor *all = share(call, 0, (enum op_reduction)reduction, g);
    if (rule_wants(call, 2)) {
        td_tensor *losses = td_bce_with_logits(x, target, no_weight(x, pos_weight), pos_weight, TD_REDUCTION_NONE);
        rule_give(call, 2, td_multiply(all, losses));
    }
    if (rule_wants(call, 3))
        rule_give(call, 3, td_multiply(td_multiply(all, weight), td_multiply(target, softplus_of_negative(x))));
}

RULE(bce_with_logits_grad) {
    td_reduction reduction = (td_reduction)reduction_of(call);
    td_tensor *x = rule_input(call, 1), *target = rule_input(call, 2), *s = td_sigmoid(x);
    td_tensor *weight = rule_optional(call, 3), *pos_weight = rule_optional(call, 4);
    td_tensor *all = times(product(call, (enum op_reduction)reduction), weight);
    if (rule_wants(call, 0))
        give_product(call, td_bce_with_logits_grad(ones(call), x, target, weight, pos_weight, reduction));
    if (rule_wants(call, 1)) {
        td_tensor *slope = times(td_subtract(s, td_square(s)), sigmoid_factor(target, pos_weight));
        rule_give(call, 1, td_multiply(all, slope));
    }
    if (rule_wants(call, 2)) {
        td_tensor *slope = pos_weight ? td_subtract(td_multiply(rule_shift(pos_weight, -1), s), pos_weight) : NULL;
        rule_give(call, 2, slope ? td_multiply(all, slope) : td_negative(all));
    }
    if (rule_wants(call, 3)) {
        td_tensor *none = no_weight(x, pos_weight);
        td_tensor *slope = td_bce_with_logits_grad(rule_input(call, 0), x, target, none, pos_weight, reduction);
        rule_give(call, 3, td_multiply(call->g[0], slope));
    }
    if (rule_wants(call, 4))
        rule_give(call, 4, td_multiply(td_multiply(all, target), rule_shift(s, -1)));
}

/* The target itself does not matter. */
RULE(bce_with_logits_target_grad) {
    td_reduction reduction = (td_reduction)reduction_of(call);
    td_tensor *x = rule_input(call, 1), *target = rule_input(call, 2);
    td_tensor *weight = rule_optional(call, 3), *pos_weight = rule_optional(call, 4);
    td_tensor *all = times(product(call, (enum op_reduction)reduction), weight);
    if (rule_wants(call, 0))
        give_product(call, td_bce_with_logits_target_grad(ones(call), x, target, weight, pos_weight, reduction));
    if (rule_wants(call, 1)) {
        td_tensor *falls = rule_shift(td_sigmoid(x), -1); /* the derivative of log(1 + e^-x) */
        td_tensor *slope = pos_weight ? rule_shift(td_multiply(rule_shift(pos_weight, -1), falls), -1) : NULL;
        rule_give(call, 1, slope ? td_multiply(all, slope) : td_negative(all));
    }
    if (rule_wants(call, 3)) {
        td_tensor *none = no_weight(x, pos_weight);
        td_tensor *slope = td_bce_with_logits_target_grad(rule_input(call, 0), x, target, none, pos_weight, reduction);
        rule_give(call, 3, td_multiply(call->g[0], slope));
    }
    if (rule_wants(call, 4))
        rule_give(call, 4, td_multiply(all, softplus_of_negative(x)));
}

/* ---- Kullback and Leibler's divergence ---- */

static struct kl_div_attributes kl_div_of(const struct rule_call *call) {
    struct kl_div_attributes attributes;
    kl_div_attributes_read(&call->node->attributes, &attributes);
    return attributes;
}

RULE(kl_div) {
    struct kl_div_attributes attributes = kl_div_of(call);
    td_reduction reduction = (td_reduction)attributes.reduction;
    td_tensor *g = call->g[0], *x = rule_input(call, 0), *target = rule_input(call, 1);
    if (rule_wants(call, 0))
        rule_give(call, 0, td_kl_div_grad(g, x, target, reduction, attributes.log_target));
    if (rule_wants(call, 1))
        rule_give(call, 1, td_kl_div_target_grad(g, x, target, reduction, attributes.log_target));
}

/* -gradient · target, or the exponential of a target that is a logarithm. */
RULE(kl_div_grad) {
    struct kl_div_attributes attributes = kl_div_of(call);
    td_tensor *p = rule_input(call, 2);
    if (attributes.log_target)
        p = td_exp(p);
    if (rule_wants(call, 0))
        rule_give(call, 0, td_negative(td_multiply(share(call, 1, attributes.reduction, call->g[0]), p)));
    if (rule_wants(call, 2)) {
        td_tensor *all = td_negative(product(call, attributes.reduction));
        rule_give(call, 2, attributes.log_target ? td_multiply(all, p) : all);
    }
}

/* gradient · (log(target) + 1 - x), 0 where the target is 0; or, of a logarithm, gradient · exp(target) · (target - x + 1). */
RULE(kl_div_target_grad) {
    struct kl_div_attributes attributes = kl_div_of(call);
    td_tensor *x = rule_input(call, 1), *target = rule_input(call, 2), *all = product(call, attributes.reduction);
    if (rule_wants(call, 0)) {
        td_reduction reduction = (td_reduction)attributes.reduction;
        give_product(call, td_kl_div_target_grad(ones(call), x, target, reduction, attributes.log_target));
    }
    if (attributes.log_target)
        all = td_multiply(all, td_exp(target));
    else
        all = td_where(td_equal(target, rule_number(target, 0)), rule_number(all, 0), all);
    if (rule_wants(call, 1))
        rule_give(call, 1, td_negative(all));
    if (rule_wants(call, 2) && attributes.log_target)
        rule_give(call, 2, td_multiply(all, rule_shift(td_subtract(target, x), 2)));
    else if (rule_wants(call, 2)) {
        td_tensor *flat = td_equal(target, rule_number(target, 0));
        rule_give(call, 2, td_divide(all, td_where(flat, rule_number(target, 1), target)));
    }
}

/* ---- losses of classes ---- */

/* What a loss of classes has: `scores` is the number of that input, and the targets, or probabilities, and the weights are the next ones. With the
 * names of td_cross_entropy()'s contract, a loss is -Σ a · l, in which l are logarithms of probabilities, a = w · share, and `share` is
 * (1 - s) · [class is target] + s/C. */
struct classes {
    const struct rule_call *call;
    unsigned scores;
    enum op_reduction reduction;
    double smoothing;
    bool hard; /* targets, not probabilities */
    int64_t ignore_index;
};

static const struct tensor_type *scores_type(const struct classes *of) {
    return rule_type(of->call, of->scores);
}
static int class_axis(const struct classes *of) {
    return scores_type(of)->rank > 1;
}
static int64_t class_count(const struct classes *of) {
    return scores_type(of)->shape[class_axis(of)];
}

/* Of the shape of the targets, or rank 0: as a tensor that broadcasts against the scores. */
static td_tensor *by_targets(const struct classes *of, td_tensor *x) {
    int64_t shape[TD_RANK_MAX];
    int rank = scores_type(of)->rank;
    if (!x || !td_tensor_rank(x))
        return x;
    for (int i = 0; i < rank; i++)
        shape[i] = i == class_axis(of) ? 1 : scores_type(of)->shape[i];
    return td_reshape(x, rank, shape);
}

/* The same of the shape (classes). */
static td_tensor *by_classes(const struct classes *of, td_tensor *x) {
    int64_t shape[TD_RANK_MAX];
    int rank = scores_type(of)->rank - class_axis(of);
    for (int i = 0; i < rank; i++)
        shape[i] = i ? 1 : class_count(of);
    return x ? td_reshape(x, rank, shape) : NULL;
}

/* Of the shape of the scores, added up for each class. */
static td_tensor *sum_of_classes(const struct classes *of, td_tensor *x) {
    int64_t axes[TD_RANK_MAX];
    int count = 0;
    for (int i = 0; i < scores_type(of)->rank; i++)
        if (i != class_axis(of))
            axes[count++] = i;
    return count ? td_sum(x, count, axes, 0) : x;
}

static td_tensor *weights_of(const struct classes *of) {
    return by_classes(of, rule_optional(of->call, of->scores + 2));
}

static td_tensor *targets_of(const struct classes *of) {
    return td_cast(by_targets(of, rule_input(of->call, of->scores + 1)), TD_I64);
}

/* Whether the target is not ignored. */
static td_tensor *is_counted(const struct classes *of) {
    td_tensor *ignored = td_full(of->call->node->device, TD_I64, 0, NULL, (double)of->ignore_index);
    return td_not_equal(targets_of(of), ignored);
}

/* Whether the class is the target, and that is not ignored. */
static td_tensor *is_target(const struct classes *of) {
    td_tensor *classes = td_arange(of->call->node->device, TD_I64, 0, (double)class_count(of), 1);
    return td_logical_and(td_equal(targets_of(of), by_classes(of, classes)), is_counted(of));
}

static td_tensor *share_of_classes(const struct classes *of) {
    td_dtype dtype = (td_dtype)scores_type(of)->dtype;
    double rest = of->smoothing / (double)class_count(of);
    if (!of->hard)
        return rule_shift(rule_scale(rule_input(of->call, of->scores + 1), 1 - of->smoothing), rest);
    td_tensor *chosen = rule_scale(td_cast(is_target(of), dtype), 1 - of->smoothing);
    return rest == 0 ? chosen : td_add(chosen, rule_scale(td_cast(is_counted(of), dtype), rest));
}

/* Σ w[target], by which the mean of targets divides. */
static td_tensor *weight_of_targets(const struct classes *of) {
    td_tensor *chosen = td_cast(is_target(of), (td_dtype)scores_type(of)->dtype);
    return td_sum(times(chosen, weights_of(of)), TD_ALL_AXES, 0);
}

/* The gradient by each loss: g, or what a mean leaves of it. */
static td_tensor *by_losses(const struct classes *of, td_tensor *g) {
    const struct tensor_type *type = scores_type(of);
    double losses = 1;
    if (of->reduction != OP_REDUCTION_MEAN)
        return by_targets(of, g);
    if (of->hard)
        return td_divide(g, weight_of_targets(of));
    for (int i = 0; i < type->rank; i++)
        losses *= i == class_axis(of) ? 1 : (double)type->shape[i];
    return rule_scale(g, 1 / losses);
}

/* -gradient · share · l, added up for each class; a mean of targets divides by weights, too. `loss` is needed of that alone. */
static void give_weights(struct rule_call *call, const struct classes *of, td_tensor *l, td_tensor *loss) {
    td_tensor *g = by_losses(of, call->g[0]);
    td_tensor *by_weight = td_multiply(g, td_multiply(share_of_classes(of), l));
    if (of->hard && of->reduction == OP_REDUCTION_MEAN) {
        td_tensor *chosen = td_cast(is_target(of), (td_dtype)scores_type(of)->dtype);
        by_weight = td_add(by_weight, td_multiply(td_multiply(g, loss), chosen));
    }
    rule_give(call, of->scores + 2, td_negative(sum_of_classes(of, by_weight)));
}

/* Of the gradient by the scores, B · softmax(scores) - …, with B = gradient · Σ a: B · p · (h - Σ h · p), in which h is the gradient of this
 * result. */
static td_tensor *again_by_scores(const struct classes *of, td_tensor *h) {
    int axis = class_axis(of);
    td_tensor *p = td_softmax(rule_operand(of->call, of->scores), axis);
    td_tensor *a = td_sum(times(share_of_classes(of), weights_of(of)), TD_AXES(axis), 1);
    td_tensor *b = td_multiply(by_losses(of, rule_input(of->call, 0)), a);
    td_tensor *rest = td_subtract(h, td_sum(td_multiply(h, p), TD_AXES(axis), 1));
    return td_multiply(b, td_multiply(p, rest));
}

/* By the gradient, input 0 of a gradient operation, which is linear in it. */
static void give_linear(struct rule_call *call, const struct classes *of, td_tensor *slope) {
    rule_give(call, 0, td_sum(td_multiply(call->g[0], slope), TD_AXES(class_axis(of)), 0));
}

static const char no_second[] = "no second derivative by weights of classes, or by probabilities that are targets";

static struct classes cross_entropy_of(const struct rule_call *call, unsigned scores) {
    struct cross_entropy_attributes attributes;
    cross_entropy_attributes_read(&call->node->attributes, &attributes);
    return (struct classes){.call = call,
                            .scores = scores,
                            .reduction = attributes.reduction,
                            .smoothing = attributes.label_smoothing,
                            .hard = true,
                            .ignore_index = attributes.ignore_index};
}

RULE(cross_entropy) {
    const struct classes of = cross_entropy_of(call, 0);
    td_reduction reduction = (td_reduction)of.reduction;
    td_tensor *scores = rule_input(call, 0), *targets = rule_input(call, 1), *weight = rule_optional(call, 2);
    if (rule_wants(call, 0))
        rule_give(call, 0,
                  td_cross_entropy_grad(call->g[0], scores, targets, weight, of.ignore_index, reduction, of.smoothing));
    if (rule_wants(call, 2))
        give_weights(call, &of, td_log_softmax(rule_operand(call, 0), class_axis(&of)),
                     td_cross_entropy(scores, targets, weight, of.ignore_index, reduction, of.smoothing));
}

RULE(cross_entropy_grad) {
    const struct classes of = cross_entropy_of(call, 1);
    td_tensor *scores = rule_input(call, 1), *targets = rule_input(call, 2), *weight = rule_optional(call, 3);
    if (rule_wants(call, 0))
        give_linear(call, &of,
                    td_cross_entropy_grad(ones(call), scores, targets, weight, of.ignore_index,
                                          (td_reduction)of.reduction, of.smoothing));
    if (rule_wants(call, 1))
        rule_give(call, 1, again_by_scores(&of, call->g[0]));
    if (rule_wants(call, 3))
        rule_refuse(call, no_second);
}

static struct classes soft_cross_entropy_of(const struct rule_call *call, unsigned scores) {
    struct soft_cross_entropy_attributes attributes;
    soft_cross_entropy_attributes_read(&call->node->attributes, &attributes);
    return (struct classes){
        .call = call, .scores = scores, .reduction = attributes.reduction, .smoothing = attributes.label_smoothing};
}

RULE(soft_cross_entropy) {
    const struct classes of = soft_cross_entropy_of(call, 0);
    td_reduction reduction = (td_reduction)of.reduction;
    td_tensor *scores = rule_input(call, 0), *p = rule_input(call, 1), *weight = rule_optional(call, 2);
    if (rule_wants(call, 0))
        rule_give(call, 0, td_soft_cross_entropy_grad(call->g[0], scores, p, weight, reduction, of.smoothing));
    if (!rule_wants(call, 1) && !rule_wants(call, 2))
        return;
    td_tensor *l = td_log_softmax(rule_operand(call, 0), class_axis(&of));
    if (rule_wants(call, 1)) {
        td_tensor *slope = times(rule_scale(l, of.smoothing - 1), weights_of(&of));
        rule_give(call, 1, td_multiply(by_losses(&of, call->g[0]), slope));
    }
    if (rule_wants(call, 2))
        give_weights(call, &of, l, NULL);
}

RULE(soft_cross_entropy_grad) {
    const struct classes of = soft_cross_entropy_of(call, 1);
    td_tensor *scores = rule_input(call, 1), *p = rule_input(call, 2), *weight = rule_optional(call, 3);
    if (rule_wants(call, 0))
        give_linear(
            call, &of,
            td_soft_cross_entropy_grad(ones(call), scores, p, weight, (td_reduction)of.reduction, of.smoothing));
    if (rule_wants(call, 1))
        rule_give(call, 1, again_by_scores(&of, call->g[0]));
    if (rule_wants(call, 2) || rule_wants(call, 3))
        rule_refuse(call, no_second);
}

static struct classes nll_loss_of(const struct rule_call *call, unsigned scores) {
    struct nll_loss_attributes attributes;
    nll_loss_attributes_read(&call->node->attributes, &attributes);
    return (struct classes){.call = call,
                            .scores = scores,
                            .reduction = attributes.reduction,
                            .hard = true,
                            .ignore_index = attributes.ignore_index};
}

RULE(nll_loss) {
    const struct classes of = nll_loss_of(call, 0);
    td_reduction reduction = (td_reduction)of.reduction;
    td_tensor *scores = rule_input(call, 0), *targets = rule_input(call, 1), *weight = rule_optional(call, 2);
    if (rule_wants(call, 0))
        rule_give(call, 0, td_nll_loss_grad(call->g[0], scores, targets, weight, of.ignore_index, reduction));
    if (rule_wants(call, 2))
        give_weights(call, &of, scores, td_nll_loss(scores, targets, weight, of.ignore_index, reduction));
}

/* The loss is linear in the scores, so this is the loss of the gradient of the result. The scores do not matter. */
RULE(nll_loss_grad) {
    const struct classes of = nll_loss_of(call, 1);
    td_reduction reduction = (td_reduction)of.reduction;
    td_tensor *targets = rule_input(call, 2), *weight = rule_optional(call, 3);
    if (rule_wants(call, 0))
        rule_give(call, 0, td_nll_loss(call->g[0], targets, weight, of.ignore_index, reduction));
    if (rule_wants(call, 3))
        rule_refuse(call, no_second);
}
