/* What a backend implements. Callers include device.h; only backends and engine/ itself include this.
 *
 * Threads: open, close, describe, reserve, release, host_reserve and host_release are called by the engine's
 * owner thread; launch, launch_part, abandon and what makes and uses streams by whichever thread holds the submitter role, never by two at
 * once; event_reached by the reaper. event_release may be called by either of these two at the same time. */
#pragma once

#include "engine/device/device.h"
#include "engine/device/device_kernels.h"
#include "engine/device/launch.h"
#include "engine/device/op_kernel.h"

struct device_stream; /* the backend's */
struct device_event;

/* Streams of devices on which a launch has not run yet when launch() returns. */
struct device_async {
    /* A higher priority is a greater number; 0 is the default. */
    int (*stream_create)(struct device *device, int priority, struct device_stream **stream, struct fault *fault);
    /* Nothing runs on it any more, or the device has failed: then this returns when nothing of it touches memory any
     * more. Owner thread, when the submitter has stopped. */
    void (*stream_destroy)(struct device *device, struct device_stream *stream);

    /* An event that is reached when everything put on the stream so far has run. */
    int (*event_record)(struct device *device, struct device_stream *stream, struct device_event **event,
                        struct fault *fault);
    /* What is put on the stream from now on waits for the event. */
    int (*event_wait)(struct device *device, struct device_stream *stream, struct device_event *event,
                      struct fault *fault);
    /* STATUS_OK and whether it has been reached; anything else is a failure of the device. */
    int (*event_reached)(struct device *device, struct device_event *event, bool *reached, struct fault *fault);
    void (*event_release)(struct device *device, struct device_event *event);
    /* For traces: as event_record(), of an event that also notes when it is reached; and the nanoseconds from one such event
     * to a later one, when both have been reached. By the submitter; the latter by the reaper, too. Both NULL: there are
     * none. */
    int (*timed_record)(struct device *device, struct device_stream *stream, struct device_event **event,
                        struct fault *fault);
    int (*event_elapsed)(struct device *device, struct device_event *from, struct device_event *to, int64_t *ns,
                         struct fault *fault);
    /* Gives back memory that launches keep from one to the next (struct device_workspaces). By the submitter. May be
     * NULL. */
    void (*trim)(struct device *device);
};

/* What a device does in a nanosecond, about. */
struct device_rates {
    double bytes;             /* of memory that it reads and writes */
    double flop[DTYPE_COUNT]; /* of products: additions and multiplications; 0: as of f32 */
    double tf32;              /* of products of f32 in that precision; 0: it has none */
    double launch_ns;         /* what a launch takes besides, */
    double product_ns;        /* and a product, */
    double batch_ns;          /* and each matrix in it; */
    double packing_ns;        /* and for each element of the operands */
    double row_ns;            /* what a row of a reduction takes besides its elements */
};

/* A launch that has begun and not ended; the backend's. */
struct device_begun;

/* One call's time on a device whose launches can be left. Any thread may set the flags, which the device looks at every few
 * milliseconds; either may be NULL. */
struct device_turn {
    const _Atomic bool *cancelled; /* nobody wants the result any more */
    const _Atomic bool *wanted;    /* somebody else waits for the device: */
    uint64_t turn_ns;              /* it is left after so long, if so */
    bool shared;                   /* others have had the device of late: look more often than costs least */
    uint64_t most_ns;              /* and after so long in any case; 0: never */
    _Atomic uint64_t *progress;    /* NULL, or grows while the device works */
    uint64_t used_ns;              /* result: for so long it has worked; 0: it was too little for a look at the clock */
};

/* Memory that is kept besides operands and what launches are given (op_kernel.workspace): of a size that is known too late for
 * that. It is the device's own, outside the pool and charged to no session, so it is bounded: a launch that cannot have any
 * goes without it, and is slower. */
struct device_workspaces {
    uint64_t bytes, limit; /* taken now; the most that it may be */
    uint64_t growths;      /* how often more was taken, ever */
};

struct device_vtable {
    const char *kind; /* "cpu" */
    /* How many there are on this host; STATUS_NO_DEVICE says why there is none. Touches no device. */
    int (*count)(unsigned *count, struct fault *fault);
    int (*open)(const struct device_options *options, struct device **device, struct fault *fault);
    void (*close)(struct device *device);
    void (*describe)(const struct device *device, struct device_info *info);

    /* Memory segments for the pool, aligned to 4096 bytes at least. Contents are unspecified. reserve returns
     * STATUS_OUT_OF_MEMORY where the device has no more. */
    int (*reserve)(struct device *device, size_t bytes, void **segment, struct fault *fault);
    void (*release)(struct device *device, void *segment, size_t bytes);
    /* Segments of host memory that launches may read and write as well. Both NULL where the host can use the device's
     * own memory, which then needs no such detour. */
    int (*host_reserve)(struct device *device, size_t bytes, void **segment, struct fault *fault);
    void (*host_release)(struct device *device, void *segment, size_t bytes);

    /* Runs one launch in its normal form (engine/device/launch.h), or puts it on `stream` (NULL on devices without `async`).
     * An error here is a failure of the device, not of the data: it is sticky, and the worker ends. Data errors go into
     * launch->report. The launch stays where it is until it has run. */
    int (*launch)(struct device *device, struct device_stream *stream, const struct launch *launch,
                  struct fault *fault);
    const struct device_async *async; /* NULL: launch() returns when the launch has run */
    /* As launch() on a device without `async`, but it may return before the launch has ended: then *begun, NULL before the
     * first call, is not, and another call goes on with it. Several launches may have been begun. NULL: there is no such
     * way. */
    int (*launch_part)(struct device *device, const struct launch *launch, struct device_turn *turn,
                       struct device_begun **begun, struct fault *fault);
    /* Forgets one that has begun; its output is unspecified. */
    void (*abandon)(struct device *device, struct device_begun *begun);

    /* NULL: nothing is known, and the usual rates of a CPU stay. */
    void (*rates)(const struct device *device, struct device_rates *rates);
    /* Called again and again while the device has nothing to do: measures, once, what rates() tells, if device_options.measure
     * asks for that, in some milliseconds. Owner thread. NULL: there is nothing to measure. */
    void (*measure)(struct device *device);
    /* NULL: there are none. Owner thread, while the submitter runs. */
    void (*workspaces)(struct device *device, struct device_workspaces *workspaces);

    const struct op_kernel *const
        *operations; /* [OP_CODE_MAX]; NULL for numbers that are not in OP_KERNELS or OP_ELEMENTWISE */

    /* Those that follow may be NULL. */
    /* The devices of count(), where an index alone does not get a process at each. Touches no device. */
    int (*list)(struct device_place *places, unsigned capacity, unsigned *count, struct fault *fault);
    /* Copies what was read last; never waits for a device. Owner thread. */
    void (*readings)(struct device *device, struct device_readings *readings);
    const struct device_kernels *kernels; /* NULL: it takes none from clients */
};

/* The kernels of a kind whose module is loaded for it, if need be; no device is opened. STATUS_NO_DEVICE, or
 * STATUS_UNSUPPORTED for a kind that takes none. */
int device_find_kernels(const char *kind, const struct device_kernels **kernels, struct fault *fault);

/* Fills device->dtypes. device_open() does it, and so does whoever opens a device in another way. */
void device_note_dtypes(struct device *device);

/* A backend's own struct begins with this. */
struct device {
    const struct device_vtable *vtable;
    unsigned rates_changed;       /* how often rates() has come to tell something else; owner thread */
    uint32_t dtypes[OP_CODE_MAX]; /* of op_kernel.dtypes: device_note_dtypes() */
};
