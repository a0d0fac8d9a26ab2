/* The CUDA device as the engine's backend: the struct cuda that its drivers see (cuda.h), and the parts that only the backend sees. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "engine/cuda/aside.h"
#include "engine/cuda/cuda.h"
#include "engine/cuda/cuda_memory.h"
#include "engine/cuda/monitor.h"
#include "engine/cuda/preload.h"
#include "engine/device/device_impl.h"

struct device_event {
    cudaEvent_t event;
    bool timed;
    struct device_event *next; /* in the pool */
};

struct device_stream {
    struct cuda_stream cuda;
    struct device_stream *next, **previous; /* in the device's list */
};

/* Scratch memory that is held from the device's opening on, out of the memory that is kept from the pool, for streams that can get
 * none of their own: so how a launch is computed, and what bits it gives, does not depend on how much memory is free. One stream has
 * it at a time, and the next one waits on the device. */
struct cuda_fallback {
    void *memory; /* NULL: there was none when the device was opened */
    size_t bytes; /* and the most scratch memory that a launch gets */
    struct device_stream *user;
    cudaEvent_t passed; /* recorded where the last user gave it away, */
    bool recorded;      /* if one has */
};

/* Scratch memory of all streams. The submitter's thread; any thread may read the atomic fields. */
struct cuda_workspaces {
    struct device_stream *streams;
    uint64_t clock, limit; /* the limit is without the fallback, and so is `bytes` */
    _Atomic uint64_t bytes, growths;
    struct cuda_fallback fallback;
};

struct cuda_device {
    struct device base;
    struct cuda cuda;
    uint64_t memory_total; /* bytes that the pool may take */
    int priority_least, priority_greatest;
    struct device_info info;   /* as of when it was opened */
    struct device_rates rates; /* as of when it was opened */
    struct monitor *monitor;   /* NULL: no readings */
    struct preload preload;
    struct cuda_memory memory;
    struct cuda_workspaces workspaces;
    struct asides asides[CUDA_LIBRARIES];
    bool graphs_off;                 /* by the environment */
    _Atomic uint64_t graph_launches; /* in all graphs, */
    _Atomic uint64_t graph_bytes;    /* and scratch memory of theirs */
    pthread_mutex_t events_lock;
    struct device_event *events, *events_timed; /* unused ones */
};

/* By opcode; each entry is the base of a struct cuda_kernel. */
extern const struct op_kernel *const cuda_operations[OP_CODE_MAX];

/* Makes the device the current one of the calling thread. To be called before every other call of CUDA by that thread. */
int cuda_enter(const struct cuda *cuda, struct fault *fault);

/* user_kernel.c */
extern const struct device_kernels cuda_kernels;
extern const struct device_fusion cuda_fusion;
/* cuda_stream.c */
extern const struct device_async cuda_async;
void cuda_workspaces(struct device *device, struct device_workspaces *workspaces);
/* Takes the fallback of so many bytes. */
int cuda_fallback_open(struct cuda_device *device, size_t bytes, struct fault *fault);
void cuda_fallback_close(struct cuda_device *device);
void cuda_events_destroy(struct cuda_device *device);

/* cuda_places.c */
int cuda_count(unsigned *count, struct fault *fault);
int cuda_list(struct device_place *places, unsigned capacity, unsigned *count, struct fault *fault);
/* The UUID of the one MIG device that this process sees, from its environment; NULL: it sees whole GPUs. */
const char *cuda_visible_part(void);
