#include "server/worker/trace_feed.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/session/host.h"
#include "engine/watch/trace.h"
#include "server/users/role.h"
#include "server/worker/connection.h"
#include "server/worker/pending_reply.h"
#include "server/worker/worker_principal.h"

enum {
    TRACE_FEED_EVENTS = 2048,    /* of a frame: with the longest texts a frame is as large as it may be */
    TRACE_FEED_SESSIONS = 64,    /* that the client knows */
    TRACE_FEED_COUNTERS = 64,    /* waiting to be sent */
    TRACE_FEED_IN_FLIGHT = 8,    /* frames */
    TRACE_FEED_LINGER_MS = 5000, /* after a trace's end, for the client to read the rest */
    TRACE_FEED_MS_MAX = 3600000,
    TRACE_FEED_OWN_MS_MAX = 60000, /* of one's own sessions, so that others have their turn */
};

/* Where a frame is put together. */
struct trace_feed_room {
    struct trace_event events[TRACE_FEED_EVENTS];
    Tensord__TraceEvent messages[TRACE_FEED_EVENTS], *pointers[TRACE_FEED_EVENTS];
    Tensord__TraceCounters counters[TRACE_FEED_COUNTERS], *counter_pointers[TRACE_FEED_COUNTERS];
    size_t n_counters;
    uint32_t dtypes[TRACE_FEED_EVENTS][TRACE_OPERANDS], ranks[TRACE_FEED_EVENTS][TRACE_OPERANDS];
    /* The numbers of the last sessions with events, the newest at (next - 1) % TRACE_FEED_SESSIONS. */
    uint64_t known[TRACE_FEED_SESSIONS];
    unsigned next;
    Tensord__TraceSession sessions[TRACE_FEED_SESSIONS], *session_pointers[TRACE_FEED_SESSIONS];
    size_t n_sessions;
};

/* A frame on its way. */
struct trace_feed_frame {
    struct reply reply;
    struct connection *connection;
    uint64_t sequence; /* of its trace: the connection may have started another trace meanwhile */
    uint8_t payload[];
};

/* The host memory of a trace. */
static uint64_t trace_feed_host_bytes(void) {
    return trace_host_bytes() + sizeof(struct trace_feed_room);
}

/* The trace ends: no frame of it will be made any more. */
static void trace_feed_finish(struct service *service) {
    struct trace_feed *feed = &service->trace;
    if (!feed->stopped)
        trace_stop(engine_trace(service->engine));
    trace_rest(engine_trace(service->engine));
    host_give(feed->connection->session, trace_feed_host_bytes());
    free(feed->room);
    *feed = (struct trace_feed){.turn = feed->turn};
}

static void trace_feed_sent(struct reply *reply) {
    struct trace_feed_frame *frame =
        (struct trace_feed_frame *)((char *)reply - offsetof(struct trace_feed_frame, reply));
    struct service *service = frame->connection->service;
    if (service->trace.connection == frame->connection && service->trace.sequence == frame->sequence)
        service->trace.in_flight--;
    free(frame);
}

/* Tells the client once whose session this is. A session that has ended is known by its number only. */
static void trace_feed_meet(const struct service *service, struct trace_feed_room *room, uint64_t session) {
    const struct connection *connection = service->connections;
    for (unsigned i = 0; i < TRACE_FEED_SESSIONS; i++)
        if (room->known[i] == session)
            return;
    room->known[room->next++ % TRACE_FEED_SESSIONS] = session;
    while (connection && (connection->number != session || !connection->session))
        connection = connection->next;
    if (!connection || room->n_sessions == TRACE_FEED_SESSIONS)
        return;
    Tensord__TraceSession *message = room->session_pointers[room->n_sessions] = &room->sessions[room->n_sessions];
    room->n_sessions++;
    tensord__trace_session__init(message);
    message->session = session;
    message->client = (char *)(uintptr_t)connection->client;
    message->principal = (char *)(uintptr_t)connection->peer.principal.name;
}

