/* A fetched value on its way out: in one piece, or in parts where the host cannot read the device's memory. Loop thread
 * only. */
#pragma once

#include "engine/session/session.h"
#include "server/worker/reply.h"

enum { FEED_PARTS = 3 }; /* one is sent while the next ones are copied */

struct feed_part {
    struct fetch_part part;
    struct feed *feed;
    bool ready;
};

struct feed {
    struct fetch fetch;
    struct feed_part parts[FEED_PARTS];
    unsigned first, n_parts; /* a ring of those asked for */
    int64_t from;            /* where the value begins for this owner: set before the start, in bytes */
    int64_t asked;           /* bytes asked for, or not wanted */
    bool parted, waiting, failed;
    struct failure failure; /* of a part */
    /* What there is to send has come: the value or its first part, later the part that feed_next() had to wait for; or it
     * has failed. The engine calls, so the feed may not be finished here. */
    void (*came)(struct feed *feed, const struct failure *failure);
};

/* `came` is set. */
int feed_start(struct feed *feed, struct session *session, uint64_t id);
/* Puts the value, or as much of it as is here, into the reply. */
void feed_reply(struct feed *feed, struct reply *reply, unsigned type, uint64_t sequence);
enum feed_state { FEED_READY, FEED_WAITING, FEED_FAILED };
/* The reply's chunk has been sent and it wants the next one. READY: feed_reply_next() goes on. WAITING: so it does when
 * `came` has been called. FAILED: for feed->failure. */
enum feed_state feed_next(struct feed *feed);
void feed_reply_next(struct feed *feed, struct reply *reply);
/* Gives everything back, or cancels it. */
void feed_finish(struct feed *feed);
