#include "engine/order/stream.h"

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
    atomic_fetch_add_explicit(&stream->chunks, 1, memory_order_relaxed);
    return STATUS_OK;
}

struct record *stream_push(struct stream *stream, enum record_kind kind, size_t bytes, uint64_t weight) {
    bytes = (bytes + 15) & ~(size_t)15;
    if (!stream->tail || stream->tail_used + bytes + sizeof(struct record) > STREAM_CHUNK_BYTES)
        if (stream_grow(stream) != STATUS_OK)
            return NULL;
    struct record *record = (struct record *)(stream->tail->records + stream->tail_used);
    record->bytes = (uint32_t)bytes;
    record->kind = (uint8_t)kind;
    record->ends = false;
    record->label = 0;
    record->sequence = stream->sequence;
    record->weight = weight;
    if (!stream->touched || stream->enqueued % STREAM_CLOCK_RECORDS == 0)
        stream->now_ns = engine_clock();
    record->enqueued_ns = stream->now_ns;
    stream->tail_used += bytes;
    stream->weight += weight;
    stream->enqueued++;
    stream->newest = record;
    if (!stream->touched)
        engine_touch(stream->engine, stream);
    return record;
}

void stream_end_operation(struct stream *stream) {
    stream->newest->ends = true;
    stream->ops_enqueued++;
}

struct stream_position stream_position(const struct stream *stream) {
    return (struct stream_position){stream->tail, stream->tail_used, stream->enqueued};
}

void stream_take_back(struct stream *stream, const struct stream_position *position) {
    struct stream_chunk *chunk = position->chunk ? position->chunk : stream->head;
    size_t used = position->used;
    for (uint64_t number = position->number; number < stream->enqueued; number++) {
        struct record *record = engine_next_record(stream, &chunk, &used, NULL);
        used += record->bytes;
        if (record->kind != RECORD_LAUNCH && record->kind != RECORD_KERNEL)
            continue;
        stream->weight -= record->weight;
        record->weight = 0;
        record->kind = RECORD_NOTHING;
    }
}

/* ---- waits ---- */

enum { CERTAIN_STEPS = 256 }; /* points that are looked at before an answer is given up */

static bool point_certain(const struct stream *stream, uint64_t number, int *steps) {
    if (point_reached(stream, number))
        return true;
    if (stream->outside || --*steps < 0)
        return false;
    if (stream->crowded && stream->crowded <= number && !point_reached(stream, stream->crowded_last))
        return false;
    for (unsigned i = 0; i < stream->n_holds && stream->holds[i].at <= number; i++)
        if (!point_reached(stream, stream->holds[i].at) &&
            !point_certain(stream->holds[i].stream, stream->holds[i].number, steps))
            return false;
    return true;
}

bool stream_certain(const struct stream *stream, uint64_t number) {
    int steps = CERTAIN_STEPS;
    return point_certain(stream, number, &steps);
}

static void holds_drop(struct stream *stream) {
    unsigned kept = 0;
    for (unsigned i = 0; i < stream->n_holds; i++)
        if (!stream_certain(stream->holds[i].stream, stream->holds[i].number))
            stream->holds[kept++] = stream->holds[i];
    stream->n_holds = kept;
}

/* Notes the newest record, which waits for this point. */
static void holds_add(struct stream *stream, struct stream *other, uint64_t number) {
    if (stream_certain(other, number))
        return;
    if (stream->n_holds == STREAM_HOLDS)
        holds_drop(stream);
    if (stream->n_holds < STREAM_HOLDS) {
        stream->holds[stream->n_holds++] = (struct stream_hold){stream->enqueued, other, number};
        return;
    }
    if (!stream->crowded || point_reached(stream, stream->crowded_last))
        stream->crowded = stream->enqueued;
    stream->crowded_last = stream->enqueued;
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
