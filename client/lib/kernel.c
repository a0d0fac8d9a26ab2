/* User kernels: compiling, which waits for its answer, and launches, which are frames of their own. */
#include "proto/ops/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"
#include "client/lib/scope.h"

/* ---- arguments ---- */

td_kernel_arg td_arg_in(td_tensor *x) {
    return (td_kernel_arg){.kind = KERNEL_INPUT, .input = x};
}

td_kernel_arg td_arg_out(td_tensor **y, td_dtype dtype, int rank, const int64_t *shape) {
    return (td_kernel_arg){.kind = KERNEL_OUTPUT, .output = y, .dtype = dtype, .rank = rank, .shape = shape};
}

td_kernel_arg td_arg_update(td_tensor **y, td_tensor *x) {
    return (td_kernel_arg){.kind = KERNEL_UPDATE, .output = y, .input = x};
}

td_kernel_arg td_arg_consume(td_tensor **y, td_tensor *x) {
    return (td_kernel_arg){.kind = KERNEL_CONSUME, .output = y, .input = x};
}

td_kernel_arg td_arg_u32(uint32_t value) {
    return (td_kernel_arg){.kind = KERNEL_BITS32, .bits = value};
}

td_kernel_arg td_arg_i32(int32_t value) {
    return td_arg_u32((uint32_t)value);
}

td_kernel_arg td_arg_u64(uint64_t value) {
    return (td_kernel_arg){.kind = KERNEL_BITS64, .bits = value};
}

td_kernel_arg td_arg_i64(int64_t value) {
    return td_arg_u64((uint64_t)value);
}

td_kernel_arg td_arg_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return td_arg_u32(bits);
}

td_kernel_arg td_arg_f64(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return td_arg_u64(bits);
}

/* ---- compiling ---- */

static int compile_check(td_device *device, const char *source, const char *name, td_kernel **kernel) {
    if (!device || !source || !name || !kernel)
        return error_set(STATUS_INVALID_ARGUMENT, "%s is NULL",
                         !device   ? "the device"
                         : !source ? "the source"
                         : !name   ? "the kernel's name"
                                   : "the place for the kernel");
    size_t name_bytes = strlen(name), bytes = strlen(source);
    if (!name_bytes || name_bytes > KERNEL_NAME_MAX)
        return error_set(STATUS_INVALID_ARGUMENT, "a kernel's name has 1 to %d bytes, not %zu", KERNEL_NAME_MAX,
                         name_bytes);
    if (bytes > FRAME_MESSAGE_MAX - 1024)
        return error_set(STATUS_LIMIT, "a source of %zu bytes, the limit is %d", bytes, FRAME_MESSAGE_MAX - 1024);
    return 0;
}

static struct frame_item *compile_frame(uint64_t id, const char *source, const char *name) {
    Tensord__KernelCompile message = TENSORD__KERNEL_COMPILE__INIT;
    message.kernel = id;
    message.source = (char *)(uintptr_t)source;
    message.name = (char *)(uintptr_t)name;
    return frame_item_create(FRAME_KERNEL_COMPILE, &message.base, tensord__kernel_compile__get_packed_size(&message));
}

/* Under the lock: asks, and waits. The answer may be lost with a connection, and then the id is used up. */
static int compile_ask(td_device *device, uint64_t id, const char *source, const char *name, bool *again) {
    struct request request;
    int code = device_check(device);
    *again = false;
    if (code)
        return code;
    struct frame_item *frame = compile_frame(id, source, name);
    if (!frame)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a kernel's source");
    if (!queue_room(&device->queue, frame->item.bytes)) {
        bool ever = frame->item.bytes <= device->queue.bytes_max;
        free(frame);
        return error_set(ever ? STATUS_AGAIN : STATUS_LIMIT, "the send queue of %s holds %zu bytes of %zu%s",
                         device->name, device->queue.bytes, device->queue.bytes_max, ever ? ", try again" : "");
    }
    request_init(&request, REQUEST_WAITED, FRAME_KERNEL_COMPILE, NULL);
    pending_push_frame(device, &request, frame);
    code = pending_wait(device, &request);
    if (code)
        return error_store_details(&request.error, (char *)request.data);
    free(request.data);
    *again = request.again;
    return 0;
}

