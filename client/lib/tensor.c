#include "client/lib/tensor.h"

#include <stdlib.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/scope.h"

enum { SLAB_TENSORS = 128, FREE_BYTES = 16 };

struct tensor_slab {
    struct tensor_slab *next;
    struct td_tensor tensors[SLAB_TENSORS];
};

static bool tensor_pool_grow(struct tensor_pool *pool) {
    struct tensor_slab *slab = malloc(sizeof *slab);
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
    tensor->gate = 0;
    tensor->part = NULL;
    tensor->next = tensor->previous = NULL;
    tensor->test = NULL;
    tensor->known = tensor->leaving = false;
    tensor->holders = 0;
    return tensor;
}

/* Last in, first out: a chain of operations keeps using the same few lines of cache. */
void tensor_give(struct tensor_pool *pool, td_tensor *tensor) {
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

/* Queues the `free`; false where there is no room for it now. */
static bool tensor_free(td_tensor *tensor) {
    td_device *device = tensor->device;
    struct queue *queue = &device->queue;
    bool gated = tensor->gate > queue->tickets_sent;
    if (gated && device->open && device->open->item.gate < tensor->gate)
        device_seal(device);
    size_t before = device->open ? device->open->item.bytes : 0;
    if (device->open && batch_release(device->open, tensor->id)) {
        queue->bytes += device->open->item.bytes - before;
        if (device->open->item.bytes >= BATCH_SEAL_BYTES)
            device_seal(device);
        return true;
    }
    struct batch_entry entry = {
        .opcode = OP_FREE, .n_inputs = 1, .inputs = (td_tensor *const[]){tensor}, .bytes = FREE_BYTES};
    if (!queue_room(queue, FREE_BYTES) || !(device->open || (device->open = batch_take(&device->batches))) ||
        !batch_reserve(device->open, &entry))
        return false;
    device_append(device, &entry, gated ? tensor->gate : 0);
    return true;
}

/* Nobody finds the handle any more. */
static void tensor_unlink(td_tensor *tensor) {
    if (tensor->part)
        scope_part_remove(tensor);
    if (tensor->test) {
        tensor->test->tensor = NULL;
        tensor->test = NULL;
    }
}

void tensor_forget(td_tensor *tensor) {
    tensor_unlink(tensor);
    tensor_give(&tensor->device->tensors, tensor);
}

bool tensor_release(td_tensor *tensor) {
    td_device *device = tensor->device;
    tensor_unlink(tensor);
    tensor->leaving = tensor->holders > 0;
    if (tensor->leaving)
        return false;
    if (device->lost || tensor_free(tensor)) {
        tensor_give(&device->tensors, tensor);
    } else {
        tensor->next = device->tensors.released;
        device->tensors.released = tensor;
    }
    return !device->lost && io_opened(device);
}

void tensor_let_go(td_tensor *tensor) {
    tensor->holders--;
    if (tensor->leaving && !tensor->holders && tensor_release(tensor))
        io_wake(tensor->device);
}

void tensor_drain(td_device *device) {
    while (device->tensors.released) {
        td_tensor *tensor = device->tensors.released;
        td_tensor *next = tensor->next;
        if (!device->lost && !tensor_free(tensor))
            return;
        device->tensors.released = next;
        tensor_give(&device->tensors, tensor);
    }
}

void td_release(td_tensor *tensor) {
    if (!tensor)
        return;
    td_device *device = tensor->device;
    pthread_mutex_lock(&device->lock);
    bool wake = tensor_release(tensor);
    pthread_mutex_unlock(&device->lock);
    if (wake)
        io_wake(device);
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
