/* Pooling: for each place of the result, all places of x whose offset from the window's first is a multiple of the dilation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/reference.h"

enum { AXES = 3 };

struct given {
    int64_t kernel[AXES], stride[AXES], padding[AXES], dilation[AXES], extents[AXES];
    bool last, ceil_mode, counts_padding, adaptive, back;
    struct op_ints shape;
};

static void spread(const struct op_ints *list, int axes, const int64_t *otherwise, int64_t value, int64_t out[AXES]) {
    for (int i = 0; i < AXES; i++) {
        int axis = i - AXES + axes;
        int64_t none = otherwise ? otherwise[i] : value;
        out[i] = axis < 0           ? (otherwise ? 1 : value)
                 : list->count == 0 ? none
                                    : list->values[list->count == 1 ? 0 : axis];
    }
}

#define TAKE(read)                                                                                                     \
    spread(&read.kernel, axes, NULL, 1, given->kernel);                                                                \
    spread(&read.stride, axes, given->kernel, 0, given->stride);                                                       \
    spread(&read.padding, axes, NULL, 0, given->padding);                                                              \
    given->ceil_mode = read.ceil_mode;                                                                                 \
    given->last = read.layout == OP_LAYOUT_CHANNELS_LAST

static void given_read(const struct reference_request *r, int axes, struct given *given) {
    *given = (struct given){.dilation = {1, 1, 1}};
    if (r->opcode == OP_MAX_POOL) {
        struct max_pool_attributes one;
        max_pool_attributes_read(&r->attributes, &one);
        TAKE(one);
        spread(&one.dilation, axes, NULL, 1, given->dilation);
    } else if (r->opcode == OP_MAX_POOL_GRAD) {
        struct max_pool_grad_attributes two;
        max_pool_grad_attributes_read(&r->attributes, &two);
        TAKE(two);
        spread(&two.dilation, axes, NULL, 1, given->dilation);
        given->shape = two.shape;
    } else if (r->opcode == OP_AVG_POOL) {
        struct avg_pool_attributes three;
        avg_pool_attributes_read(&r->attributes, &three);
        TAKE(three);
        given->counts_padding = three.count_include_pad;
    } else if (r->opcode == OP_AVG_POOL_GRAD) {
        struct avg_pool_grad_attributes four;
        avg_pool_grad_attributes_read(&r->attributes, &four);
        TAKE(four);
        given->counts_padding = four.count_include_pad;
        given->shape = four.shape;
    } else if (r->opcode == OP_ADAPTIVE_AVG_POOL) {
        struct adaptive_avg_pool_attributes five;
        adaptive_avg_pool_attributes_read(&r->attributes, &five);
        spread(&five.extents, axes, NULL, 1, given->extents);
        given->adaptive = true;
        given->last = five.layout == OP_LAYOUT_CHANNELS_LAST;
    } else {
        struct adaptive_avg_pool_grad_attributes six;
        adaptive_avg_pool_grad_attributes_read(&r->attributes, &six);
        given->adaptive = true;
        given->last = six.layout == OP_LAYOUT_CHANNELS_LAST;
        given->shape = six.shape;
    }
    given->back = given->shape.count > 0;
}

/* Batch, channels and three more axes, wherever they lie. */
struct axes {
    int64_t extent[5], stride[5];
};

static struct axes axes_of(int rank, const int64_t *shape, bool last) {
    int64_t strides[VALUES_RANK_MAX];
    struct axes axes = {.extent = {shape[0], 1, 1, 1, 1}};
    values_strides(rank, shape, strides);
    int channels = last ? rank - 1 : 1, first = last ? 1 : 2, count = rank - 2;
    axes.stride[0] = strides[0];
    axes.extent[1] = shape[channels];
    axes.stride[1] = strides[channels];
    for (int i = 0; i < count; i++) {
        axes.extent[5 - count + i] = shape[first + i];
        axes.stride[5 - count + i] = strides[first + i];
    }
    return axes;
}

/* The result's extent, found by trying: the last window that begins where it may. */
static int64_t extent_of(const struct given *given, int axis, int64_t extent) {
    int64_t reach = given->dilation[axis] * (given->kernel[axis] - 1) + 1, padding = given->padding[axis], places = 0;
    if (given->adaptive)
        return given->extents[axis];
    for (int64_t start = -padding;; start += given->stride[axis], places++) {
        bool whole = start + reach <= extent + padding, begins = start < extent;
        bool more = given->ceil_mode && begins && start - given->stride[axis] + reach < extent + padding;
        if (!whole && !(more && places > 0))
            return places;
    }
}

/* Whether the window of y's place covers x's place along an axis; *counted: how many places its mean is over. */
static bool covers(const struct given *given, int axis, int64_t x_extent, int64_t y_extent, int64_t y, int64_t x,
                   int64_t *counted) {
    if (given->adaptive) {
        int64_t begin = y * x_extent / y_extent, end = ((y + 1) * x_extent + y_extent - 1) / y_extent;
        *counted = end - begin;
        return x >= begin && x < end;
    }
    int64_t start = y * given->stride[axis] - given->padding[axis];
    bool seen = false;
    *counted = 0;
    for (int64_t tap = 0; tap < given->kernel[axis]; tap++) {
        int64_t at = start + tap * given->dilation[axis];
        seen |= at == x;
        *counted += given->counts_padding ? at < x_extent + given->padding[axis] : at >= 0 && at < x_extent;
    }
    return seen;
}

