#include "client/queue.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/control.h"
#include "client/device.h"
#include "client/trace.h"

enum { SMALL_MAX = 8 << 10, PACK_MAX = FRAME_HEADER_BYTES + BATCH_PACKED_MAX };

bool queue_init(struct queue *queue, size_t bytes_max, size_t chunk_bytes) {
    *queue = (struct queue){.bytes_max = bytes_max, .chunk_bytes = chunk_bytes};
    queue->last = &queue->first;
    queue->uploads_last = &queue->uploads;
    queue->sender.pack = malloc(PACK_MAX);
    queue->sender.small = malloc(SMALL_MAX);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->progress, &attributes);
    pthread_condattr_destroy(&attributes);
    return queue->sender.pack && queue->sender.small;
}

void queue_finish(struct queue *queue) {
    free(queue->sender.pack);
    free(queue->sender.small);
    pthread_cond_destroy(&queue->progress);
}

void queue_push(struct queue *queue, struct item *item) {
    if (item->kind != ITEM_BATCH) /* a batch was counted as it grew */
        queue->bytes += item->bytes;
    item->queued = true;
    item->next = NULL;
    *queue->last = item;
    queue->last = &item->next;
}

static struct item *queue_pop(struct queue *queue) {
    struct item *item = queue->first;
    queue->first = item->next;
    if (!queue->first)
        queue->last = &queue->first;
    item->queued = false;
    return item;
}

static bool queue_first_open(const struct queue *queue) {
    return queue->first && queue->first->gate <= queue->tickets_sent;
}

bool queue_sendable(const struct queue *queue) {
    return !queue->broken && (queue->sender.loaded || queue->uploads || queue_first_open(queue));
}

bool queue_idle(const struct queue *queue) {
    return !queue->first && !queue->uploads && !queue->sender.loaded;
}

static void completion_upload(struct completion *completion) {
    struct upload *upload = (struct upload *)((char *)completion - offsetof(struct upload, completion));
    upload->done(upload->user);
    free(upload);
}

/* The data is not needed any more: sent, or never to be. */
static void upload_end(td_device *device, struct upload *upload) {
    if (upload->waited) {
        upload->finished = true;
        pthread_cond_broadcast(&device->queue.progress);
    } else if (upload->done) {
        upload->completion.run = completion_upload;
        io_complete(device, &upload->completion);
    } else {
        free(upload);
    }
}

static void sender_add_small(struct sender *sender, const uint8_t *frame, size_t bytes) {
    memcpy(sender->small + sender->small_bytes, frame, bytes);
    sender->small_bytes += bytes;
}

static void sender_add_payload(struct sender *sender, struct upload *upload, size_t chunk_bytes) {
    uint64_t left = upload->bytes - upload->sent;
    sender->upload = upload;
    sender->payload_bytes = left < chunk_bytes ? (size_t)left : chunk_bytes;
}

/* A batch and the small frames after it go out in one system call; an upload's first chunk ends the load. */
static void sender_load_items(struct queue *queue) {
    struct sender *sender = &queue->sender;
    if (queue->first->kind == ITEM_FRAME_OWNED && queue->first->frame_bytes > SMALL_MAX) {
        sender->large = (struct frame_item *)queue_pop(queue);
        sender->charge += sender->large->item.bytes;
        return;
    }
    if (queue->first->kind == ITEM_BATCH) {
        sender->batch = (struct batch *)queue_pop(queue);
        sender->charge += sender->batch->item.bytes;
        sender->packed = false;
    }
    while (!sender->upload && queue_first_open(queue) && queue->first->kind != ITEM_BATCH &&
           sender->small_bytes + queue->first->frame_bytes <= SMALL_MAX) {
        struct item *item = queue_pop(queue);
        sender->charge += item->bytes;
        sender_add_small(sender, item->frame, item->frame_bytes);
        if (item->kind == ITEM_UPLOAD)
            sender_add_payload(sender, (struct upload *)item, queue->chunk_bytes);
        else if (item->kind == ITEM_FRAME_OWNED)
            free(item);
    }
}

