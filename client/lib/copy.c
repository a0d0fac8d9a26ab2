/* Copies between devices: both are told, and move the bytes themselves. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/lib/call.h"
#include "client/lib/connection.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"
#include "client/lib/scope.h"
#include "client/lib/stream.h"
#include "proto/ops/cleanup.h"

enum { TICKET_BYTES = 16 };

/* Both locks, always in the same order. */
static void lock_both(td_device *a, td_device *b) {
    pthread_mutex_lock(a < b ? &a->lock : &b->lock);
    pthread_mutex_lock(a < b ? &b->lock : &a->lock);
}

static struct frame_item *copy_out_frame(const td_tensor *tensor, const td_device *to, uint8_t *ticket) {
    Tensord__CopyOut message = TENSORD__COPY_OUT__INIT;
    message.id = tensor->id;
    message.device = (char *)(uintptr_t)to->name;
    message.ticket = (ProtobufCBinaryData){.len = TICKET_BYTES, .data = ticket};
    struct frame_item *frame =
        frame_item_create(FRAME_COPY_OUT, &message.base, tensord__copy_out__get_packed_size(&message));
    if (frame)
        frame->item.gate = tensor->gate;
    return frame;
}

static struct frame_item *copy_in_frame(const td_tensor *tensor, const td_device *to, uint8_t *ticket, uint32_t stream,
                                        const char *label) {
    Tensord__CopyIn message = TENSORD__COPY_IN__INIT;
    message.id = to->batches.next_id;
    message.dtype = tensor->type.dtype;
    message.n_shape = (size_t)tensor->type.rank;
    message.shape = (int64_t *)(uintptr_t)tensor->type.shape;
    message.stream = stream;
    message.ticket = (ProtobufCBinaryData){.len = TICKET_BYTES, .data = ticket};
    message.label = (char *)(uintptr_t)(label ? label : "");
    message.sequence = to->batches.next_sequence;
    message.source = (char *)(uintptr_t)tensor->device->name;
    return frame_item_create(FRAME_COPY_IN, &message.base, tensord__copy_in__get_packed_size(&message));
}

/* Under both locks: queues both frames, or neither. */
static int copy_push(td_tensor *tensor, td_device *to, uint8_t *ticket, td_tensor **out) {
    td_device *from = tensor->device;
    uint32_t stream;
    size_t n;
    int code = stream_current(to, &stream);
    if (code)
        return code;
    device_seal(to);
    device_seal(from);
    CLEANUP(free) struct frame_item *copy_out = copy_out_frame(tensor, to, ticket);
    CLEANUP(free) struct frame_item *copy_in = copy_in_frame(tensor, to, ticket, stream, label_current(&n));
    if (!copy_out || !copy_in)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a copy");
    code = device_admit(to, copy_in->item.bytes);
    if (!code)
        code = device_admit(from, copy_out->item.bytes);
    if (code)
        return code;
    td_tensor *copy = tensor_take(&to->tensors);
    if (!copy)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a copy");
    copy->device = to;
    copy->id = to->batches.next_id++;
    copy->type = tensor->type;
    to->batches.next_sequence++;
    queue_push(&to->queue, &TAKE(copy_in)->item);
    queue_push(&from->queue, &TAKE(copy_out)->item);
    *out = copy;
    return 0;
}

static td_tensor *copy_between(td_tensor *tensor, td_device *to) {
    td_device *from = tensor->device;
    struct scope_part *part;
    uint8_t ticket[TICKET_BYTES];
    td_tensor *copy = NULL;
    if (getrandom(ticket, sizeof ticket, 0) != sizeof ticket)
        return call_refuse(OP_COPY, STATUS_INTERNAL, "no random numbers for the copy's ticket");
    if (scope_part(to, &part))
        return error_null();
    lock_both(from, to);
    int code = copy_push(tensor, to, ticket, &copy);
    if (!code && part)
        scope_part_add(part, copy);
    bool wake_from = !code && io_opened(&from->io), wake_to = !code && io_opened(&to->io);
    pthread_mutex_unlock(&from->lock);
    pthread_mutex_unlock(&to->lock);
    if (wake_from)
        io_wake(&from->io);
    if (wake_to)
        io_wake(&to->io);
    if (code != STATUS_AGAIN && code != STATUS_NO_HOST_MEMORY)
        label_clear();
    return copy ? copy : error_null();
}

td_tensor *td_copy_to(td_tensor *tensor, td_device *device) {
    if (!tensor && !error_of_null())
        return call_refuse(OP_COPY, STATUS_INVALID_ARGUMENT, "the tensor is NULL");
    if (!tensor) {
        label_clear();
        return NULL;
    }
    if (!device)
        return call_refuse(OP_COPY, STATUS_INVALID_ARGUMENT, "the device is NULL");
    if (device == tensor->device)
        return td_copy(tensor);
    const td_connection *from = tensor->device->connection;
    if (from && device->connection && !connection_same_daemon(from, device->connection))
        return call_refuse(OP_COPY, STATUS_UNSUPPORTED,
                           "%s of %.80s and %s of %.80s belong to different daemons, which do not copy to each other",
                           tensor->device->name, from->url, device->name, device->connection->url);
    return copy_between(tensor, device);
}
