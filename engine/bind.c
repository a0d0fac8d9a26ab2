/* From a checked operation to launches in normal form (engine/launch.h): operands are cast and made contiguous where the
 * form wants it, axes are merged, storage is taken, and the stream is made to wait for what it needs. */
#include <stddef.h>
#include <string.h>

#include "engine/device_impl.h"
#include "engine/session_impl.h"

/* An operand on its way into a launch: a tensor's view, or a temporary computed from one. */
struct view {
    struct storage *storage; /* NULL where empty */
    uint8_t *data;
    enum dtype dtype;
    int rank;
    int64_t shape[SHAPE_RANK_MAX];
    int64_t strides[SHAPE_RANK_MAX];
    bool temporary; /* `storage` holds a reference of its own */
};

static void view_init(struct view *view, const struct tensor *tensor) {
    view->storage = tensor->storage;
    view->data = tensor->storage ? tensor_data(tensor) : NULL;
    view->dtype = tensor->type.dtype;
    view->rank = tensor->type.rank;
    memcpy(view->shape, tensor->type.shape, sizeof view->shape);
    memcpy(view->strides, tensor->strides, sizeof view->strides);
    view->temporary = false;
}

static void view_finish(struct engine *engine, struct view *view) {
    if (view->temporary)
        storage_unref(&engine->pool, view->storage);
}

static int64_t view_elements(const struct view *view) {
    int64_t elements = 1;
    for (int i = 0; i < view->rank; i++)
        elements *= view->shape[i];
    return elements;
}

/* ---- order between streams ---- */

static int bind_no_memory(struct fault *fault) {
    return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to enqueue an operation");
}

/* The stream waits until an input's value is there. */
static int wait_for_value(struct stream *stream, const struct tensor *tensor, struct fault *fault) {
    if (!tensor->ready || tensor->ready == stream)
        return STATUS_OK;
    return stream_wait(stream, tensor->ready, tensor->ready_number) == STATUS_OK ? STATUS_OK : bind_no_memory(fault);
}

/* The stream waits until nobody else uses the memory that it is going to write, and stands for those users from then on:
 * also where no launch follows, because something else fails. */
static int wait_for_memory(struct stream *stream, struct storage *storage, struct fault *fault) {
    struct uses *uses = &storage->uses;
    if (uses->count == 0 || (uses->count == 1 && uses->use[0].stream == stream))
        return STATUS_OK;
    for (unsigned i = 0; i < uses->count; i++)
        if (stream_wait(stream, uses->use[i].stream, uses->use[i].number) != STATUS_OK)
            return bind_no_memory(fault);
    uses->use[0] = (struct use){stream, stream->enqueued};
    uses->count = 1;
    return STATUS_OK;
}

/* Before a launch: makes sure its use of the storage can be recorded, by a record that exists already, since the launch may
 * yet fail to be enqueued. Of too many streams, the one that comes now waits for the first, and stands for it from then
 * on. */
static int reserve_use(struct stream *stream, struct storage *storage, struct fault *fault) {
    if (!storage)
        return STATUS_OK;
    struct uses *uses = &storage->uses;
    if ((uses->count == 1 && uses->use[0].stream == stream) || uses_add(uses, stream, stream->enqueued))
        return STATUS_OK;
    if (stream_wait(stream, uses->use[0].stream, uses->use[0].number) != STATUS_OK)
        return bind_no_memory(fault);
    uses->use[0] = (struct use){stream, stream->enqueued};
    return STATUS_OK;
}

static void record_use(struct stream *stream, struct storage *storage) {
    if (storage)
        uses_add(&storage->uses, stream, stream->enqueued);
}

/* ---- launches ---- */

/* A launch cannot be interrupted: broadcast views and long reductions could keep a device for years. */
#define LAUNCH_NS_MAX (UINT64_C(4) * 3600 * 1000000000)

/* What a launch is made of; `out` and `inputs` say shapes and strides as the kernel shall see them. */
struct launch_plan {
    unsigned opcode, n_inputs, n_ints, n_floats;
    struct view *out, *inputs[3];
    const int64_t *ints;
    const double *floats;
    struct report *report;
    uint64_t weight;
    bool frees_input; /* the only input is a staging buffer */
};

static int64_t *launch_operand(struct operand *operand, int64_t *room, const struct view *view) {
    size_t bytes = (size_t)view->rank * sizeof *room;
    operand->data = view->data;
    operand->dtype = (uint8_t)view->dtype;
    operand->rank = (uint8_t)view->rank;
    operand->shape = memcpy(room, view->shape, bytes);
    operand->strides = memcpy(room + view->rank, view->strides, bytes);
    return room + 2 * view->rank;
}

