/* The functions that a backend implements. Callers include device.h; only backends and engine/ itself include this.
 *
 * Threads: the engine's owner thread calls open, close, describe, reserve, release, host_reserve and host_release. The thread that has the
 * submitter's role, never two at once, calls launch, launch_part, abandon, and the functions that make and use streams. The reaper
 * calls event_reached. The submitter and the reaper may call event_release at the same time. */
#pragma once

#include "engine/device/device.h"
#include "engine/device/device_kernels.h"
#include "engine/device/launch.h"
#include "engine/device/op_kernel.h"

struct device_stream; /* the backend's */
struct device_event;
struct device_aside;

/* Launches that come again and again, one after another and each time on other addresses at most, as one piece of work: a graph; the
 * backend's. And memory that several graphs share, of which never two run at once; the backend's, too. */
struct device_graph;
struct device_graph_memory;

/* What became of a call of graph_launch(). */
struct device_graph_outcome {
    char refusal[128];  /* why the graph was not launched; "": it was */
    unsigned refused;   /* the launch for which it was not; as many as there are: not for one of them */
    bool captured;      /* all launches were taken down, */
    unsigned exchanged; /* or so many again, to go to other addresses */
};

/* A launch of a graph: one of the two. */
struct device_step {
    const struct launch *launch;
    const struct fused_launch *fused;
    const struct device_kernel *kernel; /* of a fused one */
};

/* Streams of a device whose launches may not have run yet when launch() returns: a device that runs later. */
struct device_async {
    /* A higher priority is a greater number; 0 is the default. */
    int (*stream_create)(struct device *device, int priority, struct device_stream **stream, struct fault *fault);
    /* Nothing runs on the stream any more, or the device has failed: then this returns when no work of the stream touches memory any
     * more. Owner thread, when the submitter has stopped. */
    void (*stream_destroy)(struct device *device, struct device_stream *stream);

    /* An event that is reached when all work put on the stream so far has run. */
    int (*event_record)(struct device *device, struct device_stream *stream, struct device_event **event,
                        struct fault *fault);
    /* Work put on the stream from now on waits for the event. */
    int (*event_wait)(struct device *device, struct device_stream *stream, struct device_event *event,
                      struct fault *fault);
    /* STATUS_OK, and *reached: whether it has been reached. Other codes are a failure of the device. */
    int (*event_reached)(struct device *device, struct device_event *event, bool *reached, struct fault *fault);
    void (*event_release)(struct device *device, struct device_event *event);
    /* As launch(), for a launch whose call may take long (op_kernel.waits): a thread of the device's makes the call. STATUS_AGAIN:
     * it has not returned; *aside, which is NULL before, is not NULL then, the launch has to stay as it is, and nothing else may be put on
     * the stream but events. When the call has returned, the device's thread calls `moved`, and from then on the same call here returns
     * its outcome, with *aside NULL. NULL: no call waits. By the submitter. */
    int (*launch_aside)(struct device *device, struct device_stream *stream, const struct launch *launch,
                        void (*moved)(void *context), void *context, struct device_aside **aside, struct fault *fault);
    /* For traces. timed_record: as event_record(), with an event that also notes when it is reached. event_elapsed: the nanoseconds from
     * one such event to a later one, when both have been reached. By the submitter; event_elapsed by the reaper, too. Both NULL: the
     * device has no such events. */
    int (*timed_record)(struct device *device, struct device_stream *stream, struct device_event **event,
                        struct fault *fault);
    int (*event_elapsed)(struct device *device, struct device_event *from, struct device_event *to, int64_t *ns,
                         struct fault *fault);
    /* Gives back memory that launches keep from one to the next (struct device_workspaces). By the submitter. May be
     * NULL. */
    void (*trim)(struct device *device);

    /* Puts `n` launches on the stream as one graph. They have all been launched before, by themselves. *graph NULL: it is made now;
     * else it was made of the same launches, of which those that `changed` names have other addresses since (NULL: none has). With
     * outcome->refusal nothing was put on the stream, the caller may launch them one by one, and *graph may be NULL again. *memory is
     * NULL before the first call. Other codes than STATUS_OK are a failure of the device. NULL: the device has no graphs. */
    int (*graph_launch)(struct device *device, struct device_stream *stream, struct device_graph_memory **memory,
                        struct device_graph **graph, const struct device_step *steps, unsigned n, const bool *changed,
                        struct device_graph_outcome *outcome, struct fault *fault);
    /* All that was launched of it has run, or the device has failed. Owner thread. The memory goes after all graphs that share it. */
    void (*graph_release)(struct device *device, struct device_graph *graph);
    void (*graph_memory_release)(struct device *device, struct device_graph_memory *memory);
    /* As graph_release(), of a graph that may still run on the stream. By the submitter; an error is a failure of the device. */
    int (*graph_retire)(struct device *device, struct device_stream *stream, struct device_graph *graph,
                        struct fault *fault);
};

