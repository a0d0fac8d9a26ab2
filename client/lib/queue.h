/* The send queue of a device: frames in order, and beside them the chunks of uploads.
 *
 * Items are sent in the order in which they were pushed. An upload's first frame is such an item, because it binds its
 * id; the rest of its data follows in chunks that items may overtake, so that work goes on during a large upload. What
 * uses an upload's tensor must not overtake it: an item with a gate stays, with all behind it, until the upload with
 * that ticket (and so every earlier one) has been sent completely.
 *
 * What is sent goes through the journal, a load at a time: one system call's worth of items. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/journal.h"

struct request;
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

/* The sender's role, and what the load in the journal that it has in hand counts in the queue's `bytes`. */
struct sender {
    bool busy; /* somebody is the sender */
    size_t charge;
};

struct queue {
    struct item *first, **last;
    struct upload *uploads, **uploads_last; /* begun, not yet sent completely; in ticket order */
    size_t bytes, bytes_max;
    size_t chunk_bytes;
    uint64_t tickets;        /* given out */
    uint64_t tickets_sent;   /* uploads up to here are complete in the journal */
    bool ask;                /* somebody waits to hear that the last upload sent is not needed any more */
    bool turn;               /* chunks and items take turns */
    bool unflushed;          /* the last of what left the journal lies encrypted in the transport */
    bool broken;             /* the socket takes no more: the reader will find out why; or there is none now */
    int error;               /* where only the sender knows: an errno */
    unsigned pumpers;        /* callers who wait for room in the socket themselves, */
    unsigned polling;        /* and those of them who are inside poll() now: a role too, but one of several */
    pthread_cond_t progress; /* an upload finished, or a role is free */
    unsigned waiters;        /* on that */
    struct sender sender;
    struct journal journal;
};

bool queue_init(struct queue *queue, size_t bytes_max, size_t chunk_bytes);
/* After queue_drop(). */
void queue_finish(struct queue *queue);

/* Under the device's lock, all of these. */

static inline bool queue_room(const struct queue *queue, size_t bytes) {
    return bytes <= queue->bytes_max && queue->bytes <= queue->bytes_max - bytes;
}
/* The upload ticket that must have been sent before what uses a tensor with this one; 0: none. */
static inline uint64_t queue_gate(const struct queue *queue, uint64_t ticket) {
    return ticket > queue->tickets_sent ? ticket : 0;
}
void queue_push(struct queue *queue, struct item *item);
/* Whether pumping has something to try. */
bool queue_sendable(const struct queue *queue);
/* Nothing left at all. */
bool queue_idle(const struct queue *queue);
/* Sends until the socket is full or nothing may be sent, unless another thread is at it. Gives up the lock meanwhile.
 */
void queue_pump(struct td_device *device);
/* Whether the journal is full, and the daemon's word is waited for. */
bool queue_stuck(const struct queue *queue);
/* The daemon has handled `frames` counted frames: frees their memory, and lets the I/O thread send if there is room
 * again. False if that number is impossible. */
bool queue_handled(struct td_device *device, uint64_t frames);
/* Pumps and waits for the socket until `upload` has been sent, or (NULL) until the queue is idle or the deadline of
 * CLOCK_MONOTONIC has passed. */
void queue_pump_wait(struct td_device *device, const struct upload *upload, int64_t deadline_ms);
/* Waits until an upload that has been sent is not needed any more. */
void queue_wait_finished(struct td_device *device, const struct upload *upload);
/* Waits until no thread is the sender or the reader (pending.h), or polls the socket. The socket is shut down, so all
 * of these threads find its end. Only then may another socket take its number: a thread that is still inside poll()
 * would wait for the old socket for ever, even if the new one is ready. */
void queue_wait_roles(struct td_device *device);
/* Puts an item in front of all others, or behind `after`, which is there. */
void queue_push_front(struct queue *queue, struct item *item, struct item *after);
/* Drops everything on a lost device, unless a sender is at work, who will do it then. */
void queue_drop(struct td_device *device);
