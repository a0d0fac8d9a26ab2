/* What the machine's memory gives: STREAM (McCalpin, 1995) on two threads, or one where there is one processor. */
#pragma once

#include <stdbool.h>

/* Bytes per nanosecond: the greatest of STREAM's four kernels (copy, scale, add, triad), each the best of some rounds over three arrays of
 * 128 MiB. As STREAM counts, what a store reads into the caches first does not count. `quick`: over small arrays, to see that it runs. */
double stream_rate(bool quick);
