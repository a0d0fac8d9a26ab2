#include <string.h>

#include "tests/device/reference.h"

static struct values *view_reshape(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    struct reshape_attributes given;
    reshape_attributes_read(&r->attributes, &given);
    int64_t shape[VALUES_RANK_MAX], known = 1, open = -1;
    for (unsigned i = 0; i < given.shape.count; i++) {
        shape[i] = given.shape.values[i];
        if (shape[i] == -1)
            open = i;
        else
            known *= shape[i];
    }
    if (open >= 0) {
        if (known == 0 || x->count % known)
            return NULL;
        shape[open] = x->count / known;
        known = x->count;
    }
    if (known != x->count)
        return NULL;
    struct values *out = values_copy(x);
    out->rank = (int)given.shape.count;
    memcpy(out->shape, shape, given.shape.count * sizeof *shape);
    return out;
}

static struct values *view_axes(const struct values *x, const int64_t *axes) {
    int64_t own[VALUES_RANK_MAX], strides[VALUES_RANK_MAX], shape[VALUES_RANK_MAX];
    values_strides(x->rank, x->shape, own);
    for (int i = 0; i < x->rank; i++) {
        int axis = reference_axis(axes[i], x->rank);
        shape[i] = x->shape[axis];
        strides[i] = own[axis];
    }
    return reference_gather(x, x->rank, shape, strides, 0);
}

static struct values *view_permute(const struct reference_request *r) {
    struct permute_dims_attributes given;
    permute_dims_attributes_read(&r->attributes, &given);
    return view_axes(r->inputs[0], given.axes.values);
}

static struct values *view_matrix_transpose(const struct values *x) {
    int64_t axes[VALUES_RANK_MAX];
    for (int i = 0; i < x->rank; i++)
        axes[i] = i;
    axes[x->rank - 2] = x->rank - 1;
    axes[x->rank - 1] = x->rank - 2;
    return view_axes(x, axes);
}

static __int128 slice_bound(int64_t given, int64_t extent, int64_t low, int64_t high) {
    __int128 bound = given < 0 ? (__int128)given + extent : given;
    return bound < low ? low : bound > high ? high : bound;
}

/* Python: indices start, start + step, … while before stop, clamped to the axis. */
static struct values *view_slice(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    struct slice_attributes given;
    slice_attributes_read(&r->attributes, &given);
    const int64_t *ranges = given.ranges.values; /* start, stop and step of each axis */
    int64_t own[VALUES_RANK_MAX], strides[VALUES_RANK_MAX], shape[VALUES_RANK_MAX], offset = 0;
    values_strides(x->rank, x->shape, own);
    for (int i = 0; i < x->rank; i++) {
        int64_t start = ranges[3 * i], stop = ranges[3 * i + 1], step = ranges[3 * i + 2], n = x->shape[i];
        if (step == OP_SLICE_NONE)
            step = 1;
        if (step == 0)
            return NULL;
        int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
        __int128 first = start == OP_SLICE_NONE ? (step > 0 ? low : high) : slice_bound(start, n, low, high);
        __int128 last = stop == OP_SLICE_NONE ? (step > 0 ? high : low) : slice_bound(stop, n, low, high);
        shape[i] = 0;
        for (__int128 at = first; step > 0 ? at < last : at > last; at += step)
            shape[i]++;
        offset += shape[i] ? (int64_t)first * own[i] : 0;
        strides[i] = shape[i] > 1 ? step * own[i] : 0;
    }
    return reference_gather(x, x->rank, shape, strides, offset);
}

static struct values *view_squeeze(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    struct squeeze_attributes given;
    squeeze_attributes_read(&r->attributes, &given);
    bool drop[VALUES_RANK_MAX] = {false};
    for (unsigned i = 0; i < given.axes.count; i++) {
        int axis = reference_axis(given.axes.values[i], x->rank);
        if (axis < 0 || x->shape[axis] != 1 || drop[axis])
            return NULL;
        drop[axis] = true;
    }
    struct values *out = values_copy(x);
    out->rank = 0;
    for (int i = 0; i < x->rank; i++)
        if (!drop[i])
            out->shape[out->rank++] = x->shape[i];
    return out;
}

static struct values *view_broadcast(const struct reference_request *r) {
    struct broadcast_to_attributes given;
    broadcast_to_attributes_read(&r->attributes, &given);
    return reference_broadcast_to(r->inputs[0], (int)given.shape.count, given.shape.values);
}

static struct values *view_expand_dims(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    struct expand_dims_attributes given;
    expand_dims_attributes_read(&r->attributes, &given);
    int axis = reference_axis(given.axis, x->rank + 1);
    if (axis < 0)
        return NULL;
    struct values *out = values_copy(x);
    for (int i = x->rank; i > axis; i--)
        out->shape[i] = x->shape[i - 1];
    out->shape[axis] = 1;
    out->rank++;
    return out;
}

static struct values *view_diagonal(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    struct diagonal_attributes given;
    diagonal_attributes_read(&r->attributes, &given);
    int rows = reference_axis(given.axis1, x->rank), columns = reference_axis(given.axis2, x->rank), rank = 0;
    if (rows < 0 || columns < 0 || rows == columns)
        return NULL;
    int64_t own[VALUES_RANK_MAX], strides[VALUES_RANK_MAX], shape[VALUES_RANK_MAX], count = 0, first = 0;
    values_strides(x->rank, x->shape, own);
    for (int i = 0; i < x->rank; i++)
        if (i != rows && i != columns) {
            shape[rank] = x->shape[i];
            strides[rank++] = own[i];
        }
    for (int64_t i = 0; i < x->shape[rows]; i++) {
        __int128 j = (__int128)i + given.offset;
        if (j < 0 || j >= x->shape[columns])
            continue;
        if (count++ == 0)
            first = i * own[rows] + (int64_t)j * own[columns];
    }
    shape[rank] = count;
    strides[rank] = own[rows] + own[columns];
    return reference_gather(x, rank + 1, shape, strides, first);
}

struct values *reference_view(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    switch (r->opcode) {
    case OP_RESHAPE:
        return view_reshape(r);
    case OP_PERMUTE_DIMS:
        return view_permute(r);
    case OP_MATRIX_TRANSPOSE:
        return view_matrix_transpose(x);
    case OP_SLICE:
        return view_slice(r);
    case OP_BROADCAST_TO:
        return view_broadcast(r);
    case OP_SQUEEZE:
        return view_squeeze(r);
    case OP_DIAGONAL:
        return view_diagonal(r);
    case OP_EXPAND_DIMS:
        return view_expand_dims(r);
    default:
        reference_lacks(r->opcode);
    }
}
