#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

static bool join_fits(const struct values *first, const struct values *x, int axis, bool stack) {
    if (x->rank != first->rank)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (x->shape[i] != first->shape[i] && (stack || i != axis))
            return false;
    return true;
}

/* Copies one input to its place along the axis, `begin` on. */
static void join_place(struct values *out, const struct values *x, int axis, int64_t begin, bool stack) {
    int64_t index[VALUES_RANK_MAX] = {0}, strides[VALUES_RANK_MAX], kept[VALUES_RANK_MAX];
    values_strides(out->rank, out->shape, strides);
    int rank = 0;
    for (int i = 0; i < out->rank; i++)
        if (!stack || i != axis)
            kept[rank++] = strides[i];
    struct values *cast = reference_cast(x, out->dtype);
    for (int64_t k = 0; k < x->count; k++) {
        values_put(out, begin * strides[axis] + values_offset(x->rank, index, kept), cast, k);
        values_next(x->rank, x->shape, index);
    }
    values_destroy(cast);
}

struct values *reference_join(const struct reference_request *r) {
    const struct values *first = r->inputs[0];
    bool stack = r->opcode == OP_STACK;
    struct concat_attributes concat;
    struct stack_attributes stacked;
    if (stack)
        stack_attributes_read(&r->attributes, &stacked);
    else
        concat_attributes_read(&r->attributes, &concat);
    int axis = reference_axis(stack ? stacked.axis : concat.axis, first->rank + stack), rank = 0;
    enum dtype dtype = first->dtype;
    int64_t total = 0, begin = 0, shape[VALUES_RANK_MAX];
    if (axis < 0)
        return NULL;
    for (unsigned i = 0; i < r->n_inputs; i++) {
        if (!join_fits(first, r->inputs[i], axis, stack))
            return NULL;
        dtype = reference_promote(dtype, r->inputs[i]->dtype);
        if (dtype == DTYPE_INVALID)
            return NULL;
        total += stack ? 1 : r->inputs[i]->shape[axis];
    }
    for (int i = 0; i < first->rank + stack; i++)
        shape[i] = i == axis ? total : first->shape[stack && i > axis ? i - 1 : i];
    rank = first->rank + stack;
    struct values *out = values_create(dtype, rank, shape);
    for (unsigned i = 0; i < r->n_inputs; i++) {
        join_place(out, r->inputs[i], axis, begin, stack);
        begin += stack ? 1 : r->inputs[i]->shape[axis];
    }
    return out;
}

static bool index_in_range(const struct values *indices, int64_t extent) {
    for (int64_t k = 0; k < indices->count; k++)
        if (indices->i[k] < 0 || indices->i[k] >= extent)
            return false;
    return true;
}

static struct values *take_slices(const struct values *x, const struct values *indices, int axis) {
    int64_t shape[VALUES_RANK_MAX], strides[VALUES_RANK_MAX], index[VALUES_RANK_MAX] = {0};
    if (indices->rank != 1)
        return NULL;
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = indices->count;
    values_strides(x->rank, x->shape, strides);
    struct values *out = values_create(x->dtype, x->rank, shape);
    for (int64_t k = 0; k < out->count; k++) {
        int64_t from = values_offset(x->rank, index, strides) + (indices->i[index[axis]] - index[axis]) * strides[axis];
        values_put(out, k, x, from);
        values_next(x->rank, shape, index);
    }
    return out;
}

static struct values *take_elements(const struct values *x, const struct values *indices, int axis) {
    int64_t shape[VALUES_RANK_MAX], own_x[VALUES_RANK_MAX], own_i[VALUES_RANK_MAX], index[VALUES_RANK_MAX] = {0};
    if (indices->rank != x->rank)
        return NULL;
    values_strides(x->rank, x->shape, own_x);
    values_strides(x->rank, indices->shape, own_i);
    for (int i = 0; i < x->rank; i++) {
        int64_t ex = x->shape[i], ei = indices->shape[i];
        if (i != axis && ex != ei && ex != 1 && ei != 1)
            return NULL;
        shape[i] = i == axis || ex == 1 ? ei : ex;
        own_x[i] = i != axis && ex == 1 ? 0 : own_x[i];
        own_i[i] = i != axis && ei == 1 ? 0 : own_i[i];
    }
    struct values *out = values_create(x->dtype, x->rank, shape);
    for (int64_t k = 0; k < out->count; k++) {
        int64_t chosen = indices->i[values_offset(x->rank, index, own_i)];
        values_put(out, k, x, values_offset(x->rank, index, own_x) + (chosen - index[axis]) * own_x[axis]);
        values_next(x->rank, shape, index);
    }
    return out;
}