static int launch_push(struct stream *stream, const struct launch_plan *plan, struct fault *fault) {
    int code = reserve_use(stream, plan->out->storage, fault);
    int dims = plan->out->rank;
    for (unsigned i = 0; i < plan->n_inputs && code == STATUS_OK; i++) {
        code = reserve_use(stream, plan->inputs[i]->storage, fault);
        dims += plan->inputs[i]->rank;
    }
    if (code == STATUS_OK && plan->weight > LAUNCH_NS_MAX)
        code = fault_set(fault, STATUS_LIMIT, "the operation would take about %llu hours, and could not be stopped",
                         (unsigned long long)(plan->weight / UINT64_C(3600000000000)));
    if (code != STATUS_OK)
        return code;
    size_t head = offsetof(struct record, launch) + sizeof(struct launch) + plan->n_inputs * sizeof(struct operand);
    size_t words = plan->n_ints + plan->n_floats + 2 * (size_t)dims;
    enum record_kind kind = plan->frees_input ? RECORD_LAUNCH_STAGED : RECORD_LAUNCH;
    struct record *record = stream_push(stream, kind, head + words * sizeof(int64_t), plan->weight);
    if (!record)
        return bind_no_memory(fault);
    struct launch *launch = &record->launch;
    launch->opcode = (uint16_t)plan->opcode;
    launch->n_inputs = (uint8_t)plan->n_inputs;
    launch->n_ints = (uint8_t)plan->n_ints;
    launch->n_floats = (uint8_t)plan->n_floats;
    launch->report = plan->report;
    int64_t *room = (int64_t *)(launch->inputs + plan->n_inputs);
    launch->ints = room;
    if (plan->n_ints)
        memcpy(room, plan->ints, plan->n_ints * sizeof *room);
    room += plan->n_ints;
    launch->floats = (double *)room;
    if (plan->n_floats)
        memcpy(room, plan->floats, plan->n_floats * sizeof(double));
    room = launch_operand(&launch->output, room + plan->n_floats, plan->out);
    for (unsigned i = 0; i < plan->n_inputs; i++)
        room = launch_operand(&launch->inputs[i], room, plan->inputs[i]);
    record_use(stream, plan->out->storage);
    for (unsigned i = 0; i < plan->n_inputs; i++)
        record_use(stream, plan->inputs[i]->storage);
    return STATUS_OK;
}

/* About what a pass over these operands costs, in nanoseconds. */
static uint64_t pass_weight(const struct view *out, const struct view *in) {
    uint64_t bytes = (uint64_t)view_elements(out) * dtype_size(out->dtype); /* either is below 2^63 */
    if (in)
        bytes += (uint64_t)view_elements(in) * dtype_size(in->dtype);
    return 30 + bytes / 8; /* below 2^61, so that callers may multiply it by up to 8 */
}

/* ---- elementwise ---- */

