/* Blocks of transposed copies, where a vector is a cache line. */
#include "engine/cpu/interleave.h"
#include "engine/cpu/lanes.h"

#if defined(__AVX512F__)
#define TURN(bits, N)                                                                                                  \
    typedef uint##bits##_t vector##bits __attribute__((vector_size(64), aligned(1), may_alias));                       \
    static void turn_##bits(const char *in, int64_t in_stride, char *out, int64_t out_stride) {                        \
        vector##bits a[N], b[N];                                                                                       \
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) {                                                         \
            a[i] = *(const vector##bits *)(const void *)(in + i * in_stride);                                          \
        }                                                                                                              \
        INTERLEAVED(N, a, b, INTERLEAVE_##bits)                                                                        \
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) {                                                         \
            *(vector##bits *)(void *)(out + i * out_stride) = a[i];                                                    \
        }                                                                                                              \
    }
#define INTERLEAVE_32(x, y, low, high)                                                                                 \
    low = __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);                       \
    high = __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define INTERLEAVE_64(x, y, low, high)                                                                                 \
    low = __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11);                                                     \
    high = __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15)
TURN(32, 16)
TURN(64, 8)
cpu_turn_function *const CPU_NAME(turn)[] = {NULL, NULL, turn_32, turn_64};
#else
cpu_turn_function *const CPU_NAME(turn)[4] = {NULL};
#endif
