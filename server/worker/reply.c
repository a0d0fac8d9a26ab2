#include "server/worker/reply.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

/* Replies taken along by one sendmsg; each has at most two parts. */
enum { REPLY_GATHER_MAX = 48 };

static void reply_head(struct reply *reply, const ProtobufCMessage *message, size_t payload) {
    /* First of all, because packing checks no bound. */
    assert(protobuf_c_message_get_packed_size(message) <= REPLY_HEAD_MAX - FRAME_HEADER_BYTES);
    size_t bytes = protobuf_c_message_pack(message, reply->head + FRAME_HEADER_BYTES);
    struct frame_header header = {
        .type = reply->type,
        .message_bytes = (uint32_t)bytes,
        .payload_bytes = payload,
        .sequence = reply->sequence,
    };
    frame_header_encode(&header, reply->head);
    reply->head_bytes = FRAME_HEADER_BYTES + bytes;
    reply->chunk = payload;
    reply->done = 0;
}

static void reply_begin(struct reply *reply, unsigned type, uint64_t sequence) {
    reply->next = NULL;
    reply->data = NULL;
    reply->total = reply->offset = 0;
    reply->sequence = sequence;
    reply->type = (uint16_t)type;
    reply->bulk = reply->parted = reply->cut = false;
}

void reply_message(struct reply *reply, unsigned type, uint64_t sequence, const ProtobufCMessage *message) {
    reply_begin(reply, type, sequence);
    reply_head(reply, message, 0);
}

void reply_frame(struct reply *reply, unsigned type, uint64_t sequence, const uint8_t *frame, size_t bytes) {
    reply_begin(reply, type, sequence);
    memcpy(reply->head, frame, bytes);
    reply->head_bytes = bytes;
    reply->chunk = reply->done = 0;
}

void reply_message_data(struct reply *reply, unsigned type, uint64_t sequence, const ProtobufCMessage *message,
                        const uint8_t *data, size_t bytes) {
    reply_begin(reply, type, sequence);
    reply->data = data;
    reply->total = bytes;
    reply->bulk = bytes > REPLY_SMALL_MAX;
    reply_head(reply, message, bytes);
}

/* Makes the frame for the bytes from `offset` on. */
static void reply_chunk(struct reply *reply) {
    uint64_t left = reply->total - reply->offset;
    size_t chunk = left < FRAME_CHUNK ? (size_t)left : FRAME_CHUNK;
    if (reply->type == FRAME_LINK_DATA) {
        Tensord__LinkData message = TENSORD__LINK_DATA__INIT;
        message.offset = reply->offset;
        message.total = reply->total;
        reply_head(reply, &message.base, chunk);
    } else {
        Tensord__FetchChunk message = TENSORD__FETCH_CHUNK__INIT;
        message.offset = reply->offset;
        message.total = reply->total;
        reply_head(reply, &message.base, chunk);
    }
}

void reply_data(struct reply *reply, unsigned type, uint64_t sequence, const uint8_t *data, uint64_t offset,
                uint64_t total) {
    reply_begin(reply, type, sequence);
    reply->data = data;
    reply->offset = offset;
    reply->total = total;
    reply->bulk = total - offset > REPLY_SMALL_MAX;
    reply_chunk(reply);
}

void reply_data_next(struct reply *reply, const uint8_t *data) {
    reply->data = data;
    reply_chunk(reply);
}

enum {
    REPLY_TEXT_BYTES = 3, /* before the bytes of a text or a message: its tag, and a length below 2^14 */
    REPLY_NUMBER_BYTES = 11,
    REPLY_FAILURE_BYTES = 4 * REPLY_TEXT_BYTES + sizeof((struct failure *)0)->message +
                          sizeof((struct failure *)0)->operation + sizeof((struct failure *)0)->label +
                          2 * REPLY_NUMBER_BYTES,
};
_Static_assert(FRAME_HEADER_BYTES + REPLY_FAILURE_BYTES <= REPLY_HEAD_MAX, "a failure with all of its texts fits");

void reply_failure(struct reply *reply, unsigned type, uint64_t sequence, const struct failure *failure) {
    Tensord__Error error = TENSORD__ERROR__INIT;
    Tensord__FetchChunk chunk = TENSORD__FETCH_CHUNK__INIT;
    Tensord__LinkData data = TENSORD__LINK_DATA__INIT;
    Tensord__Done done = TENSORD__DONE__INIT;
    Tensord__KernelCompiled compiled = TENSORD__KERNEL_COMPILED__INIT;
    Tensord__NameOpened opened = TENSORD__NAME_OPENED__INIT;
    Tensord__TraceData trace = TENSORD__TRACE_DATA__INIT;
    const ProtobufCMessage *message = &error.base;
    error.code = failure->code;
    error.message = (char *)failure->message;
    error.operation = (char *)failure->operation;
    error.label = (char *)failure->label;
    error.sequence = failure->sequence;
    chunk.error = data.error = done.error = compiled.error = opened.error = trace.error = &error;
    if (type == FRAME_FETCH_CHUNK)
        message = &chunk.base;
    else if (type == FRAME_LINK_DATA)
        message = &data.base;
    else if (type == FRAME_DONE)
        message = &done.base;
    else if (type == FRAME_KERNEL_COMPILED)
        message = &compiled.base;
    else if (type == FRAME_NAME_OPENED)
        message = &opened.base;
    else if (type == FRAME_TRACE_DATA)
        message = &trace.base;
    reply_begin(reply, type, sequence);
    reply_head(reply, message, 0);
}

void reply_fault(struct reply *reply, unsigned type, uint64_t sequence, const struct fault *fault) {
    struct failure failure;
    cause_set(&failure, fault);
    reply_failure(reply, type, sequence, &failure);
}

