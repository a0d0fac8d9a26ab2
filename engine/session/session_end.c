/* The end of a session. It is gone for its owner at once, and runs nothing more; what it has is given back in slices, for a
 * client decides how many tensors that is. */
#include <stdlib.h>

#include "engine/device/device_impl.h"
#include "engine/memory/host.h"
#include "engine/session/session_impl.h"
#include "engine/session/waiting.h"

enum {
    SESSION_SLOT_STEPS = 1, /* of the budget, for so many slots of the table that are empty, */
    SESSION_SLOTS = 64,
    SESSION_TENSOR_STEPS = 2,  /* for a tensor that is given back, */
    SESSION_LANDING_STEPS = 8, /* and for an upload that is */
};

static void session_cancel_stream(struct session *session, struct stream *stream) {
    atomic_store(&stream->cancelled, true);
    engine_stream_give(session->engine, stream);
}

static void session_cancel_streams(struct session *session) {
    session_cancel_stream(session, session->stream);
    for (int i = 0; i < TRANSFER_STREAMS; i++)
        if (session->transfers[i])
            session_cancel_stream(session, session->transfers[i]);
    for (uint32_t i = 0; i < session->n_streams; i++)
        session_cancel_stream(session, session->streams[i].stream);
    free(session->streams);
    session_give_group(session);
}

/* Uploads from elsewhere whose last bytes are being copied. False: the budget has ended before they have. */
static bool session_drop_landings(struct session *session) {
    while (session->landings) {
        landing_abandon(session->landings);
        if (budget_spent(&session->engine->budget, SESSION_LANDING_STEPS))
            return !session->landings;
    }
    return true;
}

/* False: the budget has ended before the table has. */
static bool session_drop_tensors(struct session *session) {
    struct engine *engine = session->engine;
    struct tensor_table *table = &session->tensors;
    size_t places = tensor_table_places(table);
    while (session->ended < places) {
        struct tensor *tensor = tensor_table_place(table, session->ended++);
        if (tensor)
            tensor_unref(session, tensor);
        bool due = tensor || session->ended % SESSION_SLOTS == 0;
        if (due && budget_spent(&engine->budget, tensor ? SESSION_TENSOR_STEPS : SESSION_SLOT_STEPS))
            return session->ended == places;
    }
    return true;
}

static void session_free(struct session *session) {
    tensor_table_finish(&session->tensors);
    kernel_table_finish(session);
    session_drop_causes(session);
    host_finish(session);
    if (session->tenant)
        tenant_leave(session->tenant);
    free(session);
}

/* The oldest first, so that its memory is back soonest. */
bool session_end_some(struct engine *engine) {
    while (engine->ending) {
        struct session *session = engine->ending;
        if (!session_drop_landings(session) || !session_drop_tensors(session))
            return false;
        engine->ending = session->next;
        if (!engine->ending)
            engine->ending_last = &engine->ending;
        session_free(session);
        if (budget_spent(&engine->budget, 1))
            return !engine->ending;
    }
    return true;
}

bool session_memory_comes(const struct session *session, int code) {
    if (code == STATUS_AGAIN)
        return true;
    if (!session->engine->ending)
        return false;
    return code == STATUS_OUT_OF_MEMORY || (code == STATUS_LIMIT && session->tenant && session->tenant->ending);
}

bool session_put_off(struct session *session, int code) {
    uint64_t *refused = session->engine->refused;
    session->engine->refused = NULL;
    session->search.on = session->search.on && code == STATUS_AGAIN;
    if (!session_memory_comes(session, code))
        return false;
    if (refused)
        --*refused;
    return true;
}

void session_destroy(struct session *session) {
    if (!session)
        return;
    struct engine *engine = session->engine;
    session_notify_room(session, 0, NULL, NULL);
    pending_drop_all(session);
    session_cancel_streams(session); /* first, so that nothing runs that an upload's end sets free */
    upload_cancel_streams(session);
    while (session->uploads)
        upload_abandon(session->uploads);
    staging_leave(session);
    *session->previous = session->next;
    if (session->next)
        session->next->previous = session->previous;
    engine->sessions--;
    if (session->tenant)
        session->tenant->sessions--, session->tenant->ending++;
    session->next = NULL;
    *engine->ending_last = session;
    engine->ending_last = &session->next;
    session_end_some(engine);
    engine_kick(engine);
}
