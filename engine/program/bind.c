/* Bind: makes launches in normal form (engine/device/launch.h) of checked operations. It casts operands and makes them contiguous where
 * the form wants that, merges axes, takes storage, and makes the stream wait for inputs and memory. */
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/program/program_impl.h"
#include "engine/program/recorded_impl.h"

enum {
    TILE_ELEMENTS = 4 << 20, /* so that what a tile is converted to stays in the cache of a GPU; */
    TILES_MOST = 1024,       /* of larger tensors tiles are larger */
    TILE_STEPS = 8,          /* of the turn's budget */
};

/* ---- operands ---- */

static void output_layout(struct tensor *out) {
    layout_contiguous(out->type.rank, out->type.shape, out->strides);
    out->contiguous = true;
    out->offset = 0;
}

int bind_allocate(struct step *step, struct tensor *out) {
    output_layout(out);
    int64_t bytes = type_bytes(&out->type);
    if (bytes == 0)
        return STATUS_OK;
    int code = ledger_storage(&step->session->ledger, (uint64_t)bytes, step->stream, &out->storage, step->fault);
    if (code != STATUS_OK)
        return code;
    return plan_wait_memory(step->stream, out->storage, step->fault);
}

bool bind_lends(const struct step *step, unsigned i) {
    const struct tensor *in = step->inputs[i];
    return op_consumes(step->lends, step->request->consume_more, i) && in->storage && in->references == 1 &&
           in->storage->references == 1 && in->contiguous && in->offset == 0;
}

void bind_take_memory(struct tensor *out, const struct tensor *in) {
    output_layout(out);
    out->storage = storage_ref(in->storage);
}

bool bind_converts(const struct step *step, enum dtype from, enum dtype to) {
    const struct device *device = step->session->order->device;
    const struct op_kernel *kernel = device->vtable->operations[step->request->opcode];
    return kernel->converts && kernel->converts(device, step->request->opcode, from, to);
}

int bind_input(struct step *step, unsigned i, struct view *view) {
    view_init(view, step->inputs[i]);
    enum dtype dtype = op_operand_dtype(step->request->opcode, step->types, i, &step->output->type);
    if (view->dtype == dtype || step->request->opcode == OP_CAST)
        return STATUS_OK;
    if (bind_converts(step, view->dtype, dtype)) {
        view->as = dtype;
        return STATUS_OK;
    }
    return view_cast(&step->session->ledger, step->stream, view, dtype, step->fault);
}

int bind_indices(const struct step *step, struct view *view) {
    const struct op_kernel *kernel = step->session->order->device->vtable->operations[step->request->opcode];
    uint32_t reads = kernel->index_dtypes | UINT32_C(1) << DTYPE_I64;
    if (reads >> view->dtype & 1)
        return STATUS_OK;
    enum dtype dtype = dtype_size(view->dtype) < 4 && (reads >> DTYPE_I32 & 1) ? DTYPE_I32 : DTYPE_I64;
    return view_cast(&step->session->ledger, step->stream, view, dtype, step->fault);
}

/* ---- outputs ---- */

static int outputs_allocate(struct step *step) {
    int code = STATUS_OK;
    for (unsigned i = 0; i < step->n_outputs && code == STATUS_OK; i++)
        code = bind_allocate(step, step->outputs[i]);
    return code;
}

/* Elementwise results of the same shape and element size may be computed in place. */
static bool output_in_place(struct step *step) {
    struct tensor *out = step->output;
    for (unsigned i = 0; i < step->request->n_inputs; i++) {
        struct tensor *in = step->inputs[i];
        if (!bind_lends(step, i) || dtype_size(in->type.dtype) != dtype_size(out->type.dtype) ||
            !shape_equal(&in->type, &out->type))
            continue;
        bind_take_memory(out, in);
        return true;
    }
    return false;
}

/* x's memory, if the result has x's dtype, and neither indices nor values are x. */
static bool scatter_in_place(struct step *step) {
    struct tensor *x = step->inputs[0];
    bool lends = bind_lends(step, 0) && x->type.dtype == step->output->type.dtype && step->inputs[1] != x &&
                 step->inputs[2] != x;
    if (lends)
        bind_take_memory(step->output, x);
    return lends;
}

static void outputs_done(struct step *step) {
    for (unsigned i = 0; i < step->n_outputs; i++) {
        step->outputs[i]->ready = step->stream;
        step->outputs[i]->ready_number = step->stream->enqueued;
    }
}

/* ---- families ---- */

