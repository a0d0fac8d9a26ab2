/* Launches of user kernels: ids become addresses, outputs get memory that is zero or a copy, and what is known of the kernel
 * is held against the arguments, so that the device has little left to refuse. */
#include <inttypes.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/program/bind_impl.h"
#include "engine/program/kernel_impl.h"

struct kernel_binding {
    struct session *session;
    struct order *order;
    struct stream *stream;
    struct kernel *kernel;
    const struct kernel_request *request;
    struct outputs outputs;
    struct tensor *tensors[KERNEL_ARGUMENTS_MAX]; /* what is read, by argument; else NULL */
    struct view views[KERNEL_ARGUMENTS_MAX];      /* of KERNEL_INPUT, as the kernel shall see them */
    unsigned n_views;                             /* made so far, counted by arguments */
    struct check *check;
    struct taint *taint;
    struct fault fault;
};

static bool kernel_makes(enum kernel_argument kind) {
    return kind == KERNEL_OUTPUT || kind == KERNEL_UPDATE || kind == KERNEL_CONSUME;
}

static bool kernel_reads(enum kernel_argument kind) {
    return kind == KERNEL_INPUT || kind == KERNEL_UPDATE || kind == KERNEL_CONSUME;
}

/* ---- checks ---- */

static int binding_lookup(struct kernel_binding *binding, struct cause *cause) {
    const struct kernel_request *request = binding->request;
    for (unsigned i = 0; i < request->n_arguments; i++) {
        const struct kernel_argument_value *argument = &request->arguments[i];
        if (!kernel_reads(argument->kind))
            continue;
        struct tensor *tensor = session_tensor(binding->session, argument->value);
        if (!tensor && session_refused(binding->session, argument->value, cause))
            return (int)cause->failure->code;
        if (!tensor || outputs_have(&binding->outputs, argument->value))
            return session_unknown_id(binding->session, argument->value, &binding->fault);
        if (tensor->uploading)
            return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT,
                             "argument %u: tensor %" PRIu64 " has not been uploaded completely", i, argument->value);
        binding->tensors[i] = tensor;
    }
    return STATUS_OK;
}

/* The first cause among the inputs, if there is one. */
static bool binding_cause(struct kernel_binding *binding, struct cause *cause) {
    for (unsigned i = 0; i < binding->request->n_arguments; i++)
        if (binding->tensors[i] && tensor_settle(binding->session, binding->tensors[i])) {
            *cause = tensor_cause(binding->tensors[i]);
            return true;
        }
    return false;
}

/* In the order in which a client can use the answer. */
static int binding_check(struct kernel_binding *binding, struct cause *cause) {
    const struct kernel_request *request = binding->request;
    if (request->wrong) {
        binding->fault = *request->wrong;
        return (int)binding->fault.code;
    }
    binding->kernel = kernel_table_find(binding->session->kernels, request->kernel);
    if (!binding->kernel)
        return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT, "no kernel has id %" PRIu64, request->kernel);
    int code = binding_lookup(binding, cause);
    if (code != STATUS_OK)
        return code;
    if (binding_cause(binding, cause))
        return (int)cause->failure->code;
    binding->stream = session_find_stream(binding->session, request->stream, &binding->fault);
    if (!binding->stream)
        return (int)binding->fault.code;
    return kernel_request_check(request, binding->kernel->device_kernel, &binding->fault);
}

/* ---- memory ---- */

/* Zero, so that a kernel that leaves elements out shows nobody what others had in this memory. */
static int output_clear(struct kernel_binding *binding, struct tensor *out, int64_t bytes) {
    static const int64_t ints[] = {DTYPE_U8, 0};
    static const double floats[] = {0};
    struct view view = {.storage = out->storage, .data = out->storage->data, .dtype = DTYPE_U8, .rank = 1};
    view.shape[0] = bytes;
    view.strides[0] = 1;
    struct plan plan = {
        .opcode = OP_FULL, .ledger = &binding->session->ledger, .out = &view, .attributes = {ints, floats, 2, 1}};
    plan.weight = plan_weight(&binding->order->cost, &view, NULL);
    return plan_push(binding->stream, &plan, &binding->fault);
}

static int output_copy(struct kernel_binding *binding, struct tensor *out, const struct tensor *from) {
    struct view to, view;
    int code = plan_wait_value(binding->stream, from, &binding->fault);
    if (code != STATUS_OK)
        return code;
    view_init(&to, out);
    view_init(&view, from);
    return view_copy(&binding->session->ledger, binding->stream, to, view, &binding->fault);
}

/* A tensor that the launch consumes and nobody else has, the launch's other arguments included, lends its memory. */
static bool output_in_place(const struct kernel_binding *binding, unsigned argument) {
    const struct tensor *in = binding->tensors[argument];
    for (unsigned i = 0; i < binding->request->n_arguments; i++)
        if (i != argument && binding->tensors[i] == in)
            return false;
    return binding->request->arguments[argument].kind == KERNEL_CONSUME && in->storage && in->references == 1 &&
           in->storage->references == 1 && in->contiguous && in->offset == 0;
}

