/* Batches of operations that will be sent: columns that grow and are reused. A batch is under the device's lock until the
 * sender takes it off the queue. */
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
    BATCH_FIELDS_BYTES = 128, /* packing adds at most this to the entries: numbers, tags and lengths of the fields */
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
    uint32_t release_at;  /* the input behind the last one of a wide operation that was released: probably the next */
    struct column labels; /* offsets into `text`; pointers once packed */
    char *text;           /* labels, each with its 0 */
    size_t text_bytes, text_capacity;
};

struct batches {
    struct queue *queue; /* takes the sealed batches */
    struct batch *open;  /* takes operations; NULL: there is none */
    struct batch *free;
    unsigned n_free;
    uint64_t next_id;       /* of the next output */
    uint64_t next_sequence; /* of the operation behind the last sealed batch */
};

/* One operation to append: the call's arguments, and what batch_entry_measure() adds. */
struct batch_entry {
    unsigned opcode, n_inputs, n_ints, n_floats;
    unsigned n_outputs; /* 0 stands for 1, the usual number */
    struct td_tensor *const *inputs;
    const int64_t *ints;
    const double *floats;
    const char *label; /* NULL: none */
    size_t label_bytes;
    /* What the results depend on besides, and only tapes look at: what a program has captured. */
    unsigned n_captured;
    struct td_tensor *const *captured;
    /* Set by batch_entry_measure(). */
    unsigned n_wide; /* entries in `wide`; 0: the head has room for everything */
    size_t bytes;
};

/* An empty batch; NULL out of memory. */
struct batch *batch_create(void);
void batch_destroy(struct batch *batch);

void batches_init(struct batches *batches, struct queue *queue);
void batches_finish(struct batches *batches);
/* Whether the queue has room for `bytes` behind the open batch. */
static inline bool batches_room(const struct batches *batches, size_t bytes) {
    return queue_room(batches->queue, (batches->open ? batches->open->item.bytes : 0) + bytes);
}
struct batch *batches_begin(struct batches *batches, uint32_t stream, uint64_t gate);
/* The open batch for an operation of the stream; the batch is not sent before the gate's upload. NULL out of memory. */
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
/* Moves the open batch to the queue. Call it before anything else takes an id or a sequence number, or is queued. */
void batches_seal(struct batches *batches);
/* Drops the open batch. */
void batches_drop(struct batches *batches);
/* Takes back a batch that was sent, or that will never be sent. */
void batches_give(struct batches *batches, struct batch *batch);

static inline void batch_entry_measure(struct batch_entry *entry) {
    bool wide = entry->n_inputs > BATCH_CONSUME_MAX || (entry->n_ints | entry->n_floats) > BATCH_COUNT_MAX ||
                entry->n_outputs > BATCH_OUTPUTS_MAX;
    entry->n_wide = wide ? batch_wide_entries(entry->n_inputs) : 0;
    entry->bytes = 8 * (size_t)(1 + entry->n_inputs + entry->n_ints + entry->n_floats + entry->n_wide) +
                   (entry->label ? 8 + entry->label_bytes : 0);
}
/* Makes room for the entry; false out of memory, and then nothing has changed. */
bool batch_grow(struct batch *batch, const struct batch_entry *entry);
static inline bool column_fits(const struct column *column, unsigned more) {
    return more <= column->capacity - column->n;
}
/* The same; fast if there is room already, which is the usual case. */
static inline bool batch_reserve(struct batch *batch, const struct batch_entry *entry) {
    bool plain = !entry->label && !entry->n_wide;
    return (plain && column_fits(&batch->heads, 1) && column_fits(&batch->inputs, entry->n_inputs) &&
            column_fits(&batch->ints, entry->n_ints) && column_fits(&batch->floats, entry->n_floats)) ||
           batch_grow(batch, entry);
}
/* Appends what few operations have: attributes, a label, or entries of `wide`. */
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
/* Adds the release of `id` to the batch without a new operation: the last operation consumes the id as one of its inputs,
 * or, if the last operation is a `free`, gets one more input. False: neither is possible. */
bool batch_release(struct batch *batch, uint64_t id);
/* Appends a `free` of one tensor, which takes BATCH_FREE_BYTES; false out of memory. */
bool batch_append_free(struct batch *batch, uint64_t id);

/* The largest size that header and message of a sealed batch can have. */
static inline size_t batch_packed_max(const struct batch *batch) {
    return FRAME_HEADER_BYTES + BATCH_FIELDS_BYTES + batch->item.bytes;
}
/* The message, which points into the batch, except for the labels: there `labels` has room for a pointer to each. */
void batch_message(struct batch *batch, char **labels, Tensord__Batch *message);
/* Writes header and message to `out`; returns the number of bytes. */
size_t batch_pack(struct batch *batch, uint8_t *out);
