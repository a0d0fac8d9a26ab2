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
 *   exponential             -ln(1 - u) · scale, u as for uniform
 *   randint                 block i/2 + offset, lanes 2(i%2) (high) and 2(i%2)+1: low + ⌊(high:low) · (high - low) / 2^64⌋
 *   bernoulli, dropout      block i/4 + offset, lane i%4: 1, or dropped, if lane < ⌈probability · 2^32⌉
 *   permutation             philox_permuted() of i
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

/* How often lane < threshold, for all lanes, is the probability. */
PHILOX_FUNCTION uint64_t philox_threshold(double probability) {
    double scaled = probability * 4294967296.0;
    uint64_t whole = scaled > 0 ? (uint64_t)scaled : 0;
    return whole + (scaled > (double)whole);
}

/* ---- permutations ---- */

/* A permutation of 0 … n - 1 that is computed place by place: a Feistel cipher on the numbers of so many bits as n - 1 has, applied again
 * until the result is below n, which takes less than 2 rounds on average ("cycle walking": Black and Rogaway, Ciphers with arbitrary
 * finite domains, 2002). The halves of the number may differ in length. As in Mitchell, Stokes, Frank, Holmes: Bandwidth-optimal random
 * shuffling for GPUs, 2022. */
enum { PHILOX_ROUNDS = 16 };
struct philox_permutation {
    uint64_t n;
    uint32_t high_bits, low_bits;
    uint32_t keys[PHILOX_ROUNDS]; /* the lanes of the seed's first blocks */
};

PHILOX_FUNCTION void philox_permutation_init(struct philox_permutation *permutation, uint64_t seed, uint64_t n) {
    uint32_t bits = 0;
    while (bits < 63 && n > 0 && (n - 1) >> bits) {
        bits++;
    }
    permutation->n = n;
    permutation->high_bits = bits / 2;
    permutation->low_bits = bits - bits / 2;
    for (uint32_t i = 0; i < PHILOX_ROUNDS; i += 4) {
        uint32_t *key = permutation->keys + i;
        philox_block(seed, i / 4, &key[0], &key[1], &key[2], &key[3]);
    }
}

/* 32 bits that depend on all bits of x and of the key: the mixing steps of MurmurHash3. */
PHILOX_FUNCTION uint32_t philox_mix(uint32_t x, uint32_t key) {
    x = (x ^ key) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* One application of the cipher. A half has at most 32 bits. */
PHILOX_FUNCTION uint64_t philox_cipher(const struct philox_permutation *permutation, uint64_t x) {
    const uint32_t low_mask = (uint32_t)(((uint64_t)1 << permutation->low_bits) - 1);
    const uint32_t high_mask = (uint32_t)(((uint64_t)1 << permutation->high_bits) - 1);
    uint32_t low = (uint32_t)x & low_mask, high = (uint32_t)(x >> permutation->low_bits);
    for (int round = 0; round < PHILOX_ROUNDS; round += 2) {
        high ^= philox_mix(low, permutation->keys[round]) & high_mask;
        low ^= philox_mix(high, permutation->keys[round + 1]) & low_mask;
    }
    return (uint64_t)high << permutation->low_bits | low;
}

PHILOX_FUNCTION uint64_t philox_permuted(const struct philox_permutation *permutation, uint64_t x) {
    do {
        x = philox_cipher(permutation, x);
    } while (x >= permutation->n);
    return x;
}
