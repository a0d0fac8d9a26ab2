/* Operations of a client: from requests to launches on streams. Owner thread. */
#pragma once

#include "engine/session/session.h"

struct device;
struct program;

/* The memory in which an engine makes its programs, one after the other. NULL out of memory. */
struct program *program_create(struct device *device);
void program_destroy(struct program *program);

/* Enqueues operations, in order. The outputs of an operation that fails are bound, too, and have the first cause among its inputs, or
 * its own; only a bad id is not bound: zero, or not above all earlier ids. `done`: how many operations have been enqueued or have failed.
 *
 * Returns the code of the last of these operations; or STATUS_AGAIN, with `done` less than `n`: the owner's budget is spent, or the next
 * operation needs memory that ended sessions still have to give back, or the search for memory takes more than this turn. Nothing has
 * been done for the next operation: run the rest after engine_poll(). */
int session_run(struct session *session, const struct op_request *requests, unsigned n, unsigned *done);
/* The same for one operation, whatever the budget. */
int session_submit(struct session *session, const struct op_request *request);
