#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

/* One line: first element, elements and their distance in x; the same of the result, whose first element may be the initial one. */
struct line {
    const struct values *x;
    struct values *out;
    int64_t from, to, n, stride;
};

static long double line_element(const struct line *line, int64_t i) {
    int64_t k = line->from + i * line->stride;
    return line->x->f ? line->x->f[k] : value_number(line->x->dtype, line->x->i[k]);
}

static void line_accumulate(const struct line *line, bool product, bool initial) {
    struct values *out = line->out;
    long double value = product, other = 0, magnitudes = product;
    uint64_t whole = product;
    for (int64_t i = initial ? -1 : 0; i < line->n; i++) {
        int64_t to = line->to + (i + initial) * line->stride;
        if (i >= 0 && out->i) {
            uint64_t x = (uint64_t)line->x->i[line->from + i * line->stride];
            whole = product ? whole * x : whole + x;
        } else if (i >= 0) {
            long double x = line_element(line, i), before = value;
            value =
                product ? value * x - (out->im ? other * line->x->im[line->from + i * line->stride] : 0) : value + x;
            if (product && out->im)
                other = before * line->x->im[line->from + i * line->stride] + other * x;
            magnitudes = product && out->im ? hypotl(value, other)
                         : product          ? fabsl(value)
                                            : magnitudes + (out->im && !isfinite(x) ? 0 : fabsl(x));
        }
        if (i >= 0 && out->im && !product) { /* one part may be no number while the other is one */
            long double y = line->x->im[line->from + i * line->stride];
            other += y;
            magnitudes += isfinite(y) ? fabsl(y) : 0;
        }
        if (out->i) {
            out->i[to] = (int64_t)whole;
        } else {
            out->f[to] = value_round(out->dtype, value);
            out->scale[to] = magnitudes;
            if (out->im)
                out->im[to] = value_round(out->dtype, other);
        }
    }
}

static void line_extreme(const struct line *line, bool highest, bool position) {
    struct values *out = line->out;
    int64_t best = 0;
    for (int64_t i = 0; i < line->n; i++) {
        long double x = line_element(line, i), v = line_element(line, best);
        if (isnan(x) || (!isnan(v) && (highest ? x >= v : x <= v)))
            best = i;
        int64_t to = line->to + i * line->stride, from = line->from + best * line->stride;
        if (position)
            out->i[to] = best;
        else if (out->f)
            out->f[to] = line->x->f[from];
        else
            out->i[to] = line->x->i[from];
    }
}

static void line_logsumexp(const struct line *line) {
    struct values *out = line->out;
    long double highest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < line->n; i++) {
        int64_t to = line->to + i * line->stride;
        long double x = line_element(line, i);
        if (x > highest) {
            sum = sum * expl(highest - x) + 1;
            highest = x;
        } else if (x == highest) {
            sum += highest == -INFINITY ? 0 : 1;
        } else {
            sum += expl(x - highest);
        }
        out->f[to] = value_round(out->dtype, highest + logl(sum));
        out->scale[to] = fabsl(highest) + fabsl(logl(sum)) + 1;
    }
}

struct values *reference_scan(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    bool sums = r->opcode == OP_CUMULATIVE_SUM || r->opcode == OP_CUMULATIVE_PROD;
    int64_t shape[VALUES_RANK_MAX], strides[VALUES_RANK_MAX], to[VALUES_RANK_MAX];
    struct cumulative_attributes given = {.axis = r->attributes.ints[0],
                                          .include_initial = sums && r->attributes.ints[1]};
    int axis = reference_axis(given.axis, x->rank);
    if (axis < 0)
        return NULL;
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] += given.include_initial;
    enum dtype whole = value_is_unsigned(x->dtype) ? DTYPE_U64 : DTYPE_I64;
    enum dtype dtype = r->output ? DTYPE_I64 : sums && !value_is_float(x->dtype) ? whole : x->dtype;
    struct values *out = values_create(dtype, x->rank, shape);
    values_strides(x->rank, x->shape, strides);
    values_strides(x->rank, shape, to);
    if (out->f && (sums || r->opcode == OP_LOGCUMSUMEXP))
        values_scaled(out, (double)x->shape[axis]);
    int64_t inner = to[axis], lines = out->count / (shape[axis] ? shape[axis] : 1);
    for (int64_t k = 0; k < lines; k++) {
        struct line line = {.x = x,
                            .out = out,
                            .from = k / inner * inner * x->shape[axis] + k % inner,
                            .to = k / inner * inner * shape[axis] + k % inner,
                            .n = x->shape[axis],
                            .stride = inner};
        if (sums)
            line_accumulate(&line, r->opcode == OP_CUMULATIVE_PROD, given.include_initial);
        else if (r->opcode == OP_LOGCUMSUMEXP)
            line_logsumexp(&line);
        else
            line_extreme(&line, r->opcode == OP_CUMMAX, r->output == 1);
    }
    return out;
}
