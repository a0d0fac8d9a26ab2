/* Host memory that a session's messages make grow: tensors and the table of their ids, failures, guards, queued work, waiting
 * requests. It is charged to the session and its tenant before it is taken, and limited like device memory. (The guard of an
 * operation whose tensors have gone is not charged until the operation has run; the limit of operations in flight bounds these.) The
 * server counts the memory of its connections, and charges it here. Owner thread only.
 *
 * Tensors are charged some at a time, so that the usual operation costs only a comparison. */
#pragma once

#include "engine/session/session.h"

/* Charges so much more, or refuses: STATUS_LIMIT, with words. */
int host_take(struct session *session, uint64_t bytes, struct fault *fault);
/* Charges memory that exists already, beyond any limit. */
void host_note(struct session *session, uint64_t bytes);
void host_give(struct session *session, uint64_t bytes);
/* Room for more tensors, where session->tensors_room is used up. STATUS_LIMIT, for the limit of tensors or for that of host
 * memory. */
int host_take_tensors(struct session *session, struct fault *fault);
/* After the limit of tensors has changed. */
void host_set_room(struct session *session);
/* Measures the queues, and gives back the charge for tensors that do not exist. */
void host_measure(struct session *session);
/* All that is charged, as of now. */
uint64_t host_bytes(struct session *session);