static void sender_load_chunk(struct queue *queue) {
    struct sender *sender = &queue->sender;
    struct upload *upload = queue->uploads;
    sender_add_payload(sender, upload, queue->chunk_bytes);
    Tensord__UploadChunk chunk = TENSORD__UPLOAD_CHUNK__INIT;
    chunk.id = upload->id;
    chunk.offset = upload->sent;
    uint8_t frame[FRAME_HEADER_BYTES + 32];
    size_t bytes = tensord__upload_chunk__pack(&chunk, frame + FRAME_HEADER_BYTES);
    struct frame_header header = {
        .type = FRAME_UPLOAD_CHUNK, .message_bytes = (uint32_t)bytes, .payload_bytes = sender->payload_bytes};
    frame_header_encode(&header, frame);
    sender_add_small(sender, frame, FRAME_HEADER_BYTES + bytes);
}

static bool sender_load(struct queue *queue) {
    struct sender *sender = &queue->sender;
    bool items = queue_first_open(queue);
    if (!items && !queue->uploads)
        return false;
    if (items && !(queue->uploads && queue->turn)) {
        sender_load_items(queue);
        queue->turn = true;
    } else {
        sender_load_chunk(queue);
        queue->turn = false;
    }
    sender->loaded = true;
    return true;
}

/* All of the load has been sent, or never will be. */
static void sender_unload(td_device *device, bool sent) {
    struct queue *queue = &device->queue;
    struct sender *sender = &queue->sender;
    struct upload *upload = sender->upload;
    queue->bytes -= sender->charge;
    free(sender->large);
    if (sender->batch)
        batch_give(&device->batches, sender->batch);
    if (upload) {
        bool begun = upload->sent > 0, ends = !sent || upload->sent + sender->payload_bytes == upload->bytes;
        upload->sent += sender->payload_bytes;
        if (begun && ends) {
            queue->uploads = upload->next;
            if (!queue->uploads)
                queue->uploads_last = &queue->uploads;
        } else if (!begun && !ends) {
            upload->next = NULL;
            *queue->uploads_last = upload;
            queue->uploads_last = &upload->next;
        }
        if (ends && upload->ticket)
            queue->tickets_sent = upload->ticket;
        if (ends)
            upload_end(device, upload);
    }
    uint8_t *pack = sender->pack, *small = sender->small;
    *sender = (struct sender){.busy = sender->busy, .pack = pack, .small = small};
}

/* One part of the message, as far as it has not been sent. */
static size_t part(struct iovec *parts, size_t n, const uint8_t *data, size_t bytes, size_t *skip) {
    if (*skip >= bytes) {
        *skip -= bytes;
        return n;
    }
    parts[n] = (struct iovec){.iov_base = (void *)(uintptr_t)(data + *skip), .iov_len = bytes - *skip};
    *skip = 0;
    return n + 1;
}

/* Without the lock. 0: all sent; else an errno. */
static int sender_send(struct transport *transport, struct sender *sender) {
    if (sender->batch && !sender->packed) {
        sender->pack_bytes = batch_pack(sender->batch, sender->pack);
        sender->packed = true;
    }
    const struct item *large = sender->large ? &sender->large->item : NULL;
    if (sender->sent == 0 && large)
        trace_frames("->", large->frame, large->frame_bytes);
    if (sender->sent == 0)
        trace_frames("->", sender->small, sender->small_bytes);
    size_t large_bytes = large ? large->frame_bytes : 0;
    size_t total = large_bytes + sender->pack_bytes + sender->small_bytes + sender->payload_bytes;
    while (sender->sent < total) {
        struct iovec parts[4];
        size_t n = 0, skip = sender->sent;
        if (large)
            n = part(parts, n, large->frame, large_bytes, &skip);
        n = part(parts, n, sender->pack, sender->pack_bytes, &skip);
        n = part(parts, n, sender->small, sender->small_bytes, &skip);
        if (sender->upload)
            n = part(parts, n, sender->upload->data + sender->upload->sent, sender->payload_bytes, &skip);
        ssize_t sent = transport_write(transport, parts, n);
        if (sent < 0)
            return errno == EWOULDBLOCK ? EAGAIN : errno;
        sender->sent += (size_t)sent;
    }
    return transport_flush(transport);
}

