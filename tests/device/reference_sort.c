#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/reference.h"

/* -1, 0 or 1 as element a of x is below, equal to or above element b of y; a NaN is above all numbers and equal to others. */
static int element_order(const struct values *x, int64_t a, const struct values *y, int64_t b) {
    if (!x->f)
        return value_order(x->dtype, x->i[a], y->i[b]);
    bool nan_a = isnan(x->f[a]), nan_b = isnan(y->f[b]);
    if (nan_a || nan_b)
        return nan_a - nan_b;
    return (x->f[a] > y->f[b]) - (x->f[a] < y->f[b]);
}

/* sort and argsort are all elements of topk, in the other order, and one of its outputs. */
static struct topk_attributes sort_as_topk(const struct reference_request *r) {
    struct topk_attributes given;
    struct sort_attributes all;
    if (r->opcode == OP_TOPK) {
        topk_attributes_read(&r->attributes, &given);
        return given;
    }
    sort_attributes_read(&r->attributes, &all);
    int axis = reference_axis(all.axis, r->inputs[0]->rank);
    return (struct topk_attributes){
        .k = axis < 0 ? 0 : r->inputs[0]->shape[axis], .axis = all.axis, .largest = all.descending};
}

/* The row that is sorted: the elements at first + position · step. */
static const struct values *row_of;
static int64_t row_first, row_step;
static bool row_descends;

/* Of equal elements the one with the lower position comes first. */
static int positions_compare(const void *a, const void *b) {
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    int order = element_order(row_of, row_first + i * row_step, row_of, row_first + j * row_step);
    return order ? (row_descends ? -order : order) : (i > j) - (i < j);
}

struct values *reference_sort(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    struct topk_attributes given = sort_as_topk(r);
    bool positions = r->opcode == OP_ARGSORT || r->output;
    int64_t shape[VALUES_RANK_MAX], strides[VALUES_RANK_MAX], to[VALUES_RANK_MAX], index[VALUES_RANK_MAX] = {0};
    int axis = reference_axis(given.axis, x->rank);
    if (axis < 0 || given.k < 0 || given.k > x->shape[axis])
        return NULL;
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = given.k;
    values_strides(x->rank, x->shape, strides);
    values_strides(x->rank, shape, to);
    struct values *out = values_create(positions ? DTYPE_I64 : x->dtype, x->rank, shape);
    int64_t n = x->shape[axis], *order = malloc((size_t)(n ? n : 1) * sizeof *order);
    row_of = x;
    row_step = strides[axis];
    row_descends = given.largest;
    for (int64_t i = 0; i < x->count; i++, values_next(x->rank, x->shape, index)) {
        if (index[axis]) /* the row has been sorted at its first element */
            continue;
        row_first = i;
        for (int64_t k = 0; k < n; k++)
            order[k] = k;
        qsort(order, (size_t)n, sizeof *order, positions_compare);
        for (int64_t k = 0; k < given.k; k++) {
            int64_t at = values_offset(x->rank, index, to) + k * to[axis], from = i + order[k] * row_step;
            if (positions)
                out->i[at] = order[k];
            else if (out->f)
                out->f[at] = x->f[from];
            else
                out->i[at] = x->i[from];
        }
    }
    free(order);
    return out;
}

/* The number of elements that are less, or that are not greater. */
struct values *reference_search(const struct reference_request *r) {
    struct searchsorted_attributes given;
    searchsorted_attributes_read(&r->attributes, &given);
    enum dtype dtype = reference_promote(r->inputs[0]->dtype, r->inputs[1]->dtype);
    if (dtype == DTYPE_INVALID || r->inputs[0]->rank != 1)
        return NULL;
    struct values *sorted = reference_cast(r->inputs[0], dtype), *values = reference_cast(r->inputs[1], dtype);
    struct values *out = values_create(DTYPE_I64, values->rank, values->shape);
    for (int64_t k = 0; k < out->count; k++)
        for (int64_t i = 0; i < sorted->count; i++) {
            int order = element_order(sorted, i, values, k);
            out->i[k] += given.right ? order <= 0 : order < 0;
        }
    values_destroy(sorted);
    values_destroy(values);
    return out;
}
