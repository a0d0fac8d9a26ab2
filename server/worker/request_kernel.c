/* Compiled kernels of clients. Their launches are operations like others. */
#include <string.h>

#include "proto/ops/kernel.h"
#include "server/worker/compile.h"
#include "server/worker/connection.h"
#include "server/worker/request_impl.h"

static unsigned request_compiles(const struct connection *connection) {
    unsigned n = 0;
    for (const struct pending_reply *pending = connection->out.pending; pending; pending = pending->next)
        n += pending->kind == PENDING_COMPILE;
    return n;
}

static int request_compile_check(const struct connection *connection, const Tensord__KernelCompile *compile,
                                 struct fault *fault) {
    size_t length = strlen(compile->name);
    if (!connection->peer.principal.user_kernels) /* the operator may change that while the session lives */
        return kernel_refuse(connection->peer.principal.name, fault);
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
