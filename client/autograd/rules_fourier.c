/* Rules of Fourier transforms. A transform is linear: the gradient goes through the matrix of the sums, conjugated and transposed, which is the
 * transform in the other direction with the scale of this one. */
#include "client/autograd/rule.h"

struct transform {
    int axis;
    int64_t n; /* the length that is transformed */
    td_fft_norm adjoint;
};

/* The norm with which the other direction has this one's scale. */
static td_fft_norm adjoint_norm(enum op_fft_norm norm) {
    return norm == OP_FFT_NORM_BACKWARD  ? TD_FFT_NORM_FORWARD
           : norm == OP_FFT_NORM_FORWARD ? TD_FFT_NORM_BACKWARD
                                         : TD_FFT_NORM_ORTHO;
}

static struct transform transform_of(const struct rule_call *call) {
    struct fft_attributes attributes;
    const struct tensor_type *x = rule_type(call, 0);
    fft_attributes_read(&call->node->attributes, &attributes);
    int axis = (int)(attributes.axis < 0 ? attributes.axis + x->rank : attributes.axis);
    return (struct transform){axis, attributes.n ? attributes.n : x->shape[axis], adjoint_norm(attributes.norm)};
}

/* The axis with n elements: cut, or with zeros behind, as a transform takes it. */
static td_tensor *resized(td_tensor *x, int axis, int64_t n) {
    int64_t widths[2 * TD_RANK_MAX] = {0};
    if (!x || td_tensor_shape(x)[axis] == n)
        return x;
    if (td_tensor_shape(x)[axis] > n)
        return td_slice(x, axis, 0, n, 1);
    widths[2 * axis + 1] = n - td_tensor_shape(x)[axis];
    return td_pad(x, 2 * td_tensor_rank(x), widths, TD_PAD_MODE_CONSTANT, 0);
}

RULE(fft) {
    const struct transform at = transform_of(call);
    td_tensor *g = td_ifft(call->g[0], at.n, at.axis, at.adjoint);
    rule_give(call, 0, resized(g, at.axis, rule_type(call, 0)->shape[at.axis]));
}

RULE(ifft) {
    const struct transform at = transform_of(call);
    td_tensor *g = td_fft(call->g[0], at.n, at.axis, at.adjoint);
    rule_give(call, 0, resized(g, at.axis, rule_type(call, 0)->shape[at.axis]));
}

/* The elements that the result leaves out have no gradient. */
RULE(rfft) {
    const struct transform at = transform_of(call);
    td_tensor *g = td_real(td_ifft(resized(call->g[0], at.axis, at.n), at.n, at.axis, at.adjoint));
    rule_give(call, 0, resized(g, at.axis, rule_type(call, 0)->shape[at.axis]));
}

/* An element counts twice, for its conjugate is left out, except element 0 and, of an even n, element n/2. */
RULE(irfft) {
    struct transform at = transform_of(call);
    at.n = call->node->outputs[0].type.shape[at.axis];
    td_tensor *g = td_rfft(call->g[0], at.n, at.axis, at.adjoint);
    int64_t last = (at.n - 1) / 2, shape[TD_RANK_MAX];
    if (!g)
        return rule_give(call, 0, NULL);
    for (int i = 0; i < rule_type(call, 0)->rank; i++)
        shape[i] = i == at.axis ? at.n / 2 + 1 : 1;
    td_tensor *number = td_arange(call->node->device, TD_I64, 0, (double)(at.n / 2 + 1), 1);
    td_tensor *inner = td_logical_and(td_greater(number, rule_number(number, 0)),
                                      td_less_equal(number, rule_number(number, (double)last)));
    td_tensor *twice = td_where(td_reshape(inner, rule_type(call, 0)->rank, shape), rule_scale(g, 2), g);
    rule_give(call, 0, resized(twice, at.axis, rule_type(call, 0)->shape[at.axis]));
}
