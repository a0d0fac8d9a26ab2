#include "client/call.h"
#include "client/tensor.h"

static td_tensor *view_shape(unsigned opcode, td_tensor *x, int rank, const int64_t *shape) {
    int64_t ints[OP_INTS_MAX];
    int n = x ? call_append_shape(opcode, ints, 0, rank, shape) : 0;
    return n < 0 ? NULL : call_one(opcode, x, ints, n);
}

static td_tensor *view_axes(unsigned opcode, td_tensor *x, int count, const int64_t *axes) {
    int64_t ints[OP_INTS_MAX];
    int n = x ? call_append_axes(opcode, ints, 0, count, axes) : 0;
    return n < 0 ? NULL : call_one(opcode, x, ints, n);
}

td_tensor *td_reshape(td_tensor *x, int rank, const int64_t *shape) {
    return view_shape(OP_RESHAPE, x, rank, shape);
}

td_tensor *td_transpose(td_tensor *x) {
    return call_one(OP_MATRIX_TRANSPOSE, x, NULL, 0);
}

td_tensor *td_permute(td_tensor *x, int rank, const int64_t *axes) {
    return view_axes(OP_PERMUTE_DIMS, x, rank, axes);
}

td_tensor *td_slice(td_tensor *x, int axis, int64_t start, int64_t stop, int64_t step) {
    if (!x)
        return call_one(OP_SLICE, NULL, NULL, 0);
    int64_t ints[OP_INTS_MAX];
    struct fault fault;
    int at, rank = x->type.rank;
    int code = shape_axis(axis, rank, &at, &fault);
    if (code)
        return call_refuse(OP_SLICE, (enum status)code, "%s", fault.message);
    for (int i = 0; i < rank; i++) {
        ints[3 * i] = i == at ? start : OP_SLICE_NONE;
        ints[3 * i + 1] = i == at ? stop : OP_SLICE_NONE;
        ints[3 * i + 2] = i == at && step != TD_NONE ? step : 1;
    }
    return call_one(OP_SLICE, x, ints, 3 * rank);
}

td_tensor *td_broadcast_to(td_tensor *x, int rank, const int64_t *shape) {
    return view_shape(OP_BROADCAST_TO, x, rank, shape);
}

td_tensor *td_squeeze(td_tensor *x, int count, const int64_t *axes) {
    return view_axes(OP_SQUEEZE, x, count, axes);
}

td_tensor *td_expand_dims(td_tensor *x, int axis) {
    return call_one(OP_EXPAND_DIMS, x, (int64_t[]){axis}, 1);
}
