#include <math.h>

#include "tests/device/reference.h"

static struct values *create_full(const struct reference_request *r) {
    struct values *out = values_create((enum dtype)r->ints[0], (int)r->n_ints - 2, r->ints + 2);
    for (int64_t k = 0; k < out->count; k++) {
        if (out->f)
            out->f[k] = value_round(out->dtype, r->floats[0]);
        else
            out->i[k] = value_wrap(out->dtype, r->ints[1]);
    }
    return out;
}

static int64_t arange_count(__int128 span, __int128 step) {
    if (step == 0 || span == 0 || (span > 0) != (step > 0))
        return 0;
    return (int64_t)((span + step + (step > 0 ? -1 : 1)) / step);
}

static struct values *create_arange(const struct reference_request *r) {
    enum dtype dtype = (enum dtype)r->ints[0];
    int64_t count;
    if (value_is_float(dtype)) {
        double steps = ceil((r->floats[1] - r->floats[0]) / r->floats[2]);
        count = steps > 0 ? (int64_t)steps : 0;
    } else {
        count = arange_count((__int128)r->ints[2] - r->ints[1], r->ints[3]);
    }
    struct values *out = values_create(dtype, 1, &count);
    for (int64_t k = 0; k < count; k++) {
        if (out->f)
            out->f[k] = value_round(dtype, r->floats[0] + (long double)k * r->floats[2]);
        else
            out->i[k] = value_wrap(dtype, (int64_t)((uint64_t)r->ints[1] + (uint64_t)k * (uint64_t)r->ints[3]));
    }
    if (out->f && count) {
        values_scaled(out, 1);
        for (int64_t k = 0; k < count; k++)
            out->scale[k] = fabsl((long double)r->floats[0]) + fabsl((long double)k * r->floats[2]);
    }
    return out;
}

static struct values *create_eye(const struct reference_request *r) {
    struct values *out = values_create((enum dtype)r->ints[0], 2, r->ints + 1);
    for (int64_t k = 0; k < out->count; k++) {
        bool one = k % out->shape[1] - k / out->shape[1] == r->ints[3];
        if (out->f)
            out->f[k] = one;
        else
            out->i[k] = one;
    }
    return out;
}

struct values *reference_create(const struct reference_request *r) {
    switch (r->opcode) {
    case OP_FULL:
        return create_full(r);
    case OP_ARANGE:
        return create_arange(r);
    case OP_EYE:
        return create_eye(r);
    case OP_UNIFORM:
    case OP_NORMAL:
        return reference_random(r);
    default:
        reference_lacks(r->opcode);
    }
}
