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

/* For the owner, which has itself found that a watched point was reached, and so has to poll. Takes the lock. */
void order_signal_self(struct order *order, struct stream *stream);

/* The next record at a cursor in a stream's chunks. A chunk that has been used up is put before *done; NULL: it is not. */
struct record *stream_next_record(struct stream *stream, struct record_cursor *cursor, struct stream_chunk **done);

/* ---- the submitter: takes launches from the streams, in turns, and hands them to the device ---- */

void *submitter_main(void *order);
/* Runs published records until none can run; if `brief`, only until a launch proves to take long. Called with the lock held and the
 * submitter's role taken, and returns with both. */
void submitter_run(struct order *order, bool brief);
/* Puts a stream at the end of its priority's turn; with the lock held. */
void submitter_enqueue(struct order *order, struct stream *stream);

/* ---- the reaper: makes known what has run on a device whose launches run later; elsewhere there is none ---- */

void *reaper_main(void *order);
/* A mark behind all records of the stream that have been put on the device so far. By the submitter, without the lock. */
struct stream_mark reaper_mark(struct order *order, struct stream *stream);
/* The device has something to do since `began_ns`, or has one thing less to do; without a mark, which reaper_take() counts. With the lock
 * held. */
void reaper_count(struct order *order, uint64_t began_ns);
void reaper_uncount(struct order *order, uint64_t now);
/* Hands the mark to the reaper. By the submitter, with the lock held. */
void reaper_take(struct order *order, struct stream *stream, struct stream_mark mark);

/* ---- the watch ---- */

/* Adds to the message of the device's failure what the device was computing. With the lock held. */
void stall_blame(const struct order *order, struct fault *fault);
