#include "client/lib/pending.h"

#include <stdlib.h>
#include <unistd.h>

#include "client/lib/device.h"
#include "client/lib/error.h"

enum { INTERRUPT_SLICE_NS = 100000000 };

void pending_init(struct pending *pending) {
    *pending = (struct pending){.next_sequence = 2}; /* Hello was 1 */
}

/* Writes the request's own frame; a Fetch asks for the bytes that have not come yet. */
static void request_frame(struct request *request) {
    size_t bytes = 0;
    if (request->id) {
        /* Fetch and Wait have the same first field. */
        Tensord__Fetch fetch = TENSORD__FETCH__INIT;
        fetch.id = request->id;
        fetch.offset = request->received;
        bytes = tensord__fetch__pack(&fetch, request->frame + FRAME_HEADER_BYTES);
    }
    struct frame_header header = {
        .type = (uint16_t)request->asked, .message_bytes = (uint32_t)bytes, .sequence = request->sequence};
    frame_header_encode(&header, request->frame);
    request->item.frame_bytes = FRAME_HEADER_BYTES + bytes;
    request->item.bytes = request->item.frame_bytes;
}

void request_init(struct request *request, enum request_kind kind, enum frame_type type, td_tensor *tensor) {
    *request = (struct request){.kind = kind,
                                .tensor = tensor,
                                .fd = -1,
                                .asked = type,
                                .reply = type == FRAME_FETCH            ? FRAME_FETCH_CHUNK
                                         : type == FRAME_KERNEL_COMPILE ? FRAME_KERNEL_COMPILED
                                         : type == FRAME_PING           ? FRAME_PONG
                                         : type == FRAME_OPEN_NAME      ? FRAME_NAME_OPENED
                                         : type == FRAME_LIST_NAMES     ? FRAME_NAME_LIST
                                                                        : FRAME_DONE};
    if (tensor) {
        request->id = tensor->id;
        request->item.gate = tensor->gate;
    }
    request->item.kind = ITEM_FRAME;
    request->item.frame = request->frame;
    request->item.request = request;
    request->item.uncounted = true;
    request_frame(request);
    pthread_cond_init(&request->wake, NULL);
}

void request_destroy(struct request *request) {
    pthread_cond_destroy(&request->wake);
    free(request);
}

/* Gives the request its number, which goes into its frame, and links it. */
static void pending_link(td_device *device, struct request *request, uint8_t *frame) {
    struct pending *pending = &device->pending;
    if (!request->sequence)
        request->sequence = pending->next_sequence++;
    frame_header_number(frame, request->sequence);
    request->next = NULL;
    request->previous = pending->last;
    *(pending->last ? &pending->last->next : &pending->first) = request;
    pending->last = request;
    pending->n_async += request->kind != REQUEST_WAITED;
}

void pending_push(td_device *device, struct request *request) {
    pending_link(device, request, request->frame);
    if (request->asked == FRAME_SYNC)
        request->item.gate = device->queue.tickets;
    device_seal(device);
    queue_push(&device->queue, &request->item);
}

void pending_push_frame(td_device *device, struct request *request, struct frame_item *frame) {
    pending_link(device, request, frame->bytes);
    frame->item.request = request;
    request->elsewhere = true;
    frame->item.uncounted = true;
    device_seal(device);
    queue_push(&device->queue, &frame->item);
}

/* A request that is still in the queue has no reply: a daemon that sends one has made it up. */
struct request *pending_find(struct pending *pending, uint64_t sequence) {
    for (struct request *request = pending->first; request; request = request->next)
        if (request->sequence == sequence)
            return request->item.queued ? NULL : request;
    return NULL;
}

/* Whether the request with this sequence still waits for its reply. */
static bool pending_is(const struct pending *pending, uint64_t sequence) {
    const struct request *request = pending->first;
    while (request && request->sequence != sequence)
        request = request->next;
    return request;
}

static void completion_callback(struct completion *completion) {
    struct request *request = (struct request *)((char *)completion - offsetof(struct request, completion));
    if (request->status)
        error_store(&request->error);
    request->callback(request->user, request->status);
    request_destroy(request);
}

static void request_end(td_device *device, struct request *request) {
    uint64_t value = (uint64_t)request->status + 1;
    switch (request->kind) {
    case REQUEST_WAITED:
        if (request->waiting)
            pthread_cond_signal(&request->wake);
        return;
    case REQUEST_CALLBACK:
        request->completion.run = completion_callback;
        io_complete(&device->io, &request->completion);
        return;
    case REQUEST_FD:
        (void)!write(request->fd, &value, sizeof value);
        close(request->fd); /* the library's own copy */
        break;
    case REQUEST_TEST:
        break;
    }
    request_destroy(request);
}

