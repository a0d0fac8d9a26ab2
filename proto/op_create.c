/* Rules of operations without inputs: all that they know is attributes, and any of those may be absurd. */
#include "proto/op_rules.h"

#include <inttypes.h>
#include <math.h>

/* Floating dtypes take any. */
static int check_value(int64_t value, int64_t dtype, struct fault *fault) {
    if (dtype_holds((enum dtype)dtype, value)) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRId64 " is no value of %s", value,
                     dtype_name((enum dtype)dtype));
}

int op_rule_full(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    if (call->n_ints < 2) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "dtype and value are missing");
    }
    int status = type_make(out, call->ints[0], call->ints + 2, call->n_ints - 2, fault);
    return status == STATUS_OK ? check_value(call->ints[1], call->ints[0], fault) : status;
}

static int arange_integer_count(const int64_t *ints, int64_t *count, struct fault *fault) {
    int64_t start = ints[1], stop = ints[2], step = ints[3];
    if (step == 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the step is 0");
    }
    if (step > 0 ? start >= stop : start <= stop) {
        *count = 0;
        return STATUS_OK;
    }
    /* Distances of int64_t need 64 bits without sign; unsigned arithmetic gives them modulo 2^64, which is exact. */
    uint64_t distance = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t steps = (distance - 1) / stride;
    if (steps >= INT64_MAX) {
        return fault_set(fault, STATUS_SHAPE, "%" PRIu64 " steps from %" PRId64 " to %" PRId64 " are too many", steps,
                         start, stop);
    }
    *count = (int64_t)steps + 1;
    int status = check_value(start, ints[0], fault);
    /* The last value lies between start and stop. */
    uint64_t last = (uint64_t)start + steps * (uint64_t)step;
    return status == STATUS_OK ? check_value((int64_t)last, ints[0], fault) : status;
}

static int arange_float_count(const double *floats, int64_t *count, struct fault *fault) {
    double start = floats[0], stop = floats[1], step = floats[2];
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
    int64_t dtype = call->ints[0], count = 0;
    int status = type_make(out, dtype, NULL, 0, fault);
    if (status != STATUS_OK) {
        return status;
    }
    if (dtype == DTYPE_BOOL) {
        return fault_set(fault, STATUS_DTYPE, "takes numbers, not bool");
    }
    status = dtype_kind(out->dtype) == DTYPE_KIND_INT ? arange_integer_count(call->ints, &count, fault)
                                                      : arange_float_count(call->floats, &count, fault);
    return status == STATUS_OK ? type_make(out, dtype, &count, 1, fault) : status;
}

int op_rule_eye(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    /* So that kernels can compute row + diagonal without a thought. */
    int64_t diagonal = call->ints[3], bound = INT64_C(1) << 62;
    if (diagonal < -bound || diagonal > bound) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "diagonal %" PRId64 " is not between -2^62 and 2^62",
                         diagonal);
    }
    return type_make(out, call->ints[0], call->ints + 1, 2, fault);
}

static int check_bound(enum dtype dtype, double bound, struct fault *fault) {
    double largest = dtype_largest(dtype);
    return fabs(bound) <= largest
               ? STATUS_OK
               : fault_set(fault, STATUS_INVALID_ARGUMENT, "%g is out of range of %s, whose largest value is %g", bound,
                           dtype_name(dtype), largest);
}

static int check_distribution(unsigned opcode, enum dtype dtype, double first, double second, struct fault *fault) {
    if (opcode == OP_UNIFORM && !(isfinite(first) && isfinite(second) && isfinite(second - first) && first <= second)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no uniform distribution from %g to %g", first, second);
    }
    if (opcode == OP_NORMAL && !(isfinite(first) && isfinite(second) && second >= 0)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no normal distribution with mean %g and deviation %g", first,
                         second);
    }
    int status = check_bound(dtype, first, fault);
    if (status == STATUS_OK) {
        status = check_bound(dtype, second, fault);
    }
    if (status == STATUS_OK && opcode == OP_UNIFORM && first < second && dtype_not_below(dtype, first) >= second) {
        status = fault_set(fault, STATUS_INVALID_ARGUMENT, "%s has no value from %.17g to below %.17g",
                           dtype_name(dtype), first, second);
    }
    return status;
}

int op_rule_random(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    if (call->n_ints < 3) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "dtype, seed and offset are missing");
    }
    int status = type_make(out, call->ints[0], call->ints + 3, call->n_ints - 3, fault);
    if (status != STATUS_OK) {
        return status;
    }
    if (dtype_kind(out->dtype) != DTYPE_KIND_FLOAT) {
        return fault_set(fault, STATUS_DTYPE, "random numbers are floating, not %s", dtype_name(out->dtype));
    }
    if (call->ints[2] < 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "offset %" PRId64 " is negative", call->ints[2]);
    }
    if (dtype_is_f8(out->dtype)) {
        return STATUS_OK; /* op_infer() refuses it */
    }
    return check_distribution(call->opcode, out->dtype, call->floats[0], call->floats[1], fault);
}
