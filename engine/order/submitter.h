/* What the submitter's files share: one turn of a stream, and how it launches. Only who has the submitter's role calls these. */
#pragma once

#include "engine/order/order_impl.h"

enum {
    SUBMITTER_TURN_NS = 200 * 1000, /* of estimated work: then the next stream has its turn */
    SUBMITTER_PART_LAUNCHES = 128,  /* of a run in one turn, on a device that runs later */
};

/* What one turn of a stream did. */
struct turn {
    bool shared;
    bool brief; /* a launch that proves to take long is left to the submitter's own thread */
    bool moved, blocked, signalled;
    bool left;         /* in the middle of a launch */
    bool waits;        /* in a run, for the end of a call that another thread makes */
    bool full;         /* the stream has no room for another mark: a new mark would be joined to the last one */
    unsigned launches; /* of runs */
    uint64_t weight;   /* estimated, of the records that have run */
    uint64_t cost;     /* nanoseconds that these records have taken: measured, or where that was not done estimated */
    uint64_t most_ns;  /* for one operation; 0: any time */
    struct stream_chunk *chunks;
    struct stream_mark mark; /* number 0: none */
    struct stream_span span;
    uint64_t began_ns;
    uint32_t sample_weight; /* on a device that runs later: as in struct stream_mark */
};

/* Whether nothing of the stream is launched any more. */
bool submitter_skips(const struct order *order, const struct stream *stream);
/* False: this stream's launches are skipped from now on. */
bool submitter_may_launch(struct order *order, struct stream *stream, struct device_stream **device_stream);
/* Counts a launch that was put on the device, or a wait, which takes as much room in the device's queue. */
void submitter_count_launch(struct stream *stream);
/* The two events of a launch that is traced on a device that runs later. */
void submitter_count_trace(struct stream *stream, const struct device_stream *device_stream);
void submitter_launch(struct order *order, struct stream *stream, const struct launch *launch);
void submitter_launch_kernel(struct order *order, struct stream *stream, const struct kernel_launch *launch);
/* For a device whose launches can be left. `launch` or `fused` is NULL. True: this launch has been left. */
bool submitter_launch_part(struct order *order, struct stream *stream, const struct record *record,
                           const struct launch *launch, const struct fused_launch *fused, struct turn *turn);
/* Gives up the launch that was left, if there is one. */
void submitter_abandon(struct order *order, struct stream *stream);
/* Small launches one by one, each in the trace; for devices that have run them when launch_flat() returns. `sequence`: of all of them; 0: each
 * has its own. */
void submitter_launch_flat_traced(struct order *order, struct stream *stream, const struct record *record,
                                  const struct flat_launch *launches, uint32_t n, uint64_t sequence);

/* What a launch is, for a trace. One of `launch` and `kernel` is NULL; a fused one is a kernel, too. */
struct trace_launch submitter_traced(const struct stream *stream, const struct record *record,
                                     const struct launch *launch, const char *kernel, const char *label);

/* ---- launches whose calls wait for the device (submitter_aside.c) ---- */

/* Whether another thread has to make the call. Then nothing may have been put on the device in the same turn, so that a mark is before it. */
bool submitter_waits(const struct order *order, const struct stream *stream, const struct launch *launch);
/* Whether the call cannot begin yet, because as many others of its family are made for the stream's share. The stream waits. */
bool submitter_aside_is_full(const struct order *order, const struct stream *stream, const struct launch *launch);
/* Begins such a call, or looks for its end. False: it has not returned, and the stream waits for it. */
bool submitter_launch_aside(struct order *order, struct stream *stream, const struct launch *launch,
                            const struct trace_launch *trace, bool traced, struct turn *turn);
/* Whether the stream's next record has begun, and not ended. */
static inline bool submitter_has_begun(const struct stream *stream) {
    return stream->submit.begun || stream->submit.aside.call;
}

/* ---- runs of programs (submitter_replay.c) ---- */

/* As much of a run as belongs to one turn, perhaps with its time: on devices whose launches have run when they return, that of its turns. */
void submitter_replay(struct order *order, struct stream *stream, struct record *record, struct turn *turn);
