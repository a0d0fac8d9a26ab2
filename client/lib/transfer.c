/* Moving the bytes of tensors: uploads, fetches, and copies between devices. Also td_wait() and td_test(), which are requests like
 * a fetch. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/lib/call.h"
#include "client/lib/connection.h"
#include "client/lib/control.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/frame.h"
#include "client/lib/record.h"
#include "client/lib/scope.h"
#include "client/lib/stream.h"
#include "client/lib/tape.h"
#include "proto/ops/cleanup.h"

/* ---- uploads ---- */

enum { UPLOAD_COPY_MAX = 256 << 10 };

/* The arguments of td_upload() and td_upload_borrow(). */
struct source {
    td_device *device;
    struct tensor_type type;
    const void *data;
    uint64_t bytes;
};

static int source_check(struct source *source, td_device *device, td_dtype dtype, int rank, const int64_t *shape,
                        const void *data) {
    struct fault fault;
    int code = device ? record_check("upload", device, NULL, RECORD_BRING) : 0;
    if (code) {
        label_clear();
        return code;
    }
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

/* Under the lock: makes the frame that binds the id and has the first bytes. */
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

/* Sends the upload, and waits until its data is not needed any more. If the session can be resumed, that is when the daemon has
 * the data: the reply to a Ping behind the data says so. */
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
    label_used(code);
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

/* Whether the data is small enough to be copied, and leaves room in the queue for operations. */
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

/* ---- fetches ---- */

static int fetch_check(const char *operation, const td_tensor *tensor, const void *data, size_t bytes) {
    struct fault fault = {0};
    if (!tensor && error_of_null())
        return error_of_null();
    uint64_t needed = tensor ? (uint64_t)type_bytes(&tensor->type) : 0;
    if (!tensor)
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "the tensor is NULL");
    else if (bytes != needed)
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "the array has %zu bytes, the tensor %llu", bytes,
                  (unsigned long long)needed);
    else if (!data && bytes)
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "the array is NULL");
    return fault.code ? error_fault(&fault, operation, NULL)
                      : record_check(operation, tensor->device, tensor, RECORD_RUN);
}

/* The same for calls that need no array. */
static int wait_check(const td_tensor *tensor) {
    return tensor ? record_check("wait", tensor->device, tensor, RECORD_RUN) : fetch_check("wait", NULL, NULL, 0);
}

int td_fetch(td_tensor *tensor, void *data, size_t bytes) {
    int code = fetch_check("fetch", tensor, data, bytes);
    if (code)
        return code;
    struct request request;
    request_init(&request, REQUEST_WAITED, FRAME_FETCH, tensor);
    request.data = data;
    request.bytes = bytes;
    return pending_ask(tensor->device, &request);
}

int td_wait(td_tensor *tensor) {
    int code = wait_check(tensor);
    if (code)
        return code;
    struct request request;
    request_init(&request, REQUEST_WAITED, FRAME_WAIT, tensor);
    return pending_ask(tensor->device, &request);
}

/* Queues a request that no caller waits for; the device's lock is held. Takes the request over, also on failure. */
static int ask_later(td_device *device, struct request *request) {
    int code = device_admit(device, request->item.bytes);
    if (code) {
        request_destroy(request);
        return code;
    }
    pending_push(device, request);
    /* The thread must also begin to read, so waking it for an open batch is not enough. */
    if (io_urgent(&device->io))
        io_wake(&device->io);
    return 0;
}

static struct request *request_create(enum request_kind kind, enum frame_type type, td_tensor *tensor) {
    struct request *request = malloc(sizeof *request);
    if (request)
        request_init(request, kind, type, tensor);
    else
        error_set(STATUS_NO_HOST_MEMORY, "no memory for a request");
    return request;
}

static int fetch_later(td_tensor *tensor, struct request *request, void *data, size_t bytes) {
    td_device *device = tensor->device;
    request->data = data;
    request->bytes = bytes;
    request->tensor = NULL; /* the program may release it meanwhile */
    pthread_mutex_lock(&device->lock);
    bool hold = device->resume.on;
    if (hold)
        request->held = tensor;
    tensor->holders += hold;
    int code = ask_later(device, request);
    if (code)
        tensor->holders -= hold;
    pthread_mutex_unlock(&device->lock);
    return code;
}

int td_fetch_async(td_tensor *tensor, void *data, size_t bytes, void (*done)(void *user, int status), void *user) {
    int code = fetch_check("fetch", tensor, data, bytes);
    if (code)
        return code;
    if (!done)
        return error_set(STATUS_INVALID_ARGUMENT, "the callback is NULL");
    struct request *request = request_create(REQUEST_CALLBACK, FRAME_FETCH, tensor);
    if (!request)
        return STATUS_NO_HOST_MEMORY;
    request->callback = done;
    request->user = user;
    return fetch_later(tensor, request, data, bytes);
}

enum { ROOM_SLICE_MS = 10 }; /* pumping goes on until all is sent, and half of it is enough */

