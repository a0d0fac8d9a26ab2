#include <string.h>

#include "tests/device/reference.h"

struct values *reference_repeat(const struct reference_request *r) {
    const struct values *x = r->inputs[0], *counts = r->inputs[1];
    struct repeat_each_attributes given;
    repeat_each_attributes_read(&r->attributes, &given);
    int axis = reference_axis(given.axis, x->rank);
    if (axis < 0 || counts->rank != 1 || counts->shape[0] != x->shape[axis] || counts->count == 0 || given.length < 0)
        return NULL;
    if (r->output == 1) {
        struct values *total = values_create(DTYPE_I64, 0, NULL);
        for (int64_t k = 0; k < counts->count; k++)
            total->i[0] = (int64_t)((uint64_t)total->i[0] + (uint64_t)counts->i[k]);
        return total;
    }
    int64_t shape[VALUES_RANK_MAX], strides[VALUES_RANK_MAX], index[VALUES_RANK_MAX] = {0};
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = given.length;
    struct values *out = values_create(x->dtype, x->rank, shape);
    values_strides(x->rank, x->shape, strides);
    for (int64_t k = 0; k < out->count; k++) {
        int64_t from = 0, place = index[axis];
        while (from < counts->count && place >= (counts->i[from] < 0 ? 0 : counts->i[from]))
            place -= counts->i[from] < 0 ? 0 : counts->i[from], from++;
        if (from < counts->count)
            values_put(out, k, x, values_offset(x->rank, index, strides) + (from - index[axis]) * strides[axis]);
        values_next(x->rank, shape, index);
    }
    return out;
}
