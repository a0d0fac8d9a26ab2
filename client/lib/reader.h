/* The reader: receives frames of the daemon and completes requests (pending.h). All functions are called under the device's
 * lock; while they read they give it up. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "client/tensord.h"
#include "proto/wire/frame.h"

struct td_device;

struct reader {
    bool busy;                  /* some thread is the reader */
    atomic_uint_fast64_t heard; /* how often data has come */
    struct frame_reader frames; /* only the reader uses it */
};

int reader_init(struct reader *reader);
void reader_finish(struct reader *reader);

/* Reads the bytes that have arrived, if nobody else is reading. */
void reader_look(struct td_device *device);
/* This thread is the reader until `done`; no other thread may be the reader. With `until_ns` (of CLOCK_MONOTONIC; 0: none) also
 * only until that time, or until a signal has come while it slept. */
void reader_until_done(struct td_device *device, const atomic_bool *done, uint64_t until_ns);
/* Wakes the thread that should read next, if the role is free. */
void reader_pass_role(struct td_device *device);
/* The connection was lost: drops the part of a frame that has arrived, but keeps the bytes of a tensor that have arrived.
 * Call it only while no thread reads. */
void reader_cut(struct td_device *device);
