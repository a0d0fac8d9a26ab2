#include <stdlib.h>

#include "engine/session/waiting.h"

static void room_destroy(struct session *session) {
    struct room *room = session->room;
    session->room = NULL;
    for (uint32_t i = 0; room && i < room->n_waiters; i++)
        if (room->waiters[i])
            engine_waiter_cancel(session->engine, room->waiters[i]);
    free(room);
}

static void room_reached(struct waiter *waiter) {
    struct session *session = waiter->owner;
    struct room *room = session->room;
    for (uint32_t i = 0; i < room->n_waiters; i++)
        if (room->waiters[i] == waiter)
            room->waiters[i] = NULL;
    void (*told)(void *) = room->told;
    void *owner = room->owner;
    if (session_queued(session) > room->low) {
        session_notify_room(session, room->low, told, owner);
        return;
    }
    room_destroy(session);
    told(owner);
}

static struct stream *room_stream(struct session *session, uint32_t i) {
    return i ? session->streams[i - 1].stream : session->stream;
}

/* Watches a stream for its share of what must go, or for its end. An idle session is told at the next poll. */
static void room_watch(struct session *session, struct room *room, uint32_t i, uint64_t share) {
    struct stream *stream = room_stream(session, i);
    uint64_t completed = atomic_load_explicit(&stream->completed, memory_order_acquire);
    uint64_t queued = stream->enqueued - completed;
    if (queued == 0 && share > 0)
        return;
    uint64_t number = completed + (queued < share ? queued : share);
    room->waiters[i] = engine_waiter(session->engine, stream, number, room_reached, session);
    /* Without memory for a waiter the owner may be told late: it looks again when anything else wakes it. */
}

void session_notify_room(struct session *session, uint64_t low, void (*told)(void *owner), void *owner) {
    room_destroy(session);
    uint32_t streams = session->n_streams + 1;
    struct room *room = told ? calloc(1, sizeof *room + streams * sizeof *room->waiters) : NULL;
    if (!room)
        return;
    *room = (struct room){.session = session, .told = told, .owner = owner, .low = low, .n_waiters = streams};
    session->room = room;
    uint64_t queued = session_queued(session);
    uint64_t share = queued > low ? (queued - low + streams - 1) / streams : 0;
    for (uint32_t i = 0; i < (share ? streams : 1); i++)
        room_watch(session, room, i, share);
}
