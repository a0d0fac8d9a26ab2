/* The work of operations, as their descriptions say. */
#include "proto/ops/op.h"

/* Products with each element of `y`, whose channels are the weight's first axis. */
static double convolution_work(const struct tensor_type *y, const struct tensor_type *weight) {
    double channels = weight->rank > 0 && weight->shape[0] > 0 ? (double)weight->shape[0] : 1;
    return (double)type_elements(y) * ((double)type_elements(weight) / channels);
}

double op_work(const struct op_info *info, const struct tensor_type *const inputs[], const struct tensor_type *out) {
    switch (info->work) {
    case OP_WORK_NONE:
        return 0;
    case OP_WORK_RESULT:
        return (double)type_elements(out);
    case OP_WORK_INPUT:
        return (double)type_elements(inputs[0]);
    case OP_WORK_PRODUCTS:
        return (double)type_elements(out) * (inputs[0]->rank > 0 ? (double)inputs[0]->shape[inputs[0]->rank - 1] : 1);
    case OP_WORK_CUBES: {
        const int64_t *last = inputs[0]->shape + inputs[0]->rank - 2;
        return (double)type_elements(inputs[0]) * (double)(last[0] < last[1] ? last[0] : last[1]);
    }
    case OP_WORK_ATTENTION: { /* of the gradient k is one further input */
        const struct tensor_type *k = inputs[info->n_outputs > 2 ? 2 : 1];
        return (double)type_elements(inputs[0]) * (double)k->shape[k->rank - 2];
    }
    case OP_WORK_CONVOLUTION:
        return convolution_work(out, inputs[1]);
    case OP_WORK_CONVOLUTION_OF_X:
        return convolution_work(inputs[0], inputs[1]);
    case OP_WORK_CONVOLUTION_OF_GRADIENT:
        return convolution_work(inputs[1], out);
    }
    return 0;
}