/* A request whose end a descriptor tells. */
static int ask_fd(td_tensor *tensor, enum frame_type type, void *data, size_t bytes, int *out) {
    if (!out)
        return error_set(STATUS_INVALID_ARGUMENT, "the place for the descriptor is NULL");
    /* Two descriptors of one counter: even if the caller closes its own too early, the library writes to no other file. */
    CLEANUP(close) int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CLEANUP(close) int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return error_set(STATUS_LIMIT, "cannot make a descriptor: %s", strerrordesc_np(errno));
    struct request *request = request_create(REQUEST_FD, type, tensor);
    if (!request)
        return STATUS_NO_HOST_MEMORY;
    request->fd = own;
    int code = fetch_later(tensor, request, data, bytes);
    if (code)
        return code;
    *out = fd;
    fd = own = -1;
    return 0;
}

int td_fetch_fd(td_tensor *tensor, void *data, size_t bytes, int *out) {
    int code = fetch_check("fetch", tensor, data, bytes);
    return code ? code : ask_fd(tensor, FRAME_FETCH, data, bytes, out);
}

int td_wait_fd(td_tensor *tensor, int *out) {
    int code = wait_check(tensor);
    return code ? code : ask_fd(tensor, FRAME_WAIT, NULL, 0, out);
}

/* ---- waits that the program may end ---- */

static int ask_interruptible(td_device *device, struct request *request, const td_interrupt *interrupt) {
    if (request && interrupt && interrupt->asked && interrupt->done)
        return pending_ask_interruptible(device, request, interrupt);
    if (!request)
        return STATUS_NO_HOST_MEMORY;
    request_destroy(request);
    return error_set(STATUS_INVALID_ARGUMENT, "a function of the interrupt is NULL");
}

int td_fetch_interruptible(td_tensor *tensor, void *data, size_t bytes, const td_interrupt *interrupt) {
    int code = fetch_check("fetch", tensor, data, bytes);
    if (code)
        return code;
    struct request *request = request_create(REQUEST_WAITED, FRAME_FETCH, tensor);
    if (request) {
        request->data = data;
        request->bytes = bytes;
    }
    return ask_interruptible(tensor->device, request, interrupt);
}

int td_wait_interruptible(td_tensor *tensor, const td_interrupt *interrupt) {
    int code = wait_check(tensor);
    if (code)
        return code;
    return ask_interruptible(tensor->device, request_create(REQUEST_WAITED, FRAME_WAIT, tensor), interrupt);
}

int td_sync_interruptible(td_device *device, const td_interrupt *interrupt) {
    if (!device)
        return error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
    int code = record_check("sync", device, NULL, RECORD_SYNC);
    if (code)
        return code;
    return ask_interruptible(device, request_create(REQUEST_WAITED, FRAME_SYNC, NULL), interrupt);
}

int td_wait_room(td_device *device, unsigned timeout_ms) {
    if (!device)
        return error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
    int64_t deadline_ms = timeout_ms == TD_NEVER ? INT64_MAX : control_now_ms() + timeout_ms;
    const struct queue *queue = &device->queue;
    pthread_mutex_lock(&device->lock);
    int64_t now_ms = control_now_ms();
    while (!device->lost && queue->bytes > queue->bytes_max / 2 && now_ms < deadline_ms) {
        int64_t until_ms = now_ms + ROOM_SLICE_MS;
        sender_pump_wait(device, NULL, until_ms < deadline_ms ? until_ms : deadline_ms);
        now_ms = control_now_ms();
    }
    int code = device_check(device);
    if (!code && queue->bytes > queue->bytes_max / 2)
        code = error_set(STATUS_TIMED_OUT, "the send queue of %s still holds %zu bytes", device->name, queue->bytes);
    pthread_mutex_unlock(&device->lock);
    return code;
}

int td_test(td_tensor *tensor) {
    if (!tensor || (tensor_is_recorded(tensor) && wait_check(tensor)))
        return 1;
    td_device *device = tensor->device;
    pthread_mutex_lock(&device->lock);
    bool known = tensor->known || device->lost, ask = !known && !tensor->test;
    pthread_mutex_unlock(&device->lock);
    if (!ask)
        return known;
    struct request *request = request_create(REQUEST_TEST, FRAME_WAIT, tensor);
    if (!request)
        return 0;
    pthread_mutex_lock(&device->lock);
    known = tensor->known || device->lost;
    if (known || tensor->test) { /* another thread was faster */
        request_destroy(request);
    } else if (!ask_later(device, request)) {
        tensor->test = request;
    }
    pthread_mutex_unlock(&device->lock);
    return known;
}

/* ---- copies between devices: the client sends a message to both, and they move the bytes between themselves ---- */

enum { TICKET_BYTES = 16 };

/* Takes both locks, always in the same order. */
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
    label_used(code);
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
    if (record_check("copy", tensor->device, tensor, RECORD_RUN) || record_check("copy", device, NULL, RECORD_BRING)) {
        label_clear();
        return error_null();
    }
    const td_connection *from = tensor->device->connection;
    if (from && device->connection && !connection_same_daemon(from, device->connection))
        return call_refuse(OP_COPY, STATUS_UNSUPPORTED,
                           "%s of %.80s and %s of %.80s belong to different daemons, which do not copy to each other",
                           tensor->device->name, from->url, device->name, device->connection->url);
    struct batch_entry call = {.opcode = OP_COPY, .n_inputs = 1, .inputs = &tensor};
    if (tape_any() && tape_reserve(&call, 1))
        return error_null();
    td_tensor *copy = copy_between(tensor, device);
    if (copy && tape_any()) {
        tape_note(&call, 1, &copy); /* which holds nothing of a copy */
        tape_add(OP_COPY);
    }
    return copy;
}
