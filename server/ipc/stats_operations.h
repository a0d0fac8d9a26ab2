/* What a worker's device has of the table of operations: part of its stats page, written once, before the worker says that
 * it is ready; so outside the page's lock. */
#pragma once

#include "engine/device/device.h"
#include "proto/ops/op.h"

enum { STATS_REASON_MAX = 112 };

struct stats_operations {
    struct stats_operation {
        uint32_t supported;            /* bit DTYPE_F32 set: f32, of those of op_presented() */
        char reason[STATS_REASON_MAX]; /* why one of these is missing; "" where none is */
    } rows[OP_CODE_MAX];               /* by opcode */
};

/* In the worker. Touches pages of what is missing only. */
void stats_operations_write(struct stats_operations *operations, struct device *device);
/* In the front, which believes no text in the page to end by itself. */
void stats_operations_read(const struct stats_operations *page, struct stats_operations *copy);
