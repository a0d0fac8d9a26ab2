/* Rules of convolutions. They follow torch.nn.functional.conv1d to conv3d, and conv_transpose1d to conv_transpose3d. */
#include "proto/ops/convolution.h"

#include <inttypes.h>
#include <stdio.h>

#include "proto/ops/op_rules.h"

/* What all of these operations have. */
struct attributes {
    struct op_ints stride, padding, output_padding, dilation, shape;
    int64_t groups;
    bool channels_last;
};

#define READ(name, ...)                                                                                                \
    case OP_##__VA_ARGS__: {                                                                                           \
        struct name##_attributes read;                                                                                 \
        name##_attributes_read(given, &read);                                                                          \
        *out = (struct attributes) {                                                                                   \
            .stride = read.stride, .padding = read.padding, .dilation = read.dilation, .groups = read.groups,          \
            .channels_last = read.layout == OP_LAYOUT_CHANNELS_LAST,
#define READ_END                                                                                                       \
    }                                                                                                                  \
    ;                                                                                                                  \
    return;                                                                                                            \
    }

static void attributes_read(unsigned opcode, const struct op_attributes *given, struct attributes *out) {
    /* clang-format off */
    switch (opcode) {
    READ(conv, CONV) READ_END
    READ(conv_transpose, CONV_TRANSPOSE) .output_padding = read.output_padding, READ_END
    READ(conv_grad_input, CONV_GRAD_INPUT) .shape = read.shape, READ_END
    READ(conv_grad_weight, CONV_GRAD_WEIGHT) .shape = read.shape, READ_END
    default:
        *out = (struct attributes){.groups = 1};
    }
    /* clang-format on */
}

/* ---- attributes for each axis ---- */

static int64_t entry(const struct op_ints *list, int axis, int64_t otherwise) {
    return list->count == 0 ? otherwise : list->values[list->count == 1 ? 0 : axis];
}

static int check_list(const char *name, const struct op_ints *list, int axes, int64_t least, struct fault *fault) {
    if (list->count > 1 && list->count != (unsigned)axes) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s has %u entries for %d axes", name, list->count, axes);
    }
    for (unsigned i = 0; i < list->count; i++) {
        if (list->values[i] < least || list->values[i] > INT32_MAX) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s is %" PRId64 ", not %" PRId64 " to %d", name,
                             list->values[i], least, INT32_MAX);
        }
    }
    return STATUS_OK;
}

static int check_lists(const struct attributes *given, int axes, struct fault *fault) {
    int status = check_list("stride", &given->stride, axes, 1, fault);
    if (status == STATUS_OK) {
        status = check_list("padding", &given->padding, axes, 0, fault);
    }
    if (status == STATUS_OK) {
        status = check_list("output_padding", &given->output_padding, axes, 0, fault);
    }
    return status == STATUS_OK ? check_list("dilation", &given->dilation, axes, 1, fault) : status;
}

/* ---- shapes ---- */

/* The axis of the channels, and the first of the axes over which the kernel moves. */
static int channel_axis(const struct attributes *given, int rank) {
    return given->channels_last ? rank - 1 : 1;
}
static int first_axis(const struct attributes *given) {
    return given->channels_last ? 1 : 2;
}

struct operands {
    const struct tensor_type *x, *weight, *y; /* of the convolution from x to y; NULL: not known */
    const char *x_name, *y_name;
};

static int refuse(const struct operands *of, const char *why, struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    bool forward = of->x != NULL;
    return fault_set(fault, STATUS_SHAPE, "%s %s, weight %s: %s", forward ? of->x_name : of->y_name,
                     shape_text(forward ? of->x : of->y, a), shape_text(of->weight, b), why);
}

/* Places of one channel are counted in 32 bits. */
static int check_volume(const char *name, const struct tensor_type *type, int first, int axes, struct fault *fault) {
    int64_t volume = 1;
    for (int i = first; i < first + axes; i++) {
        int64_t extent = type->shape[i];
        if (extent < 1) {
            return fault_set(fault, STATUS_SHAPE, "axis %d of %s has the extent %" PRId64 ", and needs 1 at least", i,
                             name, extent);
        }
        if (extent > INT32_MAX / volume) {
            return fault_set(fault, STATUS_SHAPE, "%s has more than 2^31 - 1 places in one channel", name);
        }
        volume *= extent;
    }
    return STATUS_OK;
}

