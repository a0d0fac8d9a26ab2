/* From a checked operation to launches in normal form (engine/device/launch.h): operands are cast and made contiguous where
 * the form wants it, axes are merged, storage is taken, and the stream is made to wait for what it needs. */
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/program/bind_impl.h"

/* ---- outputs ---- */

static int outputs_allocate(struct binding *binding) {
    int code = STATUS_OK;
    for (unsigned i = 0; i < binding->outputs.n && code == STATUS_OK; i++)
        code = bind_allocate(binding, binding->outputs.tensors[i]);
    return code;
}

/* Elementwise results of the same shape and element size may be computed in place. */
static bool output_in_place(struct binding *binding) {
    struct tensor *out = binding->output;
    for (unsigned i = 0; i < binding->request->n_inputs; i++) {
        struct tensor *in = binding->inputs[i];
        if (!bind_lends(binding, i) || dtype_size(in->type.dtype) != dtype_size(out->type.dtype) ||
            !shape_equal(&in->type, &out->type))
            continue;
        bind_take_memory(out, in);
        return true;
    }
    return false;
}

static void outputs_done(struct binding *binding) {
    for (unsigned i = 0; i < binding->outputs.n; i++) {
        binding->outputs.tensors[i]->ready = binding->stream;
        binding->outputs.tensors[i]->ready_number = binding->stream->enqueued;
    }
}

/* ---- families ---- */

int bind_create(struct binding *binding) {
    struct view out;
    view_init(&out, binding->output);
    struct plan plan = bind_plan(binding, &out, NULL, 0);
    plan.attributes = binding->attributes;
    plan.attributes.n_ints = binding->info->ints_min; /* without the shape, which is the last one */
    plan.weight = plan_weight(&binding->order->cost, &out, NULL) * binding->info->passes;
    if (plan.opcode != OP_EYE)
        view_merge((struct view *const[]){&out}, 1);
    return plan_push(binding->stream, &plan, &binding->fault);
}

int bind_elementwise(struct binding *binding) {
    struct view out, views[3];
    struct view *all[LAYOUT_OPERANDS_MAX] = {&out};
    unsigned n_inputs = binding->request->n_inputs, made = 0;
    int code = STATUS_OK;
    view_init(&out, binding->output);
    for (; made < n_inputs && code == STATUS_OK; made++) {
        code = bind_input(binding, made, &views[made]);
        view_broadcast(&views[made], out.rank, out.shape);
        all[made + 1] = &views[made];
    }
    if (code == STATUS_OK) {
        struct plan plan = bind_plan(binding, &out, views, n_inputs);
        plan.weight = plan_weight(&binding->order->cost, &out, NULL) * binding->info->passes;
        view_merge(all, (int)n_inputs + 1);
        code = plan_push(binding->stream, &plan, &binding->fault);
    }
    bind_finish_views(views, made);
    return code;
}

/* OP_PARTS_COPIES: each input is copied into its slice of the output. */
int bind_join(struct binding *binding) {
    const struct op_request *request = binding->request;
    struct view out;
    view_init(&out, binding->output);
    int axis = 0;
    struct concat_attributes attributes; /* stack has the same */
    concat_attributes_read(&binding->attributes, &attributes);
    int code = shape_axis(attributes.axis, out.rank, &axis, &binding->fault);
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
        code = view_copy(&binding->session->ledger, binding->stream, slice, in, &binding->fault);
    }
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
    if (in->poison)
        tensor_poison(binding->session, out, poison_ref(in->poison));
    if (in->storage && type_elements(&out->type) > 0)
        out->storage = storage_ref(in->storage);
    return true;
}

static int bind_view_copied(struct binding *binding) {
    struct tensor *out = binding->output;
    int code = view_materialise(&binding->session->ledger, binding->stream, binding->inputs[0], &out->storage,
                                &binding->fault);
    layout_contiguous(out->type.rank, out->type.shape, out->strides);
    out->offset = 0;
    out->contiguous = true;
    outputs_done(binding);
    return code;
}

/* ---- poisons ---- */

/* Behind what has been enqueued on the stream: `result` is settled from up to three inputs (NULL: none) and a guard (may be
 * NULL), of which it takes over one reference on success. */
