/* Rules of operations without inputs. They only have attributes, and any attribute may have an absurd value. */
#include "proto/ops/op_rules.h"

#include <inttypes.h>
#include <math.h>

/* Floating dtypes take any value. */
static int check_value(int64_t value, bool above, enum dtype dtype, struct fault *fault) {
    if (dtype_holds(dtype, value, above)) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRId64 " is no value of %s", value, dtype_name(dtype));
}

int op_rule_full(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct full_attributes attributes;
    full_attributes_read(call->attributes, &attributes);
    int status = type_make(out, out->dtype, attributes.shape.values, attributes.shape.count, fault);
    return status == STATUS_OK
               ? check_value(attributes.value.i, op_scalar_above(&attributes.value, out->dtype), out->dtype, fault)
               : status;
}

/* Integers from -2^63 to 2^64 - 1, and their differences. */
__extension__ typedef __int128 wide;

static wide scalar_wide(const struct op_scalar *scalar, enum dtype dtype) {
    return scalar->i + (op_scalar_above(scalar, dtype) ? (wide)1 << 64 : 0);
}

static int check_wide(wide value, enum dtype dtype, struct fault *fault) {
    return check_value((int64_t)(uint64_t)value, value > INT64_MAX, dtype, fault);
}

static int arange_integer_count(const struct arange_attributes *given, int64_t *count, struct fault *fault) {
    wide start = scalar_wide(&given->start, given->dtype), stop = scalar_wide(&given->stop, given->dtype);
    wide step = scalar_wide(&given->step, given->dtype);
    if (step == 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the step is 0");
    }
    if (step > 0 ? start >= stop : start <= stop) {
        *count = 0;
        return STATUS_OK;
    }
    wide steps = step > 0 ? (stop - start - 1) / step : (start - stop - 1) / -step;
    if (steps >= INT64_MAX) {
        return fault_set(fault, STATUS_SHAPE, "%.0f steps from %.0f to %.0f are too many", (double)steps, (double)start,
                         (double)stop);
    }
    *count = (int64_t)steps + 1;
    int status = check_wide(start, given->dtype, fault);
    /* The last value lies between start and stop. */
    return status == STATUS_OK ? check_wide(start + steps * step, given->dtype, fault) : status;
}

static int arange_float_count(const struct arange_attributes *given, int64_t *count, struct fault *fault) {
    double start = given->start.f, stop = given->stop.f, step = given->step.f;
    if (!isfinite(start) || !isfinite(stop) || !isfinite(step) || step == 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "cannot go from %g to %g in steps of %g", start, stop, step);
    }
    double steps = ceil((stop - start) / step);
    if (!(steps < 0x1p62)) { /* also where the quotient is infinite or, inf/inf, NaN */
        return fault_set(fault, STATUS_SHAPE, "%g steps of %g from %g to %g are too many", steps, step, start, stop);
    }
    *count = steps > 0 ? (int64_t)steps : 0;
    return STATUS_OK;
}

int op_rule_arange(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct arange_attributes attributes;
    int64_t count = 0;
    arange_attributes_read(call->attributes, &attributes);
    int status = dtype_kind(out->dtype) == DTYPE_KIND_INT ? arange_integer_count(&attributes, &count, fault)
                                                          : arange_float_count(&attributes, &count, fault);
    return status == STATUS_OK ? type_make(out, out->dtype, &count, 1, fault) : status;
}

int op_rule_eye(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    /* So that row + diagonal does not overflow in kernels. */
    int64_t bound = INT64_C(1) << 62;
    struct eye_attributes attributes;
    eye_attributes_read(call->attributes, &attributes);
    if (attributes.diagonal < -bound || attributes.diagonal > bound) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "diagonal %" PRId64 " is not between -2^62 and 2^62",
                         attributes.diagonal);
    }
    return type_make(out, out->dtype, (int64_t[]){attributes.rows, attributes.columns}, 2, fault);
}

static int check_steps(double start, double stop, struct fault *fault) {
    if (!isfinite(start) || !isfinite(stop) || !isfinite(stop - start)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "cannot go from %g to %g in equal steps", start, stop);
    }
    return STATUS_OK;
}

int op_rule_linspace(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct linspace_attributes attributes;
    linspace_attributes_read(call->attributes, &attributes);
    int status = check_steps(attributes.start, attributes.stop, fault);
    return status == STATUS_OK ? type_make(out, out->dtype, &attributes.count, 1, fault) : status;
}

int op_rule_linspace_complex(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct linspace_complex_attributes attributes;
    linspace_complex_attributes_read(call->attributes, &attributes);
    int status = check_steps(attributes.start_real, attributes.stop_real, fault);
    if (status == STATUS_OK) {
        status = check_steps(attributes.start_imaginary, attributes.stop_imaginary, fault);
    }
    return status == STATUS_OK ? type_make(out, out->dtype, &attributes.count, 1, fault) : status;
}
