/* Operations: a request is checked, bound to tensors, and becomes launches on a stream. Owner thread. */
#pragma once

#include "engine/session/session.h"

struct op_request {
    unsigned opcode;
    uint32_t stream;
    unsigned n_inputs, n_ints, n_floats;
    uint16_t consume;             /* bit i: input i is released by this operation; */
    const uint64_t *consume_more; /* the inputs from 16 on, 64 in a word; NULL: none of them */
    const uint64_t *inputs;
    const int64_t *ints;
    const double *floats;
    uint64_t output;            /* id to bind; ignored by `free` */
    unsigned further;           /* outputs after the first, with the ids that follow */
    uint64_t sequence;          /* of the operation in its session, for error reports */
    const char *label;          /* may be NULL; copied */
    const char *kernels_denied; /* the principal who may not launch kernels of its own; NULL: the session may */
};
/* Enqueues an operation. The return value tells why it failed at once; either way `output` is bound (poisoned where it
 * failed, with the first cause among its inputs), unless the id itself is bad: zero or not above all ids bound before.
 * STATUS_AGAIN: nothing has been done, for there is no memory before ended sessions have given theirs back, or it takes more than
 * this turn to find out; ask again after engine_poll(). */
int session_submit(struct session *session, const struct op_request *request);
