/* Traces: a record of what runs on each stream and when, for people who want to know where the time goes. Off until it is started. Then
 * each launch is noted with its begin and end: by the host's clock if launches have run when they return, else by events of the
 * device that note the time. Events wait in a ring for their reader; when it is full, further events are dropped and counted. All
 * functions: owner thread. */
#pragma once

#include "engine/device/launch.h"

/* A stream's role in its session: the client's number of the stream, or one of these. */
enum { TRACE_UPLOADS = -1, TRACE_FETCHES = -2, TRACE_COPIES = -3 /* from other devices */ };

enum { TRACE_OPERANDS = 4, TRACE_EXTENTS = 12 };

struct trace_event {
    uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
    uint64_t queued_ns;        /* how long it was queued, at least 1; 0: a further piece of a launch that was left */
    uint64_t session, sequence, bytes; /* bytes: of all operands; 0: not known */
    uint32_t stream;                   /* the engine's number; events of one stream do not overlap */
    int32_t role;
    /* The operands, the output first, as many as there is room for. `extents` has those of all operands, one after the other. */
    uint8_t n_operands, dtypes[TRACE_OPERANDS], ranks[TRACE_OPERANDS];
    int64_t extents[TRACE_EXTENTS];
    char name[48]; /* of the launch: "matmul" */
    char label[OPERATION_LABEL_MAX + 1];
};

struct trace;

/* Records launches of one share of the turns alone (struct run_share, which must exist until the trace is stopped; NULL: of all), and of
 * the session with this number alone (0: of all). STATUS_UNSUPPORTED if the device cannot tell the time; STATUS_NO_HOST_MEMORY. */
int trace_start(struct trace *trace, const void *share, uint64_t session, struct fault *fault);
/* Host memory that a trace takes, at most. */
uint64_t trace_host_bytes(void);
/* Launches that have not run to their end by now are not recorded. */
void trace_stop(struct trace *trace);
/* The next event, in the order in which launches ended; false: there is none now. */
bool trace_next(struct trace *trace, struct trace_event *event);
/* Events that were dropped since the start. */
uint64_t trace_dropped(const struct trace *trace);
/* After trace_stop(), when the rest of the events will not be read: gives the ring's memory back to the system. */
void trace_rest(struct trace *trace);
