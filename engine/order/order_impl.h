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
