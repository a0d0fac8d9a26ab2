#include "tests/daemon/status.h"

#include <criterion/criterion.h>
#include <string.h>

#include "proto/wire/frame.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/wire.h"

Tensord__Status *status_get(const char *url) {
    return status_get_of(url, "");
}

Tensord__Status *status_get_of(const char *url, const char *principal) {
    struct wire wire;
    struct wire_frame frame;
    Tensord__GetStatus request = TENSORD__GET_STATUS__INIT;
    request.principal = (char *)(uintptr_t)principal;
    wire_open(&wire, url, PREAMBLE_TARGET_CONTROL);
    cr_assert(wire_request(&wire, FRAME_GET_STATUS, &request));
    cr_assert(wire_receive(&wire, &frame, WIRE_TIMEOUT_MS) == WIRE_FRAME, "no answer to GetStatus");
    cr_assert_eq(frame.header.type, FRAME_STATUS);
    Tensord__Status *status = tensord__status__unpack(NULL, frame.header.message_bytes, frame.message);
    cr_assert_not_null(status, "Status does not unpack");
    wire_frame_finish(&frame);
    wire_close(&wire);
    return status;
}

void status_free(Tensord__Status *status) {
    tensord__status__free_unpacked(status, NULL);
}

const Tensord__DeviceStatus *status_device(const Tensord__Status *status, const char *name) {
    for (size_t i = 0; i < status->n_devices; i++)
        if (!strcmp(status->devices[i]->device->name, name))
            return status->devices[i];
    cr_assert_fail("status knows no device %s", name);
    return NULL;
}

unsigned status_sessions(const Tensord__Status *status, const char *device) {
    unsigned count = 0;
    for (size_t i = 0; i < status->n_sessions; i++)
        count += !strcmp(status->sessions[i]->device, device);
    return count;
}

bool status_becomes(const char *url, status_condition *holds, const void *argument, int milliseconds) {
    int64_t deadline = deadline_in(milliseconds);
    do {
        Tensord__Status *status = status_get(url);
        bool held = holds(status, argument);
        status_free(status);
        if (held)
            return true;
    } while (deadline_pause(deadline));
    return false;
}

char *status_text_of(const char *url, char text[STATUS_TEXT_MAX]) {
    Tensord__Status *status = status_get(url);
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < status->n_devices && n < STATUS_TEXT_MAX; i++) {
        const Tensord__DeviceStatus *device = status->devices[i];
        n += (size_t)snprintf(text + n, STATUS_TEXT_MAX - n,
                              "%s %s pid %u epoch %lu restarts %u live %lu sessions %u queue %lu age %.0f ms; ",
                              device->device->name, device->device->state, device->worker_pid, device->epoch,
                              device->restarts, device->memory_live, status_sessions(status, device->device->name),
                              device->queue_depth, device->data_age_ms);
    }
    status_free(status);
    return text;
}

void status_until(const char *url, status_condition *holds, const void *argument, int milliseconds) {
    if (status_becomes(url, holds, argument, milliseconds))
        return;
    char text[STATUS_TEXT_MAX];
    cr_assert_fail("status did not come to be what it should within %d ms: %s", milliseconds,
                   status_text_of(url, text));
}

bool status_all_ready(const Tensord__Status *status, const void *none) {
    (void)none;
    for (size_t i = 0; i < status->n_devices; i++)
        if (strcmp(status->devices[i]->device->state, "ready"))
            return false;
    return status->n_devices > 0;
}

bool status_device_is(const Tensord__Status *status, const void *is) {
    const struct status_is *wanted = is;
    const Tensord__DeviceStatus *device = status_device(status, wanted->device);
    return (!wanted->state || !strcmp(device->device->state, wanted->state)) && device->epoch >= wanted->epoch;
}

struct settled {
    struct status_baseline baseline;
    int64_t since, asked; /* before the status was asked for, so that its way here makes no figure look younger */
};

/* Figures come from the worker every now and then: older ones tell nothing of what has happened since. */
static bool is_settled(const Tensord__Status *status, const struct settled *settled) {
    const struct status_baseline *wanted = &settled->baseline;
    const Tensord__DeviceStatus *device = status_device(status, wanted->device);
    return device->data_age_ms < (double)(settled->asked - settled->since) && device->memory_live <= wanted->live &&
           status_sessions(status, wanted->device) <= wanted->sessions && device->queue_depth == 0;
}

bool status_settles(const char *url, const struct status_baseline *baseline, int milliseconds) {
    struct settled settled = {*baseline, deadline_now(), 0};
    int64_t deadline = deadline_in(milliseconds);
    do {
        settled.asked = deadline_now();
        Tensord__Status *status = status_get(url);
        bool held = is_settled(status, &settled);
        status_free(status);
        if (held)
            return true;
    } while (deadline_pause(deadline));
    return false;
}

int status_worker_pid(const char *url, const char *device) {
    Tensord__Status *status = status_get(url);
    int pid = (int)status_device(status, device)->worker_pid;
    status_free(status);
    return pid;
}

uint64_t status_epoch(const char *url, const char *device) {
    Tensord__Status *status = status_get(url);
    uint64_t epoch = status_device(status, device)->epoch;
    status_free(status);
    return epoch;
}

struct status_baseline status_baseline_of(const char *url, const char *device) {
    Tensord__Status *status = status_get(url);
    struct status_baseline baseline = {.device = device,
                                       .live = status_device(status, device)->memory_live,
                                       .sessions = status_sessions(status, device)};
    status_free(status);
    return baseline;
}
