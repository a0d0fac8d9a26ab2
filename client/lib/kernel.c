/* User kernels: compilations, which wait for a reply, and launches, which are operations. */
#include "client/lib/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"
#include "client/lib/record.h"
#include "client/lib/scope.h"
#include "proto/ops/cleanup.h"
#include "proto/ops/kernel.h"

enum { MESSAGE_NAME_MAX = 63 }; /* of a kernel's name, in messages */

static void kernel_destroy(td_kernel *kernel) {
    if (!kernel)
        return;
    free(kernel->source);
    free(kernel);
}
CLEANUP_OF(td_kernel, kernel_destroy)

void kernels_finish(struct kernels *kernels) {
    while (kernels->first) {
        struct td_kernel *kernel = kernels->first;
        kernels->first = kernel->next;
        kernel_destroy(kernel);
    }
}

/* A session has 256 kernels at most. */
struct td_kernel *kernels_find(const struct kernels *kernels, uint64_t id) {
    struct td_kernel *kernel = kernels->first;
    while (kernel && kernel->id != id)
        kernel = kernel->next;
    return kernel;
}

void kernel_let_go(struct td_kernel *kernel) {
    td_device *device = kernel->device;
    if (--kernel->holders)
        return;
    Tensord__KernelRelease message = TENSORD__KERNEL_RELEASE__INIT;
    message.kernel = kernel->id;
    *(kernel->previous ? &kernel->previous->next : &device->kernels.first) = kernel->next;
    if (kernel->next)
        kernel->next->previous = kernel->previous;
    /* If there is no room for the message, the kernel stays on the device until the session ends. */
    (void)frame_push(device, FRAME_KERNEL_RELEASE, &message.base, 0);
    kernel_destroy(kernel);
}

/* ---- arguments ---- */

enum { ARG_CONSUME = KERNEL_BITS64 + 1 }; /* on the wire an update of a tensor that the operation releases */

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
    return (td_kernel_arg){.kind = ARG_CONSUME, .output = y, .input = x};
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
    if (bytes > FRAME_SOURCE_MAX)
        return error_set(STATUS_LIMIT, "a source of %zu bytes, the limit is %d", bytes, FRAME_SOURCE_MAX);
    return 0;
}

static struct frame_item *compile_frame(uint64_t id, const char *source, const char *name) {
    Tensord__KernelCompile message = TENSORD__KERNEL_COMPILE__INIT;
    message.kernel = id;
    message.source = (char *)(uintptr_t)source;
    message.name = (char *)(uintptr_t)name;
    return frame_item_create(FRAME_KERNEL_COMPILE, &message.base, tensord__kernel_compile__get_packed_size(&message));
}

/* Under the lock: sends the request and waits. *again: the reply was lost with a connection, and the id is used up. */
static int compile_ask(td_device *device, uint64_t id, const char *source, const char *name, bool *again) {
    struct request request;
    int code = device_check(device);
    *again = false;
    if (code)
        return code;
    CLEANUP(free) struct frame_item *frame = compile_frame(id, source, name);
    if (!frame)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a kernel's source");
    code = device_admit(device, frame->item.bytes);
    if (code)
        return code;
    request_init(&request, REQUEST_WAITED, FRAME_KERNEL_COMPILE, NULL);
    pending_push_frame(device, &request, TAKE(frame));
    code = pending_wait(device, &request);
    if (code)
        return error_store_details(&request.error, (char *)request.data);
    free(request.data);
    *again = request.again;
    return 0;
}

/* Under the lock: asks with one id after the other, until a reply has come. */
static int compile_until_reply(td_device *device, td_kernel *kernel, const char *source, const char *name) {
    Tensord__KernelRelease release = TENSORD__KERNEL_RELEASE__INIT;
    bool again = true;
    int code = 0;
    while (!code && again) {
        kernel->id = ++device->kernels.last_id;
        code = compile_ask(device, kernel->id, source, name, &again);
        release.kernel = kernel->id;
        if (!code && again) /* the daemon may have bound the id; if it has not, the release does no harm */
            code = frame_push(device, FRAME_KERNEL_RELEASE, &release.base, 0);
    }
    return code;
}

