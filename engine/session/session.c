#include "engine/session/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/clock.h"
#include "engine/memory/tenant.h"
#include "engine/session/host.h"
#include "engine/session/session_impl.h"
#include "engine/session/waiting.h"

enum {
    SESSION_SLOT_STEPS = 1, /* of the budget, for SESSION_SLOTS empty slots of the table */
    SESSION_SLOTS = 64,
    SESSION_TENSOR_STEPS = 2,    /* for each tensor */
    SESSION_LANDING_STEPS = 8,   /* for each upload */
    SESSION_QUEUED_LEAST = 1024, /* operations in flight, however little host memory there is */
};

/* ---- all of them ---- */

void sessions_init(struct sessions *sessions, struct order *order, struct memory *memory,
                   bool (*ended)(struct session *session)) {
    sessions->order = order;
    sessions->memory = memory;
    sessions->ended = ended;
    sessions->ending_last = &sessions->ending;
    slab_init(&sessions->tensors, sizeof(struct tensor));
}

void sessions_finish(struct sessions *sessions) {
    slab_finish(&sessions->tensors);
}

/* A new session may get the group of an ended session whose cancelled work is still on the device. */
struct session *sessions_find(const struct sessions *sessions, const struct stream *stream) {
    struct session *session = atomic_load(&stream->cancelled) ? NULL : sessions->list;
    while (session && session->group != stream->group)
        session = session->next;
    return session;
}

/* ---- a session begins ---- */

static void session_give_group(struct session *session) {
    if (session->group)
        group_give(session->order, session->group);
    if (session->share)
        share_give(session->order, session->share);
}

static int session_init(struct session *session, struct tenant *tenant) {
    struct order *order = session->order;
    session->share = tenant ? NULL : share_take(order, SHARE_WEIGHT_DEFAULT, 0);
    struct run_share *share = tenant ? tenant_share(tenant) : session->share;
    session->group = share ? group_take(order, share, session->limits.number) : NULL;
    session->stream = session->group ? stream_take(order, session->group, 0) : NULL;
    if (session->stream && tensor_table_init(&session->tensors) == STATUS_OK)
        return STATUS_OK;
    if (session->stream)
        stream_give(session->stream);
    session_give_group(session);
    return STATUS_NO_HOST_MEMORY;
}

int session_create(struct sessions *sessions, const struct session_limits *limits, struct session **result,
                   struct fault *fault) {
    struct session *session = calloc(1, sizeof *session);
    if (session) {
        session->sessions = sessions;
        session->order = sessions->order;
        session_set_limits(session, limits->bytes, limits->host_bytes, limits->tensors, limits->streams);
        session->limits = *limits;
    }
    if (!session || session_init(session, limits->tenant) != STATUS_OK) {
        free(session);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a session");
    }
    ledger_open(&session->ledger, sessions->memory, limits->tenant);
    host_note(session, sizeof *session);
    session->next = sessions->list;
    session->previous = &sessions->list;
    if (session->next)
        session->next->previous = &session->next;
    sessions->list = session;
    sessions->count++;
    sessions->rested = false;
    *result = session;
    return STATUS_OK;
}

void session_set_limits(struct session *session, uint64_t bytes, uint64_t host_bytes, uint32_t tensors,
                        uint32_t streams) {
    session->ledger.payer.limit = bytes;
    session->ledger.host_limit = host_bytes;
    session->limits.tensors = tensors;
    session->limits.streams = streams;
    host_set_room(session);
}

/* ---- a session ends: for its owner at once, and none of its work starts any more; its memory is given back in slices, since the
 * client decides how many tensors there are ---- */

static void session_cancel_stream(struct stream *stream) {
    atomic_store(&stream->cancelled, true);
    stream_give(stream);
}

static void session_cancel_streams(struct session *session) {
    session_cancel_stream(session->stream);
    for (int i = 0; i < TRANSFER_STREAMS; i++)
        if (session->transfers[i])
            session_cancel_stream(session->transfers[i]);
    for (uint32_t i = 0; i < session->n_streams; i++)
        session_cancel_stream(session->streams[i].stream);
    free(session->streams);
    session_give_group(session);
}

/* Ends the uploads from elsewhere whose last bytes are being copied. False: the budget has ended first. */
static bool session_drop_landings(struct session *session) {
    while (session->landings) {
        landing_abandon(session->landings);
        if (budget_spent(&session->order->budget, SESSION_LANDING_STEPS))
            return !session->landings;
    }
    return true;
}

/* Gives back the tensors. False: the budget has ended first. */
static bool session_drop_tensors(struct session *session) {
    struct budget *budget = &session->order->budget;
    struct tensor_table *table = &session->tensors;
    size_t slots = tensor_table_slots(table);
    while (session->ended < slots) {
        struct tensor *tensor = tensor_table_slot(table, session->ended++);
        if (tensor)
            tensor_unref(session, tensor);
        bool due = tensor || session->ended % SESSION_SLOTS == 0;
        if (due && budget_spent(budget, tensor ? SESSION_TENSOR_STEPS : SESSION_SLOT_STEPS))
            return session->ended == slots;
    }
    return true;
}