/* Under the lock: with one id after the other, until an answer has come. */
static int compile_until_answered(td_device *device, td_kernel *kernel, const char *source, const char *name) {
    Tensord__KernelRelease release = TENSORD__KERNEL_RELEASE__INIT;
    bool again = true;
    int code = 0;
    while (!code && again) {
        kernel->id = device->next_kernel++;
        code = compile_ask(device, kernel->id, source, name, &again);
        release.kernel = kernel->id;
        if (!code && again) /* it may have been bound; else there is nothing to release, and that does no harm */
            code = frame_push(device, FRAME_KERNEL_RELEASE, &release.base, 0);
    }
    return code;
}

int td_kernel_compile(td_device *device, const char *source, const char *name, td_kernel **out) {
    int code = compile_check(device, source, name, out);
    if (code)
        return code;
    td_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a kernel");
    kernel->device = device;
    snprintf(kernel->name, sizeof kernel->name, "%s", name);
    pthread_mutex_lock(&device->lock);
    code = compile_until_answered(device, kernel, source, name);
    if (!code) {
        kernel->next = device->kernels;
        if (kernel->next)
            kernel->next->previous = kernel;
        device->kernels = kernel;
    }
    pthread_mutex_unlock(&device->lock);
    if (code)
        free(kernel);
    else
        *out = kernel;
    return code;
}

void td_kernel_release(td_kernel *kernel) {
    if (!kernel)
        return;
    td_device *device = kernel->device;
    Tensord__KernelRelease message = TENSORD__KERNEL_RELEASE__INIT;
    message.kernel = kernel->id;
    pthread_mutex_lock(&device->lock);
    *(kernel->previous ? &kernel->previous->next : &device->kernels) = kernel->next;
    if (kernel->next)
        kernel->next->previous = kernel->previous;
    /* Where there is no room for the message it stays on the device: it ends with the session. */
    (void)frame_push(device, FRAME_KERNEL_RELEASE, &message.base, 0);
    pthread_mutex_unlock(&device->lock);
    free(kernel);
}

/* ---- launches ---- */

/* A launch in the making. */
struct launch {
    const td_kernel *kernel;
    int count;
    const td_kernel_arg *args;
    uint32_t grid[3], block[3], shared;
    unsigned n_outputs, n_made;
    struct tensor_type types[KERNEL_ARGUMENTS_MAX]; /* of the outputs */
    td_tensor *tensors[KERNEL_ARGUMENTS_MAX];       /* these */
    uint64_t gate;
};

static bool arg_makes(const td_kernel_arg *arg) {
    return arg->kind == KERNEL_OUTPUT || arg->kind == KERNEL_UPDATE || arg->kind == KERNEL_CONSUME;
}

static bool arg_reads(const td_kernel_arg *arg) {
    return arg->kind == KERNEL_INPUT || arg->kind == KERNEL_UPDATE || arg->kind == KERNEL_CONSUME;
}

/* Whether an earlier argument consumes the same handle. */
static bool arg_gone(const struct launch *launch, int i) {
    for (int k = 0; k < i; k++)
        if (launch->args[k].kind == KERNEL_CONSUME && launch->args[k].input == launch->args[i].input)
            return true;
    return false;
}

static int launch_extents(const char *what, td_dim dim, uint32_t out[3], struct fault *fault) {
    const int64_t extents[3] = {dim.x, dim.y, dim.z};
    for (int i = 0; i < 3; i++) {
        if (extents[i] < 1 || extents[i] > INT32_MAX)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "the %s's %c is %lld", what, "xyz"[i],
                             (long long)extents[i]);
        out[i] = (uint32_t)extents[i];
    }
    return 0;
}

