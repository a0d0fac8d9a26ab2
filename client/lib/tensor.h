/* Handles. A handle's memory belongs to its device and is reused; device, id, type and gate never change while it
 * lives, so those are read without the lock. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/tensord.h"
#include "proto/ops/shape.h"

struct request;
struct scope_part;

struct td_tensor {
    struct td_device *device;
    uint64_t id;
    struct tensor_type type;
    uint64_t gate; /* ticket of the upload that brings it; 0: none */

    struct td_tensor *next_released;

    /* under the device's lock */
    struct scope_part *part; /* the scope that releases it; NULL: none */
    struct td_tensor *next;  /* in the scope, in the free list, or among those waiting to be freed */
    struct td_tensor *previous;
    struct request *test; /* td_test's question that is under way */
    unsigned holders;     /* fetches that may have to be asked again: a release waits for their answers, */
    bool leaving;         /* and this one does */
    bool known;           /* computed or failed, as far as was heard */
};

struct tensor_slab;

struct tensor_pool {
    /* Those that td_release has noted here, without the lock: whoever holds that next takes account of them, before it
     * appends an operation or sends anything. */
    struct td_tensor *_Atomic released;
    struct td_tensor *waiting; /* gone too, but there was no room for their `free` operations */
    struct td_tensor *free;    /* without gate, scope and marks */
    struct tensor_slab *slabs;
};

static inline bool tensor_any_released(const struct tensor_pool *pool) {
    return atomic_load(&pool->released);
}

/* Under the device's lock, all of these. */

/* A handle without a place in any scope; NULL out of memory. */
struct td_tensor *tensor_take(struct tensor_pool *pool);
void tensor_give(struct tensor_pool *pool, struct td_tensor *tensor);
/* Frees all memory of handles. */
void tensor_pool_finish(struct tensor_pool *pool);

/* A fetch of it has been answered. */
void tensor_let_go(struct td_tensor *tensor);
/* What td_release leads to; true: the I/O thread must be woken. */
bool tensor_release(struct td_tensor *tensor);
static inline bool tensor_any_gone(const struct tensor_pool *pool) {
    return pool->waiting || tensor_any_released(pool);
}
/* Takes account of what has been released, and queues frees as far as there is room. */
void tensor_drain(struct td_device *device);
