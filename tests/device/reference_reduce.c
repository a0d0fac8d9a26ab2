#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

/* A reduction walks its input once, row-major; `strides` lead from an index of the input to its place in the result. */
struct reduction {
    unsigned opcode;
    const struct values *x;
    struct values *out;
    long double *total; /* [result] */
    long double *other; /* [result] of the imaginary parts */
    int64_t *seen;      /* [result] elements so far */
    int64_t terms;      /* elements for each result */
    int64_t strides[VALUES_RANK_MAX];
};

static bool reduce_axes(const struct op_ints *axes, int rank, bool reduced[VALUES_RANK_MAX]) {
    for (int i = 0; i < VALUES_RANK_MAX; i++)
        reduced[i] = axes->count == 0;
    for (unsigned i = 0; i < axes->count; i++) {
        int axis = reference_axis(axes->values[i], rank);
        if (axis < 0 || reduced[axis])
            return false;
        reduced[axis] = true;
    }
    return true;
}

static enum dtype reduce_dtype(unsigned opcode, enum dtype x) {
    switch (opcode) {
    case OP_SUM:
    case OP_PROD:
        return value_is_float(x) ? x : value_is_unsigned(x) ? DTYPE_U64 : DTYPE_I64;
    case OP_MEAN:
    case OP_VAR:
    case OP_STD:
    case OP_LOGSUMEXP:
        return value_is_float(x) ? x : DTYPE_F32;
    case OP_VECTOR_NORM:
        return x == DTYPE_C64 ? DTYPE_F32 : x == DTYPE_C128 ? DTYPE_F64 : value_is_float(x) ? x : DTYPE_F32;
    case OP_ANY:
    case OP_ALL:
        return DTYPE_BOOL;
    case OP_ARGMAX:
    case OP_ARGMIN:
    case OP_COUNT_NONZERO:
        return DTYPE_I64;
    case OP_MAX:
    case OP_MIN:
        return x;
    default:
        reference_lacks(opcode);
    }
}

/* Whether element `k` takes the place of the best so far. */
static bool reduce_beats(const struct reduction *reduction, int64_t k, int64_t at) {
    const struct values *x = reduction->x;
    bool highest = reduction->opcode == OP_MAX || reduction->opcode == OP_ARGMAX;
    if (reduction->seen[at] == 0)
        return true;
    if (!x->f)
        return highest ? value_number(x->dtype, x->i[k]) > reduction->total[at]
                       : value_number(x->dtype, x->i[k]) < reduction->total[at];
    if (isnan(reduction->total[at]))
        return false;
    return isnan(x->f[k]) || (highest ? x->f[k] > reduction->total[at] : x->f[k] < reduction->total[at]);
}

static void reduce_element(struct reduction *reduction, int64_t k, int64_t at) {
    const struct values *x = reduction->x;
    struct values *out = reduction->out;
    long double value = x->f ? x->f[k] : value_number(x->dtype, x->i[k]);
    bool truth = value != 0 || (x->im && x->im[k] != 0);
    switch (reduction->opcode) {
    case OP_SUM:
    case OP_MEAN:
        if (out->i)
            out->i[at] = (int64_t)((uint64_t)out->i[at] + (uint64_t)x->i[k]);
        else
            reduction->total[at] += value, out->scale[at] += out->im && !isfinite(value) ? 0 : fabsl(value);
        if (x->im) /* one part may be no number while the other is one */
            reduction->other[at] += x->im[k], out->scale[at] += isfinite(x->im[k]) ? fabsl(x->im[k]) : 0;
        break;
    case OP_PROD:
        if (out->i)
            out->i[at] = (int64_t)((uint64_t)out->i[at] * (uint64_t)x->i[k]);
        else if (x->im) {
            long double re = reduction->total[at], im = reduction->other[at];
            reduction->total[at] = re * value - im * x->im[k];
            reduction->other[at] = re * x->im[k] + im * value;
        } else
            reduction->total[at] *= value;
        break;
    case OP_ANY:
        out->i[at] |= truth;
        break;
    case OP_COUNT_NONZERO:
        out->i[at] += truth;
        break;
    case OP_ALL:
        out->i[at] &= truth;
        break;
    default:
        if (reduce_beats(reduction, k, at)) {
            reduction->total[at] = value;
            if (out->f)
                out->f[at] = value;
            else
                out->i[at] = reduction->opcode >= OP_ARGMAX ? reduction->seen[at] : x->i[k];
        }
    }
    reduction->seen[at]++;
}