/* Presents operands of one shape (strides already broadcast) with merged axes. */
static void merge_views(struct view *const views[], int count) {
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

static void broadcast_view(struct view *view, int rank, const int64_t *shape) {
    int64_t strides[SHAPE_RANK_MAX];
    layout_broadcast(view->rank, view->shape, view->strides, rank, shape, strides);
    view->rank = rank;
    memcpy(view->shape, shape, sizeof view->shape);
    memcpy(view->strides, strides, sizeof view->strides);
}

/* One pass: COPY, or CAST where the dtypes differ. The views are copies: merging changes them. */
static int push_copy(struct stream *stream, struct view out, struct view in, struct fault *fault) {
    if (view_elements(&out) == 0)
        return STATUS_OK;
    struct launch_plan plan = {.opcode = in.dtype == out.dtype ? OP_COPY : OP_CAST,
                               .n_inputs = 1,
                               .out = &out,
                               .inputs = {&in},
                               .weight = pass_weight(&out, NULL) * 2};
    merge_views((struct view *const[]){&out, &in}, 2);
    return launch_push(stream, &plan, fault);
}

/* Replaces a view by a contiguous temporary of `dtype`, charged to the session. */
static int view_convert(struct session *session, struct stream *stream, struct view *view, enum dtype dtype,
                        struct fault *fault) {
    struct view out = {.dtype = dtype, .rank = view->rank, .temporary = true};
    int64_t elements = view_elements(view);
    memcpy(out.shape, view->shape, sizeof out.shape);
    layout_contiguous(out.rank, out.shape, out.strides);
    if (elements) {
        uint64_t bytes;
        if (__builtin_mul_overflow((uint64_t)elements, dtype_size(dtype), &bytes))
            return fault_set(fault, STATUS_SHAPE, "the operand is too large to convert");
        int code = session_storage(session, bytes, stream, &out.storage, fault);
        if (code == STATUS_OK)
            code = wait_for_memory(stream, out.storage, fault);
        out.data = out.storage ? out.storage->data : NULL;
        if (code == STATUS_OK)
            code = push_copy(stream, out, *view, fault);
        if (code != STATUS_OK) {
            storage_unref(&session->engine->pool, out.storage);
            return code;
        }
    }
    view_finish(session->engine, view);
    *view = out;
    return STATUS_OK;
}

static int view_make_contiguous(struct session *session, struct stream *stream, struct view *view, enum dtype dtype,
                                struct fault *fault) {
    if (view->dtype == dtype && layout_is_contiguous(view->rank, view->shape, view->strides)) {
        layout_contiguous(view->rank, view->shape, view->strides);
        return STATUS_OK;
    }
    return view_convert(session, stream, view, dtype, fault);
}

/* ---- outputs ---- */

static int output_allocate(struct binding *binding) {
    struct tensor *out = binding->output;
    layout_contiguous(out->type.rank, out->type.shape, out->strides);
    out->contiguous = true;
    out->offset = 0;
    int64_t bytes = type_bytes(&out->type);
    if (bytes == 0)
        return STATUS_OK;
    int code = session_storage(binding->session, (uint64_t)bytes, binding->stream, &out->storage, &binding->fault);
    if (code != STATUS_OK)
        return code;
    return wait_for_memory(binding->stream, out->storage, &binding->fault);
}

/* An input that this operation consumes and nobody else holds lends its memory to the output: elementwise results of the
 * same shape and element size may be computed in place. */
static bool output_in_place(struct binding *binding) {
    const struct op_request *request = binding->request;
    struct tensor *out = binding->output;
    for (unsigned i = 0; i < request->n_inputs; i++) {
        struct tensor *in = binding->inputs[i];
        if (!(request->consume >> i & 1) || !in->storage || in->references != 1 || in->storage->references != 1 ||
            !in->contiguous || in->offset != 0 || dtype_size(in->type.dtype) != dtype_size(out->type.dtype) ||
            !shape_equal(&in->type, &out->type))
            continue;
        layout_contiguous(out->type.rank, out->type.shape, out->strides);
        out->contiguous = true;
        out->offset = 0;
        out->storage = storage_ref(in->storage);
        return true;
    }
    return false;
}

static void output_done(struct binding *binding) {
    binding->output->ready = binding->stream;
    binding->output->ready_number = binding->stream->enqueued;
}

/* ---- families ---- */

static int wait_for_inputs(struct binding *binding) {
    for (unsigned i = 0; i < binding->request->n_inputs; i++) {
        int code = wait_for_value(binding->stream, binding->inputs[i], &binding->fault);
        if (code != STATUS_OK)
            return code;
    }
    return STATUS_OK;
}

/* A view of input i in the dtype that the kernel wants. */
static int input_view(struct binding *binding, unsigned i, struct view *view) {
    view_init(view, binding->inputs[i]);
    enum dtype dtype =
        op_operand_dtype(binding->request->opcode, binding->types, i, &binding->output->type);
    if (view->dtype == dtype || binding->request->opcode == OP_CAST)
        return STATUS_OK;
    return view_convert(binding->session, binding->stream, view, dtype, &binding->fault);
}

static void finish_views(struct binding *binding, struct view *views, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        view_finish(binding->engine, &views[i]);
}

static struct launch_plan plan_init(const struct binding *binding, struct view *out, struct view *views,
                                    unsigned n_inputs) {
    struct launch_plan plan = {.opcode = binding->request->opcode, .n_inputs = n_inputs, .out = out};
    for (unsigned i = 0; i < n_inputs; i++)
        plan.inputs[i] = &views[i];
    return plan;
}

static int bind_create(struct binding *binding) {
    struct view out;
    view_init(&out, binding->output);
    struct launch_plan plan = plan_init(binding, &out, NULL, 0);
    static const unsigned ints[OP_CODE_MAX] = {
        [OP_FULL] = 2, [OP_ARANGE] = 4, [OP_EYE] = 4, [OP_UNIFORM] = 3, [OP_NORMAL] = 3};
    plan.n_ints = ints[plan.opcode];
    plan.ints = binding->attributes.ints;
    plan.n_floats = binding->attributes.n_floats;
    plan.floats = binding->attributes.floats;
    plan.weight = pass_weight(&out, NULL) * (plan.opcode == OP_NORMAL ? 8 : 2);
    if (plan.opcode != OP_EYE)
        merge_views((struct view *const[]){&out}, 1);
    return launch_push(binding->stream, &plan, &binding->fault);
}

/* All inputs have the output's shape, are contiguous and of the dtype the kernel wants: the common case. */
static bool elementwise_plain(const struct binding *binding) {
    for (unsigned i = 0; i < binding->request->n_inputs; i++) {
        const struct tensor *in = binding->inputs[i];
        if (!in->contiguous || !shape_equal(&in->type, &binding->output->type))
            return false;
        if (binding->request->opcode != OP_CAST &&
            in->type.dtype !=
                op_operand_dtype(binding->request->opcode, binding->types, i, &binding->output->type))
            return false;
    }
    return true;
}

static void view_flat(struct view *view, const struct tensor *tensor, int64_t elements) {
    view->storage = tensor->storage;
    view->data = tensor_data(tensor);
    view->dtype = tensor->type.dtype;
    view->rank = 1;
    view->shape[0] = elements;
    view->strides[0] = 1;
    view->temporary = false;
}

static int bind_elementwise_plain(struct binding *binding) {
    struct view out, views[3];
    int64_t elements = type_elements(&binding->output->type);
    unsigned n_inputs = binding->request->n_inputs;
    view_flat(&out, binding->output, elements);
    for (unsigned i = 0; i < n_inputs; i++)
        view_flat(&views[i], binding->inputs[i], elements);
    struct launch_plan plan = plan_init(binding, &out, views, n_inputs);
    plan.weight = 30 + (uint64_t)elements * dtype_size(out.dtype) / 4;
    return launch_push(binding->stream, &plan, &binding->fault);
}

static int bind_elementwise(struct binding *binding) {
    if (elementwise_plain(binding))
        return bind_elementwise_plain(binding);
    struct view out, views[3];
    struct view *all[LAYOUT_OPERANDS_MAX] = {&out};
    unsigned n_inputs = binding->request->n_inputs, made = 0;
    int code = STATUS_OK;
    view_init(&out, binding->output);
    for (; made < n_inputs && code == STATUS_OK; made++) {
        code = input_view(binding, made, &views[made]);
        broadcast_view(&views[made], out.rank, out.shape);
        all[made + 1] = &views[made];
    }
    if (code == STATUS_OK) {
        struct launch_plan plan = plan_init(binding, &out, views, n_inputs);
        plan.weight = pass_weight(&out, NULL) * 4;
        merge_views(all, (int)n_inputs + 1);
        code = launch_push(binding->stream, &plan, &binding->fault);
    }
    finish_views(binding, views, made);
    return code;
}

/* Reorders a view's axes: those in `last` (a mask) behind the others. Returns how many come first. */
static int view_axes_last(struct view *view, uint32_t last) {
    struct view old = *view;
    int n = 0, first;
    for (int i = 0; i < old.rank; i++)
        if (!(last >> i & 1)) {
            view->shape[n] = old.shape[i];
            view->strides[n++] = old.strides[i];
        }
    first = n;
    for (int i = 0; i < old.rank; i++)
        if (last >> i & 1) {
            view->shape[n] = old.shape[i];
            view->strides[n++] = old.strides[i];
        }
    return first;
}

static void space_from_view(struct layout_space *space, const struct view *view) {
    space->rank = view->rank;
    space->operands = 1;
    memcpy(space->shape, view->shape, sizeof space->shape);
    memcpy(space->strides[0], view->strides, sizeof space->strides[0]);
}

static int bind_reduce(struct binding *binding) {
    struct view out, in;
    struct layout_space space;
    uint32_t mask = 0;
    int code = input_view(binding, 0, &in);
    if (code == STATUS_OK)
        code = op_reduced_axes(&binding->attributes, in.rank, &mask, &binding->fault);
    if (code == STATUS_OK) {
        int64_t kept = view_axes_last(&in, mask);
        space_from_view(&space, &in);
        kept = layout_merge(&space, 0, (int)kept);
        layout_merge(&space, (int)kept, space.rank);
        in.rank = space.rank;
        memcpy(in.shape, space.shape, sizeof in.shape);
        memcpy(in.strides, space.strides[0], sizeof in.strides);
        view_init(&out, binding->output);
        out.rank = (int)kept;
        memcpy(out.shape, in.shape, sizeof out.shape);
        layout_contiguous(out.rank, out.shape, out.strides);
        struct launch_plan plan = plan_init(binding, &out, &in, 1);
        plan.n_ints = 1;
        plan.ints = &kept;
        plan.weight = pass_weight(&out, &in) * 2;
        code = launch_push(binding->stream, &plan, &binding->fault);
    }
    view_finish(binding->engine, &in);
    return code;
}

static int bind_softmax(struct binding *binding) {
    struct view out, in;
    int axis = 0;
    int code = input_view(binding, 0, &in);
    if (code == STATUS_OK)
        code = shape_axis(binding->attributes.ints[0], in.rank, &axis, &binding->fault);
    if (code == STATUS_OK) {
        view_init(&out, binding->output);
        view_axes_last(&in, 1u << axis);
        view_axes_last(&out, 1u << axis);
        struct layout_space space;
        space_from_view(&space, &in);
        space.operands = 2;
        memcpy(space.strides[1], out.strides, sizeof space.strides[1]);
        if (layout_merge(&space, 0, space.rank - 1) == 0) { /* rank 2 at least */
            space.shape[1] = space.shape[0];
            space.shape[0] = 1;
            for (int k = 0; k < 2; k++) {
                space.strides[k][1] = space.strides[k][0];
                space.strides[k][0] = 0;
            }
            space.rank = 2;
        }
        in.rank = out.rank = space.rank;
        memcpy(in.shape, space.shape, sizeof in.shape);
        memcpy(out.shape, space.shape, sizeof out.shape);
        memcpy(in.strides, space.strides[0], sizeof in.strides);
        memcpy(out.strides, space.strides[1], sizeof out.strides);
        struct launch_plan plan = plan_init(binding, &out, &in, 1);
        plan.weight = pass_weight(&out, &in) * 8;
        code = launch_push(binding->stream, &plan, &binding->fault);
    }
    view_finish(binding->engine, &in);
    return code;
}

/* A vector becomes a row on the left and a column on the right. */
static void matmul_promote(struct view *view, bool left) {
    if (view->rank != 1)
        return;
    int at = left ? 0 : 1;
    view->shape[1 - at] = view->shape[0];
    view->strides[1 - at] = view->strides[0];
    view->shape[at] = 1;
    view->strides[at] = 1;
    view->rank = 2;
}

/* Broadcasts the batch axes of an operand against the output's. */
static void matmul_batch(struct view *view, int batch_rank, const int64_t *batch_shape) {
    int own = view->rank - 2;
    struct view old = *view;
    layout_broadcast(own, old.shape, old.strides, batch_rank, batch_shape, view->strides);
    memcpy(view->shape, batch_shape, (size_t)batch_rank * sizeof *batch_shape);
    for (int i = 0; i < 2; i++) {
        view->shape[batch_rank + i] = old.shape[own + i];
        view->strides[batch_rank + i] = old.strides[own + i];
    }
    view->rank = batch_rank + 2;
}

static void matmul_merge(struct view *out, struct view *a, struct view *b, int batch_rank) {
    struct view *views[3] = {out, a, b};
    struct layout_space space = {.rank = batch_rank, .operands = 3};
    memcpy(space.shape, out->shape, sizeof space.shape);
    for (int k = 0; k < 3; k++)
        memcpy(space.strides[k], views[k]->strides, sizeof space.strides[k]);
    int merged = layout_merge(&space, 0, batch_rank);
    for (int k = 0; k < 3; k++) {
        struct view *view = views[k];
        for (int i = 0; i < 2; i++) {
            view->shape[merged + i] = view->shape[batch_rank + i];
            view->strides[merged + i] = view->strides[batch_rank + i];
        }
        memcpy(view->shape, space.shape, (size_t)merged * sizeof *space.shape);
        memcpy(view->strides, space.strides[k], (size_t)merged * sizeof *space.shape);
        view->rank = merged + 2;
    }
}

static void matmul_shape(const struct binding *binding, struct view *out, struct view *a, struct view *b) {
    bool row = a->rank == 1, column = b->rank == 1;
    matmul_promote(a, true);
    matmul_promote(b, false);
    view_init(out, binding->output);
    int batch_rank = out->rank - !row - !column;
    out->shape[batch_rank] = a->shape[a->rank - 2];
    out->shape[batch_rank + 1] = b->shape[b->rank - 1];
    out->rank = batch_rank + 2;
    layout_contiguous(out->rank, out->shape, out->strides);
    matmul_batch(a, batch_rank, out->shape);
    matmul_batch(b, batch_rank, out->shape);
    matmul_merge(out, a, b, batch_rank);
}

static int bind_matmul(struct binding *binding) {
    struct view out, views[2];
    unsigned made = 0;
    int code = STATUS_OK;
    for (; made < 2 && code == STATUS_OK; made++)
        code = input_view(binding, made, &views[made]);
    if (code == STATUS_OK) {
        matmul_shape(binding, &out, &views[0], &views[1]);
        struct launch_plan plan = plan_init(binding, &out, views, 2);
        int64_t depth = views[0].shape[views[0].rank - 1];
        double flops = 2.0 * (double)view_elements(&out) * (double)depth;
        plan.weight = 1000 + (flops < 1e18 ? (uint64_t)(flops / 20) : UINT64_C(50000000000000000));
        code = launch_push(binding->stream, &plan, &binding->fault);
    }
    finish_views(binding, views, made);
    return code;
}

/* Each input is copied into its slice of the output. */
static int bind_join(struct binding *binding) {
    const struct op_request *request = binding->request;
    struct view out;
    view_init(&out, binding->output);
    int axis = 0;
    int code = shape_axis(request->ints[0], out.rank, &axis, &binding->fault);
    int64_t position = 0;
    for (unsigned i = 0; i < request->n_inputs && code == STATUS_OK; i++) {
        struct view in, slice = out;
        view_init(&in, binding->inputs[i]);
        if (request->opcode == OP_STACK) {
            for (int k = in.rank; k > axis; k--) {
                in.shape[k] = in.shape[k - 1];
                in.strides[k] = in.strides[k - 1];
            }
            in.shape[axis] = 1;
            in.strides[axis] = 0;
            in.rank++;
        }
        slice.shape[axis] = in.shape[axis];
        slice.data = out.data + position * out.strides[axis] * (int64_t)dtype_size(out.dtype);
        position += in.shape[axis];
        code = push_copy(binding->stream, slice, in, &binding->fault);
    }
    return code;
}

static void view_set3(struct view *view, int64_t outer, int64_t middle, int64_t inner) {
    view->rank = 3;
    view->shape[0] = outer;
    view->shape[1] = middle;
    view->shape[2] = inner;
    layout_contiguous(3, view->shape, view->strides);
}

static void take_shape(struct view *view, const struct tensor_type *type, int axis) {
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis; i++)
        outer *= type->shape[i];
    for (int i = axis + 1; i < type->rank; i++)
        inner *= type->shape[i];
    view_set3(view, outer, type->shape[axis], inner);
}

