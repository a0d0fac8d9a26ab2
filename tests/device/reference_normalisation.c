/* Normalisations: the group of each element is found by its indices; sums are over all elements of x with the same group. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/reference.h"

struct given {
    int64_t axis, axes, groups;
    long double epsilon, momentum;
    bool by_channel, by_row, centred, back, known, running;
};

static void given_read(const struct reference_request *r, struct given *g) {
    unsigned o = r->opcode;
    *g = (struct given){
        .centred = o != OP_RMS_NORM && o != OP_RMS_NORM_GRAD,
        .back = o == OP_BATCH_NORM_GRAD || o == OP_LAYER_NORM_GRAD || o == OP_GROUP_NORM_GRAD || o == OP_RMS_NORM_GRAD,
        .known = o == OP_BATCH_NORM_INFERENCE,
        .running = o == OP_BATCH_NORM,
        .by_channel = o == OP_BATCH_NORM || o == OP_BATCH_NORM_GRAD || o == OP_BATCH_NORM_INFERENCE,
        .by_row = o == OP_LAYER_NORM || o == OP_LAYER_NORM_GRAD || o == OP_RMS_NORM || o == OP_RMS_NORM_GRAD};
    if (g->running) {
        struct batch_norm_attributes a;
        batch_norm_attributes_read(&r->attributes, &a);
        g->axis = a.axis;
        g->epsilon = a.epsilon;
        g->momentum = a.momentum;
    } else if (g->by_channel) {
        struct channel_norm_attributes a;
        channel_norm_attributes_read(&r->attributes, &a);
        g->axis = a.axis;
        g->epsilon = a.epsilon;
    } else if (g->by_row) {
        struct row_norm_attributes a;
        row_norm_attributes_read(&r->attributes, &a);
        g->axes = a.axes;
        g->epsilon = a.epsilon;
    } else {
        struct group_norm_attributes a;
        group_norm_attributes_read(&r->attributes, &a);
        g->groups = a.groups;
        g->epsilon = a.epsilon;
    }
}

/* The group of an element, and its factor. */
static void belongs(const struct given *g, const struct values *x, int64_t k, int64_t *group, int64_t *factor) {
    int64_t strides[VALUES_RANK_MAX];
    values_strides(x->rank, x->shape, strides);
    if (g->by_row) {
        int64_t row = 1;
        for (int i = x->rank - (int)g->axes; i < x->rank; i++)
            row *= x->shape[i];
        *group = k / row;
        *factor = k % row;
    } else if (g->by_channel) {
        int axis = reference_axis(g->axis, x->rank);
        *group = *factor = k / strides[axis] % x->shape[axis];
    } else {
        *factor = k / strides[1] % x->shape[1];
        *group = k / strides[0] * g->groups + *factor / (x->shape[1] / g->groups);
    }
}

/* Of a group: [count, mean, variance, mean of weighted gradients, mean of these times x-hat], and magnitudes. */
struct group {
    long double count, mean, variance, scale, gradient, with_x, magnitude, gradient_magnitude;
};

struct normal {
    const struct reference_request *r;
    struct given g;
    const struct values *x, *gradient, *weight, *bias, *mean, *deviation;
    struct group *groups;
    int64_t n_groups;
};

static void groups_measure(struct normal *n) {
    int64_t group, factor;
    for (int64_t k = 0; k < n->x->count; k++) {
        belongs(&n->g, n->x, k, &group, &factor);
        n->groups[group].count++;
        n->groups[group].mean += n->x->f[k];
        n->groups[group].magnitude = fmaxl(n->groups[group].magnitude, fabsl(n->x->f[k]));
    }
    for (int64_t i = 0; i < n->n_groups; i++)
        n->groups[i].mean = n->g.known ? n->mean->f[i] : n->g.centred ? n->groups[i].mean / n->groups[i].count : 0;
    for (int64_t k = 0; k < n->x->count; k++) {
        belongs(&n->g, n->x, k, &group, &factor);
        n->groups[group].variance += powl(n->x->f[k] - n->groups[group].mean, 2) / n->groups[group].count;
    }
    for (int64_t i = 0; i < n->n_groups; i++) {
        if (n->g.known)
            n->groups[i].variance = n->deviation->f[i];
        n->groups[i].scale = 1 / sqrtl(n->groups[i].variance + n->g.epsilon);
        n->groups[i].magnitude += fabsl(n->groups[i].mean);
    }
    for (int64_t k = 0; k < n->x->count && n->g.back; k++) {
        belongs(&n->g, n->x, k, &group, &factor);
        struct group *of = &n->groups[group];
        long double w = n->gradient->f[k] * (n->weight ? n->weight->f[factor] : 1);
        of->gradient += w / of->count;
        of->with_x += w * (n->x->f[k] - of->mean) * of->scale / of->count;
        of->gradient_magnitude = fmaxl(of->gradient_magnitude, fabsl(w));
    }
}