static void reduce_begin(struct reduction *reduction, struct values *totals, int64_t *seen) {
    long double *total = totals->f;
    struct values *out = reduction->out;
    bool ones = reduction->opcode == OP_PROD || reduction->opcode == OP_ALL;
    reduction->total = total;
    reduction->other = totals->im;
    reduction->seen = seen;
    for (int64_t k = 0; k < out->count; k++) {
        total[k] = ones;
        seen[k] = 0;
        if (out->i)
            out->i[k] = ones;
    }
}

static void reduce_end(struct reduction *reduction) {
    struct values *out = reduction->out;
    if (!out->scale)
        return;
    for (int64_t k = 0; k < out->count; k++) {
        long double value = reduction->total[k];
        if (reduction->opcode == OP_MEAN) {
            value /= (long double)reduction->terms;
            reduction->other[k] /= (long double)reduction->terms;
            out->scale[k] /= (long double)reduction->terms;
        } else if (reduction->opcode == OP_PROD) {
            out->scale[k] = out->im ? hypotl(value, reduction->other[k]) : fabsl(value);
        }
        out->f[k] = value_round(out->dtype, value);
        if (out->im)
            out->im[k] = value_round(out->dtype, reduction->other[k]);
    }
}

static void reduce_walk(struct reduction *reduction) {
    int64_t index[VALUES_RANK_MAX] = {0};
    const struct values *x = reduction->x;
    for (int64_t k = 0; k < x->count; k++) {
        reduce_element(reduction, k, values_offset(x->rank, index, reduction->strides));
        values_next(x->rank, x->shape, index);
    }
}

/* ---- results of all elements of an output at once ---- */

static void whole_variance(const long double *x, int64_t n, double correction, bool root, long double *value,
                           long double *scale) {
    long double mean = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        mean += x[i] / (long double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    long double divisor = (long double)n > correction ? (long double)n - correction : 0, deviation;
    *value = squares / divisor;
    deviation = sqrtl(*value);
    /* The distances have the rounding errors of the mean and of f64. */
    *scale = root ? deviation + fabsl(mean) : *value + fabsl(mean) * deviation + mean * mean * 0x1p-50L;
    if (root)
        *value = deviation;
}

static void whole_logsumexp(const long double *x, int64_t n, long double *value, long double *scale) {
    long double highest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        highest = isnan(x[i]) || x[i] > highest ? x[i] : highest;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] == highest ? 1 : expl(x[i] - highest);
    *value = n == 0 || highest == -INFINITY ? -INFINITY : highest + logl(sum);
    *scale = fabsl(highest) + fabsl(logl(sum)) + 1;
}

static void whole_norm(const long double *x, int64_t n, double ord, long double *value, long double *scale) {
    long double sum = ord == -INFINITY ? INFINITY : 0;
    for (int64_t i = 0; i < n && !isnan(sum); i++) {
        long double magnitude = fabsl(x[i]);
        if (isinf(ord))
            sum = isnan(magnitude) || (ord > 0 ? magnitude > sum : magnitude < sum) ? magnitude : sum;
        else
            sum += ord == 0 ? magnitude != 0 : powl(magnitude, ord);
    }
    *value = isinf(ord) || ord == 0 || ord == 1 ? sum : powl(sum, 1 / (long double)ord);
    *scale = isinf(ord) ? 0 : *value;
}

static bool reduce_is_whole(unsigned opcode) {
    return opcode == OP_VAR || opcode == OP_STD || opcode == OP_LOGSUMEXP || opcode == OP_VECTOR_NORM;
}

/* `given` has the attribute's value in its only float. */
static void reduce_whole(const struct reduction *reduction, double given) {
    int64_t index[VALUES_RANK_MAX] = {0}, n = reduction->terms;
    const struct values *x = reduction->x;
    struct values *out = reduction->out, *all = values_create(DTYPE_F64, 1, (int64_t[]){out->count * n});
    for (int64_t k = 0; k < x->count; k++) {
        int64_t at = values_offset(x->rank, index, reduction->strides);
        long double value = x->f ? x->f[k] : value_number(x->dtype, x->i[k]);
        all->f[at * n + reduction->seen[at]++] = x->im ? hypotl(value, x->im[k]) : value;
        values_next(x->rank, x->shape, index);
    }
    for (int64_t k = 0; k < out->count; k++) {
        const long double *own = all->f + k * n;
        if (reduction->opcode == OP_LOGSUMEXP)
            whole_logsumexp(own, n, &out->f[k], &out->scale[k]);
        else if (reduction->opcode == OP_VECTOR_NORM)
            whole_norm(own, n, given, &out->f[k], &out->scale[k]);
        else
            whole_variance(own, n, given, reduction->opcode == OP_STD, &out->f[k], &out->scale[k]);
        out->f[k] = value_round(out->dtype, out->f[k]);
    }
    values_destroy(all);
}

