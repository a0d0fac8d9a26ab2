/* How Fourier transforms of the lines of a tensor are computed, on every device: what a launch says, the factors of a length, and the way of
 * lengths that have large prime factors.
 *
 * The transform of n = r1 · r2 · … numbers is a pass for each factor (Stockham's order, which needs no reversal of bits): with m = n / r, each of
 * m · s groups of r numbers m · s apart is transformed, multiplied by roots of unity, and written s apart; then s grows by the factor, and n
 * is m. On the CPU results of passes lie in another order (rows_fft.c). A length with a prime factor above FFT_RADIX_MOST becomes a convolution
 * with a chirp, which two transforms of a length of small factors compute (Bluestein: A linear filtering approach to the computation of the
 * discrete Fourier transform, 1970): X[k] = c[k] · Σ x[j] · c[j] · conj(c[k - j]) with c[k] = e^(-πi·k²/n).
 *
 * An inverse transform is a transform with real and imaginary parts swapped before and behind it, so that passes know one direction alone. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/device/launch.h"

/* For a device: __host__ __device__. */
#ifndef FFT_FUNCTION
#define FFT_FUNCTION static inline
#endif

enum {
    FFT_RADIX_MOST = 31,
    FFT_RADICES_MOST = 32, /* factors of a length below 2^33 */
};

/* What the elements of a line are. */
enum fft_form {
    FFT_COMPLEX,
    FFT_REAL,
    FFT_HERMITIAN, /* complex numbers 0 to n/2; the others are their conjugates, and the imaginary parts of 0 and n/2 do not count */
};

/* What a launch asks for: x [outer, …, inner] and the output [outer, …, inner]. */
struct fft_request {
    int64_t outer, inner;
    int64_t n;           /* of the transform */
    int64_t n_in, n_out; /* elements on a line that are read, and written; others are 0, or left out */
    enum fft_form in, out;
    bool wide;   /* f64 */
    bool swap;   /* an inverse transform */
    bool halved; /* to or from half of a Hermitian transform */
    double scale;
};

/* A transform of a length with small factors. */
struct fft_length {
    int64_t n;
    int radices;
    uint8_t radix[FFT_RADICES_MOST];
};

static inline struct fft_request fft_request_make(const struct launch *launch) {
    const struct operand *x = &launch->inputs[0], *out = &launch->output;
    const bool back = launch->opcode == OP_IRFFT;
    struct fft_attributes given; /* the others have the same */
    struct fft_request request;
    fft_attributes_read(&launch->attributes, &given);
    request.outer = x->shape[0];
    request.inner = x->shape[2];
    request.n = launch->opcode == OP_RFFT ? (given.n ? given.n : x->shape[1]) : out->shape[1];
    request.halved = back || launch->opcode == OP_RFFT;
    request.in = back ? FFT_HERMITIAN : dtype_is_complex((enum dtype)x->dtype) ? FFT_COMPLEX : FFT_REAL;
    request.out = back ? FFT_REAL : FFT_COMPLEX;
    request.wide = x->dtype == DTYPE_F64 || x->dtype == DTYPE_C128;
    request.swap = back || launch->opcode == OP_IFFT;
    const int64_t most = back ? request.n / 2 + 1 : request.n;
    request.n_in = x->shape[1] < most ? x->shape[1] : most;
    request.n_out = out->shape[1];
    const bool divided = request.swap ? given.norm == OP_FFT_NORM_BACKWARD : given.norm == OP_FFT_NORM_FORWARD;
    request.scale = given.norm == OP_FFT_NORM_ORTHO ? 1 / sqrt((double)request.n) : divided ? 1 / (double)request.n : 1;
    return request;
}

/* Finds the factors, fours before twos; false: one is too large. */
static inline bool fft_factor(int64_t n, struct fft_length *length) {
    int64_t rest = n;
    length->n = n;
    length->radices = 0;
    for (int i = 0; i < FFT_RADIX_MOST - 1; i++) {
        const int radix = i == 0 ? 4 : i == 1 ? 2 : i == 2 ? 3 : i + 2;
        while (rest % radix == 0) {
            length->radix[length->radices++] = (uint8_t)radix;
            rest /= radix;
        }
    }
    return rest == 1;
}

/* The least length of the form (1, 3, 5, 9 or 15) · 2^k that is not below n. */
static inline int64_t fft_room(int64_t n) {
    static const int odd[] = {1, 3, 5, 9, 15};
    int64_t best = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        int64_t length = odd[i];
        while (length < n) {
            length *= 2;
        }
        best = length < best ? length : best;
    }
    return best;
}

/* e^(-2πi·k/n) for 0 <= k <= n, by a sine and a cosine of an eighth of a turn. */
FFT_FUNCTION void fft_root(int64_t k, int64_t n, double *re, double *im) {
    int64_t eighth = 8 * k / n, rest = 8 * k - eighth * n; /* in units of 1/(8n) of a turn */
    bool turned = eighth & 1;
    double angle = 0.78539816339744830962 * ((double)(turned ? n - rest : rest) / (double)n);
    double c = cos(angle), s = sin(angle);
    double x = turned ? s : c, y = turned ? c : s; /* within the quarter */
    switch (eighth / 2 % 4) {
    case 0:
        *re = x, *im = -y;
        break;
    case 1:
        *re = -y, *im = -x;
        break;
    case 2:
        *re = -x, *im = y;
        break;
    default:
        *re = y, *im = x;
    }
}
