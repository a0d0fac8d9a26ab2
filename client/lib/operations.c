/* Functions of operations whose arguments differ from their attributes; the other functions are generated from the descriptions. */
#include "client/lib/call.h"
#include "client/lib/tensor.h"

#include <inttypes.h>
#include <string.h>

static td_tensor *enqueue(td_device *device, unsigned opcode, unsigned n_inputs, td_tensor *const *inputs,
                          const struct op_packed *packed) {
    struct batch_entry entry = {.opcode = opcode,
                                .n_inputs = n_inputs,
                                .inputs = inputs,
                                .ints = packed->ints,
                                .n_ints = packed->n_ints,
                                .floats = packed->floats,
                                .n_floats = packed->n_floats};
    return call_enqueue(device, &entry);
}

/* A double, truncated, as an integer from -2^63 to 2^63 - 1, or for u64 to 2^64 - 1. False: it is none. The comparison comes first
 * because C does not define the cast of NaN, or of a value beyond 64 bits. */
static bool whole(td_dtype dtype, double value, struct op_scalar *out) {
    *out = (struct op_scalar){.f = value};
    if (!(value >= -0x1p63 && value < (dtype == TD_U64 ? 0x1p64 : 0x1p63)))
        return false;
    out->i = value < 0x1p63 ? (int64_t)value : (int64_t)(uint64_t)value;
    return true;
}

static bool is_integer(td_dtype dtype) {
    return dtype_kind((enum dtype)dtype) == DTYPE_KIND_INT;
}

/* A double as a value of any dtype. False: it is none. */
static bool scalar_of(td_dtype dtype, double value, struct op_scalar *out) {
    *out = (struct op_scalar){.f = value};
    /* A truncated 0.5 would make a bool false. */
    if (dtype == TD_BOOL)
        out->i = value != 0;
    return !is_integer(dtype) || (whole(dtype, value, out) &&
                                  dtype_holds((enum dtype)dtype, out->i, op_scalar_above(out, (enum dtype)dtype)));
}

static td_tensor *full(td_device *device, td_dtype dtype, int rank, const int64_t *shape, struct op_scalar value) {
    struct op_packed packed;
    if (!call_takes_shape(OP_FULL, rank, shape))
        return NULL;
    struct full_attributes attributes = {.dtype = (enum dtype)dtype, .shape = {(unsigned)rank, shape}, .value = value};
    full_attributes_write(&attributes, &packed);
    return enqueue(device, OP_FULL, 0, NULL, &packed);
}

td_tensor *td_full(td_device *device, td_dtype dtype, int rank, const int64_t *shape, double value) {
    struct op_scalar scalar;
    if (!scalar_of(dtype, value, &scalar))
        return call_refuse(OP_FULL, STATUS_INVALID_ARGUMENT, "%.17g is no value of %s", value, td_dtype_name(dtype));
    return full(device, dtype, rank, shape, scalar);
}

/* In the place of an integer a complex number has its imaginary part, of which all bits are 0 here. */
static int64_t complex_or(td_dtype dtype, int64_t value) {
    return dtype_is_complex((enum dtype)dtype) ? 0 : value;
}

td_tensor *td_full_int(td_device *device, td_dtype dtype, int rank, const int64_t *shape, int64_t value) {
    return full(device, dtype, rank, shape, (struct op_scalar){complex_or(dtype, value), (double)value});
}

td_tensor *td_full_uint(td_device *device, td_dtype dtype, int rank, const int64_t *shape, uint64_t value) {
    if (value > INT64_MAX && (is_integer(dtype) || dtype == TD_BOOL) && dtype != TD_U64)
        return call_refuse(OP_FULL, STATUS_INVALID_ARGUMENT, "%" PRIu64 " is no value of %s", value,
                           td_dtype_name(dtype));
    return full(device, dtype, rank, shape, (struct op_scalar){complex_or(dtype, (int64_t)value), (double)value});
}

td_tensor *td_full_complex(td_device *device, td_dtype dtype, int rank, const int64_t *shape, double real,
                           double imaginary) {
    struct op_scalar value = {.f = real};
    if (dtype_valid((int)dtype) && !dtype_is_complex((enum dtype)dtype))
        return call_refuse(OP_FULL, STATUS_DTYPE, "gives no %s of two parts: ask for c64 or c128",
                           td_dtype_name(dtype));
    memcpy(&value.i, &imaginary, sizeof value.i);
    return full(device, dtype, rank, shape, value);
}