static bool reduce_accumulates(unsigned opcode, const struct values *out) {
    return out->f && (opcode == OP_SUM || opcode == OP_PROD || opcode == OP_MEAN || reduce_is_whole(opcode));
}

struct values *reference_reduce(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    bool reduced[VALUES_RANK_MAX], positions = r->opcode == OP_ARGMAX || r->opcode == OP_ARGMIN;
    struct reduction reduction = {.opcode = r->opcode, .x = x, .terms = 1};
    int64_t kept[VALUES_RANK_MAX], full[VALUES_RANK_MAX], own[VALUES_RANK_MAX];
    int rank = 0;
    struct reduction_attributes given;
    reduction_attributes_read(&r->attributes,
                              &given); /* where others have floats as well, these have the same integers */
    if ((positions && given.axes.count > 1) || !reduce_axes(&given.axes, x->rank, reduced))
        return NULL;
    for (int i = 0; i < x->rank; i++) {
        full[i] = reduced[i] ? 1 : x->shape[i];
        reduction.terms *= reduced[i] ? x->shape[i] : 1;
        if (!reduced[i])
            kept[rank++] = x->shape[i];
    }
    bool choice = positions || r->opcode == OP_MAX || r->opcode == OP_MIN;
    int64_t results = 1;
    for (int i = 0; i < rank; i++)
        results *= kept[i];
    if (choice && reduction.terms == 0 && results > 0)
        return NULL;
    values_strides(x->rank, full, own);
    for (int i = 0; i < x->rank; i++)
        reduction.strides[i] = reduced[i] ? 0 : own[i];
    reduction.out =
        values_create(reduce_dtype(r->opcode, x->dtype), given.keepdims ? x->rank : rank, given.keepdims ? full : kept);
    if (reduce_accumulates(r->opcode, reduction.out))
        values_scaled(reduction.out, (double)reduction.terms);
    struct values *seen = values_create(DTYPE_I64, 1, &reduction.out->count);
    struct values *total = values_create(DTYPE_C128, 1, &reduction.out->count);
    reduce_begin(&reduction, total, seen->i);
    if (reduce_is_whole(r->opcode)) {
        reduce_whole(&reduction, r->attributes.n_floats ? r->attributes.floats[0] : 0);
    } else {
        reduce_walk(&reduction);
        reduce_end(&reduction);
    }
    values_destroy(seen);
    values_destroy(total);
    return reduction.out;
}

/* One line along the axis: elements first, first + stride, … */
static void softmax_line(const struct values *x, struct values *out, int64_t first, int64_t n, int64_t stride) {
    long double highest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        long double value = x->f[first + j * stride];
        highest = isnan(value) || value > highest ? value : highest;
        if (isnan(value))
            break;
    }
    for (int64_t j = 0; j < n; j++)
        sum += expl(x->f[first + j * stride] - highest);
    for (int64_t j = 0; j < n; j++) {
        int64_t k = first + j * stride;
        out->f[k] = x->f[k] - highest;
        out->scale[k] = fabsl(out->f[k]) + fabsl(logl(sum)) + 1;
    }
    for (int64_t j = 0; j < n; j++)
        out->f[first + j * stride] -= logl(sum);
}

struct values *reference_softmax(const struct reference_request *r) {
    const struct values *x = r->inputs[0];
    int axis;
    if (r->opcode == OP_SOFTMAX) {
        struct softmax_attributes given;
        softmax_attributes_read(&r->attributes, &given);
        axis = reference_axis(given.axis, x->rank);
    } else {
        struct log_softmax_attributes given;
        log_softmax_attributes_read(&r->attributes, &given);
        axis = reference_axis(given.axis, x->rank);
    }
    if (axis < 0 || !x->f)
        return NULL;
    int64_t own[VALUES_RANK_MAX], n = x->shape[axis];
    values_strides(x->rank, x->shape, own);
    struct values *out = values_create(x->dtype, x->rank, x->shape);
    values_scaled(out, (double)n);
    for (int64_t k = 0; k < x->count; k++)
        if (k / own[axis] % n == 0)
            softmax_line(x, out, k, n, own[axis]);
    for (int64_t k = 0; k < out->count; k++) {
        if (r->opcode == OP_SOFTMAX) {
            out->f[k] = expl(out->f[k]);
            out->scale[k] *= out->f[k];
        }
        out->f[k] = value_round(out->dtype, out->f[k]);
    }
    return out;
}