void reply_queue_init(struct reply_queue *queue) {
    *queue = (struct reply_queue){0};
    queue->small_tail = &queue->small;
    queue->bulk_tail = &queue->bulk;
}

static struct reply *reply_queue_take(struct reply_queue *queue, bool bulk) {
    struct reply **list = bulk ? &queue->bulk : &queue->small, ***tail = bulk ? &queue->bulk_tail : &queue->small_tail;
    struct reply *reply = *list;
    *list = reply->next;
    if (!*list)
        *tail = list;
    reply->next = NULL;
    return reply;
}

void reply_queue_clear_one(struct reply_queue *queue) {
    struct reply *final = queue->final;
    queue->current = NULL;
    if (queue->small || queue->bulk) {
        struct reply *reply = reply_queue_take(queue, !queue->small);
        reply->sent(reply);
    } else if (final) {
        queue->final = NULL;
        final->sent(final);
    }
}

bool reply_queue_empty(const struct reply_queue *queue) {
    return !queue->small && !queue->bulk && !queue->final;
}

void reply_queue_add(struct reply_queue *queue, struct reply *reply) {
    struct reply ***tail = reply->bulk ? &queue->bulk_tail : &queue->small_tail;
    reply->next = NULL;
    **tail = reply;
    *tail = &reply->next;
}

void reply_queue_end(struct reply_queue *queue, struct reply *final) {
    struct reply *kept = queue->current && queue->current->bulk ? reply_queue_take(queue, true) : NULL;
    while (queue->bulk) {
        struct reply *reply = reply_queue_take(queue, true);
        reply->sent(reply);
    }
    if (kept) {
        kept->cut = true;
        reply_queue_add(queue, kept);
    }
    queue->final = final;
}

/* One write's worth of work. */
struct reply_gather {
    struct reply *replies[REPLY_GATHER_MAX];
    struct iovec parts[2 * REPLY_GATHER_MAX];
    unsigned n_replies, n_parts;
    size_t bytes;
};

static void reply_gather_part(struct reply_gather *gather, const uint8_t *data, size_t bytes) {
    gather->parts[gather->n_parts++] = (struct iovec){(void *)data, bytes};
    gather->bytes += bytes;
}

static void reply_gather_add(struct reply_gather *gather, struct reply *reply) {
    size_t payload_done = 0;
    if (reply->done < reply->head_bytes)
        reply_gather_part(gather, reply->head + reply->done, reply->head_bytes - reply->done);
    else
        payload_done = reply->done - reply->head_bytes;
    if (reply->chunk > payload_done)
        reply_gather_part(gather, reply->data + payload_done, reply->chunk - payload_done);
    gather->replies[gather->n_replies++] = reply;
}

static void reply_queue_gather(struct reply_queue *queue, struct reply_gather *gather) {
    gather->n_replies = gather->n_parts = 0;
    gather->bytes = 0;
    if (queue->current)
        reply_gather_add(gather, queue->current);
    for (struct reply *reply = queue->small; reply && gather->n_replies < REPLY_GATHER_MAX - 1; reply = reply->next)
        if (reply != queue->current)
            reply_gather_add(gather, reply);
    if (queue->bulk && queue->bulk != queue->current)
        reply_gather_add(gather, queue->bulk);
}

/* The present frame has been sent: makes the next chunk and puts it behind the other large replies; or calls the
 * owner. */
static void reply_queue_advance(struct reply_queue *queue, struct reply *reply) {
    reply_queue_take(queue, reply->bulk);
    reply->offset += reply->chunk;
    if (reply->offset >= reply->total || reply->cut) {
        reply->sent(reply);
    } else if (reply->parted) {
        reply->hungry(reply);
    } else {
        reply_data_next(reply, reply->data + reply->chunk);
        reply_queue_add(queue, reply);
    }
}

static void reply_queue_consume(struct reply_queue *queue, const struct reply_gather *gather, size_t bytes,
                                uint64_t *payload) {
    queue->current = NULL;
    for (unsigned i = 0; i < gather->n_replies; i++) {
        struct reply *reply = gather->replies[i];
        size_t left = reply->head_bytes + reply->chunk - reply->done;
        if (bytes < left) {
            if (bytes > 0 || reply->done > 0)
                queue->current = reply;
            reply->done += bytes;
            return;
        }
        bytes -= left;
        *payload += reply->chunk;
        reply_queue_advance(queue, reply);
    }
}

/* The queue is empty, but bytes may still be in the transport's buffer. */
static int reply_flush(struct transport *transport) {
    int error = transport_flush(transport);
    return error == EAGAIN ? 1 : -error;
}

int reply_queue_write(struct reply_queue *queue, struct transport *transport, size_t budget, uint64_t *payload) {
    struct reply_gather gather;
    size_t written = 0;
    while (written < budget) {
        ssize_t sent;
        if (!queue->small && !queue->bulk) {
            if (!queue->final)
                return reply_flush(transport);
            reply_queue_add(queue, queue->final);
            queue->final = NULL;
        }
        reply_queue_gather(queue, &gather);
        sent = transport_write(transport, gather.parts, gather.n_parts);
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 1 : -errno;
        queue->written += (uint64_t)sent;
        reply_queue_consume(queue, &gather, (size_t)sent, payload);
        written += (size_t)sent;
        if ((size_t)sent < gather.bytes)
            return 1; /* the socket is full */
    }
    return reply_queue_empty(queue) ? reply_flush(transport) : 1;
}

/* ---- a fetched value on its way to a client or a device ---- */

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

/* Asks for as many parts as there are places. */
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