static int check_channels(const struct attributes *given, const struct operands *of, struct fault *fault) {
    char why[128];
    const struct tensor_type *weight = of->weight;
    int64_t groups = given->groups, per_group = weight->shape[1];
    int64_t y = weight->shape[0];
    if (groups < 1) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "groups is %" PRId64 ", not 1 or more", groups);
    }
    if (y < 1 || per_group < 1) {
        return refuse(of, "the weight has no channels", fault);
    }
    if (y % groups != 0) {
        snprintf(why, sizeof why, "%" PRId64 " channels do not make %" PRId64 " groups", y, groups);
        return refuse(of, why, fault);
    }
    if (of->x) {
        int64_t x = of->x->shape[channel_axis(given, of->x->rank)];
        if (x % groups != 0 || x / groups != per_group) {
            snprintf(why, sizeof why, "%" PRId64 " channels in %" PRId64 " groups != %" PRId64, x, groups, per_group);
            return refuse(of, why, fault);
        }
    }
    if (of->y && of->y->shape[channel_axis(given, of->y->rank)] != y) {
        snprintf(why, sizeof why, "%" PRId64 " channels != %" PRId64, of->y->shape[channel_axis(given, of->y->rank)],
                 y);
        return refuse(of, why, fault);
    }
    int64_t kernel = 1; /* check_volume() has passed */
    for (int i = 2; i < weight->rank; i++) {
        kernel *= weight->shape[i];
    }
    bool small = per_group <= INT32_MAX / kernel && y / groups <= INT32_MAX / kernel &&
                 groups <= INT32_MAX / per_group && y <= INT32_MAX;
    return small ? STATUS_OK : refuse(of, "the weight is too large", fault);
}

/* All that can be checked without the result. */
static int check_operands(const struct attributes *given, const struct operands *of, struct fault *fault) {
    const struct tensor_type *known = of->x ? of->x : of->y;
    int rank = known->rank, axes = rank - 2;
    if (rank < 3 || rank > 5) {
        return refuse(of, "tensors have a batch, channels, and 1 to 3 more axes", fault);
    }
    if (of->weight->rank != rank || (of->x && of->y && of->y->rank != rank)) {
        return refuse(of, "ranks differ", fault);
    }
    int status = check_lists(given, axes, fault);
    if (status == STATUS_OK && of->x) {
        status = check_volume(of->x_name, of->x, first_axis(given), axes, fault);
    }
    if (status == STATUS_OK && of->y) {
        status = check_volume(of->y_name, of->y, first_axis(given), axes, fault);
    }
    if (status == STATUS_OK) {
        status = check_volume("weight", of->weight, 2, axes, fault);
    }
    return status == STATUS_OK ? check_channels(given, of, fault) : status;
}

static int check_bias(const struct op_call *call, int64_t channels, struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    if (call->n_inputs < 3 || (call->inputs[2]->rank == 1 && call->inputs[2]->shape[0] == channels)) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_SHAPE, "bias %s is not one number for each of %" PRId64 " channels",
                     shape_text(call->inputs[2], text), channels);
}

/* The extent of y along an axis of a convolution. No sum of these overflows: each is below 2^32, the product below 2^62. */
static int64_t convolved(const struct attributes *given, int axis, int64_t extent, int64_t kernel) {
    int64_t reach = entry(&given->dilation, axis, 1) * (kernel - 1) + 1;
    int64_t padded = extent + 2 * entry(&given->padding, axis, 0);
    return padded < reach ? 0 : (padded - reach) / entry(&given->stride, axis, 1) + 1;
}

static int check_kernel(const struct attributes *given, const struct operands *of, int64_t *extents,
                        struct fault *fault) {
    char why[160];
    for (int i = 0; i < of->x->rank - 2; i++) {
        int64_t extent = of->x->shape[first_axis(given) + i], kernel = of->weight->shape[2 + i];
        extents[i] = convolved(given, i, extent, kernel);
        if (extents[i] < 1) {
            snprintf(why, sizeof why,
                     "a kernel of %" PRId64 " with dilation %" PRId64 " is wider than %" PRId64
                     " with padding %" PRId64,
                     kernel, entry(&given->dilation, i, 1), extent, entry(&given->padding, i, 0));
            return refuse(of, why, fault);
        }
    }
    return STATUS_OK;
}

static void set_shape(const struct attributes *given, int rank, int64_t batch, int64_t channels, const int64_t *extents,
                      struct tensor_type *out) {
    out->rank = rank;
    out->shape[0] = batch;
    out->shape[channel_axis(given, rank)] = channels;
    for (int i = 0; i < rank - 2; i++) {
        out->shape[first_axis(given) + i] = extents[i];
    }
}

int op_rule_conv(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct attributes given;
    int64_t extents[CONVOLUTION_AXES];
    const struct operands of = {.x = call->inputs[0], .weight = call->inputs[1], .x_name = "x", .y_name = "the result"};
    attributes_read(call->opcode, call->attributes, &given);
    int status = check_operands(&given, &of, fault);
    if (status == STATUS_OK) {
        status = check_kernel(&given, &of, extents, fault);
    }
    if (status != STATUS_OK) {
        return status;
    }
    int64_t batch = of.x->shape[0], channels = of.weight->shape[0];
    int rank = of.x->rank;
    set_shape(&given, rank, batch, channels, extents, out);
    status = check_volume(of.y_name, out, first_axis(&given), rank - 2, fault);
    return status == STATUS_OK ? check_bias(call, channels, fault) : status;
}

