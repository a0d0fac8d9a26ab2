#include "engine/program/kernel_impl.h"

static unsigned argument_bytes(enum kernel_argument kind) {
    return kind == KERNEL_BITS32 ? 4 : 8;
}

static bool argument_is_number(enum kernel_argument kind) {
    return kind == KERNEL_BITS32 || kind == KERNEL_BITS64;
}

static int check_arguments(const struct kernel_request *request, const struct device_kernel *kernel,
                           struct fault *fault) {
    if (request->n_arguments != kernel->n_parameters)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u arguments, and the kernel takes %u", request->n_arguments,
                         kernel->n_parameters);
    for (unsigned i = 0; i < request->n_arguments; i++)
        if (argument_bytes(request->arguments[i].kind) != kernel->parameter_bytes[i])
            return fault_set(fault, STATUS_INVALID_ARGUMENT,
                             "argument %u is %s of %u bytes, and the kernel's parameter has %u", i,
                             argument_is_number(request->arguments[i].kind) ? "a number" : "an address",
                             argument_bytes(request->arguments[i].kind), kernel->parameter_bytes[i]);
    return STATUS_OK;
}

static int check_extents(const char *what, const uint32_t extents[3], const uint32_t most[3], struct fault *fault) {
    for (int i = 0; i < 3; i++)
        if (extents[i] < 1 || extents[i] > most[i])
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "the %s's %c is %u; the device takes 1 to %u", what,
                             "xyz"[i], extents[i], most[i]);
    return STATUS_OK;
}

int kernel_request_check(const struct kernel_request *request, const struct device_kernel *kernel,
                         struct fault *fault) {
    int code = check_arguments(request, kernel, fault);
    if (code == STATUS_OK)
        code = check_extents("grid", request->grid, kernel->grid_max, fault);
    if (code == STATUS_OK)
        code = check_extents("block", request->block, kernel->block_max, fault);
    if (code != STATUS_OK)
        return code;
    uint64_t threads = (uint64_t)request->block[0] * request->block[1]; /* two of at most 32 bits, */
    if (threads > kernel->threads_max || threads * request->block[2] > kernel->threads_max) /* and a small one */
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "blocks of %u x %u x %u threads, and the kernel can have %u",
                         request->block[0], request->block[1], request->block[2], kernel->threads_max);
    if (request->shared > kernel->shared_max)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "%u bytes of shared memory, and the kernel can have %u besides its own", request->shared,
                         kernel->shared_max);
    return STATUS_OK;
}