int bind_create(struct step *step) {
    struct view out;
    view_init(&out, step->output);
    struct plan plan = bind_plan(step, &out, NULL, 0);
    plan.attributes = step->request->attributes;
    plan.attributes.n_ints = step->info->ints_min; /* without the shape, which is the last one */
    plan.weight = plan_weight(&step->session->order->cost, &out, NULL) * step->info->passes;
    if (plan.opcode != OP_EYE)
        view_merge((struct view *const[]){&out}, 1);
    return plan_push(step->stream, &plan, step->fault);
}

/* An elementwise launch whose inputs have the output's shape. */
static int elementwise_push(struct step *step, struct view *out, struct view *views) {
    struct plan plan = bind_plan(step, out, views, step->request->n_inputs);
    plan.weight = plan_weight(&step->session->order->cost, out, NULL) * step->info->passes;
    plan.attributes.floats = step->request->floats; /* the parameters of its formula */
    plan.attributes.n_floats = step->request->n_floats;
    return plan_push(step->stream, &plan, step->fault);
}

/* A part of a view: so many places along an axis, and of the axes before it one place alone. */
static struct view view_tile(const struct view *view, int axis, const int64_t *place, int64_t count) {
    struct view tile = *view;
    int64_t offset = 0;
    for (int i = 0; i <= axis; i++) {
        offset += place[i] * view->strides[i];
        tile.shape[i] = i == axis ? count : 1;
    }
    tile.data = (uint8_t *)view->data + offset * (int64_t)dtype_size(view->dtype);
    tile.temporary = false;
    return tile;
}

/* Converts the inputs of a tile, and pushes its launch. */
static int tile_push(struct step *step, struct view *out, struct view *tiles, const enum dtype *dtypes) {
    unsigned made = 0;
    int code = STATUS_OK;
    for (; made < step->request->n_inputs && code == STATUS_OK; made++)
        if (dtypes[made] != DTYPE_INVALID)
            code = view_cast(&step->session->ledger, step->stream, &tiles[made], dtypes[made], step->fault);
    if (code == STATUS_OK) {
        struct view *all[LAYOUT_OPERANDS_MAX] = {out};
        for (unsigned i = 0; i < made; i++)
            all[i + 1] = &tiles[i];
        view_merge(all, (int)made + 1);
        code = elementwise_push(step, out, tiles);
    }
    bind_finish_views(tiles, made);
    return code;
}

/* Large inputs that the device's kernels do not convert as they read them are converted tile by tile. dtypes[i]: to what input i is converted;
 * DTYPE_INVALID: it is not. */
static int elementwise_tiles(struct step *step, struct view *out, struct view *views, const enum dtype *dtypes) {
    int64_t place[SHAPE_RANK_MAX] = {0}, below = view_elements(out);
    int axis = 0, code = STATUS_OK;
    int64_t tile = below / TILES_MOST < TILE_ELEMENTS ? TILE_ELEMENTS : below / TILES_MOST;
    while (below /= out->shape[axis], below > tile)
        axis++;
    int64_t most = below < tile ? tile / below : 1;
    while (code == STATUS_OK) {
        int64_t left = out->shape[axis] - place[axis], count = left < most ? left : most;
        struct view tiles[3], to = view_tile(out, axis, place, count);
        for (unsigned i = 0; i < step->request->n_inputs; i++)
            tiles[i] = view_tile(&views[i], axis, place, count);
        code = tile_push(step, &to, tiles, dtypes);
        step->session->order->budget.steps -= TILE_STEPS;
        int next = axis;
        for (place[next] += count; place[next] == out->shape[next] && next > 0; place[next]++)
            place[next--] = 0;
        if (place[0] == out->shape[0])
            break;
    }
    return code;
}

/* Whether some input has to be converted by a pass of its own, and what that makes would be large. */
static bool elementwise_is_large(const struct step *step, const struct view *out, struct view *views,
                                 enum dtype *dtypes) {
    bool large = false;
    for (unsigned i = 0; i < step->request->n_inputs; i++) {
        enum dtype dtype = op_operand_dtype(step->request->opcode, step->types, i, &step->output->type);
        bool same = views[i].dtype == dtype || step->request->opcode == OP_CAST;
        bool converts = !same && bind_converts(step, views[i].dtype, dtype);
        views[i].as = converts ? dtype : views[i].as;
        dtypes[i] = same || converts ? DTYPE_INVALID : dtype;
        large |= dtypes[i] != DTYPE_INVALID && view_elements(&views[i]) > TILE_ELEMENTS;
    }
    return large && view_elements(out) > TILE_ELEMENTS;
}