static int output_take(struct kernel_binding *binding, struct tensor *out, const struct tensor *in) {
    out->type = in->type;
    out->offset = 0;
    out->contiguous = true;
    layout_contiguous(out->type.rank, out->type.shape, out->strides);
    out->storage = storage_ref(in->storage);
    int code = plan_wait_value(binding->stream, in, &binding->fault);
    return code == STATUS_OK ? plan_wait_memory(binding->stream, out->storage, &binding->fault) : code;
}

/* `from` NULL: zero. */
static int output_make(struct kernel_binding *binding, struct tensor *out, const struct tensor_type *type,
                       const struct tensor *from) {
    out->type = *type;
    out->offset = 0;
    out->contiguous = true;
    layout_contiguous(type->rank, type->shape, out->strides);
    int64_t bytes = type_bytes(type);
    if (bytes == 0)
        return STATUS_OK;
    int code =
        ledger_storage(&binding->session->ledger, (uint64_t)bytes, binding->stream, &out->storage, &binding->fault);
    if (code == STATUS_OK)
        code = plan_wait_memory(binding->stream, out->storage, &binding->fault);
    if (code != STATUS_OK)
        return code;
    return from ? output_copy(binding, out, from) : output_clear(binding, out, bytes);
}

static int input_make(struct kernel_binding *binding, unsigned i) {
    struct view *view = &binding->views[i];
    view_init(view, binding->tensors[i]);
    int code = plan_wait_value(binding->stream, binding->tensors[i], &binding->fault);
    if (code == STATUS_OK)
        code = view_make_contiguous(&binding->session->ledger, binding->stream, view, view->dtype, &binding->fault);
    return code;
}

static int binding_update(struct kernel_binding *binding, unsigned argument, struct tensor *out) {
    const struct tensor *in = binding->tensors[argument];
    return output_in_place(binding, argument) ? output_take(binding, out, in)
                                              : output_make(binding, out, &in->type, in);
}

static int binding_make(struct kernel_binding *binding) {
    const struct kernel_request *request = binding->request;
    unsigned output = 0, type = 0;
    int code = STATUS_OK;
    for (unsigned i = 0; i < request->n_arguments && code == STATUS_OK; i++) {
        binding->n_views = i;
        switch (request->arguments[i].kind) {
        case KERNEL_INPUT:
            binding->n_views = i + 1; /* view_init() has been, whatever follows */
            code = input_make(binding, i);
            break;
        case KERNEL_OUTPUT:
            code = output_make(binding, binding->outputs.tensors[output++], &request->types[type++], NULL);
            break;
        case KERNEL_UPDATE:
        case KERNEL_CONSUME:
            code = binding_update(binding, i, binding->outputs.tensors[output++]);
            break;
        case KERNEL_BITS32:
        case KERNEL_BITS64:
            break;
        }
    }
    return code;
}

static void binding_finish_views(struct kernel_binding *binding) {
    for (unsigned i = 0; i < binding->n_views; i++)
        if (binding->request->arguments[i].kind == KERNEL_INPUT)
            view_finish(&binding->views[i]);
}

/* ---- the launch ---- */

static void launch_fill(const struct kernel_binding *binding, struct kernel_launch *launch) {
    const struct kernel_request *request = binding->request;
    unsigned output = 0;
    launch->kernel = binding->kernel->device_kernel;
    launch->name = binding->kernel->name;
    launch->report = binding->check->report;
    memcpy(launch->grid, request->grid, sizeof launch->grid);
    memcpy(launch->block, request->block, sizeof launch->block);
    launch->shared = request->shared;
    launch->n_arguments = request->n_arguments;
    for (unsigned i = 0; i < request->n_arguments; i++) {
        const struct kernel_argument_value *argument = &request->arguments[i];
        launch->arguments[i] = argument->value;
        if (argument->kind == KERNEL_INPUT) {
            launch->arguments[i] = (uintptr_t)binding->views[i].data;
        } else if (kernel_makes(argument->kind)) {
            const struct storage *storage = binding->outputs.tensors[output++]->storage;
            launch->arguments[i] = storage ? (uintptr_t)storage->data : 0;
        }
    }
}

static int binding_push(struct kernel_binding *binding) {
    const struct kernel_request *request = binding->request;
    struct storage *storages[2 * KERNEL_ARGUMENTS_MAX];
    unsigned n = 0;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < binding->outputs.n; i++)
        if (binding->outputs.tensors[i]->storage)
            storages[n++] = binding->outputs.tensors[i]->storage;
    for (unsigned i = 0; i < request->n_arguments; i++)
        if (request->arguments[i].kind == KERNEL_INPUT && binding->views[i].storage)
            storages[n++] = binding->views[i].storage;
    for (unsigned i = 0; i < n; i++)
        bytes += storages[i]->bytes;
    struct record *record;
    int code = plan_push_kernel(binding->stream, storages, n, request->n_arguments,
                                1000 + cost_pass(&binding->order->cost, (double)bytes), &record, &binding->fault);
    if (code != STATUS_OK)
        return code;
    launch_fill(binding, &record->kernel);
    kernel_use(binding->kernel, binding->stream, binding->stream->enqueued);
    return STATUS_OK;
}

