#include "tests/stand_ins/null_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void null_close(struct device *device) {
    (void)device;
}

static void null_describe(const struct device *device, struct device_info *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->kind, sizeof info->kind, "null");
    info->processors = 1;
    info->memory_total = ((const struct null_device *)device)->memory_total;
}

static int null_reserve(struct device *device, size_t bytes, void **segment, struct fault *fault) {
    struct null_device *null = (struct null_device *)device;
    if (null->memory_reserved + null->memory_coming + bytes > null->memory_total)
        return fault_set(fault, null->memory_coming ? STATUS_AGAIN : STATUS_OUT_OF_MEMORY, "the null device is full");
    *segment = aligned_alloc(4096, bytes);
    if (!*segment)
        return fault_set(fault, STATUS_OUT_OF_MEMORY, "no memory");
    null->memory_reserved += bytes;
    return STATUS_OK;
}

static void null_release(struct device *device, void *segment, size_t bytes) {
    struct null_device *null = (struct null_device *)device;
    null->memory_reserved -= bytes;
    null->memory_coming += null->holds_back ? bytes : 0;
    free(segment);
}

void null_device_catch_up(struct null_device *device) {
    device->memory_coming = 0;
}

static int null_launch(struct device *device, struct device_stream *stream, const struct launch *launch,
                       struct fault *fault) {
    (void)stream;
    struct null_device *null = (struct null_device *)device;
    atomic_fetch_add(&null->launches, 1);
    if (null->hook && null->hook(null, launch) != 0)
        return fault_set(fault, STATUS_DEVICE_LOST, "the null device was told to fail");
    return STATUS_OK;
}

/* One dtype that it does not have, and one operation, to see what happens then. */
static uint32_t null_dtypes(const struct device *device, unsigned opcode) {
    (void)device;
    (void)opcode;
    return ~(UINT32_C(1) << DTYPE_F64);
}

static int null_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    const struct null_device *null = (const struct null_device *)device;
    return null->accepts ? null->accepts(launch, fault) : STATUS_OK;
}

static uint64_t null_workspace(struct device *device, const struct launch *launch) {
    (void)launch;
    return ((const struct null_device *)device)->workspace;
}

static void null_workspaces(struct device *device, struct device_workspaces *workspaces) {
    workspaces->bytes = ((const struct null_device *)device)->workspaces;
}

static const struct op_kernel null_kernel = {.dtypes = null_dtypes},
                              null_product = {.dtypes = null_dtypes,
                                              .accepts = null_accepts,
                                              .workspace = null_workspace},
                              null_copies = {.parts = OP_PARTS_COPIES},
                              null_lacking = {.reason = "it was never taught to"};
static const struct op_kernel *null_operations[OP_CODE_MAX];

static void null_take_operations(void) {
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++) {
        const struct op_info *info = op_info(opcode);
        if (info && info->family != OP_FAMILY_FREE && info->family != OP_FAMILY_VIEW && !op_is_clients(info))
            null_operations[opcode] = info->family == OP_FAMILY_JOIN ? &null_copies
                                      : opcode == OP_ARGMIN          ? &null_lacking
                                      : opcode == OP_MATMUL          ? &null_product
                                                                     : &null_kernel;
    }
}

static const struct device_vtable null_vtable = {
    .kind = "null",
    .close = null_close,
    .describe = null_describe,
    .reserve = null_reserve,
    .release = null_release,
    .launch = null_launch,
    .workspaces = null_workspaces,
    .operations = null_operations,
};

void null_device_init(struct null_device *device, uint64_t memory_total) {
    memset(device, 0, sizeof *device);
    device->device.vtable = &null_vtable;
    null_take_operations();
    device_note_dtypes(&device->device);
    device->memory_total = memory_total;
}