void queue_pump(td_device *device) {
    struct queue *queue = &device->queue;
    struct sender *sender = &queue->sender;
    if (sender->busy)
        return;
    sender->busy = true;
    while (!device->lost && !queue->broken && (sender->loaded || sender_load(queue))) {
        pthread_mutex_unlock(&device->lock);
        int error = sender_send(&device->transport, sender);
        pthread_mutex_lock(&device->lock);
        if (!error) {
            sender_unload(device, true);
            continue;
        }
        if (error == EAGAIN)
            break;
        /* The daemon may have said why before it closed: the reader tells. Of other errors it would not hear. */
        queue->broken = true;
        if (error != EPIPE && error != ECONNRESET) {
            queue->error = error;
            transport_hang_up(&device->transport);
        }
        if (io_urgent(device))
            io_wake(device);
    }
    sender->busy = false;
    if (device->lost)
        queue_drop(device);
    if (queue->waiters)
        pthread_cond_broadcast(&queue->progress);
}

/* The sender is at work, or there is nothing to send it to: sleeps until that changes. */
static void queue_wait_progress(td_device *device, int64_t deadline_ms) {
    struct queue *queue = &device->queue;
    queue->waiters++;
    if (deadline_ms == INT64_MAX) {
        pthread_cond_wait(&queue->progress, &device->lock);
    } else {
        struct timespec until = {.tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000};
        pthread_cond_timedwait(&queue->progress, &device->lock, &until);
    }
    queue->waiters--;
}

static void queue_wait_socket(td_device *device, int64_t deadline_ms) {
    int timeout = -1;
    if (deadline_ms != INT64_MAX) {
        int64_t left = deadline_ms - control_now_ms();
        timeout = left > 0 ? (int)left : 0;
    }
    pthread_mutex_unlock(&device->lock);
    struct pollfd entry = {.fd = device->transport.fd, .events = POLLOUT};
    poll(&entry, 1, timeout);
    pthread_mutex_lock(&device->lock);
}

void queue_pump_wait(td_device *device, const struct upload *upload, int64_t deadline_ms) {
    struct queue *queue = &device->queue;
    queue->pumpers++;
    for (;;) {
        queue_pump(device);
        if (upload ? upload->finished : device->lost || queue_idle(queue))
            break;
        if (deadline_ms != INT64_MAX && control_now_ms() >= deadline_ms)
            break;
        if (queue->sender.busy || !queue_sendable(queue) || device->lost)
            queue_wait_progress(device, deadline_ms);
        else
            queue_wait_socket(device, deadline_ms);
    }
    /* Others' items may be left: the I/O thread did not watch while this caller did. */
    if (--queue->pumpers == 0 && queue_sendable(queue) && io_urgent(device))
        io_wake(device);
}

void queue_drop(td_device *device) {
    struct queue *queue = &device->queue;
    struct sender *sender = &queue->sender;
    if (!sender->busy && sender->loaded)
        sender_unload(device, false);
    while (queue->first) {
        struct item *item = queue_pop(queue);
        queue->bytes -= item->bytes;
        if (item->kind == ITEM_BATCH)
            batch_give(&device->batches, (struct batch *)item);
        else if (item->kind == ITEM_UPLOAD)
            upload_end(device, (struct upload *)item);
        else if (item->kind == ITEM_FRAME_OWNED)
            free(item);
    }
    struct upload *kept = NULL;
    while (queue->uploads) {
        struct upload *upload = queue->uploads;
        queue->uploads = upload->next;
        if (sender->busy && upload == sender->upload)
            kept = upload;
        else
            upload_end(device, upload);
    }
    queue->uploads = kept;
    queue->uploads_last = &queue->uploads;
    if (kept) {
        kept->next = NULL;
        queue->uploads_last = &kept->next;
    }
    pthread_cond_broadcast(&queue->progress);
}
