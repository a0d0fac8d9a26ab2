/* Arrays on the host, and operations of the CPU device on them. */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"

enum { OPERANDS = 4 };

struct array {
    enum dtype dtype;
    int rank;
    int64_t shape[3], strides[3];
    void *data;
};

/* An array over memory that is there. */
static inline struct array array_over(enum dtype dtype, int rank, const int64_t *shape, void *data) {
    struct array array = {.dtype = dtype, .rank = rank, .data = data};
    int64_t count = 1;
    for (int i = rank - 1; i >= 0; i--) {
        array.shape[i] = shape[i];
        array.strides[i] = count;
        count *= shape[i];
    }
    return array;
}

/* An array of zeros, whose memory is the caller's. */
static inline struct array array_of(enum dtype dtype, int rank, const int64_t *shape) {
    size_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    return array_over(dtype, rank, shape, calloc(count + 1, dtype_size(dtype)));
}
#define ARRAY(dtype, ...)                                                                                              \
    array_of(dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

static inline struct operand operand_of(const struct array *array) {
    return (struct operand){.data = array->data,
                            .shape = array->shape,
                            .strides = array->strides,
                            .dtype = (uint8_t)array->dtype,
                            .as = (uint8_t)array->dtype,
                            .rank = (uint8_t)array->rank};
}

/* Runs an operation in turns as short as can be, and counts them unless `turns` is NULL. Returns its report. It fails where the operation writes behind
 * its workspace. */
static inline struct report run(struct device *device, unsigned opcode, const int64_t *ints, unsigned n_ints,
                                struct array *const *inputs, unsigned n_inputs, struct array *const *outputs,
                                unsigned n_outputs, int *turns) {
    static const _Atomic bool wanted = true;
    struct {
        struct launch launch;
        struct operand operands[OPERANDS];
    } *call = calloc(1, sizeof *call);
    enum { GUARD = 64 };
    struct report report = {0};
    struct fault fault;
    call->launch = (struct launch){.opcode = (uint16_t)opcode,
                                   .n_inputs = (uint8_t)n_inputs,
                                   .further = (uint8_t)(n_outputs - 1),
                                   .report = &report,
                                   .attributes = {.ints = ints, .n_ints = n_ints}};
    for (unsigned i = 0; i < n_inputs; i++)
        call->operands[i] = operand_of(inputs[i]);
    call->launch.output = operand_of(outputs[0]);
    for (unsigned i = 1; i < n_outputs; i++)
        call->operands[n_inputs + i - 1] = operand_of(outputs[i]);
    const struct op_kernel *kernel = device->vtable->operations[opcode];
    size_t bytes = kernel->workspace ? kernel->workspace(device, &call->launch) : 0;
    char *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64 + GUARD);
    memset(workspace, 0xa5, bytes);
    memset(workspace + bytes, 0x5a, GUARD);
    call->launch.workspace = workspace;
    struct device_begun *begun = NULL;
    int count = -1; /* the first one only begins */
    do {
        count++;
        struct device_turn turn = {.wanted = &wanted, .shared = true};
        cr_assert_eq(device->vtable->launch_part(device, &call->launch, &turn, &begun, &fault), STATUS_OK);
    } while (begun);
    for (int i = 0; i < GUARD; i++)
        cr_assert_eq(workspace[bytes + (size_t)i], 0x5a, "written behind the workspace");
    if (turns)
        *turns = count;
    free(workspace);
    free(call);
    return report;
}
