/* Streams, events and scratch memory. Events come from a pool, since creating one costs more than recording it. */
#include <stddef.h>
#include <stdlib.h>

#include "engine/cuda/aside.h"
#include "engine/cuda/cuda_device.h"
#include "engine/cuda/graph.h"

static const size_t scratch_smallest = (size_t)1 << 20;

/* ---- scratch memory ---- */

/* From CUDA's own pool, which keeps memory that is given back (cuda_device.c sets that). The pool is stream-ordered: freed memory is free
 * for later work of the stream, and launches that use it come before that. */
static void scratch_drop(struct cuda_device *device, struct device_stream *stream) {
    struct cuda_scratch *scratch = &stream->cuda.scratch;
    if (!scratch->memory)
        return;
    cudaFreeAsync(scratch->memory, stream->cuda.stream);
    cudaGetLastError(); /* drivers look at the last error; the next launch will find anyway that the device is lost */
    atomic_fetch_sub(&device->workspaces.bytes, scratch->bytes);
    scratch->memory = NULL;
    scratch->bytes = 0;
}

/* Of the other streams with scratch memory, the one that has not used it for longest. NULL: there is none. */
static struct device_stream *scratch_oldest(const struct cuda_device *device, const struct device_stream *except) {
    struct device_stream *oldest = NULL;
    for (struct device_stream *stream = device->workspaces.streams; stream; stream = stream->next)
        if (stream != except && stream->cuda.scratch.memory &&
            (!oldest || stream->cuda.scratch.used < oldest->cuda.scratch.used))
            oldest = stream;
    return oldest;
}

/* Drops other streams' scratch memory until no more than `limit` is taken. */
static void scratch_make_room(struct cuda_device *device, const struct device_stream *except, uint64_t most) {
    struct device_stream *oldest;
    while (atomic_load(&device->workspaces.bytes) > most && (oldest = scratch_oldest(device, except)))
        scratch_drop(device, oldest);
}

static void scratch_trim_pool(const struct cuda_device *device) {
    cudaMemPool_t pool;
    if (cudaDeviceGetDefaultMemPool(&pool, device->cuda.ordinal) == cudaSuccess)
        cudaMemPoolTrimTo(pool, 0);
    cudaGetLastError(); /* clears errors of these calls, and those that the calls have cured */
}

/* Out of memory: gives back all other scratch memory, and tries once more. */
static cudaError_t scratch_take(struct cuda_device *device, struct device_stream *stream, size_t bytes) {
    struct cuda_scratch *scratch = &stream->cuda.scratch;
    cudaError_t error = cudaMallocAsync(&scratch->memory, bytes, stream->cuda.stream);
    if (error == cudaErrorMemoryAllocation) {
        scratch_make_room(device, stream, 0);
        scratch_trim_pool(device);
        error = cudaMallocAsync(&scratch->memory, bytes, stream->cuda.stream);
    }
    if (error != cudaSuccess) {
        scratch->memory = NULL;
        return error;
    }
    cudaGetLastError(); /* clears the error of the first try, since launches look at the last error */
    scratch->bytes = bytes;
    atomic_fetch_add(&device->workspaces.bytes, bytes);
    atomic_fetch_add(&device->workspaces.growths, 1);
    return cudaSuccess;
}

static struct cuda_device *stream_device(const struct cuda_stream *stream) {
    return (struct cuda_device *)((char *)stream->cuda - offsetof(struct cuda_device, cuda));
}

/* ---- the fallback ---- */

int cuda_fallback_open(struct cuda_device *device, size_t bytes, struct fault *fault) {
    struct cuda_fallback *fallback = &device->workspaces.fallback;
    struct fault refused;
    *fallback = (struct cuda_fallback){.bytes = bytes};
    CUDA_TRY(fault, cudaEventCreateWithFlags(&fallback->passed, cudaEventDisableTiming));
    cudaError_t error = cudaMalloc(&fallback->memory, bytes);
    if (error == cudaSuccess)
        return STATUS_OK;
    fallback->memory = NULL;
    if (cuda_fault(&refused, error, "cudaMalloc") == STATUS_OUT_OF_MEMORY)
        return STATUS_OK;
    cuda_fallback_close(device);
    *fault = refused;
    return (int)refused.code;
}

