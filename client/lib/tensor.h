/* Handles. A handle's memory belongs to its device and is reused. Device, id, type and gate never change while the handle
 * lives, so they are read without the lock. */
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
    uint64_t gate; /* the ticket of its upload; 0: none */

    struct td_tensor *next_released;

    /* under the device's lock */
    struct scope_part *part; /* the scope that releases it; NULL: none */
    struct td_tensor *next;  /* in the scope, in the free list, or in the list `waiting` */
    struct td_tensor *previous;
    struct request *test; /* the request of td_test() that has no reply yet */
    unsigned holders;     /* fetches that may have to be sent again: a release waits for their replies, */
    bool leaving;         /* and a release waits now */
    bool known;           /* the daemon has said that it was computed, or has failed */
};

/* The id of a recorded tensor (record.h) has this bit; the daemon knows no such ids. */
#define TENSOR_RECORDED (UINT64_C(1) << 63)
static inline bool tensor_is_recorded(const struct td_tensor *tensor) {
    return tensor->id & TENSOR_RECORDED;
}

struct tensor_slab;

struct tensor_pool {
    /* Handles that td_release() has put here without the lock. The next thread that holds the lock queues their releases
     * (tensor_drain()), before it appends an operation or sends anything. */
    struct td_tensor *_Atomic released;
    struct td_tensor *waiting; /* released, but the queue had no room for their `free` operations */
    struct td_tensor *free;    /* their gates, scopes and marks are cleared */
    struct tensor_slab *slabs;
};

static inline bool tensor_any_released(const struct tensor_pool *pool) {
    return atomic_load(&pool->released);
}

/* All functions below are called under the device's lock. */

/* A handle that is in no scope; NULL out of memory. */
struct td_tensor *tensor_take(struct tensor_pool *pool);
void tensor_give(struct tensor_pool *pool, struct td_tensor *tensor);
/* Takes n handles; false: there was no memory, and it has taken none. */
static inline bool tensors_take(struct tensor_pool *pool, unsigned n, struct td_tensor **tensors) {
    for (unsigned i = 0; i < n; i++) {
        tensors[i] = tensor_take(pool);
        if (tensors[i])
            continue;
        while (i > 0)
            tensor_give(pool, tensors[--i]);
        return false;
    }
    return true;
}
/* Frees all memory of handles. */
void tensor_pool_finish(struct tensor_pool *pool);

/* A fetch of the tensor has got its reply. */
void tensor_let_go(struct td_tensor *tensor);
/* Releases a handle; true: the I/O thread must be woken. */
bool tensor_release(struct td_tensor *tensor);
static inline bool tensor_any_gone(const struct tensor_pool *pool) {
    return pool->waiting || tensor_any_released(pool);
}
/* Queues the releases that td_release() has noted, as far as the queue has room. */
void tensor_drain(struct td_device *device);
