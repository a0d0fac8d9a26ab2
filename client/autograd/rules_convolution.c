/* Rules of convolutions. A convolution is linear in x and in the weight, and so are its gradients: what one of the three operations gives, the
 * other two differentiate. */
#include "client/autograd/rule.h"

struct geometry {
    struct op_ints stride, padding, dilation;
    int64_t groups;
    td_layout layout;
};
#define GEOMETRY(read)                                                                                                 \
    { (read).stride, (read).padding, (read).dilation, (read).groups, (td_layout)(read).layout }

#define LIST(list) (int)(list).count, (list).values

static td_tensor *convolved(const struct geometry *at, td_tensor *x, td_tensor *weight) {
    return td_conv(x, weight, NULL, LIST(at->stride), LIST(at->padding), LIST(at->dilation), at->groups, at->layout);
}
static td_tensor *grad_input(const struct geometry *at, td_tensor *gradient, td_tensor *weight,
                             const struct tensor_type *x) {
    return td_conv_grad_input(gradient, weight, x->rank, x->shape, LIST(at->stride), LIST(at->padding),
                              LIST(at->dilation), at->groups, at->layout);
}
static td_tensor *grad_weight(const struct geometry *at, td_tensor *x, td_tensor *gradient,
                              const struct tensor_type *weight) {
    return td_conv_grad_weight(x, gradient, weight->rank, weight->shape, LIST(at->stride), LIST(at->padding),
                               LIST(at->dilation), at->groups, at->layout);
}

/* The bias, input 2, is added to each place of its channel. */
static void give_bias(struct rule_call *call, const struct geometry *at) {
    int64_t axes[TD_RANK_MAX];
    int rank = call->node->outputs[0].type.rank, channels = at->layout == TD_LAYOUT_CHANNELS_LAST ? rank - 1 : 1;
    int count = 0;
    for (int i = 0; i < rank; i++)
        if (i != channels)
            axes[count++] = i;
    if (rule_wants(call, 2))
        rule_give(call, 2, td_sum(call->g[0], count, axes, 0));
}

RULE(conv) {
    struct conv_attributes read;
    conv_attributes_read(&call->node->attributes, &read);
    const struct geometry at = GEOMETRY(read);
    if (rule_wants(call, 0))
        rule_give(call, 0, grad_input(&at, call->g[0], rule_input(call, 1), rule_type(call, 0)));
    if (rule_wants(call, 1))
        rule_give(call, 1, grad_weight(&at, rule_input(call, 0), call->g[0], rule_type(call, 1)));
    give_bias(call, &at);
}

RULE(conv_grad_input) {
    struct conv_grad_input_attributes read;
    conv_grad_input_attributes_read(&call->node->attributes, &read);
    const struct geometry at = GEOMETRY(read);
    if (rule_wants(call, 0))
        rule_give(call, 0, convolved(&at, call->g[0], rule_input(call, 1)));
    if (rule_wants(call, 1))
        rule_give(call, 1, grad_weight(&at, call->g[0], rule_input(call, 0), rule_type(call, 1)));
}

RULE(conv_grad_weight) {
    struct conv_grad_weight_attributes read;
    conv_grad_weight_attributes_read(&call->node->attributes, &read);
    const struct geometry at = GEOMETRY(read);
    if (rule_wants(call, 0))
        rule_give(call, 0, grad_input(&at, rule_input(call, 1), call->g[0], rule_type(call, 0)));
    if (rule_wants(call, 1))
        rule_give(call, 1, convolved(&at, rule_input(call, 0), call->g[0]));
}

/* ---- the transposed one ---- */

static int64_t entry(struct op_ints list, int axis, int64_t otherwise) {
    return list.count ? list.values[list.count == 1 ? 0 : axis] : otherwise;
}

/* An output padding of a stride or more, which the dilation allows: a convolution of the result has so many places more than x, along each
 * axis of x. False: none. */
static bool places_more(const struct conv_transpose_attributes *read, int rank, int64_t *more) {
    bool any = false;
    int first = read->layout == OP_LAYOUT_CHANNELS_LAST ? 1 : 2;
    for (int i = 0; i < rank; i++)
        more[i] = 0;
    for (int i = 0; i < rank - 2; i++) {
        more[first + i] = entry(read->output_padding, i, 0) / entry(read->stride, i, 1);
        any |= more[first + i] > 0;
    }
    return any;
}

/* Without the places that x does not have. */
static td_tensor *cut(td_tensor *gradient, const struct tensor_type *x) {
    int64_t ranges[3 * TD_RANK_MAX];
    for (int i = 0; i < x->rank; i++) {
        ranges[3 * i] = 0;
        ranges[3 * i + 1] = x->shape[i];
        ranges[3 * i + 2] = 1;
    }
    return td_slices(gradient, 3 * x->rank, ranges);
}

/* With zeros in these places. */
static td_tensor *extended(td_tensor *x, int rank, const int64_t *more) {
    int64_t widths[2 * TD_RANK_MAX];
    for (int i = 0; i < rank; i++) {
        widths[2 * i] = 0;
        widths[2 * i + 1] = more[i];
    }
    return td_pad(x, 2 * rank, widths, TD_PAD_MODE_CONSTANT, 0);
}

/* It is the gradient of a convolution of its result, with x as the gradient. */
RULE(conv_transpose) {
    struct conv_transpose_attributes read;
    int64_t more[TD_RANK_MAX];
    conv_transpose_attributes_read(&call->node->attributes, &read);
    const struct geometry at = GEOMETRY(read);
    const struct tensor_type *type = rule_type(call, 0);
    bool any = places_more(&read, type->rank, more);
    if (rule_wants(call, 0)) {
        td_tensor *gradient = convolved(&at, call->g[0], rule_input(call, 1));
        rule_give(call, 0, any ? cut(gradient, type) : gradient);
    }
    if (rule_wants(call, 1)) {
        td_tensor *x = rule_input(call, 0);
        rule_give(call, 1, grad_weight(&at, call->g[0], any ? extended(x, type->rank, more) : x, rule_type(call, 1)));
    }
    give_bias(call, &at);
}
