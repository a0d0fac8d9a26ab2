/* Recording what runs when on each stream, for somebody who looks for where the time goes. Off until it is started; then
 * each launch is noted with its begin and end: by the host's clock where launches have run when they return, else by events
 * of the device that note the time. What is recorded waits in a ring for its reader; when that is full, events are dropped
 * and counted. Owner thread, all of it. */
#pragma once

#include "engine/device/launch.h"

/* What a stream is to its session: the client's number of it, or one of these. */
enum { TRACE_UPLOADS = -1, TRACE_FETCHES = -2, TRACE_COPIES = -3 /* from other devices */ };

enum { TRACE_OPERANDS = 4, TRACE_EXTENTS = 12 };

struct trace_event {
    uint64_t begin_ns, end_ns;         /* CLOCK_MONOTONIC */
    uint64_t queued_ns;                /* before it began, at least 1; 0: a further piece of a launch that was left */
    uint64_t session, sequence, bytes; /* of the operands, together; 0: not known */
    uint32_t stream;                   /* the engine's number; what runs on one stream does not overlap */
    int32_t role;
    /* What it works on, the output first, as far as there is room for their extents: those of one after the other. */
    uint8_t n_operands, dtypes[TRACE_OPERANDS], ranks[TRACE_OPERANDS];
    int64_t extents[TRACE_EXTENTS];
    char name[48]; /* of the launch: "matmul" */
    char label[OPERATION_LABEL_MAX + 1];
};

struct trace;

/* Of what one share of the turns runs alone (struct run_share, which must be there until the trace is stopped; NULL: of
 * all); and of the session with this number alone, unless it is 0. STATUS_UNSUPPORTED where the device cannot tell the
 * time; STATUS_NO_HOST_MEMORY. */
int trace_start(struct trace *trace, const void *share, uint64_t session, struct fault *fault);
/* Host memory that a trace takes, at most. */
uint64_t trace_host_bytes(void);
/* What has not run to its end by then is not recorded. */
void trace_stop(struct trace *trace);
/* The next event, in the order in which launches ended; false: there is none now. */
bool trace_next(struct trace *trace, struct trace_event *event);
/* Since the start. */
uint64_t trace_dropped(const struct trace *trace);
/* After trace_stop(): nobody reads what is left of it, and the ring's memory goes back to the system. */
void trace_rest(struct trace *trace);
