/* What the files of this room share. */
#pragma once

#include "engine/device/clock.h"
#include "engine/order/order.h"

/* With the lock held: */
/* Notes that a stream has reached a point that the owner waits for. */
void order_signal(struct order *order, struct stream *stream);
/* Wakes the owner, if it has not been told since it polled last. */
void order_tell(struct order *order);
/* Takes back chunks that have been used up. */
void chunks_give(struct order *order, struct stream_chunk *chunks);

/* The owner has found a watched point reached by itself, and has to poll. Takes the lock. */
void order_signal_self(struct order *order, struct stream *stream);

/* The next record at a cursor in a stream's chunks. A chunk left behind is put before *done, where that is given. */
struct record *stream_next_record(struct stream *stream, struct record_cursor *cursor, struct stream_chunk **done);

/* ---- the submitter: takes launches from the streams, in turns, and hands them to the device ---- */

void *submitter_main(void *order);
/* Runs what is published until nothing can run, or where `brief` until something proves to take long; called with the lock
 * held and the role taken, returns so. */
void submitter_run(struct order *order, bool brief);
/* Puts a stream at the end of its priority's turn; with the lock held. */
void submitter_enqueue(struct order *order, struct stream *stream);

/* ---- the reaper: makes known what has run on a device whose launches run later; elsewhere there is none ---- */

void *reaper_main(void *order);
/* Everything executed on the stream so far is on the device: to be called by the submitter without the lock, and */
struct stream_mark reaper_mark(struct order *order, struct stream *stream);
/* handed to the reaper with the lock held. */
void reaper_take(struct order *order, struct stream *stream, struct stream_mark mark);

/* ---- the watch ---- */

/* Adds what the device was at to the words of its failure. With the lock held. */
void stall_blame(const struct order *order, struct fault *fault);