/* How much a device does in a nanosecond, roughly, and what else work costs. */
struct device_rates {
    double bytes;             /* of memory that it reads and writes */
    double flop[DTYPE_COUNT]; /* additions and multiplications of products; 0: as many as of f32 */
    double tf32;              /* the same of products of f32 in that precision; 0: it has none */
    double launch_ns;         /* nanoseconds that each launch takes besides, */
    double product_ns;        /* that each product takes besides, */
    double batch_ns;          /* that each matrix of a product takes besides, */
    double packing_ns;        /* that each element of a product's operands takes besides, */
    double row_ns;            /* and that each row of a reduction takes besides its elements */
};

/* A launch that has begun and not ended; the backend's. */
struct device_begun;

/* The time that one call has on a device whose launches can be left. Any thread may set the flags, at which the device looks every few
 * milliseconds, or every 30 while `shared` is false; either may be NULL. */
struct device_turn {
    const _Atomic bool *cancelled; /* the result is not wanted any more */
    const _Atomic bool *wanted;    /* another session waits for the device: the launch is left after turn_ns */
    uint64_t turn_ns;
    bool shared; /* other sessions have had the device of late: look at the flags more often, though it costs time */
    uint64_t most_ns;           /* the launch is left after so long in any case; 0: never */
    _Atomic uint64_t *progress; /* grows while the device works; may be NULL */
    uint64_t used_ns;           /* result: how long the device has worked; 0: too short for a look at the clock */
};

/* Fused launches on a device that runs later: kernels, whose sources the backend writes, and device_kernels compiles and loads. */
struct device_fusion {
    const char *name; /* of the kernel in each source */
    /* What the kernel does, as text: launches with the same text have one kernel, whatever their addresses, extents and attributes are. One
     * block of malloc(); NULL: no host memory. Owner thread. */
    char *(*text)(const struct fused_launch *launch);
    /* The whole source for such a text; a block, too. Any thread. */
    char *(*source)(const char *text);
    /* As launch(), by a kernel that was made for the launch's text. */
    int (*launch)(struct device *device, struct device_stream *stream, const struct device_kernel *kernel,
                  const struct fused_launch *launch, struct fault *fault);
    /* How many slots there are for whole rows of elements of `size` bytes, beside a reduction or a softmax for which fused_kernel() returned `kernel`. */
    unsigned (*row_slots)(const void *kernel, int64_t columns, size_t size);
};

/* Memory that a device keeps for itself, besides operands and the workspaces of launches (op_kernel.workspace), because its size is known
 * too late for these. It is outside the pool and charged to no session, so it is bounded: a launch that cannot have any runs
 * without it, and is slower. */
struct device_workspaces {
    uint64_t bytes, limit; /* taken now; at most */
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
     * STATUS_OUT_OF_MEMORY where the device has no more, and STATUS_AGAIN where it may have more when memory that was released is
     * free: then the call is to be made again. Neither call waits for what runs on the device. */
    int (*reserve)(struct device *device, size_t bytes, void **segment, struct fault *fault);
    void (*release)(struct device *device, void *segment, size_t bytes);
    /* Segments of host memory that launches may read and write, too. Both NULL if the host can use the device's own memory. */
    int (*host_reserve)(struct device *device, size_t bytes, void **segment, struct fault *fault);
    void (*host_release)(struct device *device, void *segment, size_t bytes);