static void result_fill(const struct normal *n, struct values *out) {
    int64_t group, factor;
    for (int64_t k = 0; k < out->count; k++) {
        belongs(&n->g, n->x, k, &group, &factor);
        const struct group *of = &n->groups[group];
        long double w = n->weight ? n->weight->f[factor] : 1, hat = (n->x->f[k] - of->mean) * of->scale;
        if (n->g.back) {
            long double centre = n->g.centred ? of->gradient : 0;
            out->f[k] = of->scale * (n->gradient->f[k] * w - centre - hat * of->with_x);
            out->scale[k] = of->scale * of->gradient_magnitude * (1 + of->scale * of->magnitude) * (1 + fabsl(hat));
        } else {
            out->f[k] = hat * w + (n->bias ? n->bias->f[factor] : 0);
            out->scale[k] = of->magnitude * of->scale * fabsl(w) * (1 + fabsl(hat)) + fabsl(out->f[k]);
        }
    }
}

/* The gradients by weight (1) and bias (2), or the running mean and variance. */
static void factors_fill(const struct normal *n, struct values *out, unsigned which) {
    int64_t group, factor;
    for (int64_t i = 0; i < out->count && n->g.running; i++) {
        const struct group *of = &n->groups[i];
        long double own = which == 1 ? of->mean : of->variance * of->count / (of->count - 1);
        long double old = (which == 1 ? n->mean : n->deviation)->f[i];
        out->f[i] = (1 - n->g.momentum) * old + n->g.momentum * own;
        out->scale[i] = fabsl(old) + of->magnitude * (1 + of->magnitude);
    }
    for (int64_t k = 0; k < n->x->count && n->g.back; k++) {
        belongs(&n->g, n->x, k, &group, &factor);
        const struct group *of = &n->groups[group];
        long double term = n->gradient->f[k] * (which == 1 ? (n->x->f[k] - of->mean) * of->scale : 1);
        out->f[factor] += term;
        out->scale[factor] += fabsl(n->gradient->f[k]) * (which == 1 ? of->magnitude * of->scale + fabsl(term) : 1);
    }
}

static struct values *output_make(const struct normal *n, enum dtype dtype, unsigned which) {
    const struct values *x = n->x;
    if (which == 0)
        return values_create(dtype, x->rank, x->shape);
    if (n->g.by_row)
        return values_create(dtype, (int)n->g.axes, x->shape + x->rank - n->g.axes);
    int axis = n->g.by_channel ? reference_axis(n->g.axis, x->rank) : 1;
    return values_create(dtype, 1, &x->shape[axis]);
}

struct values *reference_normalisation(const struct reference_request *r) {
    struct normal n = {.r = r};
    struct values *in[5];
    enum dtype dtype = r->inputs[0]->dtype;
    given_read(r, &n.g);
    for (unsigned i = 1; i < r->n_inputs; i++)
        dtype = reference_promote(dtype, r->inputs[i]->dtype);
    for (unsigned i = 0; i < r->n_inputs; i++)
        in[i] = reference_cast(r->inputs[i], dtype);
    unsigned at = 0;
    n.gradient = n.g.back ? in[at++] : NULL;
    n.x = in[at++];
    if (n.g.running || n.g.known) {
        n.mean = in[at++];
        n.deviation = in[at++];
    }
    n.weight = at < r->n_inputs ? in[at++] : NULL;
    n.bias = at < r->n_inputs ? in[at++] : NULL;
    n.n_groups = 1;
    for (int64_t k = 0, group, factor; k < n.x->count; k++) {
        belongs(&n.g, n.x, k, &group, &factor);
        n.n_groups = group + 1 > n.n_groups ? group + 1 : n.n_groups;
    }
    n.groups = calloc((size_t)n.n_groups, sizeof *n.groups);
    if (n.x->count)
        groups_measure(&n);
    struct values *out = output_make(&n, dtype, r->output);
    values_scaled(out, (double)n.x->count);
    if (r->output == 0)
        result_fill(&n, out);
    else
        factors_fill(&n, out, r->output);
    for (int64_t k = 0; k < out->count; k++)
        out->f[k] = value_round(dtype, out->f[k]);
    free(n.groups);
    for (unsigned i = 0; i < r->n_inputs; i++)
        values_destroy(in[i]);
    return out;
}