/* For each place of y along an axis, and each of x: the number of places that the window's mean is over, if it covers x's
 * place; else 0. */
static int64_t *windows_create(const struct given *given, int axis, int64_t x_extent, int64_t y_extent) {
    int64_t *windows = calloc((size_t)(x_extent * y_extent + 1), sizeof *windows), counted;
    for (int64_t y = 0; y < y_extent; y++)
        for (int64_t x = 0; x < x_extent; x++)
            if (covers(given, axis, x_extent, y_extent, y, x, &counted))
                windows[y * x_extent + x] = counted;
    return windows;
}

struct pool {
    const struct reference_request *request;
    const struct given *given;
    struct axes x, y;
    int64_t *windows[AXES];
    const struct values *in, *indices;
    struct values *out;
};

/* One element of x that is in the window of one of y. */
static void pool_pair(const struct pool *p, int64_t at_x, int64_t at_y, int64_t place, int64_t *position,
                      int64_t divisor) {
    struct values *out = p->out;
    long double x = p->given->back ? 0 : p->in->f[at_x];
    if (p->request->opcode == OP_MAX_POOL) {
        long double best = *position < 0 ? 0 : p->in->f[*position];
        if (*position < 0 || x > best || (isnan(x) && !isnan(best))) {
            *position = at_x;
            if (out->f)
                out->f[at_y] = x;
            else
                out->i[at_y] = place;
        }
    } else if (p->request->opcode == OP_MAX_POOL_GRAD) {
        if (p->indices->i[at_y] == place) {
            out->f[at_x] += p->in->f[at_y];
            out->scale[at_x] += fabsl(p->in->f[at_y]);
        }
    } else {
        long double term = (p->given->back ? p->in->f[at_y] : x) / (long double)divisor;
        out->f[p->given->back ? at_x : at_y] += term;
        out->scale[p->given->back ? at_x : at_y] += fabsl(term);
    }
}

static void pool_channel(const struct pool *p, int64_t base_x, int64_t base_y) {
    int64_t y[AXES] = {0};
    do {
        int64_t x[AXES] = {0}, position = -1, place = 0;
        do {
            int64_t divisor = 1;
            for (int i = 0; i < AXES && divisor; i++)
                divisor *= p->windows[i][y[i] * p->x.extent[2 + i] + x[i]];
            if (divisor)
                pool_pair(p, base_x + values_offset(AXES, x, p->x.stride + 2),
                          base_y + values_offset(AXES, y, p->y.stride + 2), place, &position, divisor);
            place++;
        } while (values_next(AXES, p->x.extent + 2, x));
    } while (values_next(AXES, p->y.extent + 2, y));
}

/* The most places of a window, or windows of a place; in small ones roundings that were made before count. */
static double terms_most(const struct given *given, const struct axes *x, const struct axes *y) {
    double terms = 1;
    for (int i = 0; i < AXES; i++) {
        int64_t a = x->extent[2 + i], b = y->extent[2 + i];
        terms *= (double)(!given->adaptive ? given->kernel[i] : a && b ? (a > b ? a / b : b / a) + 2 : 1);
    }
    return terms > 64 ? terms : 64;
}

static struct values *result_make(const struct reference_request *r, const struct given *given, enum dtype dtype) {
    const struct values *in = r->inputs[0];
    int64_t shape[VALUES_RANK_MAX];
    if (given->back)
        return values_create(dtype, (int)given->shape.count, given->shape.values);
    memcpy(shape, in->shape, sizeof shape);
    for (int i = 0; i < in->rank - 2; i++) {
        int axis = (given->last ? 1 : 2) + i;
        shape[axis] = extent_of(given, AXES - (in->rank - 2) + i, in->shape[axis]);
    }
    return values_create(dtype, in->rank, shape);
}

struct values *reference_pooling(const struct reference_request *r) {
    struct given given;
    const struct values *in = r->inputs[0];
    if (in->rank < 3 || in->rank > 5)
        return NULL;
    given_read(r, in->rank - 2, &given);
    struct values *out = result_make(r, &given, r->output ? DTYPE_I64 : in->dtype);
    const struct values *x = given.back ? out : in, *y = given.back ? in : out;
    struct pool p = {
        .request = r, .given = &given, .in = in, .indices = r->n_inputs > 1 ? r->inputs[1] : NULL, .out = out};
    p.x = axes_of(x->rank, x->shape, given.last);
    p.y = axes_of(y->rank, y->shape, given.last);
    for (int64_t k = 0; k < out->count && r->opcode == OP_MAX_POOL; k++) {
        if (out->f)
            out->f[k] = -INFINITY;
        else
            out->i[k] = -1;
    }
    if (r->opcode != OP_MAX_POOL)
        values_scaled(out, terms_most(&given, &p.x, &p.y));
    for (int i = 0; i < AXES; i++)
        p.windows[i] = windows_create(&given, i, p.x.extent[2 + i], p.y.extent[2 + i]);
    for (int64_t image = 0; image < p.x.extent[0] && in->count; image++)
        for (int64_t channel = 0; channel < p.x.extent[1]; channel++)
            pool_channel(&p, image * p.x.stride[0] + channel * p.x.stride[1],
                         image * p.y.stride[0] + channel * p.y.stride[1]);
    for (int i = 0; i < AXES; i++)
        free(p.windows[i]);
    for (int64_t k = 0; k < out->count && out->f; k++)
        out->f[k] = value_round(out->dtype, out->f[k]);
    return out;
}
