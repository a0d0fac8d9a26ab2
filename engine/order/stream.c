#include "engine/order/stream.h"

#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/order_impl.h"

/* ---- chunks of records ---- */

enum { STREAM_CHUNKS_KEPT = 64 };

static struct stream_chunk *chunk_create(uint32_t units) {
    struct stream_chunk *chunk = malloc(stream_chunk_bytes(units));
    if (chunk)
        chunk->units = units;
    return chunk;
}

/* One unit, of which some are kept. */
static struct stream_chunk *chunk_take(struct order *order) {
    if (!order->chunks_own) {
        pthread_mutex_lock(&order->lock);
        order->chunks_own = order->chunks;
        order->chunks = NULL;
        order->chunks_count = 0;
        pthread_mutex_unlock(&order->lock);
    }
    struct stream_chunk *chunk = order->chunks_own;
    if (!chunk)
        return chunk_create(1);
    order->chunks_own = chunk->next;
    return chunk;
}

void chunks_give(struct order *order, struct stream_chunk *chunks) {
    while (chunks) {
        struct stream_chunk *next = chunks->next;
        if (order->device->vtable->async && atomic_load(&order->broken)) {
            chunks->next = order->chunks_lost;
            order->chunks_lost = chunks;
        } else if (chunks->units == 1 && order->chunks_count < STREAM_CHUNKS_KEPT) {
            chunks->next = order->chunks;
            order->chunks = chunks;
            order->chunks_count++;
        } else {
            free(chunks);
        }
        chunks = next;
    }
}

/* ---- records ---- */

/* A record of so many bytes and the RECORD_CHUNK behind it. */
static bool chunk_fits(size_t used, size_t bytes) {
    return used + bytes + sizeof(struct record) <= STREAM_CHUNK_BYTES;
}

/* Moves the tail to a fresh chunk, for a record of so many bytes. The old chunk has room for the RECORD_CHUNK that says so. */
static int stream_grow(struct stream *stream, size_t bytes) {
    struct stream_chunk *chunk =
        chunk_fits(0, bytes) ? chunk_take(stream->order)
                             : chunk_create((uint32_t)((bytes + sizeof(struct record)) / STREAM_CHUNK_BYTES + 1));
    if (!chunk)
        return STATUS_NO_HOST_MEMORY;
    struct record_cursor *tail = &stream->queue.tail;
    const struct record_cursor fresh = {chunk, 0};
    if (tail->chunk) {
        record_at(tail)->kind = RECORD_CHUNK;
        tail->chunk->next = chunk;
    } else {
        stream->submit.at = stream->reap.at = fresh; /* never published: nobody else knows the stream yet */
    }
    *tail = fresh;
    atomic_fetch_add_explicit(&stream->chunks, chunk->units, memory_order_relaxed);
    return STATUS_OK;
}

struct record *stream_push(struct stream *stream, enum record_kind kind, size_t bytes, uint64_t weight) {
    struct stream_queue *queue = &stream->queue;
    bytes = (bytes + 15) & ~(size_t)15;
    if (!queue->tail.chunk || !chunk_fits(queue->tail.used, bytes))
        if (stream_grow(stream, bytes) != STATUS_OK)
            return NULL;
    struct record *record = record_at(&queue->tail);
    record->bytes = (uint32_t)bytes;
    record->kind = (uint8_t)kind;
    record->ends = 0;
    record->label = 0;
    record->sequence = stream->operation.sequence;
    record->weight = weight;
    if (!stream->touched.listed || stream->enqueued % STREAM_CLOCK_RECORDS == 0)
        queue->now_ns = clock_now();
    record->enqueued_ns = queue->now_ns;
    queue->tail.used += bytes;
    queue->weight += weight;
    queue->newest = record;
    stream->enqueued++;
    if (!stream->touched.listed) {
        stream->touched.listed = true;
        stream->touched.next = stream->order->touched;
        stream->order->touched = stream;
    }
    return record;
}

struct record *stream_next_record(struct stream *stream, struct record_cursor *cursor, struct stream_chunk **done) {
    struct record *record = record_at(cursor);
    if (record->kind == RECORD_CHUNK) {
        struct stream_chunk *left = cursor->chunk;
        *cursor = (struct record_cursor){left->next, 0};
        if (done) {
            left->next = *done;
            *done = left;
            atomic_fetch_sub_explicit(&stream->chunks, left->units, memory_order_relaxed);
        }
        record = record_at(cursor);
    }
    return record;
}