static int bind_push_poison(struct stream *stream, struct poison *result, struct poison *const inputs[3],
                            struct guard *guard, struct fault *fault) {
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
static int bind_poison(struct binding *binding, struct poison *poison) {
    struct poison *inputs[3] = {NULL, NULL, NULL};
    unsigned n = 0;
    int code = STATUS_OK;
    for (unsigned i = 1; i < binding->outputs.n; i++)
        tensor_poison(binding->session, binding->outputs.tensors[i], poison_ref(poison));
    tensor_poison(binding->session, binding->output, poison);
    for (unsigned i = 0; i < binding->request->n_inputs && code == STATUS_OK; i++) {
        if (!binding->inputs[i]->poison)
            continue;
        if (n == 3) { /* the poison stands for those so far, as its own input of the next step */
            struct poison *step = poison_create();
            code = step ? bind_push_poison(binding->stream, step, inputs, NULL, &binding->fault)
                        : plan_no_memory(&binding->fault);
            poison_unref(binding->step);
            binding->step = step;
            inputs[0] = step;
            inputs[1] = inputs[2] = NULL;
            n = 1;
        }
        inputs[n++] = binding->inputs[i]->poison;
    }
    if (code == STATUS_OK)
        code = bind_push_poison(binding->stream, poison, inputs, binding->guard, &binding->fault);
    if (code == STATUS_OK)
        binding->guard = NULL;
    poison_unref(binding->step);
    outputs_done(binding);
    return code;
}

/* ---- the whole ---- */

/* By the normal form of its launches; join has none, whatever the backend. */
#define BIND(FAMILY, name) [OP_FAMILY_##FAMILY] = bind_##name,
static bind_function *const bind_families[] = {OP_KERNEL_FAMILIES(BIND)};

/* A library that the kernel needs. */
static int bind_needs(struct binding *binding) {
    struct device *device = binding->order->device;
    const struct op_request *request = binding->request;
    enum dtype dtype = binding->output->type.dtype;
    if (request->n_inputs)
        dtype = op_operand_dtype(request->opcode, binding->types, request->n_inputs - 1, &binding->output->type);
    int code = binding->signature->kernel->needs(device, dtype, &binding->fault);
    cost_follow(&binding->order->cost, device); /* it may have been loaded now, and the device know more */
    return code;
}

/* Memory for the results, of an input where that may be. */
static int bind_outputs(struct binding *binding) {
    bool in_place = binding->request->consume && binding->info->family == OP_FAMILY_ELEMENTWISE &&
                    binding->request->opcode != OP_COPY && output_in_place(binding);
    return in_place ? plan_wait_memory(binding->stream, binding->output->storage, &binding->fault)
                    : outputs_allocate(binding);
}

static int bind_compute(struct binding *binding) {
    int code = bind_wait(binding);
    if (code == STATUS_OK)
        code = bind_outputs(binding);
    if (code == STATUS_OK && binding->signature->elements > 0)
        code = bind_families[binding->info->family](binding);
    outputs_done(binding);
    return code;
}

/* The common case: contiguous operands of one shape, none of which may turn out to have failed. */
static int bind_flat(struct binding *binding) {
    int code = bind_wait(binding);
    if (code == STATUS_OK)
        code = bind_outputs(binding);
    if (code == STATUS_OK)
        code = plan_push_flat(binding->stream,
                              &(struct plan_flat){binding->request->opcode, binding->request->n_inputs,
                                                  binding->signature->elements, binding->output, binding->inputs},
                              &binding->fault);
    outputs_done(binding);
    return code;
}

static bool bind_is_flat(const struct binding *binding) {
    if (!binding->signature->flat || binding->poisoned)
        return false;
    for (unsigned i = 0; i < binding->request->n_inputs; i++)
        if (!binding->inputs[i]->contiguous)
            return false;
    return true;
}

/* Whether it may take so long that it is stopped, and so needs a guard. */
static bool bind_is_long(const struct binding *binding) {
    return binding->signature->large && binding->stream->group->share->operation_ns &&
           binding->order->device->vtable->launch_part;
}

/* What a poisoned result needs, before anything is enqueued for it. */
static int bind_poison_prepare(struct binding *binding, bool is_long, struct poison **poison) {
    const struct op_request *request = binding->request;
    *poison = NULL;
    bool take = binding->info->family == OP_FAMILY_TAKE, launch = binding->info->family == OP_FAMILY_KERNEL;
    if (take || launch || is_long) {
        int axis = !take || request->opcode == OP_ONE_HOT ? -1 : (int)binding->attributes.ints[0];
        binding->guard =
            guard_create(&binding->order->reports, binding_name(binding), request->label, request->sequence, axis);
        if (!binding->guard)
            return plan_no_memory(&binding->fault);
        binding->guard->launch = launch;
    }
    if (is_long)
        binding->stream->operation.report = binding->guard->report;
    if (!binding->guard && !binding->poisoned)
        return STATUS_OK;
    *poison = poison_create();
    return *poison ? STATUS_OK : plan_no_memory(&binding->fault);
}

/* With a guard, a poison, a copy, or more than one launch. */
static __attribute__((noinline)) int bind_carefully(struct binding *binding, bool is_long) {
    binding->guard = NULL;
    binding->step = NULL;
    struct stream_position before = stream_position(binding->stream);
    struct poison *poison = NULL;
    int code = binding->info->family == OP_FAMILY_KERNEL ? bind_kernel_find(binding) : STATUS_OK;
    if (code == STATUS_OK)
        code = bind_poison_prepare(binding, is_long, &poison);
    if (code == STATUS_OK)
        code = binding->info->family == OP_FAMILY_VIEW     ? bind_view_copied(binding)
               : binding->info->family == OP_FAMILY_KERNEL ? bind_kernel(binding)
                                                           : bind_compute(binding);
    binding->stream->operation.report = NULL;
    if (poison && code == STATUS_OK)
        code = bind_poison(binding, poison);
    else
        poison_unref(poison);
    if (code != STATUS_OK) /* copies and conversions of inputs, made before memory for the rest was refused */
        stream_take_back(binding->stream, &before);
    if (binding->guard) /* it has not become a record's: no launch is left that reports to it */
        guard_unref(binding->guard);
    return code;
}

int bind_operation(struct binding *binding) {
    const struct op_kernel *kernel = binding->signature->kernel;
    if (kernel && kernel->needs) {
        int code = bind_needs(binding);
        if (code != STATUS_OK)
            return code;
    }
    bool is_long = bind_is_long(binding);
    if (!is_long && bind_is_flat(binding))
        return bind_flat(binding);
    if (binding->info->family == OP_FAMILY_VIEW && bind_view_shared(binding))
        return STATUS_OK;
    return bind_carefully(binding, is_long);
}
