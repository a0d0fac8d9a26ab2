/* Convolutions and their gradients: one loop over all triples of an element of x, one of the weight and one of y that belong together; the
 * product of two of them is added to the third. */
#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

enum { AXES = 3 };

/* The attributes, with entries for three axes; those that there are come last. */
struct given {
    int64_t stride[AXES], padding[AXES], dilation[AXES], more[AXES], groups;
    bool last;
    struct op_ints shape;
};

static void spread(const struct op_ints *list, int axes, int64_t otherwise, int64_t out[AXES]) {
    for (int i = 0; i < AXES; i++) {
        int axis = i - AXES + axes;
        out[i] = axis < 0 || list->count == 0 ? otherwise : list->values[list->count == 1 ? 0 : axis];
    }
}

#define TAKE(set, read)                                                                                                \
    struct set##_attributes read;                                                                                      \
    set##_attributes_read(&r->attributes, &read);                                                                      \
    spread(&read.stride, axes, 1, given->stride);                                                                      \
    spread(&read.padding, axes, 0, given->padding);                                                                    \
    spread(&read.dilation, axes, 1, given->dilation);                                                                  \
    given->groups = read.groups;                                                                                       \
    given->last = read.layout == OP_LAYOUT_CHANNELS_LAST

static void given_read(const struct reference_request *r, int axes, struct given *given) {
    *given = (struct given){.groups = 1};
    if (r->opcode == OP_CONV) {
        TAKE(conv, one);
    } else if (r->opcode == OP_CONV_TRANSPOSE) {
        TAKE(conv_transpose, two);
        spread(&two.output_padding, axes, 0, given->more);
    } else if (r->opcode == OP_CONV_GRAD_INPUT) {
        TAKE(conv_grad_input, three);
        given->shape = three.shape;
    } else {
        TAKE(conv_grad_weight, four);
        given->shape = four.shape;
    }
}

/* A tensor with five axes, batch, channels and three more, wherever they lie; of a weight, the two kinds of channels. */
struct axes {
    int64_t extent[5], stride[5];
};

static struct axes axes_of(const struct values *values, bool last) {
    int64_t strides[VALUES_RANK_MAX];
    struct axes axes = {.extent = {values->shape[0], 1, 1, 1, 1}};
    values_strides(values->rank, values->shape, strides);
    int channels = last ? values->rank - 1 : 1, first = last ? 1 : 2, count = values->rank - 2;
    axes.stride[0] = strides[0];
    axes.extent[1] = values->shape[channels];
    axes.stride[1] = strides[channels];
    for (int i = 0; i < count; i++) {
        axes.extent[5 - count + i] = values->shape[first + i];
        axes.stride[5 - count + i] = strides[first + i];
    }
    return axes;
}

struct triple {
    const struct values *x, *weight, *y;
    struct values *out;
};

static void triple_add(const struct triple *t, int64_t x, int64_t weight, int64_t y) {
    bool to_x = t->out == t->x, to_y = t->out == t->y;
    int64_t at = to_x ? x : to_y ? y : weight;
    long double term = (to_x ? 1 : t->x->f[x]) * (to_y ? 1 : t->y->f[y]) * (to_x || to_y ? t->weight->f[weight] : 1);
    t->out->f[at] += term;
    t->out->scale[at] += fabsl(term);
}

/* One element of the weight, and one channel of an image of y: all places at which they meet. */
static void meet(const struct triple *t, const struct given *given, const struct axes *x, const struct axes *w,
                 const struct axes *y, int64_t at_x, int64_t at_w, int64_t at_y, const int64_t tap[AXES]) {
    (void)w;
    int64_t place[AXES] = {0}, more[AXES];
    memcpy(more, y->extent + 2, sizeof more);
    do {
        int64_t from = at_x, to = at_y;
        bool inside = true;
        for (int i = 0; i < AXES; i++) {
            int64_t seen = place[i] * given->stride[i] + tap[i] * given->dilation[i] - given->padding[i];
            inside &= seen >= 0 && seen < x->extent[2 + i];
            from += seen * x->stride[2 + i];
            to += place[i] * y->stride[2 + i];
        }
        if (inside)
            triple_add(t, from, at_w, to);
    } while (values_next(AXES, more, place));
}

