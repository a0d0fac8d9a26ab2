/* Times, counted by their magnitude. Where only some are measured, each counts for all that it stands for, so that what the
 * counts say is of all. Plain data that processes share as it is; one writer. */
#pragma once

#include <stdint.h>

/* Bucket i counts what took up to 2^i microseconds and more than the one before; the last one all the rest. */
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

/* A time that stands for `weight` of them. */
static inline void histogram_add(struct histogram *histogram, uint64_t ns, uint64_t weight) {
    histogram->counts[histogram_bucket(ns)] += weight;
    histogram->sum_ns += ns * weight;
    histogram->samples++;
}
