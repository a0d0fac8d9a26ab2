#include "client/lib/queue.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/lib/control.h"
#include "client/lib/device.h"
#include "client/lib/trace.h"

enum {
    SMALL_MAX = 8 << 10,  /* larger frames are not copied into the journal */
    LOAD_FRAMES_MAX = 20, /* behind a batch; of one system call's parts */
    CHUNK_MESSAGE_MAX = 32,
};

bool queue_init(struct queue *queue, size_t bytes_max, size_t chunk_bytes) {
    *queue = (struct queue){.bytes_max = bytes_max, .chunk_bytes = chunk_bytes};
    queue->last = &queue->first;
    queue->uploads_last = &queue->uploads;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->progress, &attributes);
    pthread_condattr_destroy(&attributes);
    return journal_init(&queue->journal, bytes_max);
}

void queue_finish(struct queue *queue) {
    journal_finish(&queue->journal);
    pthread_cond_destroy(&queue->progress);
}

void queue_push(struct queue *queue, struct item *item) {
    queue->bytes += item->bytes;
    item->queued = true;
    item->next = NULL;
    *queue->last = item;
    queue->last = &item->next;
}

void queue_push_front(struct queue *queue, struct item *item, struct item *after) {
    struct item **place = after ? &after->next : &queue->first;
    queue->bytes += item->bytes;
    item->queued = true;
    item->next = *place;
    *place = item;
    if (!item->next)
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

/* Whether the journal has room for the next load. */
static bool queue_load_fits(const struct queue *queue) {
    const struct item *first = queue->first;
    bool batch = first && first->kind == ITEM_BATCH;
    return journal_room(&queue->journal, batch ? batch_packed_max((const struct batch *)first) : SMALL_MAX);
}

static bool queue_loadable(const struct queue *queue) {
    return (queue->uploads || queue_first_open(queue)) && queue_load_fits(queue);
}

/* Something has been loaded that the socket does not have. */
static bool queue_unsent(const struct queue *queue) {
    return journal_unsent(&queue->journal) || queue->unflushed;
}

bool queue_sendable(const struct queue *queue) {
    return !queue->broken && (queue_unsent(queue) || queue_loadable(queue));
}

bool queue_idle(const struct queue *queue) {
    return !queue->first && !queue->uploads && !queue_unsent(queue);
}

bool queue_stuck(const struct queue *queue) {
    return queue->journal.keeps && !queue->broken && (queue->uploads || queue->first) && !queue_load_fits(queue);
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
        io_complete(&device->io, &upload->completion);
    } else {
        free(upload);
    }
}

/* ---- loading: items become entries of the journal ---- */

/* The entry brings the next bytes of the upload. */
static void load_payload(struct queue *queue, struct upload *upload, struct journal_entry *entry) {
    uint64_t left = upload->bytes - upload->sent;
    entry->payload = upload->data + upload->sent;
    entry->payload_bytes = left < queue->chunk_bytes ? left : queue->chunk_bytes;
    entry->upload = entry->payload_bytes == left ? upload : NULL;
    if (upload->sent == 0 && !upload->waited && !upload->done) {
        queue->journal.held += upload->item.bytes;
        queue->journal.unlooked += upload->item.bytes;
    }
}

/* They are in the journal, where `end` is behind them: the upload goes on to its next chunk, or none. */
static void load_uploaded(struct queue *queue, struct upload *upload, const struct journal_entry *entry, uint64_t end) {
    bool begun = upload->sent > 0, ends = entry->upload;
    upload->sent += entry->payload_bytes;
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
        upload->end = end;
    queue->ask = queue->ask || (ends && upload->done);
}

/* The first item, which is no batch. */
static void load_item(struct queue *queue) {
    struct item *item = queue_pop(queue);
    struct upload *upload = item->kind == ITEM_UPLOAD ? (struct upload *)item : NULL;
    bool large = item->frame_bytes > SMALL_MAX;
    struct journal_entry entry = {.bytes = large ? 0 : (uint32_t)item->frame_bytes, .counted = !item->uncounted};
    uint8_t *place = journal_reserve(&queue->journal, entry.bytes);
    queue->sender.charge += item->bytes;
    trace_frames("->", item->frame, item->frame_bytes);
    if (large)
        entry.large = (struct frame_item *)item;
    else
        memcpy(place, item->frame, item->frame_bytes);
    if (upload)
        load_payload(queue, upload, &entry);
    if (item->request) {
        item->request->sent = true;
        item->request->frames = queue->journal.frames;
    }
    uint64_t end = journal_commit(&queue->journal, &entry);
    if (upload)
        load_uploaded(queue, upload, &entry, end);
    else if (item->kind == ITEM_FRAME_OWNED && !large)
        free(item);
}

