/* Tensors and the table from ids to them. Owner thread. */
#pragma once

#include <stdbool.h>

#include "engine/pool.h"

struct tensor {
    uint64_t id;
    struct tensor_type type;
    int64_t strides[SHAPE_RANK_MAX]; /* elements */
    int64_t offset;                  /* elements */
    bool contiguous;
    bool uploading;          /* its bytes have not all come, and nobody may wait for them */
    struct storage *storage; /* NULL: empty, or failed */
    struct failure *failure; /* not NULL: it has no value, and why; many tensors share one, which have failed alike, */
    uint64_t sequence;       /* and this is the number of the operation that did */
    struct taint *taint;     /* not NULL: it may turn out to have failed */
    struct stream *ready;    /* the point at which it has been computed; NULL: from the start */
    uint64_t ready_number;
    unsigned references; /* the id table's, and an upload's */
};

/* Where the first element lies; only with storage. */
static inline void *tensor_data(const struct tensor *tensor) {
    return tensor->storage->data + tensor->offset * (int64_t)dtype_size(tensor->type.dtype);
}

/* Open addressing; ids are scattered by a random factor, since clients choose them. */
struct tensor_table {
    struct tensor **slots;
    size_t capacity, count; /* a power of two */
    uint64_t factor;
};

int tensor_table_init(struct tensor_table *table);
void tensor_table_finish(struct tensor_table *table);
/* Makes room for one more, so that the next insert cannot fail. */
int tensor_table_reserve(struct tensor_table *table);
void tensor_table_insert(struct tensor_table *table, struct tensor *tensor);
struct tensor *tensor_table_find(const struct tensor_table *table, uint64_t id);
struct tensor *tensor_table_remove(struct tensor_table *table, uint64_t id);
