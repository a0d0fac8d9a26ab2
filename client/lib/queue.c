#include "client/lib/queue.h"

void queue_init(struct queue *queue, size_t bytes_max, size_t chunk_bytes) {
    *queue = (struct queue){.bytes_max = bytes_max, .chunk_bytes = chunk_bytes};
    queue->last = &queue->first;
    queue->uploads_last = &queue->uploads;
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

struct item *queue_pop(struct queue *queue) {
    struct item *item = queue->first;
    queue->first = item->next;
    if (!queue->first)
        queue->last = &queue->first;
    item->queued = false;
    return item;
}

void queue_upload_taken(struct queue *queue, struct upload *upload, uint64_t bytes) {
    bool begun = upload->sent > 0;
    upload->sent += bytes;
    bool ends = upload->sent == upload->bytes;
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
}
