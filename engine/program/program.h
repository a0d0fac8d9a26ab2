/* Operations of a client: from requests to launches on streams. Owner thread. */
#pragma once

#include "engine/session/session.h"

struct device;
struct program;

/* The room in which an engine's owner makes its programs. NULL out of memory. */
struct program *program_create(struct device *device);
void program_destroy(struct program *program);

/* Enqueues operations, in order. Each one's outputs are bound, poisoned where it has failed, with the first cause among its inputs,
 * unless the id itself is bad: zero or not above all ids bound before. `done` is how many have been enqueued or have failed.
 *
 * Returns the code of the last one of these; or STATUS_AGAIN where `done` is less than `n`, as the owner's budget is spent, or the
 * next operation finds no memory before ended sessions have given theirs back, or it takes more than this turn to find out. Of that
 * one nothing has been done: submit the rest again after engine_poll(). */
int session_run(struct session *session, const struct op_request *requests, unsigned n, unsigned *done);
/* The same for one operation, whatever the budget. */
int session_submit(struct session *session, const struct op_request *request);
