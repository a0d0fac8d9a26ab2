/* The geometry of convolutions: what the rules of shapes, the binding and the kernels need to know of them. */
#pragma once

#include "proto/ops/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CONVOLUTION_AXES = 3 };

/* As the convolution from x to y has it, of whatever the operation computes the gradient. Axes that the tensors do not have are in
 * front, with an extent of 1. Extents of x, y and the kernel are at least 1, their products below 2^31; the batch may be 0. */
struct convolution {
    int axes; /* 1 to 3 */
    bool channels_last; /* as the layout says */
    int64_t batch, groups, x_channels, y_channels; /* of all groups */
    int64_t x[CONVOLUTION_AXES], y[CONVOLUTION_AXES], kernel[CONVOLUTION_AXES];
    int64_t stride[CONVOLUTION_AXES], padding[CONVOLUTION_AXES], dilation[CONVOLUTION_AXES];
};

/* From the attributes and the shapes of x, weight and y of a checked operation; in a launch's normal form with `channels_last` false. The
 * weight may be transposed. */
void convolution_make(struct convolution *convolution, unsigned opcode, const struct op_attributes *attributes,
                      int rank, const int64_t *x, const int64_t *weight, const int64_t *y, bool channels_last);

static inline int64_t convolution_volume(const int64_t extents[CONVOLUTION_AXES]) {
    return extents[0] * extents[1] * extents[2];
}

#ifdef __cplusplus
}
#endif
