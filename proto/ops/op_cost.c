/* The work of operations, as their descriptions say. */
#include "proto/ops/op.h"

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
    }
    return 0;
}
