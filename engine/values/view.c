#include "engine/values/view.h"

#include <string.h>

#include "engine/device/layout.h"

void view_init(struct view *view, const struct tensor *tensor) {
    view->storage = tensor->storage;
    view->data = tensor->storage ? tensor_data(tensor) : NULL;
    view->dtype = view->as = tensor->type.dtype;
    view->rank = tensor->type.rank;
    memcpy(view->shape, tensor->type.shape, sizeof view->shape);
    memcpy(view->strides, tensor->strides, sizeof view->strides);
    view->temporary = false;
}

void view_finish(struct view *view) {
    if (view->temporary)
        storage_unref(view->storage);
}

int64_t view_elements(const struct view *view) {
    int64_t elements = 1;
    for (int i = 0; i < view->rank; i++)
        elements *= view->shape[i];
    return elements;
}

/* Presents operands of one shape (strides already broadcast) with merged axes. */
void view_merge(struct view *const views[], int count) {
    struct layout_space space = {.rank = views[0]->rank, .operands = count};
    memcpy(space.shape, views[0]->shape, sizeof space.shape);
    for (int k = 0; k < count; k++)
        memcpy(space.strides[k], views[k]->strides, sizeof space.strides[k]);
    layout_merge(&space, 0, space.rank);
    if (space.rank == 0) {
        space.rank = 1;
        space.shape[0] = 1;
        for (int k = 0; k < count; k++)
            space.strides[k][0] = 1;
    }
    for (int k = 0; k < count; k++) {
        views[k]->rank = space.rank;
        memcpy(views[k]->shape, space.shape, sizeof space.shape);
        memcpy(views[k]->strides, space.strides[k], sizeof space.strides[k]);
    }
}

void view_broadcast(struct view *view, int rank, const int64_t *shape) {
    int64_t strides[SHAPE_RANK_MAX];
    layout_broadcast(view->rank, view->shape, view->strides, rank, shape, strides);
    view->rank = rank;
    memcpy(view->shape, shape, sizeof view->shape);
    memcpy(view->strides, strides, sizeof view->strides);
}