void cuda_fallback_close(struct cuda_device *device) {
    struct cuda_fallback *fallback = &device->workspaces.fallback;
    if (fallback->memory)
        cudaFree(fallback->memory);
    cudaEventDestroy(fallback->passed);
    fallback->memory = NULL;
    cudaGetLastError();
}

/* What the user has put on its stream so far is what the next one waits for. */
static cudaError_t fallback_pass(struct cuda_fallback *fallback) {
    if (!fallback->user)
        return cudaSuccess;
    cudaError_t error = cudaEventRecord(fallback->passed, fallback->user->cuda.stream);
    fallback->user = NULL;
    fallback->recorded = error == cudaSuccess;
    return error;
}

static void *fallback_take(struct cuda_device *device, struct device_stream *stream, struct fault *fault) {
    struct cuda_fallback *fallback = &device->workspaces.fallback;
    if (!fallback->memory || fallback->user == stream)
        return fallback->memory; /* NULL: the fault is the one of the stream's own memory */
    cudaError_t error = fallback_pass(fallback);
    if (error == cudaSuccess && fallback->recorded)
        error = cudaStreamWaitEvent(stream->cuda.stream, fallback->passed, 0);
    if (error != cudaSuccess) {
        cuda_fault(fault, error, "cudaStreamWaitEvent");
        return NULL;
    }
    fallback->user = stream;
    return fallback->memory;
}

/* ---- the scratch memory of a launch ---- */

/* A graph keeps the address of the memory that it was captured with. */
static void *capture_scratch(struct cuda_capture *capture, size_t bytes, struct fault *fault) {
    if (bytes <= capture->bytes)
        return capture->memory;
    if (!capture->wanted) /* keeps the first request: after a refusal a driver tries other ways, which ask for more */
        capture->wanted = bytes;
    fault_set(fault, STATUS_OUT_OF_MEMORY, "a workspace of %zu bytes, while launches are captured", bytes);
    return NULL;
}

void *cuda_scratch(struct cuda_stream *cuda_stream, size_t bytes, struct fault *fault) {
    struct device_stream *stream = (struct device_stream *)cuda_stream;
    struct cuda_device *device = stream_device(cuda_stream);
    size_t most = device->workspaces.fallback.bytes;
    if (bytes > most) { /* whatever is free, and in a graph, too: a launch is computed in the same way each time */
        fault_set(fault, STATUS_OUT_OF_MEMORY, "a workspace of %zu bytes: a launch may have %zu on this device", bytes,
                  most);
        return NULL;
    }
    if (cuda_stream->capture)
        return capture_scratch(cuda_stream->capture, bytes, fault);
    struct cuda_scratch *scratch = &cuda_stream->scratch;
    uint64_t limit = device->workspaces.limit, wanted = scratch_smallest;
    scratch->used = ++device->workspaces.clock;
    if (bytes <= scratch->bytes && scratch->memory)
        return scratch->memory;
    while (wanted < bytes)
        wanted *= 2;
    wanted = wanted < limit ? wanted : limit;
    scratch_drop(device, stream);
    scratch_make_room(device, stream, limit - wanted);
    cudaError_t error = scratch_take(device, stream, (size_t)wanted);
    if (error == cudaSuccess)
        return scratch->memory;
    return cuda_fault(fault, error, "cudaMallocAsync") == STATUS_OUT_OF_MEMORY ? fallback_take(device, stream, fault)
                                                                               : NULL;
}

static void cuda_trim(struct device *base) {
    struct cuda_device *device = (struct cuda_device *)base;
    struct fault fault;
    if (cuda_enter(&device->cuda, &fault) != STATUS_OK)
        return;
    scratch_make_room(device, NULL, 0);
    scratch_trim_pool(device);
}

void cuda_workspaces(struct device *base, struct device_workspaces *workspaces) {
    struct cuda_device *device = (struct cuda_device *)base;
    workspaces->bytes = atomic_load(&device->workspaces.bytes);
    workspaces->limit = device->workspaces.limit;
    workspaces->growths = atomic_load(&device->workspaces.growths);
}

