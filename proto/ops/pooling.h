/* The geometry of pooling: windows of y's places over x's. Includable from CUDA C++, where POOLING_FUNCTION is defined before. */
#pragma once

#include "proto/ops/op.h"

#ifndef POOLING_FUNCTION
#define POOLING_FUNCTION static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { POOLING_AXES = 3 };

/* Axes that the tensors do not have are in front, with an extent of 1. Extents are at least 1, their products below 2^31. */
struct pooling {
    int axes; /* 1 to 3 */
    bool channels_last;
    bool adaptive;       /* windows follow from the extents alone */
    bool counts_padding; /* a mean is over the padding, too */
    int64_t planes;      /* batch · channels */
    int64_t x[POOLING_AXES], y[POOLING_AXES], kernel[POOLING_AXES];
    int64_t stride[POOLING_AXES], padding[POOLING_AXES], dilation[POOLING_AXES];
};

/* From the attributes and the shapes of x and y of a checked operation; in a launch's normal form with `channels_last` false. */
void pooling_make(struct pooling *pooling, unsigned opcode, const struct op_attributes *attributes, int rank,
                  const int64_t *x, const int64_t *y, bool channels_last);

/* What a place of y sees along one axis: `count` places of x, from `begin` on with a step; and how many places a mean is over. */
struct pooling_window {
    int64_t begin, count, step, divisor;
};

POOLING_FUNCTION struct pooling_window pooling_window(const struct pooling *pooling, int axis, int64_t place) {
    const int64_t extent = pooling->x[axis];
    struct pooling_window window;
    if (pooling->adaptive) {
        const int64_t places = pooling->y[axis];
        window.begin = place * extent / places;
        window.count = ((place + 1) * extent + places - 1) / places - window.begin;
        window.step = 1;
        window.divisor = window.count;
        return window;
    }
    const int64_t step = pooling->dilation[axis], kernel = pooling->kernel[axis];
    const int64_t start = place * pooling->stride[axis] - pooling->padding[axis];
    const int64_t padded = extent + pooling->padding[axis] - start;
    const int64_t before = start < 0 ? (-start + step - 1) / step : 0;
    const int64_t inside = start < extent ? (extent - start + step - 1) / step : 0;
    const int64_t end = inside < kernel ? inside : kernel;
    window.begin = start + before * step;
    window.count = end > before ? end - before : 0;
    window.step = step;
    window.divisor = !pooling->counts_padding ? window.count : padded < kernel ? padded : kernel;
    return window;
}

/* The places of y, `first` to `end` - 1, whose windows may have a place of x. */
struct pooling_range {
    int64_t first, end;
};

POOLING_FUNCTION struct pooling_range pooling_seen(const struct pooling *pooling, int axis, int64_t place) {
    const int64_t places = pooling->y[axis];
    struct pooling_range seen;
    if (pooling->adaptive) {
        const int64_t extent = pooling->x[axis];
        seen.first = place * places / extent;
        seen.end = ((place + 1) * places + extent - 1) / extent;
    } else {
        const int64_t stride = pooling->stride[axis], at = place + pooling->padding[axis];
        const int64_t reach = pooling->dilation[axis] * (pooling->kernel[axis] - 1);
        seen.first = at < reach ? 0 : (at - reach + stride - 1) / stride;
        seen.end = at / stride + 1;
    }
    seen.end = seen.end < places ? seen.end : places;
    return seen;
}

/* Whether a window has a place of x. */
POOLING_FUNCTION bool pooling_has(const struct pooling_window *window, int64_t place) {
    const int64_t from = place - window->begin;
    return from >= 0 && from % window->step == 0 && from / window->step < window->count;
}

POOLING_FUNCTION int64_t pooling_volume(const int64_t extents[POOLING_AXES]) {
    return extents[0] * extents[1] * extents[2];
}

#ifdef __cplusplus
}
#endif
