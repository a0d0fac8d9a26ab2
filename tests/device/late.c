#include "tests/device/late.h"

#include "engine/module.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is added to real addresses: x86-64 and AArch64 programs have nothing up there. */
#define LATE_OFFSET (UINT64_C(1) << 62)

struct late {
    struct device device;
    struct device *cpu;
    pthread_mutex_t kernels; /* the CPU device runs one launch at a time */
};

struct device_event {
    _Atomic unsigned references;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached;
};

struct late_item {
    struct late_item *next;
    enum { LATE_LAUNCH, LATE_RECORD, LATE_WAIT, LATE_END } kind;
    const struct launch *launch;
    struct device_event *event;
};

struct device_stream {
    struct late *late;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct late_item *first, **last;
};

/* ---- events ---- */

static struct device_event *event_create(void) {
    struct device_event *event = calloc(1, sizeof *event);
    atomic_init(&event->references, 2); /* the stream's and the caller's */
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    return event;
}

static void event_unref(struct device_event *event) {
    if (atomic_fetch_sub(&event->references, 1) > 1)
        return;
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static void event_reach(struct device_event *event) {
    pthread_mutex_lock(&event->lock);
    event->reached = true;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
    event_unref(event);
}

static void event_await(struct device_event *event) {
    pthread_mutex_lock(&event->lock);
    while (!event->reached)
        pthread_cond_wait(&event->changed, &event->lock);
    pthread_mutex_unlock(&event->lock);
    event_unref(event);
}

/* ---- what a stream does ---- */

static void *real_address(void *data) {
    return (uintptr_t)data >= LATE_OFFSET ? (uint8_t *)data - LATE_OFFSET : data;
}

static void late_run(struct late *late, const struct launch *launch) {
    struct {
        _Alignas(struct launch) uint8_t bytes[sizeof(struct launch) + 3 * sizeof(struct operand)];
    } room;
    struct launch *real = (struct launch *)room.bytes;
    struct fault fault;
    memcpy(real, launch, sizeof *launch + launch->n_inputs * sizeof(struct operand));
    real->output.data = real_address(real->output.data);
    for (unsigned i = 0; i < real->n_inputs; i++)
        real->inputs[i].data = real_address(real->inputs[i].data);
    pthread_mutex_lock(&late->kernels);
    int code = late->cpu->vtable->launch(late->cpu, NULL, real, &fault);
    pthread_mutex_unlock(&late->kernels);
    if (code != STATUS_OK) {
        fprintf(stderr, "late: %s\n", fault.message);
        abort();
    }
}

static struct late_item *stream_pop(struct device_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    while (!stream->first)
        pthread_cond_wait(&stream->changed, &stream->lock);
    struct late_item *item = stream->first;
    stream->first = item->next;
    if (!stream->first)
        stream->last = &stream->first;
    pthread_mutex_unlock(&stream->lock);
    return item;
}

static void *stream_main(void *argument) {
    struct device_stream *stream = argument;
    for (bool end = false; !end;) {
        struct late_item *item = stream_pop(stream);
        switch (item->kind) {
        case LATE_LAUNCH:
            late_run(stream->late, item->launch);
            break;
        case LATE_RECORD:
            event_reach(item->event);
            break;
        case LATE_WAIT:
            event_await(item->event);
            break;
        case LATE_END:
            end = true;
            break;
        }
        free(item);
    }
    return NULL;
}

static void stream_push_item(struct device_stream *stream, struct late_item filled) {
    struct late_item *item = malloc(sizeof *item);
    *item = filled;
    pthread_mutex_lock(&stream->lock);
    *stream->last = item;
    stream->last = &item->next;
    pthread_cond_signal(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

/* ---- the vtable ---- */

static int late_stream_create(struct device *device, int priority, struct device_stream **result, struct fault *fault) {
    struct device_stream *stream = calloc(1, sizeof *stream);
    (void)priority;
    (void)fault;
    stream->late = (struct late *)device;
    stream->last = &stream->first;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    pthread_create(&stream->thread, NULL, stream_main, stream);
    *result = stream;
    return STATUS_OK;
}

static void late_stream_destroy(struct device *device, struct device_stream *stream) {
    (void)device;
    stream_push_item(stream, (struct late_item){.kind = LATE_END});
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

static int late_event_record(struct device *device, struct device_stream *stream, struct device_event **event,
                             struct fault *fault) {
    (void)device;
    (void)fault;
    *event = event_create();
    stream_push_item(stream, (struct late_item){.kind = LATE_RECORD, .event = *event});
    return STATUS_OK;
}

static int late_event_wait(struct device *device, struct device_stream *stream, struct device_event *event,
                           struct fault *fault) {
    (void)device;
    (void)fault;
    atomic_fetch_add(&event->references, 1);
    stream_push_item(stream, (struct late_item){.kind = LATE_WAIT, .event = event});
    return STATUS_OK;
}

static int late_event_reached(struct device *device, struct device_event *event, bool *reached, struct fault *fault) {
    (void)device;
    (void)fault;
    pthread_mutex_lock(&event->lock);
    *reached = event->reached;
    pthread_mutex_unlock(&event->lock);
    return STATUS_OK;
}

static void late_event_release(struct device *device, struct device_event *event) {
    (void)device;
    event_unref(event);
}

static int late_launch(struct device *device, struct device_stream *stream, const struct launch *launch,
                       struct fault *fault) {
    (void)device;
    (void)fault;
    stream_push_item(stream, (struct late_item){.kind = LATE_LAUNCH, .launch = launch});
    return STATUS_OK;
}

static int late_reserve(struct device *device, size_t bytes, void **segment, struct fault *fault) {
    struct late *late = (struct late *)device;
    int code = late->cpu->vtable->reserve(late->cpu, bytes, segment, fault);
    if (code == STATUS_OK)
        *segment = (uint8_t *)*segment + LATE_OFFSET;
    return code;
}

static void late_release(struct device *device, void *segment, size_t bytes) {
    struct late *late = (struct late *)device;
    late->cpu->vtable->release(late->cpu, real_address(segment), bytes);
}

static int late_host_reserve(struct device *device, size_t bytes, void **segment, struct fault *fault) {
    (void)device;
    *segment = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    return *segment ? STATUS_OK : fault_set(fault, STATUS_OUT_OF_MEMORY, "no host memory");
}

static void late_host_release(struct device *device, void *segment, size_t bytes) {
    (void)device;
    (void)bytes;
    free(segment);
}

static int late_supports(struct device *device, unsigned opcode, enum dtype dtype, struct fault *fault) {
    struct late *late = (struct late *)device;
    return late->cpu->vtable->supports(late->cpu, opcode, dtype, fault);
}

static void late_describe(const struct device *device, struct device_info *info) {
    device_describe(((const struct late *)device)->cpu, info);
    snprintf(info->kind, sizeof info->kind, "late");
    snprintf(info->uuid, sizeof info->uuid, "LATE-1");
    snprintf(info->bus, sizeof info->bus, "0000:3b:00.0");
}

static void late_close(struct device *device) {
    struct late *late = (struct late *)device;
    device_close(late->cpu);
    pthread_mutex_destroy(&late->kernels);
    free(late);
}

static const struct device_async late_async = {
    .stream_create = late_stream_create,
    .stream_destroy = late_stream_destroy,
    .event_record = late_event_record,
    .event_wait = late_event_wait,
    .event_reached = late_event_reached,
    .event_release = late_event_release,
};

static int late_count(unsigned *count, struct fault *fault) {
    (void)fault;
    *count = 2;
    return STATUS_OK;
}

static const struct device_vtable late_vtable = {
    .kind = "late",
    .count = late_count,
    .open = late_open,
    .close = late_close,
    .describe = late_describe,
    .reserve = late_reserve,
    .release = late_release,
    .host_reserve = late_host_reserve,
    .host_release = late_host_release,
    .launch = late_launch,
    .async = &late_async,
    .supports = late_supports,
};

int late_open(const struct device_options *options, struct device **device, struct fault *fault) {
    struct late *late = calloc(1, sizeof *late);
    int code = device_open("cpu", options, &late->cpu, fault);
    if (code != STATUS_OK) {
        free(late);
        return code;
    }
    late->device.vtable = &late_vtable;
    pthread_mutex_init(&late->kernels, NULL);
    *device = &late->device;
    return STATUS_OK;
}

/* As a module, for a real daemon. */
extern const struct device_module tensord_device_module;
__attribute__((visibility("default"))) const struct device_module tensord_device_module = {
    .abi = DEVICE_MODULE_ABI,
    .vtable = &late_vtable,
};
