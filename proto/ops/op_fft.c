/* Shapes of Fourier transforms. */
#include "proto/ops/op_rules.h"

#include <inttypes.h>

int op_rule_fft(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *x = call->inputs[0];
    struct fft_attributes given; /* the others have the same */
    int axis;
    fft_attributes_read(call->attributes, &given);
    int status = shape_axis(given.axis, x->rank, &axis, fault);
    if (status != STATUS_OK) {
        return status;
    }
    if (x->shape[axis] < 1) {
        return fault_set(fault, STATUS_SHAPE, "axis %d has no elements, and there is no transform of none", axis);
    }
    bool halved = call->opcode == OP_IRFFT;
    int64_t n = given.n ? given.n : halved ? 2 * (x->shape[axis] - 1) : x->shape[axis];
    if (!given.n && n < 1) {
        return fault_set(fault, STATUS_SHAPE, "axis %d has one element, for which n must be given", axis);
    }
    if (n < 1 || n > INT32_MAX) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "n is %" PRId64 ", not 1 to 2^31 - 1", n);
    }
    op_copy_shape(out, x);
    out->shape[axis] = call->opcode == OP_RFFT ? n / 2 + 1 : n;
    return STATUS_OK;
}
