#include "engine/device/layout.h"

#include <string.h>

bool layout_is_contiguous(int rank, const int64_t *shape, const int64_t *strides) {
    bool contiguous = true;
    int64_t stride =
        1; /* no product overflows, not even with zeros counted as ones: type_check() has refused such shapes */
    for (int i = rank - 1; i >= 0; i--) {
        if (shape[i] == 0)
            return true;
        if (shape[i] != 1 && strides[i] != stride)
            contiguous = false;
        stride *= shape[i];
    }
    return contiguous;
}

void layout_broadcast(int rank, const int64_t *shape, const int64_t *strides, int out_rank, const int64_t *out_shape,
                      int64_t *out_strides) {
    int missing = out_rank - rank;
    for (int i = 0; i < out_rank; i++) {
        bool repeated = i < missing || (shape[i - missing] == 1 && out_shape[i] != 1);
        out_strides[i] = repeated ? 0 : strides[i - missing];
    }
}

/* Splits both shapes into the shortest groups of equal products. A group of input axes must be one run in memory; its
 * output axes then get strides from the run's innermost stride outwards. */
bool layout_reshape(int rank, const int64_t *shape, const int64_t *strides, int out_rank, const int64_t *out_shape,
                    int64_t *out_strides) {
    int64_t in_shape[SHAPE_RANK_MAX], in_strides[SHAPE_RANK_MAX];
    int n = 0;
    for (int i = 0; i < rank; i++) {
        if (shape[i] == 0) {
            layout_contiguous(out_rank, out_shape, out_strides);
            return true;
        }
        if (shape[i] == 1)
            continue;
        in_shape[n] = shape[i];
        in_strides[n++] = strides[i];
    }
    int in = 0, out = 0;
    while (in < n) {
        int in_end = in + 1, out_end = out;
        int64_t in_product = in_shape[in], out_product = 1;
        while (out_product != in_product) {
            if (out_product < in_product)
                out_product *= out_shape[out_end++];
            else
                in_product *= in_shape[in_end++];
        }
        for (int i = in; i + 1 < in_end; i++)
            if (in_strides[i] != in_strides[i + 1] * in_shape[i + 1])
                return false;
        int64_t stride = in_strides[in_end - 1];
        for (int i = out_end - 1; i >= out; i--) {
            out_strides[i] = stride;
            stride *= out_shape[i];
        }
        in = in_end;
        out = out_end;
    }
    for (; out < out_rank; out++)
        out_strides[out] = 1; /* trailing extents of 1 */
    return true;
}

static void layout_slice(const struct op_attributes *attributes, const struct tensor_type *in,
                         const int64_t *in_strides, int64_t *out_strides, int64_t *out_offset) {
    struct slice_attributes given;
    slice_attributes_read(attributes, &given);
    for (int i = 0; i < in->rank; i++) {
        const int64_t *range = given.ranges.values + 3 * i;
        struct op_slice slice = {.count = 0};
        op_slice(in->shape[i], range[0], range[1], range[2], &slice, NULL);
        /* A step longer than the axis picks one element at most: the stride is never used, and could overflow. */
        out_strides[i] = slice.count > 1 ? in_strides[i] * slice.step : in_strides[i];
        if (slice.count > 0)
            *out_offset += in_strides[i] * slice.start;
    }
}

static void layout_squeeze(const struct op_attributes *attributes, const struct tensor_type *in,
                           const int64_t *in_strides, int64_t *out_strides) {
    bool dropped[SHAPE_RANK_MAX] = {false};
    struct squeeze_attributes given;
    squeeze_attributes_read(attributes, &given);
    for (unsigned i = 0; i < given.axes.count; i++) {
        int axis = 0;
        shape_axis(given.axes.values[i], in->rank, &axis, NULL);
        dropped[axis] = true;
    }
    int n = 0;
    for (int i = 0; i < in->rank; i++)
        if (!dropped[i])
            out_strides[n++] = in_strides[i];
}

