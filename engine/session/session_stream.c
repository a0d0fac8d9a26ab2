/* A session's streams: by the client's numbers, and those that it has for copies; what is queued on them, and who waits until
 * that is less. */
#include <inttypes.h>
#include <stdlib.h>

#include "engine/device/clock.h"
#include "engine/session/session_impl.h"
#include "engine/session/waiting.h"

struct stream *session_transfer_stream(struct session *session, enum transfer transfer) {
    struct stream **stream = &session->transfers[transfer];
    if (*stream)
        return *stream;
    *stream = stream_take(session->order, session->group, 1); /* short, and somebody waits for it */
    if (*stream)
        (*stream)->role = transfer == TRANSFER_UPLOAD ? TRACE_UPLOADS : TRACE_FETCHES;
    return *stream;
}

static uint64_t session_stream_time(const struct session *session, const struct stream *stream) {
    pthread_mutex_lock(&session->order->lock);
    uint64_t ns = stream_time(stream, clock_now());
    pthread_mutex_unlock(&session->order->lock);
    return ns;
}

/* Gives back closed streams that have run out of work, and counts the open ones. */
static uint32_t session_reap_streams(struct session *session) {
    uint32_t kept = 0, open = 0;
    for (uint32_t i = 0; i < session->n_streams; i++) {
        struct session_stream entry = session->streams[i];
        if (entry.closed && point_reached(entry.stream, entry.stream->enqueued)) {
            session->ops_ended += stream_done(entry.stream);
            session->device_ns_ended += session_stream_time(session, entry.stream);
            stream_give(entry.stream);
            continue;
        }
        open += !entry.closed;
        session->streams[kept++] = entry;
    }
    session->n_streams = kept;
    return open;
}

int session_stream_open(struct session *session, uint32_t number, int priority, struct fault *fault) {
    if (number == 0 || number > INT32_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRIu32 " is not a number for a stream", number);
    if (session_find_stream(session, number, NULL))
        return fault_set(fault, STATUS_DUPLICATE_ID, "stream %" PRIu32 " is open already", number);
    /* Closed ones that still run count as well, or opening and closing would be a way around the limit. */
    if (session_reap_streams(session) >= session->limits.streams || session->n_streams >= 2 * session->limits.streams) {
        session->refused_stream = number;
        ledger_refuse(&session->ledger, LEDGER_REFUSED_STREAMS);
        return fault_set(fault, STATUS_LIMIT, "the session's limit of %" PRIu32 " streams is reached",
                         session->limits.streams);
    }
    struct session_stream *streams = realloc(session->streams, (session->n_streams + 1) * sizeof *streams);
    if (!streams)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a stream");
    session->streams = streams;
    struct stream *stream = stream_take(session->order, session->group, priority);
    if (!stream)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a stream");
    stream->role = (int32_t)number;
    streams[session->n_streams++] = (struct session_stream){.number = number, .stream = stream};
    return STATUS_OK;
}

int session_stream_close(struct session *session, uint32_t number, struct fault *fault) {
    for (uint32_t i = 0; i < session->n_streams; i++) {
        if (session->streams[i].number != number || session->streams[i].closed)
            continue;
        session->streams[i].closed = true;
        session_reap_streams(session);
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "no stream %" PRIu32 " is open", number);
}

struct stream *session_find_numbered(struct session *session, uint32_t number, struct fault *fault) {
    for (uint32_t i = 0; i < session->n_streams; i++)
        if (session->streams[i].number == number && !session->streams[i].closed)
            return session->streams[i].stream;
    if (number == session->refused_stream)
        fault_set(fault, STATUS_LIMIT, "stream %" PRIu32 " could not be opened: the session's limit is %" PRIu32,
                  number, session->limits.streams);
    else
        fault_set(fault, STATUS_INVALID_ARGUMENT, "no stream %" PRIu32 " is open", number);
    return NULL;
}

bool session_has_stream(const struct session *session, const struct stream *stream) {
    for (uint32_t i = 0; i < session->n_streams; i++)
        if (session->streams[i].stream == stream && !session->streams[i].closed)
            return true;
    return stream == session->stream;
}

/* ---- what is queued ---- */

static uint64_t stream_queued(const struct stream *stream) {
    return stream->enqueued - atomic_load_explicit(&stream->completed, memory_order_acquire);
}

uint64_t session_queued(const struct session *session) {
    uint64_t queued = stream_queued(session->stream);
    for (uint32_t i = 0; i < session->n_streams; i++)
        queued += stream_queued(session->streams[i].stream);
    return queued;
}

static void drain_destroy(struct session *session) {
    struct drain *drain = session->drain;
    session->drain = NULL;
    for (uint32_t i = 0; drain && i < drain->n_points; i++)
        waiter_cancel(&drain->points[i].waiter);
    free(drain);
}

static void drain_reached(struct waiter *waiter) {
    struct session *session = ((struct drain_point *)waiter)->session;
    struct drain *drain = session->drain;
    void (*drained)(void *) = drain->drained;
    void *owner = drain->owner;
    if (session_queued(session) > drain->low) {
        session_notify_drained(session, drain->low, drained, owner);
        return;
    }
    drain_destroy(session);
    drained(owner);
}

static struct stream *drain_stream(struct session *session, uint32_t i) {
    return i ? session->streams[i - 1].stream : session->stream;
}

/* Watches a stream for its share of what must go, or for its end. An idle session is told at the next poll. */
static void drain_watch(struct session *session, struct drain *drain, uint32_t i, uint64_t share) {
    struct stream *stream = drain_stream(session, i);
    uint64_t completed = atomic_load_explicit(&stream->completed, memory_order_acquire);
    uint64_t queued = stream->enqueued - completed;
    if (queued == 0 && share > 0)
        return;
    uint64_t number = completed + (queued < share ? queued : share);
    drain->points[i].session = session;
    waiter_begin(&drain->points[i].waiter, stream, number, drain_reached);
}

void session_notify_drained(struct session *session, uint64_t low, void (*drained)(void *owner), void *owner) {
    drain_destroy(session);
    uint32_t streams = session->n_streams + 1;
    struct drain *drain = drained ? calloc(1, sizeof *drain + streams * sizeof *drain->points) : NULL;
    if (!drain) /* out of memory the owner may be told late: it looks again when anything else wakes it */
        return;
    *drain = (struct drain){.drained = drained, .owner = owner, .low = low, .n_points = streams};
    session->drain = drain;
    uint64_t queued = session_queued(session);
    uint64_t share = queued > low ? (queued - low + streams - 1) / streams : 0;
    for (uint32_t i = 0; i < (share ? streams : 1); i++)
        drain_watch(session, drain, i, share);
}
