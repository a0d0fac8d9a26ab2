/* Which launches have their times taken, and for how many launches each of them counts. Two looks at the clock cost 50 ns, half as much
 * as a short launch, and on a device that runs later two events. So only few short launches are sampled, after random gaps, which
 * no rhythm of a job can match; and a sample counts for all short launches since the last one. Whether a launch is short is
 * estimated before it runs: a choice by the time that it takes would count long launches too often. The submitter's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/watch/histogram.h"

enum {
    SAMPLES_MAX = 64,           /* in one turn */
    SAMPLES_LONG_NS = 5 * 1000, /* launches that are estimated to take longer are all sampled, */
    SAMPLES_LONG_LATER_NS = 100 * 1000,
};

struct samples {
    struct sampler {
        uint32_t since; /* launches since the last sample */
        uint32_t gap;   /* from sample to sample */
    } short_ones, long_ones;
    uint32_t seed;
    unsigned count; /* taken in this turn */
    struct sample {
        uint64_t queue_ns, run_ns;
        uint32_t weight;
    } taken[SAMPLES_MAX];
};

void samples_init(struct samples *samples);

/* The sampler of launches that are estimated to take so long. `later`: on a device that runs later. */
static inline struct sampler *samples_of(struct samples *samples, uint64_t estimated_ns, bool later) {
    return estimated_ns >= (later ? SAMPLES_LONG_LATER_NS : SAMPLES_LONG_NS) ? &samples->long_ones
                                                                             : &samples->short_ones;
}

/* Whether the next launch is to be sampled. */
static inline bool sampler_due(const struct sampler *sampler) {
    return sampler->since + 1 >= sampler->gap;
}

/* Begins a new gap. Returns for how many launches this sample counts. */
uint32_t samples_take(struct samples *samples, struct sampler *sampler, bool later);
/* Notes the times of a sample; adds all noted times to the histograms (`run` may be NULL). */
void samples_note(struct samples *samples, uint64_t queue_ns, uint64_t run_ns, uint32_t weight);
void samples_book(struct samples *samples, struct histogram *queue, struct histogram *run);
