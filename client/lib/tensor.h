/* Handles. A handle's memory belongs to its device and is reused; device, id, type and gate never change while it
 * lives, so those are read without the lock. */
#pragma once

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
    struct td_tensor *free;
    struct td_tensor *released; /* gone for the user, their `free` operations not yet queued */
    struct tensor_slab *slabs;
};

/* Under the device's lock, all of these. */

/* A handle without a place in any scope; NULL out of memory. */
struct td_tensor *tensor_take(struct tensor_pool *pool);
void tensor_give(struct tensor_pool *pool, struct td_tensor *tensor);
/* Frees all memory of handles. */
void tensor_pool_finish(struct tensor_pool *pool);

/* Frees a handle whose tensor will be released by an operation that is in the queue already. */
void tensor_forget(struct td_tensor *tensor);
/* A fetch of it has been answered. */
void tensor_let_go(struct td_tensor *tensor);
/* What td_release does; true: the I/O thread must be woken. */
bool tensor_release(struct td_tensor *tensor);
/* Queues the frees that had no room before, as far as there is room now. */
void tensor_drain(struct td_device *device);
