/* Requests of clients that wait: uploads, fetches, waits, a queue that drains. For the files of this room. */
#pragma once

#include "engine/session/session_impl.h"

/* A point that a request waits for. */
struct pending_point {
    struct waiter waiter; /* the first member */
    struct pending *pending;
};

/* An unanswered fetch or wait. It waits for one point; the sync of a session waits for one point of each stream. */
struct pending {
    struct session *session;
    struct fetch *fetch; /* exactly one of the three is set */
    struct fetch_part *part;
    struct wait *wait;
    struct poison *poison; /* the tensor's */
    unsigned left;         /* points not yet reached */
    struct pending *next, **previous;
    unsigned n_points;
    struct pending_point points[];
};

/* An owner that waits until the queue has drained. One point of each stream is watched. When the sum is low enough, at least one of
 * the points has been reached; each time a point is reached, the sum is computed again. */
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

/* A waitable upload that was finished while its last chunks were being copied. */
struct landing {
    struct waiter waiter; /* the first member */
    struct session *session;
    struct stream *stream; /* the upload's own */
    struct stream *outside;
    struct poison *poison;
    struct landing *next, **previous;
};

/* Why the tensor has no value to fetch, counted as a failure of `operation`; NULL: it has one, or will have one. */
struct failure *waiting_refusal(struct session *session, const char *operation, uint64_t id, struct tensor **tensor);
/* As session_wait(), for a point (`stream` NULL: it has been reached) and a poison that is settled by then. */
void wait_at(struct session *session, struct stream *stream, uint64_t number, struct poison *poison, struct wait *wait);

/* The session ends: drops pending fetches and waits, without a call. */
void pending_drop_all(struct session *session);
/* The session ends: the queued copies of uploads from elsewhere are skipped. */
void upload_cancel_streams(struct session *session);
/* The session ends before its upload. */
void upload_abandon(struct upload *upload);
void landing_abandon(struct landing *landing);
