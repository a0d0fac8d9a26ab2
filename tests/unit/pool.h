/* A pool on a device that computes nothing, and streams that are bare counters; and what the pool knows of its pieces, counted anew. */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memory/pool_impl.h"
#include "tests/stand_ins/null_device.h"

enum { STREAMS = 5 };

extern struct null_device device;
extern struct pool pool;
extern struct stream *streams[STREAMS];

/* A number below the limit, the same in each run of the test. */
uint32_t pick(uint32_t limit);
void open_pool(uint64_t memory);
void close_pool(void);
/* As a caller who comes again for as long as he is told to. */
int take(size_t bytes, struct stream *stream, struct storage **storage);
/* All work of all streams is done. */
void complete_all(void);
/* The pool's lists, trees and counts agree with its pieces. */
void check_structure(void);
/* A refusal is right where no neighbours come to so much that the taker may have, by a look at everything there is; and where
 * segments that are idle would not help. */
void check_refusal(size_t bytes, const struct stream *stream);
