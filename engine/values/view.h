/* Operands on their way into a launch: a tensor's elements as a kernel shall see them. Owner thread. */
#pragma once

#include <stdbool.h>

#include "engine/values/tensor.h"

/* An operand on its way into a launch: a tensor's view, or a temporary computed from one. */
struct view {
    struct storage *storage; /* NULL where empty */
    uint8_t *data;
    enum dtype dtype, as; /* of the elements in memory, and what the launch computes on */
    int rank;
    int64_t shape[SHAPE_RANK_MAX];
    int64_t strides[SHAPE_RANK_MAX];
    bool temporary; /* `storage` holds a reference of its own */
};

void view_init(struct view *view, const struct tensor *tensor);
/* Gives a temporary back. */
void view_finish(struct view *view);
int64_t view_elements(const struct view *view);

/* Merges the axes of views of one shape (strides broadcast already) wherever that is possible for all of them. */
void view_merge(struct view *const views[], int count);
void view_broadcast(struct view *view, int rank, const int64_t *shape);
