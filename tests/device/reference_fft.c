/* Discrete Fourier transforms by their definition. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/reference.h"

struct line {
    const struct values *x;
    struct values *out;
    int64_t from, to, stride; /* the first elements, and the distance of elements, of both */
    int64_t n, extent, results;
    bool hermitian, back;
    const long double *re, *im; /* e^(2πi·k/n) */
};

/* Element j of the line of n, which has zeros behind those that are given. */
static void line_element(const struct line *line, int64_t j, long double *re, long double *im) {
    bool turned = line->hermitian && j > line->n - j;
    int64_t at = turned ? line->n - j : j, k = line->from + at * line->stride;
    bool inside = at < line->extent, alone = line->hermitian && (at == 0 || 2 * at == line->n);
    *re = inside ? line->x->f[k] : 0;
    *im = inside && line->x->im && !alone ? (turned ? -line->x->im[k] : line->x->im[k]) : 0;
}

static void line_transform(const struct line *line, long double scale, long double *re, long double *im) {
    long double squares = 0;
    for (int64_t j = 0; j < line->n; j++) {
        line_element(line, j, &re[j], &im[j]);
        squares += re[j] * re[j] + im[j] * im[j];
    }
    for (int64_t k = 0; k < line->results; k++) {
        long double a = 0, b = 0;
        for (int64_t j = 0, at = 0; j < line->n; j++, at = at + k < line->n ? at + k : at + k - line->n) {
            long double c = line->re[at], s = line->back ? line->im[at] : -line->im[at];
            a += re[j] * c - im[j] * s;
            b += re[j] * s + im[j] * c;
        }
        int64_t to = line->to + k * line->stride;
        line->out->f[to] = value_round(line->out->dtype, a * scale);
        if (line->out->im)
            line->out->im[to] = value_round(line->out->dtype, b * scale);
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
    long double *numbers = calloc((size_t)n, 4 * sizeof *numbers), *re = numbers + 2 * n, *im = numbers + 3 * n;
    for (int64_t k = 0; k < n; k++) {
        numbers[k] = cosl(2 * 3.14159265358979323846264338327950288L * (long double)k / (long double)n);
        numbers[n + k] = sinl(2 * 3.14159265358979323846264338327950288L * (long double)k / (long double)n);
    }
    bool back = halved || r->opcode == OP_IFFT;
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
                            .back = back,
                            .re = numbers,
                            .im = numbers + n};
        line_transform(&line, scale, re, im);
    }
    free(numbers);
    return out;
}
