#include "tests/device/recorded_steps.h"

#include "engine/device/device_impl.h"
#include "engine/order/replay.h"
#include "engine/program/recorded_impl.h"

unsigned recorded_steps(struct session *session, uint64_t id) {
    const struct op_request run = {.opcode = OP_PROGRAM, .ints = (const int64_t[]){(int64_t)id, 1}, .n_ints = 2};
    struct fault fault;
    struct recorded *recorded = recorded_find(session, &run, &fault);
    bool fuses = recorded && recorded->store->order->device->vtable->launch_fused;
    return fuses && recorded->planned ? recorded->plan.replay->n_steps : 0;
}