static int launch_arg(struct launch *launch, int i, struct fault *fault) {
    const td_kernel_arg *arg = &launch->args[i];
    if (arg->kind < KERNEL_INPUT || arg->kind > KERNEL_CONSUME)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "argument %d is of no kind", i);
    if (arg_reads(arg) && arg->input->device != launch->kernel->device)
        return fault_set(fault, STATUS_DEVICE_MISMATCH, "the kernel is on %s, argument %d on %s",
                         launch->kernel->device->name, i, arg->input->device->name);
    if (arg_reads(arg) && arg->input->gate > launch->gate)
        launch->gate = arg->input->gate;
    if (!arg_makes(arg))
        return 0;
    if (!arg->output)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "argument %d is an output without a place for it", i);
    struct tensor_type *type = &launch->types[launch->n_outputs++];
    if (arg->kind == KERNEL_CONSUME && arg_gone(launch, i))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "argument %d has been consumed by another one", i);
    if (arg->kind != KERNEL_OUTPUT) {
        *type = arg->input->type;
        return 0;
    }
    if (arg->rank < 0 || (arg->rank && !arg->shape))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "argument %d has rank %d%s", i, arg->rank,
                         arg->rank < 0 ? "" : " and no extents");
    return type_make(type, (int64_t)arg->dtype, arg->shape, (size_t)arg->rank, fault);
}

static int launch_check(struct launch *launch, td_dim grid, td_dim block, size_t shared, struct fault *fault) {
    if (launch->count < 1 || launch->count > KERNEL_ARGUMENTS_MAX || !launch->args)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%d arguments, 1 to %d are possible", launch->count,
                         KERNEL_ARGUMENTS_MAX);
    if (shared > INT32_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%zu bytes of shared memory", shared);
    launch->shared = (uint32_t)shared;
    int code = launch_extents("grid", grid, launch->grid, fault);
    if (!code)
        code = launch_extents("block", block, launch->block, fault);
    for (int i = 0; i < launch->count && !code; i++)
        code = launch_arg(launch, i, fault);
    if (!code && !launch->n_outputs)
        code = fault_set(fault, STATUS_INVALID_ARGUMENT, "a launch without an output has no result");
    return code;
}

/* Under the lock: the frame behind everything enqueued so far. */
static int launch_push(const struct launch *launch, uint32_t stream, const char *label) {
    td_device *device = launch->kernel->device;
    Tensord__KernelLaunch message = TENSORD__KERNEL_LAUNCH__INIT;
    Tensord__KernelOutput outputs[KERNEL_ARGUMENTS_MAX], *list[KERNEL_ARGUMENTS_MAX];
    uint32_t kinds[KERNEL_ARGUMENTS_MAX];
    uint64_t values[KERNEL_ARGUMENTS_MAX];
    for (int i = 0; i < launch->count; i++) {
        const td_kernel_arg *arg = &launch->args[i];
        kinds[i] = (uint32_t)(arg->kind == KERNEL_CONSUME && arg->input->holders ? KERNEL_UPDATE : arg->kind);
        values[i] = arg_reads(arg) ? arg->input->id : arg->bits;
        if (arg->kind != KERNEL_OUTPUT)
            continue;
        Tensord__KernelOutput *output = list[message.n_outputs] = &outputs[message.n_outputs];
        message.n_outputs++;
        tensord__kernel_output__init(output);
        output->dtype = (uint32_t)arg->dtype;
        output->n_shape = (size_t)arg->rank;
        output->shape = (int64_t *)(uintptr_t)arg->shape;
    }
    message.kernel = launch->kernel->id;
    message.first_output = device->next_id;
    message.sequence = device->next_sequence;
    message.stream = stream;
    message.n_grid = message.n_block = 3;
    message.grid = (uint32_t *)(uintptr_t)launch->grid;
    message.block = (uint32_t *)(uintptr_t)launch->block;
    message.shared = launch->shared;
    message.n_arguments = message.n_values = (size_t)launch->count;
    message.arguments = kinds;
    message.values = values;
    message.outputs = list;
    message.label = (char *)(uintptr_t)(label ? label : "");
    return frame_push(device, FRAME_KERNEL_LAUNCH, &message.base, launch->gate);
}

/* Under the lock: handles for all outputs, or none. */
static bool launch_take_tensors(struct launch *launch) {
    struct tensor_pool *pool = &launch->kernel->device->tensors;
    for (; launch->n_made < launch->n_outputs; launch->n_made++)
        if (!(launch->tensors[launch->n_made] = tensor_take(pool))) {
            while (launch->n_made)
                tensor_give(pool, launch->tensors[--launch->n_made]);
            return false;
        }
    return true;
}

