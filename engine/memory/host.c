#include "engine/memory/host.h"

#include <inttypes.h>

#include "engine/session/session_impl.h"
#include "proto/ops/bytes_text.h"

enum {
    HOST_STEP = 64,    /* tensors paid for at a time, */
    HOST_SLACK = 1024, /* and so many more than there are before some are given back */
    HOST_MALLOC = 16,  /* what the allocator adds */
    /* A tensor, its storage, and its places in the table, which is filled by half at most, and has the smaller one beside it
     * for a time when it doubles. */
    HOST_TENSOR = sizeof(struct tensor) + sizeof(struct storage) + 2 * HOST_MALLOC + 6 * sizeof(struct tensor *),
};

static bool host_fits(uint64_t limit, uint64_t held, uint64_t bytes) {
    return !limit || (bytes <= limit && held <= limit - bytes);
}

static bool host_has_room(const struct session *session, uint64_t bytes) {
    const struct tenant *tenant = session->tenant;
    return host_fits(session->limits.host_bytes, session->host + session->host_queue, bytes) &&
           (!tenant || host_fits(tenant->limits.host_bytes, tenant->host, bytes));
}

static int host_refuse(struct session *session, uint64_t bytes, struct fault *fault) {
    const struct tenant *tenant = session->tenant;
    uint64_t limit = session->limits.host_bytes, held = session->host + session->host_queue;
    char most[BYTES_TEXT_MAX], asked[BYTES_TEXT_MAX], now[BYTES_TEXT_MAX];
    if (!host_fits(limit, held, bytes)) {
        engine_refuse(session->engine, ENGINE_REFUSED_SESSION_HOST);
        return fault_set(fault, STATUS_LIMIT,
                         "the session's limit of %s of host memory is reached: %s asked, %s held, with %zu tensors",
                         bytes_text(most, limit), bytes_text(asked, bytes), bytes_text(now, held),
                         session->tensors.count);
    }
    engine_refuse(session->engine, ENGINE_REFUSED_TENANT_HOST);
    return fault_set(fault, STATUS_LIMIT,
                     "the limit of %s, %s of host memory on this device, is reached: %s asked, %s held in %u session%s",
                     tenant->name, bytes_text(most, tenant->limits.host_bytes), bytes_text(asked, bytes),
                     bytes_text(now, tenant->host), tenant->sessions, tenant->sessions == 1 ? "" : "s");
}

void host_note(struct session *session, uint64_t bytes) {
    session->host += bytes;
    if (session->host > session->host_peak)
        session->host_peak = session->host;
    if (session->tenant)
        session->tenant->host += bytes;
}

void host_give(struct session *session, uint64_t bytes) {
    session->host -= bytes;
    if (session->tenant)
        session->tenant->host -= bytes;
}

int host_take(struct session *session, uint64_t bytes, struct fault *fault) {
    if (!host_has_room(session, bytes))
        return host_refuse(session, bytes, fault);
    host_note(session, bytes);
    return STATUS_OK;
}

void host_set_room(struct session *session) {
    size_t most = session->limits.tensors;
    session->tensors_room = session->tensors_paid < most ? session->tensors_paid : most;
}

int host_take_tensors(struct session *session, struct fault *fault) {
    size_t step = session->limits.tensors - session->tensors_paid;
    if (session->tensors.count >= session->limits.tensors) {
        engine_refuse(session->engine, ENGINE_REFUSED_TENSORS);
        return fault_set(fault, STATUS_LIMIT, "the session's limit of %" PRIu32 " tensors is reached",
                         session->limits.tensors);
    }
    host_measure(session);
    step = step < HOST_STEP ? step : HOST_STEP;
    step = host_has_room(session, step * HOST_TENSOR) ? step : 1;
    int code = host_take(session, step * HOST_TENSOR, fault);
    if (code == STATUS_OK)
        session->tensors_paid += step;
    host_set_room(session);
    return code;
}

static uint64_t stream_queue_bytes(const struct stream *stream) {
    return atomic_load_explicit(&stream->chunks, memory_order_relaxed) * sizeof(struct stream_chunk);
}

void host_measure(struct session *session) {
    size_t spare = session->tensors_paid - session->tensors.count;
    uint64_t queue = stream_queue_bytes(session->stream), before = session->host_queue;
    for (uint32_t i = 0; i < session->n_streams; i++)
        queue += stream_queue_bytes(session->streams[i].stream);
    session->host_queue = queue;
    if (session->tenant)
        session->tenant->host += queue - before;
    if (spare <= HOST_SLACK || session->tensors_paid < session->tensors.count)
        return;
    session->tensors_paid -= spare - HOST_STEP;
    host_give(session, (spare - HOST_STEP) * HOST_TENSOR);
    host_set_room(session);
}

uint64_t host_bytes(struct session *session) {
    host_measure(session);
    return session->host + session->host_queue;
}

void host_finish(struct session *session) {
    if (session->tenant)
        session->tenant->host -= session->host + session->host_queue;
    session->engine->host_freed += session->host_peak;
    session->host = session->host_queue = 0;
}
