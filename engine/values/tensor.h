/* Tensors and the table from ids to them. Owner thread. */
#pragma once

#include <stdbool.h>

#include "engine/memory/pool.h"

struct tensor {
    uint64_t id;
    struct tensor_type type;
    uint64_t type_id; /* the number by which its type is known (engine/program/signature.h); 0: none yet */
    int64_t strides[SHAPE_RANK_MAX]; /* elements */
    int64_t offset;                  /* elements */
    bool contiguous;
    bool leaving;            /* a checked operation releases it (engine/program/program.c) */
    bool uploading;          /* not all of its bytes have come, and operations may not wait for them */
    struct storage *storage; /* NULL: empty, or failed */
    struct failure *failure; /* not NULL: why it has no value; tensors with equal failures share one */
    uint64_t sequence;       /* of the operation that failed */
    struct poison *poison;   /* not NULL: it may turn out to have failed */
    struct stream *ready;    /* the point at which it has been computed; NULL: from the start */
    uint64_t ready_number;
    unsigned references; /* by its id, and by an upload */
    uint64_t last_use;   /* the last step that has it for an input (engine/program/program_impl.h) */
};

/* Where the first element lies; only with storage. */
static inline void *tensor_data(const struct tensor *tensor) {
    return tensor->storage->data + tensor->offset * (int64_t)dtype_size(tensor->type.dtype);
}

enum { TENSOR_TABLE_MIN = 128 }; /* slots */

struct tensor_slots {
    struct tensor **at;
    size_t capacity; /* a power of two; 0: there are none */
    unsigned shift;  /* of a scattered id, to its place */
};

/* Open addressing; a random factor scatters the ids, since clients choose them. When the slots are half full, new tensors go to a
 * larger set of slots, and each insert moves a few of the old ones there: no insert has to move all of them. */
struct tensor_table {
    struct tensor_slots slots, old;
    size_t moved;           /* slots of `old` before this one are empty */
    size_t count, capacity; /* in both; of `slots` */
    uint64_t factor;
};

int tensor_table_init(struct tensor_table *table);
void tensor_table_finish(struct tensor_table *table);
/* Private: with a move from the old slots, or larger ones. */
int tensor_table_make_room(struct tensor_table *table);
struct tensor *tensor_table_seek(const struct tensor_table *table, uint64_t id);
/* Makes room for one more, so that the next insert cannot fail. */
static inline int tensor_table_reserve(struct tensor_table *table) {
    return table->old.at || table->count >= table->capacity / 2 ? tensor_table_make_room(table) : 0;
}
void tensor_table_insert(struct tensor_table *table, struct tensor *tensor);
static inline struct tensor *tensor_table_find(const struct tensor_table *table, uint64_t id) {
    struct tensor *tensor = table->slots.at[id * table->factor >> table->slots.shift];
    return __builtin_expect(tensor && tensor->id == id, 1) ? tensor : tensor_table_seek(table, id);
}
struct tensor *tensor_table_remove(struct tensor_table *table, uint64_t id);
/* All of them, by slots from 0 on; NULL where a slot is empty. */
size_t tensor_table_slots(const struct tensor_table *table);
struct tensor *tensor_table_slot(const struct tensor_table *table, size_t slot);
