/* The loops of Fourier transforms (rows_fft.c), for fft.c. */
#pragma once

#include "engine/cpu/kernels.h"
#include "engine/device/fft.h"

enum { CPU_FFT_LANES = 16 }; /* lines that are computed together, at most */

/* Where elements of some lines are in memory: element k of lane v has the index first[v] + k · step on its line, and is so many elements
 * times `stride` behind base[v]. Indices from `limit` on are none: they are 0, or left out. */
struct cpu_fft_lines {
    int64_t lanes, step, stride, limit;
    int64_t n;   /* of the whole line, for FFT_HERMITIAN */
    bool beside; /* the lanes lie beside each other */
    int64_t first[CPU_FFT_LANES];
    char *base[CPU_FFT_LANES];
};

/* Two places for the numbers of the lanes, which transforms go to and fro between. */
struct cpu_fft_block {
    void *re[2], *im[2];
};

/* Of f32 or f64. Tables of roots are complex numbers of the dtype, but for `twiddle`. */
struct cpu_fft {
    bool eights; /* eights are faster than fours and twos: there are enough registers */
    /* Of the numbers in place 0, by a length with one factor or more. The result is in place 1; unless it is `moved`, in place 0, and number k of it
     * where the number is whose digits by these factors are those of k in reverse. */
    void (*transform)(const struct fft_length *length, const void *roots, int64_t lanes,
                      const struct cpu_fft_block *block, bool moved);
    void (*load)(const struct cpu_fft_lines *lines, enum fft_form form, bool swap, int64_t n, void *re, void *im);
    /* Elements `begin` to begin + n - 1, which lie from `re` and `im` on. */
    void (*store)(const struct cpu_fft_lines *lines, enum fft_form form, bool swap, int64_t begin, int64_t n,
                  double scale, const void *re, const void *im);
    void (*multiply)(const struct cpu_fft_lines *lines, const void *table, int64_t n, void *re, void *im);
    void (*twiddle)(const double *high, const double *low, int64_t rows, int64_t columns, int64_t column, int64_t lanes,
                    void *re, void *im);
    /* The real transform's elements `begin` to end - 1, up to h/2, and behind them as many up to number h - begin, times two; from a
     * transform that has not been moved. */
    void (*unfold)(int64_t h, int64_t begin, int64_t end, int64_t lanes, const int32_t *places, const void *roots,
                   const void *re, const void *im, void *to, void *to_imaginary);
    void (*fold)(int64_t h, int64_t lanes, const void *roots, const void *re, const void *im, void *to,
                 void *to_imaginary);
};
