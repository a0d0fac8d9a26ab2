#include "client/lib/sender.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/lib/control.h"
#include "client/lib/device.h"
#include "client/lib/frame.h"

enum {
    SMALL_MAX = 8 << 10,  /* larger frames are not copied into the journal */
    LOAD_FRAMES_MAX = 20, /* frames of one load behind its batch; the parts of a system call are limited */
    CHUNK_MESSAGE_MAX = 32,
};

bool sender_init(struct sender *sender, size_t copies_max, bool keeps) {
    *sender = (struct sender){.broken = false};
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&sender->progress, &attributes);
    pthread_condattr_destroy(&attributes);
    bool memory = journal_init(&sender->journal, copies_max);
    sender->journal.keeps = keeps;
    return memory;
}

void sender_finish(struct sender *sender) {
    journal_finish(&sender->journal);
    pthread_cond_destroy(&sender->progress);
}

/* Whether the journal has room for the next load. */
static bool sender_load_fits(const td_device *device) {
    const struct item *first = device->queue.first;
    bool batch = first && first->kind == ITEM_BATCH;
    return journal_room(&device->sender.journal, batch ? batch_packed_max((const struct batch *)first) : SMALL_MAX);
}

static bool sender_loadable(const td_device *device) {
    return (device->queue.uploads || queue_first_open(&device->queue)) && sender_load_fits(device);
}

/* Whether the socket has not taken everything that was loaded. */
static bool sender_unsent(const struct sender *sender) {
    return journal_unsent(&sender->journal) || sender->unflushed;
}

bool sender_has_work(const td_device *device) {
    return !device->sender.broken && (sender_unsent(&device->sender) || sender_loadable(device));
}

bool sender_needs_io(const td_device *device) {
    return !device->lost && sender_has_work(device) && !device->sender.busy && !device->sender.pumpers;
}

bool sender_is_done(const td_device *device) {
    return queue_empty(&device->queue) && !sender_unsent(&device->sender);
}

bool sender_stuck(const td_device *device) {
    const struct sender *sender = &device->sender;
    return sender->journal.keeps && !sender->broken && !queue_empty(&device->queue) && !sender_load_fits(device);
}

void sender_notify(td_device *device) {
    if (device->sender.waiters)
        pthread_cond_broadcast(&device->sender.progress);
}

static void completion_upload(struct completion *completion) {
    struct upload *upload = (struct upload *)((char *)completion - offsetof(struct upload, completion));
    upload->done(upload->user);
    free(upload);
}

/* The upload's data is not needed any more: it was sent, or will never be sent. */
static void upload_end(td_device *device, struct upload *upload) {
    if (upload->waited) {
        upload->finished = true;
        pthread_cond_broadcast(&device->sender.progress);
    } else if (upload->done) {
        upload->completion.run = completion_upload;
        io_complete(&device->io, &upload->completion);
    } else {
        free(upload);
    }
}

/* ---- loading: items become entries of the journal ---- */

/* The entry gets the next bytes of the upload as its payload. */
static void load_payload(td_device *device, struct upload *upload, struct journal_entry *entry) {
    uint64_t chunk = device->queue.chunk_bytes;
    uint64_t left = upload->bytes - upload->sent;
    entry->payload = upload->data + upload->sent;
    entry->payload_bytes = left < chunk ? left : chunk;
    entry->upload = entry->payload_bytes == left ? upload : NULL;
    if (upload->sent == 0 && !upload->waited && !upload->done) {
        device->sender.journal.copies += upload->item.bytes;
        device->sender.journal.unlooked += upload->item.bytes;
    }
}

/* These bytes are in the journal; `end` is the position behind them. */
static void load_uploaded(td_device *device, struct upload *upload, const struct journal_entry *entry, uint64_t end) {
    queue_upload_taken(&device->queue, upload, entry->payload_bytes);
    if (!entry->upload)
        return;
    upload->end = end;
    device->sender.ask = device->sender.ask || upload->done;
}

/* Loads the first item, which is not a batch. */
static void load_item(td_device *device) {
    struct sender *sender = &device->sender;
    struct item *item = queue_pop(&device->queue);
    struct upload *upload = item->kind == ITEM_UPLOAD ? (struct upload *)item : NULL;
    bool large = item->frame_bytes > SMALL_MAX;
    struct journal_entry entry = {.bytes = large ? 0 : (uint32_t)item->frame_bytes, .counted = !item->uncounted};
    uint8_t *place = journal_reserve(&sender->journal, entry.bytes);
    sender->charge += item->bytes;
    trace_frames("->", item->frame, item->frame_bytes);
    if (large)
        entry.large = (struct frame_item *)item;
    else
        memcpy(place, item->frame, item->frame_bytes);
    if (upload)
        load_payload(device, upload, &entry);
    if (item->request) {
        item->request->sent = true;
        item->request->frames = sender->journal.frames;
    }
    uint64_t end = journal_commit(&sender->journal, &entry);
    if (upload)
        load_uploaded(device, upload, &entry, end);
    else if (item->kind == ITEM_FRAME_OWNED && !large)
        free(item);
}