static void layout_expand_dims(const struct op_attributes *attributes, const struct tensor_type *in,
                               const int64_t *in_strides, int64_t *out_strides) {
    int axis = 0;
    struct expand_dims_attributes given;
    expand_dims_attributes_read(attributes, &given);
    shape_axis(given.axis, in->rank + 1, &axis, NULL);
    for (int i = 0, n = 0; i <= in->rank; i++)
        out_strides[i] = i == axis ? 1 : in_strides[n++];
}

static void layout_diagonal(const struct op_attributes *attributes, const struct tensor_type *in,
                            const int64_t *in_strides, const struct tensor_type *out, int64_t *out_strides,
                            int64_t *out_offset) {
    int rows = 0, columns = 0, n = 0;
    struct diagonal_attributes given;
    diagonal_attributes_read(attributes, &given);
    shape_axis(given.axis1, in->rank, &rows, NULL);
    shape_axis(given.axis2, in->rank, &columns, NULL);
    for (int i = 0; i < in->rank; i++)
        if (i != rows && i != columns)
            out_strides[n++] = in_strides[i];
    out_strides[n] = in_strides[rows] + in_strides[columns];
    if (out->shape[n] == 0) /* the offset may lie far outside */
        return;
    *out_offset += given.offset < 0 ? -given.offset * in_strides[rows] : given.offset * in_strides[columns];
}

bool layout_view(unsigned opcode, const struct op_attributes *attributes, const struct tensor_type *in,
                 const int64_t *in_strides, int64_t in_offset, const struct tensor_type *out, int64_t *out_strides,
                 int64_t *out_offset) {
    struct permute_dims_attributes permutation;
    *out_offset = in_offset;
    switch (opcode) {
    case OP_RESHAPE:
        return layout_reshape(in->rank, in->shape, in_strides, out->rank, out->shape, out_strides);
    case OP_PERMUTE_DIMS:
        permute_dims_attributes_read(attributes, &permutation);
        for (int i = 0; i < in->rank; i++) {
            int axis = 0;
            shape_axis(permutation.axes.values[i], in->rank, &axis, NULL);
            out_strides[i] = in_strides[axis];
        }
        return true;
    case OP_MATRIX_TRANSPOSE:
        memcpy(out_strides, in_strides, (size_t)in->rank * sizeof *in_strides);
        out_strides[in->rank - 2] = in_strides[in->rank - 1];
        out_strides[in->rank - 1] = in_strides[in->rank - 2];
        return true;
    case OP_SLICE:
        layout_slice(attributes, in, in_strides, out_strides, out_offset);
        return true;
    case OP_BROADCAST_TO:
        layout_broadcast(in->rank, in->shape, in_strides, out->rank, out->shape, out_strides);
        return true;
    case OP_SQUEEZE:
        layout_squeeze(attributes, in, in_strides, out_strides);
        return true;
    case OP_EXPAND_DIMS:
        layout_expand_dims(attributes, in, in_strides, out_strides);
        return true;
    case OP_DIAGONAL:
        layout_diagonal(attributes, in, in_strides, out, out_strides, out_offset);
        return true;
    default:
        return false;
    }
}

static bool layout_mergeable(const struct layout_space *space, int outer, int inner) {
    for (int k = 0; k < space->operands; k++) {
        int64_t step; /* may overflow: strides of an empty tensor can be anything */
        if (__builtin_mul_overflow(space->strides[k][inner], space->shape[inner], &step) ||
            space->strides[k][outer] != step)
            return false;
    }
    return true;
}

int layout_merge(struct layout_space *space, int begin, int end) {
    int n = begin;
    for (int i = begin; i < end; i++) {
        if (space->shape[i] == 1)
            continue;
        if (n > begin && layout_mergeable(space, n - 1, i)) {
            space->shape[n - 1] *= space->shape[i];
            for (int k = 0; k < space->operands; k++)
                space->strides[k][n - 1] = space->strides[k][i];
            continue;
        }
        space->shape[n] = space->shape[i];
        for (int k = 0; k < space->operands; k++)
            space->strides[k][n] = space->strides[k][i];
        n++;
    }
    int removed = end - n;
    for (int i = end; removed && i < space->rank; i++) {
        space->shape[i - removed] = space->shape[i];
        for (int k = 0; k < space->operands; k++)
            space->strides[k][i - removed] = space->strides[k][i];
    }
    space->rank -= removed;
    return n;
}