int td_kernel_compile(td_device *device, const char *source, const char *name, td_kernel **out) {
    int code = compile_check(device, source, name, out);
    if (!code)
        code = record_check("compile", device, NULL, RECORD_SYNC);
    if (code)
        return code;
    CLEANUP(kernel_destroy) td_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel || !(kernel->source = strdup(source)))
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a kernel");
    kernel->device = device;
    kernel->holders = 1;
    memcpy(kernel->name, name, strlen(name) + 1);
    pthread_mutex_lock(&device->lock);
    code = compile_until_reply(device, kernel, source, name);
    if (!code) {
        kernel->next = device->kernels.first;
        if (kernel->next)
            kernel->next->previous = kernel;
        device->kernels.first = kernel;
    }
    pthread_mutex_unlock(&device->lock);
    if (!code)
        *out = TAKE(kernel);
    return code;
}

void td_kernel_release(td_kernel *kernel) {
    if (!kernel)
        return;
    td_device *device = kernel->device;
    pthread_mutex_lock(&device->lock);
    kernel_let_go(kernel);
    pthread_mutex_unlock(&device->lock);
}

/* ---- launches ---- */

/* A launch that is being checked and packed. */
struct launch {
    const td_kernel *kernel;
    int count;
    const td_kernel_arg *args;
    unsigned n_inputs, n_outputs, n_consumed, n_ints;
    td_tensor *inputs[KERNEL_ARGUMENTS_MAX], *consumed[KERNEL_ARGUMENTS_MAX];
    td_tensor *outputs[KERNEL_ARGUMENTS_MAX];
    struct tensor_type types[KERNEL_ARGUMENTS_MAX]; /* of the outputs */
    int64_t ints[OP_INTS_MAX];                      /* the operation's attributes */
};

static bool arg_makes(const td_kernel_arg *arg) {
    return kernel_makes(arg->kind) || arg->kind == ARG_CONSUME;
}

static bool arg_reads(const td_kernel_arg *arg) {
    return kernel_reads(arg->kind) || arg->kind == ARG_CONSUME;
}

static int launch_extents(const char *what, td_dim dim, struct fault *fault) {
    const int64_t extents[3] = {dim.x, dim.y, dim.z};
    for (int i = 0; i < 3; i++)
        if (extents[i] < 1 || extents[i] > INT32_MAX)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "the %s's %c is %lld", what, "xyz"[i],
                             (long long)extents[i]);
    return 0;
}

static int launch_consume(struct launch *launch, int i, struct fault *fault) {
    td_tensor *input = launch->args[i].input;
    for (unsigned k = 0; k < launch->n_consumed; k++)
        if (launch->consumed[k] == input)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "argument %d has been consumed by another one", i);
    launch->consumed[launch->n_consumed++] = input;
    return 0;
}

static int launch_arg(struct launch *launch, int i, struct fault *fault) {
    const td_kernel_arg *arg = &launch->args[i];
    if (arg->kind < KERNEL_INPUT || arg->kind > ARG_CONSUME)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "argument %d is of no kind", i);
    if (arg_reads(arg) && arg->input->device != launch->kernel->device)
        return fault_set(fault, STATUS_DEVICE_MISMATCH, "the kernel is on %s, argument %d on %s",
                         launch->kernel->device->name, i, arg->input->device->name);
    if (arg_reads(arg))
        launch->inputs[launch->n_inputs++] = arg->input;
    if (!arg_makes(arg))
        return 0;
    if (!arg->output)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "argument %d is an output without a place for it", i);
    struct tensor_type *type = &launch->types[launch->n_outputs++];
    if (arg->kind != KERNEL_OUTPUT) {
        *type = arg->input->type;
        return arg->kind == ARG_CONSUME ? launch_consume(launch, i, fault) : 0;
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
    int code = launch_extents("grid", grid, fault);
    if (!code)
        code = launch_extents("block", block, fault);
    for (int i = 0; i < launch->count && !code; i++)
        code = launch_arg(launch, i, fault);
    if (!code && !launch->n_outputs)
        code = fault_set(fault, STATUS_INVALID_ARGUMENT, "a launch without an output has no result");
    return code;
}

static void put(struct launch *launch, int64_t value) {
    launch->ints[launch->n_ints++] = value;
}

static void put_extents(struct launch *launch, td_dim dim) {
    put(launch, 3);
    put(launch, dim.x);
    put(launch, dim.y);
    put(launch, dim.z);
}