/* Behind the launch: whether the device took it, and what its inputs turn out to be. */
static int binding_settle(struct kernel_binding *binding) {
    struct taint *inputs[3] = {NULL, NULL, NULL}, *step = NULL;
    unsigned n = 0;
    int code = STATUS_OK;
    for (unsigned i = 0; i < binding->request->n_arguments && code == STATUS_OK; i++) {
        if (!binding->tensors[i] || !binding->tensors[i]->taint)
            continue;
        if (n == 3) { /* one taint stands for those so far */
            struct taint *next = taint_create();
            code = next ? bind_push_taint(binding->stream, next, inputs, NULL, &binding->fault)
                        : plan_no_memory(&binding->fault);
            taint_unref(step);
            step = inputs[0] = next;
            inputs[1] = inputs[2] = NULL;
            n = 1;
        }
        inputs[n++] = binding->tensors[i]->taint;
    }
    if (code == STATUS_OK)
        code = bind_push_taint(binding->stream, binding->taint, inputs, binding->check, &binding->fault);
    taint_unref(step);
    return code;
}

static void binding_done(struct kernel_binding *binding) {
    for (unsigned i = 0; i < binding->outputs.n; i++) {
        struct tensor *out = binding->outputs.tensors[i];
        tensor_taint(binding->session, out, taint_ref(binding->taint));
        out->ready = binding->stream;
        out->ready_number = binding->stream->enqueued;
    }
}

static int binding_launch(struct kernel_binding *binding) {
    const struct kernel_request *request = binding->request;
    binding->check =
        check_create(&binding->order->reports, binding->kernel->name, request->label, request->sequence, 0);
    binding->taint = taint_create();
    int code = binding->check && binding->taint ? STATUS_OK : plan_no_memory(&binding->fault);
    struct stream_position before = stream_position(binding->stream);
    if (code == STATUS_OK) {
        binding->check->launch = true;
        code = binding_make(binding);
    }
    if (code == STATUS_OK)
        code = binding_push(binding);
    if (code == STATUS_OK)
        code = binding_settle(binding);
    if (code == STATUS_OK) {
        binding_done(binding);
    } else {
        stream_take_back(binding->stream, &before); /* copies, and outputs set to zero */
        check_unref(binding->check);
    }
    taint_unref(binding->taint);
    binding_finish_views(binding);
    return code;
}

/* ---- the whole ---- */

static int binding_bind_ids(struct kernel_binding *binding) {
    const struct kernel_request *request = binding->request;
    for (unsigned i = 0; i < request->n_arguments; i++)
        binding->outputs.n += kernel_makes(request->arguments[i].kind);
    int code = outputs_bind(binding->session, &binding->outputs, &binding->fault);
    if (code == STATUS_OK && binding->outputs.n == 0)
        code = fault_set(&binding->fault, STATUS_INVALID_ARGUMENT, "a launch without an output has no result");
    return code;
}

static void binding_fail(struct kernel_binding *binding, struct cause cause) {
    const struct kernel_request *request = binding->request;
    const char *name = binding->kernel ? binding->kernel->name : "kernel";
    cause = cause.failure ? cause_ref(cause)
                          : session_cause(binding->session, &binding->fault, name, request->label, request->sequence);
    outputs_fail(binding->session, &binding->outputs, cause);
}

/* Whatever became of the launch. */
static void binding_consume(struct kernel_binding *binding) {
    const struct kernel_request *request = binding->request;
    for (unsigned i = 0; i < request->n_arguments; i++)
        if (request->arguments[i].kind == KERNEL_CONSUME &&
            !outputs_have(&binding->outputs, request->arguments[i].value))
            session_unbind(binding->session, request->arguments[i].value);
}

int session_launch(struct session *session, const struct kernel_request *request) {
    struct kernel_binding binding;
    binding.session = session;
    binding.order = session->order;
    binding.stream = NULL;
    binding.kernel = NULL;
    binding.request = request;
    binding.outputs.first = request->first_output;
    binding.outputs.n = binding.n_views = 0;
    binding.check = NULL;
    binding.taint = NULL;
    memset(binding.tensors, 0, sizeof binding.tensors);
    struct cause cause = {0};
    uint64_t last_id = session->last_id;
    ledger_begin(&session->ledger);
    session_label(session, request->label);
    int code = binding_bind_ids(&binding);
    if (code == STATUS_OK)
        code = binding_check(&binding, &cause);
    uint64_t before = code == STATUS_OK ? binding.stream->enqueued : 0;
    if (code == STATUS_OK) {
        stream_begin_operation(binding.stream, request->label, request->sequence);
        code = binding_launch(&binding);
        stream_begin_operation(binding.stream, NULL, 0);
    }
    if (session_put_off(session, code)) {
        outputs_take_back(session, &binding.outputs, last_id);
        return STATUS_AGAIN;
    }
    session_end_operation(session, code == STATUS_OK ? binding.stream : NULL, before);
    if (code != STATUS_OK)
        binding_fail(&binding, cause);
    binding_consume(&binding);
    return code;
}
