/* Stride arithmetic: how a tensor's elements lie in its storage, and how axes merge. Strides and offsets are in
 * elements. All extents have passed type_make(), so products of extents fit in int64_t; strides of views stay within
 * the storage's range, because each rule here only picks among elements that the input has. */
#pragma once

#include <stdbool.h>

#include "proto/ops/op.h"

static inline void layout_contiguous(int rank, const int64_t *shape, int64_t *strides) {
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= shape[i] ? shape[i] : 1;
    }
}
/* Whether the layout is row-major without gaps. Strides of axes of extent 1 do not matter, nor any stride of an empty tensor. */
bool layout_is_contiguous(int rank, const int64_t *shape, const int64_t *strides);

/* Strides that present a tensor of `rank` axes as the broadcast `shape` of `out_rank` axes. */
void layout_broadcast(int rank, const int64_t *shape, const int64_t *strides, int out_rank, const int64_t *out_shape,
                      int64_t *out_strides);

/* Strides of the same elements in a new shape of as many elements. False: it takes a copy. */
bool layout_reshape(int rank, const int64_t *shape, const int64_t *strides, int out_rank, const int64_t *out_shape,
                    int64_t *out_strides);

/* Strides and offset of a view: the result of a checked OP_FAMILY_VIEW operation. False: a reshape that takes a copy. */
bool layout_view(unsigned opcode, const struct op_attributes *attributes, const struct tensor_type *in,
                 const int64_t *in_strides, int64_t in_offset, const struct tensor_type *out, int64_t *out_strides,
                 int64_t *out_offset);

enum { LAYOUT_OPERANDS_MAX = 4 };

/* One iteration space over several operands. */
struct layout_space {
    int rank, operands;
    int64_t shape[SHAPE_RANK_MAX];
    int64_t strides[LAYOUT_OPERANDS_MAX][SHAPE_RANK_MAX];
};

/* Within axes [begin, end): drops axes of extent 1, and merges neighbours if all operands allow it. Axes from `end` on move down. Returns
 * the new end. */
int layout_merge(struct layout_space *space, int begin, int end);
