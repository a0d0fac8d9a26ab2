/* What comes from the daemon on a data connection. Runs on whichever thread is the reader. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"
#include "client/lib/trace.h"

struct reception {
    td_device *device;
    td_error *cause;
    bool told; /* the daemon said itself why it ends: `cause` has its words */
};

static int receive_error(struct reception *reception, const struct frame_header *header, const uint8_t *message,
                         struct fault *fault) {
    ProtobufCMessage *error;
    int code = frame_unpack(&tensord__error__descriptor, header, message, &error, fault);
    if (code)
        return code;
    error_from_wire(reception->cause, (const Tensord__Error *)error);
    protobuf_c_message_free_unpacked(error, NULL);
    reception->told = true;
    return reception->cause->code;
}

/* Under the lock: the request that the frame answers, or NULL and the fault. */
static struct request *receive_awaited(td_device *device, const struct frame_header *header, struct fault *fault) {
    struct request *request = pending_find(&device->pending, header->sequence);
    if (request && request->reply == header->type) {
        (void)sender_handled(device, request->frames); /* an answer comes after what was sent before its question */
        return request;
    }
    fault_set(fault, STATUS_PROTOCOL, "%s for %llu, which waits for none", frame_type_name(header->type),
              (unsigned long long)header->sequence);
    return NULL;
}

static int receive_done(td_device *device, const struct frame_header *header, const uint8_t *message,
                        struct fault *fault) {
    ProtobufCMessage *unpacked;
    int code = frame_unpack(&tensord__done__descriptor, header, message, &unpacked, fault);
    if (code)
        return code;
    const Tensord__Done *done = (const Tensord__Done *)unpacked;
    td_error error;
    if (done->error)
        error_from_wire(&error, done->error);
    pthread_mutex_lock(&device->lock);
    struct request *request = receive_awaited(device, header, fault);
    if (request)
        pending_complete(device, request, done->error ? &error : NULL);
    else
        code = STATUS_PROTOCOL;
    pthread_mutex_unlock(&device->lock);
    protobuf_c_message_free_unpacked(unpacked, NULL);
    return code;
}

static int receive_pong(td_device *device, const struct frame_header *header, struct fault *fault) {
    pthread_mutex_lock(&device->lock);
    struct request *request = receive_awaited(device, header, fault);
    if (request)
        pending_complete(device, request, NULL);
    pthread_mutex_unlock(&device->lock);
    return request ? 0 : STATUS_PROTOCOL;
}

static int receive_ack(td_device *device, const struct frame_header *header, const uint8_t *message,
                       struct fault *fault) {
    ProtobufCMessage *ack;
    int code = frame_unpack(&tensord__ack__descriptor, header, message, &ack, fault);
    if (code)
        return code;
    uint64_t frames = ((const Tensord__Ack *)ack)->frames;
    protobuf_c_message_free_unpacked(ack, NULL);
    pthread_mutex_lock(&device->lock);
    if (!sender_handled(device, frames))
        code = fault_set(fault, STATUS_PROTOCOL, "the daemon has handled %llu frames, more than were sent",
                         (unsigned long long)frames);
    pthread_mutex_unlock(&device->lock);
    return code;
}

/* Under the lock. Chunks come in order and fill the array exactly. */
static int accept_chunk(td_device *device, struct request *request, const Tensord__FetchChunk *chunk, uint64_t payload,
                        uint8_t **sink, struct fault *fault) {
    if (chunk->error) {
        td_error error;
        error_from_wire(&error, chunk->error);
        if (payload)
            return fault_set(fault, STATUS_PROTOCOL, "a failed fetch with %llu bytes", (unsigned long long)payload);
        pending_complete(device, request, &error);
        return 0;
    }
    if (chunk->total != request->bytes || chunk->offset != request->received ||
        payload > request->bytes - request->received || (!payload && request->bytes))
        return fault_set(fault, STATUS_PROTOCOL, "%llu bytes at %llu of %llu, %llu of %llu were expected",
                         (unsigned long long)payload, (unsigned long long)chunk->offset,
                         (unsigned long long)chunk->total, (unsigned long long)request->received,
                         (unsigned long long)request->bytes);
    if (payload)
        *sink = request->data + request->received;
    else
        pending_complete(device, request, NULL);
    return 0;
}

