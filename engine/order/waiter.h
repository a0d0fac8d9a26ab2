/* Callbacks at points of streams. Owner thread. */
#pragma once

#include <stdint.h>

struct stream;

/* Embedded in the object of whoever waits, and stays put until it has been reached or cancelled. */
struct waiter {
    struct stream *stream; /* NULL: it waits for nothing */
    uint64_t number;
    void (*reached)(struct waiter *waiter); /* once, from order_call_back(); the waiter may go meanwhile */
    struct waiter *next, *previous;
};

/* Those of one stream; ascending numbers. */
struct stream_waiters {
    struct waiter *first, *last;
};

/* The point must not have been reached already: the caller has looked. */
void waiter_begin(struct waiter *waiter, struct stream *stream, uint64_t number,
                  void (*reached)(struct waiter *waiter));
/* Nothing where it waits for nothing. */
void waiter_cancel(struct waiter *waiter);
