#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

static struct values *create_full(const struct reference_request *r) {
    struct full_attributes given;
    full_attributes_read(&r->attributes, &given);
    struct values *out = values_create(given.dtype, (int)given.shape.count, given.shape.values);
    double imaginary;
    memcpy(&imaginary, &given.value.i, sizeof imaginary);
    for (int64_t k = 0; k < out->count; k++) {
        if (out->im)
            out->im[k] = value_round(out->dtype, imaginary);
        if (out->f)
            out->f[k] = value_round(out->dtype, given.value.f);
        else
            out->i[k] = value_wrap(out->dtype, given.value.i);
    }
    return out;
}

/* i, or where it is negative and f is not, an integer of u64. */
static __int128 whole(const struct op_scalar *scalar, enum dtype dtype) {
    return scalar->i + (dtype == DTYPE_U64 && scalar->i < 0 && scalar->f > 0 ? (__int128)1 << 64 : 0);
}

static int64_t arange_count(__int128 span, __int128 step) {
    if (step == 0 || span == 0 || (span > 0) != (step > 0))
        return 0;
    return (int64_t)((span + step + (step > 0 ? -1 : 1)) / step);
}

static struct values *create_arange(const struct reference_request *r) {
    struct arange_attributes given;
    arange_attributes_read(&r->attributes, &given);
    enum dtype dtype = given.dtype;
    int64_t count;
    if (value_is_float(dtype)) {
        double steps = ceil((given.stop.f - given.start.f) / given.step.f);
        count = steps > 0 ? (int64_t)steps : 0;
    } else {
        count = arange_count(whole(&given.stop, dtype) - whole(&given.start, dtype), whole(&given.step, dtype));
    }
    struct values *out = values_create(dtype, 1, &count);
    for (int64_t k = 0; k < count; k++) {
        if (out->f)
            out->f[k] = value_round(dtype, given.start.f + (long double)k * given.step.f);
        else
            out->i[k] = value_wrap(dtype, (int64_t)((uint64_t)given.start.i + (uint64_t)k * (uint64_t)given.step.i));
    }
    if (out->f && count) {
        values_scaled(out, 1);
        for (int64_t k = 0; k < count; k++)
            out->scale[k] = fabsl((long double)given.start.f) + fabsl((long double)k * given.step.f);
    }
    return out;
}

static struct values *create_linspace(const struct reference_request *r) {
    struct linspace_attributes given;
    linspace_attributes_read(&r->attributes, &given);
    int64_t count = given.count, steps = given.endpoint ? count - 1 : count;
    struct values *out = values_create(given.dtype, 1, &count);
    values_scaled(out, 1);
    for (int64_t k = 0; k < count; k++) {
        long double step = steps ? ((long double)given.stop - given.start) / steps * k : 0;
        bool last = given.endpoint && k > 0 && k == steps;
        out->f[k] = value_round(given.dtype, last ? given.stop : given.start + step);
        out->scale[k] = last ? 0 : fabsl((long double)given.start) + fabsl(step);
    }
    return out;
}

static struct values *create_linspace_complex(const struct reference_request *r) {
    struct linspace_complex_attributes given;
    linspace_complex_attributes_read(&r->attributes, &given);
    int64_t count = given.count, steps = given.endpoint ? count - 1 : count;
    struct values *out = values_create(given.dtype, 1, &count);
    const long double starts[] = {given.start_real, given.start_imaginary};
    const long double stops[] = {given.stop_real, given.stop_imaginary};
    values_scaled(out, 1);
    for (int64_t k = 0; k < count; k++) {
        bool last = given.endpoint && k > 0 && k == steps;
        for (int part = 0; part < 2; part++) {
            long double step = steps ? (stops[part] - starts[part]) / steps * k : 0;
            long double value = last ? stops[part] : starts[part] + step;
            (part ? out->im : out->f)[k] = value_round(given.dtype, value);
            out->scale[k] += last ? 0 : fabsl(starts[part]) + fabsl(step);
        }
    }
    return out;
}

static struct values *create_eye(const struct reference_request *r) {
    struct eye_attributes given;
    eye_attributes_read(&r->attributes, &given);
    struct values *out = values_create(given.dtype, 2, (int64_t[]){given.rows, given.columns});
    for (int64_t k = 0; k < out->count; k++) {
        bool one = k % out->shape[1] - k / out->shape[1] == given.diagonal;
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
    case OP_LINSPACE:
        return create_linspace(r);
    case OP_LINSPACE_COMPLEX:
        return create_linspace_complex(r);
    case OP_UNIFORM:
    case OP_NORMAL:
    case OP_EXPONENTIAL:
    case OP_RANDINT:
    case OP_BERNOULLI:
    case OP_PERMUTATION:
        return reference_random(r);
    default:
        reference_lacks(r->opcode);
    }
}
