#include "tests/device/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct values *reference_run(const struct reference_request *request) {
#define REFERENCE(FAMILY, name) [OP_FAMILY_##FAMILY] = reference_##name,
    static reference_function *const families[] = {OP_FAMILIES(REFERENCE)};
    enum op_family family = op_info(request->opcode)->family;
    if (family >= sizeof families / sizeof *families || !families[family])
        reference_lacks(request->opcode);
    return families[family](request);
}

void reference_lacks(unsigned opcode) {
    fprintf(stderr, "the suite has no reference for %s\n", op_info(opcode)->name);
    abort();
}

/* The smallest integer dtype that has the values of both. */
static enum dtype promote_integers(enum dtype a, enum dtype b) {
    static const enum dtype all[] = {DTYPE_U8,  DTYPE_I8,  DTYPE_U16, DTYPE_I16,
                                     DTYPE_U32, DTYPE_I32, DTYPE_U64, DTYPE_I64};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        long double low = value_number(all[i], value_low(all[i])), high = value_number(all[i], value_high(all[i]));
        if (low <= value_number(a, value_low(a)) && low <= value_number(b, value_low(b)) &&
            high >= value_number(a, value_high(a)) && high >= value_number(b, value_high(b)))
            return all[i];
    }
    return DTYPE_INVALID; /* u64 and a signed one */
}

/* Rows and columns: f16 bf16 f32 f64. */
static const uint8_t promote_floats[4][4] = {
    {DTYPE_F16, DTYPE_F32, DTYPE_F32, DTYPE_F64},
    {DTYPE_F32, DTYPE_BF16, DTYPE_F32, DTYPE_F64},
    {DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_F64},
    {DTYPE_F64, DTYPE_F64, DTYPE_F64, DTYPE_F64},
};

enum dtype reference_promote(enum dtype a, enum dtype b) {
    if (value_is_f8(a) || value_is_f8(b))
        return a == b ? a : DTYPE_INVALID;
    if (value_is_complex(a) || value_is_complex(b)) {
        bool wide = a == DTYPE_F64 || b == DTYPE_F64 || a == DTYPE_C128 || b == DTYPE_C128;
        return wide ? DTYPE_C128 : DTYPE_C64;
    }
    if (a == DTYPE_BOOL)
        return b;
    if (b == DTYPE_BOOL)
        return a;
    if (value_is_float(a) != value_is_float(b))
        return value_is_float(a) ? a : b;
    return value_is_float(a) ? promote_floats[a - DTYPE_F16][b - DTYPE_F16] : promote_integers(a, b);
}

static int64_t float_to_integer(enum dtype dtype, long double value) {
    if (isnan(value))
        return 0;
    if (value <= value_number(dtype, value_low(dtype)))
        return value_low(dtype);
    if (value >= value_number(dtype, value_high(dtype)))
        return value_high(dtype);
    return value < 0 ? (int64_t)value : (int64_t)(uint64_t)value;
}

struct values *reference_cast(const struct values *x, enum dtype dtype) {
    if (value_is_complex(x->dtype) && !value_is_complex(dtype) && dtype != DTYPE_BOOL)
        return NULL;
    struct values *out = values_create(dtype, x->rank, x->shape);
    for (int64_t k = 0; k < x->count; k++) {
        if (out->im)
            out->im[k] = x->im ? value_round(dtype, x->im[k]) : 0;
        if (out->f)
            out->f[k] = value_round(dtype, x->f ? x->f[k] : value_number(x->dtype, x->i[k]));
        else if (dtype == DTYPE_BOOL)
            out->i[k] = x->f ? x->f[k] != 0 || (x->im && x->im[k] != 0) : x->i[k] != 0;
        else
            out->i[k] = x->f ? float_to_integer(dtype, x->f[k]) : value_wrap(dtype, x->i[k]);
    }
    return out;
}

bool reference_broadcast(int rank_a, const int64_t *a, int rank_b, const int64_t *b, int *rank, int64_t *shape) {
    int longer = rank_a > rank_b ? rank_a : rank_b;
    for (int i = 1; i <= longer; i++) { /* from the last axis */
        int64_t ea = i <= rank_a ? a[rank_a - i] : 1, eb = i <= rank_b ? b[rank_b - i] : 1;
        if (ea != eb && ea != 1 && eb != 1)
            return false;
        shape[longer - i] = ea == 1 ? eb : ea;
    }
    *rank = longer;
    return true;
}

struct values *reference_gather(const struct values *x, int rank, const int64_t *shape, const int64_t *strides,
                                int64_t offset) {
    struct values *out = values_create(x->dtype, rank, shape);
    int64_t index[VALUES_RANK_MAX] = {0};
    for (int64_t k = 0; k < out->count; k++) {
        values_put(out, k, x, offset + values_offset(rank, index, strides));
        values_next(rank, shape, index);
    }
    return out;
}

struct values *reference_broadcast_to(const struct values *x, int rank, const int64_t *shape) {
    int64_t own[VALUES_RANK_MAX], strides[VALUES_RANK_MAX];
    values_strides(x->rank, x->shape, own);
    if (x->rank > rank)
        return NULL;
    for (int i = 0; i < rank; i++) {
        int axis = i - (rank - x->rank);
        if (axis >= 0 && x->shape[axis] != 1 && x->shape[axis] != shape[i])
            return NULL;
        strides[i] = axis >= 0 && x->shape[axis] != 1 ? own[axis] : 0;
    }
    return reference_gather(x, rank, shape, strides, 0);
}

int reference_axis(int64_t axis, int rank) {
    if (axis < -rank || axis >= rank)
        return -1;
    return (int)(axis < 0 ? axis + rank : axis);
}
