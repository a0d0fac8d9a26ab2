#include "server/worker/feed.h"

#include <stdio.h>

static void feed_part_came(struct fetch_part *part, const struct failure *failure) {
    struct feed_part *entry = (struct feed_part *)part;
    struct feed *feed = entry->feed;
    entry->ready = !failure;
    if (failure && !feed->failed)
        feed->failure = *failure;
    feed->failed = feed->failed || failure;
    if (!feed->waiting || (!failure && entry != &feed->parts[feed->first]))
        return;
    feed->waiting = false;
    feed->came(feed, failure);
}

/* Keeps as many parts on their way as there are places. */
static void feed_ask(struct feed *feed) {
    while (!feed->failed && feed->n_parts < FEED_PARTS && feed->asked < feed->fetch.bytes) {
        struct feed_part *entry = &feed->parts[(feed->first + feed->n_parts) % FEED_PARTS];
        int64_t left = feed->fetch.bytes - feed->asked, bytes = left < FRAME_CHUNK ? left : FRAME_CHUNK;
        int64_t offset = feed->asked;
        entry->feed = feed;
        entry->ready = false;
        entry->part.done = feed_part_came;
        feed->n_parts++;
        feed->asked += bytes;
        fetch_read(&feed->fetch, offset, bytes, &entry->part);
    }
}

static void feed_came(struct fetch *fetch, const struct failure *failure) {
    struct feed *feed = (struct feed *)fetch;
    if (!failure && feed->from > 0 && feed->from >= fetch->bytes) {
        feed->failure = (struct failure){.code = STATUS_OUT_OF_RANGE};
        snprintf(feed->failure.message, sizeof feed->failure.message, "there is no byte %ld of %ld", feed->from,
                 fetch->bytes);
        failure = &feed->failure;
    }
    if (failure || fetch->data || fetch->bytes == 0) {
        feed->came(feed, failure);
        return;
    }
    feed->parted = feed->waiting = true;
    feed->asked = feed->from;
    feed_ask(feed);
}

int feed_start(struct feed *feed, struct session *session, uint64_t id) {
    feed->fetch.done = feed_came;
    return session_fetch(session, id, &feed->fetch);
}

void feed_reply(struct feed *feed, struct reply *reply, unsigned type, uint64_t sequence) {
    const uint8_t *data = feed->parted       ? feed->parts[feed->first].part.data
                          : feed->fetch.data ? feed->fetch.data + feed->from
                                             : NULL;
    reply_data(reply, type, sequence, data, (uint64_t)feed->from, (uint64_t)feed->fetch.bytes);
    reply->parted = feed->parted;
}

enum feed_state feed_next(struct feed *feed) {
    struct feed_part *sent = &feed->parts[feed->first];
    fetch_part_release(&sent->part);
    feed->first = (feed->first + 1) % FEED_PARTS;
    feed->n_parts--;
    feed_ask(feed);
    if (feed->failed)
        return FEED_FAILED;
    feed->waiting = !feed->parts[feed->first].ready;
    return feed->waiting ? FEED_WAITING : FEED_READY;
}

void feed_reply_next(struct feed *feed, struct reply *reply) {
    reply_data_next(reply, feed->parts[feed->first].part.data);
}

void feed_finish(struct feed *feed) {
    for (; feed->n_parts; feed->n_parts--) {
        fetch_part_release(&feed->parts[feed->first].part);
        feed->first = (feed->first + 1) % FEED_PARTS;
    }
    fetch_release(&feed->fetch);
}