int op_rule_conv_transpose(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct attributes given;
    int64_t extents[CONVOLUTION_AXES];
    const struct operands of = {.y = call->inputs[0], .weight = call->inputs[1], .x_name = "the result", .y_name = "x"};
    attributes_read(call->opcode, call->attributes, &given);
    int status = check_operands(&given, &of, fault);
    if (status != STATUS_OK) {
        return status;
    }
    int rank = of.y->rank;
    for (int i = 0; i < rank - 2; i++) {
        int64_t stride = entry(&given.stride, i, 1), dilation = entry(&given.dilation, i, 1);
        int64_t more = entry(&given.output_padding, i, 0);
        if (more >= stride && more >= dilation) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT,
                             "output_padding is %" PRId64 ", not less than stride %" PRId64 " or dilation %" PRId64,
                             more, stride, dilation);
        }
        extents[i] = (of.y->shape[first_axis(&given) + i] - 1) * stride - 2 * entry(&given.padding, i, 0) +
                     dilation * (of.weight->shape[2 + i] - 1) + more + 1;
    }
    int64_t channels = of.weight->shape[1] * given.groups;
    set_shape(&given, rank, of.y->shape[0], channels, extents, out);
    status = check_volume(of.x_name, out, first_axis(&given), rank - 2, fault);
    return status == STATUS_OK ? check_bias(call, channels, fault) : status;
}

/* The type whose shape an attribute gives. */
static int shape_given(const struct op_ints *shape, struct tensor_type *out, struct fault *fault) {
    if (shape->count > SHAPE_RANK_MAX) {
        return fault_set(fault, STATUS_SHAPE, "the shape has rank %u, more than %d", shape->count, SHAPE_RANK_MAX);
    }
    out->rank = (int)shape->count;
    for (unsigned i = 0; i < shape->count; i++) {
        out->shape[i] = shape->values[i];
    }
    return type_check(out, fault);
}

/* Checks that the convolution of x with the weight has y's shape. */
static int check_gradient(const struct attributes *given, const struct operands *of, struct fault *fault) {
    int64_t extents[CONVOLUTION_AXES];
    struct tensor_type expected = {.rank = 0};
    char is[SHAPE_TEXT_MAX], wants[SHAPE_TEXT_MAX], why[2 * SHAPE_TEXT_MAX + 32];
    int status = check_operands(given, of, fault);
    if (status == STATUS_OK) {
        status = check_kernel(given, of, extents, fault);
    }
    if (status != STATUS_OK) {
        return status;
    }
    set_shape(given, of->x->rank, of->x->shape[0], of->weight->shape[0], extents, &expected);
    if (shape_equal(&expected, of->y)) {
        return STATUS_OK;
    }
    snprintf(why, sizeof why, "the gradient is %s, not %s", shape_text(of->y, is), shape_text(&expected, wants));
    return refuse(of, why, fault);
}

int op_rule_conv_grad_input(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct attributes given;
    attributes_read(call->opcode, call->attributes, &given);
    int status = shape_given(&given.shape, out, fault);
    const struct operands of = {out, call->inputs[1], call->inputs[0], "x", "gradient"};
    return status == STATUS_OK ? check_gradient(&given, &of, fault) : status;
}

int op_rule_conv_grad_weight(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct attributes given;
    attributes_read(call->opcode, call->attributes, &given);
    int status = shape_given(&given.shape, out, fault);
    const struct operands of = {call->inputs[0], out, call->inputs[1], "x", "gradient"};
    return status == STATUS_OK ? check_gradient(&given, &of, fault) : status;
}

/* ---- geometry ---- */

void convolution_make(struct convolution *convolution, unsigned opcode, const struct op_attributes *attributes,
                      int rank, const int64_t *x, const int64_t *weight, const int64_t *y, bool channels_last) {
    struct attributes given;
    attributes_read(opcode, attributes, &given);
    int axes = rank - 2, first = channels_last ? 1 : 2, channels = channels_last ? rank - 1 : 1;
    *convolution = (struct convolution){.axes = axes, .channels_last = given.channels_last, .groups = given.groups};
    convolution->batch = x[0];
    convolution->x_channels = x[channels];
    convolution->y_channels = y[channels];
    for (int i = 0; i < CONVOLUTION_AXES; i++) {
        int axis = i - (CONVOLUTION_AXES - axes);
        bool there = axis >= 0;
        convolution->x[i] = there ? x[first + axis] : 1;
        convolution->y[i] = there ? y[first + axis] : 1;
        convolution->kernel[i] = there ? weight[2 + axis] : 1;
        convolution->stride[i] = there ? entry(&given.stride, axis, 1) : 1;
        convolution->padding[i] = there ? entry(&given.padding, axis, 0) : 0;
        convolution->dilation[i] = there ? entry(&given.dilation, axis, 1) : 1;
    }
}
