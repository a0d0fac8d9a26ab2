/* Times, counted by their magnitude. If only some times are measured, each counts for several, so that the counts are of all. Plain data,
 * which processes share as it is; one writer. */
#pragma once

#include <stdint.h>

/* Bucket i counts times up to 2^i microseconds that are longer than those of the bucket before; the last bucket counts all longer
 * times. */
enum { HISTOGRAM_BUCKETS = 28 };

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t sum_ns;
    uint64_t samples; /* times that were measured */
};

static inline unsigned histogram_bucket(uint64_t ns) {
    uint64_t us = ns > 1000 ? (ns - 1) / 1000 : 0;
    unsigned bucket = us ? 64 - (unsigned)__builtin_clzll(us) : 0;
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* Adds a time that counts for `weight` times. */
static inline void histogram_add(struct histogram *histogram, uint64_t ns, uint64_t weight) {
    histogram->counts[histogram_bucket(ns)] += weight;
    histogram->sum_ns += ns * weight;
    histogram->samples++;
}