static void trace_feed_operands(struct trace_feed_room *room, size_t n) {
    struct trace_event *event = &room->events[n];
    Tensord__TraceEvent *message = &room->messages[n];
    for (unsigned i = 0; i < event->n_operands; i++) {
        room->dtypes[n][i] = event->dtypes[i];
        room->ranks[n][i] = event->ranks[i];
        message->n_extents += event->ranks[i];
    }
    message->n_dtypes = message->n_ranks = event->n_operands;
    message->dtypes = room->dtypes[n];
    message->ranks = room->ranks[n];
    message->extents = event->extents;
}

static size_t trace_feed_collect(struct service *service, struct trace_feed_room *room) {
    uint64_t last = 0;
    size_t n = 0;
    for (; n < TRACE_FEED_EVENTS && trace_next(engine_trace(service->engine), &room->events[n]); n++) {
        const struct trace_event *event = &room->events[n];
        Tensord__TraceEvent *message = room->pointers[n] = &room->messages[n];
        tensord__trace_event__init(message);
        message->name = (char *)event->name;
        message->label = (char *)event->label;
        message->begin_ns = event->begin_ns;
        message->duration_ns = event->end_ns - event->begin_ns;
        message->queued_ns = event->queued_ns;
        message->session = event->session;
        message->sequence = event->sequence;
        message->bytes = event->bytes;
        message->stream = event->stream;
        message->role = event->role;
        trace_feed_operands(room, n);
        if (event->session != last)
            trace_feed_meet(service, room, last = event->session);
    }
    return n;
}

/* False: there is no memory, and these records are lost. */
static bool trace_feed_send(struct service *service, const Tensord__TraceEvents *events, bool last) {
    struct trace_feed *feed = &service->trace;
    size_t bytes = tensord__trace_events__get_packed_size(events);
    struct trace_feed_frame *frame = malloc(sizeof *frame + bytes);
    Tensord__TraceData data = TENSORD__TRACE_DATA__INIT;
    if (!frame)
        return false;
    memset(&frame->reply, 0, sizeof frame->reply);
    frame->reply.sent = trace_feed_sent;
    frame->connection = feed->connection;
    tensord__trace_events__pack(events, frame->payload);
    data.last = last;
    data.dropped = trace_dropped(engine_trace(service->engine));
    frame->sequence = feed->sequence;
    reply_message_data(&frame->reply, FRAME_TRACE_DATA, feed->sequence, &data.base, frame->payload, bytes);
    frame->reply.bulk = true; /* all frames are bulk, because small ones would overtake large ones */
    feed->in_flight++;
    reply_queue_add(&feed->connection->out.queue, &frame->reply);
    service_mark_dirty(service, feed->connection);
    return true;
}

/* The client does not read, and must not delay other traces. Frames on their way are freed when they leave, or when the
 * connection ends. */
static void trace_feed_give_up(struct service *service) {
    struct connection *connection = service->trace.connection;
    uint64_t sequence = service->trace.sequence;
    struct fault fault;
    trace_feed_finish(service);
    fault_set(&fault, STATUS_CANCELLED, "the trace has ended: its data was not read in time");
    pending_reply_fault(connection, FRAME_TRACE_DATA, sequence, &fault);
}

bool trace_feed_turn(struct service *service) {
    struct trace_feed *feed = &service->trace;
    Tensord__TraceEvents events = TENSORD__TRACE_EVENTS__INIT;
    if (!feed->stopped && clock_now_ms() >= feed->until_ms) {
        trace_stop(engine_trace(service->engine));
        feed->stopped = true;
    }
    if (feed->in_flight >= TRACE_FEED_IN_FLIGHT) {
        if (feed->stopped && clock_now_ms() >= feed->until_ms + TRACE_FEED_LINGER_MS)
            trace_feed_give_up(service);
        return false;
    }
    if (feed->stopped)
        trace_feed_tick(service); /* so that the last frame is not empty */
    events.n_events = trace_feed_collect(service, feed->room);
    events.events = feed->room->pointers;
    events.n_counters = feed->room->n_counters;
    events.counters = feed->room->counter_pointers;
    events.n_sessions = feed->room->n_sessions;
    events.sessions = feed->room->session_pointers;
    feed->room->n_counters = feed->room->n_sessions = 0;
    bool more = events.n_events == TRACE_FEED_EVENTS, last = feed->stopped && !more;
    bool sent = (events.n_events || events.n_counters) && trace_feed_send(service, &events, last);
    if (last && sent)
        trace_feed_finish(service);
    return more;
}

