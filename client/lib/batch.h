/* Batches of operations on their way: columns that grow and are reused. Under the device's lock, until the sender takes a
 * batch off the queue. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/queue.h"
#include "client/lib/tensor.h"
#include "proto/wire/batch.h"

enum {
    BATCH_SEAL_BYTES = 32 << 10, /* a batch of this size is sent */
    BATCH_FREE_BYTES = 16,
    BATCH_FIELDS_BYTES = 128, /* what packing adds to the entries at most: numbers, tags and lengths of the fields */
};

/* Entries of eight bytes. */
struct column {
    uint64_t *data;
    uint32_t n, capacity;
};

struct batch {
    struct item item; /* in the send queue */
    struct batch *next_free;
    uint32_t stream;
    uint64_t first_output, first_sequence;
    struct column heads, inputs, ints, floats;
    struct column wide;
    uint32_t last_wide;   /* where the entries of the last wide operation begin */
    struct column labels; /* offsets into `text`; pointers once packed */
    char *text;           /* labels, each with its 0 */
    size_t text_bytes, text_capacity;
};

struct batches {
    struct queue *queue; /* which takes those that are sealed */
    struct batch *open;  /* takes operations; NULL: none begun */
    struct batch *free;
    unsigned n_free;
    uint64_t next_id;       /* of the next output */
    uint64_t next_sequence; /* of the operation behind the last sealed batch */
};

/* One operation to append: what a call says, and what is added on its way. */
struct batch_entry {
    unsigned opcode, n_inputs, n_ints, n_floats;
    unsigned n_outputs; /* 0 for the usual one */
    struct td_tensor *const *inputs;
    const int64_t *ints;
    const double *floats;
    const char *label; /* NULL: none */
    size_t label_bytes;
    /* batch_entry_measure() */
    unsigned n_wide; /* entries in `wide`; 0: its head has room for all */
    size_t bytes;
};

void batches_init(struct batches *batches, struct queue *queue);
void batches_finish(struct batches *batches);
/* Whether the queue has room for so many bytes behind the open batch. */
static inline bool batches_room(const struct batches *batches, size_t bytes) {
    return queue_room(batches->queue, (batches->open ? batches->open->item.bytes : 0) + bytes);
}
struct batch *batches_begin(struct batches *batches, uint32_t stream, uint64_t gate);
/* The open batch for an operation of the stream that must not be sent before the gate's upload; NULL out of memory. */
static inline struct batch *batches_open(struct batches *batches, uint32_t stream, uint64_t gate) {
    struct batch *open = batches->open;
    return open && open->stream == stream && open->item.gate >= gate ? open : batches_begin(batches, stream, gate);
}
static inline bool batches_begun(const struct batches *batches) {
    return batches->open && batches->open->heads.n;
}
/* Whether the open batch is large enough to be sent. */
static inline bool batches_full(const struct batches *batches) {
    return batches->open && batches->open->item.bytes >= BATCH_SEAL_BYTES;
}
/* Moves the open batch to the queue. Whatever else takes an id or a sequence number, or is queued, comes after that. */
void batches_seal(struct batches *batches);
/* Forgets the open batch. */
void batches_drop(struct batches *batches);
/* A batch that was sent, or will never be. */
void batches_give(struct batches *batches, struct batch *batch);

static inline void batch_entry_measure(struct batch_entry *entry) {
    bool wide = entry->n_inputs > BATCH_CONSUME_MAX || (entry->n_ints | entry->n_floats) > BATCH_COUNT_MAX ||
                entry->n_outputs > BATCH_OUTPUTS_MAX;
    entry->n_wide = wide ? batch_wide_entries(entry->n_inputs) : 0;
    entry->bytes = 8 * (size_t)(1 + entry->n_inputs + entry->n_ints + entry->n_floats + entry->n_wide) +
                   (entry->label ? 8 + entry->label_bytes : 0);
}
/* Makes room; false out of memory, with nothing changed. */
bool batch_grow(struct batch *batch, const struct batch_entry *entry);
static inline bool column_fits(const struct column *column, unsigned more) {
    return more <= column->capacity - column->n;
}
/* The same, where there is room already, as a rule. */
static inline bool batch_reserve(struct batch *batch, const struct batch_entry *entry) {
    bool plain = !entry->label && !entry->n_wide;
    return (plain && column_fits(&batch->heads, 1) && column_fits(&batch->inputs, entry->n_inputs) &&
            column_fits(&batch->ints, entry->n_ints) && column_fits(&batch->floats, entry->n_floats)) ||
           batch_grow(batch, entry);
}
/* What few operations have: attributes, a label, more than a head has room for. */
void batch_append_rest(struct batch *batch, const struct batch_entry *entry);
/* After batch_reserve(). */
static inline void batch_append(struct batch *batch, const struct batch_entry *entry) {
    uint64_t *inputs = batch->inputs.data + batch->inputs.n;
    batch->heads.data[batch->heads.n++] = batch_head(entry->opcode, entry->n_inputs, entry->n_ints, entry->n_floats,
                                                     entry->label ? BATCH_FLAG_LABEL : 0, 0) |
                                          batch_head_outputs(entry->n_outputs);
    for (unsigned i = 0; i < entry->n_inputs; i++)
        inputs[i] = entry->inputs[i]->id;
    batch->inputs.n += entry->n_inputs;
    batch->item.bytes += entry->bytes;
    if (entry->n_ints | entry->n_floats | entry->n_wide || entry->label)
        batch_append_rest(batch, entry);
}
/* Adds the release of `id` to the batch without a new operation where that is possible: as an input that the last
 * operation consumes, or by one more input of a `free`. */
bool batch_release(struct batch *batch, uint64_t id);
/* Appends a `free` of one tensor, of BATCH_FREE_BYTES; false out of memory. */
bool batch_append_free(struct batch *batch, uint64_t id);

/* At most so many bytes are header and message of a batch that is sealed. */
static inline size_t batch_packed_max(const struct batch *batch) {
    return FRAME_HEADER_BYTES + BATCH_FIELDS_BYTES + batch->item.bytes;
}
/* Writes them to `out`, and returns how many. */
size_t batch_pack(struct batch *batch, uint8_t *out);