static struct values *one_hot(const struct values *indices, int64_t classes, enum dtype dtype) {
    int64_t shape[VALUES_RANK_MAX];
    memcpy(shape, indices->shape, sizeof shape);
    shape[indices->rank] = classes;
    struct values *out = values_create(dtype, indices->rank + 1, shape);
    for (int64_t k = 0; k < indices->count; k++) {
        if (out->f)
            out->f[k * classes + indices->i[k]] = 1;
        else
            out->i[k * classes + indices->i[k]] = 1;
    }
    return out;
}

struct values *reference_take(const struct reference_request *r) {
    const struct values *indices = r->inputs[r->n_inputs - 1], *x = r->inputs[0];
    if (indices->f || indices->dtype == DTYPE_BOOL)
        return NULL;
    if (r->opcode == OP_ONE_HOT) {
        struct one_hot_attributes given;
        one_hot_attributes_read(&r->attributes, &given);
        if (given.classes < 0 || !index_in_range(indices, given.classes))
            return NULL;
        return one_hot(indices, given.classes, given.dtype);
    }
    int axis;
    if (r->opcode == OP_TAKE) {
        struct take_attributes given;
        take_attributes_read(&r->attributes, &given);
        axis = reference_axis(given.axis, x->rank);
    } else if (r->opcode == OP_TAKE_ALONG_AXIS) {
        struct take_along_axis_attributes given;
        take_along_axis_attributes_read(&r->attributes, &given);
        axis = reference_axis(given.axis, x->rank);
    } else {
        reference_lacks(r->opcode);
    }
    if (axis < 0 || !index_in_range(indices, x->shape[axis]))
        return NULL;
    return r->opcode == OP_TAKE ? take_slices(x, indices, axis) : take_elements(x, indices, axis);
}

static void element_add(struct values *out, int64_t to, const struct values *x, int64_t from) {
    if (!out->f) {
        out->i[to] = value_wrap(out->dtype, (int64_t)((uint64_t)out->i[to] + (uint64_t)x->i[from]));
        return;
    }
    out->f[to] += x->f[from];
    out->scale[to] += fabsl(x->f[from]);
    if (out->im) {
        out->im[to] += x->im[from];
        out->scale[to] += fabsl(x->im[from]);
    }
}

struct values *reference_scatter(const struct reference_request *r) {
    const struct values *indices = r->inputs[1];
    struct scatter_attributes given;
    scatter_attributes_read(&r->attributes, &given);
    bool add = r->opcode == OP_SCATTER_ADD;
    enum dtype dtype = reference_promote(r->inputs[0]->dtype, r->inputs[2]->dtype);
    int axis = reference_axis(given.axis, r->inputs[0]->rank);
    if (axis < 0 || dtype == DTYPE_INVALID || !index_in_range(indices, r->inputs[0]->shape[axis]))
        return NULL;
    struct values *out = reference_cast(r->inputs[0], dtype), *values = reference_cast(r->inputs[2], dtype);
    int64_t places[VALUES_RANK_MAX], index[VALUES_RANK_MAX] = {0}, strides[VALUES_RANK_MAX];
    memcpy(places, out->shape, sizeof places);
    places[axis] = indices->shape[axis];
    values_strides(out->rank, out->shape, strides);
    struct values *at = reference_broadcast_to(indices, out->rank, places);
    struct values *wide = reference_broadcast_to(values, out->rank, places);
    if (add && out->f) {
        values_scaled(out, (double)places[axis]);
        for (int64_t k = 0; k < out->count; k++)
            out->scale[k] = fabsl(out->f[k]) + (out->im ? fabsl(out->im[k]) : 0);
    }
    for (int64_t k = 0; k < at->count; k++) { /* row-major: ascending along the axis */
        int64_t to = values_offset(out->rank, index, strides) + (at->i[k] - index[axis]) * strides[axis];
        if (add)
            element_add(out, to, wide, k);
        else
            values_put(out, to, wide, k);
        values_next(out->rank, places, index);
    }
    for (int64_t k = 0; add && out->f && k < out->count; k++)
        out->f[k] = value_round(dtype, out->f[k]);
    for (int64_t k = 0; add && out->im && k < out->count; k++)
        out->im[k] = value_round(dtype, out->im[k]);
    values_destroy(values);
    values_destroy(at);
    values_destroy(wide);
    return out;
}
