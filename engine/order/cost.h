/* What a launch is estimated to cost: the device's own rates times the launch's bytes and arithmetic, corrected by how long
 * launches of that operation and dtype have taken so far. Turns, shares and the watch's patience depend on it.
 *
 * Threads: the owner estimates; the submitter and the reaper learn, one factor at a time. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "engine/device/device_impl.h"

struct cost {
    struct device_rates rates;
    double ns_per_byte;
    uint64_t small_ns; /* for a struct flat_launch: of half as many elements of 4 bytes as it may have */
    unsigned rates_changed; /* as the device had it */
    /* An estimate is multiplied by its factor, in 256ths; 0 stands for 256. */
    _Atomic uint16_t factors[OP_CODE_MAX][DTYPE_COUNT];
};

void cost_init(struct cost *cost, const struct device *device);
/* Takes over the device's rates if they have changed. */
void cost_follow(struct cost *cost, const struct device *device);
/* The largest estimate of a launch: nanoseconds, more than a year. */
#define COST_MOST 5e16
/* Nanoseconds for a pass over so many bytes. */
static inline uint64_t cost_pass(const struct cost *cost, double bytes) {
    double ns = cost->rates.launch_ns + bytes * cost->ns_per_byte;
    return (uint64_t)(ns < COST_MOST ? ns : COST_MOST);
}
/* Nanoseconds for `batches` products [m, k] · [k, n]; `tf32`: products of f32 in that precision. */
uint64_t cost_product(const struct cost *cost, enum dtype dtype, bool tf32, double batches, double m, double n,
                      double k);

/* The factor that has been learned: an estimate is multiplied by it, in 256ths. */
static inline uint16_t cost_factor(const struct cost *cost, unsigned opcode, unsigned dtype) {
    uint16_t factor = atomic_load_explicit(&cost->factors[opcode][dtype], memory_order_relaxed);
    return factor ? factor : 256;
}
static inline uint64_t cost_corrected(uint64_t estimate, uint16_t factor) {
    return estimate < UINT64_MAX >> 16 ? estimate * factor >> 8 : estimate;
}
/* A launch has taken `ns`. Its estimate was `corrected`, which includes `factor`, the factor at the time when it was enqueued: many
 * similar launches may have run since. */
void cost_learn(struct cost *cost, unsigned opcode, unsigned dtype, uint64_t corrected, uint16_t factor, uint64_t ns);