/* The launch releases it, unless a fetch may have to be asked again: then it was an update, and is released now. */
static void launch_consumed(td_tensor *tensor) {
    if (tensor->holders)
        (void)tensor_release(tensor); /* the I/O thread knows of the launch already */
    else
        tensor_forget(tensor);
}

static int launch_enqueue(struct launch *launch, struct scope_part *part) {
    td_device *device = launch->kernel->device;
    uint32_t stream;
    size_t n;
    int code = device_check(device);
    if (!code)
        code = stream_current(device, &stream);
    if (code)
        return code;
    if (device->tensors.released)
        tensor_drain(device);
    if (!launch_take_tensors(launch))
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for tensor handles");
    code = launch_push(launch, stream, label_current(&n));
    for (unsigned i = 0; i < launch->n_made; i++) {
        td_tensor *tensor = launch->tensors[i];
        if (code) {
            tensor_give(&device->tensors, tensor);
            continue;
        }
        tensor->device = device;
        tensor->id = device->next_id++;
        tensor->type = launch->types[i];
        if (part)
            scope_part_add(part, tensor);
    }
    device->next_sequence += !code;
    for (int i = 0; i < launch->count && !code; i++)
        if (launch->args[i].kind == KERNEL_CONSUME)
            launch_consumed(launch->args[i].input);
    return code;
}

/* What the outputs become: the tensors in their order, or NULL. */
static void launch_give(const struct launch *launch, bool made) {
    unsigned n = 0;
    for (int i = 0; i < launch->count && launch->args; i++)
        if (arg_makes(&launch->args[i]) && launch->args[i].output) {
            if (made)
                *launch->args[i].output = launch->tensors[n];
            else if (launch->args[i].kind != KERNEL_CONSUME || *launch->args[i].output != launch->args[i].input)
                *launch->args[i].output = NULL;
            n++;
        }
}

static int launch_refuse(const struct fault *fault, const td_kernel *kernel) {
    size_t n;
    int code = error_fault(fault, kernel ? kernel->name : "kernel", label_current(&n));
    label_clear();
    return code;
}

/* A NULL among the inputs is passed on, with the error that made it NULL. */
static bool launch_whole(const struct launch *launch) {
    for (int i = 0; i < launch->count && i < KERNEL_ARGUMENTS_MAX && launch->args; i++)
        if (arg_reads(&launch->args[i]) && !launch->args[i].input)
            return false;
    return true;
}

static int kernel_launch(td_kernel *kernel, td_dim grid, td_dim block, size_t shared_bytes, int count,
                         const td_kernel_arg *args) {
    struct launch launch = {.kernel = kernel, .count = count, .args = args};
    struct fault fault;
    struct scope_part *part;
    launch_give(&launch, false);
    if (!kernel) {
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "the kernel is NULL");
        return launch_refuse(&fault, NULL);
    }
    if (!launch_whole(&launch)) {
        label_clear();
        return error_of_null() ? error_of_null()
                               : error_set(STATUS_INVALID_ARGUMENT, "%s: an input is NULL", kernel->name);
    }
    if (launch_check(&launch, grid, block, shared_bytes, &fault))
        return launch_refuse(&fault, kernel);
    if (scope_part(kernel->device, &part))
        return td_last_error()->code;
    pthread_mutex_lock(&kernel->device->lock);
    int code = launch_enqueue(&launch, part);
    pthread_mutex_unlock(&kernel->device->lock);
    if (!code)
        launch_give(&launch, true);
    if (code != STATUS_AGAIN && code != STATUS_NO_HOST_MEMORY)
        label_clear();
    return code;
}

int td_kernel_launch(td_kernel *kernel, td_dim grid, td_dim block, size_t shared_bytes, int count,
                     const td_kernel_arg *args) {
    int code = kernel_launch(kernel, grid, block, shared_bytes, count, args);
    if (code)
        error_null(); /* of each output */
    return code;
}
