#include <string.h>

#include "proto/ops/kernel.h"
#include "server/worker/compile.h"
#include "server/worker/connection.h"
#include "server/worker/request_impl.h"

/* The operator may change that while the session lives. */
static int request_kernel_allowed(const struct connection *connection, struct fault *fault) {
    if (connection->peer.principal.user_kernels)
        return STATUS_OK;
    return fault_set(fault, STATUS_DENIED, "user kernels are not allowed for %s: the daemon's setting user-kernels",
                     connection->peer.principal.name);
}

/* ---- compiling ---- */

static unsigned request_compiles(const struct connection *connection) {
    unsigned n = 0;

    for (const struct pending_reply *pending = connection->out.pending; pending; pending = pending->next)
        n += pending->kind == PENDING_COMPILE;
    return n;
}

static int request_compile_check(const struct connection *connection, const Tensord__KernelCompile *compile,
                                 struct fault *fault) {
    size_t length = strlen(compile->name);

    if (request_kernel_allowed(connection, fault))
        return STATUS_DENIED;
    if (length == 0 || length > KERNEL_NAME_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a kernel's name has 1 to %d bytes, not %zu", KERNEL_NAME_MAX,
                         length);
    if (request_compiles(connection) >= COMPILE_PENDING_MAX)
        return fault_set(fault, STATUS_LIMIT, "%d kernels are being compiled already", COMPILE_PENDING_MAX);
    if (connection->principal->compiles >= COMPILE_PRINCIPAL_MAX)
        return fault_set(fault, STATUS_LIMIT, "%d kernels of %s are being compiled already", COMPILE_PRINCIPAL_MAX,
                         connection->peer.principal.name);
    return session_kernel_id(connection->session, compile->kernel, fault);
}

int request_kernel_compile(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__KernelCompile *compile = (const Tensord__KernelCompile *)message;
    struct fault refused;

    (void)sink, (void)fault;
    if (request_compile_check(connection, compile, &refused) == STATUS_OK)
        return pending_reply_compile(connection, header->sequence, compile->kernel, compile->source, compile->name);
    return pending_reply_fault(connection, FRAME_KERNEL_COMPILED, header->sequence, &refused) ? STATUS_OK
                                                                                              : STATUS_NO_HOST_MEMORY;
}

int request_kernel_release(struct connection *connection, const struct frame_header *header,
                           const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    struct fault ignored; /* the connection's own is for what ends it */

    (void)header, (void)sink, (void)fault;
    session_kernel_release(connection->session, ((const Tensord__KernelRelease *)message)->kernel, &ignored);
    compile_release_unused(connection->service);
    return STATUS_OK;
}

/* ---- launches ---- */

/* A launch on its way into the engine. */
struct request_launch {
    struct kernel_request request;
    struct kernel_argument_value arguments[KERNEL_ARGUMENTS_MAX];
    struct tensor_type types[KERNEL_ARGUMENTS_MAX];
    struct fault wrong;
};

static int request_launch_arguments(struct request_launch *launch, const Tensord__KernelLaunch *message,
                                    struct fault *fault) {
    unsigned outputs = 0;

    if (message->n_arguments > KERNEL_ARGUMENTS_MAX || message->n_values != message->n_arguments)
        return REQUEST_PROTOCOL(fault, "a launch with %zu arguments and %zu values, of which there may be %d",
                                message->n_arguments, message->n_values, KERNEL_ARGUMENTS_MAX);
    for (size_t i = 0; i < message->n_arguments; i++) {
        if (message->arguments[i] < KERNEL_INPUT || message->arguments[i] > KERNEL_CONSUME)
            return REQUEST_PROTOCOL(fault, "%u is no kind of argument", message->arguments[i]);
        launch->arguments[i].kind = (enum kernel_argument)message->arguments[i];
        launch->arguments[i].value = message->values[i];
        outputs += launch->arguments[i].kind == KERNEL_OUTPUT;
    }
    if (message->n_outputs != outputs)
        return REQUEST_PROTOCOL(fault, "a launch with %u outputs and %zu types of outputs", outputs,
                                message->n_outputs);
    return STATUS_OK;
}

/* What is wrong with the types of outputs is the launch's failure. */
static void request_launch_types(struct request_launch *launch, const Tensord__KernelLaunch *message) {
    for (size_t i = 0; i < message->n_outputs; i++) {
        const Tensord__KernelOutput *output = message->outputs[i];
        struct fault bad;

        request_type(&launch->types[i], output->dtype, output->shape, output->n_shape, &bad);
        if (bad.code && !launch->request.wrong) {
            launch->wrong = bad;
            launch->request.wrong = &launch->wrong;
        }
    }
}

int request_kernel_launch(struct connection *connection, const struct frame_header *header,
                          const ProtobufCMessage *message, uint8_t **sink, struct fault *fault) {
    const Tensord__KernelLaunch *from = (const Tensord__KernelLaunch *)message;
    struct request_launch launch;

    (void)header, (void)sink;
    if (request_sequence(connection, from->sequence, fault) || request_label(from->label, fault))
        return STATUS_PROTOCOL;
    if (from->n_grid != 3 || from->n_block != 3)
        return REQUEST_PROTOCOL(fault, "a grid of %zu extents and blocks of %zu, not 3", from->n_grid, from->n_block);
    launch.request = (struct kernel_request){
        .kernel = from->kernel,
        .stream = from->stream,
        .shared = from->shared,
        .n_arguments = (unsigned)from->n_arguments,
        .n_types = (unsigned)from->n_outputs,
        .arguments = launch.arguments,
        .types = launch.types,
        .first_output = from->first_output,
        .sequence = from->sequence,
        .label = from->label[0] ? from->label : NULL,
    };
    if (request_launch_arguments(&launch, from, fault))
        return STATUS_PROTOCOL;
    memcpy(launch.request.grid, from->grid, sizeof launch.request.grid);
    memcpy(launch.request.block, from->block, sizeof launch.request.block);
    request_launch_types(&launch, from);
    if (request_kernel_allowed(connection, &launch.wrong))
        launch.request.wrong = &launch.wrong;
    if (session_launch(connection->session, &launch.request) == STATUS_AGAIN)
        return request_later(connection, STATUS_AGAIN);
    connection->operations++;
    return STATUS_OK;
}
