/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011), and how tensors
 * are filled from it, the same on every device.
 *
 * A counter block of four 32-bit lanes comes from the counter (b mod 2^32, b div 2^32, 0, 0) and the key (seed mod
 * 2^32, seed div 2^32). `offset` is the operation's attribute, in blocks. Element i of a tensor, counted row-major:
 *
 *   uniform, f16 bf16 f32   block i/4 + offset, lane i%4: u = (lane >> 8) · 2^-24
 *   uniform, f64            block i/2 + offset, lanes 2(i%2) (high) and 2(i%2)+1: u = ((high:low) >> 11) · 2^-53
 *       value = low + u · (high - low), in f64 with a rounding after each step, not below the smallest value of the dtype
 *       that is >= low, nor above the largest that is < high; then rounded to the dtype (equal bounds give low)
 *   normal, f16 bf16 f32    block i/4 + offset, lanes 2p and 2p+1 with p = (i%4)/2, the pair's r and angle
 *   normal, f64             block i/2 + offset, lanes 0 and 1 for r, 2 and 3 for the angle
 *       Box-Muller: r = sqrt(-2 ln(1 - u)), angle = 2π·u', u and u' as above; even i take r · cos(angle), odd ones
 *       r · sin(angle); value = mean + deviation · that
 *
 * Everything here is static, needs no library and may be compiled for a device: define PHILOX_FUNCTION before including
 * it (`static __host__ __device__ inline`). */
#pragma once

#include <stdint.h>

#ifndef PHILOX_FUNCTION
#define PHILOX_FUNCTION static inline
#endif

/* The lanes of the counter c0 … c3 under the key k0, k1. Each lane is a variable of its own, so that loops over it vectorise. */
PHILOX_FUNCTION void philox4x32_10(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1,
                                   uint32_t *lane0, uint32_t *lane1, uint32_t *lane2, uint32_t *lane3) {
#if defined(__GNUC__) && !defined(__CUDACC__)
#pragma GCC unroll 10
#endif
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * c0, product1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    *lane0 = c0;
    *lane1 = c1;
    *lane2 = c2;
    *lane3 = c3;
}

/* Block number `block` of the sequence of `seed`. */
PHILOX_FUNCTION void philox_block(uint64_t seed, uint64_t block, uint32_t *lane0, uint32_t *lane1, uint32_t *lane2,
                                  uint32_t *lane3) {
    philox4x32_10((uint32_t)block, (uint32_t)(block >> 32), 0, 0, (uint32_t)seed, (uint32_t)(seed >> 32), lane0, lane1,
                  lane2, lane3);
}

/* In [0, 1), a multiple of 2^-24. */
PHILOX_FUNCTION float philox_unit_float(uint32_t lane) {
    return (float)(int32_t)(lane >> 8) * (1.0f / 16777216.0f);
}

/* In [0, 1), a multiple of 2^-53. */
PHILOX_FUNCTION double philox_unit_double(uint32_t high, uint32_t low) {
    return (double)(int64_t)(((uint64_t)high << 32 | low) >> 11) * (1.0 / 9007199254740992.0);
}
