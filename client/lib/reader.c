#include "client/lib/reader.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"

/* Waking a sleeping core takes some 30 µs on virtual machines. A reply that comes while the reader spins saves this time. */
enum {
    SPIN_NS = 50000,
    NS_PER_S = 1000000000,
    READ_AHEAD = 64 << 10,
    LOOKS_MAX = 16, /* reads in a row, so that during a long fetch the thread still sends, and can be stopped */
};

int reader_init(struct reader *reader) {
    *reader = (struct reader){.busy = false};
    int code = frame_reader_init(&reader->frames, READ_AHEAD);
    if (!code)
        frame_reader_limits(&reader->frames, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX);
    return code;
}

void reader_finish(struct reader *reader) {
    frame_reader_finish(&reader->frames);
}

/* ---- replies, each under the lock ---- */

/* Handles a reply of one type for its request. `payload` bytes will follow the message; *sink says where they go. */
typedef int accept_reply(td_device *device, struct request *request, const ProtobufCMessage *message, uint64_t payload,
                         uint8_t **sink, struct fault *fault);

static int accept_done(td_device *device, struct request *request, const ProtobufCMessage *message, uint64_t payload,
                       uint8_t **sink, struct fault *fault) {
    const Tensord__Done *done = (const Tensord__Done *)message;
    td_error error;
    (void)payload, (void)sink, (void)fault;
    if (done->error)
        error_from_wire(&error, done->error);
    pending_complete(device, request, done->error ? &error : NULL);
    return 0;
}

static int accept_pong(td_device *device, struct request *request, const ProtobufCMessage *message, uint64_t payload,
                       uint8_t **sink, struct fault *fault) {
    (void)message, (void)payload, (void)sink, (void)fault;
    pending_complete(device, request, NULL);
    return 0;
}

