#include "client/call.h"

static td_tensor *create(td_device *device, unsigned opcode, const int64_t *ints, int n_ints, const double *floats,
                         unsigned n_floats) {
    if (n_ints < 0)
        return NULL;
    return call_enqueue(
        device,
        &(struct batch_entry){
            .opcode = opcode, .ints = ints, .n_ints = (unsigned)n_ints, .floats = floats, .n_floats = n_floats});
}

/* Whether a double, truncated, is an integer of this dtype; other kinds of dtypes take any, as 0. Casting what is beyond
 * 64 bits, or NaN, is undefined in C. */
static bool whole(td_dtype dtype, double value, int64_t *out) {
    *out = 0;
    if (dtype_kind((enum dtype)dtype) != DTYPE_KIND_INT)
        return true;
    if (!(value >= -0x1p63 && value < 0x1p63))
        return false;
    *out = (int64_t)value;
    return dtype_holds((enum dtype)dtype, *out);
}

td_tensor *td_full(td_device *device, td_dtype dtype, int rank, const int64_t *shape, double value) {
    int64_t ints[OP_INTS_MAX] = {call_enum(dtype)};
    if (!whole(dtype, value, &ints[1]))
        return call_refuse(OP_FULL, STATUS_INVALID_ARGUMENT, "%.17g is no value of %s", value, td_dtype_name(dtype));
    /* A truncated 0.5 would make a bool false. */
    if (dtype == TD_BOOL)
        ints[1] = value != 0;
    int n = call_append_shape(OP_FULL, ints, 2, rank, shape);
    return create(device, OP_FULL, ints, n, &value, 1);
}

td_tensor *td_full_int(td_device *device, td_dtype dtype, int rank, const int64_t *shape, int64_t value) {
    int64_t ints[OP_INTS_MAX] = {call_enum(dtype), value};
    int n = call_append_shape(OP_FULL, ints, 2, rank, shape);
    return create(device, OP_FULL, ints, n, &(double){(double)value}, 1);
}

td_tensor *td_arange(td_device *device, td_dtype dtype, double start, double stop, double step) {
    static const char *const names[] = {"start", "stop", "step"};
    const double floats[] = {start, stop, step};
    int64_t ints[] = {call_enum(dtype), 0, 0, 0};
    /* Only the elements must be values of the dtype, for which the bounds are looked at later. */
    td_dtype bounds = dtype_kind((enum dtype)dtype) == DTYPE_KIND_INT ? TD_I64 : dtype;
    for (int i = 0; i < 3; i++)
        if (!whole(bounds, floats[i], &ints[1 + i]))
            return call_refuse(OP_ARANGE, STATUS_INVALID_ARGUMENT, "the %s %.17g is no value of %s", names[i],
                               floats[i], td_dtype_name(dtype));
    if (bounds == TD_I64 && ints[3] == 0 && step != 0)
        return call_refuse(OP_ARANGE, STATUS_INVALID_ARGUMENT, "the step %.17g is truncated to 0 for %s", step,
                           td_dtype_name(dtype));
    return create(device, OP_ARANGE, ints, 4, floats, 3);
}

td_tensor *td_eye(td_device *device, td_dtype dtype, int64_t rows, int64_t columns, int64_t diagonal) {
    return create(device, OP_EYE, (int64_t[]){call_enum(dtype), rows, columns, diagonal}, 4, NULL, 0);
}

static td_tensor *random_numbers(td_device *device, unsigned opcode, td_dtype dtype, int rank, const int64_t *shape,
                                 uint64_t seed, double first, double second) {
    int64_t ints[OP_INTS_MAX] = {call_enum(dtype), (int64_t)seed, 0};
    int n = call_append_shape(opcode, ints, 3, rank, shape);
    return create(device, opcode, ints, n, (double[]){first, second}, 2);
}

td_tensor *td_uniform(td_device *device, td_dtype dtype, int rank, const int64_t *shape, uint64_t seed, double low,
                      double high) {
    return random_numbers(device, OP_UNIFORM, dtype, rank, shape, seed, low, high);
}

td_tensor *td_normal(td_device *device, td_dtype dtype, int rank, const int64_t *shape, uint64_t seed, double mean,
                     double deviation) {
    return random_numbers(device, OP_NORMAL, dtype, rank, shape, seed, mean, deviation);
}

td_tensor *td_cast(td_tensor *x, td_dtype dtype) {
    return call_one(OP_CAST, x, (int64_t[]){call_enum(dtype)}, 1);
}

td_tensor *td_copy(td_tensor *x) {
    return call_one(OP_COPY, x, NULL, 0);
}
