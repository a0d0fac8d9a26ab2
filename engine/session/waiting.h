/* What a session waits for on behalf of its clients: uploads, fetches, waits, a queue that drains. For this room's files. */
#pragma once

#include "engine/session/session_impl.h"

/* One of the points that somebody waits for. */
struct pending_point {
    struct waiter waiter; /* the first member */
    struct pending *pending;
};

/* An unanswered fetch or wait: it hangs on one point, or for a whole session's sync on one point of each stream. */
struct pending {
    struct session *session;
    struct fetch *fetch; /* exactly one of the three is set */
    struct fetch_part *part;
    struct wait *wait;
    struct poison *poison; /* what the tensor may turn out to be */
    unsigned left;         /* points not yet reached */
    struct pending *next, **previous;
    unsigned n_points;
    struct pending_point points[];
};

/* An owner that wants to be told when the queue has drained. One point is watched on each stream: at least one of them
 * is reached by the time that the sum is low enough, and then the sum is looked at again. */
struct drain {
    void (*drained)(void *owner);
    void *owner;
    uint64_t low;
    uint32_t n_points;
    struct drain_point {
        struct waiter waiter; /* the first member; of no stream where there is nothing to wait for */
        struct session *session;
    } points[];
};

/* A waitable upload that has been finished while its last chunks were being copied. */
struct landing {
    struct waiter waiter; /* the first member */
    struct session *session;
    struct stream *stream; /* the upload's own */
    struct stream *outside;
    struct poison *poison;
    struct landing *next, **previous;
};

/* Why nobody can ask for this tensor's value, counted as a failure of `operation`; NULL: it is there or will be. */
struct failure *waiting_refusal(struct session *session, const char *operation, uint64_t id, struct tensor **tensor);
/* As session_wait(), for a point (a NULL stream: it has been reached) and what a value may turn out to be by then. */
void wait_at(struct session *session, struct stream *stream, uint64_t number, struct poison *poison, struct wait *wait);

/* The session goes away: pending fetches and waits are forgotten without a call. */
void pending_drop_all(struct session *session);
/* The session goes away: what uploads from elsewhere have queued is skipped. */
void upload_cancel_streams(struct session *session);
/* The session goes away under an upload. */
void upload_abandon(struct upload *upload);
void landing_abandon(struct landing *landing);