/* Indices as contiguous i64; those of take_along_axis broadcast against x off the axis. */
static int take_indices(struct binding *binding, unsigned i, int axis, struct view *view) {
    view_init(view, binding->inputs[i]);
    if (binding->request->opcode == OP_TAKE_ALONG_AXIS) {
        int64_t shape[SHAPE_RANK_MAX];
        memcpy(shape, binding->output->type.shape, sizeof shape);
        shape[axis] = view->shape[axis];
        broadcast_view(view, binding->output->type.rank, shape);
    }
    return view_make_contiguous(binding->session, binding->stream, view, DTYPE_I64, &binding->fault);
}

static void one_hot_shape(struct view *out, struct view *indices) {
    int64_t count = view_elements(indices);
    out->shape[1] = out->shape[out->rank - 1];
    out->shape[0] = count;
    out->rank = 2;
    layout_contiguous(2, out->shape, out->strides);
    indices->rank = 1;
    indices->shape[0] = count;
    indices->strides[0] = 1;
}

/* x as [outer, n, inner]; take_along_axis broadcasts x off the axis as well. */
static int take_source(struct binding *binding, int axis, struct view *x) {
    view_init(x, binding->inputs[0]);
    struct tensor_type type = binding->inputs[0]->type;
    if (binding->request->opcode == OP_TAKE_ALONG_AXIS) {
        int64_t extent = type.shape[axis];
        memcpy(type.shape, binding->output->type.shape, sizeof type.shape);
        type.shape[axis] = extent;
        int wide = type_check(&type, &binding->fault); /* its own axis and the others' are together for the first time */
        if (wide != STATUS_OK)
            return wide;
        broadcast_view(x, type.rank, type.shape);
    }
    int code = view_make_contiguous(binding->session, binding->stream, x, x->dtype, &binding->fault);
    take_shape(x, &type, axis);
    return code;
}

