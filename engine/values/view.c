#include "engine/values/view.h"

#include <string.h>

#include "engine/device/layout.h"
#include "engine/order/order.h"
#include "engine/values/plan.h"

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

/* ---- copies, as work on a stream ---- */

/* One pass of an operation with one input. The views are copies: merging changes them. */
static int view_pass(unsigned opcode, struct ledger *ledger, struct stream *stream, struct view out, struct view in,
                     struct fault *fault) {
    if (view_elements(&out) == 0)
        return STATUS_OK;
    in.as = in.dtype; /* whatever another kernel would have read it as */
    struct plan plan = {.opcode = opcode,
                        .ledger = ledger,
                        .n_inputs = 1,
                        .out = &out,
                        .inputs = {&in},
                        .weight = plan_weight(&stream->order->cost, &out, NULL) * 2};
    view_merge((struct view *const[]){&out, &in}, 2);
    return plan_push(stream, &plan, fault);
}

/* COPY, or CAST where the dtypes differ. */
int view_copy(struct ledger *ledger, struct stream *stream, struct view out, struct view in, struct fault *fault) {
    return view_pass(in.dtype == out.dtype ? OP_COPY : OP_CAST, ledger, stream, out, in, fault);
}

/* Replaces a view by a contiguous temporary of `dtype`, charged to the ledger, which the operation makes of it. */
static int view_replace(unsigned opcode, struct ledger *ledger, struct stream *stream, struct view *view,
                        enum dtype dtype, struct fault *fault) {
    struct view out = {.dtype = dtype, .as = dtype, .rank = view->rank, .temporary = true};
    int64_t elements = view_elements(view);
    memcpy(out.shape, view->shape, sizeof out.shape);
    layout_contiguous(out.rank, out.shape, out.strides);
    if (elements) {
        uint64_t bytes;
        if (__builtin_mul_overflow((uint64_t)elements, dtype_size(dtype), &bytes))
            return fault_set(fault, STATUS_SHAPE, "the operand is too large to convert");
        int code = ledger_storage(ledger, bytes, stream, &out.storage, fault);
        if (code == STATUS_OK)
            code = plan_wait_memory(stream, out.storage, fault);
        out.data = out.storage ? out.storage->data : NULL;
        if (code == STATUS_OK)
            code = view_pass(opcode, ledger, stream, out, *view, fault);
        if (code != STATUS_OK) {
            storage_unref(out.storage);
            return code;
        }
    }
    view_finish(view);
    *view = out;
    return STATUS_OK;
}

int view_convert(struct ledger *ledger, struct stream *stream, struct view *view, enum dtype dtype,
                 struct fault *fault) {
    return view_replace(view->dtype == dtype ? OP_COPY : OP_CAST, ledger, stream, view, dtype, fault);
}

int view_magnitudes(struct ledger *ledger, struct stream *stream, struct view *view, struct fault *fault) {
    return view_replace(OP_ABS, ledger, stream, view, dtype_real(view->dtype), fault);
}

int view_cast(struct ledger *ledger, struct stream *stream, struct view *view, enum dtype dtype, struct fault *fault) {
    int64_t shape[SHAPE_RANK_MAX];
    bool repeated[SHAPE_RANK_MAX];
    memcpy(shape, view->shape, sizeof shape);
    for (int i = 0; i < view->rank; i++) {
        repeated[i] = view->strides[i] == 0 && shape[i] > 1;
        if (repeated[i])
            view->shape[i] = 1;
    }
    int code = view_convert(ledger, stream, view, dtype, fault);
    for (int i = 0; i < view->rank; i++)
        if (repeated[i]) {
            view->shape[i] = shape[i];
            view->strides[i] = 0;
        }
    return code;
}

int view_make_contiguous(struct ledger *ledger, struct stream *stream, struct view *view, enum dtype dtype,
                         struct fault *fault) {
    if (view->dtype == dtype && layout_is_contiguous(view->rank, view->shape, view->strides)) {
        layout_contiguous(view->rank, view->shape, view->strides);
        return STATUS_OK;
    }
    return view_convert(ledger, stream, view, dtype, fault);
}

int view_materialise(struct ledger *ledger, struct stream *stream, const struct tensor *tensor,
                     struct storage **storage, struct fault *fault) {
    struct view view;
    view_init(&view, tensor);
    int code = plan_wait_value(stream, tensor, fault);
    if (code == STATUS_OK)
        code = view_convert(ledger, stream, &view, view.dtype, fault);
    if (code == STATUS_OK)
        *storage = view.storage;
    return code;
}

static void view_bytes(struct view *view, struct storage *storage, int64_t offset, int64_t bytes) {
    *view =
        (struct view){.storage = storage, .data = storage->data + offset, .dtype = DTYPE_U8, .as = DTYPE_U8, .rank = 1};
    view->shape[0] = bytes;
    view->strides[0] = 1;
}

int view_copy_bytes(struct ledger *ledger, struct stream *stream, struct storage *target, int64_t target_offset,
                    struct storage *source, int64_t source_offset, int64_t bytes, struct fault *fault) {
    struct view out, in;
    view_bytes(&out, target, target_offset, bytes);
    view_bytes(&in, source, source_offset, bytes);
    return view_copy(ledger, stream, out, in, fault);
}