struct stream_position stream_position(const struct stream *stream) {
    return (struct stream_position){stream->queue.tail, stream->enqueued};
}

void stream_take_back(struct stream *stream, const struct stream_position *position) {
    struct record_cursor at = position->at.chunk ? position->at : stream->submit.at;
    for (uint64_t number = position->number; number < stream->enqueued; number++) {
        struct record *record = stream_next_record(stream, &at, NULL);
        at.used += record->bytes;
        if (record->kind == RECORD_REPLAY)
            replay_end(&record->replay, false);
        else if (!record_launches(record))
            continue;
        stream->queue.weight -= record->weight;
        record->weight = 0;
        record->kind = RECORD_NOTHING;
    }
}

/* ---- waits ---- */

enum { CERTAIN_STEPS = 256 }; /* points that stream_certain() looks at before it gives up */

static bool point_certain(const struct stream *stream, uint64_t number, int *steps) {
    if (point_reached(stream, number))
        return true;
    if (stream->outside || --*steps < 0)
        return false;
    if (stream->holds.crowded && stream->holds.crowded <= number && !point_reached(stream, stream->holds.crowded_last))
        return false;
    for (unsigned i = 0; i < stream->holds.count && stream->holds.hold[i].at <= number; i++)
        if (!point_reached(stream, stream->holds.hold[i].at) &&
            !point_certain(stream->holds.hold[i].stream, stream->holds.hold[i].number, steps))
            return false;
    return true;
}

bool stream_certain(const struct stream *stream, uint64_t number) {
    int steps = CERTAIN_STEPS;
    return point_certain(stream, number, &steps);
}

static void holds_drop(struct stream *stream) {
    unsigned kept = 0;
    for (unsigned i = 0; i < stream->holds.count; i++)
        if (!stream_certain(stream->holds.hold[i].stream, stream->holds.hold[i].number))
            stream->holds.hold[kept++] = stream->holds.hold[i];
    stream->holds.count = kept;
}

/* Notes the newest record, which waits for this point. */
static void holds_add(struct stream *stream, struct stream *other, uint64_t number) {
    if (stream_certain(other, number))
        return;
    if (stream->holds.count == STREAM_HOLDS)
        holds_drop(stream);
    if (stream->holds.count < STREAM_HOLDS) {
        stream->holds.hold[stream->holds.count++] = (struct stream_hold){stream->enqueued, other, number};
        return;
    }
    if (!stream->holds.crowded || point_reached(stream, stream->holds.crowded_last))
        stream->holds.crowded = stream->enqueued;
    stream->holds.crowded_last = stream->enqueued;
}

int stream_wait(struct stream *stream, struct stream *other, uint64_t number) {
    if (other == stream || point_reached(other, number))
        return STATUS_OK;
    struct record *record = stream_push(stream, RECORD_WAIT, sizeof *record, 0);
    if (!record)
        return STATUS_NO_HOST_MEMORY;
    holds_add(stream, other, number);
    record->wait.stream = other;
    record->wait.number = number;
    return STATUS_OK;
}

/* ---- streams, which are recycled ---- */

static struct stream *stream_create(struct order *order) {
    struct stream *stream = aligned_alloc(64, sizeof *stream);
    if (!stream)
        return NULL;
    memset(stream, 0, sizeof *stream);
    stream->order = order;
    atomic_init(&stream->completed, 0);
    atomic_init(&stream->chunks, 0);
    atomic_init(&stream->ops_done, 0);
    atomic_init(&stream->ops_skipped, 0);
    atomic_init(&stream->watched, UINT64_MAX);
    atomic_init(&stream->cancelled, false);
    stream->id = ++order->streams_made;
    pthread_mutex_lock(&order->lock); /* another thread may be looking for what a broken device was computing */
    stream->all_next = order->streams_all;
    order->streams_all = stream;
    pthread_mutex_unlock(&order->lock);
    return stream;
}

struct stream *stream_take(struct order *order, struct run_group *group, int priority) {
    struct stream **link = &order->streams_free;
    while (*link && !point_reached(*link, (*link)->enqueued))
        link = &(*link)->free_next;
    struct stream *stream = *link;
    if (stream)
        *link = stream->free_next;
    else
        stream = stream_create(order);
    if (!stream)
        return NULL;
    atomic_store(&stream->cancelled, false);
    stream->queue.ops_before = atomic_load_explicit(&stream->ops_done, memory_order_relaxed);
    stream->submit.worked = stream->submit.worked_ns = 0; /* another session's operations have the same numbers */
    pthread_mutex_lock(&order->lock);
    stream->device_ns_before = stream->device_ns;
    stream->group = group;
    stream->session = group->session;
    stream->role = 0;
    stream->turns.priority = priority > 0 ? 0 : priority == 0 ? 1 : 2;
    pthread_mutex_unlock(&order->lock);
    return stream;
}

