/* The reader: receives what comes from the daemon, and completes requests (pending.h). Under the device's lock, which is given
 * up meanwhile, but for reader_receive(). */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "client/tensord.h"
#include "proto/wire/frame.h"

struct td_device;

struct reader {
    bool busy;                  /* somebody is the reader */
    atomic_uint_fast64_t heard; /* times that something came */
    struct frame_reader frames; /* the reader's alone */
};

int reader_init(struct reader *reader);
void reader_finish(struct reader *reader);

/* Reads the bytes that have arrived, if nobody else is reading. */
void reader_look(struct td_device *device);
/* This thread is the reader, which nobody else is, until `done`. */
void reader_until_done(struct td_device *device, const atomic_bool *done);
/* Wakes whoever should read next, now that the role is free. */
void reader_pass_role(struct td_device *device);
/* The connection was lost: drops what came of a frame, but keeps the bytes of a tensor that have arrived. Call it only
 * while nobody reads. */
void reader_cut(struct td_device *device);
