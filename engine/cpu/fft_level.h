/* What the loops of Fourier transforms of one vector level have in common. */
#pragma once

#include "engine/cpu/fft.h"
#include "engine/cpu/lanes.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- passes (rows_fft_passes.c) ---- */

/* What is known of a pass when it is compiled. Real and imaginary parts are apart from each other, except in pairs. */
enum pass_kind {
    PASS_FROM_PARTS = 0,
    PASS_THERE = 1,      /* results lie where the numbers were, and groups follow one another */
    PASS_FROM_PAIRS = 2, /* reads complex numbers as they are in tensors, */
    PASS_TO_PAIRS = 4,   /* and writes such, */
    PASS_ACROSS = 8,     /* to addresses that may not be multiples of 64 */
    PASS_LAST = 16,      /* the numbers of a group follow one another; results are not multiplied by roots, */
    PASS_TURNED = 32,    /* but by a table, each lane's by its own number */
};

/* In each of some batches, m groups of numbers that are `apart` from each other; group p begins p · next behind x. Its results are `to` from each
 * other, and the first of them is `to_next` times the group's place behind y: p, unless there are places. A root of unity of the table:
 * e^(-2πi·k/n) for each k, real and imaginary part; group p is multiplied by those with the exponent p · step, and `turn` elements of the
 * table are an r-th of a turn. */
#define PASS(T)                                                                                                        \
    struct pass_##T {                                                                                                  \
        int64_t batches, x_batch, y_batch, turns_batch;                                                                \
        int64_t m, apart, next, to, to_next, step, turn, turns_to, turns_next;                                         \
        const T *xr, *xi, *roots, *turns;                                                                              \
        T *yr, *yi;                                                                                                    \
        const int32_t *places;                                                                                         \
        T sign, re_factor, im_factor; /* of pairs: imaginary parts that are read, and both parts that are written */   \
    };                                                                                                                 \
    typedef void pass_function_##T(int64_t radix, int64_t lanes, const struct pass_##T *pass);
PASS(float)
PASS(double)

/* A pass of CPU_FFT_LANES lanes: by itself PASS_FROM_PARTS, PASS_THERE or PASS_FROM_PAIRS; PASS_LAST, also with
 * PASS_TO_PAIRS or PASS_TURNED. */
pass_function_float *CPU_NAME(fft_pass_f32)(enum pass_kind kind);
pass_function_double *CPU_NAME(fft_pass_f64)(enum pass_kind kind);

cpu_fft_transform CPU_NAME(fft_transform_f32), CPU_NAME(fft_transform_f64);
/* rows_fft_line.c */
cpu_fft_lines_function CPU_NAME(fft_lines_f32), CPU_NAME(fft_lines_f64);

/* Numbers of the vectors that are turned over in registers. */
#if defined(__AVX512F__)
enum { TURN_float = 16, TURN_double = 8 };
#else
enum { TURN_float = 4, TURN_double = 2 };
#endif

typedef float vector_float __attribute__((vector_size(4 * TURN_float), aligned(4), may_alias));
typedef double vector_double __attribute__((vector_size(8 * TURN_double), aligned(8), may_alias));

/* Numbers of two vectors, by turns: those of their first halves, and of their second halves. */
#if defined(__AVX512F__)
#define FIRST_float(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define SECOND_float(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define FIRST_double(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define SECOND_double(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define FIRST_float(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define SECOND_float(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define FIRST_double(a, b) __builtin_shufflevector(a, b, 0, 2)
#define SECOND_double(a, b) __builtin_shufflevector(a, b, 1, 3)
#endif

/* Vector j has what was number j of each vector. */
#define TURN(T)                                                                                                        \
    INLINE void turn_##T(vector_##T a[TURN_##T]) {                                                                     \
        CPU_PRAGMA(GCC unroll 4)                                                                                       \
        for (int width = 1; width < TURN_##T; width *= 2) {                                                            \
            vector_##T b[TURN_##T];                                                                                    \
            CPU_PRAGMA(GCC unroll 8)                                                                                   \
            for (int i = 0; i < TURN_##T / 2; i++) {                                                                   \
                b[2 * i] = FIRST_##T(a[i], a[i + TURN_##T / 2]);                                                       \
                b[2 * i + 1] = SECOND_##T(a[i], a[i + TURN_##T / 2]);                                                  \
            }                                                                                                          \
            CPU_PRAGMA(GCC unroll 16)                                                                                  \
            for (int i = 0; i < TURN_##T; i++) {                                                                       \
                a[i] = b[i];                                                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }
TURN(float)
TURN(double)