/* Chunks come in order and fill the array exactly. */
static int accept_chunk(td_device *device, struct request *request, const ProtobufCMessage *message, uint64_t payload,
                        uint8_t **sink, struct fault *fault) {
    const Tensord__FetchChunk *chunk = (const Tensord__FetchChunk *)message;
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

/* The payload is the compiler's log. If there is no memory for it, the caller gets no log. */
static int accept_compiled(td_device *device, struct request *request, const ProtobufCMessage *message,
                           uint64_t payload, uint8_t **sink, struct fault *fault) {
    const Tensord__KernelCompiled *compiled = (const Tensord__KernelCompiled *)message;
    if (request->bytes)
        return fault_set(fault, STATUS_PROTOCOL, "a second answer to one compilation");
    request->error.code = 0;
    if (compiled->error)
        error_from_wire(&request->error, compiled->error);
    request->bytes = payload;
    if (payload) {
        request->data = calloc((size_t)payload + 1, 1); /* ends with a 0 even if the connection ends within the log */
        *sink = request->data;
    } else {
        pending_complete(device, request, request->error.code ? &request->error : NULL);
    }
    return 0;
}

static int accept_opened(td_device *device, struct request *request, const ProtobufCMessage *message, uint64_t payload,
                         uint8_t **sink, struct fault *fault) {
    const Tensord__NameOpened *opened = (const Tensord__NameOpened *)message;
    td_error error;
    (void)payload, (void)sink;
    if (opened->error)
        error_from_wire(&error, opened->error);
    else if (type_make(request->type, opened->dtype, opened->shape, opened->n_shape, fault))
        return fault_set(fault, STATUS_PROTOCOL, "a name was opened that is no tensor");
    pending_complete(device, request, opened->error ? &error : NULL);
    return 0;
}

/* The payload is the names. If there is no memory for it, the request fails. */
static int accept_names(td_device *device, struct request *request, const ProtobufCMessage *message, uint64_t payload,
                        uint8_t **sink, struct fault *fault) {
    const Tensord__NameList *list = (const Tensord__NameList *)message;
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

static const struct reply {
    enum frame_type type;
    const ProtobufCMessageDescriptor *descriptor;
    accept_reply *accept;
    bool may_have_payload;
} replies[] = {
    {FRAME_FETCH_CHUNK, &tensord__fetch_chunk__descriptor, accept_chunk, true},
    {FRAME_DONE, &tensord__done__descriptor, accept_done, false},
    {FRAME_PONG, &tensord__pong__descriptor, accept_pong, false},
    {FRAME_KERNEL_COMPILED, &tensord__kernel_compiled__descriptor, accept_compiled, true},
    {FRAME_NAME_OPENED, &tensord__name_opened__descriptor, accept_opened, false},
    {FRAME_NAME_LIST, &tensord__name_list__descriptor, accept_names, true},
};

static const struct reply *reply_find(unsigned type) {
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++)
        if (replies[i].type == type)
            return &replies[i];
    return NULL;
}

static int receive_reply(td_device *device, const struct reply *reply, const struct frame_header *header,
                         const uint8_t *bytes, uint8_t **sink, struct fault *fault) {
    ProtobufCMessage *message;
    int code = frame_unpack(reply->descriptor, header, bytes, &message, fault);
    if (code)
        return code;
    pthread_mutex_lock(&device->lock);
    struct request *request = pending_find(&device->pending, header->sequence);
    if (request && request->reply == header->type) {
        (void)sender_handled(device, request->frames); /* a reply comes after the frames before its request */
        code = reply->accept(device, request, message, header->payload_bytes, sink, fault);
    } else {
        code = fault_set(fault, STATUS_PROTOCOL, "%s for %llu, which waits for none", frame_type_name(header->type),
                         (unsigned long long)header->sequence);
    }
    pthread_mutex_unlock(&device->lock);
    protobuf_c_message_free_unpacked(message, NULL);
    return code;
}

/* ---- frames ---- */

struct reception {
    td_device *device;
    td_error *cause;
    bool told; /* the daemon has said why it ends the connection: `cause` has its words */
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

static int on_message(void *owner, const struct frame_header *header, const uint8_t *message, uint8_t **sink,
                      struct fault *fault) {
    struct reception *reception = owner;
    const struct reply *reply = reply_find(header->type);
    trace_frame("<-", header, message);
    if (header->payload_bytes && !(reply && reply->may_have_payload))
        return fault_set(fault, STATUS_PROTOCOL, "%s with %llu bytes behind it", frame_type_name(header->type),
                         (unsigned long long)header->payload_bytes);
    if (reply)
        return receive_reply(reception->device, reply, header, message, sink, fault);
    if (header->type == FRAME_ACK)
        return receive_ack(reception->device, header, message, fault);
    if (header->type == FRAME_ERROR)
        return receive_error(reception, header, message, fault);
    return fault_set(fault, STATUS_PROTOCOL, "%s from the daemon", frame_type_name(header->type));
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

/* The connection has ended: fills `cause`. Returns -1. */
static int over(td_device *device, td_error *cause, int error) {
    struct fault fault = {0};
    const char *reason = transport_reason(&device->transport, error, &fault);
    char text[320];
    pthread_mutex_lock(&device->lock);
    if (device->sender.error) /* the sender has ended the connection because of this */
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

/* Without the lock: reads and handles what the socket has. 1: there was something; 0: nothing now; -1: the connection has
 * ended, `cause` says why, and *final says that the daemon or the protocol has ended it for good. */
static int reader_receive(td_device *device, td_error *cause, bool *final) {
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

/* ---- the role ---- */

void reader_cut(td_device *device) {
    struct frame_reader *reader = &device->reader.frames;
    uint64_t begun = frame_reader_payload_begun(reader);
    struct request *request = begun ? pending_find(&device->pending, reader->header.sequence) : NULL;
    if (request && request->reply == FRAME_FETCH_CHUNK)
        request->received += begun;
    frame_reader_reset(reader);
}

/* Gives the role back. */
static void reader_leave(td_device *device, int got, const td_error *cause, bool final) {
    device->reader.busy = false;
    if (got < 0)
        device_interrupt(device, cause, final);
    sender_notify(device);
}

void reader_look(td_device *device) {
    td_error cause;
    bool final = false;
    if (device->reader.busy || device->lost || device->resume.away)
        return;
    device->reader.busy = true;
    pthread_mutex_unlock(&device->lock);
    int got = 1;
    for (int i = 0; i < LOOKS_MAX && got > 0; i++)
        got = reader_receive(device, &cause, &final);
    pthread_mutex_lock(&device->lock);
    reader_leave(device, got, &cause, final);
    reader_pass_role(device);
}

void reader_pass_role(td_device *device) {
    const struct pending *pending = &device->pending;
    if (device->reader.busy || device->resume.away)
        return;
    for (struct request *request = pending->first; request; request = request->next) {
        if (request->waiting) {
            pthread_cond_signal(&request->wake);
            return;
        }
    }
    if (pending->n_async && io_urgent(&device->io))
        io_wake(&device->io);
}

/* Nothing has come: spins for a short time, then sleeps until something comes. False: a signal has come meanwhile. */
static bool read_idle(td_device *device, uint64_t *spin_until, uint64_t until_ns) {
    uint64_t now = io_now_ns();
    if (!*spin_until)
        *spin_until = now + SPIN_NS;
    if (now < *spin_until) {
        sched_yield();
        return true;
    }
    struct pollfd entry = {.fd = device->transport.fd, .events = POLLIN};
    if (!until_ns)
        return poll(&entry, 1, -1) >= 0;
    uint64_t left = until_ns > now ? until_ns - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    return ppoll(&entry, 1, &timeout, NULL) >= 0;
}

void reader_until_done(td_device *device, const atomic_bool *done, uint64_t until_ns) {
    td_error cause;
    bool final = false;
    int got = 0;
    uint64_t spin_until = 0;
    device->reader.busy = true;
    pthread_mutex_unlock(&device->lock);
    while (!atomic_load_explicit(done, memory_order_acquire)) {
        got = reader_receive(device, &cause, &final);
        if (got < 0)
            break;
        bool signalled = false;
        if (got > 0)
            spin_until = 0;
        else
            signalled = !read_idle(device, &spin_until, until_ns);
        if (until_ns && (signalled || io_now_ns() >= until_ns))
            break;
    }
    pthread_mutex_lock(&device->lock);
    reader_leave(device, got, &cause, final);
}
