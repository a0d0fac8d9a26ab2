#include "client/lib/batch.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/tensor.h"
#include "client/lib/trace.h"

enum { POOL_MAX = 64, COLUMN_FIRST = 64, HEADS_FIRST = 2048, TEXT_FIRST = 1024 };

static bool column_grow(struct column *column, size_t more, size_t first) {
    size_t capacity = column->capacity ? column->capacity : first;
    while (capacity < column->n + more)
        capacity *= 2;
    void *data = realloc(column->data, capacity * 8);
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
    memcpy((uint64_t *)column->data + column->n, entries, n * 8);
    column->n += (uint32_t)n;
}

static void batch_destroy(struct batch *batch) {
    free(batch->heads.data);
    free(batch->inputs.data);
    free(batch->ints.data);
    free(batch->floats.data);
    free(batch->labels.data);
    free(batch->text);
    free(batch);
}

struct batch *batch_take(struct batch_pool *pool) {
    struct batch *batch = pool->free;
    if (batch) {
        pool->free = batch->next_free;
        pool->n_free--;
        return batch;
    }
    batch = calloc(1, sizeof *batch);
    if (!batch)
        return NULL;
    batch->item.kind = ITEM_BATCH;
    if (column_grow(&batch->heads, 1, HEADS_FIRST) && column_grow(&batch->inputs, 1, HEADS_FIRST))
        return batch;
    batch_destroy(batch);
    return NULL;
}

void batch_give(struct batch_pool *pool, struct batch *batch) {
    if (pool->n_free == POOL_MAX) {
        batch_destroy(batch);
        return;
    }
    batch->heads.n = batch->inputs.n = batch->ints.n = batch->floats.n = batch->labels.n = 0;
    batch->text_bytes = 0;
    batch->item.bytes = 0;
    batch->item.gate = 0;
    batch->stream = 0;
    batch->next_free = pool->free;
    pool->free = batch;
    pool->n_free++;
}

void batch_pool_finish(struct batch_pool *pool) {
    while (pool->free) {
        struct batch *batch = pool->free;
        pool->free = batch->next_free;
        batch_destroy(batch);
    }
    pool->n_free = 0;
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

bool batch_reserve(struct batch *batch, const struct batch_entry *entry) {
    if (entry->label && !(column_reserve(&batch->labels, 1) && text_reserve(batch, entry->label_bytes + 1)))
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

void batch_append(struct batch *batch, const struct batch_entry *entry) {
    uint64_t *heads = batch->heads.data, *inputs = batch->inputs.data;
    heads[batch->heads.n++] = batch_head(entry->opcode, entry->n_inputs, entry->n_ints, entry->n_floats,
                                         entry->label ? BATCH_FLAG_LABEL : 0, 0) |
                              batch_head_outputs(entry->n_outputs);
    for (unsigned i = 0; i < entry->n_inputs; i++)
        inputs[batch->inputs.n++] = entry->inputs[i]->id;
    column_append(&batch->ints, entry->ints, entry->n_ints);
    column_append(&batch->floats, entry->floats, entry->n_floats);
    if (entry->label)
        label_append(batch, entry);
    batch->item.bytes += entry->bytes;
}

bool batch_release(struct batch *batch, uint64_t id) {
    if (!batch->heads.n)
        return false;
    uint64_t *head = (uint64_t *)batch->heads.data + batch->heads.n - 1;
    unsigned n = (unsigned)(*head >> 16 & 0xff);
    if ((*head & 0xffff) == OP_FREE) {
        if (n == OP_INPUTS_MAX || !column_reserve(&batch->inputs, 1))
            return false;
        *head += (uint64_t)1 << 16;
        ((uint64_t *)batch->inputs.data)[batch->inputs.n++] = id;
        batch->item.bytes += 8;
        return true;
    }
    const uint64_t *inputs = (const uint64_t *)batch->inputs.data + batch->inputs.n - n;
    for (unsigned i = 0; i < n && i < BATCH_CONSUME_MAX; i++) {
        if (inputs[i] != id)
            continue;
        *head |= (uint64_t)1 << (48 + i);
        return true;
    }
    return false;
}

/* The columns are a message's fields as they lie: packing copies each of them once. */
size_t batch_pack(struct batch *batch, uint8_t *out) {
    char **labels = batch->labels.data;
    for (uint32_t i = 0; i < batch->labels.n; i++)
        labels[i] = batch->text + ((const uint64_t *)batch->labels.data)[i];
    Tensord__Batch message = TENSORD__BATCH__INIT;
    message.first_output = batch->first_output;
    message.first_sequence = batch->first_sequence;
    message.stream = batch->stream;
    message.n_heads = batch->heads.n;
    message.heads = batch->heads.data;
    message.n_inputs = batch->inputs.n;
    message.inputs = batch->inputs.data;
    message.n_ints = batch->ints.n;
    message.ints = batch->ints.data;
    message.n_floats = batch->floats.n;
    message.floats = batch->floats.data;
    message.n_labels = batch->labels.n;
    message.labels = labels;
    size_t bytes = tensord__batch__pack(&message, out + FRAME_HEADER_BYTES);
    struct frame_header header = {.type = FRAME_BATCH, .message_bytes = (uint32_t)bytes};
    frame_header_encode(&header, out);
    trace_frame("->", &header, out + FRAME_HEADER_BYTES);
    return FRAME_HEADER_BYTES + bytes;
}
