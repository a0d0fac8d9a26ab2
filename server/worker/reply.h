/* Outgoing frames and their queue. A reply is one small frame, or the bytes of a tensor as a row of chunks. The head of a
 * frame is encoded here; the payload is sent from where it lies. Small replies overtake the chunks of large ones, but every
 * write takes a chunk along, so that neither starves. A feed brings the bytes of a tensor to a reply. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "engine/session/session.h"
#include "engine/values/failure.h"
#include "proto/net/transport.h"
#include "proto/wire/frame.h"
#include "proto/wire/tensord.pb-c.h"

enum {
    /* Enough for the largest head, an Error with all of its texts, so that a reply never fails once its request has
     * been accepted. */
    REPLY_HEAD_MAX = 768,
    REPLY_SMALL_MAX = 64 << 10, /* tensors up to this size count as small replies */
};

/* Embedded in its owner's object. The owner fills it with one of the functions below. */
struct reply {
    struct reply *next;
    /* The reply has been sent, or the queue was cleared. The owner may free it. */
    void (*sent)(struct reply *reply);
    /* Of a reply in parts: the part has been sent. The reply is in no queue until it is added again with the next
     * part. */
    void (*hungry)(struct reply *reply);
    const uint8_t *data; /* of the present frame; borrowed until `sent` or `hungry` */
    uint64_t total, offset;
    uint64_t sequence;
    size_t chunk;      /* payload bytes of the present frame */
    size_t head_bytes; /* bytes of header and message of the present frame */
    size_t done;       /* bytes of the present frame that have been sent */
    uint16_t type;
    bool bulk;
    bool parted; /* `data` holds one frame at a time */
    bool cut;    /* it ends with the present frame */
    uint8_t head[REPLY_HEAD_MAX];
};

/* A frame without payload. The packed message must fit into REPLY_HEAD_MAX with its header. */
void reply_message(struct reply *reply, unsigned type, uint64_t sequence, const ProtobufCMessage *message);
/* A frame that was encoded before. */
void reply_frame(struct reply *reply, unsigned type, uint64_t sequence, const uint8_t *frame, size_t bytes);
/* One frame with a payload of at most FRAME_CHUNK bytes, borrowed until `sent`. */
void reply_message_data(struct reply *reply, unsigned type, uint64_t sequence, const ProtobufCMessage *message,
                        const uint8_t *data, size_t bytes);
/* FRAME_FETCH_CHUNK or FRAME_LINK_DATA with the bytes from `offset` to `total`, in as many frames as needed. `data` are
 * the bytes from `offset` on. */
void reply_data(struct reply *reply, unsigned type, uint64_t sequence, const uint8_t *data, uint64_t offset,
                uint64_t total);
/* The bytes of the next frame of a reply in parts. */
void reply_data_next(struct reply *reply, const uint8_t *data);
/* FRAME_ERROR; or FRAME_FETCH_CHUNK, FRAME_LINK_DATA, FRAME_KERNEL_COMPILED, FRAME_NAME_OPENED, FRAME_TRACE_DATA or
 * FRAME_DONE with its error set. */
void reply_failure(struct reply *reply, unsigned type, uint64_t sequence, const struct failure *failure);
void reply_fault(struct reply *reply, unsigned type, uint64_t sequence, const struct fault *fault);

/* A fault of the server as the cause of a tensor's failure. It names no operation; the engine adds its name. */
static inline void cause_set(struct failure *cause, const struct fault *fault) {
    *cause = (struct failure){.code = fault->code};
    snprintf(cause->message, sizeof cause->message, "%s", fault->message);
}

struct reply_queue {
    struct reply *small, **small_tail;
    struct reply *bulk, **bulk_tail;
    struct reply *current; /* its present frame is partly sent; it is the first of its list */
    struct reply *final;   /* is sent after all others */
    uint64_t written;      /* bytes since the start */
};

void reply_queue_init(struct reply_queue *queue);
/* Removes one reply, if there is one, and calls its `sent`. */
void reply_queue_clear_one(struct reply_queue *queue);
bool reply_queue_empty(const struct reply_queue *queue);
void reply_queue_add(struct reply_queue *queue, struct reply *reply);
/* Removes the large replies that have not begun, and lets a large reply that has begun end with its present frame.
 * `final` is then the last frame. */
void reply_queue_end(struct reply_queue *queue, struct reply *final);
/* Writes up to about `budget` bytes, and adds completed payload bytes to *payload. 0: the queue is empty, and
 * everything has left. 1: there is more to write when the socket is writable. Negative errno: the connection is
 * broken. */
int reply_queue_write(struct reply_queue *queue, struct transport *transport, size_t budget, uint64_t *payload);

/* ---- a fetched value on its way to a client or a device ---- */

struct feed_part {
    struct fetch_part part;
    struct feed *feed;
    bool ready;
};

enum { FEED_PARTS = 3 }; /* one part is sent while the next ones are copied */

/* The value comes in one piece, or in parts if the host cannot read the device's memory. */
struct feed {
    struct fetch fetch;
    struct feed_part parts[FEED_PARTS];
    unsigned first, n_parts; /* a ring of the parts asked for */
    int64_t from;            /* the first byte that is wanted */
    int64_t asked;           /* parts up to this byte have been asked for */
    bool parted, waiting, failed;
    struct failure failure; /* of a part */
    /* Called with the value or its first part, later with the part for which feed_next() said FEED_WAITING; or with a
     * failure. The engine calls it, so it must not finish the feed. */
    void (*came)(struct feed *feed, const struct failure *failure);
};

/* `from` and `came` must be set. As session_fetch(). */
int feed_start(struct feed *feed, struct session *session, uint64_t id);
/* Puts the value, or its first part, into the reply. */
void feed_reply(struct feed *feed, struct reply *reply, unsigned type, uint64_t sequence);
enum feed_state { FEED_READY, FEED_WAITING, FEED_FAILED };
/* The reply's chunk has been sent, and the next one is wanted. FEED_READY: call feed_reply_next() now. FEED_WAITING:
 * call it when `came` has been called. FEED_FAILED: feed->failure says why. */
enum feed_state feed_next(struct feed *feed);
void feed_reply_next(struct feed *feed, struct reply *reply);
/* Cancels the copies in progress, and frees everything. */
void feed_finish(struct feed *feed);
