/* How positions are drawn by weights, the same on every device. With replacement: weights are added up in runs of MULTINOMIAL_RUN, one after
 * another in f64, then the runs, one after another; sample j of a row r goes where u · total lies, with the number u that philox.h gives
 * element r · samples + j of a uniform f64 tensor. Without replacement: position i of row r has the key weight / -ln(1 - u), u of element
 * r · k + i, and those with the greatest keys are drawn (Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006).
 *
 * As philox.h, this may be compiled for a device: define PHILOX_FUNCTION. */
#pragma once

#include "engine/device/philox.h"

enum { MULTINOMIAL_RUN = 64 };

/* What a weight counts: so much at most that neither the sum of all nor a key overflows. */
PHILOX_FUNCTION double multinomial_weight(double weight) {
    const double most = 0x1p960;
    return weight > 0 && weight - weight == 0 ? (weight < most ? weight : most) : 0;
}

/* The number of element `element`. */
PHILOX_FUNCTION double multinomial_unit(uint64_t seed, uint64_t offset, uint64_t element) {
    uint32_t lane[4];
    philox_block(seed, offset + element / 2, &lane[0], &lane[1], &lane[2], &lane[3]);
    return element % 2 ? philox_unit_double(lane[2], lane[3]) : philox_unit_double(lane[0], lane[1]);
}

/* The run in which `target` lies: sums[i] is the sum of all runs before i, sums[n] the total, which is positive. */
PHILOX_FUNCTION int64_t multinomial_run(const double *sums, int64_t n, double target) {
    int64_t first = 0, last = n - 1;
    const double least =
        target < sums[n] ? target : sums[n]; /* a product that was rounded up to the total, or beyond */
    const int beyond = !(target < sums[n]);
    while (first < last) {
        const int64_t middle = first + (last - first) / 2;
        if (beyond ? sums[middle + 1] >= least : sums[middle + 1] > least) {
            last = middle;
        } else {
            first = middle + 1;
        }
    }
    return first;
}