int bind_elementwise(struct step *step) {
    struct view out, views[3];
    struct view *all[LAYOUT_OPERANDS_MAX] = {&out};
    enum dtype dtypes[3];
    unsigned n_inputs = step->request->n_inputs, made = 0;
    int code = STATUS_OK;
    view_init(&out, step->output);
    for (unsigned i = 0; i < n_inputs; i++)
        view_init(&views[i], step->inputs[i]);
    bool large = elementwise_is_large(step, &out, views, dtypes);
    for (; made < n_inputs && code == STATUS_OK; made++) {
        if (!large || (dtypes[made] != DTYPE_INVALID && view_elements(&views[made]) <= TILE_ELEMENTS)) {
            code = bind_input(step, made, &views[made]);
            dtypes[made] = DTYPE_INVALID;
        }
        view_broadcast(&views[made], out.rank, out.shape);
        all[made + 1] = &views[made];
    }
    if (code == STATUS_OK) {
        view_merge(all, (int)n_inputs + 1);
        code = large ? elementwise_tiles(step, &out, views, dtypes) : elementwise_push(step, &out, views);
    }
    bind_finish_views(views, made);
    return code;
}

/* OP_PARTS_COPIES: each input is copied into its slice of the output. */
int bind_join(struct step *step) {
    const struct op_request *request = step->request;
    struct view out;
    view_init(&out, step->output);
    int axis = 0;
    struct concat_attributes attributes; /* stack has the same */
    concat_attributes_read(&step->request->attributes, &attributes);
    int code = shape_axis(attributes.axis, out.rank, &axis, step->fault);
    int64_t position = 0;
    for (unsigned i = 0; i < request->n_inputs && code == STATUS_OK; i++) {
        struct view in, slice = out;
        view_init(&in, step->inputs[i]);
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
        code = view_copy(&step->session->ledger, step->stream, slice, in, step->fault);
    }
    return code;
}

/* Makes a view that shares its input's storage, point and poison. False: reshape needs a copy. */
static bool bind_view_shared(struct step *step) {
    struct tensor *in = step->inputs[0], *out = step->output;
    if (!layout_view(step->request->opcode, &step->request->attributes, &in->type, in->strides, in->offset, &out->type,
                     out->strides, &out->offset))
        return false;
    out->contiguous = layout_is_contiguous(out->type.rank, out->type.shape, out->strides);
    out->ready = in->ready;
    out->ready_number = in->ready_number;
    if (in->poison)
        tensor_poison(step->session, out, poison_ref(in->poison));
    if (in->storage && type_elements(&out->type) > 0)
        out->storage = storage_ref(in->storage);
    return true;
}

static int bind_view_copied(struct step *step) {
    struct tensor *out = step->output;
    int code = view_materialise(&step->session->ledger, step->stream, step->inputs[0], &out->storage, step->fault);
    layout_contiguous(out->type.rank, out->type.shape, out->strides);
    out->offset = 0;
    out->contiguous = true;
    outputs_done(step);
    return code;
}

/* ---- poisons ---- */

int bind_push_poison(struct stream *stream, struct poison *result, struct poison *const inputs[3], struct guard *guard,
                     struct fault *fault) {
    struct record *record = stream_push(stream, RECORD_POISON, sizeof *record, 20);
    if (!record)
        return plan_no_memory(fault);
    record->poison.result = poison_ref(result);
    for (int i = 0; i < 3; i++)
        record->poison.inputs[i] = inputs[i] ? poison_ref(inputs[i]) : NULL;
    record->poison.guard = guard;
    return STATUS_OK;
}

/* The outputs' poison, made in advance, is settled behind its launch. More than three poisoned inputs (concat) settle in
 * several steps. Where a step cannot be enqueued the guard is still the caller's. */
static int bind_poison(struct step *step, struct poison *poison) {
    struct poison *inputs[3] = {step->settled, NULL, NULL};
    unsigned n = step->settled != NULL;
    int code = STATUS_OK;
    for (unsigned i = 1; i < step->n_outputs; i++)
        tensor_poison(step->session, step->outputs[i], poison_ref(poison));
    tensor_poison(step->session, step->output, poison);
    for (unsigned i = 0; i < step->request->n_inputs && code == STATUS_OK; i++) {
        if (!step->inputs[i]->poison)
            continue;
        if (n == 3) { /* a poison for these three is an input of the next record */
            struct poison *so_far = poison_create();
            code = so_far ? bind_push_poison(step->stream, so_far, inputs, NULL, step->fault)
                          : plan_no_memory(step->fault);
            poison_unref(step->settled);
            step->settled = so_far;
            inputs[0] = so_far;
            inputs[1] = inputs[2] = NULL;
            n = 1;
        }
        inputs[n++] = step->inputs[i]->poison;
    }
    if (code == STATUS_OK)
        code = bind_push_poison(step->stream, poison, inputs, step->guard, step->fault);
    if (code == STATUS_OK)
        step->guard = NULL;
    poison_unref(step->settled);
    outputs_done(step);
    return code;
}