static void convolve(const struct triple *t, const struct given *given) {
    struct axes x = axes_of(t->x, given->last), w = axes_of(t->weight, false), y = axes_of(t->y, given->last);
    int64_t per_group = w.extent[0] / given->groups;
    if (t->x->count == 0 || t->y->count == 0)
        return;
    for (int64_t image = 0; image < x.extent[0]; image++)
        for (int64_t o = 0; o < w.extent[0]; o++)
            for (int64_t c = 0; c < w.extent[1]; c++) {
                int64_t tap[AXES] = {0};
                do {
                    int64_t at_x = image * x.stride[0] + (o / per_group * w.extent[1] + c) * x.stride[1];
                    int64_t at_w = o * w.stride[0] + c * w.stride[1] + values_offset(AXES, tap, w.stride + 2);
                    meet(t, given, &x, &w, &y, at_x, at_w, image * y.stride[0] + o * y.stride[1], tap);
                } while (values_next(AXES, w.extent + 2, tap));
            }
}

/* The result's shape from the known one's, whose axes are in `from`. */
static struct values *result_of(enum dtype dtype, const struct values *from, const struct given *given,
                                int64_t channels, const int64_t extents[AXES]) {
    int64_t shape[VALUES_RANK_MAX];
    int count = from->rank - 2, first = given->last ? 1 : 2;
    shape[0] = from->shape[0];
    shape[given->last ? from->rank - 1 : 1] = channels;
    for (int i = 0; i < count; i++)
        shape[first + i] = extents[AXES - count + i];
    return values_create(dtype, from->rank, shape);
}

static struct values *result_make(const struct reference_request *r, const struct given *given, enum dtype dtype) {
    const struct values *first = r->inputs[0], *weight = r->inputs[1];
    int64_t extents[AXES];
    if (r->opcode == OP_CONV_GRAD_INPUT || r->opcode == OP_CONV_GRAD_WEIGHT)
        return values_create(dtype, (int)given->shape.count, given->shape.values);
    struct axes from = axes_of(first, given->last), w = axes_of(weight, false);
    for (int i = 0; i < AXES; i++) {
        int64_t reach = given->dilation[i] * (w.extent[2 + i] - 1) + 1, n = from.extent[2 + i];
        extents[i] = r->opcode == OP_CONV ? (n + 2 * given->padding[i] - reach + given->stride[i]) / given->stride[i]
                                          : (n - 1) * given->stride[i] - 2 * given->padding[i] + reach + given->more[i];
    }
    return result_of(dtype, first, given, r->opcode == OP_CONV ? weight->shape[0] : weight->shape[1] * given->groups,
                     extents);
}

static void add_bias(struct values *out, const struct values *bias, const struct given *given) {
    struct axes axes = axes_of(out, given->last);
    for (int64_t k = 0; k < out->count; k++) {
        long double term = bias->f[k / axes.stride[1] % axes.extent[1]];
        out->f[k] += term;
        out->scale[k] += fabsl(term);
    }
}

struct values *reference_convolution(const struct reference_request *r) {
    struct given given;
    int axes = r->inputs[0]->rank - 2;
    enum dtype dtype = r->inputs[0]->dtype;
    struct values *in[3];
    if (axes < 1 || axes > AXES)
        return NULL;
    given_read(r, axes, &given);
    for (unsigned i = 1; i < r->n_inputs; i++)
        dtype = reference_promote(dtype, r->inputs[i]->dtype);
    for (unsigned i = 0; i < r->n_inputs; i++)
        in[i] = reference_cast(r->inputs[i], dtype);
    struct values *out = result_make(r, &given, dtype);
    struct triple t = {.out = out, .x = in[0], .weight = in[1], .y = out};
    if (r->opcode == OP_CONV_GRAD_WEIGHT) {
        t.weight = out;
        t.y = in[1];
    } else if (r->opcode != OP_CONV) {
        t.x = out;
        t.y = in[0];
    }
    double summed = (double)t.weight->count / (double)(t.out == t.x ? t.weight->shape[1] : t.weight->shape[0]);
    values_scaled(out, t.out == t.weight ? (double)t.y->count / (double)t.weight->shape[0] : summed + 1);
    convolve(&t, &given);
    if (r->n_inputs == 3)
        add_bias(out, in[2], &given);
    for (int64_t k = 0; k < out->count; k++)
        out->f[k] = value_round(dtype, out->f[k]);
    for (unsigned i = 0; i < r->n_inputs; i++)
        values_destroy(in[i]);
    return out;
}
