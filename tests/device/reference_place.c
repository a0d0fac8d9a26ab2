#include <string.h>

#include "tests/device/reference.h"

static struct values *place_triangle(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    struct tril_attributes given; /* triu has the same */
    tril_attributes_read(&r->attributes, &given);
    struct values *out = values_create(x->dtype, x->rank, x->shape);
    for (int64_t k = 0; k < out->count; k++) {
        int64_t columns = x->shape[x->rank - 1], rows = x->shape[x->rank - 2];
        __int128 across = (__int128)(k % columns) - k / columns % rows;
        if (r->opcode == OP_TRIL ? across <= given.diagonal : across >= given.diagonal)
            values_put(out, k, x, k);
    }
    return out;
}

/* The index along an axis from which element `at` comes, stepping from end to end; -1: from none. */
static int64_t pad_from(enum op_pad_mode mode, int64_t at, int64_t extent) {
    if (at >= 0 && at < extent)
        return at;
    if (mode == OP_PAD_MODE_CONSTANT)
        return -1;
    if (mode == OP_PAD_MODE_EDGE)
        return at < 0 ? 0 : extent - 1;
    if (mode == OP_PAD_MODE_WRAP)
        return (at + extent) % extent;
    int64_t place = at < 0 ? -at : at; /* there and back again */
    int64_t period = 2 * (extent - 1);
    place %= period;
    return place < extent ? place : period - place;
}

/* One axis after another. */
static struct values *pad_axis(const struct values *x, int axis, int64_t before, int64_t after, enum op_pad_mode mode,
                               const struct values *value) {
    int64_t shape[VALUES_RANK_MAX], strides[VALUES_RANK_MAX], index[VALUES_RANK_MAX] = {0};
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] += before + after;
    values_strides(x->rank, x->shape, strides);
    struct values *out = values_create(x->dtype, x->rank, shape);
    for (int64_t k = 0; k < out->count; k++) {
        int64_t from = pad_from(mode, index[axis] - before, x->shape[axis]);
        if (from < 0)
            values_put(out, k, value, 0);
        else
            values_put(out, k, x, values_offset(x->rank, index, strides) + (from - index[axis]) * strides[axis]);
        values_next(x->rank, shape, index);
    }
    return out;
}

static struct values *place_pad(const struct reference_request *r) {
    struct pad_attributes given;
    pad_attributes_read(&r->attributes, &given);
    struct values *out = values_copy(r->inputs[0]), *value = values_create(out->dtype, 0, NULL);
    double imaginary;
    memcpy(&imaginary, &given.value.i, sizeof imaginary);
    if (value->im)
        value->im[0] = value_round(value->dtype, imaginary);
    if (value->f)
        value->f[0] = value_round(value->dtype, given.value.f);
    else
        value->i[0] = given.value.i;
    for (int i = 0; i < r->inputs[0]->rank; i++) {
        struct values *wider =
            pad_axis(out, i, given.widths.values[2 * i], given.widths.values[2 * i + 1], given.mode, value);
        values_destroy(out);
        out = wider;
    }
    values_destroy(value);
    return out;
}

struct values *reference_place(const struct reference_request *r) {
    switch (r->opcode) {
    case OP_PAD:
        return place_pad(r);
    case OP_TRIL:
    case OP_TRIU:
        return place_triangle(r);
    default:
        reference_lacks(r->opcode);
    }
}
