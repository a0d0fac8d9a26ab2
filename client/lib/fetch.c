/* What asks the device about a tensor: fetch, wait, test. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/lib/device.h"
#include "client/lib/error.h"
#include "proto/ops/cleanup.h"

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
    return fault.code ? error_fault(&fault, operation, NULL) : 0;
}

/* Queues a request that a caller waits for, and waits. */
static int ask(td_tensor *tensor, struct request *request) {
    td_device *device = tensor->device;
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

int td_fetch(td_tensor *tensor, void *data, size_t bytes) {
    int code = fetch_check("fetch", tensor, data, bytes);
    if (code)
        return code;
    struct request request;
    request_init(&request, REQUEST_WAITED, FRAME_FETCH, tensor);
    request.data = data;
    request.bytes = bytes;
    return ask(tensor, &request);
}

int td_wait(td_tensor *tensor) {
    if (!tensor)
        return fetch_check("wait", NULL, NULL, 0);
    struct request request;
    request_init(&request, REQUEST_WAITED, FRAME_WAIT, tensor);
    return ask(tensor, &request);
}

/* Queues one that nobody waits for; the device's lock is held. Takes the request over, also on failure. */
static int ask_later(td_device *device, struct request *request) {
    int code = device_admit(device, request->item.bytes);
    if (code) {
        request_destroy(request);
        return code;
    }
    pending_push(device, request);
    /* The thread must also begin to read. */
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
    request->tensor = NULL; /* it may be released meanwhile */
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

int td_fetch_fd(td_tensor *tensor, void *data, size_t bytes, int *out) {
    int code = fetch_check("fetch", tensor, data, bytes);
    if (code)
        return code;
    if (!out)
        return error_set(STATUS_INVALID_ARGUMENT, "the place for the descriptor is NULL");
    /* Two descriptors of one counter: the caller may close one at any time, and no write goes astray. */
    CLEANUP(close) int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CLEANUP(close) int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return error_set(STATUS_LIMIT, "cannot make a descriptor: %s", strerrordesc_np(errno));
    struct request *request = request_create(REQUEST_FD, FRAME_FETCH, tensor);
    if (!request)
        return STATUS_NO_HOST_MEMORY;
    request->fd = own;
    code = fetch_later(tensor, request, data, bytes);
    if (code)
        return code;
    *out = fd;
    fd = own = -1;
    return 0;
}

int td_test(td_tensor *tensor) {
    if (!tensor)
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
