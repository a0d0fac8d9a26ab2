#include "client/lib/device.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/control.h"
#include "client/lib/error.h"
#include "client/lib/record.h"
#include "client/lib/scope.h"
#include "client/lib/tape.h"

static atomic_uint_fast64_t serials;

static void device_free(td_device *device) {
    streams_finish(&device->streams);
    kernels_finish(&device->kernels);
    programs_finish(&device->programs);
    batches_finish(&device->batches);
    tensor_pool_finish(&device->tensors);
    sender_finish(&device->sender);
    reader_finish(&device->reader);
    pthread_mutex_destroy(&device->lock);
    transport_finish(&device->transport);
    free(device);
}

int device_create(struct transport *transport, const char *name, size_t queue_bytes, size_t chunk_bytes,
                  const struct resume *resume, td_device **out, struct fault *fault) {
    td_device *device = calloc(1, sizeof *device);
    if (!device) {
        transport_finish(transport);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a device");
    }
    snprintf(device->name, sizeof device->name, "%s", name);
    device->serial = atomic_fetch_add(&serials, 1) + 1;
    device->transport = *transport;
    device->io.wake_fd = -1;
    device->resume = *resume;
    pthread_mutex_init(&device->lock, NULL);
    batches_init(&device->batches, &device->queue);
    queue_init(&device->queue, queue_bytes, chunk_bytes);
    bool memory = sender_init(&device->sender, queue_bytes, resume->on);
    memory = !reader_init(&device->reader) && memory;
    pending_init(&device->pending);
    int code = 0;
    if (!memory)
        code = fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a device's buffers");
    int error = code ? 0 : io_start(device);
    if (error)
        code = fault_set(fault, STATUS_NO_HOST_MEMORY, "cannot start a thread: %s", strerrordesc_np(error));
    if (code) {
        io_stop(device);
        device_free(device);
        return code;
    }
    *out = device;
    return 0;
}

/* Sends the enqueued operations, and Goodbye behind them. If the connection is lost and does not come back soon, it gives up:
 * the session ends in any case, with all its work. It waits in slices, because the connection may be lost meanwhile. */
static void device_send_rest(td_device *device, int64_t deadline_ms) {
    bool away;
    do {
        int64_t until_ms = control_now_ms() + RESUME_PARTING_MS;
        away = device->resume.away;
        sender_pump_wait(device, NULL, until_ms < deadline_ms ? until_ms : deadline_ms);
    } while (!device->lost && !sender_is_done(device) && control_now_ms() < deadline_ms &&
             !(away && device->resume.away));
}

void device_destroy(td_device *device, unsigned timeout_ms) {
    if (!device)
        return;
    pthread_mutex_lock(&device->lock);
    device_seal(device);
    resume_goodbye(device);
    int64_t deadline_ms = control_now_ms() + timeout_ms;
    device_send_rest(device, deadline_ms);
    device->resume.parting = device->resume.on && !device->lost && sender_is_done(device);
    pthread_mutex_unlock(&device->lock);
    io_stop(device); /* its thread fails the pending requests */
    resume_part(device, deadline_ms);
    scope_forget_device(device);
    tape_forget_device(device);
    record_forget_device(device);
    stream_forget_device(device);
    device_free(device);
}

int device_no_room(const td_device *device, size_t bytes) {
    const struct queue *queue = &device->queue;
    if (bytes > queue->bytes_max)
        return error_set(STATUS_LIMIT, "%zu bytes at once, and the send queue of %s takes %zu", bytes, device->name,
                         queue->bytes_max);
    return error_set(STATUS_AGAIN, "the send queue of %s holds %zu bytes, try again", device->name, queue->bytes);
}

void device_lose(td_device *device, const td_error *cause) {
    if (device->lost)
        return;
    device->lost = true;
    device->resume.away = false;
    device->cause = *cause;
    if (device->resume.parting)
        transport_end(&device->transport);
    else
        transport_hang_up(&device->transport);
    batches_drop(&device->batches);
    tensor_drain(device);
    sender_drop(device);
    if (!device->sender.busy) /* otherwise the sender drops and fails them: items of requests are still in its queue */
        pending_fail_all(device, cause);
}

void device_interrupt(td_device *device, const td_error *cause, bool final) {
    if (device->lost || device->resume.away)
        return;
    if (final || !device->resume.on || device->io.stop)
        device_lose(device, cause);
    else
        resume_begin(device, cause);
}

void device_seal(td_device *device) {
    tensor_drain(device);
    batches_seal(&device->batches);
}

bool device_seal_full(td_device *device) {
    device_seal(device);
    return io_must_send(device);
}

bool device_flush(td_device *device) {
    device_seal(device);
    sender_pump(device);
    return io_must_send(device);
}

const char *td_device_name(const td_device *device) {
    return device ? device->name : "";
}

int td_flush(td_device *device) {
    if (!device)
        return error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
    pthread_mutex_lock(&device->lock);
    int code = device_check(device);
    bool wake = !code && device_flush(device);
    pthread_mutex_unlock(&device->lock);
    if (wake)
        io_wake(&device->io);
    return code;
}

int td_sync(td_device *device) {
    if (!device)
        return error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
    int code = record_check("sync", device, NULL, RECORD_SYNC);
    if (code)
        return code;
    struct request request;
    request_init(&request, REQUEST_WAITED, FRAME_SYNC, NULL);
    return pending_ask(device, &request);
}
