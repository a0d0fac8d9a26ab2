/* The send queue of a device: frames in order, and beside them the chunks of uploads.
 *
 * Items are sent in the order in which they were pushed. An upload's first frame is such an item, because it binds the
 * id; the rest of the data follows in chunks, and items may overtake chunks, so that work continues during a large upload.
 * But an operation must not overtake the upload of its input: an item with a gate waits, and all items behind it wait,
 * until the upload with that ticket (and so every earlier upload) has been sent completely.
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
    struct request *request; /* the request that this frame sends; NULL: none */
    uint64_t gate;           /* the ticket of an upload that must have been sent before; 0: none */
    size_t bytes;            /* counted against the queue's bound */
    const uint8_t *frame;    /* packed header and message; a batch has none */
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
    struct upload *next; /* in queue->uploads */
    const uint8_t *data;
    uint64_t id, bytes, sent;
    uint64_t ticket; /* 0: all data goes with the first frame */
    uint64_t end;    /* the journal's position behind its last byte; 0: that byte is not in the journal yet */
    /* How the upload ends, when its data is not needed any more: `finished` is set for a caller who waits and owns the
     * struct; otherwise `done` is called on the I/O thread. */
    bool waited, finished;
    void (*done)(void *user);
    void *user;
    uint8_t frame[512];
    uint8_t copy[]; /* of small data */
};

struct queue {
    struct item *first, **last;
    struct upload *uploads, **uploads_last; /* begun, not yet sent completely; in ticket order */
    size_t bytes, bytes_max;                /* of items that are not sent yet, and the limit */
    size_t chunk_bytes;
    uint64_t tickets;      /* the last ticket that was given out */
    uint64_t tickets_sent; /* uploads up to this ticket are complete in the journal */
};

void queue_init(struct queue *queue, size_t bytes_max, size_t chunk_bytes);

static inline bool queue_room(const struct queue *queue, size_t bytes) {
    return bytes <= queue->bytes_max && queue->bytes <= queue->bytes_max - bytes;
}
/* The gate of an item that uses a tensor of the upload with this ticket; 0: none, the upload has been sent. */
static inline uint64_t queue_gate(const struct queue *queue, uint64_t ticket) {
    return ticket > queue->tickets_sent ? ticket : 0;
}
void queue_push(struct queue *queue, struct item *item);
/* Puts an item in front of all others, or behind `after`, which is in the queue. */
void queue_push_front(struct queue *queue, struct item *item, struct item *after);
/* Takes the first item off; the queue is not empty. The item's bytes stay counted. */
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
