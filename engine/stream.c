#include "engine/stream.h"

#include "engine/engine_impl.h"

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

bool uses_idle(struct uses *uses) {
    if (uses->count)
        uses_drop(uses);
    return uses->count == 0;
}

/* Moves the tail to a fresh chunk. The old one keeps room for the record that says so. */
static int stream_grow(struct stream *stream) {
    struct stream_chunk *chunk = engine_chunk_take(stream->engine);
    if (!chunk)
        return STATUS_NO_HOST_MEMORY;
    if (stream->tail) {
        struct record *last = (struct record *)(stream->tail->records + stream->tail_used);
        last->kind = RECORD_CHUNK;
        stream->tail->next = chunk;
    } else {
        stream->head = stream->reap_head = chunk; /* never published: nobody else knows the stream yet */
        stream->head_used = stream->reap_used = 0;
    }
    stream->tail = chunk;
    stream->tail_used = 0;
    return STATUS_OK;
}

struct record *stream_push(struct stream *stream, enum record_kind kind, size_t bytes, uint64_t weight) {
    bytes = (bytes + 15) & ~(size_t)15;
    if (!stream->tail || stream->tail_used + bytes + sizeof(struct record) > STREAM_CHUNK_BYTES)
        if (stream_grow(stream) != STATUS_OK)
            return NULL;
    struct record *record = (struct record *)(stream->tail->records + stream->tail_used);
    record->bytes = (uint32_t)bytes;
    record->kind = (uint16_t)kind;
    record->label = 0;
    record->sequence = stream->sequence;
    record->weight = weight;
    stream->tail_used += bytes;
    stream->weight += weight;
    stream->enqueued++;
    if (!stream->touched)
        engine_touch(stream->engine, stream);
    return record;
}

int stream_wait(struct stream *stream, struct stream *other, uint64_t number) {
    if (other == stream || point_reached(other, number))
        return STATUS_OK;
    struct record *record = stream_push(stream, RECORD_WAIT, sizeof *record, 0);
    if (!record)
        return STATUS_NO_HOST_MEMORY;
    record->wait.stream = other;
    record->wait.number = number;
    return STATUS_OK;
}