static int receive_chunk(td_device *device, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                         struct fault *fault) {
    ProtobufCMessage *chunk;
    int code = frame_unpack(&tensord__fetch_chunk__descriptor, header, message, &chunk, fault);
    if (code)
        return code;
    pthread_mutex_lock(&device->lock);
    struct request *request = receive_awaited(device, header, fault);
    code = request
               ? accept_chunk(device, request, (const Tensord__FetchChunk *)chunk, header->payload_bytes, sink, fault)
               : STATUS_PROTOCOL;
    pthread_mutex_unlock(&device->lock);
    protobuf_c_message_free_unpacked(chunk, NULL);
    return code;
}

/* Under the lock. The payload is the compiler's log, which a caller without memory for it does without. */
static int accept_compiled(td_device *device, struct request *request, const Tensord__KernelCompiled *compiled,
                           uint64_t payload, uint8_t **sink, struct fault *fault) {
    if (request->bytes)
        return fault_set(fault, STATUS_PROTOCOL, "a second answer to one compilation");
    request->error.code = 0;
    if (compiled->error)
        error_from_wire(&request->error, compiled->error);
    request->bytes = payload;
    if (payload) {
        request->data = calloc((size_t)payload + 1, 1); /* a text also where the connection ends within it */
        *sink = request->data;
    } else {
        pending_complete(device, request, request->error.code ? &request->error : NULL);
    }
    return 0;
}

static int receive_compiled(td_device *device, const struct frame_header *header, const uint8_t *message,
                            uint8_t **sink, struct fault *fault) {
    ProtobufCMessage *compiled;
    int code = frame_unpack(&tensord__kernel_compiled__descriptor, header, message, &compiled, fault);
    if (code)
        return code;
    pthread_mutex_lock(&device->lock);
    struct request *request = receive_awaited(device, header, fault);
    code = request ? accept_compiled(device, request, (const Tensord__KernelCompiled *)compiled, header->payload_bytes,
                                     sink, fault)
                   : STATUS_PROTOCOL;
    pthread_mutex_unlock(&device->lock);
    protobuf_c_message_free_unpacked(compiled, NULL);
    return code;
}

/* Under the lock. What does not make a tensor is the daemon's error. */
static int accept_opened(td_device *device, struct request *request, const Tensord__NameOpened *opened,
                         struct fault *fault) {
    td_error error;
    int code = 0;
    if (opened->error)
        error_from_wire(&error, opened->error);
    else
        code = type_make(request->type, opened->dtype, opened->shape, opened->n_shape, fault);
    if (code)
        return fault_set(fault, STATUS_PROTOCOL, "a name was opened that is no tensor");
    pending_complete(device, request, opened->error ? &error : NULL);
    return 0;
}

static int receive_opened(td_device *device, const struct frame_header *header, const uint8_t *message,
                          struct fault *fault) {
    ProtobufCMessage *opened;
    int code = frame_unpack(&tensord__name_opened__descriptor, header, message, &opened, fault);
    if (code)
        return code;
    pthread_mutex_lock(&device->lock);
    struct request *request = pending_find(&device->pending, header->sequence);
    if (request && request->reply == FRAME_NAME_OPENED)
        code = accept_opened(device, request, (const Tensord__NameOpened *)opened, fault);
    else
        code = fault_set(fault, STATUS_PROTOCOL, "NAME_OPENED for %llu, which waits for none",
                         (unsigned long long)header->sequence);
    pthread_mutex_unlock(&device->lock);
    protobuf_c_message_free_unpacked(opened, NULL);
    return code;
}

/* Under the lock. The payload is the names, without which there is no answer. */
static int accept_names(td_device *device, struct request *request, const Tensord__NameList *list, uint64_t payload,
                        uint8_t **sink, struct fault *fault) {
    td_error error;
    if (request->data)
        return fault_set(fault, STATUS_PROTOCOL, "a second answer to one list of names");
    if (list->error)
        error_from_wire(&error, list->error);
    else if (!(request->data = malloc((size_t)payload + 1)))
        error_compose(&error, STATUS_NO_HOST_MEMORY, "no memory for a list of names", NULL, NULL, 0);
    request->more = list->more;
    request->bytes = payload;
    *sink = request->data;
    if (!request->data || !payload)
        pending_complete(device, request, request->data ? NULL : &error);
    return 0;
}