static int bind_take(struct binding *binding) {
    struct view out, views[2];
    unsigned n_inputs = binding->request->n_inputs, made = 0;
    bool one_hot = binding->request->opcode == OP_ONE_HOT;
    int axis = 0, code = STATUS_OK;
    view_init(&out, binding->output);
    if (!one_hot) {
        code = shape_axis(binding->attributes.ints[0], binding->inputs[0]->type.rank, &axis, &binding->fault);
        if (code == STATUS_OK) {
            code = take_source(binding, axis, &views[0]);
            made = 1;
        }
    }
    if (code == STATUS_OK) {
        code = take_indices(binding, one_hot ? 0 : 1, axis, &views[made]);
        made++;
    }
    if (code == STATUS_OK) {
        if (one_hot)
            one_hot_shape(&out, &views[0]);
        else
            take_shape(&out, &binding->output->type, axis);
        if (binding->request->opcode == OP_TAKE_ALONG_AXIS)
            view_set3(&views[1], out.shape[0], out.shape[1], out.shape[2]);
        struct launch_plan plan = plan_init(binding, &out, views, n_inputs);
        plan.report = &binding->check->report;
        plan.weight = pass_weight(&out, NULL) * 4;
        code = launch_push(binding->stream, &plan, &binding->fault);
    }
    finish_views(binding, views, made);
    return code;
}