static void session_free(struct session *session) {
    tensor_table_finish(&session->tensors);
    session_drop_causes(session);
    ledger_close(&session->ledger);
    free(session);
}

/* The oldest first, so that its memory is back soonest. */
bool sessions_end_some(struct sessions *sessions) {
    while (sessions->ending) {
        struct session *session = sessions->ending;
        if (!session_drop_landings(session) || !session_drop_tensors(session) || !sessions->ended(session))
            return false;
        sessions->ending = session->next;
        if (!sessions->ending)
            sessions->ending_last = &sessions->ending;
        session_free(session);
        if (budget_spent(&sessions->order->budget, 1))
            return !sessions->ending;
    }
    return true;
}

void session_destroy(struct session *session) {
    if (!session)
        return;
    struct sessions *sessions = session->sessions;
    session_notify_drained(session, 0, NULL, NULL);
    pending_drop_all(session);
    session_cancel_streams(session); /* first: the end of an upload lets its users run */
    upload_cancel_streams(session);
    while (session->uploads)
        upload_abandon(session->uploads);
    ledger_end(&session->ledger);
    *session->previous = session->next;
    if (session->next)
        session->next->previous = session->previous;
    sessions->count--;
    session->next = NULL;
    *sessions->ending_last = session;
    sessions->ending_last = &session->next;
    sessions_end_some(sessions);
    order_kick(sessions->order);
}

/* ---- figures ---- */

static void session_stats_operations(const struct session *session, struct session_stats *stats) {
    stats->ops_done = session->ops_ended + stream_done(session->stream);
    stats->ops_queued = stream_operations(session->stream);
    for (uint32_t i = 0; i < session->n_streams; i++) {
        stats->ops_done += stream_done(session->streams[i].stream);
        stats->ops_queued += stream_operations(session->streams[i].stream);
    }
}

static void session_stats_time(const struct session *session, struct session_stats *stats) {
    stats->device_ns = session->device_ns_ended;
    pthread_mutex_lock(&session->order->lock);
    uint64_t now = clock_now();
    stats->device_ns += stream_time(session->stream, now);
    for (uint32_t i = 0; i < session->n_streams; i++)
        stats->device_ns += stream_time(session->streams[i].stream, now);
    for (int i = 0; i < TRANSFER_STREAMS; i++)
        if (session->transfers[i])
            stats->device_ns += stream_time(session->transfers[i], now);
    pthread_mutex_unlock(&session->order->lock);
}

void session_stats(struct session *session, struct session_stats *stats) {
    memset(stats, 0, sizeof *stats);
    stats->tensors = session->tensors.count;
    stats->live = session->ledger.payer.bytes;
    stats->peak = session->ledger.payer.peak;
    stats->host = host_bytes(session);
    session_stats_operations(session, stats);
    session_stats_time(session, stats);
    memcpy(stats->failures, session->failures, sizeof stats->failures);
    snprintf(stats->last_failure, sizeof stats->last_failure, "%s", session->last_failure);
    snprintf(stats->label, sizeof stats->label, "%s", session->label);
    stats->allow_tf32 = session->limits.allow_tf32;
}

/* ---- streams: by the clients' numbers, and for copies ---- */

struct stream *session_transfer_stream(struct session *session, enum transfer transfer) {
    struct stream **stream = &session->transfers[transfer];
    if (*stream)
        return *stream;
    *stream = stream_take(session->order, session->group, 1); /* copies are short, and a client waits for them */
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
    /* Closed streams that still run count, too: else a client could open and close beyond the limit. */
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

bool session_host_is_full(struct session *session) {
    host_measure(session);
    return !ledger_has_host(&session->ledger, stream_chunk_bytes(1));
}

bool session_is_crowded(struct session *session, uint64_t operations, uint64_t *low) {
    uint64_t queued = session_queued(session);
    if (queued > operations) {
        *low = operations / 2;
        return true;
    }
    if (queued <= SESSION_QUEUED_LEAST || !session_host_is_full(session))
        return false;
    *low = queued / 2;
    return true;
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

/* Watches a stream for its share of the operations that must end, or for its end. An idle session is told at the next poll. */
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
    if (!drain) /* out of memory: the owner looks again when something else wakes it */
        return;
    *drain = (struct drain){.drained = drained, .owner = owner, .low = low, .n_points = streams};
    session->drain = drain;
    uint64_t queued = session_queued(session);
    uint64_t share = queued > low ? (queued - low + streams - 1) / streams : 0;
    for (uint32_t i = 0; i < (share ? streams : 1); i++)
        drain_watch(session, drain, i, share);
}
