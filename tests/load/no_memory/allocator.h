/* malloc and its relatives for a whole process, libraries included: they count what lives and refuse chosen calls.
 * Linked into a test program, or loaded in front of a daemon's C library (LD_PRELOAD, attach.c), where a test steers them
 * through a page that both have. Any thread. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

struct refusals {
    atomic_bool on;
    atomic_uint calls;       /* asked for memory since it was armed */
    atomic_uint first, last; /* those refused, counted from 1 */
    atomic_long live;        /* blocks out */
};

/* What this process's allocator obeys. */
extern struct refusals *allocator_refusals;

/* Refuses calls first … last from now on; 0, 0: only counts them. */
static inline void refusals_arm(struct refusals *refusals, unsigned first, unsigned last) {
    refusals->calls = 0;
    refusals->first = first;
    refusals->last = last;
    refusals->on = true;
}

static inline void refusals_disarm(struct refusals *refusals) {
    refusals->on = false;
}

/* One for each process of a daemon, in the file that ALLOCATOR_PAGE names: the front, cpu:0, cpu:1. */
enum { REFUSALS_FRONT, REFUSALS_CPU0, REFUSALS_CPU1, REFUSALS_ROLES };
#define REFUSALS_PAGE "ALLOCATOR_PAGE"
