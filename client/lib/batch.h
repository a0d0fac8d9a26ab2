/* A batch of operations on its way: columns that grow and are reused. Owned by the device (under its lock) until the
 * sender takes it off the queue. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/queue.h"
#include "proto/wire/batch.h"

enum {
    BATCH_SEAL_BYTES = 32 << 10, /* a batch of this size is sent */
    BATCH_FIELDS_BYTES = 128,    /* what packing adds to the entries at most: numbers, tags and lengths of the fields */
};

/* Entries of eight bytes. */
struct column {
    void *data;
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

struct batch_pool {
    struct batch *free;
    unsigned n_free;
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

/* An empty one; NULL out of memory. */
struct batch *batch_take(struct batch_pool *pool);
void batch_give(struct batch_pool *pool, struct batch *batch);
void batch_pool_finish(struct batch_pool *pool);

static inline void batch_entry_measure(struct batch_entry *entry) {
    bool wide = entry->n_inputs > BATCH_CONSUME_MAX || (entry->n_ints | entry->n_floats) > BATCH_COUNT_MAX;
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
/* After batch_reserve(). */
void batch_append(struct batch *batch, const struct batch_entry *entry);
/* Adds the release of `id` to the batch without a new operation where that is possible: as an input that the last
 * operation consumes, or by one more input of a `free`. */
bool batch_release(struct batch *batch, uint64_t id);

/* At most so many bytes are header and message of a batch that is sealed. */
static inline size_t batch_packed_max(const struct batch *batch) {
    return FRAME_HEADER_BYTES + BATCH_FIELDS_BYTES + batch->item.bytes;
}
/* Writes them to `out`, and returns how many. */
size_t batch_pack(struct batch *batch, uint8_t *out);
