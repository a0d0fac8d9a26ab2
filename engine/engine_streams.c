/* Streams, their chunks, groups and shares: made, taken from what is in reserve, and given back; and whom they tell of what they
 * have reached. */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/engine_impl.h"

void engine_touch(struct engine *engine, struct stream *stream) {
    stream->touched = true;
    stream->touched_next = engine->touched;
    engine->touched = stream;
}

struct stream_chunk *engine_chunk_take(struct engine *engine) {
    if (!engine->chunks_own) {
        pthread_mutex_lock(&engine->lock);
        engine->chunks_own = engine->chunks;
        engine->chunks = NULL;
        engine->chunks_count = 0;
        pthread_mutex_unlock(&engine->lock);
    }
    struct stream_chunk *chunk = engine->chunks_own;
    if (chunk)
        engine->chunks_own = chunk->next;
    else
        chunk = malloc(sizeof *chunk);
    return chunk;
}

static struct stream *engine_stream_create(struct engine *engine) {
    struct stream *stream = aligned_alloc(64, sizeof *stream);
    if (!stream)
        return NULL;
    memset(stream, 0, sizeof *stream);
    stream->engine = engine;
    atomic_init(&stream->completed, 0);
    atomic_init(&stream->chunks, 0);
    atomic_init(&stream->ops_done, 0);
    atomic_init(&stream->ops_skipped, 0);
    atomic_init(&stream->watched, UINT64_MAX);
    atomic_init(&stream->cancelled, false);
    stream->id = ++engine->streams_made;
    pthread_mutex_lock(&engine->lock); /* whoever looks for what a broken device was at may be another thread */
    stream->all_next = engine->streams_all;
    engine->streams_all = stream;
    pthread_mutex_unlock(&engine->lock);
    return stream;
}

struct run_group *engine_group_take(struct engine *engine, struct run_share *share) {
    struct run_group *group = engine->groups_free;
    if (group)
        engine->groups_free = group->free_next;
    else if (!(group = calloc(1, sizeof *group)))
        return NULL;
    pthread_mutex_lock(&engine->lock);
    group->share = share;
    pthread_mutex_unlock(&engine->lock);
    return group;
}

void engine_group_give(struct engine *engine, struct run_group *group) {
    group->free_next = engine->groups_free;
    engine->groups_free = group;
    if (group->joiner)
        engine_stream_give(engine, group->joiner);
    group->joiner = NULL;
}

struct run_share *engine_share_take(struct engine *engine, uint32_t weight) {
    struct run_share **link = &engine->shares_free;
    pthread_mutex_lock(&engine->lock);
    while (*link && ((*link)->queued || (*link)->running)) /* by what its last owner has left */
        link = &(*link)->free_next;
    pthread_mutex_unlock(&engine->lock);
    struct run_share *share = *link;
    if (share)
        *link = share->free_next;
    else if (!(share = calloc(1, sizeof *share)))
        return NULL;
    pthread_mutex_lock(&engine->lock);
    turns_reset(&engine->run, share, weight);
    pthread_mutex_unlock(&engine->lock);
    return share;
}

void engine_share_give(struct engine *engine, struct run_share *share) {
    share->free_next = engine->shares_free;
    engine->shares_free = share;
}

struct stream *engine_stream_take(struct engine *engine, struct run_group *group, int priority) {
    struct stream **link = &engine->streams_free;
    while (*link && !point_reached(*link, (*link)->enqueued))
        link = &(*link)->free_next;
    struct stream *stream = *link;
    if (stream)
        *link = stream->free_next;
    else
        stream = engine_stream_create(engine);
    if (!stream)
        return NULL;
    atomic_store(&stream->cancelled, false);
    stream->ops_before = atomic_load_explicit(&stream->ops_done, memory_order_relaxed);
    stream->worked = stream->worked_ns = 0; /* another session's operations have the same numbers */
    pthread_mutex_lock(&engine->lock);
    stream->device_ns_before = stream->device_ns;
    stream->group = group;
    stream->session = group->session;
    stream->role = 0;
    stream->priority = priority > 0 ? 0 : priority == 0 ? 1 : 2;
    pthread_mutex_unlock(&engine->lock);
    return stream;
}

