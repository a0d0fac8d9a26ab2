#include "server/ipc/stats_operations.h"

#include <stdio.h>
#include <string.h>

static void stats_operation_write(struct stats_operation *row, struct device *device, unsigned opcode,
                                  uint32_t presented) {
    struct fault fault;
    uint32_t supported = 0;
    for (int dtype = DTYPE_INVALID + 1; dtype < DTYPE_COUNT; dtype++) {
        if (!(presented >> dtype & 1))
            continue;
        if (device_has_kernel(device, opcode, (enum dtype)dtype, &fault) == STATUS_OK)
            supported |= UINT32_C(1) << dtype;
        else if (!row->reason[0])
            snprintf(row->reason, sizeof row->reason, "%.*s", STATS_REASON_MAX - 1, fault.message);
    }
    row->supported = supported;
}

void stats_operations_write(struct stats_operations *operations, struct device *device) {
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++) {
        uint32_t presented = op_presented(opcode);
        if (presented)
            stats_operation_write(&operations->rows[opcode], device, opcode, presented);
    }
}

void stats_operations_read(const struct stats_operations *page, struct stats_operations *copy) {
    memcpy(copy, page, sizeof *copy);
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++)
        copy->rows[opcode].reason[STATS_REASON_MAX - 1] = 0;
}
