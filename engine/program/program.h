/* Operations: a request is checked, bound to tensors, and becomes launches on a stream. Owner thread. */
#pragma once

#include "engine/session/session.h"

/* Enqueues an operation. The return value tells why it failed at once; either way `output` is bound (poisoned where it
 * failed, with the first cause among its inputs), unless the id itself is bad: zero or not above all ids bound before.
 * STATUS_AGAIN: nothing has been done, for there is no memory before ended sessions have given theirs back, or it takes more than
 * this turn to find out; ask again after engine_poll(). */
int session_submit(struct session *session, const struct op_request *request);