/* ---- the whole ---- */

/* By the normal form of its launches; join has none, whatever the backend. */
#define BIND(FAMILY, name) [OP_FAMILY_##FAMILY] = bind_##name,
static bind_function *const bind_families[] = {OP_KERNEL_FAMILIES(BIND)};

/* Loads the library that the kernel needs. */
static int bind_needs(struct step *step) {
    struct device *device = step->session->order->device;
    const struct op_request *request = step->request;
    enum dtype dtype = step->output->type.dtype;
    if (request->n_inputs)
        dtype = op_operand_dtype(request->opcode, step->types, request->n_inputs - 1, &step->output->type);
    int code = step->facts.kernel->needs(device, dtype, step->fault);
    cost_follow(&step->session->order->cost, device); /* the device may know its rates better with the library */
    return code;
}

/* Memory for the results: that of an input, if it may be taken, or new memory. */
static int bind_outputs(struct step *step) {
    enum op_family family = step->info->family;
    bool in_place =
        step->lends && (family == OP_FAMILY_SCATTER ? scatter_in_place(step)
                                                    : family == OP_FAMILY_ELEMENTWISE &&
                                                          step->request->opcode != OP_COPY && output_in_place(step));
    if (family == OP_FAMILY_OPTIMISER) /* bind_optimiser() takes it, for one parameter after the other */
        return STATUS_OK;
    return in_place ? plan_wait_memory(step->stream, step->output->storage, step->fault) : outputs_allocate(step);
}

static int bind_compute(struct step *step) {
    int code = bind_wait(step);
    if (code == STATUS_OK)
        code = bind_outputs(step);
    /* Of nothing, the number is 0, and it must be written. */
    if (code == STATUS_OK && (step->facts.elements > 0 || step->info->family == OP_FAMILY_COMPACT))
        code = bind_families[step->info->family](step);
    outputs_done(step);
    return code;
}

/* A common case: contiguous operands of one shape, none with a poison. */
static int bind_flat(struct step *step) {
    const struct op_request *request = step->request;
    int code = bind_wait(step);
    if (code == STATUS_OK)
        code = bind_outputs(step);
    if (code == STATUS_OK)
        code = plan_push_flat(
            step->stream,
            &(struct plan_flat){request->opcode, request->n_inputs, step->facts.elements, step->output, step->inputs},
            step->fault);
    outputs_done(step);
    return code;
}

/* Whether the input is contiguous, without a poison, computed before on this stream, and has a note of a use by this stream. */
static inline bool small_takes(const struct stream *stream, const struct tensor *in) {
    const struct uses *uses = &in->storage->uses;
    return in->contiguous && !in->poison && (!in->ready || in->ready == stream) && uses->count &&
           uses->use[0].stream == stream;
}

/* Whether the output may take the input's memory. */
static inline bool small_lends(const struct step *step, const struct tensor *in) {
    return in->references == 1 && in->storage->references == 1 && in->storage->uses.count == 1 && in->offset == 0 &&
           in->type.dtype == step->output->type.dtype;
}

int bind_small(struct step *step) {
    const struct op_request *request = step->request;
    struct stream *stream = step->stream;
    struct tensor *out = step->output, *lender = NULL, *const *inputs = step->inputs;
    unsigned n_inputs = request->n_inputs, lends = step->lends;
    for (unsigned i = 0; i < n_inputs; i++, lends >>= 1) {
        struct tensor *in = inputs[i];
        if (__builtin_expect(!small_takes(stream, in), 0))
            return BIND_NOT_SMALL;
        if (lends & 1 && !lender && small_lends(step, in))
            lender = in;
    }
    if (lender) {
        out->storage = storage_ref(lender->storage);
        for (int i = 0; i < out->type.rank; i++)
            out->strides[i] = lender->strides[i];
    } else {
        int code = bind_allocate(step, out);
        if (code != STATUS_OK)
            return code;
    }
    struct flat_launch *launch = stream_push_flat(stream, request->sequence, stream->order->cost.small_ns);
    if (!launch)
        return plan_no_memory(step->fault);
    uint64_t number = stream->enqueued;
    launch->opcode = (uint16_t)request->opcode;
    launch->n_inputs = (uint8_t)n_inputs;
    launch->dtype = (uint8_t)inputs[n_inputs - 1]->type.dtype;
    launch->elements = (uint32_t)step->facts.elements;
    launch->data[0] = out->storage->data;
    for (unsigned i = 0; i < n_inputs; i++) {
        struct tensor *in = inputs[i];
        struct storage *storage = in->storage;
        void *data = storage->data;
        if (__builtin_expect(in->offset != 0, 0))
            data = tensor_data(in);
        launch->data[i + 1] = data;
        storage->uses.use[0].number = number;
    }
    if (!lender)
        plan_note_use(stream, out->storage);
    out->ready = stream;
    out->ready_number = number;
    return STATUS_OK;
}

