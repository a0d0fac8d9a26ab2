#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

/* One element of a result: x[i]·y[j] - x[j]·y[i], by the places of these elements. */
struct difference {
    int64_t xi, yj, xj, yi;
};

static void difference_put(struct values *out, int64_t at, const struct values *x, const struct values *y,
                           struct difference d) {
    if (out->im) {
        long double re = x->f[d.xi] * y->f[d.yj] - x->im[d.xi] * y->im[d.yj];
        long double im = x->f[d.xi] * y->im[d.yj] + x->im[d.xi] * y->f[d.yj];
        re -= x->f[d.xj] * y->f[d.yi] - x->im[d.xj] * y->im[d.yi];
        im -= x->f[d.xj] * y->im[d.yi] + x->im[d.xj] * y->f[d.yi];
        out->f[at] = value_round(out->dtype, re);
        out->im[at] = value_round(out->dtype, im);
        out->scale[at] = hypotl(x->f[d.xi], x->im[d.xi]) * hypotl(y->f[d.yj], y->im[d.yj]) +
                         hypotl(x->f[d.xj], x->im[d.xj]) * hypotl(y->f[d.yi], y->im[d.yi]);
    } else if (out->f) {
        long double left = x->f[d.xi] * y->f[d.yj], right = x->f[d.xj] * y->f[d.yi];
        out->f[at] = value_round(out->dtype, left - right);
        out->scale[at] = fabsl(left) + fabsl(right);
    } else {
        uint64_t left = (uint64_t)x->i[d.xi] * (uint64_t)y->i[d.yj];
        uint64_t right = (uint64_t)x->i[d.xj] * (uint64_t)y->i[d.yi];
        out->i[at] = value_wrap(out->dtype, (int64_t)(left - right));
    }
}

struct values *reference_cross(const struct reference_request *r) {
    const struct values *a = r->inputs[0], *b = r->inputs[1];
    struct cross_attributes given;
    int rank;
    int64_t shape[VALUES_RANK_MAX], strides[VALUES_RANK_MAX], index[VALUES_RANK_MAX] = {0};
    cross_attributes_read(&r->attributes, &given);
    enum dtype dtype = reference_promote(a->dtype, b->dtype);
    if (dtype == DTYPE_INVALID || dtype == DTYPE_BOOL || given.axis >= 0 || given.axis < -a->rank ||
        given.axis < -b->rank || a->shape[a->rank + given.axis] != 3 || b->shape[b->rank + given.axis] != 3 ||
        !reference_broadcast(a->rank, a->shape, b->rank, b->shape, &rank, shape))
        return NULL;
    struct values *x_own = reference_cast(a, dtype), *y_own = reference_cast(b, dtype);
    struct values *x = reference_broadcast_to(x_own, rank, shape), *y = reference_broadcast_to(y_own, rank, shape);
    struct values *out = values_create(dtype, rank, shape);
    if (out->f)
        values_scaled(out, 2);
    values_strides(rank, shape, strides);
    int axis = rank + (int)given.axis;
    for (int64_t at = 0; at < out->count; at++) {
        int64_t first = at - index[axis] * strides[axis];
        int64_t i = first + (index[axis] + 1) % 3 * strides[axis], j = first + (index[axis] + 2) % 3 * strides[axis];
        difference_put(out, at, x, y, (struct difference){i, j, j, i});
        values_next(rank, shape, index);
    }
    values_destroy(x_own);
    values_destroy(y_own);
    values_destroy(x);
    values_destroy(y);
    return out;
}
