/* Rules of pooling. They follow torch.nn.functional. */
#include "proto/ops/pooling.h"

#include <inttypes.h>

#include "proto/ops/op_rules.h"

/* What these operations have; lists without entries where an operation does not have them. */
struct attributes {
    struct op_ints kernel, stride, padding, dilation, shape, extents;
    bool channels_last, ceil_mode, counts_padding, adaptive;
};

#define TAKE_WINDOW(read)                                                                                              \
    out->kernel = read.kernel;                                                                                         \
    out->stride = read.stride;                                                                                         \
    out->padding = read.padding;                                                                                       \
    out->ceil_mode = read.ceil_mode;                                                                                   \
    layout = read.layout

static void attributes_read(unsigned opcode, const struct op_attributes *given, struct attributes *out) {
    *out = (struct attributes){.adaptive = opcode == OP_ADAPTIVE_AVG_POOL || opcode == OP_ADAPTIVE_AVG_POOL_GRAD};
    enum op_layout layout = OP_LAYOUT_CHANNELS_FIRST;
    if (opcode == OP_MAX_POOL) {
        struct max_pool_attributes read;
        max_pool_attributes_read(given, &read);
        TAKE_WINDOW(read);
        out->dilation = read.dilation;
    } else if (opcode == OP_MAX_POOL_GRAD) {
        struct max_pool_grad_attributes read;
        max_pool_grad_attributes_read(given, &read);
        TAKE_WINDOW(read);
        out->dilation = read.dilation;
        out->shape = read.shape;
    } else if (opcode == OP_AVG_POOL) {
        struct avg_pool_attributes read;
        avg_pool_attributes_read(given, &read);
        TAKE_WINDOW(read);
        out->counts_padding = read.count_include_pad;
    } else if (opcode == OP_AVG_POOL_GRAD) {
        struct avg_pool_grad_attributes read;
        avg_pool_grad_attributes_read(given, &read);
        TAKE_WINDOW(read);
        out->counts_padding = read.count_include_pad;
        out->shape = read.shape;
    } else if (opcode == OP_ADAPTIVE_AVG_POOL) {
        struct adaptive_avg_pool_attributes read;
        adaptive_avg_pool_attributes_read(given, &read);
        out->extents = read.extents;
        layout = read.layout;
    } else {
        struct adaptive_avg_pool_grad_attributes read;
        adaptive_avg_pool_grad_attributes_read(given, &read);
        out->shape = read.shape;
        layout = read.layout;
    }
    out->channels_last = layout == OP_LAYOUT_CHANNELS_LAST;
}

/* ---- attributes for each axis ---- */

static int64_t entry(const struct op_ints *list, int axis, int64_t otherwise) {
    return list->count == 0 ? otherwise : list->values[list->count == 1 ? 0 : axis];
}

static int64_t kernel_of(const struct attributes *given, int axis) {
    return entry(&given->kernel, axis, 1);
}
static int64_t stride_of(const struct attributes *given, int axis) {
    return entry(&given->stride, axis, kernel_of(given, axis));
}
static int64_t padding_of(const struct attributes *given, int axis) {
    return entry(&given->padding, axis, 0);
}
static int64_t dilation_of(const struct attributes *given, int axis) {
    return entry(&given->dilation, axis, 1);
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

static int check_window(const struct attributes *given, int axes, struct fault *fault) {
    if (given->kernel.count == 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "kernel has no entries");
    }
    int status = check_list("kernel", &given->kernel, axes, 1, fault);
    if (status == STATUS_OK) {
        status = check_list("stride", &given->stride, axes, 1, fault);
    }
    if (status == STATUS_OK) {
        status = check_list("padding", &given->padding, axes, 0, fault);
    }
    if (status == STATUS_OK) {
        status = check_list("dilation", &given->dilation, axes, 1, fault);
    }
    for (int i = 0; i < axes && status == STATUS_OK; i++) {
        int64_t reach = dilation_of(given, i) * (kernel_of(given, i) - 1) + 1;
        if (padding_of(given, i) > reach / 2) {
            status = fault_set(fault, STATUS_INVALID_ARGUMENT,
                               "padding is %" PRId64 ", more than half of a kernel that reaches over %" PRId64,
                               padding_of(given, i), reach);
        }
    }
    return status;
}

/* ---- shapes ---- */

static int check_x(const struct tensor_type *x, const struct attributes *given, struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    int64_t volume = 1;
    int first = given->channels_last ? 1 : 2, axes = x->rank - 2;
    if (x->rank < 3 || x->rank > 5) {
        return fault_set(fault, STATUS_SHAPE, "x %s: tensors have a batch, channels, and 1 to 3 more axes",
                         shape_text(x, text));
    }
    for (int i = first; i < first + axes; i++) {
        if (x->shape[i] < 1 || x->shape[i] > INT32_MAX / volume) {
            return fault_set(fault, STATUS_SHAPE, "x %s has no place in a channel, or more than 2^31 - 1",
                             shape_text(x, text));
        }
        volume *= x->shape[i];
    }
    return STATUS_OK;
}

/* The extent of y along an axis; 0: the kernel is too wide. */
static int64_t pooled(const struct attributes *given, int axis, int64_t extent) {
    int64_t stride = stride_of(given, axis), padding = padding_of(given, axis);
    int64_t reach = dilation_of(given, axis) * (kernel_of(given, axis) - 1) + 1, left = extent + 2 * padding - reach;
    if (left < 0) {
        return 0;
    }
    int64_t places = left / stride + 1;
    if (given->ceil_mode && left % stride != 0 && places * stride < extent + padding) {
        places++;
    }
    return places;
}