void trace_feed_tick(struct service *service) {
    struct trace_feed_room *room = service->trace.room;
    struct engine_stats stats;
    struct timespec wall;
    if (room->n_counters == TRACE_FEED_COUNTERS)
        return;
    engine_stats(service->engine, &stats);
    Tensord__TraceCounters *counters = room->counter_pointers[room->n_counters] = &room->counters[room->n_counters];
    room->n_counters++;
    tensord__trace_counters__init(counters);
    counters->at_ns = clock_now_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    counters->wall_ns = (uint64_t)wall.tv_sec * 1000000000 + (uint64_t)wall.tv_nsec;
    counters->memory_live = stats.memory_live;
    counters->queue_depth = stats.queue_depth;
}

static bool trace_feed_is_admin(const struct connection *connection) {
    return connection->peer.principal.role >= ROLE_ADMIN;
}

/* Makes room for a new trace: an admin's ends a user's, and a user's ends another user's that yields. STATUS_OK: no trace
 * is left. */
static int trace_feed_make_room(struct service *service, const struct connection *newcomer, struct fault *fault) {
    struct trace_feed *feed = &service->trace;
    struct connection *connection = feed->connection;
    uint64_t sequence = feed->sequence;
    bool admin = trace_feed_is_admin(newcomer), other = strcmp(newcomer->principal->key, feed->turn.key) != 0;
    struct fault ended;
    if (!connection)
        return STATUS_OK;
    feed->turn.awaited |= other;
    if (trace_feed_is_admin(connection) || (!admin && !(other && feed->yields)))
        return fault_set(fault, STATUS_LIMIT, "%s is being traced for session %lu; try again when that has ended",
                         service->device, connection->number);
    trace_feed_finish(service);
    fault_set(&ended, STATUS_CANCELLED, "the trace has ended, because %s began one",
              admin ? "an admin" : "another principal, who had waited,");
    pending_reply_fault(connection, FRAME_TRACE_DATA, sequence, &ended);
    return STATUS_OK;
}

int trace_feed_start(struct connection *connection, uint64_t sequence, uint32_t milliseconds, uint64_t session,
                     struct fault *fault) {
    struct service *service = connection->service;
    struct trace_feed *feed = &service->trace;
    bool all = trace_feed_is_admin(connection);
    uint32_t most = all ? TRACE_FEED_MS_MAX : TRACE_FEED_OWN_MS_MAX;
    if (milliseconds == 0 || milliseconds > most)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a trace takes 1 to %u ms%s, not %u", most,
                         all ? "" : " with the role run", milliseconds);
    int error = host_take(connection->session, trace_feed_host_bytes(), fault);
    if (error)
        return error;
    struct trace_feed_room *room = malloc(sizeof *room);
    /* Last, because it ends another's trace: who cannot have one leaves others theirs. */
    error = room ? trace_feed_make_room(service, connection, fault)
                 : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a trace");
    if (!error)
        error = engine_trace_start(service->engine, all ? NULL : connection->principal->tenant, session, fault);
    if (error) {
        host_give(connection->session, trace_feed_host_bytes());
        free(room);
        return error;
    }
    room->n_counters = room->n_sessions = room->next = 0;
    memset(room->known, 0, sizeof room->known);
    bool again = !strcmp(feed->turn.key, connection->principal->key);
    feed->turn.awaited &= again;
    memcpy(feed->turn.key, connection->principal->key, sizeof feed->turn.key);
    *feed = (struct trace_feed){
        .turn = feed->turn,
        .yields = feed->turn.awaited,
        .connection = connection,
        .sequence = sequence,
        .until_ms = clock_now_ms() + milliseconds,
        .room = room,
    };
    trace_feed_tick(service);
    return STATUS_OK;
}

void trace_feed_drop(struct connection *connection) {
    if (connection->service->trace.connection == connection)
        trace_feed_finish(connection->service);
}
