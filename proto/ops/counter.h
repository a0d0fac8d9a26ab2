/* Differences and rates of counters. A counter only grows as long as its process or session lives. A smaller value
 * means that another process or session counts now; its work since the earlier reading is not known, and the difference
 * is 0. So a difference is never more than the events that were counted, and never wraps around. */
#pragma once

#include <stdint.h>

static inline uint64_t counter_since(uint64_t before, uint64_t now) {
    return now > before ? now - before : 0;
}

/* Events per second; 0 if no time has passed. */
static inline double counter_rate(uint64_t before, uint64_t now, double seconds) {
    return seconds > 0 ? (double)counter_since(before, now) / seconds : 0;
}