    /* Runs one launch in its normal form (engine/device/launch.h), or puts it on `stream` (NULL on devices without `async`).
     * An error here is a failure of the device, not of the data: it is sticky, and the worker ends. Data errors go into
     * launch->report. On a device with `async` the caller may change the launch, but not its report, when this returns. */
    int (*launch)(struct device *device, struct device_stream *stream, const struct launch *launch,
                  struct fault *fault);
    const struct device_async *async; /* NULL: launch() returns when the launch has run */
    /* As launch() on a device without `async`, but it may return before the launch has ended: then *begun, which is NULL before the first
     * call, is not NULL, and another call continues the launch. Several launches may be under way. NULL: launches cannot be left. */
    int (*launch_part)(struct device *device, const struct launch *launch, struct device_turn *turn,
                       struct device_begun **begun, struct fault *fault);
    /* Runs small launches one after another, in some microseconds for all of them. By the thread that calls launch_part(). NULL: such
     * operations come as other launches do. */
    void (*launch_flat)(struct device *device, const struct flat_launch *launches, unsigned n);
    /* As launch_part(), for several operations in one pass. The results have the bits of the same operations launched by themselves. NULL:
     * they come one by one. */
    int (*launch_fused)(struct device *device, const struct fused_launch *launch, struct device_turn *turn,
                        struct device_begun **begun, struct fault *fault);
    const struct device_fusion *fusion; /* the same for a device that runs later. NULL, too: they come one by one */
    /* What the device wants to know again when the launch, which is elementwise, a reduction or a softmax, has become an operation of a fused one. NULL: it cannot, or
     * there is no such operation. Owner thread; only with launch_fused() or `fusion`. */
    const void *(*fused_kernel)(const struct device *device, const struct launch *launch);
    /* Says to the device, which may leave notes in its operations, what a fused launch will be. Where operands are is not known yet, but those of one
     * address will be in one place. May be NULL. Owner thread. */
    void (*fused_ready)(const struct device *device, struct fused_launch *launch);
    /* Into how many segments the reduction of each contiguous row to one element is cut, as a launch and in a fused launch alike. Rows that are cut
     * are in no fused launch, but one row, which is all elements, may be. NULL: none is cut. */
    unsigned (*fused_segments)(const struct device *device, const struct launch *launch);
    /* A linear operation with an activation has the bits of that operation without one, and then the activation. */
    bool exact_activations;
    /* Forgets a launch that has begun; its output is unspecified. */
    void (*abandon)(struct device *device, struct device_begun *begun);

    /* Fills in the rates that are known. NULL: none are, and the usual rates of a CPU stay. */
    void (*rates)(const struct device *device, struct device_rates *rates);
    /* Called again and again while the device has nothing to do: measures, once, what rates() tells, if device_options.measure
     * asks for that, in some milliseconds. Owner thread. NULL: there is nothing to measure. */
    void (*measure)(struct device *device);
    /* NULL: there are none. Owner thread, while the submitter runs. */
    void (*workspaces)(struct device *device, struct device_workspaces *workspaces);

    const struct op_kernel *const
        *operations; /* [OP_CODE_MAX]; NULL for numbers that are not in OP_KERNELS or OP_ELEMENTWISE */

    /* The following may be NULL. */
    /* The devices of count(), if a process needs more than an index to get at each of them. Touches no device. */
    int (*list)(struct device_place *places, unsigned capacity, unsigned *count, struct fault *fault);
    /* Copies the latest readings; never waits for a device. Owner thread. */
    void (*readings)(struct device *device, struct device_readings *readings);
    const struct device_kernels *kernels; /* NULL: it takes no kernels from clients */
};

/* The functions for clients' kernels of a kind of devices; loads the kind's module if needed, and opens no device. STATUS_NO_DEVICE, or
 * STATUS_UNSUPPORTED for a kind that takes no kernels. */
int device_find_kernels(const char *kind, const struct device_kernels **kernels, struct fault *fault);

/* Whether the operation adds complex numbers up by their parts, or takes their magnitudes: the engine binds it as an operation on real numbers
 * (engine/program/bind_axes.c), so that a device which has it for those has it for complex ones. */
static inline bool device_takes_parts(unsigned opcode) {
    return opcode == OP_SUM || opcode == OP_MEAN || opcode == OP_CUMULATIVE_SUM || opcode == OP_VECTOR_NORM;
}

/* Fills device->dtypes. device_open() calls it; code that opens a device in another way has to. */
void device_note_dtypes(struct device *device);

/* A backend's own struct begins with this. */
struct device {
    const struct device_vtable *vtable;
    unsigned rates_changed;       /* how often the rates that rates() tells have changed; owner thread */
    uint32_t dtypes[OP_CODE_MAX]; /* of op_kernel.dtypes: device_note_dtypes() */
};
