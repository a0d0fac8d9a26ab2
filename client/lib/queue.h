/* The send queue of a device: frames in order, and beside them the chunks of uploads.
 *
 * Items are sent in the order in which they were pushed. An upload's first frame is such an item, because it binds its
 * id; the rest of its data follows in chunks that items may overtake, so that work goes on during a large upload. What
 * uses an upload's tensor must not overtake it: an item with a gate stays, with all behind it, until the upload with
 * that ticket (and so every earlier one) has been sent completely.
 *
 * The sender (sender.h) takes items and chunks off. Under the device's lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/io.h"

struct request;

enum item_kind { ITEM_BATCH, ITEM_FRAME, ITEM_FRAME_OWNED, ITEM_UPLOAD };

struct item {
    struct item *next;
    enum item_kind kind;
    bool queued;
    bool uncounted;          /* not sent again over another connection */
    struct request *request; /* that it asks; NULL: none */
    uint64_t gate;           /* upload ticket that must have been sent; 0: none */
    size_t bytes;            /* counted against the queue's bound */
    const uint8_t *frame;    /* packed header and message; not of a batch */
    size_t frame_bytes;
};

/* A whole frame in one block. */
struct frame_item {
    struct item item;
    uint8_t bytes[];
};

struct upload {
    struct item item; /* first frame; its payload is the first chunk */
    struct completion completion;
    struct upload *next; /* among those whose chunks are being sent */
    const uint8_t *data;
    uint64_t id, bytes, sent;
    uint64_t ticket; /* 0: all data goes with the first frame */
    uint64_t end;    /* the journal's position behind its last byte; 0: not there yet */
    /* How it ends, when the data is not needed any more: with `finished` for a caller who waits and owns the struct,
     * else with `done` on the I/O thread. */
    bool waited, finished;
    void (*done)(void *user);
    void *user;
    uint8_t frame[512];
    uint8_t copy[]; /* of small data */
};

struct queue {
    struct item *first, **last;
    struct upload *uploads, **uploads_last; /* begun, not yet sent completely; in ticket order */
    size_t bytes, bytes_max;                /* until they are sent */
    size_t chunk_bytes;
    uint64_t tickets;      /* given out */
    uint64_t tickets_sent; /* uploads up to here are complete in the journal */
};

void queue_init(struct queue *queue, size_t bytes_max, size_t chunk_bytes);

static inline bool queue_room(const struct queue *queue, size_t bytes) {
    return bytes <= queue->bytes_max && queue->bytes <= queue->bytes_max - bytes;
}
/* The upload ticket that must have been sent before what uses a tensor with this one; 0: none. */
static inline uint64_t queue_gate(const struct queue *queue, uint64_t ticket) {
    return ticket > queue->tickets_sent ? ticket : 0;
}
void queue_push(struct queue *queue, struct item *item);
/* Puts an item in front of all others, or behind `after`, which is there. */
void queue_push_front(struct queue *queue, struct item *item, struct item *after);
/* Takes the first item off, which is there; its bytes stay counted. */
struct item *queue_pop(struct queue *queue);
/* Whether the first item's gate is open, if there is one. */
static inline bool queue_first_open(const struct queue *queue) {
    return queue->first && queue->first->gate <= queue->tickets_sent;
}
static inline bool queue_empty(const struct queue *queue) {
    return !queue->first && !queue->uploads;
}
/* The upload's next bytes have been taken: its chunks follow, or it is complete. */
void queue_upload_taken(struct queue *queue, struct upload *upload, uint64_t bytes);