void engine_stream_give(struct engine *engine, struct stream *stream) {
    stream->free_next = engine->streams_free;
    engine->streams_free = stream;
}

/* With the lock held, so that the submitter and the reaper are not at it. */
static bool stream_rest(struct stream *stream) {
    bool through = point_reached(stream, stream->enqueued) && !stream->runnable && !stream->reaping &&
                   !stream->marks_count && !stream->touched;
    if (!stream->tail || !through)
        return through;
    free(stream->tail);
    stream->tail = stream->head = stream->reap_head = NULL;
    stream->newest = NULL;
    atomic_store_explicit(&stream->running, NULL, memory_order_relaxed);
    atomic_store_explicit(&stream->chunks, 0, memory_order_relaxed);
    return true;
}

bool engine_streams_rest(struct engine *engine) {
    bool all = true;
    pthread_mutex_lock(&engine->lock);
    for (struct stream *stream = engine->streams_free; stream; stream = stream->free_next)
        all = stream_rest(stream) && all;
    pthread_mutex_unlock(&engine->lock);
    return all;
}

struct stream *engine_outside_take(struct engine *engine) {
    struct stream *stream = engine->outsides_free;
    if (stream)
        engine->outsides_free = stream->free_next;
    else
        stream = engine_stream_create(engine);
    if (stream)
        stream->outside = true;
    return stream;
}

void engine_outside_give(struct engine *engine, struct stream *stream) {
    stream->free_next = engine->outsides_free;
    engine->outsides_free = stream;
}

void engine_signal(struct engine *engine, struct stream *stream) {
    if (stream->signalled)
        return;
    stream->signalled = true;
    stream->signal_next = engine->signalled;
    engine->signalled = stream;
}

void engine_tell(struct engine *engine) {
    if (engine->wake_sent)
        return;
    engine->wake_sent = true;
    if (engine->options.wake)
        engine->options.wake(engine->options.owner);
    else
        pthread_cond_signal(&engine->progress);
}

void engine_return_chunks(struct engine *engine, struct stream_chunk *chunks) {
    while (chunks) {
        struct stream_chunk *next = chunks->next;
        if (engine->device->vtable->async && atomic_load(&engine->broken)) {
            chunks->next = engine->chunks_lost;
            engine->chunks_lost = chunks;
        } else if (engine->chunks_count < ENGINE_CHUNKS_KEPT) {
            chunks->next = engine->chunks;
            engine->chunks = chunks;
            engine->chunks_count++;
        } else {
            free(chunks);
        }
        chunks = next;
    }
}

struct record *engine_next_record(struct stream *stream, struct stream_chunk **head, size_t *used,
                                  struct stream_chunk **done) {
    struct record *record = (struct record *)((*head)->records + *used);
    if (record->kind == RECORD_CHUNK) {
        struct stream_chunk *left = *head;
        *head = left->next;
        *used = 0;
        if (done) {
            left->next = *done;
            *done = left;
            atomic_fetch_sub_explicit(&stream->chunks, 1, memory_order_relaxed);
        }
        record = (struct record *)(*head)->records;
    }
    return record;
}

void engine_signal_self(struct engine *engine, struct stream *stream) {
    pthread_mutex_lock(&engine->lock);
    engine_signal(engine, stream);
    bool tell = !engine->wake_sent;
    engine->wake_sent = true;
    pthread_mutex_unlock(&engine->lock);
    if (tell && engine->options.wake)
        engine->options.wake(engine->options.owner);
}

void engine_outside_reached(struct engine *engine, struct stream *stream) {
    atomic_store_explicit(&stream->completed, stream->enqueued, memory_order_release);
    engine->kick_needed = true;
    pthread_mutex_lock(&engine->lock);
    engine->outside_moved = true;
    atomic_store_explicit(&engine->wanted, true, memory_order_relaxed);
    pthread_mutex_unlock(&engine->lock);
    if (stream->waiters)
        engine_signal_self(engine, stream);
}