/* A view is ready, and may turn out to have failed, with what it shows. False: reshape needs a copy. */
static bool bind_view_shared(struct binding *binding) {
    struct tensor *in = binding->inputs[0], *out = binding->output;
    if (!layout_view(binding->request->opcode, &binding->attributes, &in->type, in->strides, in->offset, &out->type,
                     out->strides, &out->offset))
        return false;
    out->contiguous = layout_is_contiguous(out->type.rank, out->type.shape, out->strides);
    out->ready = in->ready;
    out->ready_number = in->ready_number;
    out->taint = in->taint ? taint_ref(in->taint) : NULL;
    if (in->storage && type_elements(&out->type) > 0)
        out->storage = storage_ref(in->storage);
    return true;
}

static int bind_view_copied(struct binding *binding) {
    struct tensor *out = binding->output;
    int code = bind_materialise(binding->session, binding->stream, binding->inputs[0], &out->storage, &binding->fault);
    layout_contiguous(out->type.rank, out->type.shape, out->strides);
    out->offset = 0;
    out->contiguous = true;
    output_done(binding);
    return code;
}

/* ---- taints ---- */

static bool inputs_tainted(const struct binding *binding) {
    for (unsigned i = 0; i < binding->request->n_inputs; i++)
        if (binding->inputs[i]->taint)
            return true;
    return false;
}

