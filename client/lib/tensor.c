#include "client/lib/tensor.h"

#include <stdlib.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/scope.h"

enum { SLAB_TENSORS = 128 };

struct tensor_slab {
    struct tensor_slab *next;
    struct td_tensor tensors[SLAB_TENSORS];
};

static bool tensor_pool_grow(struct tensor_pool *pool) {
    struct tensor_slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return false;
    slab->next = pool->slabs;
    pool->slabs = slab;
    for (int i = SLAB_TENSORS - 1; i >= 0; i--)
        tensor_give(pool, &slab->tensors[i]);
    return true;
}

td_tensor *tensor_take(struct tensor_pool *pool) {
    if (!pool->free && !tensor_pool_grow(pool))
        return NULL;
    td_tensor *tensor = pool->free;
    pool->free = tensor->next;
    return tensor;
}

/* Last in, first out: a chain of operations keeps using the same few lines of cache. */
void tensor_give(struct tensor_pool *pool, td_tensor *tensor) {
    tensor->gate = 0;
    tensor->known = tensor->leaving = false;
    tensor->next = pool->free;
    pool->free = tensor;
}

void tensor_pool_finish(struct tensor_pool *pool) {
    while (pool->slabs) {
        struct tensor_slab *slab = pool->slabs;
        pool->slabs = slab->next;
        free(slab);
    }
}

/* Queues the release, unless the daemon does not know the tensor; false if the queue has no room for it now. */
static bool tensor_free(td_tensor *tensor) {
    if (tensor_is_recorded(tensor))
        return true;
    struct batches *batches = &tensor->device->batches;
    struct batch *open = batches->open;
    uint64_t gate = queue_gate(batches->queue, tensor->gate);
    if (!open || open->item.gate < gate || !batch_release(open, tensor->id)) {
        if (!batches_room(batches, BATCH_FREE_BYTES))
            return false;
        open = batches_open(batches, open ? open->stream : 0, gate);
        if (!open || !batch_append_free(open, tensor->id))
            return false;
    }
    if (batches_full(batches))
        batches_seal(batches);
    return true;
}

/* Takes the handle out of its scope and its td_test() request. */
static void tensor_unlink(td_tensor *tensor) {
    if (tensor->part)
        scope_part_remove(tensor);
    if (tensor->test) {
        tensor->test->tensor = NULL;
        tensor->test = NULL;
    }
}

/* The program has released the handle. */
static void tensor_end(td_tensor *tensor) {
    td_device *device = tensor->device;
    tensor_unlink(tensor);
    tensor->leaving = tensor->holders > 0;
    if (tensor->leaving)
        return;
    if (device->lost || tensor_free(tensor)) {
        tensor_give(&device->tensors, tensor);
    } else {
        tensor->next = device->tensors.waiting;
        device->tensors.waiting = tensor;
    }
}

/* Whether the I/O thread must be woken to send releases. */
static bool tensor_ended(td_device *device) {
    return !device->lost && io_opened(&device->io);
}

bool tensor_release(td_tensor *tensor) {
    tensor_end(tensor);
    return tensor_ended(tensor->device);
}

void tensor_let_go(td_tensor *tensor) {
    td_device *device = tensor->device;
    tensor->holders--;
    if (tensor->leaving && !tensor->holders && tensor_release(tensor))
        io_wake(&device->io);
}

static void tensor_drain_waiting(td_device *device) {
    while (device->tensors.waiting) {
        td_tensor *tensor = device->tensors.waiting;
        td_tensor *next = tensor->next;
        if (!device->lost && !tensor_free(tensor))
            return;
        device->tensors.waiting = next;
        tensor_give(&device->tensors, tensor);
    }
}

/* Takes the list of noted releases; the result is in the order of the releases. */
static td_tensor *tensor_take_released(struct tensor_pool *pool) {
    td_tensor *first = NULL, *tensor = atomic_exchange(&pool->released, NULL);
    while (tensor) {
        td_tensor *earlier = tensor->next_released;
        tensor->next_released = first;
        first = tensor;
        tensor = earlier;
    }
    return first;
}

void tensor_drain(td_device *device) {
    tensor_drain_waiting(device);
    if (!tensor_any_released(&device->tensors))
        return;
    for (td_tensor *tensor = tensor_take_released(&device->tensors), *next; tensor; tensor = next) {
        next = tensor->next_released;
        tensor_end(tensor);
    }
}

/* Only notes the release: taking the lock costs as much as the rest of a small operation, and the next call takes it anyway. */
void td_release(td_tensor *tensor) {
    if (!tensor)
        return;
    td_device *device = tensor->device;
    td_tensor *first = atomic_load_explicit(&device->tensors.released, memory_order_relaxed);
    do
        tensor->next_released = first;
    while (!atomic_compare_exchange_weak(&device->tensors.released, &first, tensor));
    if (!io_asleep(&device->io)) /* the thread looks for releases at each tick, and once more before it sleeps */
        return;
    pthread_mutex_lock(&device->lock);
    tensor_drain(device);
    bool wake = tensor_ended(device);
    pthread_mutex_unlock(&device->lock);
    if (wake)
        io_wake(&device->io);
}

td_dtype td_tensor_dtype(const td_tensor *tensor) {
    return tensor ? (td_dtype)tensor->type.dtype : (td_dtype)0;
}

int td_tensor_rank(const td_tensor *tensor) {
    return tensor ? tensor->type.rank : 0;
}

const int64_t *td_tensor_shape(const td_tensor *tensor) {
    return tensor ? tensor->type.shape : NULL;
}

size_t td_tensor_bytes(const td_tensor *tensor) {
    return tensor ? (size_t)type_bytes(&tensor->type) : 0;
}

td_device *td_tensor_device(const td_tensor *tensor) {
    return tensor ? tensor->device : NULL;
}

size_t td_dtype_size(td_dtype dtype) {
    return dtype_valid((int)dtype) ? dtype_size((enum dtype)dtype) : 0;
}

const char *td_dtype_name(td_dtype dtype) {
    return dtype_name((enum dtype)dtype);
}
