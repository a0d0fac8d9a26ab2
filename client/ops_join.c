/* Products, joining and indexing. */
#include "client/call.h"

td_tensor *td_matmul(td_tensor *a, td_tensor *b) {
    return call_two(OP_MATMUL, a, b, NULL, 0);
}

_Static_assert((int)TD_ACTIVATION_NONE == OP_ACTIVATION_NONE && (int)TD_ACTIVATION_RELU == OP_ACTIVATION_RELU &&
                   (int)TD_ACTIVATION_GELU_TANH == OP_ACTIVATION_GELU_TANH && OP_ACTIVATION_COUNT == 3,
               "one numbering, two headers");

td_tensor *td_linear(td_tensor *x, td_tensor *weight, td_tensor *bias, td_activation activation) {
    td_tensor *inputs[] = {x, weight, bias};
    return call_enqueue(NULL, &(struct batch_entry){.opcode = OP_LINEAR,
                                                    .n_inputs = bias ? 3 : 2,
                                                    .inputs = inputs,
                                                    .ints = (int64_t[]){call_enum(activation)},
                                                    .n_ints = 1});
}

static td_tensor *join(unsigned opcode, td_tensor *const *tensors, int count, int axis) {
    if (count < 1 || count > OP_INPUTS_MAX || !tensors)
        return call_refuse(opcode, STATUS_INVALID_ARGUMENT, "%d tensors%s, 1 to %d are possible", count,
                           tensors ? "" : " at NULL", OP_INPUTS_MAX);
    return call_enqueue(
        NULL,
        &(struct batch_entry){
            .opcode = opcode, .n_inputs = (unsigned)count, .inputs = tensors, .ints = (int64_t[]){axis}, .n_ints = 1});
}

td_tensor *td_concat(td_tensor *const *tensors, int count, int axis) {
    return join(OP_CONCAT, tensors, count, axis);
}

td_tensor *td_stack(td_tensor *const *tensors, int count, int axis) {
    return join(OP_STACK, tensors, count, axis);
}

td_tensor *td_take(td_tensor *x, td_tensor *indices, int axis) {
    return call_two(OP_TAKE, x, indices, (int64_t[]){axis}, 1);
}

td_tensor *td_take_along_axis(td_tensor *x, td_tensor *indices, int axis) {
    return call_two(OP_TAKE_ALONG_AXIS, x, indices, (int64_t[]){axis}, 1);
}

td_tensor *td_one_hot(td_tensor *indices, int64_t classes, td_dtype dtype) {
    return call_one(OP_ONE_HOT, indices, (int64_t[]){classes, call_enum(dtype)}, 2);
}
