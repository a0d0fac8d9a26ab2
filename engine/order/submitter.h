/* The submitter: takes launches from the streams, in turns, and hands them to the device. */
#pragma once

#include <stdatomic.h>

#include "engine/order/record.h"
#include "engine/order/turns.h"

struct order;

/* The submitter's part of a stream. */
struct stream_submit {
    struct record_cursor at; /* the next record */
    uint64_t executed;
    struct device_stream *device_streams[STREAM_PRIORITIES]; /* made when first used */
    struct device_stream *device_stream; /* the one in use; NULL: nothing was put on the device yet */
    struct device_begun *begun;          /* the next record's launch, which is under way; NULL: it is not */
    uint64_t begun_ns;                   /* since when, */
    uint32_t begun_sample;               /* and for how many launches its times stand; 0: they are not taken */
    uint64_t launch_ns;                  /* for so long the device has worked on it */
    uint64_t worked_ns;                  /* for so long the device has worked on that operation, */
    uint64_t worked; /* which has this number in the session; 0: none has been worked on in pieces */
    bool unmarked;   /* something is on the device behind the last event */
    _Atomic(const struct record *) running; /* the last launch of the turn; read by the owner, with the lock held */
};

void *submitter_main(void *order);
/* Runs what is published until nothing can run, or where `brief` until something proves to take long; called with the lock
 * held and the role taken, returns so. */
void submitter_run(struct order *order, bool brief);
/* Puts a stream at the end of its priority's turn; with the lock held. */
void submitter_enqueue(struct order *order, struct stream *stream);