/* Without the lock while it packs. */
static void load_batch(td_device *device) {
    struct queue *queue = &device->queue;
    struct batch *batch = (struct batch *)queue_pop(queue);
    struct journal_entry entry = {.counted = true};
    uint8_t *place = journal_reserve(&queue->journal, batch_packed_max(batch));
    queue->sender.charge += batch->item.bytes;
    pthread_mutex_unlock(&device->lock);
    entry.bytes = (uint32_t)batch_pack(batch, place);
    pthread_mutex_lock(&device->lock);
    journal_commit(&queue->journal, &entry);
    batches_give(&device->batches, batch);
}

/* A batch and the small frames after it go out in one system call; an upload's first chunk ends the load, and so does
 * a large frame. */
static void load_items(td_device *device) {
    struct queue *queue = &device->queue;
    bool more = true;
    if (queue->first->kind == ITEM_BATCH)
        load_batch(device);
    for (unsigned n = 0; more && n < LOAD_FRAMES_MAX && queue_first_open(queue) && queue->first->kind != ITEM_BATCH &&
                         journal_room(&queue->journal, SMALL_MAX);
         n++) {
        more = queue->first->kind != ITEM_UPLOAD && queue->first->frame_bytes <= SMALL_MAX;
        load_item(queue);
    }
}

static void load_chunk(struct queue *queue) {
    struct upload *upload = queue->uploads;
    struct journal_entry entry = {.counted = true};
    load_payload(queue, upload, &entry);
    Tensord__UploadChunk chunk = TENSORD__UPLOAD_CHUNK__INIT;
    chunk.id = upload->id;
    chunk.offset = upload->sent;
    uint8_t *frame = journal_reserve(&queue->journal, FRAME_HEADER_BYTES + CHUNK_MESSAGE_MAX);
    size_t bytes = tensord__upload_chunk__pack(&chunk, frame + FRAME_HEADER_BYTES);
    struct frame_header header = {
        .type = FRAME_UPLOAD_CHUNK, .message_bytes = (uint32_t)bytes, .payload_bytes = entry.payload_bytes};
    frame_header_encode(&header, frame);
    trace_frames("->", frame, FRAME_HEADER_BYTES + bytes);
    entry.bytes = (uint32_t)(FRAME_HEADER_BYTES + bytes);
    load_uploaded(queue, upload, &entry, journal_commit(&queue->journal, &entry));
}

/* The next load, if there is one and room for it. Gives up the lock for a while. */
static bool sender_load(td_device *device) {
    struct queue *queue = &device->queue;
    if (!queue_loadable(queue))
        return false;
    if (queue_first_open(queue) && !(queue->uploads && queue->turn)) {
        load_items(device);
        queue->turn = true;
    } else {
        load_chunk(queue);
        queue->turn = false;
    }
    return true;
}

/* ---- sending ---- */

/* Gives back what entries of the journal needed that are of no use any more. */
static void queue_retire(td_device *device) {
    struct journal *journal = &device->queue.journal;
    struct journal_entry *entry;
    while ((entry = journal_stale(journal))) {
        struct upload *upload = entry->upload;
        free(entry->large);
        if (upload && !upload->waited && !upload->done)
            journal->held -= upload->item.bytes;
        if (upload)
            upload_end(device, upload);
        journal_pop(journal);
    }
}

bool queue_handled(td_device *device, uint64_t frames) {
    struct queue *queue = &device->queue;
    bool stuck = queue_stuck(queue);
    if (!journal_handled(&queue->journal, frames))
        return false;
    queue_retire(device);
    if (stuck && queue_sendable(queue) && io_urgent(&device->io))
        io_wake(&device->io);
    return true;
}

/* One system call, or with TLS a few, without the lock. 0, or an errno. */
static int sender_send(td_device *device) {
    struct queue *queue = &device->queue;
    struct transport *transport = &device->transport;
    struct iovec parts[JOURNAL_PARTS];
    size_t n = journal_unsent(&queue->journal) ? journal_gather(&queue->journal, parts) : 0;
    pthread_mutex_unlock(&device->lock);
    ssize_t sent = n ? transport_write(transport, parts, n) : 0;
    int error = sent < 0 ? errno : n ? 0 : transport_flush(transport);
    pthread_mutex_lock(&device->lock);
    queue->unflushed = transport_unsent(transport);
    if (error)
        return error == EWOULDBLOCK ? EAGAIN : error;
    journal_advance(&queue->journal, (size_t)sent);
    if (!journal_unsent(&queue->journal)) {
        queue->bytes -= queue->sender.charge;
        queue->sender.charge = 0;
    }
    queue_retire(device);
    return 0;
}

