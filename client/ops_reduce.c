#include "client/call.h"

static td_tensor *reduce(unsigned opcode, td_tensor *x, int count, const int64_t *axes, int keepdims) {
    int64_t ints[OP_INTS_MAX] = {keepdims != 0};
    int n = x ? call_append_axes(opcode, ints, 1, count, axes) : 0;
    return n < 0 ? NULL : call_one(opcode, x, ints, n);
}

#define REDUCE(name, OPCODE)                                                                                           \
    td_tensor *td_##name(td_tensor *x, int count, const int64_t *axes, int keepdims) {                                 \
        return reduce(OP_##OPCODE, x, count, axes, keepdims);                                                          \
    }

REDUCE(sum, SUM)
REDUCE(prod, PROD)
REDUCE(mean, MEAN)
REDUCE(max, MAX)
REDUCE(min, MIN)
REDUCE(any, ANY)
REDUCE(all, ALL)
REDUCE(argmax, ARGMAX)
REDUCE(argmin, ARGMIN)

td_tensor *td_softmax(td_tensor *x, int axis) {
    return call_one(OP_SOFTMAX, x, (int64_t[]){axis}, 1);
}

td_tensor *td_log_softmax(td_tensor *x, int axis) {
    return call_one(OP_LOG_SOFTMAX, x, (int64_t[]){axis}, 1);
}
