#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

static struct values *vector(enum dtype dtype, int64_t n) {
    return values_create(dtype, 1, &n);
}

static struct values *number(int64_t count) {
    struct values *out = values_create(DTYPE_I64, 0, NULL);
    out->i[0] = count;
    return out;
}

static struct values *compact_nonzero(const struct values *x, unsigned output) {
    int64_t count = 0, index[VALUES_RANK_MAX] = {0};
    struct values *indices = values_create(DTYPE_I64, 2, (int64_t[]){x->rank, x->count});
    for (int64_t k = 0; k < x->count; k++) {
        if (x->f ? x->f[k] != 0 || (x->im && x->im[k] != 0) : x->i[k] != 0) {
            for (int axis = 0; axis < x->rank; axis++)
                indices->i[axis * x->count + count] = index[axis];
            count++;
        }
        values_next(x->rank, x->shape, index);
    }
    return output ? number(count) : indices;
}

static struct values *compact_select(const struct values *x, const struct values *mask, unsigned output) {
    int64_t shape[VALUES_RANK_MAX], count = 0;
    int rank;
    if (!reference_broadcast(x->rank, x->shape, mask->rank, mask->shape, &rank, shape))
        return NULL;
    struct values *wide = reference_broadcast_to(x, rank, shape), *chosen = reference_broadcast_to(mask, rank, shape);
    struct values *out = vector(x->dtype, wide->count);
    for (int64_t k = 0; k < wide->count; k++)
        if (chosen->i[k])
            values_put(out, count++, wide, k);
    values_destroy(wide);
    values_destroy(chosen);
    return output ? number(count) : out;
}

static struct values *compact_runs(const struct values *x, const struct values *positions, unsigned output) {
    struct values *values = vector(x->dtype, x->count), *indices = vector(DTYPE_I64, x->count);
    struct values *inverse = vector(DTYPE_I64, x->count), *counts = vector(DTYPE_I64, x->count);
    int64_t run = -1;
    for (int64_t k = 0; k < x->count; k++) {
        bool first = k == 0 || (x->f ? x->f[k] != x->f[k - 1] : x->i[k] != x->i[k - 1]) || /* NaN differs from NaN */
                     (x->im && x->im[k] != x->im[k - 1]);
        if (first) {
            values_put(values, ++run, x, k);
            indices->i[run] = positions->i[k];
        }
        counts->i[run]++;
        inverse->i[positions->i[k]] = run;
    }
    struct values *results[] = {values, indices, inverse, counts};
    return output < 4 ? results[output] : number(run + 1);
}

struct values *reference_compact(const struct reference_request *r) {
    switch (r->opcode) {
    case OP_NONZERO:
        return r->inputs[0]->rank ? compact_nonzero(r->inputs[0], r->output) : NULL;
    case OP_MASKED_SELECT:
        return compact_select(r->inputs[0], r->inputs[1], r->output);
    case OP_UNIQUE_RUNS:
        return compact_runs(r->inputs[0], r->inputs[1], r->output);
    default:
        reference_lacks(r->opcode);
    }
}

/* In f64, as the contract says: near an edge the rounding of the difference decides. */
struct values *reference_count(const struct reference_request *r) {
    struct histogram_attributes given;
    histogram_attributes_read(&r->attributes, &given);
    const struct values *x = r->inputs[0];
    struct values *out = vector(DTYPE_I64, given.bins);
    for (int64_t k = 0; k < x->count; k++) {
        double value = x->f ? (double)x->f[k] : (double)value_number(x->dtype, x->i[k]);
        if (isnan(value) || value < given.low || value > given.high)
            continue;
        double bin = floor((value - given.low) * ((double)given.bins / (given.high - given.low)));
        out->i[bin == (double)given.bins ? given.bins - 1 : (int64_t)bin]++;
    }
    return out;
}