static bool bind_is_flat(const struct step *step) {
    if (!step->facts.flat || step->poisoned)
        return false;
    for (unsigned i = 0; i < step->request->n_inputs; i++)
        if (!step->inputs[i]->contiguous)
            return false;
    return true;
}

/* Whether the operation may take so long that it is stopped: then it needs a guard. */
static bool bind_is_long(const struct step *step) {
    return step->facts.large && step->stream->group->share->operation_ns &&
           step->session->order->device->vtable->launch_part;
}

static bool bind_index_is_u64(const struct step *step) {
    for (unsigned i = 0; i < step->request->n_inputs && i < 32; i++)
        if ((step->info->index_inputs >> i & 1) && step->inputs[i]->type.dtype == DTYPE_U64)
            return true;
    return false;
}

/* Makes the guard and the poison that the result needs, before anything is enqueued. */
static int bind_poison_prepare(struct step *step, bool is_long, struct poison **poison) {
    const struct op_request *request = step->request;
    *poison = NULL;
    enum op_family family = step->info->family;
    bool take = family == OP_FAMILY_TAKE || family == OP_FAMILY_SCATTER, launch = family == OP_FAMILY_KERNEL;
    bool checks = family == OP_FAMILY_DECOMPOSE || family == OP_FAMILY_LOSS ||
                  (family == OP_FAMILY_PROGRAM && step->recorded->plan.replay->n_guards);
    if (take || launch || is_long || checks) {
        int axis = -1; /* one_hot has none */
        if (take && request->opcode != OP_ONE_HOT)
            shape_axis(request->ints[0], step->inputs[0]->type.rank, &axis, NULL); /* the rule has checked it */
        step->guard =
            guard_create(&step->session->order->reports, step_name(step), request->label, request->sequence, axis);
        if (!step->guard)
            return plan_no_memory(step->fault);
        step->guard->launch = launch;
        step->guard->above = take && bind_index_is_u64(step);
    }
    if (is_long)
        step->stream->operation.report = step->guard->report;
    if (!step->guard && !step->poisoned)
        return STATUS_OK;
    *poison = poison_create();
    return *poison ? STATUS_OK : plan_no_memory(step->fault);
}

/* An operation with a guard, a poison, a copy, or several launches. */
static __attribute__((noinline)) int bind_carefully(struct step *step, bool is_long) {
    step->guard = NULL;
    step->settled = NULL;
    struct stream_position before = stream_position(step->stream);
    struct poison *poison = NULL;
    int code = step->info->family == OP_FAMILY_KERNEL    ? bind_kernel_find(step)
               : step->info->family == OP_FAMILY_PROGRAM ? bind_program_find(step)
                                                         : STATUS_OK;
    if (code == STATUS_OK)
        code = bind_poison_prepare(step, is_long, &poison);
    if (code == STATUS_OK)
        code = step->info->family == OP_FAMILY_VIEW      ? bind_view_copied(step)
               : step->info->family == OP_FAMILY_KERNEL  ? bind_kernel(step)
               : step->info->family == OP_FAMILY_PROGRAM ? bind_program(step)
                                                         : bind_compute(step);
    step->stream->operation.report = NULL;
    if (poison && code == STATUS_OK)
        code = bind_poison(step, poison);
    else
        poison_unref(poison);
    if (code != STATUS_OK) /* takes back copies and conversions of inputs */
        stream_take_back(step->stream, &before);
    if (step->guard) /* no record has taken it, so no launch reports to it */
        guard_unref(step->guard);
    return code;
}

int bind_step(struct step *step) {
    const struct op_kernel *kernel = step->facts.kernel;
    if (kernel && kernel->needs) {
        int code = bind_needs(step);
        if (code != STATUS_OK)
            return code;
    }
    bool is_long = bind_is_long(step);
    if (!is_long && bind_is_flat(step))
        return bind_flat(step);
    if (step->info->family == OP_FAMILY_VIEW && bind_view_shared(step))
        return STATUS_OK;
    return bind_carefully(step, is_long);
}
