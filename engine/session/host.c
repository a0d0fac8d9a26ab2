#include "engine/session/host.h"

#include <inttypes.h>

#include "engine/session/session_impl.h"

enum {
    HOST_STEP = 64,    /* tensors charged at a time */
    HOST_SLACK = 1024, /* charged tensors beyond those that exist, before some are given back */
    HOST_MALLOC = 16,  /* what the allocator adds */
    /* A tensor, its storage, and its places in the table, which is filled by half at most, and has the smaller one beside it
     * for a time when it doubles. */
    HOST_TENSOR = sizeof(struct tensor) + sizeof(struct storage) + 2 * HOST_MALLOC + 6 * sizeof(struct tensor *),
};

int host_take(struct session *session, uint64_t bytes, struct fault *fault) {
    return ledger_take_host(&session->ledger, bytes, session->tensors.count, "tensors", fault);
}

void host_note(struct session *session, uint64_t bytes) {
    ledger_note_host(&session->ledger, bytes);
}

void host_give(struct session *session, uint64_t bytes) {
    ledger_give_host(&session->ledger, bytes);
}

void host_set_room(struct session *session) {
    size_t most = session->limits.tensors;
    session->tensors_room = session->tensors_paid < most ? session->tensors_paid : most;
}

int host_take_tensors(struct session *session, struct fault *fault) {
    size_t step = session->limits.tensors - session->tensors_paid;
    if (session->tensors.count + session->unlisted >= session->limits.tensors) {
        ledger_refuse(&session->ledger, LEDGER_REFUSED_TENSORS);
        return fault_set(fault, STATUS_LIMIT, "the session's limit of %" PRIu32 " tensors is reached",
                         session->limits.tensors);
    }
    host_measure(session);
    step = step < HOST_STEP ? step : HOST_STEP;
    step = ledger_has_host(&session->ledger, step * HOST_TENSOR) ? step : 1;
    int code = host_take(session, step * HOST_TENSOR, fault);
    if (code == STATUS_OK)
        session->tensors_paid += step;
    host_set_room(session);
    return code;
}

static uint64_t stream_queue_bytes(const struct stream *stream) {
    return stream_chunk_bytes(atomic_load_explicit(&stream->chunks, memory_order_relaxed));
}

void host_measure(struct session *session) {
    size_t spare = session->tensors_paid - session->tensors.count;
    uint64_t queue = stream_queue_bytes(session->stream);
    for (uint32_t i = 0; i < session->n_streams; i++)
        queue += stream_queue_bytes(session->streams[i].stream);
    ledger_set_queue(&session->ledger, queue);
    if (spare <= HOST_SLACK || session->tensors_paid < session->tensors.count)
        return;
    session->tensors_paid -= spare - HOST_STEP;
    host_give(session, (spare - HOST_STEP) * HOST_TENSOR);
    host_set_room(session);
}

uint64_t host_bytes(struct session *session) {
    host_measure(session);
    return session->ledger.host + session->ledger.host_queue;
}