void pending_complete(td_device *device, struct request *request, const td_error *error) {
    struct pending *pending = &device->pending;
    *(request->previous ? &request->previous->next : &pending->first) = request->next;
    *(request->next ? &request->next->previous : &pending->last) = request->previous;
    pending->n_async -= request->kind != REQUEST_WAITED;
    if (error)
        request->error = *error;
    request->status = error ? error->code : 0;
    if (request->held)
        tensor_let_go(request->held);
    request->held = NULL;
    if (request->tensor) {
        request->tensor->known = true;
        if (request->tensor->test == request)
            request->tensor->test = NULL;
    }
    atomic_store_explicit(&request->done, true, memory_order_release);
    request_end(device, request);
}

void pending_fail_all(td_device *device, const td_error *error) {
    while (device->pending.first)
        pending_complete(device, device->pending.first, error);
}

/* The reply was lost with the connection: sends the request again. If its frame was an item of its own, the caller that waits
 * must send it again, because only the caller still knows what was in it. */
static struct item *request_ask_again(td_device *device, struct request *request, struct item *after) {
    request->sent = false;
    /* The handle was released: nobody needs the reply. */
    if (request->kind == REQUEST_TEST && request->id && !request->tensor) {
        pending_complete(device, request, NULL);
        return after;
    }
    if (request->elsewhere) {
        request->again = true;
        pending_complete(device, request, NULL);
        return after;
    }
    request_frame(request); /* again, because a part of the tensor may have come */
    queue_push_front(&device->queue, &request->item, after);
    return &request->item;
}

void pending_ask_again(td_device *device) {
    struct item *after = NULL;
    for (struct request *request = device->pending.first, *next; request; request = next) {
        next = request->next;
        if (request->sent)
            after = request_ask_again(device, request, after);
    }
}

void pending_ping(td_device *device) {
    struct pending *pending = &device->pending;
    if (pending->ping && pending_is(pending, pending->ping))
        return;
    struct request *request = malloc(sizeof *request);
    if (!request)
        return;
    request_init(request, REQUEST_TEST, FRAME_PING, NULL);
    pending_push(device, request);
    pending->ping = request->sequence;
    if (io_urgent(&device->io))
        io_wake(&device->io);
}

int pending_wait(td_device *device, struct request *request) {
    if (device_flush(device))
        io_wake(&device->io);
    while (!request->done) {
        if (device->reader.busy || device->resume.away) {
            request->waiting = true;
            pthread_cond_wait(&request->wake, &device->lock);
            request->waiting = false;
        } else {
            reader_until_done(device, &request->done, 0);
        }
    }
    reader_pass_role(device);
    pthread_cond_destroy(&request->wake);
    return request->status;
}

/* Waits for the request's end, or for the end of a slice of time. */
static void pending_wait_slice(td_device *device, struct request *request, uint64_t until_ns) {
    if (device->reader.busy || device->resume.away) {
        const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                                       .tv_nsec = (long)(until_ns % 1000000000)};
        request->waiting = true;
        (void)pthread_cond_clockwait(&request->wake, &device->lock, CLOCK_MONOTONIC, &until);
        request->waiting = false;
    } else {
        reader_until_done(device, &request->done, until_ns);
    }
}

/* The program waits no longer: the request goes on without it. */
static void pending_leave(td_device *device, struct request *request, const td_interrupt *interrupt) {
    request->kind = REQUEST_CALLBACK;
    request->callback = interrupt->done;
    request->user = interrupt->user;
    device->pending.n_async++;
    if (request->tensor && device->resume.on) {
        request->held = request->tensor;
        request->tensor->holders++;
    }
    request->tensor = NULL; /* the program may release it meanwhile */
}

int pending_ask_interruptible(td_device *device, struct request *request, const td_interrupt *interrupt) {
    pthread_mutex_lock(&device->lock);
    int code = device_check(device);
    bool interrupted = false;
    if (!code) {
        pending_push(device, request);
        if (device_flush(device))
            io_wake(&device->io);
    }
    while (!code && !request->done && !interrupted) {
        pending_wait_slice(device, request, io_now_ns() + INTERRUPT_SLICE_NS);
        if (request->done)
            break;
        pthread_mutex_unlock(&device->lock);
        interrupted = interrupt->asked(interrupt->user);
        pthread_mutex_lock(&device->lock);
    }
    if (!code && !request->done) {
        pending_leave(device, request, interrupt);
        request = NULL;
        code = error_set(STATUS_CANCELLED, "the program has ended the call before it was done");
    } else if (!code && (code = request->status)) {
        error_store(&request->error);
    }
    reader_pass_role(device);
    pthread_mutex_unlock(&device->lock);
    if (request)
        request_destroy(request);
    return code;
}

int pending_ask(td_device *device, struct request *request) {
    pthread_mutex_lock(&device->lock);
    int code = device_check(device);
    if (!code) {
        pending_push(device, request);
        code = pending_wait(device, request);
        if (code)
            error_store(&request->error);
    }
    pthread_mutex_unlock(&device->lock);
    return code;
}
