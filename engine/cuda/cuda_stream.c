/* Streams, events and scratch memory. Events come from a pool, since creating one costs more than recording it. */
#include <stdlib.h>

#include "engine/cuda/cuda_device.h"

static const size_t scratch_smallest = (size_t)1 << 20;

/* ---- streams ---- */

static int cuda_stream_priority(const struct cuda_device *device, int priority) {
    /* Of CUDA's priorities the lower number goes first. */
    return priority > 0   ? device->priority_greatest
           : priority < 0 ? device->priority_least
                          : (device->priority_least + device->priority_greatest) / 2;
}

static int cuda_stream_create(struct device *base, int priority, struct device_stream **result, struct fault *fault) {
    struct cuda_device *device = (struct cuda_device *)base;
    struct device_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a stream");
    stream->cuda.cuda = &device->cuda;
    int code = cuda_enter(&device->cuda, fault);
    cudaError_t error = code == STATUS_OK ? cudaStreamCreateWithPriority(&stream->cuda.stream, cudaStreamNonBlocking,
                                                                         cuda_stream_priority(device, priority))
                                          : cudaSuccess;
    if (error != cudaSuccess)
        code = cuda_fault(fault, error, "cudaStreamCreateWithPriority");
    if (code != STATUS_OK) {
        free(stream);
        return code;
    }
    *result = stream;
    return STATUS_OK;
}

static void cuda_stream_destroy(struct device *base, struct device_stream *stream) {
    struct fault fault;
    if (cuda_enter(&((struct cuda_device *)base)->cuda, &fault) == STATUS_OK) {
        if (stream->cuda.scratch.memory)
            cudaFreeAsync(stream->cuda.scratch.memory, stream->cuda.stream);
        cudaStreamDestroy(stream->cuda.stream);
    }
    free(stream);
}

/* From CUDA's own pool, which keeps what is given back (cuda_device.c sets that), and trims it when it runs out. */
void *cuda_scratch(struct cuda_stream *stream, size_t bytes, struct fault *fault) {
    struct cuda_scratch *scratch = &stream->scratch;
    size_t wanted = scratch_smallest;
    cudaMemPool_t pool;
    if (bytes <= scratch->bytes && scratch->memory)
        return scratch->memory;
    while (wanted < bytes && wanted <= SIZE_MAX / 2)
        wanted *= 2;
    if (scratch->memory) /* for what comes later on the stream: launches that use it are before this */
        cudaFreeAsync(scratch->memory, stream->stream);
    *scratch = (struct cuda_scratch){0};
    cudaError_t error = cudaMallocAsync(&scratch->memory, wanted, stream->stream);
    if (error == cudaErrorMemoryAllocation) {
        if (cudaDeviceGetDefaultMemPool(&pool, stream->cuda->ordinal) == cudaSuccess)
            cudaMemPoolTrimTo(pool, 0);
        error = cudaMallocAsync(&scratch->memory, wanted, stream->stream);
    }
    cudaGetLastError(); /* of those above, where it went well in the end: launches look at it */
    if (error != cudaSuccess) {
        scratch->memory = NULL;
        cuda_fault(fault, error, "cudaMallocAsync");
        return NULL;
    }
    scratch->bytes = wanted;
    return scratch->memory;
}

/* ---- events ---- */

static int cuda_event_take(struct cuda_device *device, struct device_event **result, struct fault *fault) {
    pthread_mutex_lock(&device->events_lock);
    struct device_event *event = device->events;
    if (event)
        device->events = event->next;
    pthread_mutex_unlock(&device->events_lock);
    *result = event;
    if (event)
        return STATUS_OK;
    if (!(event = malloc(sizeof *event)))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for an event");
    cudaError_t error = cudaEventCreateWithFlags(&event->event, cudaEventDisableTiming);
    if (error != cudaSuccess) {
        free(event);
        return cuda_fault(fault, error, "cudaEventCreateWithFlags");
    }
    *result = event;
    return STATUS_OK;
}

static void cuda_event_release(struct device *base, struct device_event *event) {
    struct cuda_device *device = (struct cuda_device *)base;
    pthread_mutex_lock(&device->events_lock);
    event->next = device->events;
    device->events = event;
    pthread_mutex_unlock(&device->events_lock);
}

void cuda_events_destroy(struct cuda_device *device) {
    while (device->events) {
        struct device_event *event = device->events;
        device->events = event->next;
        cudaEventDestroy(event->event);
        free(event);
    }
}

static int cuda_event_record(struct device *base, struct device_stream *stream, struct device_event **result,
                             struct fault *fault) {
    struct cuda_device *device = (struct cuda_device *)base;
    struct device_event *event;
    int code = cuda_enter(&device->cuda, fault);
    if (code == STATUS_OK)
        code = cuda_event_take(device, &event, fault);
    if (code != STATUS_OK)
        return code;
    cudaError_t error = cudaEventRecord(event->event, stream->cuda.stream);
    if (error != cudaSuccess) {
        cuda_event_release(base, event);
        return cuda_fault(fault, error, "cudaEventRecord");
    }
    *result = event;
    return STATUS_OK;
}

static int cuda_event_wait(struct device *base, struct device_stream *stream, struct device_event *event,
                           struct fault *fault) {
    int code = cuda_enter(&((struct cuda_device *)base)->cuda, fault);
    if (code != STATUS_OK)
        return code;
    CUDA_TRY(fault, cudaStreamWaitEvent(stream->cuda.stream, event->event, 0));
    return STATUS_OK;
}

static int cuda_event_reached(struct device *base, struct device_event *event, bool *reached, struct fault *fault) {
    int code = cuda_enter(&((struct cuda_device *)base)->cuda, fault);
    if (code != STATUS_OK)
        return code;
    cudaError_t error = cudaEventQuery(event->event);
    *reached = error == cudaSuccess;
    if (error == cudaSuccess)
        return STATUS_OK;
    if (error != cudaErrorNotReady)
        return cuda_fault(fault, error, "cudaEventQuery"); /* of a launch before it */
    cudaGetLastError();
    return STATUS_OK;
}

const struct device_async cuda_async = {
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_reached = cuda_event_reached,
    .event_release = cuda_event_release,
};
