/* The reaper: makes known what has run on a device whose launches run later. Elsewhere there is none. */
#pragma once

#include "engine/order/marks.h"
#include "engine/order/record.h"

struct order;

/* The reaper's part of a stream. */
struct stream_reap {
    struct record_cursor at; /* the next record */
    uint64_t reaped;
    uint64_t reached_ns; /* when its last event had been reached; written with the lock held */
};

void *reaper_main(void *order);
/* Everything executed on the stream so far is on the device: to be called by the submitter without the lock, and */
struct stream_mark reaper_mark(struct order *order, struct stream *stream);
/* handed to the reaper with the lock held. */
void reaper_take(struct order *order, struct stream *stream, struct stream_mark mark);
