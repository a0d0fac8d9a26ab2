/* A trace as a file: the JSON that Chrome's tracing defines (the "Trace Event Format") and Perfetto reads. In the file
 * a device is a process, and a stream of a session is a thread. A second thread has the stream's enqueued operations,
 * with an arrow from each to its launch. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/wire/tensord.pb-c.h"

/* The program and the owner of a session. */
struct trace_session {
    uint64_t number;
    char *words; /* "fashion_mnist (alice)" */
};

struct trace_track {
    unsigned device;
    uint32_t stream;
    uint64_t session;
    int32_t role;
    uint64_t enqueued_ns; /* the time of the last slice of enqueued operations beside this track; 0: there is none */
};

struct trace_file {
    FILE *out;
    bool any; /* an event has been written: the next one needs a comma before it */
    struct trace_track *tracks;
    size_t n_tracks, last_track;
    struct trace_session *sessions;
    size_t n_sessions;
    uint64_t at_ns, wall_ns; /* one moment at the beginning, by both clocks; 0: not known */
    uint64_t events, arrows;
    bool no_memory;
};

/* False with errno if the file cannot be made. */
bool trace_file_open(struct trace_file *file, const char *path);
void trace_file_device(struct trace_file *file, unsigned device, const char *name);
void trace_file_add(struct trace_file *file, unsigned device, const Tensord__TraceEvents *events);
/* Notes that `dropped` events of the device are missing. */
void trace_file_dropped(struct trace_file *file, unsigned device, uint64_t dropped);
/* Ends the file; false with errno if not everything could be written. */
bool trace_file_close(struct trace_file *file);