/* Looks whether the daemon has said what it has handled, once in a while: nobody may be reading. */
static void sender_look(td_device *device) {
    struct journal *journal = &device->queue.journal;
    if (!journal->keeps || journal->unlooked < JOURNAL_LOOK_BYTES)
        return;
    journal->unlooked = 0;
    pending_look(device);
}

static void sender_broken(td_device *device, int error) {
    struct queue *queue = &device->queue;
    /* The daemon may have said why before it closed: the reader tells. Of other errors it would not hear. */
    queue->broken = true;
    if (error != EPIPE && error != ECONNRESET) {
        queue->error = error;
        transport_hang_up(&device->transport);
    }
    if (io_urgent(&device->io))
        io_wake(&device->io);
}

void queue_pump(td_device *device) {
    struct queue *queue = &device->queue;
    struct sender *sender = &queue->sender;
    if (sender->busy)
        return;
    sender->busy = true;
    while (!device->lost && !queue->broken && (queue_unsent(queue) || sender_load(device))) {
        int error = sender_send(device);
        if (error == EAGAIN)
            break;
        if (error)
            sender_broken(device, error);
        else
            sender_look(device);
    }
    sender->busy = false;
    if (device->lost) {
        queue_drop(device);
        pending_fail_all(device, &device->cause);
    }
    if (queue->ask && queue->journal.keeps)
        pending_ping(device);
    queue->ask = false;
    /* Only a reader can help now, and the I/O thread looks for one's work when it does not sleep. */
    if (device->io.state == IO_ASLEEP && !device->io.in && queue_stuck(queue) && io_urgent(&device->io))
        io_wake(&device->io);
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

static bool upload_sent(const struct queue *queue, const struct upload *upload) {
    return upload->finished || (upload->end && queue->journal.cursor >= upload->end);
}

/* Whoever ends the connection shuts the socket down, which ends the poll, and waits for that (queue_wait_roles). */
static void queue_wait_socket(td_device *device, int64_t deadline_ms) {
    struct queue *queue = &device->queue;
    int timeout = -1;
    if (deadline_ms != INT64_MAX) {
        int64_t left = deadline_ms - control_now_ms();
        timeout = left > 0 ? (int)left : 0;
    }
    queue->polling++;
    pthread_mutex_unlock(&device->lock);
    struct pollfd entry = {.fd = device->transport.fd, .events = POLLOUT};
    poll(&entry, 1, timeout);
    pthread_mutex_lock(&device->lock);
    if (--queue->polling == 0 && queue->waiters)
        pthread_cond_broadcast(&queue->progress);
}

void queue_pump_wait(td_device *device, const struct upload *upload, int64_t deadline_ms) {
    struct queue *queue = &device->queue;
    queue->pumpers++;
    for (;;) {
        queue_pump(device);
        if (upload ? upload_sent(queue, upload) || device->lost : device->lost || queue_idle(queue))
            break;
        if (deadline_ms != INT64_MAX && control_now_ms() >= deadline_ms)
            break;
        if (queue->sender.busy || !queue_sendable(queue) || device->lost)
            queue_wait_progress(device, deadline_ms);
        else
            queue_wait_socket(device, deadline_ms);
    }
    /* Others' items may be left: the I/O thread did not watch while this caller did. */
    if (--queue->pumpers == 0 && queue_sendable(queue) && io_urgent(&device->io))
        io_wake(&device->io);
}

void queue_wait_finished(td_device *device, const struct upload *upload) {
    while (!upload->finished)
        queue_wait_progress(device, INT64_MAX);
}

void queue_wait_roles(td_device *device) {
    while (device->queue.sender.busy || device->queue.polling || device->pending.reading)
        queue_wait_progress(device, INT64_MAX);
}

void queue_drop(td_device *device) {
    struct queue *queue = &device->queue;
    if (queue->sender.busy)
        return;
    journal_abandon(&queue->journal);
    queue->unflushed = false;
    queue_retire(device);
    queue->bytes -= queue->sender.charge;
    queue->sender.charge = 0;
    while (queue->first) {
        struct item *item = queue_pop(queue);
        queue->bytes -= item->bytes;
        if (item->kind == ITEM_BATCH)
            batches_give(&device->batches, (struct batch *)item);
        else if (item->kind == ITEM_UPLOAD)
            upload_end(device, (struct upload *)item);
        else if (item->kind == ITEM_FRAME_OWNED)
            free(item);
    }
    while (queue->uploads) {
        struct upload *upload = queue->uploads;
        queue->uploads = upload->next;
        upload_end(device, upload);
    }
    queue->uploads_last = &queue->uploads;
    pthread_cond_broadcast(&queue->progress);
}
