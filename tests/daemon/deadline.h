/* Deadlines: nothing in a test waits without one. They are generous, since they only bound a failure, and stretch with
 * TENSORD_TEST_SLOW for builds with sanitizers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Milliseconds of CLOCK_MONOTONIC. */
int64_t deadline_now(void);
/* The time that is `milliseconds` (times TENSORD_TEST_SLOW) from now. */
int64_t deadline_in(int64_t milliseconds);
/* What is left of it, for poll(); 0 once it has passed. */
int deadline_left(int64_t deadline);
/* Waits for `events` on the descriptor; false when the deadline came first. */
bool deadline_poll(int fd, short events, int64_t deadline);
/* Lets a little time pass between two looks at something that has no descriptor to wait on; false once the deadline has
 * passed, so that a look is `do … while (deadline_pause(deadline))`. */
bool deadline_pause(int64_t deadline);
