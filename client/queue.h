/* The send queue of a device: frames in order, and beside them the chunks of uploads.
 *
 * Items are sent in the order in which they were pushed. An upload's first frame is such an item, because it binds its
 * id; the rest of its data follows in chunks that items may overtake, so that work goes on during a large upload. What
 * uses an upload's tensor must not overtake it: an item with a gate stays, with all behind it, until the upload with
 * that ticket (and so every earlier one) has been sent completely. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_device;

/* Something for the I/O thread to do without the lock: a callback of the user. */
struct completion {
    struct completion *next;
    void (*run)(struct completion *completion);
};

enum item_kind { ITEM_BATCH, ITEM_FRAME, ITEM_FRAME_OWNED, ITEM_UPLOAD };

struct item {
    struct item *next;
    enum item_kind kind;
    bool queued;
    uint64_t gate;        /* upload ticket that must have been sent; 0: none */
    size_t bytes;         /* counted against the queue's bound */
    const uint8_t *frame; /* packed header and message; not of a batch */
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
    /* How it ends: with `finished` for a caller who waits and owns the struct, else with `done` on the I/O thread. */
    bool waited, finished;
    void (*done)(void *user);
    void *user;
    uint8_t frame[512];
    uint8_t copy[]; /* of small data */
};

/* What the sender has in hand; its owner's alone while `busy`, except for the two flags. */
struct sender {
    bool busy;                /* somebody is the sender */
    bool loaded;              /* there is something in hand */
    struct frame_item *large; /* alone: a frame that is too large for `small` */
    struct batch *batch;
    bool packed;
    uint8_t *pack; /* the batch as bytes */
    size_t pack_bytes;
    uint8_t *small; /* frames after it */
    size_t small_bytes;
    size_t charge;         /* what all of it counts in the queue's `bytes` */
    struct upload *upload; /* whose next `payload_bytes` go last */
    size_t payload_bytes;
    size_t sent; /* of all four */
};

struct queue {
    struct item *first, **last;
    struct upload *uploads, **uploads_last; /* begun, not yet sent completely; in ticket order */
    size_t bytes, bytes_max;
    size_t chunk_bytes;
    uint64_t tickets;        /* given out */
    uint64_t tickets_sent;   /* uploads up to here are complete */
    bool turn;               /* chunks and items take turns */
    bool broken;             /* the socket takes no more; the reader will find out why */
    int error;               /* where only the sender knows: an errno */
    unsigned pumpers;        /* callers who wait for room in the socket themselves */
    pthread_cond_t progress; /* an upload finished, or the sender's role is free */
    unsigned waiters;        /* on that */
    struct sender sender;
};

bool queue_init(struct queue *queue, size_t bytes_max, size_t chunk_bytes);
/* After queue_drop(). */
void queue_finish(struct queue *queue);

/* Under the device's lock, all of these. */

static inline bool queue_room(const struct queue *queue, size_t bytes) {
    return bytes <= queue->bytes_max && queue->bytes <= queue->bytes_max - bytes;
}
void queue_push(struct queue *queue, struct item *item);
/* Whether pumping has something to try. */
bool queue_sendable(const struct queue *queue);
/* Nothing left at all. */
bool queue_idle(const struct queue *queue);
/* Sends until the socket is full or nothing may be sent, unless another thread is at it. Gives up the lock meanwhile.
 */
void queue_pump(struct td_device *device);
/* Pumps and waits for the socket until `upload` has finished, or (NULL) until the queue is idle or the deadline of
 * CLOCK_MONOTONIC has passed. */
void queue_pump_wait(struct td_device *device, const struct upload *upload, int64_t deadline_ms);
/* Drops everything on a lost device, unless a sender is at work, who will do it then. */
void queue_drop(struct td_device *device);
