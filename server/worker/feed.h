/* A fetched value on its way to a client or a device: in one piece, or in parts if the host cannot read the device's
 * memory. Loop thread only. */
#pragma once

#include "engine/session/session.h"
#include "server/worker/reply.h"

enum { FEED_PARTS = 3 }; /* one part is sent while the next ones are copied */

struct feed_part {
    struct fetch_part part;
    struct feed *feed;
    bool ready;
};

struct feed {
    struct fetch fetch;
    struct feed_part parts[FEED_PARTS];
    unsigned first, n_parts; /* a ring of the parts asked for */
    int64_t from;            /* the first byte that is wanted; set before feed_start() */
    int64_t asked;           /* up to which byte parts have been asked for */
    bool parted, waiting, failed;
    struct failure failure; /* of a part */
    /* Called when there is something to send: the value or its first part, later the part for which feed_next() said
     * FEED_WAITING; or with a failure. The engine calls it, so the feed may not be finished here. */
    void (*came)(struct feed *feed, const struct failure *failure);
};

/* `came` must be set. */
int feed_start(struct feed *feed, struct session *session, uint64_t id);
/* Puts the value, or its first part, into the reply. */
void feed_reply(struct feed *feed, struct reply *reply, unsigned type, uint64_t sequence);
enum feed_state { FEED_READY, FEED_WAITING, FEED_FAILED };
/* The reply's chunk has been sent, and the next one is wanted. FEED_READY: call feed_reply_next() now. FEED_WAITING:
 * call it when `came` has been called. FEED_FAILED: feed->failure says why. */
enum feed_state feed_next(struct feed *feed);
void feed_reply_next(struct feed *feed, struct reply *reply);
/* Cancels what is under way, and frees all. */
void feed_finish(struct feed *feed);