static int push_taint(struct binding *binding, struct taint *result, struct taint *inputs[3], struct check *check) {
    struct record *record = stream_push(binding->stream, RECORD_TAINT, sizeof *record, 20);
    if (!record)
        return bind_no_memory(&binding->fault);
    record->taint.result = taint_ref(result);
    for (int i = 0; i < 3; i++)
        record->taint.inputs[i] = inputs[i] ? taint_ref(inputs[i]) : NULL;
    record->taint.check = check;
    return STATUS_OK;
}

/* The output's taint, made in advance, is settled behind its launch. More than three tainted inputs (concat) settle in
 * several steps. Where a step cannot be enqueued the check stays alive for good: a launch may report to it. */
static int bind_taint(struct binding *binding, struct taint *taint) {
    struct taint *inputs[3] = {NULL, NULL, NULL};
    unsigned n = 0;
    int code = STATUS_OK;
    binding->output->taint = taint;
    for (unsigned i = 0; i < binding->request->n_inputs && code == STATUS_OK; i++) {
        if (!binding->inputs[i]->taint)
            continue;
        if (n == 3) { /* the taint stands for those so far, as its own input of the next step */
            struct taint *step = taint_create();
            code = step ? push_taint(binding, step, inputs, NULL) : bind_no_memory(&binding->fault);
            taint_unref(binding->step);
            binding->step = step;
            inputs[0] = step;
            inputs[1] = inputs[2] = NULL;
            n = 1;
        }
        inputs[n++] = binding->inputs[i]->taint;
    }
    if (code == STATUS_OK)
        code = push_taint(binding, taint, inputs, binding->check);
    if (code == STATUS_OK)
        binding->check = NULL;
    taint_unref(binding->step);
    output_done(binding);
    return code;
}

/* ---- the whole ---- */

typedef int bind_function(struct binding *binding);