/* ---- streams ---- */

static int cuda_stream_priority(const struct cuda_device *device, int priority) {
    /* In CUDA the lower number is the higher priority. */
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
    stream->next = device->workspaces.streams;
    stream->previous = &device->workspaces.streams;
    if (stream->next)
        stream->next->previous = &stream->next;
    device->workspaces.streams = stream;
    *result = stream;
    return STATUS_OK;
}

static void cuda_stream_destroy(struct device *base, struct device_stream *stream) {
    struct cuda_device *device = (struct cuda_device *)base;
    struct fault fault;
    if (cuda_enter(&device->cuda, &fault) == STATUS_OK) {
        scratch_drop(device, stream);
        if (device->workspaces.fallback.user == stream)
            fallback_pass(&device->workspaces.fallback);
        cudaStreamDestroy(stream->cuda.stream);
    }
    *stream->previous = stream->next;
    if (stream->next)
        stream->next->previous = stream->previous;
    free(stream);
}

/* ---- events ---- */

static int cuda_event_take(struct cuda_device *device, bool timed, struct device_event **result, struct fault *fault) {
    struct device_event **unused = timed ? &device->events_timed : &device->events;
    pthread_mutex_lock(&device->events_lock);
    struct device_event *event = *unused;
    if (event)
        *unused = event->next;
    pthread_mutex_unlock(&device->events_lock);
    *result = event;
    if (event)
        return STATUS_OK;
    if (!(event = malloc(sizeof *event)))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for an event");
    cudaError_t error = cudaEventCreateWithFlags(&event->event, timed ? cudaEventDefault
                                                                      : cudaEventDisableTiming | cudaEventBlockingSync);
    event->timed = timed;
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
    struct device_event **unused = event->timed ? &device->events_timed : &device->events;
    event->next = *unused;
    *unused = event;
    pthread_mutex_unlock(&device->events_lock);
}

static void cuda_events_free(struct device_event *events) {
    for (struct device_event *event = events, *next; event; event = next) {
        next = event->next;
        cudaEventDestroy(event->event);
        free(event);
    }
}

void cuda_events_destroy(struct cuda_device *device) {
    cuda_events_free(device->events);
    cuda_events_free(device->events_timed);
    device->events = device->events_timed = NULL;
}

static int cuda_event_put(struct device *base, struct device_stream *stream, bool timed, struct device_event **result,
                          struct fault *fault) {
    struct cuda_device *device = (struct cuda_device *)base;
    struct device_event *event;
    int code = cuda_enter(&device->cuda, fault);
    if (code == STATUS_OK)
        code = cuda_event_take(device, timed, &event, fault);
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

static int cuda_event_record(struct device *base, struct device_stream *stream, struct device_event **result,
                             struct fault *fault) {
    return cuda_event_put(base, stream, false, result, fault);
}

static int cuda_timed_record(struct device *base, struct device_stream *stream, struct device_event **result,
                             struct fault *fault) {
    return cuda_event_put(base, stream, true, result, fault);
}

static int cuda_event_elapsed(struct device *base, struct device_event *from, struct device_event *to, int64_t *ns,
                              struct fault *fault) {
    float ms;
    int code = cuda_enter(&((struct cuda_device *)base)->cuda, fault);
    if (code != STATUS_OK)
        return code;
    CUDA_TRY(fault, cudaEventElapsedTime(&ms, from->event, to->event));
    *ns = (int64_t)((double)ms * 1e6);
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
        return cuda_fault(fault, error, "cudaEventQuery"); /* an error of an earlier launch */
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
    .timed_record = cuda_timed_record,
    .event_elapsed = cuda_event_elapsed,
    .launch_aside = cuda_launch_aside,
    .trim = cuda_trim,
    .graph_launch = cuda_graph_launch,
    .graph_retire = cuda_graph_retire,
    .graph_release = cuda_graph_release,
    .graph_memory_release = cuda_graph_memory_release,
};
