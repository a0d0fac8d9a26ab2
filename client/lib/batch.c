#include "client/lib/batch.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/frame.h"

enum { POOL_MAX = 64, COLUMN_FIRST = 64, HEADS_FIRST = 2048, TEXT_FIRST = 1024 };

static bool column_grow(struct column *column, size_t more, size_t first) {
    size_t capacity = column->capacity ? column->capacity : first;
    while (capacity < column->n + more)
        capacity *= 2;
    uint64_t *data = realloc(column->data, capacity * sizeof *data);
    if (!data)
        return false;
    column->data = data;
    column->capacity = (uint32_t)capacity;
    return true;
}

static inline bool column_reserve(struct column *column, size_t more) {
    return more <= column->capacity - column->n || column_grow(column, more, COLUMN_FIRST);
}

static inline void column_append(struct column *column, const void *entries, size_t n) {
    if (!n)
        return;
    memcpy(column->data + column->n, entries, n * sizeof *column->data);
    column->n += (uint32_t)n;
}

void batch_destroy(struct batch *batch) {
    free(batch->heads.data);
    free(batch->inputs.data);
    free(batch->ints.data);
    free(batch->floats.data);
    free(batch->labels.data);
    free(batch->wide.data);
    free(batch->text);
    free(batch);
}

struct batch *batch_create(void) {
    struct batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return NULL;
    batch->item.kind = ITEM_BATCH;
    if (column_grow(&batch->heads, 1, HEADS_FIRST) && column_grow(&batch->inputs, 1, HEADS_FIRST))
        return batch;
    batch_destroy(batch);
    return NULL;
}

void batches_init(struct batches *batches, struct queue *queue) {
    *batches = (struct batches){.queue = queue, .next_id = 1, .next_sequence = 1};
}

void batches_finish(struct batches *batches) {
    batches_drop(batches);
    while (batches->free) {
        struct batch *batch = batches->free;
        batches->free = batch->next_free;
        batch_destroy(batch);
    }
}

/* An empty batch; NULL out of memory. */
static struct batch *batches_take(struct batches *batches) {
    struct batch *batch = batches->free;
    if (!batch)
        return batch_create();
    batches->free = batch->next_free;
    batches->n_free--;
    return batch;
}

void batches_give(struct batches *batches, struct batch *batch) {
    if (batches->n_free == POOL_MAX) {
        batch_destroy(batch);
        return;
    }
    batch->heads.n = batch->inputs.n = batch->ints.n = batch->floats.n = batch->labels.n = batch->wide.n = 0;
    batch->text_bytes = 0;
    batch->item.bytes = 0;
    batch->next_free = batches->free;
    batches->free = batch;
    batches->n_free++;
}

struct batch *batches_begin(struct batches *batches, uint32_t stream, uint64_t gate) {
    batches_seal(batches);
    struct batch *batch = batches_take(batches);
    if (!batch)
        return NULL;
    batch->stream = stream;
    batch->item.gate = gate;
    batch->first_output = batches->next_id;
    batch->first_sequence = batches->next_sequence;
    batches->open = batch;
    return batch;
}

void batches_drop(struct batches *batches) {
    if (batches->open)
        batches_give(batches, batches->open);
    batches->open = NULL;
}

void batches_seal(struct batches *batches) {
    struct batch *batch = batches->open;
    if (!batch || !batch->heads.n) {
        batches_drop(batches); /* the next batch may begin with other ids */
        return;
    }
    batches->open = NULL;
    batches->next_sequence += batch->heads.n;
    queue_push(batches->queue, &batch->item);
}

static bool text_reserve(struct batch *batch, size_t more) {
    if (more <= batch->text_capacity - batch->text_bytes)
        return true;
    size_t capacity = batch->text_capacity ? batch->text_capacity : TEXT_FIRST;
    while (capacity < batch->text_bytes + more)
        capacity *= 2;
    char *text = realloc(batch->text, capacity);
    if (!text)
        return false;
    batch->text = text;
    batch->text_capacity = capacity;
    return true;
}

bool batch_grow(struct batch *batch, const struct batch_entry *entry) {
    if (entry->label && !(column_reserve(&batch->labels, 1) && text_reserve(batch, entry->label_bytes + 1)))
        return false;
    if (entry->n_wide && !column_reserve(&batch->wide, entry->n_wide))
        return false;
    return column_reserve(&batch->heads, 1) && column_reserve(&batch->inputs, entry->n_inputs) &&
           column_reserve(&batch->ints, entry->n_ints) && column_reserve(&batch->floats, entry->n_floats);
}

