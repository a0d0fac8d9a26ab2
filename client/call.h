/* From a typed function to an operation in the open batch. */
#pragma once

#include "client/batch.h"
#include "client/tensord.h"
#include "proto/op.h"

/* Completes the entry (label, bytes) and appends it. `device` is where an operation without inputs runs; ignored
 * otherwise. NULL with the thread's error set, or left as it is where that has made an input NULL. */
td_tensor *call_enqueue(td_device *device, struct batch_entry *call);
/* A failure found before there is a call; stores the error with the thread's label. Returns NULL. */
td_tensor *call_refuse(unsigned opcode, enum status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Copies extents, or axes, behind `n` integers; the new count, or -1 with the error set. */
int call_append_shape(unsigned opcode, int64_t ints[OP_INTS_MAX], int n, int rank, const int64_t *shape);
int call_append_axes(unsigned opcode, int64_t ints[OP_INTS_MAX], int n, int count, const int64_t *axes);

/* An enumeration of the public header, whose type compilers choose without a sign. */
static inline int64_t call_enum(unsigned value) {
    return (int32_t)value;
}

static inline td_tensor *call_one(unsigned opcode, td_tensor *x, const int64_t *ints, int n_ints) {
    return call_enqueue(
        NULL,
        &(struct batch_entry){.opcode = opcode, .n_inputs = 1, .inputs = &x, .ints = ints, .n_ints = (unsigned)n_ints});
}
static inline td_tensor *call_two(unsigned opcode, td_tensor *a, td_tensor *b, const int64_t *ints, int n_ints) {
    return call_enqueue(NULL, &(struct batch_entry){.opcode = opcode,
                                                    .n_inputs = 2,
                                                    .inputs = (td_tensor *const[]){a, b},
                                                    .ints = ints,
                                                    .n_ints = (unsigned)n_ints});
}
