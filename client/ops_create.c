#include <math.h>

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

/* As a C cast, but with a result for every value: saturated, and 0 for NaN. */
static int64_t integer(double value) {
    if (isnan(value))
        return 0;
    if (value >= 0x1p63)
        return INT64_MAX;
    return value < -0x1p63 ? INT64_MIN : (int64_t)value;
}

td_tensor *td_full(td_device *device, td_dtype dtype, int rank, const int64_t *shape, double value) {
    /* A truncated 0.5 would make a bool false. */
    int64_t ints[OP_INTS_MAX] = {dtype, dtype == TD_BOOL ? value != 0 : integer(value)};
    int n = call_append_list(OP_FULL, ints, 2, rank, shape);
    return create(device, OP_FULL, ints, n, &value, 1);
}

td_tensor *td_full_int(td_device *device, td_dtype dtype, int rank, const int64_t *shape, int64_t value) {
    int64_t ints[OP_INTS_MAX] = {dtype, value};
    int n = call_append_list(OP_FULL, ints, 2, rank, shape);
    return create(device, OP_FULL, ints, n, &(double){(double)value}, 1);
}

td_tensor *td_arange(td_device *device, td_dtype dtype, double start, double stop, double step) {
    return create(device, OP_ARANGE, (int64_t[]){dtype, integer(start), integer(stop), integer(step)}, 4,
                  (double[]){start, stop, step}, 3);
}

td_tensor *td_eye(td_device *device, td_dtype dtype, int64_t rows, int64_t columns, int64_t diagonal) {
    return create(device, OP_EYE, (int64_t[]){dtype, rows, columns, diagonal}, 4, NULL, 0);
}

static td_tensor *random_numbers(td_device *device, unsigned opcode, td_dtype dtype, int rank, const int64_t *shape,
                                 uint64_t seed, double first, double second) {
    int64_t ints[OP_INTS_MAX] = {dtype, (int64_t)seed, 0};
    int n = call_append_list(opcode, ints, 3, rank, shape);
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
    return call_one(OP_CAST, x, (int64_t[]){dtype}, 1);
}

td_tensor *td_copy(td_tensor *x) {
    return call_one(OP_COPY, x, NULL, 0);
}
