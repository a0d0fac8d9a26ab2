/* Which launches have their times taken, and what they stand for. Two looks at the clock cost 50 ns, as much as half of a short
 * launch, and on a device that runs later two events; so of short ones few are looked at, after random gaps, so that no
 * rhythm of a job hides from them, and each of these counts for all since the one before. Which ones are short is
 * estimated, and does not depend on how long they then take: a choice by that would count long ones too often.
 * The submitter's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/watch/histogram.h"

enum {
    SAMPLES_MAX = 64,           /* in one turn */
    SAMPLES_LONG_NS = 5 * 1000, /* what is estimated to take longer is looked at each time, */
    SAMPLES_LONG_LATER_NS = 100 * 1000,
};

struct samples {
    struct sampler {
        uint32_t since; /* launches since the last one that was looked at */
        uint32_t gap;   /* the next one is looked at when they are so many */
    } short_ones, long_ones;
    uint32_t seed;
    unsigned count; /* taken in this turn */
    struct sample {
        uint64_t queue_ns, run_ns;
        uint32_t weight;
    } taken[SAMPLES_MAX];
};

void samples_init(struct samples *samples);

/* The one that counts a launch estimated to take so long. `later`: on a device that runs later. */
static inline struct sampler *samples_of(struct samples *samples, uint64_t estimated_ns, bool later) {
    return estimated_ns >= (later ? SAMPLES_LONG_LATER_NS : SAMPLES_LONG_NS) ? &samples->long_ones
                                                                             : &samples->short_ones;
}

/* Whether the next launch it counts is to be looked at. */
static inline bool sampler_due(const struct sampler *sampler) {
    return sampler->since + 1 >= sampler->gap;
}

/* Begins a new gap; returns for how many the launch stands that is looked at now. */
uint32_t samples_take(struct samples *samples, struct sampler *sampler, bool later);
/* Notes its times, and books all that were noted. */
void samples_note(struct samples *samples, uint64_t queue_ns, uint64_t run_ns, uint32_t weight);
void samples_book(struct samples *samples, struct histogram *queue, struct histogram *run);
