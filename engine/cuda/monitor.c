#include "engine/cuda/monitor.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/cuda/nvml_sample.h"

enum {
    MONITOR_PERIOD_MS = 1000,
    MONITOR_SLICE_MS = 200, /* one wait for events, which cannot be interrupted */
};

#define MONITOR_MS_NS UINT64_C(1000000)

struct monitor {
    char bus[24], uuid[NVML_UUID_MAX];
    _Atomic int64_t reserved; /* device memory that this process has taken */
    pthread_t thread;

    pthread_mutex_t lock; /* of what follows; never held during a call of NVML's */
    pthread_cond_t changed;
    struct device_readings readings; /* the last ones */
    bool settled;                    /* there have been readings, or there will be none */
    bool opened, stop;
    bool late;             /* the process did not wait for the first readings before it made its context */
    bool ended, abandoned; /* the thread has ended; it is not waited for, and frees the monitor itself */

    /* The thread's own. */
    const struct nvml *nvml;
    nvml_device device;
    nvml_events events; /* NULL: Xids cannot be watched */
    uint64_t xid, xid_at_ns;
    char driver[32];
    bool seen_opened, seen_late; /* at the last sample */
    /* Device memory in use before this process came, and what its context took; -1: not known. */
    int64_t before, context;
};

static uint64_t monitor_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct timespec monitor_after(unsigned ms) {
    uint64_t at = monitor_now() + ms * MONITOR_MS_NS;
    return (struct timespec){.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
}

/* ---- memory of this process and of others ---- */

/* This process's memory, from NVML; if NVML cannot tell, the sum of what the pool has taken and what the context took when it was made.
 * That sum misses memory that libraries and lazily loaded code take later, which then counts as memory of other processes. -1: not
 * known. */
static int64_t monitor_own(struct monitor *monitor, int64_t used) {
    int64_t reserved = atomic_load_explicit(&monitor->reserved, memory_order_relaxed);
    if (!monitor->seen_opened) {
        monitor->before = used;
        return 0;
    }
    if (monitor->context < 0 && monitor->before >= 0 && !monitor->seen_late) {
        int64_t more = used - monitor->before - reserved;
        monitor->context = more > 0 ? more : 0;
    }
    int64_t listed = nvml_own_memory(monitor->nvml, monitor->device);
    return listed >= 0 ? listed : monitor->context >= 0 ? monitor->context + reserved : -1;
}

static void monitor_memory(struct monitor *monitor, struct device_readings *readings) {
    struct nvml_memory memory = {.version = NVML_MEMORY_VERSION};
    if (monitor->nvml->memory(monitor->device, &memory) != NVML_OK || memory.used > INT64_MAX)
        return;
    device_readings_set(readings, READING_MEMORY_TOTAL, memory.total);
    device_readings_set(readings, READING_MEMORY_FREE, memory.free);
    int64_t used = (int64_t)memory.used, own = monitor_own(monitor, used);
    if (own >= 0)
        device_readings_set(readings, READING_MEMORY_OTHERS, used > own ? (uint64_t)(used - own) : 0);
}

/* ---- samples, and the time between them ---- */

static void monitor_sample(struct monitor *monitor) {
    struct device_readings readings = {.xid_at_ns = monitor->xid_at_ns};
    pthread_mutex_lock(&monitor->lock);
    monitor->seen_opened = monitor->opened;
    monitor->seen_late = monitor->late;
    pthread_mutex_unlock(&monitor->lock);
    nvml_sample(monitor->nvml, monitor->device, &readings);
    if (monitor->events)
        device_readings_set(&readings, READING_XID, monitor->xid);
    monitor_memory(monitor, &readings);
    memcpy(readings.driver, monitor->driver, sizeof readings.driver);
    readings.at_ns = monitor_now();
    pthread_mutex_lock(&monitor->lock);
    monitor->readings = readings;
    monitor->settled = true;
    pthread_cond_broadcast(&monitor->changed);
    pthread_mutex_unlock(&monitor->lock);
}

/* Whether a sample, or the end, is due before its time. Under the lock. */
static bool monitor_called(const struct monitor *monitor) {
    return monitor->stop || monitor->opened != monitor->seen_opened;
}

/* Waits until then, or until `end_ns`, without looking for events. */
static void monitor_pause(struct monitor *monitor, uint64_t end_ns) {
    struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000), .tv_nsec = (long)(end_ns % 1000000000)};
    int error = 0;
    pthread_mutex_lock(&monitor->lock);
    while (!monitor_called(monitor) && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&monitor->changed, &monitor->lock, &end);
    pthread_mutex_unlock(&monitor->lock);
}

/* Waits for an Xid, for one slice of the time. True: one has come. If NVML cannot wait, or returns at once, waits until `end_ns` without
 * it. */
static bool monitor_watch(struct monitor *monitor, uint64_t end_ns) {
    struct nvml_event event = {0};
    uint64_t start_ns = monitor_now();
    nvml_status status =
        monitor->events ? monitor->nvml->events_wait(monitor->events, &event, MONITOR_SLICE_MS) : NVML_NOT_SUPPORTED;
    if (status == NVML_OK && event.type == NVML_EVENT_XID) {
        monitor->xid = event.data;
        monitor->xid_at_ns = monitor_now();
        return true;
    }
    if (status != NVML_TIMED_OUT || monitor_now() - start_ns < MONITOR_SLICE_MS * MONITOR_MS_NS / 2)
        monitor_pause(monitor, end_ns);
    return false;
}