static bind_function *const bind_families[] = {
    [OP_FAMILY_CREATE] = bind_create,   [OP_FAMILY_ELEMENTWISE] = bind_elementwise,
    [OP_FAMILY_REDUCE] = bind_reduce,   [OP_FAMILY_SOFTMAX] = bind_softmax,
    [OP_FAMILY_MATMUL] = bind_matmul,   [OP_FAMILY_JOIN] = bind_join,
    [OP_FAMILY_TAKE] = bind_take,
};

static int bind_supported(struct binding *binding) {
    const struct device *device = binding->engine->device;
    const struct op_request *request = binding->request;
    if (binding->info->family == OP_FAMILY_VIEW || binding->info->family == OP_FAMILY_JOIN)
        return STATUS_OK;
    enum dtype dtype = binding->output->type.dtype;
    if (request->n_inputs)
        dtype = op_operand_dtype(request->opcode, binding->types, request->n_inputs - 1, &binding->output->type);
    if (device->vtable->supports(device, request->opcode, dtype))
        return STATUS_OK;
    return fault_set(&binding->fault, STATUS_UNSUPPORTED, "%s has no kernel for %s on this device",
                     binding->info->name, dtype_name(dtype));
}

static int bind_compute(struct binding *binding) {
    bool in_place = binding->request->consume && binding->info->family == OP_FAMILY_ELEMENTWISE &&
                    binding->request->opcode != OP_COPY && output_in_place(binding);
    int code = wait_for_inputs(binding);
    if (code == STATUS_OK)
        code = in_place ? wait_for_memory(binding->stream, binding->output->storage, &binding->fault)
                        : output_allocate(binding);
    if (code == STATUS_OK && type_elements(&binding->output->type) > 0)
        code = bind_families[binding->info->family](binding);
    output_done(binding);
    return code;
}

/* What a tainted result needs, before anything is enqueued for it. */
static int bind_taint_prepare(struct binding *binding, struct taint **taint) {
    const struct op_request *request = binding->request;
    *taint = NULL;
    if (binding->info->family == OP_FAMILY_TAKE) {
        int axis = request->opcode == OP_ONE_HOT ? -1 : (int)binding->attributes.ints[0];
        binding->check = check_create(binding->info->name, request->label, request->sequence, axis);
        if (!binding->check)
            return bind_no_memory(&binding->fault);
    }
    if (!binding->check && !inputs_tainted(binding))
        return STATUS_OK;
    *taint = taint_create();
    return *taint ? STATUS_OK : bind_no_memory(&binding->fault);
}

/* A launch that has been enqueued may still report to the check, so that after a failure it is left to live on. */
static void bind_check_finish(struct binding *binding, uint64_t enqueued) {
    if (binding->check && binding->stream->enqueued == enqueued)
        check_unref(binding->check);
}

int bind_operation(struct binding *binding) {
    binding->check = NULL;
    binding->step = NULL;
    int code = bind_supported(binding);
    if (code != STATUS_OK)
        return code;
    if (binding->info->family == OP_FAMILY_VIEW && bind_view_shared(binding))
        return STATUS_OK;
    struct taint *taint;
    uint64_t enqueued = binding->stream->enqueued;
    code = bind_taint_prepare(binding, &taint);
    if (code == STATUS_OK)
        code = binding->info->family == OP_FAMILY_VIEW ? bind_view_copied(binding) : bind_compute(binding);
    if (taint && code == STATUS_OK)
        code = bind_taint(binding, taint);
    else
        taint_unref(taint);
    bind_check_finish(binding, enqueued);
    return code;
}

int bind_materialise(struct session *session, struct stream *stream, const struct tensor *tensor,
                     struct storage **storage, struct fault *fault) {
    struct view view;
    view_init(&view, tensor);
    int code = wait_for_value(stream, tensor, fault);
    if (code == STATUS_OK)
        code = view_convert(session, stream, &view, view.dtype, fault);
    if (code == STATUS_OK)
        *storage = view.storage;
    return code;
}

int bind_staged(struct stream *stream, struct tensor *tensor, void *staging, struct fault *fault) {
    struct view out, in;
    view_flat(&out, tensor, type_elements(&tensor->type));
    in = out;
    in.storage = NULL;
    in.data = staging;
    struct launch_plan plan = {.opcode = OP_COPY, .n_inputs = 1, .out = &out, .inputs = {&in}, .frees_input = true};
    plan.weight = pass_weight(&out, NULL) * 2;
    int code = wait_for_memory(stream, tensor->storage, fault);
    if (code == STATUS_OK)
        code = launch_push(stream, &plan, fault);
    if (code == STATUS_OK) {
        tensor->ready = stream;
        tensor->ready_number = stream->enqueued;
    }
    return code;
}
