#include <stdlib.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"
#include "client/lib/scope.h"
#include "client/lib/stream.h"

enum { UPLOAD_COPY_MAX = 256 << 10 };

/* What td_upload and td_upload_borrow are told. */
struct source {
    td_device *device;
    struct tensor_type type;
    const void *data;
    uint64_t bytes;
};

static int source_check(struct source *source, td_device *device, td_dtype dtype, int rank, const int64_t *shape,
                        const void *data) {
    struct fault fault;
    int code = 0;
    if (!device)
        code = fault_set(&fault, STATUS_INVALID_ARGUMENT, "the device is NULL");
    else if (rank < 0 || rank > SHAPE_RANK_MAX)
        code = fault_set(&fault, STATUS_SHAPE, "rank %d, 0 to %d are possible", rank, SHAPE_RANK_MAX);
    else if (rank && !shape)
        code = fault_set(&fault, STATUS_INVALID_ARGUMENT, "no extents for rank %d: the shape is NULL", rank);
    else
        code = type_make(&source->type, call_enum(dtype), shape, (size_t)rank, &fault);
    if (!code) {
        source->device = device;
        source->data = data;
        source->bytes = (uint64_t)type_bytes(&source->type);
        if (!data && source->bytes)
            code = fault_set(&fault, STATUS_INVALID_ARGUMENT, "the data is NULL");
    }
    if (code) {
        size_t n;
        error_fault(&fault, "upload", label_current(&n));
        label_clear();
    }
    return code;
}

/* Under the lock: the frame that binds the id and begins the data. */
static void upload_frame(struct upload *upload, const struct source *source, const char *label, uint32_t stream,
                         uint64_t first) {
    td_device *device = source->device;
    Tensord__Upload message = TENSORD__UPLOAD__INIT;
    message.id = upload->id = device->batches.next_id;
    message.dtype = source->type.dtype;
    message.n_shape = (size_t)source->type.rank;
    message.shape = (int64_t *)(uintptr_t)source->type.shape;
    message.stream = stream;
    message.label = (char *)(uintptr_t)(label ? label : "");
    message.sequence = device->batches.next_sequence;
    upload->item.kind = ITEM_UPLOAD;
    upload->item.frame = upload->frame;
    upload->item.frame_bytes = frame_pack(upload->frame, sizeof upload->frame, FRAME_UPLOAD, &message.base, first);
}

/* Queues the upload and makes its handle; the device's lock is held. */
static int upload_push(const struct source *source, struct upload *upload, td_tensor **out) {
    td_device *device = source->device;
    struct queue *queue = &device->queue;
    uint32_t stream;
    size_t n;
    int code = device_admit(device, upload->item.bytes);
    if (!code)
        code = stream_current(device, &stream);
    if (code)
        return code;
    td_tensor *tensor = tensor_take(&device->tensors);
    if (!tensor)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a tensor handle");
    uint64_t first = source->bytes < queue->chunk_bytes ? source->bytes : queue->chunk_bytes;
    device_seal(device);
    upload_frame(upload, source, label_current(&n), stream, first);
    upload->bytes = source->bytes;
    if (first < source->bytes)
        upload->ticket = ++queue->tickets;
    tensor->device = device;
    tensor->id = device->batches.next_id++;
    tensor->type = source->type;
    tensor->gate = upload->ticket;
    device->batches.next_sequence++;
    queue_push(queue, &upload->item);
    *out = tensor;
    return 0;
}

/* Sends the upload, and waits until its data is not needed any more. Where it may have to be sent again that is when the
 * daemon has it, which the answer to a question behind it tells. */
static void upload_wait(td_device *device, struct upload *upload) {
    struct request ping;
    sender_pump_wait(device, upload, INT64_MAX);
    if (!upload->finished && !device->lost) {
        request_init(&ping, REQUEST_WAITED, FRAME_PING, NULL);
        pending_push(device, &ping);
        pending_wait(device, &ping);
    }
    sender_wait_finished(device, upload);
}

/* On success the upload belongs to the queue. */
static td_tensor *upload_start(const struct source *source, struct upload *upload) {
    td_device *device = source->device;
    struct scope_part *part;
    td_tensor *tensor = NULL;
    if (scope_part(device, &part))
        return NULL;
    pthread_mutex_lock(&device->lock);
    int code = upload_push(source, upload, &tensor);
    if (!code) {
        if (part)
            scope_part_add(part, tensor);
        if (upload->waited) {
            upload_wait(device, upload);
        } else if (io_opened(&device->io)) {
            io_wake(&device->io);
        }
    }
    pthread_mutex_unlock(&device->lock);
    if (code != STATUS_AGAIN && code != STATUS_NO_HOST_MEMORY)
        label_clear();
    return tensor;
}

static struct upload *upload_create(size_t copy_bytes) {
    struct upload *upload = malloc(sizeof *upload + copy_bytes);
    if (!upload) {
        error_set(STATUS_NO_HOST_MEMORY, "no memory for an upload of %zu bytes", copy_bytes);
        return NULL;
    }
    *upload = (struct upload){.item.bytes = sizeof *upload + copy_bytes};
    return upload;
}

/* Whether a copy is small, and fits the queue with room to spare for operations. */
static bool upload_copies(td_device *device, uint64_t bytes) {
    struct queue *queue = &device->queue;
    if (bytes > UPLOAD_COPY_MAX || bytes > queue->bytes_max / 4)
        return false;
    pthread_mutex_lock(&device->lock);
    bool room = queue->bytes <= queue->bytes_max / 2;
    pthread_mutex_unlock(&device->lock);
    return room;
}

td_tensor *td_upload(td_device *device, td_dtype dtype, int rank, const int64_t *shape, const void *data) {
    struct source source;
    if (source_check(&source, device, dtype, rank, shape, data))
        return error_null();
    bool copied = upload_copies(device, source.bytes);
    struct upload *upload = upload_create(copied ? (size_t)source.bytes : 0);
    if (!upload)
        return error_null();
    upload->data = data;
    upload->waited = !copied;
    if (copied) {
        upload->data = upload->copy;
        if (source.bytes)
            memcpy(upload->copy, data, (size_t)source.bytes);
    }
    td_tensor *tensor = upload_start(&source, upload);
    if (!tensor || !copied)
        free(upload);
    return tensor ? tensor : error_null();
}

td_tensor *td_upload_borrow(td_device *device, td_dtype dtype, int rank, const int64_t *shape, const void *data,
                            void (*done)(void *user), void *user) {
    struct source source;
    if (source_check(&source, device, dtype, rank, shape, data))
        return error_null();
    struct upload *upload = upload_create(0);
    if (!upload)
        return error_null();
    upload->data = data;
    upload->done = done;
    upload->user = user;
    td_tensor *tensor = upload_start(&source, upload);
    if (!tensor)
        free(upload);
    return tensor ? tensor : error_null();
}