/* Waits until the next sample is due. False: the thread is to end. */
static bool monitor_next(struct monitor *monitor) {
    uint64_t end_ns = monitor_now() + MONITOR_PERIOD_MS * MONITOR_MS_NS;
    for (;;) {
        pthread_mutex_lock(&monitor->lock);
        bool stop = monitor->stop, called = monitor_called(monitor);
        pthread_mutex_unlock(&monitor->lock);
        if (stop || called || monitor_now() >= end_ns || monitor_watch(monitor, end_ns))
            return !stop;
    }
}

/* ---- the thread ---- */

static bool monitor_find(struct monitor *monitor) {
    const struct nvml *nvml = monitor->nvml;
    if (*monitor->uuid)
        return nvml->by_uuid(monitor->uuid, &monitor->device) == NVML_OK;
    /* By bus address: in a search by UUID, NVML may wake GPUs that this process does not use. */
    return nvml->by_bus(monitor->bus, &monitor->device) == NVML_OK;
}

/* NVML has no events of MIG devices, and gives those of the whole GPU only to processes that may administer it. */
static void monitor_watch_events(struct monitor *monitor) {
    const struct nvml *nvml = monitor->nvml;
    if (*monitor->uuid || nvml->events_create(&monitor->events) != NVML_OK) {
        monitor->events = NULL;
    } else if (nvml->events_register(monitor->device, NVML_EVENT_XID, monitor->events) != NVML_OK) {
        nvml->events_free(monitor->events);
        monitor->events = NULL;
    }
}

static void monitor_run(struct monitor *monitor) {
    const struct nvml *nvml = monitor->nvml;
    if (nvml->driver(monitor->driver, sizeof monitor->driver) != NVML_OK)
        monitor->driver[0] = 0;
    monitor->driver[sizeof monitor->driver - 1] = 0;
    if (!monitor_find(monitor))
        return;
    monitor_watch_events(monitor);
    do
        monitor_sample(monitor);
    while (monitor_next(monitor));
    if (monitor->events)
        nvml->events_free(monitor->events);
}

static void monitor_destroy(struct monitor *monitor) {
    pthread_cond_destroy(&monitor->changed);
    pthread_mutex_destroy(&monitor->lock);
    free(monitor);
}

static void *monitor_main(void *argument) {
    struct monitor *monitor = argument;
    pthread_setname_np(pthread_self(), "tensord nvml");
    if (monitor->nvml->init() == NVML_OK) {
        monitor_run(monitor);
        monitor->nvml->shutdown();
    }
    pthread_mutex_lock(&monitor->lock);
    monitor->settled = monitor->ended = true;
    bool abandoned = monitor->abandoned;
    pthread_cond_broadcast(&monitor->changed);
    pthread_mutex_unlock(&monitor->lock);
    if (abandoned)
        monitor_destroy(monitor);
    return NULL;
}

/* ---- for the owner ---- */

static struct monitor *monitor_create(const char *bus, const char *uuid) {
    struct monitor *monitor = calloc(1, sizeof *monitor);
    if (!monitor)
        return NULL;
    snprintf(monitor->bus, sizeof monitor->bus, "%s", bus);
    snprintf(monitor->uuid, sizeof monitor->uuid, "%s", uuid ? uuid : "");
    monitor->before = monitor->context = -1;
    pthread_mutex_init(&monitor->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&monitor->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return monitor;
}

struct monitor *monitor_start(const char *bus, const char *uuid) {
    const struct nvml *nvml = nvml_load();
    struct monitor *monitor = nvml ? monitor_create(bus, uuid) : NULL;
    if (!monitor)
        return NULL;
    monitor->nvml = nvml;
    if (pthread_create(&monitor->thread, NULL, monitor_main, monitor)) {
        monitor_destroy(monitor);
        return NULL;
    }
    return monitor;
}

void monitor_wait(struct monitor *monitor) {
    if (!monitor)
        return;
    struct timespec end = monitor_after(MONITOR_FIRST_MS);
    int error = 0;
    pthread_mutex_lock(&monitor->lock);
    while (!monitor->settled && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&monitor->changed, &monitor->lock, &end);
    monitor->late = !monitor->settled;
    pthread_mutex_unlock(&monitor->lock);
}

void monitor_opened(struct monitor *monitor) {
    if (!monitor)
        return;
    pthread_mutex_lock(&monitor->lock);
    monitor->opened = true;
    pthread_cond_broadcast(&monitor->changed);
    pthread_mutex_unlock(&monitor->lock);
}

void monitor_reserved(struct monitor *monitor, int64_t bytes) {
    if (monitor)
        atomic_fetch_add_explicit(&monitor->reserved, bytes, memory_order_relaxed);
}

void monitor_read(struct monitor *monitor, struct device_readings *readings) {
    if (!monitor)
        return;
    pthread_mutex_lock(&monitor->lock);
    *readings = monitor->readings;
    pthread_mutex_unlock(&monitor->lock);
}

void monitor_stop(struct monitor *monitor) {
    if (!monitor)
        return;
    struct timespec end = monitor_after(MONITOR_STOP_MS);
    int error = 0;
    pthread_mutex_lock(&monitor->lock);
    monitor->stop = true;
    pthread_cond_broadcast(&monitor->changed);
    while (!monitor->ended && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&monitor->changed, &monitor->lock, &end);
    bool ended = monitor->ended;
    monitor->abandoned = !ended;
    pthread_t thread = monitor->thread; /* the rest may be gone once the lock is */
    pthread_mutex_unlock(&monitor->lock);
    if (!ended) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    monitor_destroy(monitor);
}
