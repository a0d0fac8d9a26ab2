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

/* Where a transform's numbers come from, or its results go to: those of the lanes lie beside each other, and number k begins k · apart elements of
 * f32 or f64 behind `re` and `im`. As pairs, which need lanes in full and a length of two factors or more, they are complex numbers from
 * `re` on; their parts are multiplied by factors, those that are read by im_factor alone. Results that are no pairs can be turned: lane v of number
 * k is multiplied by a complex number, whose parts are k · turns_apart + v behind `turns` and as many further as there are lanes. */
struct cpu_fft_end {
    bool pairs;
    void *re, *im;
    int64_t apart;
    double re_factor, im_factor;
    const void *turns; /* NULL: they are not */
    int64_t turns_apart;
};

/* Of the numbers of `lanes` lines by a length with one factor or more. It works in re and im, where the numbers are if `from` is NULL. Without `to` the
 * results stay there, and number k of them is where the number was whose digits by the factors are those of k in reverse. `places` has the numbers
 * of results that are first in their group of the last pass. */
typedef void cpu_fft_transform(const struct fft_length *length, const void *roots, const int32_t *places, int64_t lanes,
                               void *re, void *im, const struct cpu_fft_end *from, const struct cpu_fft_end *to);

/* A line by itself, as a matrix whose rows and columns both have a multiple of CPU_FFT_LANES numbers: so there are always as many columns, and then
 * rows, to transform together, and no other line is needed. It stays in the first-level cache. `turns` has, for each CPU_FFT_LANES columns
 * c, for each row k the real parts of e^(-2πi·k·c/n), then the imaginary parts. With `pair_roots`, e^(-πi·k/n) for k up to n, one of x and y is 2n real
 * numbers, and the other one the first n + 1 numbers of their transform. */
struct cpu_fft_line {
    int64_t n; /* numbers: the matrix has columns.n rows, and rows.n columns */
    struct fft_length columns, rows;
    const void *column_roots, *row_roots;
    const int32_t *column_places, *row_places; /* as for cpu_fft_transform */
    const void *turns;
    const void *pair_roots; /* NULL: numbers are taken as they are */
    enum fft_form in, out;
    bool swap;
    double scale;
    int64_t x_bytes, y_bytes; /* from one line to the next one */
};
/* Of `count` lines, from x to y; `work` has so many numbers of the dtype. */
typedef void cpu_fft_lines_function(const struct cpu_fft_line *line, int64_t count, const void *x, void *y, void *work);
enum { FFT_LINE_PAD = 5 * CPU_FFT_LANES };
static inline int64_t cpu_fft_line_work(int64_t n) {
    return 6 * (n + FFT_LINE_PAD);
}

/* Of f32 or f64. Tables of roots are complex numbers of the dtype, but for `twiddle`. */
struct cpu_fft {
    bool eights; /* eights are faster than fours and twos: there are enough registers */
    cpu_fft_transform *transform;
    cpu_fft_lines_function *lines;
    /* Imaginary parts are multiplied by a factor when they are loaded, and both parts when they are stored. */
    void (*load)(const struct cpu_fft_lines *lines, enum fft_form form, double im_factor, int64_t n, void *re,
                 void *im);
    /* Elements `begin` to begin + n - 1, which lie from `re` and `im` on. */
    void (*store)(const struct cpu_fft_lines *lines, enum fft_form form, int64_t begin, int64_t n, double re_factor,
                  double im_factor, const void *re, const void *im);
    void (*multiply)(const struct cpu_fft_lines *lines, const void *table, int64_t n, void *re, void *im);
    /* To lines that lie beside each other in the workspace. */
    void (*twiddle)(const double *high, const double *low, int64_t rows, int64_t columns, int64_t column,
                    const struct cpu_fft_lines *lines, const void *re, const void *im);
    /* The real transform's elements `begin` to end - 1, up to h/2, and behind them as many up to number h - begin, times two; from a
     * transform that has not been moved. */
    void (*unfold)(int64_t h, int64_t begin, int64_t end, int64_t lanes, const int32_t *places, const void *roots,
                   const void *re, const void *im, void *to, void *to_imaginary);
    void (*fold)(int64_t h, int64_t lanes, const void *roots, const void *re, const void *im, void *to,
                 void *to_imaginary);
};
