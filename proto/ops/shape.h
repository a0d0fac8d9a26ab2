/* Shapes: the extents of a tensor, row-major, with checked arithmetic. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ops/dtype.h"
#include "proto/ops/status.h"

enum { SHAPE_RANK_MAX = 8 };

/* Client and server both know the type of a tensor before the tensor exists. Extents are >= 0, and the product of element size and
 * extents, zeros counted as ones, fits in int64_t: type_check() checks that, and all later code relies on it. */
struct tensor_type {
    enum dtype dtype;
    int rank;
    int64_t shape[SHAPE_RANK_MAX]; /* entries from `rank` on are unspecified */
};

/* Reads the extents up to `rank`, if the rank is at most SHAPE_RANK_MAX; all values may be wrong. */
int type_check(const struct tensor_type *type, struct fault *fault);
/* Checks a dtype and `rank` extents that came from outside, and makes a type of them. */
int type_make(struct tensor_type *type, int64_t dtype, const int64_t *shape, size_t rank, struct fault *fault);
static inline int64_t type_elements(const struct tensor_type *type) {
    int64_t elements = 1;
    for (int i = 0; i < type->rank; i++) {
        if (type->shape[i] == 0) {
            return 0;
        }
        elements *= type->shape[i];
    }
    return elements;
}
static inline int64_t type_bytes(const struct tensor_type *type) {
    return type_elements(type) * (int64_t)dtype_size(type->dtype);
}

static inline bool shape_equal(const struct tensor_type *a, const struct tensor_type *b) {
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}
static inline bool type_equal(const struct tensor_type *a, const struct tensor_type *b) {
    return a->dtype == b->dtype && shape_equal(a, b);
}

/* NumPy broadcasting of b against a into `out` (shape only). STATUS_SHAPE names both shapes. */
int shape_broadcast(struct tensor_type *out, const struct tensor_type *a, const struct tensor_type *b,
                    struct fault *fault);
/* Maps -rank … rank-1 to 0 … rank-1. */
int shape_axis(int64_t axis, int rank, int *out, struct fault *fault);

enum { SHAPE_TEXT_MAX = 192 };
/* "(2, 3)", "()" and "(4,)" as Python writes them, into `text` of SHAPE_TEXT_MAX bytes; returns `text`. */
char *shape_text(const struct tensor_type *type, char text[SHAPE_TEXT_MAX]);