td_tensor *td_arange(td_device *device, td_dtype dtype, double start, double stop, double step) {
    static const char *const names[] = {"start", "stop", "step"};
    struct op_scalar values[] = {{.f = start}, {.f = stop}, {.f = step}};
    /* Only the elements must be values of the dtype, not the bounds; op_infer() checks the elements. */
    for (int i = 0; i < 3; i++)
        if (is_integer(dtype) && !whole(dtype, values[i].f, &values[i]))
            return call_refuse(OP_ARANGE, STATUS_INVALID_ARGUMENT, "the %s %.17g is no value of %s", names[i],
                               values[i].f, td_dtype_name(dtype));
    if (is_integer(dtype) && values[2].i == 0 && step != 0)
        return call_refuse(OP_ARANGE, STATUS_INVALID_ARGUMENT, "the step %.17g is truncated to 0 for %s", step,
                           td_dtype_name(dtype));
    struct arange_attributes attributes = {(enum dtype)dtype, values[0], values[1], values[2]};
    struct op_packed packed;
    arange_attributes_write(&attributes, &packed);
    return enqueue(device, OP_ARANGE, 0, NULL, &packed);
}

td_tensor *td_slice(td_tensor *x, int axis, int64_t start, int64_t stop, int64_t step) {
    struct op_packed packed = {.n_ints = 0};
    struct fault fault;
    int at, rank = x ? x->type.rank : 0;
    int code = x ? shape_axis(axis, rank, &at, &fault) : STATUS_OK;
    if (code)
        return call_refuse(OP_SLICE, (enum status)code, "%s", fault.message);
    for (int i = 0; i < rank; i++) {
        packed.ints[packed.n_ints++] = i == at ? start : OP_SLICE_NONE;
        packed.ints[packed.n_ints++] = i == at ? stop : OP_SLICE_NONE;
        packed.ints[packed.n_ints++] = i == at && step != TD_NONE ? step : 1;
    }
    return enqueue(NULL, OP_SLICE, 1, &x, &packed);
}

td_tensor *td_slices(td_tensor *x, int count, const int64_t *ranges) {
    struct op_packed packed;
    if (x && !call_takes_list(OP_SLICE, "ranges", 3 * TD_RANK_MAX, count, ranges))
        return NULL;
    slice_attributes_write(&(struct slice_attributes){.ranges = {x ? (unsigned)count : 0, ranges}}, &packed);
    return enqueue(NULL, OP_SLICE, 1, &x, &packed);
}

td_tensor *td_pad(td_tensor *x, int count, const int64_t *widths, td_pad_mode mode, double value) {
    struct op_packed packed;
    struct op_scalar scalar = {.i = 0};
    if (x && !call_takes_list(OP_PAD, "widths", 2 * TD_RANK_MAX, count, widths))
        return NULL;
    if (x && !scalar_of((td_dtype)x->type.dtype, value, &scalar))
        return call_refuse(OP_PAD, STATUS_INVALID_ARGUMENT, "%.17g is no value of %s", value,
                           dtype_name(x->type.dtype));
    struct pad_attributes attributes = {
        .value = scalar, .mode = (enum op_pad_mode)mode, .widths = {x ? (unsigned)count : 0, widths}};
    pad_attributes_write(&attributes, &packed);
    return enqueue(NULL, OP_PAD, 1, &x, &packed);
}

int td_repeat_each(td_tensor *x, td_tensor *counts, int64_t length, int axis, td_tensor **result, td_tensor **total) {
    struct op_packed packed;
    td_tensor *inputs[] = {x, counts}, *sum = NULL;
    repeat_each_attributes_write(&(struct repeat_each_attributes){.length = length, .axis = axis}, &packed);
    struct batch_entry entry = {
        .opcode = OP_REPEAT_EACH, .ints = packed.ints, .n_ints = packed.n_ints, .n_inputs = 2, .inputs = inputs};
    int code = call_enqueue_several(NULL, &entry, 2, (td_tensor * *const[]){result, &sum});
    if (total)
        *total = sum;
    else
        td_release(sum);
    return code;
}

td_tensor *td_searchsorted(td_tensor *sorted, td_tensor *values, int right, td_tensor *sorter) {
    struct op_packed packed;
    td_tensor *taken = sorter ? td_take(sorted, sorter, 0) : sorted;
    td_tensor *inputs[] = {taken, values};
    searchsorted_attributes_write(&(struct searchsorted_attributes){.right = right != 0}, &packed);
    td_tensor *result = enqueue(NULL, OP_SEARCHSORTED, 2, inputs, &packed);
    if (sorter)
        td_release(taken);
    return result;
}

/* On the wire a pos_weight follows a weight: one that changes nothing. */
td_tensor *td_bce_with_logits(td_tensor *x, td_tensor *target, td_tensor *weight, td_tensor *pos_weight,
                              td_reduction reduction) {
    struct op_packed packed;
    td_tensor *one = x && pos_weight && !weight ? td_full(x->device, (td_dtype)x->type.dtype, TD_SCALAR, 1) : NULL;
    td_tensor *inputs[] = {x, target, one ? one : weight, pos_weight};
    reduced_attributes_write(&(struct reduced_attributes){.reduction = (enum op_reduction)reduction}, &packed);
    td_tensor *result = enqueue(NULL, OP_BCE_WITH_LOGITS, pos_weight ? 4 : weight ? 3 : 2, inputs, &packed);
    if (one)
        td_release(one);
    return result;
}
