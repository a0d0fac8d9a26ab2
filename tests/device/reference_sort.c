#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

/* -1, 0 or 1 as element a is below, equal to or above element b; a NaN is above all numbers and equal to others. */
static int element_order(const struct values *x, int64_t a, int64_t b) {
    if (!x->f)
        return value_order(x->dtype, x->i[a], x->i[b]);
    bool nan_a = isnan(x->f[a]), nan_b = isnan(x->f[b]);
    if (nan_a || nan_b)
        return nan_a - nan_b;
    return (x->f[a] > x->f[b]) - (x->f[a] < x->f[b]);
}

/* The place that each element takes is the number of those that come before it. */
struct values *reference_sort(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    struct topk_attributes given;
    topk_attributes_read(&r->attributes, &given);
    int64_t k = given.k, shape[VALUES_RANK_MAX], strides[VALUES_RANK_MAX], to[VALUES_RANK_MAX];
    int64_t index[VALUES_RANK_MAX] = {0};
    int axis = reference_axis(given.axis, x->rank);
    if (axis < 0 || k < 0 || k > x->shape[axis])
        return NULL;
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = k;
    values_strides(x->rank, x->shape, strides);
    values_strides(x->rank, shape, to);
    struct values *out = values_create(r->output ? DTYPE_I64 : x->dtype, x->rank, shape);
    for (int64_t i = 0; i < x->count; i++) {
        int64_t own = index[axis], row = i - own * strides[axis], place = 0;
        for (int64_t j = 0; j < x->shape[axis]; j++) {
            int order = element_order(x, row + j * strides[axis], i);
            place += (given.largest ? order > 0 : order < 0) || (order == 0 && j < own);
        }
        int64_t at = values_offset(x->rank, index, to) + (place - own) * to[axis];
        if (place < k && r->output)
            out->i[at] = own;
        else if (place < k && out->f)
            out->f[at] = x->f[i];
        else if (place < k)
            out->i[at] = x->i[i];
        values_next(x->rank, x->shape, index);
    }
    return out;
}