static void label_append(struct batch *batch, const struct batch_entry *entry) {
    uint64_t offset = batch->text_bytes;
    column_append(&batch->labels, &offset, 1);
    memcpy(batch->text + batch->text_bytes, entry->label, entry->label_bytes);
    batch->text[batch->text_bytes + entry->label_bytes] = 0;
    batch->text_bytes += entry->label_bytes + 1;
}

/* The entries of `wide`; the operation consumes no input yet. */
static void wide_append(struct batch *batch, const struct batch_entry *entry) {
    uint64_t *wide = batch->wide.data + batch->wide.n;
    batch->heads.data[batch->heads.n - 1] |= (uint64_t)BATCH_FLAG_WIDE << 40;
    memset(wide, 0, entry->n_wide * sizeof *wide);
    wide[0] = batch_wide(entry->n_inputs, entry->n_ints, entry->n_floats, entry->n_outputs);
    batch->last_wide = batch->wide.n;
    batch->wide.n += entry->n_wide;
}

void batch_append_rest(struct batch *batch, const struct batch_entry *entry) {
    column_append(&batch->ints, entry->ints, entry->n_ints);
    column_append(&batch->floats, entry->floats, entry->n_floats);
    if (entry->label)
        label_append(batch, entry);
    if (entry->n_wide)
        wide_append(batch, entry);
}

bool batch_release(struct batch *batch, uint64_t id) {
    if (!batch->heads.n)
        return false;
    uint64_t *head = batch->heads.data + batch->heads.n - 1;
    unsigned n = (unsigned)(*head >> 16 & 0xff);
    if ((*head & 0xffff) == OP_FREE) {
        if (n == BATCH_COUNT_MAX || !column_reserve(&batch->inputs, 1))
            return false;
        *head += (uint64_t)1 << 16;
        batch->inputs.data[batch->inputs.n++] = id;
        batch->item.bytes += 8;
        return true;
    }
    uint64_t *wide = *head >> 40 & BATCH_FLAG_WIDE ? batch->wide.data + batch->last_wide : NULL;
    unsigned i = 0;
    if (wide) {
        n |= (unsigned)(*wide & 0xfff) << 8;
        i = batch->release_at < n && batch->inputs.data[batch->inputs.n - n + batch->release_at] == id
                ? batch->release_at
                : 0;
    }
    const uint64_t *inputs = batch->inputs.data + batch->inputs.n - n;
    for (; i < n; i++) {
        if (inputs[i] != id)
            continue;
        if (wide)
            batch->release_at = i + 1;
        if (i < BATCH_CONSUME_MAX)
            *head |= (uint64_t)1 << (48 + i);
        else
            wide[1 + (i - BATCH_CONSUME_MAX) / 64] |= (uint64_t)1 << (i - BATCH_CONSUME_MAX) % 64;
        return true;
    }
    return false;
}

bool batch_append_free(struct batch *batch, uint64_t id) {
    if (!column_reserve(&batch->heads, 1) || !column_reserve(&batch->inputs, 1))
        return false;
    batch->heads.data[batch->heads.n++] = batch_head(OP_FREE, 1, 0, 0, 0, 0);
    batch->inputs.data[batch->inputs.n++] = id;
    batch->item.bytes += BATCH_FREE_BYTES;
    return true;
}

/* The columns lie in memory as the message's fields need them, so packing copies each column once. */
void batch_message(struct batch *batch, char **labels, Tensord__Batch *message) {
    for (uint32_t i = 0; i < batch->labels.n; i++)
        labels[i] = batch->text + batch->labels.data[i];
    tensord__batch__init(message);
    message->first_output = batch->first_output;
    message->first_sequence = batch->first_sequence;
    message->stream = batch->stream;
    message->n_heads = batch->heads.n;
    message->heads = batch->heads.data;
    message->n_inputs = batch->inputs.n;
    message->inputs = batch->inputs.data;
    message->n_ints = batch->ints.n;
    message->ints = (int64_t *)batch->ints.data;
    message->n_floats = batch->floats.n;
    message->floats = (double *)batch->floats.data;
    message->n_labels = batch->labels.n;
    message->labels = labels;
    message->n_wide = batch->wide.n;
    message->wide = batch->wide.data;
}

size_t batch_pack(struct batch *batch, uint8_t *out) {
    Tensord__Batch message;
    batch_message(batch, (char **)batch->labels.data, &message); /* the pointers overwrite the offsets */
    size_t bytes = tensord__batch__pack(&message, out + FRAME_HEADER_BYTES);
    struct frame_header header = {.type = FRAME_BATCH, .message_bytes = (uint32_t)bytes};
    frame_header_encode(&header, out);
    trace_frame("->", &header, out + FRAME_HEADER_BYTES);
    return FRAME_HEADER_BYTES + bytes;
}
