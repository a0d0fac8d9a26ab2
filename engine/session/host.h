/* Host memory that a session's messages make grow: its tensors and the table of their ids, causes of failures, checks, what is
 * queued, who waits. (The check of an operation whose tensors have gone lives until it has run, uncharged; there are no more of
 * these than operations may be in flight.) It is charged to the session and its tenant before it is taken, and limited like device memory; what a
 * connection holds beside is the server's to count and to charge here. Owner thread only.
 *
 * Tensors are paid for some at a time, so that the usual operation costs no more than a comparison. */
#pragma once

#include "engine/session/session.h"

/* Charges so much more, or refuses: STATUS_LIMIT, with words. */
int host_take(struct session *session, uint64_t bytes, struct fault *fault);
/* Charges what is there already: next to something that was asked for. */
void host_note(struct session *session, uint64_t bytes);
void host_give(struct session *session, uint64_t bytes);
/* Room for more tensors, where session->tensors_room is used up. STATUS_LIMIT, for the limit of tensors or for that of host
 * memory. */
int host_take_tensors(struct session *session, struct fault *fault);
/* The limit of tensors is another one. */
void host_set_room(struct session *session);
/* Looks at what is queued now, and takes back what was paid for too many tensors. */
void host_measure(struct session *session);
/* All that is charged, as of now. */
uint64_t host_bytes(struct session *session);