static int y_extent(const struct attributes *given, const struct tensor_type *x, int axis, int64_t *out,
                    struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    int64_t extent = x->shape[(given->channels_last ? 1 : 2) + axis];
    *out = given->adaptive ? entry(&given->extents, axis, 1) : pooled(given, axis, extent);
    if (*out >= 1) {
        return STATUS_OK;
    }
    return fault_set(
        fault, STATUS_SHAPE,
        "x %s: a kernel of %" PRId64 " with dilation %" PRId64 " is wider than %" PRId64 " with padding %" PRId64,
        shape_text(x, text), kernel_of(given, axis), dilation_of(given, axis), extent, padding_of(given, axis));
}

/* y's shape from x's. */
static int pooled_shape(const struct attributes *given, const struct tensor_type *x, struct tensor_type *y,
                        struct fault *fault) {
    int axes = x->rank - 2, first = given->channels_last ? 1 : 2;
    int status = check_x(x, given, fault);
    if (status == STATUS_OK && given->adaptive) {
        status = given->extents.count == 0 ? fault_set(fault, STATUS_INVALID_ARGUMENT, "extents has no entries")
                                           : check_list("extents", &given->extents, axes, 1, fault);
    } else if (status == STATUS_OK) {
        status = check_window(given, axes, fault);
    }
    op_copy_shape(y, x);
    int64_t volume = 1;
    for (int i = 0; i < axes && status == STATUS_OK; i++) {
        status = y_extent(given, x, i, &y->shape[first + i], fault);
        if (status == STATUS_OK && y->shape[first + i] > INT32_MAX / volume) {
            status = fault_set(fault, STATUS_SHAPE, "the result has more than 2^31 - 1 places in one channel");
        }
        volume *= status == STATUS_OK ? y->shape[first + i] : 1;
    }
    return status;
}

static int rule_pool(const struct op_call *call, struct tensor_type *out, unsigned n, struct fault *fault) {
    struct attributes given;
    attributes_read(call->opcode, call->attributes, &given);
    int status = STATUS_OK;
    for (unsigned i = 0; i < n && status == STATUS_OK; i++) {
        status = pooled_shape(&given, call->inputs[0], &out[i], fault);
    }
    return status;
}

/* A gradient has the shape that pooling of a tensor of the result's shape gives. */
static int rule_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct attributes given;
    struct tensor_type y = {.rank = 0};
    char is[SHAPE_TEXT_MAX], wants[SHAPE_TEXT_MAX];
    attributes_read(call->opcode, call->attributes, &given);
    if (given.shape.count > SHAPE_RANK_MAX) {
        return fault_set(fault, STATUS_SHAPE, "the shape has rank %u, more than %d", given.shape.count, SHAPE_RANK_MAX);
    }
    out->rank = (int)given.shape.count;
    for (unsigned i = 0; i < given.shape.count; i++) {
        out->shape[i] = given.shape.values[i];
    }
    int status = type_check(out, fault);
    const struct tensor_type *gradient = call->inputs[0];
    if (given.adaptive && gradient->rank == out->rank && out->rank > 2) {
        given.extents = (struct op_ints){(unsigned)gradient->rank - 2, gradient->shape + (given.channels_last ? 1 : 2)};
    }
    if (status == STATUS_OK) {
        status = pooled_shape(&given, out, &y, fault);
    }
    for (unsigned i = 0; i < call->n_inputs && status == STATUS_OK; i++) {
        if (!shape_equal(&y, call->inputs[i])) {
            status = fault_set(fault, STATUS_SHAPE, "%s %s, not %s", i == 0 ? "the gradient is" : "indices are",
                               shape_text(call->inputs[i], is), shape_text(&y, wants));
        }
    }
    return status;
}

int op_rule_max_pool(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_pool(call, out, 2, fault);
}
int op_rule_avg_pool(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_pool(call, out, 1, fault);
}
int op_rule_adaptive_avg_pool(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_pool(call, out, 1, fault);
}
int op_rule_max_pool_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_grad(call, out, fault);
}
int op_rule_avg_pool_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_grad(call, out, fault);
}
int op_rule_adaptive_avg_pool_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    return rule_grad(call, out, fault);
}

/* ---- geometry ---- */

void pooling_make(struct pooling *pooling, unsigned opcode, const struct op_attributes *attributes, int rank,
                  const int64_t *x, const int64_t *y, bool channels_last) {
    struct attributes given;
    attributes_read(opcode, attributes, &given);
    int axes = rank - 2, first = channels_last ? 1 : 2;
    *pooling = (struct pooling){.axes = axes,
                                .channels_last = given.channels_last,
                                .adaptive = given.adaptive,
                                .counts_padding = given.counts_padding,
                                .planes = x[0] * x[channels_last ? rank - 1 : 1]};
    for (int i = 0; i < POOLING_AXES; i++) {
        int axis = i - (POOLING_AXES - axes);
        bool there = axis >= 0;
        pooling->x[i] = there ? x[first + axis] : 1;
        pooling->y[i] = there ? y[first + axis] : 1;
        pooling->kernel[i] = there ? kernel_of(&given, axis) : 1;
        pooling->stride[i] = there ? stride_of(&given, axis) : 1;
        pooling->padding[i] = there ? padding_of(&given, axis) : 0;
        pooling->dilation[i] = there ? dilation_of(&given, axis) : 1;
    }
}
