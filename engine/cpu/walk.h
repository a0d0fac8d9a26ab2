/* A walk over the elements of up to four arrays of one shape, in row-major order. */
#pragma once

#include <stdint.h>

#include "proto/ops/shape.h"

enum { WALK_ARRAYS = 4 };

struct walk {
    int rank, arrays;
    int64_t shape[SHAPE_RANK_MAX];
    int64_t strides[WALK_ARRAYS][SHAPE_RANK_MAX]; /* bytes */
    int64_t index[SHAPE_RANK_MAX];
    char *at[WALK_ARRAYS]; /* the current element */
};

/* Takes `rank` axes of an operand's shape and strides, from `axis` on, for array number `array`. */
static inline void walk_array(struct walk *walk, int array, const int64_t *strides, int axis, int64_t size) {
    for (int i = 0; i < walk->rank; i++) {
        walk->strides[array][i] = strides[axis + i] * size;
    }
}

/* Moves to element number `flat`; `origin` are the first elements. */
static inline void walk_seek(struct walk *walk, char *const origin[], int64_t flat) {
    for (int k = 0; k < walk->arrays; k++) {
        walk->at[k] = origin[k];
    }
    for (int i = walk->rank - 1; i >= 0; i--) {
        walk->index[i] = i > 0 ? flat % walk->shape[i] : flat;
        flat = i > 0 ? flat / walk->shape[i] : 0;
        for (int k = 0; k < walk->arrays; k++) {
            walk->at[k] += walk->index[i] * walk->strides[k][i];
        }
    }
}

/* Moves on by `step` elements within the last axis, at most to its end. After the very last element, the position is unspecified. */
static inline void walk_advance(struct walk *walk, int64_t step) {
    for (int i = walk->rank - 1; i >= 0; i--) {
        walk->index[i] += step;
        for (int k = 0; k < walk->arrays; k++) {
            walk->at[k] += step * walk->strides[k][i];
        }
        if (walk->index[i] < walk->shape[i]) {
            return;
        }
        for (int k = 0; k < walk->arrays; k++) {
            walk->at[k] -= walk->shape[i] * walk->strides[k][i];
        }
        walk->index[i] = 0;
        step = 1;
    }
}