static int receive_names(td_device *device, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                         struct fault *fault) {
    ProtobufCMessage *list;
    int code = frame_unpack(&tensord__name_list__descriptor, header, message, &list, fault);
    if (code)
        return code;
    pthread_mutex_lock(&device->lock);
    struct request *request = pending_find(&device->pending, header->sequence);
    if (request && request->reply == FRAME_NAME_LIST)
        code = accept_names(device, request, (const Tensord__NameList *)list, header->payload_bytes, sink, fault);
    else
        code = fault_set(fault, STATUS_PROTOCOL, "NAME_LIST for %llu, which waits for none",
                         (unsigned long long)header->sequence);
    pthread_mutex_unlock(&device->lock);
    protobuf_c_message_free_unpacked(list, NULL);
    return code;
}

static bool may_have_payload(unsigned type) {
    return type == FRAME_FETCH_CHUNK || type == FRAME_KERNEL_COMPILED || type == FRAME_NAME_LIST;
}

static int on_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                      struct fault *fault) {
    struct reception *reception = owner;
    trace_frame("<-", header, message);
    if (header->payload_bytes && !may_have_payload(header->type))
        return fault_set(fault, STATUS_PROTOCOL, "%s with %llu bytes behind it", frame_type_name(header->type),
                         (unsigned long long)header->payload_bytes);
    switch (header->type) {
    case FRAME_FETCH_CHUNK:
        return receive_chunk(reception->device, header, message, sink, fault);
    case FRAME_KERNEL_COMPILED:
        return receive_compiled(reception->device, header, message, sink, fault);
    case FRAME_NAME_OPENED:
        return receive_opened(reception->device, header, message, fault);
    case FRAME_NAME_LIST:
        return receive_names(reception->device, header, message, sink, fault);
    case FRAME_DONE:
        return receive_done(reception->device, header, message, fault);
    case FRAME_PONG:
        return receive_pong(reception->device, header, fault);
    case FRAME_ACK:
        return receive_ack(reception->device, header, message, fault);
    case FRAME_ERROR:
        return receive_error(reception, header, message, fault);
    default:
        return fault_set(fault, STATUS_PROTOCOL, "%s from the daemon", frame_type_name(header->type));
    }
}

static int on_payload(void *owner, const struct frame_header *header, struct fault *fault) {
    td_device *device = ((struct reception *)owner)->device;
    (void)fault;
    pthread_mutex_lock(&device->lock);
    struct request *request = pending_find(&device->pending, header->sequence);
    if (request) {
        request->received += header->payload_bytes;
        if (request->received == request->bytes)
            pending_complete(device, request,
                             request->reply == FRAME_KERNEL_COMPILED && request->error.code ? &request->error : NULL);
    }
    pthread_mutex_unlock(&device->lock);
    return 0;
}

static int over(td_device *device, td_error *cause, int error) {
    struct fault fault = {0};
    const char *reason = transport_reason(&device->transport, error, &fault);
    char text[320];
    pthread_mutex_lock(&device->lock);
    if (device->sender.error) /* why the sender ended it */
        error = device->sender.error;
    pthread_mutex_unlock(&device->lock);
    if (fault.code == STATUS_CONNECTION)
        snprintf(text, sizeof text, "the connection to %s ended: its worker died or the daemon stopped (%s)",
                 device->name, reason);
    else if (!error || error == ECONNRESET || error == EPIPE)
        snprintf(text, sizeof text, "the connection to %s ended: its worker died or the daemon stopped", device->name);
    else
        snprintf(text, sizeof text, "the connection to %s failed: %s", device->name,
                 fault.code ? reason : strerrordesc_np(error));
    error_compose(cause, STATUS_DEVICE_LOST, text, NULL, NULL, 0);
    return -1;
}

int reader_receive(td_device *device, td_error *cause, bool *final) {
    struct frame_reader *reader = &device->reader.frames;
    uint8_t *place;
    size_t bytes;
    frame_reader_want(reader, &place, &bytes);
    ssize_t got = transport_read(&device->transport, place, bytes);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    *final = false;
    if (got <= 0)
        return over(device, cause, got ? errno : 0);
    atomic_store_explicit(&device->reader.heard, atomic_load_explicit(&device->reader.heard, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    static const struct frame_handler handler = {.on_message = on_message, .on_payload = on_payload};
    struct reception reception = {.device = device, .cause = cause};
    struct fault fault = {0};
    if (!frame_reader_advance(reader, (size_t)got, &handler, &reception, &fault))
        return 1;
    *final = true;
    if (!reception.told)
        error_compose(cause, fault.code ? (int)fault.code : STATUS_PROTOCOL, fault.message, NULL, NULL, 0);
    return -1;
}