void stream_give(struct stream *stream) {
    stream->free_next = stream->order->streams_free;
    stream->order->streams_free = stream;
}

/* With the lock held, so that neither the submitter nor the reaper uses the stream. */
static bool stream_rest(struct stream *stream) {
    bool through = point_reached(stream, stream->enqueued) && !stream->turns.runnable && !stream->reaping.listed &&
                   !stream->marks.count && !stream->touched.listed;
    if (!stream->queue.tail.chunk || !through)
        return through;
    free(stream->queue.tail.chunk);
    stream->queue.tail.chunk = stream->submit.at.chunk = stream->reap.at.chunk = NULL;
    stream->queue.newest = NULL;
    atomic_store_explicit(&stream->submit.running, NULL, memory_order_relaxed);
    atomic_store_explicit(&stream->chunks, 0, memory_order_relaxed);
    return true;
}

bool order_rest(struct order *order) {
    bool all = true;
    pthread_mutex_lock(&order->lock);
    for (struct stream *stream = order->streams_free; stream; stream = stream->free_next)
        all = stream_rest(stream) && all;
    pthread_mutex_unlock(&order->lock);
    return all;
}

struct stream *outside_take(struct order *order) {
    struct stream *stream = order->outsides_free;
    if (stream)
        order->outsides_free = stream->free_next;
    else
        stream = stream_create(order);
    if (stream)
        stream->outside = true;
    return stream;
}

void outside_give(struct stream *stream) {
    stream->free_next = stream->order->outsides_free;
    stream->order->outsides_free = stream;
}

void outside_reached(struct stream *stream) {
    struct order *order = stream->order;
    atomic_store_explicit(&stream->completed, stream->enqueued, memory_order_release);
    order->kick_needed = true;
    pthread_mutex_lock(&order->lock);
    order->outside_moved = true;
    atomic_store_explicit(&order->wanted, true, memory_order_relaxed);
    pthread_mutex_unlock(&order->lock);
    if (stream->waiters.first)
        order_signal_self(order, stream);
}

/* ---- memory's last uses ---- */

static void uses_drop(struct uses *uses) {
    unsigned kept = 0;
    for (unsigned i = 0; i < uses->count; i++)
        if (!point_reached(uses->use[i].stream, uses->use[i].number))
            uses->use[kept++] = uses->use[i];
    uses->count = kept;
}

bool uses_add(struct uses *uses, struct stream *stream, uint64_t number) {
    for (unsigned i = 0; i < uses->count; i++)
        if (uses->use[i].stream == stream) {
            if (uses->use[i].number < number)
                uses->use[i].number = number;
            return true;
        }
    if (uses->count == USES_MAX)
        uses_drop(uses);
    if (uses->count == USES_MAX)
        return false;
    uses->use[uses->count++] = (struct use){stream, number};
    return true;
}

bool uses_join(struct uses *uses, const struct uses *more) {
    struct uses joined = *uses;
    for (unsigned i = 0; i < more->count; i++)
        if (!uses_add(&joined, more->use[i].stream, more->use[i].number))
            return false;
    *uses = joined;
    return true;
}

bool uses_idle(struct uses *uses) {
    if (uses->count)
        uses_drop(uses);
    return uses->count == 0;
}

bool use_list_runs(struct use_list *list) {
    unsigned kept = 0;
    for (unsigned i = 0; i < list->n; i++)
        if (!point_reached(list->uses[i].stream, list->uses[i].number))
            list->uses[kept++] = list->uses[i];
    list->n = kept;
    return kept > 0 || list->stays;
}

void use_list_note(struct use_list *list, struct stream *stream, uint64_t number) {
    for (unsigned i = 0; i < list->n; i++)
        if (list->uses[i].stream == stream) {
            list->uses[i].number = number;
            return;
        }
    if (list->n == list->capacity)
        use_list_runs(list);
    if (list->n == list->capacity) {
        unsigned capacity = list->capacity ? 2 * list->capacity : 4;
        struct use *uses = realloc(list->uses, capacity * sizeof *uses);
        if (!uses) {
            list->stays = true;
            return;
        }
        list->uses = uses;
        list->capacity = capacity;
    }
    list->uses[list->n++] = (struct use){stream, number};
}