/* The attributes of a checked launch, as struct kernel_attributes is read from them. */
static void launch_pack(struct launch *launch, td_dim grid, td_dim block, size_t shared) {
    const struct tensor_type *type = launch->types;
    put(launch, (int64_t)launch->kernel->id);
    put(launch, (int64_t)shared);
    put_extents(launch, grid);
    put_extents(launch, block);
    put(launch, launch->count);
    for (int i = 0; i < launch->count; i++)
        put(launch, launch->args[i].kind == ARG_CONSUME ? KERNEL_UPDATE : launch->args[i].kind);
    int64_t *numbers = &launch->ints[launch->n_ints++];
    *numbers = 0;
    for (int i = 0; i < launch->count; i++)
        if (!arg_reads(&launch->args[i]) && !arg_makes(&launch->args[i])) {
            put(launch, (int64_t)launch->args[i].bits);
            ++*numbers;
        }
    for (int i = 0; i < launch->count; i++) {
        if (launch->args[i].kind == KERNEL_OUTPUT) {
            put(launch, type->dtype);
            put(launch, type->rank);
            for (int k = 0; k < type->rank; k++)
                put(launch, type->shape[k]);
        }
        type += arg_makes(&launch->args[i]);
    }
}

/* Sets the outputs of the caller: to the tensors in their order, or to NULL. */
static void launch_give(const struct launch *launch, bool made) {
    unsigned n = 0;
    for (int i = 0; i < launch->count && launch->args; i++)
        if (arg_makes(&launch->args[i]) && launch->args[i].output) {
            if (made)
                *launch->args[i].output = launch->outputs[n];
            else if (launch->args[i].kind != ARG_CONSUME || *launch->args[i].output != launch->args[i].input)
                *launch->args[i].output = NULL;
            n++;
        }
}

static int launch_refuse(const struct fault *fault, const td_kernel *kernel) {
    size_t n;
    char name[MESSAGE_NAME_MAX + 1];
    snprintf(name, sizeof name, "%.*s", MESSAGE_NAME_MAX, kernel ? kernel->name : "kernel");
    int code = error_fault(fault, name, label_current(&n));
    label_clear();
    return code;
}

/* Whether no input is NULL. */
static bool launch_whole(const struct launch *launch) {
    for (int i = 0; i < launch->count && i < KERNEL_ARGUMENTS_MAX && launch->args; i++)
        if (arg_reads(&launch->args[i]) && !launch->args[i].input)
            return false;
    return true;
}

static int kernel_launch(td_kernel *kernel, td_dim grid, td_dim block, size_t shared_bytes, int count,
                         const td_kernel_arg *args) {
    struct launch launch;
    struct fault fault;
    launch.kernel = kernel;
    launch.count = count;
    launch.args = args;
    launch.n_inputs = launch.n_outputs = launch.n_consumed = launch.n_ints = 0;
    launch_give(&launch, false);
    if (!kernel) {
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "the kernel is NULL");
        return launch_refuse(&fault, NULL);
    }
    if (!launch_whole(&launch)) {
        label_clear();
        return error_of_null()
                   ? error_of_null()
                   : error_set(STATUS_INVALID_ARGUMENT, "%.*s: an input is NULL", MESSAGE_NAME_MAX, kernel->name);
    }
    if (launch_check(&launch, grid, block, shared_bytes, &fault))
        return launch_refuse(&fault, kernel);
    launch_pack(&launch, grid, block, shared_bytes);
    struct batch_entry entry = {.opcode = OP_KERNEL,
                                .n_inputs = launch.n_inputs,
                                .inputs = launch.inputs,
                                .n_ints = launch.n_ints,
                                .ints = launch.ints};
    int code = call_append(kernel->device, &entry, launch.n_outputs, launch.types, launch.outputs, launch.n_consumed,
                           launch.consumed);
    if (!code)
        launch_give(&launch, true);
    return code;
}

int td_kernel_launch(td_kernel *kernel, td_dim grid, td_dim block, size_t shared_bytes, int count,
                     const td_kernel_arg *args) {
    int code = kernel_launch(kernel, grid, block, shared_bytes, count, args);
    if (code)
        error_null(); /* the outputs are NULL because of this error */
    return code;
}
