#include "engine/watch/samples.h"

enum {
    SAMPLES_GAP = 16,        /* mean gap between samples of short launches */
    SAMPLES_GAP_LATER = 128, /* the same on a device that runs later, where a sample costs more */
};

/* Numerical Recipes' generator: the upper bits are random enough for a gap. */
static uint32_t samples_gap(struct samples *samples, bool later) {
    uint32_t mean = later ? SAMPLES_GAP_LATER : SAMPLES_GAP;
    samples->seed = samples->seed * 1664525u + 1013904223u;
    return 1 + (samples->seed >> 16) % (2 * mean - 1);
}

void samples_init(struct samples *samples) {
    *samples = (struct samples){.seed = 1, .short_ones.gap = 1, .long_ones.gap = 1};
}

uint32_t samples_take(struct samples *samples, struct sampler *sampler, bool later) {
    uint32_t weight = sampler->since + 1;
    sampler->since = 0;
    if (sampler == &samples->short_ones)
        sampler->gap = samples_gap(samples, later);
    return weight;
}

void samples_note(struct samples *samples, uint64_t queue_ns, uint64_t run_ns, uint32_t weight) {
    if (samples->count < SAMPLES_MAX)
        samples->taken[samples->count++] = (struct sample){queue_ns, run_ns, weight};
}

void samples_book(struct samples *samples, struct histogram *queue, struct histogram *run) {
    for (const struct sample *at = samples->taken; at < samples->taken + samples->count; at++) {
        histogram_add(queue, at->queue_ns, at->weight);
        if (run)
            histogram_add(run, at->run_ns, at->weight);
    }
    samples->count = 0;
}
