/* Discrete Fourier transforms: of a prime length by their definition; of another the sum is taken apart by the length's smallest
 * factor, since the definition alone takes a minute for the suite's longest lines. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/reference.h"

struct line {
    const struct values *x;
    struct values *out;
    int64_t from, to, stride; /* the first elements, and the distance of elements, of both */
    int64_t n, extent, results;
    bool hermitian;
    const long double *re, *im; /* e^(±2πi·k/n) */
};

/* Element j of the line of n, which has zeros behind those that are given. */
static void line_element(const struct line *line, int64_t j, long double *re, long double *im) {
    bool turned = line->hermitian && j > line->n - j;
    int64_t at = turned ? line->n - j : j, k = line->from + at * line->stride;
    bool inside = at < line->extent, alone = line->hermitian && (at == 0 || 2 * at == line->n);
    *re = inside ? line->x->f[k] : 0;
    *im = inside && line->x->im && !alone ? (turned ? -line->x->im[k] : line->x->im[k]) : 0;
}

static int64_t smallest_factor(int64_t n) {
    for (int64_t p = 2; p * p <= n; p++)
        if (n % p == 0)
            return p;
    return n;
}

/* X[k] = sum over j < m of x[j·step]·e^(±2πi·jk/m), with m = n/step. With p·q = m and j = p·a + b, X[k] is the sum over b < p of
 * e^(±2πi·bk/m) times element k mod q of the transform of x[b·step], x[(b + p)·step], …, whose length is q. `work` has room for m numbers. */
static void transform(const struct line *line, int64_t step, const long double complex *x, long double complex *out,
                      long double complex *work) {
    int64_t n = line->n, m = n / step, p = smallest_factor(m), q = m / p;
    for (int64_t b = 0; b < p && q > 1; b++)
        transform(line, step * p, x + b * step, work + b * q, out + b * q);
    for (int64_t k = 0; k < m; k++) {
        long double a = 0, b = 0;
        for (int64_t j = 0, at = 0; j < p; j++, at += k * step, at -= at < n ? 0 : n) {
            long double complex term = q > 1 ? work[j * q + k % q] : x[j * step];
            a += creall(term) * line->re[at] - cimagl(term) * line->im[at];
            b += creall(term) * line->im[at] + cimagl(term) * line->re[at];
        }
        out[k] = CMPLXL(a, b);
    }
}

/* `numbers` has room for three times n. */
static void line_transform(const struct line *line, long double scale, long double complex *numbers) {
    long double complex *x = numbers, *out = numbers + line->n;
    long double squares = 0;
    for (int64_t j = 0; j < line->n; j++) {
        long double re, im;
        line_element(line, j, &re, &im);
        x[j] = CMPLXL(re, im);
        squares += re * re + im * im;
    }
    transform(line, 1, x, out, out + line->n);
    for (int64_t k = 0; k < line->results; k++) {
        int64_t to = line->to + k * line->stride;
        line->out->f[to] = value_round(line->out->dtype, creall(out[k]) * scale);
        if (line->out->im)
            line->out->im[to] = value_round(line->out->dtype, cimagl(out[k]) * scale);
        line->out->scale[to] = sqrtl(squares) * scale;
    }
}

struct values *reference_fft(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    struct fft_attributes given; /* the others have the same */
    fft_attributes_read(&r->attributes, &given);
    bool halved = r->opcode == OP_IRFFT;
    int axis = reference_axis(given.axis, x->rank);
    if (axis < 0 || x->shape[axis] == 0)
        return NULL;
    int64_t shape[VALUES_RANK_MAX], strides[VALUES_RANK_MAX];
    int64_t n = given.n ? given.n : halved ? 2 * (x->shape[axis] - 1) : x->shape[axis];
    if (n < 1)
        return NULL;
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = r->opcode == OP_RFFT ? n / 2 + 1 : n;
    bool wide = x->dtype == DTYPE_F64 || x->dtype == DTYPE_C128;
    struct values *out = values_create(halved ? (wide ? DTYPE_F64 : DTYPE_F32)
                                       : wide ? DTYPE_C128
                                              : DTYPE_C64,
                                       x->rank, shape);
    out->of = halved ? x->dtype : DTYPE_INVALID;
    values_scaled(out, pow(4 + 2 * log2((double)n), 2));
    values_strides(x->rank, x->shape, strides);
    bool back = halved || r->opcode == OP_IFFT;
    long double *roots = calloc((size_t)n, 2 * sizeof *roots);
    long double complex *numbers = calloc((size_t)n, 3 * sizeof *numbers);
    for (int64_t k = 0; k < n; k++) {
        long double angle = 2 * 3.14159265358979323846264338327950288L * (long double)k / (long double)n;
        roots[k] = cosl(angle);
        roots[n + k] = back ? sinl(angle) : -sinl(angle);
    }
    long double scale = given.norm == OP_FFT_NORM_ORTHO                ? 1 / sqrtl((long double)n)
                        : (given.norm == OP_FFT_NORM_BACKWARD) == back ? 1 / (long double)n
                                                                       : 1;
    int64_t inner = strides[axis], lines = x->count / x->shape[axis];
    for (int64_t i = 0; i < lines; i++) {
        struct line line = {.x = x,
                            .out = out,
                            .from = i / inner * inner * x->shape[axis] + i % inner,
                            .to = i / inner * inner * shape[axis] + i % inner,
                            .stride = inner,
                            .n = n,
                            .extent = halved && n / 2 + 1 < x->shape[axis] ? n / 2 + 1
                                      : n < x->shape[axis]                 ? n
                                                                           : x->shape[axis],
                            .results = shape[axis],
                            .hermitian = halved,
                            .re = roots,
                            .im = roots + n};
        line_transform(&line, scale, numbers);
    }
    free(roots);
    free(numbers);
    return out;
}
