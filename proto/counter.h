/* Differences and rates of counters. A counter only grows while what counts lives: where one is less than it was, something
 * else counts now, and of what that did since the look before nothing is known. So a difference is never more than what was
 * counted, and never wraps around. */
#pragma once

#include <stdint.h>

static inline uint64_t counter_since(uint64_t before, uint64_t now) {
    return now > before ? now - before : 0;
}

/* Per second; 0 where no time has passed. */
static inline double counter_rate(uint64_t before, uint64_t now, double seconds) {
    return seconds > 0 ? (double)counter_since(before, now) / seconds : 0;
}