/* Loads the first item, which is a batch. Gives up the lock while it packs. */
static void load_batch(td_device *device) {
    struct queue *queue = &device->queue;
    struct sender *sender = &device->sender;
    struct batch *batch = (struct batch *)queue_pop(queue);
    struct journal_entry entry = {.counted = true};
    uint8_t *place = journal_reserve(&sender->journal, batch_packed_max(batch));
    sender->charge += batch->item.bytes;
    pthread_mutex_unlock(&device->lock);
    entry.bytes = (uint32_t)batch_pack(batch, place);
    pthread_mutex_lock(&device->lock);
    journal_commit(&sender->journal, &entry);
    batches_give(&device->batches, batch);
}

/* A batch and the small frames after it go out in one system call; an upload's first chunk ends the load, and so does
 * a large frame. */
static void load_items(td_device *device) {
    struct queue *queue = &device->queue;
    struct sender *sender = &device->sender;
    bool more = true;
    if (queue->first->kind == ITEM_BATCH)
        load_batch(device);
    for (unsigned n = 0; more && n < LOAD_FRAMES_MAX && queue_first_open(queue) && queue->first->kind != ITEM_BATCH &&
                         journal_room(&sender->journal, SMALL_MAX);
         n++) {
        more = queue->first->kind != ITEM_UPLOAD && queue->first->frame_bytes <= SMALL_MAX;
        load_item(device);
    }
}

static void load_chunk(td_device *device) {
    struct sender *sender = &device->sender;
    struct upload *upload = device->queue.uploads;
    struct journal_entry entry = {.counted = true};
    load_payload(device, upload, &entry);
    Tensord__UploadChunk chunk = TENSORD__UPLOAD_CHUNK__INIT;
    chunk.id = upload->id;
    chunk.offset = upload->sent;
    uint8_t *frame = journal_reserve(&sender->journal, FRAME_HEADER_BYTES + CHUNK_MESSAGE_MAX);
    size_t bytes = tensord__upload_chunk__pack(&chunk, frame + FRAME_HEADER_BYTES);
    struct frame_header header = {
        .type = FRAME_UPLOAD_CHUNK, .message_bytes = (uint32_t)bytes, .payload_bytes = entry.payload_bytes};
    frame_header_encode(&header, frame);
    trace_frames("->", frame, FRAME_HEADER_BYTES + bytes);
    entry.bytes = (uint32_t)(FRAME_HEADER_BYTES + bytes);
    load_uploaded(device, upload, &entry, journal_commit(&sender->journal, &entry));
}

/* Loads the next items or chunk, if there are any and the journal has room. Gives up the lock for a while. */
static bool sender_load(td_device *device) {
    struct queue *queue = &device->queue;
    struct sender *sender = &device->sender;
    if (!sender_loadable(device))
        return false;
    if (queue_first_open(queue) && !(queue->uploads && sender->turn)) {
        load_items(device);
        sender->turn = true;
    } else {
        load_chunk(device);
        sender->turn = false;
    }
    return true;
}

/* ---- sending ---- */

/* Removes the entries of the journal that are not needed any more, and frees what they needed. */
static void sender_retire(td_device *device) {
    struct journal *journal = &device->sender.journal;
    struct journal_entry *entry;
    while ((entry = journal_stale(journal))) {
        struct upload *upload = entry->upload;
        free(entry->large);
        if (upload && !upload->waited && !upload->done)
            journal->copies -= upload->item.bytes;
        if (upload)
            upload_end(device, upload);
        journal_pop(journal);
    }
}

bool sender_handled(td_device *device, uint64_t frames) {
    struct sender *sender = &device->sender;
    bool stuck = sender_stuck(device);
    if (!journal_handled(&sender->journal, frames))
        return false;
    sender_retire(device);
    if (stuck && sender_has_work(device) && io_urgent(&device->io))
        io_wake(&device->io);
    return true;
}

/* One system call, or with TLS a few, without the lock. 0, or an errno. */
static int sender_send(td_device *device) {
    struct queue *queue = &device->queue;
    struct sender *sender = &device->sender;
    struct transport *transport = &device->transport;
    struct iovec parts[JOURNAL_PARTS];
    size_t n = journal_unsent(&sender->journal) ? journal_gather(&sender->journal, parts) : 0;
    pthread_mutex_unlock(&device->lock);
    ssize_t sent = n ? transport_write(transport, parts, n) : 0;
    int error = sent < 0 ? errno : n ? 0 : transport_flush(transport);
    pthread_mutex_lock(&device->lock);
    sender->unflushed = transport_unsent(transport);
    if (error)
        return error == EWOULDBLOCK ? EAGAIN : error;
    journal_advance(&sender->journal, (size_t)sent);
    if (!journal_unsent(&sender->journal)) {
        queue->bytes -= sender->charge;
        sender->charge = 0;
    }
    sender_retire(device);
    return 0;
}

