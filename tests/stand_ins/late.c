#include "tests/stand_ins/late.h"
#include "tests/stand_ins/late_kernels.h"

#include "engine/device/module.h"
#include "engine/values/plan.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LATE_QUEUE = 1000 }; /* launches that fit a stream's queue; with more the call waits, as in CUDA */
enum { HANG_NONE = -1, HANG_KERNELS = -2 /* clients' kernels */ };

struct late {
    struct device device;
    struct device *cpu;
    pthread_mutex_t kernels; /* the CPU device runs one launch at a time */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned launches;        /* given to streams and not yet run; under the lock */
    unsigned hung;            /* of these, kernels that have begun and do not end; too */
    int crash;                /* opcode of launches that end the process; HANG_NONE: none */
    int hang;                 /* opcode of kernels that do not end, or one of those above. Under the lock */
    _Atomic int waits;        /* opcode of launches whose calls wait for them */
    bool lost;                /* too */
    uint64_t total, reserved; /* device memory; what was released and is not free yet is reserved. Owner thread, */
    struct late_released *released; /* too */
};

struct late_released {
    void *segment;
    size_t bytes;
    struct late_released *next;
};

struct device_event {
    _Atomic unsigned references;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached;
    uint64_t reached_ns;
};

struct late_item {
    struct late_item *next;
    enum { LATE_LAUNCH, LATE_KERNEL, LATE_RECORD, LATE_WAIT, LATE_END } kind;
    struct launch *launch; /* a copy: the caller's may change */
    const struct kernel_launch *kernel;
    struct device_event *event;
};

/* A call that waits for its launch. */
struct device_aside {
    struct device_stream *stream;
    const struct launch *launch;
    void (*moved)(void *context);
    void *context;
    pthread_t thread;
    _Atomic bool returned;
};

