#include "proto/ops/shape.h"

#include <inttypes.h>
#include <stdio.h>

/* What is wrong with a type that type_check() refuses. */
static int refuse_type(const struct tensor_type *type, struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    if (!dtype_valid((int)type->dtype)) {
        return fault_set(fault, STATUS_DTYPE, "%d is no dtype", (int)type->dtype);
    }
    if (type->rank < 0 || type->rank > SHAPE_RANK_MAX) {
        return fault_set(fault, STATUS_SHAPE, "rank %d is not between 0 and %d", type->rank, SHAPE_RANK_MAX);
    }
    for (int i = 0; i < type->rank; i++) {
        if (type->shape[i] < 0) {
            return fault_set(fault, STATUS_SHAPE, "extent %" PRId64 " of axis %d in %s is negative", type->shape[i], i,
                             shape_text(type, text));
        }
    }
    return fault_set(fault, STATUS_SHAPE, "the bytes of %s %s exceed 2^63 - 1", dtype_name(type->dtype),
                     shape_text(type, text));
}

int type_check(const struct tensor_type *type, struct fault *fault) {
    int64_t bytes = (int64_t)dtype_size(type->dtype);
    bool good = bytes > 0 && type->rank >= 0 && type->rank <= SHAPE_RANK_MAX;
    for (int i = 0; good && i < type->rank; i++) {
        /* Zero extents count as one: then the product still fits when the empty axes of a shape are reduced or broadcast
         * away, and strides never overflow. */
        int64_t extent = type->shape[i];
        good = extent >= 0 && !__builtin_mul_overflow(bytes, extent ? extent : 1, &bytes);
    }
    return good ? STATUS_OK : refuse_type(type, fault);
}

int type_make(struct tensor_type *type, int64_t dtype, const int64_t *shape, size_t rank, struct fault *fault) {
    struct tensor_type made;
    if (dtype <= DTYPE_INVALID || dtype >= DTYPE_COUNT) {
        return fault_set(fault, STATUS_DTYPE, "%" PRId64 " is no dtype", dtype);
    }
    if (rank > SHAPE_RANK_MAX) {
        return fault_set(fault, STATUS_SHAPE, "rank %zu is above %d", rank, SHAPE_RANK_MAX);
    }
    made.dtype = (enum dtype)dtype;
    made.rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        made.shape[i] = shape[i];
    }
    int status = type_check(&made, fault);
    if (status == STATUS_OK) {
        *type = made;
    }
    return status;
}

int shape_broadcast(struct tensor_type *out, const struct tensor_type *a, const struct tensor_type *b,
                    struct fault *fault) {
    int rank = a->rank > b->rank ? a->rank : b->rank;
    int64_t shape[SHAPE_RANK_MAX];
    for (int i = 1; i <= rank; i++) {
        int64_t x = i <= a->rank ? a->shape[a->rank - i] : 1;
        int64_t y = i <= b->rank ? b->shape[b->rank - i] : 1;
        if (x != y && x != 1 && y != 1) {
            char a_text[SHAPE_TEXT_MAX], b_text[SHAPE_TEXT_MAX];
            return fault_set(fault, STATUS_SHAPE, "cannot broadcast %s with %s", shape_text(a, a_text),
                             shape_text(b, b_text));
        }
        shape[rank - i] = x == 1 ? y : x;
    }
    out->rank = rank;
    for (int i = 0; i < rank; i++) {
        out->shape[i] = shape[i];
    }
    return STATUS_OK;
}

int shape_axis(int64_t axis, int rank, int *out, struct fault *fault) {
    if (axis < -(int64_t)rank || axis >= rank) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "axis %" PRId64 " is out of range for rank %d", axis, rank);
    }
    *out = (int)(axis < 0 ? axis + rank : axis);
    return STATUS_OK;
}

char *shape_text(const struct tensor_type *type, char text[SHAPE_TEXT_MAX]) {
    size_t used = 0;
    int rank = type->rank < 0 ? 0 : type->rank > SHAPE_RANK_MAX ? SHAPE_RANK_MAX : type->rank;
    text[used++] = '(';
    for (int i = 0; i < rank; i++) {
        /* at most 20 digits and sign, comma and space for each of 8 axes: it always fits */
        used += (size_t)snprintf(text + used, SHAPE_TEXT_MAX - used, "%s%" PRId64, i ? ", " : "", type->shape[i]);
    }
    snprintf(text + used, SHAPE_TEXT_MAX - used, rank == 1 ? ",)" : ")");
    return text;
}
