/* N vectors of N elements turned over: log2(N) times the vectors of the first half are interleaved with those of the second half, and then vector i
 * has what was element i of each. */
#pragma once

/* a and b are arrays of N vectors; both ends are in a. INTERLEAVE(x, y, low, high) says what the first and the second half of x and y make. */
#define INTERLEAVED(N, a, b, INTERLEAVE)                                                                               \
    _Pragma("GCC unroll 16") for (int step = 1; step < N; step *= 2) {                                                 \
        _Pragma("GCC unroll 16") for (int i = 0; i < N / 2; i++) {                                                     \
            INTERLEAVE(a[i], a[i + N / 2], b[2 * i], b[2 * i + 1]);                                                    \
        }                                                                                                              \
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) {                                                         \
            a[i] = b[i];                                                                                               \
        }                                                                                                              \
    }