struct device_stream {
    struct late *late;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct late_item *first, **last;
    unsigned launches; /* not yet run; under late->lock */
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
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->reached_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
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

static int late_opcode(const char *operation) {
    for (unsigned i = 0; operation && i < 65536; i++)
        if (op_info(i) && !strcmp(op_info(i)->name, operation))
            return (int)i;
    return HANG_NONE;
}

void late_hang(struct device *device, const char *operation) {
    struct late *late = (struct late *)device;
    int hang = operation && !strcmp(operation, "user kernels") ? HANG_KERNELS : late_opcode(operation);
    pthread_mutex_lock(&late->lock);
    late->hang = hang;
    pthread_cond_broadcast(&late->changed);
    pthread_mutex_unlock(&late->lock);
}

void late_wait(struct device *device, const char *operation) {
    atomic_store(&((struct late *)device)->waits, late_opcode(operation));
}

unsigned late_launches(struct device *device) {
    struct late *late = (struct late *)device;
    pthread_mutex_lock(&late->lock);
    unsigned launches = late->launches;
    pthread_mutex_unlock(&late->lock);
    return launches;
}

unsigned late_hung(struct device *device) {
    struct late *late = (struct late *)device;
    pthread_mutex_lock(&late->lock);
    unsigned hung = late->hung;
    pthread_mutex_unlock(&late->lock);
    return hung;
}

void late_lose(struct device *device) {
    struct late *late = (struct late *)device;
    pthread_mutex_lock(&late->lock);
    late->lost = true;
    pthread_cond_broadcast(&late->changed);
    pthread_mutex_unlock(&late->lock);
}

/* False: it does not run. */
static bool late_begin(struct late *late, int opcode) {
    pthread_mutex_lock(&late->lock);
    bool hangs = !late->lost && late->hang == opcode;
    late->hung += hangs;
    while (!late->lost && late->hang == opcode)
        pthread_cond_wait(&late->changed, &late->lock);
    late->hung -= hangs;
    bool runs = !late->lost;
    pthread_mutex_unlock(&late->lock);
    return runs;
}

/* Copies numbers of 8 bytes to *at, and moves that on. */
static const void *copy_numbers(int64_t **at, const void *from, size_t count) {
    void *to = *at;
    if (count)
        memcpy(to, from, count * sizeof(int64_t));
    *at += count;
    return to;
}

static void copy_operand(int64_t **at, struct operand *operand) {
    operand->shape = copy_numbers(at, operand->shape, operand->rank);
    operand->strides = copy_numbers(at, operand->strides, operand->rank);
}

/* With all that it points to, except its data. */
static struct launch *launch_copy(const struct launch *launch) {
    unsigned operands = launch->n_inputs + launch->further;
    const struct op_attributes *attributes = &launch->attributes;
    size_t head = sizeof *launch + operands * sizeof(struct operand);
    size_t numbers = attributes->n_ints + attributes->n_floats + 2 * (size_t)launch->output.rank;
    for (unsigned i = 0; i < operands; i++)
        numbers += 2 * (size_t)launch->inputs[i].rank;
    struct launch *copy = malloc(head + numbers * sizeof(int64_t));
    int64_t *at = (int64_t *)(copy->inputs + operands);
    memcpy(copy, launch, head);
    copy->attributes.ints = copy_numbers(&at, attributes->ints, attributes->n_ints);
    copy->attributes.floats = copy_numbers(&at, attributes->floats, attributes->n_floats);
    copy_operand(&at, &copy->output);
    for (unsigned i = 0; i < operands; i++)
        copy_operand(&at, &copy->inputs[i]);
    return copy;
}

static void late_run(struct late *late, struct launch *real) {
    struct fault fault;
    if (!late_begin(late, real->opcode))
        return;
    unsigned operands = real->n_inputs + real->further;
    real->output.data = late_real_address(real->output.data);
    real->workspace = real->workspace ? late_real_address(real->workspace) : NULL;
    for (unsigned i = 0; i < operands; i++)
        real->inputs[i].data = late_real_address(real->inputs[i].data);
    pthread_mutex_lock(&late->kernels);
    int code = late->cpu->vtable->launch(late->cpu, NULL, real, &fault);
    pthread_mutex_unlock(&late->kernels);
    if (code != STATUS_OK) {
        fprintf(stderr, "late: %s\n", fault.message);
        abort();
    }
}

static void late_run_kernel(struct late *late, const struct kernel_launch *launch) {
    if (late_begin(late, HANG_KERNELS))
        late_kernel_run(launch);
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

static void late_take(struct device_stream *stream) {
    struct late *late = stream->late;
    pthread_mutex_lock(&late->lock);
    while (stream->launches >= LATE_QUEUE && !late->lost)
        pthread_cond_wait(&late->changed, &late->lock);
    stream->launches++;
    late->launches++;
    pthread_mutex_unlock(&late->lock);
}

static void late_ran(struct device_stream *stream) {
    struct late *late = stream->late;
    pthread_mutex_lock(&late->lock);
    stream->launches--;
    late->launches--;
    pthread_cond_broadcast(&late->changed);
    pthread_mutex_unlock(&late->lock);
}

static void *stream_main(void *argument) {
    struct device_stream *stream = argument;
    for (bool end = false; !end;) {
        struct late_item *item = stream_pop(stream);
        switch (item->kind) {
        case LATE_LAUNCH:
            late_run(stream->late, item->launch);
            free(item->launch);
            late_ran(stream);
            break;
        case LATE_KERNEL:
            late_run_kernel(stream->late, item->kernel);
            late_ran(stream);
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

/* A lost device does nothing any more, also not what its stream was given before. */
static void stream_run_dry(struct device_stream *stream) {
    struct device_event *event = event_create();
    stream_push_item(stream, (struct late_item){.kind = LATE_RECORD, .event = event});
    event_await(event);
}

/* One that asks for 77 bytes of shared memory is refused as only a device can. */
static int late_launch_kernel(struct device *device, struct device_stream *stream, const struct kernel_launch *launch,
                              struct fault *fault) {
    (void)device;
    if (!late_kernel_survives(launch->kernel)) {
        stream_run_dry(stream);
        return fault_set(fault, STATUS_DEVICE_LOST, "an illegal memory access was encountered");
    }
    if (launch->shared == 77) {
        launch->report->value = 701;
        atomic_store(&launch->report->code, STATUS_OUT_OF_MEMORY);
        return STATUS_OK;
    }
    late_take(stream);
    stream_push_item(stream, (struct late_item){.kind = LATE_KERNEL, .kernel = launch});
    return STATUS_OK;
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

static int late_event_elapsed(struct device *device, struct device_event *from, struct device_event *to, int64_t *ns,
                              struct fault *fault) {
    (void)device;
    (void)fault;
    pthread_mutex_lock(&from->lock);
    uint64_t begin = from->reached_ns;
    pthread_mutex_unlock(&from->lock);
    pthread_mutex_lock(&to->lock);
    *ns = (int64_t)(to->reached_ns - begin);
    pthread_mutex_unlock(&to->lock);
    return STATUS_OK;
}

static void late_event_release(struct device *device, struct device_event *event) {
    (void)device;
    event_unref(event);
}

/* As a library does that is broken: it writes where nothing is. */
__attribute__((noinline)) static void late_crash(void) {
    volatile int *volatile nowhere = (volatile int *)UINT64_C(0xdead0);
    *nowhere = 1;
}

static bool late_waits(struct device *device, const struct launch *launch) {
    return atomic_load(&((struct late *)device)->waits) == launch->opcode;
}

static void late_await(struct device_stream *stream) {
    struct late *late = stream->late;
    pthread_mutex_lock(&late->lock);
    while (stream->launches && !late->lost)
        pthread_cond_wait(&late->changed, &late->lock);
    pthread_mutex_unlock(&late->lock);
}

static int late_launch(struct device *device, struct device_stream *stream, const struct launch *launch,
                       struct fault *fault) {
    (void)fault;
    if (launch->opcode == ((struct late *)device)->crash)
        late_crash();
    late_take(stream);
    stream_push_item(stream, (struct late_item){.kind = LATE_LAUNCH, .launch = launch_copy(launch)});
    if (late_waits(device, launch))
        late_await(stream);
    return STATUS_OK;
}

static void *aside_main(void *argument) {
    struct device_aside *aside = argument;
    struct late *late = aside->stream->late;
    struct fault fault;
    late_launch(&late->device, aside->stream, aside->launch, &fault);
    if (aside->launch->opcode != atomic_load(&late->waits)) {
        fprintf(stderr, "late: a launch has changed during its call\n");
        abort();
    }
    atomic_store(&aside->returned, true);
    aside->moved(aside->context);
    return NULL;
}

static int late_launch_aside(struct device *device, struct device_stream *stream, const struct launch *launch,
                             void (*moved)(void *context), void *context, struct device_aside **result,
                             struct fault *fault) {
    struct device_aside *aside = *result;
    (void)device;
    if (!aside) {
        *result = aside = calloc(1, sizeof *aside);
        *aside = (struct device_aside){.stream = stream, .launch = launch, .moved = moved, .context = context};
        pthread_create(&aside->thread, NULL, aside_main, aside);
    }
    if (!atomic_load(&aside->returned))
        return fault_set(fault, STATUS_AGAIN, "the call has not returned");
    pthread_join(aside->thread, NULL);
    free(aside);
    *result = NULL;
    return STATUS_OK;
}

static void late_free_released(struct late *late) {
    while (late->released) {
        struct late_released *released = late->released;
        late->released = released->next;
        late->reserved -= released->bytes;
        late->cpu->vtable->release(late->cpu, late_real_address(released->segment), released->bytes);
        free(released);
    }
}

/* As with CUDA, memory that was given back is free when everything that is on the device has run. */
static int late_reserve(struct device *device, size_t bytes, void **segment, struct fault *fault) {
    struct late *late = (struct late *)device;
    pthread_mutex_lock(&late->lock);
    bool idle = !late->launches || late->lost;
    pthread_mutex_unlock(&late->lock);
    if (idle)
        late_free_released(late);
    if (bytes > late->total - late->reserved)
        return late->released ? fault_set(fault, STATUS_AGAIN, "memory that was given back is not free yet")
                              : fault_set(fault, STATUS_OUT_OF_MEMORY, "no device memory");
    int code = late->cpu->vtable->reserve(late->cpu, bytes, segment, fault);
    if (code != STATUS_OK)
        return code;
    late->reserved += bytes;
    *segment = (uint8_t *)*segment + LATE_OFFSET;
    return STATUS_OK;
}

static void late_release(struct device *device, void *segment, size_t bytes) {
    struct late *late = (struct late *)device;
    struct late_released *released = malloc(sizeof *released);
    *released = (struct late_released){.segment = segment, .bytes = bytes, .next = late->released};
    late->released = released;
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

/* The CPU's kernels, asked for what they say of the CPU device within. */
static uint32_t late_dtypes(const struct device *device, unsigned opcode) {
    return ((const struct late *)device)->cpu->dtypes[opcode];
}

static bool late_converts(const struct device *device, unsigned opcode, enum dtype from, enum dtype to) {
    const struct device *cpu = ((const struct late *)device)->cpu;
    const struct op_kernel *kernel = cpu->vtable->operations[opcode];
    return kernel->converts && kernel->converts(cpu, opcode, from, to);
}

/* What any of the CPU device's operations needs is what its products of floats need. */
static int late_needs(struct device *device, enum dtype dtype, struct fault *fault) {
    struct device *cpu = ((struct late *)device)->cpu;
    (void)dtype;
    return cpu->vtable->operations[OP_MATMUL]->needs(cpu, DTYPE_F32, fault);
}

static int late_accepts(struct device *device, const struct launch *launch, struct fault *fault) {
    struct device *cpu = ((struct late *)device)->cpu;
    return cpu->vtable->operations[launch->opcode]->accepts(cpu, launch, fault);
}

static uint64_t late_workspace(struct device *device, const struct launch *launch) {
    struct device *cpu = ((struct late *)device)->cpu;
    return cpu->vtable->operations[launch->opcode]->workspace(cpu, launch);
}

static struct op_kernel late_entries[OP_CODE_MAX];
static const struct op_kernel *late_operations[OP_CODE_MAX];

static void late_take_operations(const struct device *cpu) {
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++) {
        const struct op_kernel *kernel = cpu->vtable->operations[opcode];
        late_operations[opcode] = kernel;
        if (!kernel || kernel->parts)
            continue;
        late_entries[opcode] = (struct op_kernel){.dtypes = late_dtypes,
                                                  .converts = late_converts,
                                                  .index_dtypes = kernel->index_dtypes,
                                                  .needs = kernel->needs ? late_needs : NULL,
                                                  .accepts = kernel->accepts ? late_accepts : NULL,
                                                  .workspace = kernel->workspace ? late_workspace : NULL,
                                                  .waits = late_waits,
                                                  .halves = kernel->halves};
        late_operations[opcode] = &late_entries[opcode];
    }
}

static void late_workspaces(struct device *device, struct device_workspaces *workspaces) {
    struct late *late = (struct late *)device;
    late->cpu->vtable->workspaces(late->cpu, workspaces);
}

static void late_describe(const struct device *device, struct device_info *info) {
    device_describe(((const struct late *)device)->cpu, info);
    snprintf(info->kind, sizeof info->kind, "late");
    snprintf(info->uuid, sizeof info->uuid, "LATE-1");
    snprintf(info->bus, sizeof info->bus, "0000:3b:00.0");
}

static void late_close(struct device *device) {
    struct late *late = (struct late *)device;
    late_free_released(late);
    device_close(late->cpu);
    pthread_cond_destroy(&late->changed);
    pthread_mutex_destroy(&late->lock);
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
    .timed_record = late_event_record,
    .event_elapsed = late_event_elapsed,
    .launch_aside = late_launch_aside,
};

static int late_count(unsigned *count, struct fault *fault) {
    (void)fault;
    *count = 2;
    return STATUS_OK;
}

static const struct device_kernels late_kernels = {
    .target = late_kernel_target,
    .measure = late_kernel_measure,
    .compile = late_kernel_compile,
    .load = late_kernel_load,
    .launch = late_launch_kernel,
    .release = late_kernel_release,
};

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
    .workspaces = late_workspaces,
    .operations = late_operations,
    .kernels = &late_kernels,
};

int late_open(const struct device_options *options, struct device **device, struct fault *fault) {
    struct late *late = calloc(1, sizeof *late);
    struct device_info info;
    int code = device_open("cpu", options, &late->cpu, fault);
    if (code != STATUS_OK) {
        free(late);
        return code;
    }
    late->device.vtable = &late_vtable;
    device_describe(late->cpu, &info);
    late->total = info.memory_total;
    late_take_operations(late->cpu);
    device_note_dtypes(&late->device);
    pthread_mutex_init(&late->kernels, NULL);
    pthread_mutex_init(&late->lock, NULL);
    pthread_cond_init(&late->changed, NULL);
    late->crash = late_opcode(getenv("TENSORD_LATE_CRASH"));
    late_hang(&late->device, getenv("TENSORD_LATE_HANG"));
    late_wait(&late->device, getenv("TENSORD_LATE_WAIT"));
    *device = &late->device;
    return STATUS_OK;
}

/* As a module, for a real daemon. */
extern const struct device_module tensord_device_module;
__attribute__((visibility("default"))) const struct device_module tensord_device_module = {
    .abi = DEVICE_MODULE_ABI,
    .vtable = &late_vtable,
};