/* Reads from time to time, because an Ack may have come while no thread reads. */
static void sender_look(td_device *device) {
    struct journal *journal = &device->sender.journal;
    if (!journal->keeps || journal->unlooked < JOURNAL_LOOK_BYTES)
        return;
    journal->unlooked = 0;
    reader_look(device);
}

static void sender_broken(td_device *device, int error) {
    struct sender *sender = &device->sender;
    /* The daemon may have said why before it closed: the reader will find that. It would not notice other errors. */
    sender->broken = true;
    if (error != EPIPE && error != ECONNRESET) {
        sender->error = error;
        transport_hang_up(&device->transport);
    }
    if (io_urgent(&device->io))
        io_wake(&device->io);
}

void sender_pump(td_device *device) {
    struct sender *sender = &device->sender;
    if (sender->busy)
        return;
    sender->busy = true;
    while (!device->lost && !sender->broken && (sender_unsent(sender) || sender_load(device))) {
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
        sender_drop(device);
        pending_fail_all(device, &device->cause);
    }
    if (sender->ask && sender->journal.keeps)
        pending_ping(device);
    sender->ask = false;
    /* Only an Ack can help now: the I/O thread must read, so it must not sleep. */
    if (device->io.state == IO_ASLEEP && !device->io.in && sender_stuck(device) && io_urgent(&device->io))
        io_wake(&device->io);
    sender_notify(device);
}

/* Another thread is the sender, or there is no connection: sleeps until that changes. */
static void sender_wait_progress(td_device *device, int64_t deadline_ms) {
    struct sender *sender = &device->sender;
    sender->waiters++;
    if (deadline_ms == INT64_MAX) {
        pthread_cond_wait(&sender->progress, &device->lock);
    } else {
        struct timespec until = {.tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000};
        pthread_cond_timedwait(&sender->progress, &device->lock, &until);
    }
    sender->waiters--;
}

static bool upload_sent(const struct sender *sender, const struct upload *upload) {
    return upload->finished || (upload->end && sender->journal.cursor >= upload->end);
}

/* The thread that ends the connection shuts the socket down, which ends this poll(), and waits for that (sender_wait_roles()). */
static void sender_wait_socket(td_device *device, int64_t deadline_ms) {
    struct sender *sender = &device->sender;
    int timeout = -1;
    if (deadline_ms != INT64_MAX) {
        int64_t left = deadline_ms - control_now_ms();
        timeout = left > 0 ? (int)left : 0;
    }
    sender->polling++;
    pthread_mutex_unlock(&device->lock);
    struct pollfd entry = {.fd = device->transport.fd, .events = POLLOUT};
    poll(&entry, 1, timeout);
    pthread_mutex_lock(&device->lock);
    if (--sender->polling == 0)
        sender_notify(device);
}

void sender_pump_wait(td_device *device, const struct upload *upload, int64_t deadline_ms) {
    struct sender *sender = &device->sender;
    sender->pumpers++;
    for (;;) {
        sender_pump(device);
        if (upload ? upload_sent(sender, upload) || device->lost : device->lost || sender_is_done(device))
            break;
        if (deadline_ms != INT64_MAX && control_now_ms() >= deadline_ms)
            break;
        if (sender->busy || !sender_has_work(device) || device->lost)
            sender_wait_progress(device, deadline_ms);
        else
            sender_wait_socket(device, deadline_ms);
    }
    /* Items of other threads may be left: the I/O thread did not watch the socket while this caller did. */
    if (--sender->pumpers == 0 && sender_has_work(device) && io_urgent(&device->io))
        io_wake(&device->io);
}

void sender_wait_finished(td_device *device, const struct upload *upload) {
    while (!upload->finished)
        sender_wait_progress(device, INT64_MAX);
}

void sender_wait_roles(td_device *device) {
    while (device->sender.busy || device->sender.polling || device->reader.busy)
        sender_wait_progress(device, INT64_MAX);
}

static void load_drop(struct frame_item *frame) {
    free(frame);
}

int sender_rewind(td_device *device, uint64_t frames, uint64_t bytes, uint64_t *repeated, struct fault *fault) {
    struct sender *sender = &device->sender;
    struct journal *journal = &sender->journal;
    sender->unflushed = false;       /* bytes that the old connection still had are lost, and are sent again */
    journal->cursor = journal->head; /* all frames count as sent, so that the handled ones can be removed */
    (void)sender_handled(device, frames);
    if (!journal_rewind(journal, bytes, load_drop))
        return fault_set(fault, STATUS_PROTOCOL, "the daemon has %llu bytes of message %llu, which has less",
                         (unsigned long long)bytes, (unsigned long long)frames + 1);
    *repeated = journal->frames - frames;
    sender->broken = false;
    sender->error = 0;
    return 0;
}

void sender_drop(td_device *device) {
    struct queue *queue = &device->queue;
    struct sender *sender = &device->sender;
    if (sender->busy)
        return;
    journal_abandon(&sender->journal);
    sender->unflushed = false;
    sender_retire(device);
    queue->bytes -= sender->charge;
    sender->charge = 0;
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
    pthread_cond_broadcast(&sender->progress);
}
