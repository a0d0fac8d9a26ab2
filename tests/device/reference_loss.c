/* Losses, by their formulas. */
#include <math.h>
#include <string.h>

#include "tests/device/reference.h"

/* The dtype to which all inputs promote but those in `roles`. */
static enum dtype dtype_of(const struct reference_request *r, unsigned roles) {
    enum dtype dtype = DTYPE_INVALID;
    for (unsigned i = 0; i < r->n_inputs; i++)
        if (!(roles >> i & 1))
            dtype = dtype == DTYPE_INVALID ? r->inputs[i]->dtype : reference_promote(dtype, r->inputs[i]->dtype);
    return dtype;
}

/* The loss of single losses, which it takes over: for a mean their sum is divided by `count`. */
static struct values *reduced(struct values *each, enum op_reduction reduction, long double count) {
    if (reduction == OP_REDUCTION_NONE)
        return each;
    struct values *out = values_create(each->dtype, 0, NULL);
    values_scaled(out, (double)each->count + each->terms);
    long double by = reduction == OP_REDUCTION_MEAN ? count : 1, sum = 0;
    for (int64_t k = 0; k < each->count; k++) {
        sum += each->f[k];
        out->scale[0] += each->scale[k] / by;
    }
    out->f[0] = sum / by;
    values_destroy(each);
    return out;
}

static void round_all(struct values *out) {
    for (int64_t k = 0; k < out->count; k++)
        out->f[k] = value_round(out->dtype, out->f[k]);
}

/* ---- losses of classes ---- */

struct given {
    enum op_reduction reduction;
    bool back, soft, plain;
    int64_t ignored;
    long double smoothing;
    struct values *scores, *wanted, *weight, *gradient;
    const struct values *targets;
    int64_t classes, step; /* the way from one class to the next */
};

static void given_read(struct given *g, const struct reference_request *r) {
    struct cross_entropy_attributes indices;
    struct soft_cross_entropy_attributes soft;
    struct nll_loss_attributes nll;
    g->back =
        r->opcode == OP_CROSS_ENTROPY_GRAD || r->opcode == OP_SOFT_CROSS_ENTROPY_GRAD || r->opcode == OP_NLL_LOSS_GRAD;
    g->soft = r->opcode == OP_SOFT_CROSS_ENTROPY || r->opcode == OP_SOFT_CROSS_ENTROPY_GRAD;
    g->plain = r->opcode == OP_NLL_LOSS || r->opcode == OP_NLL_LOSS_GRAD;
    if (g->soft) {
        soft_cross_entropy_attributes_read(&r->attributes, &soft);
        g->reduction = soft.reduction;
        g->smoothing = soft.label_smoothing;
    } else if (g->plain) {
        nll_loss_attributes_read(&r->attributes, &nll);
        g->reduction = nll.reduction;
        g->ignored = nll.ignore_index;
    } else {
        cross_entropy_attributes_read(&r->attributes, &indices);
        g->reduction = indices.reduction;
        g->ignored = indices.ignore_index;
        g->smoothing = indices.label_smoothing;
    }
}

static void given_operands(struct given *g, const struct reference_request *r) {
    unsigned first = g->back, targets = first + 1;
    enum dtype dtype = dtype_of(r, g->soft ? 0 : 1u << targets);
    g->gradient = g->back ? reference_cast(r->inputs[0], dtype) : NULL;
    g->scores = reference_cast(r->inputs[first], dtype);
    g->wanted = g->soft ? reference_cast(r->inputs[targets], dtype) : NULL;
    g->targets = g->soft ? NULL : r->inputs[targets];
    g->weight = r->n_inputs > first + 2 ? reference_cast(r->inputs[first + 2], dtype) : NULL;
    int axis = g->scores->rank == 1 ? 0 : 1;
    g->classes = g->scores->shape[axis];
    g->step = 1;
    for (int i = axis + 1; i < g->scores->rank; i++)
        g->step *= g->scores->shape[i];
}

/* Of a row, and a class. */
static int64_t place(const struct given *g, int64_t row, int64_t c) {
    return (row / g->step * g->classes + c) * g->step + row % g->step;
}

/* What turns a row's scores into logarithms of probabilities. */
struct shift {
    long double greatest, logarithm;
};

static struct shift shift_of(const struct given *g, int64_t row) {
    struct shift shift = {.greatest = -INFINITY};
    long double sum = 0;
    if (g->plain)
        return (struct shift){0, 0};
    for (int64_t i = 0; i < g->classes; i++)
        shift.greatest = fmaxl(shift.greatest, g->scores->f[place(g, row, i)]);
    for (int64_t i = 0; i < g->classes; i++)
        sum += expl(g->scores->f[place(g, row, i)] - shift.greatest);
    shift.logarithm = logl(sum);
    return shift;
}

static long double weight_of(const struct given *g, int64_t c) {
    return g->weight ? g->weight->f[c] : 1;
}

static long double factor_of(const struct given *g, int64_t row, int64_t c) {
    long double own = g->wanted ? g->wanted->f[place(g, row, c)] : c == g->targets->i[row];
    return weight_of(g, c) * ((1 - g->smoothing) * own + g->smoothing / (long double)g->classes);
}

static void loss_of(const struct given *g, int64_t row, struct values *out) {
    struct shift shift = shift_of(g, row);
    for (int64_t c = 0; c < g->classes; c++) {
        long double factor = factor_of(g, row, c);
        if (factor == 0)
            continue;
        long double log = g->scores->f[place(g, row, c)] - shift.greatest - shift.logarithm;
        out->f[row] -= factor * log;
        out->scale[row] += fabsl(factor) * (fabsl(log) + fabsl(shift.greatest) + 1);
    }
}

static void gradient_of(const struct given *g, int64_t row, long double gradient, struct values *out) {
    struct shift shift = shift_of(g, row);
    long double all = 0, most = 0;
    for (int64_t c = 0; c < g->classes; c++) {
        all += factor_of(g, row, c);
        most += fabsl(factor_of(g, row, c));
    }
    for (int64_t c = 0; c < g->classes; c++) {
        int64_t at = place(g, row, c);
        long double part = g->plain ? 0 : expl(g->scores->f[at] - shift.greatest - shift.logarithm);
        out->f[at] = gradient * (all * part - factor_of(g, row, c));
        out->scale[at] = fabsl(gradient) * (most * part * (1 + fabsl(shift.greatest)) + fabsl(factor_of(g, row, c)));
    }
}

static struct values *losses(const struct given *g) {
    const struct values *like = g->back ? g->scores : g->targets;
    struct values *out;
    int64_t rows = g->scores->count / g->classes, shape[VALUES_RANK_MAX] = {0};
    long double count = 0;
    int rank = 0;
    for (int i = 0; i < g->scores->rank; i++)
        if (i != (g->scores->rank == 1 ? 0 : 1))
            shape[rank++] = g->scores->shape[i];
    out = g->back ? values_create(g->scores->dtype, like->rank, like->shape)
                  : values_create(g->scores->dtype, rank, shape);
    values_scaled(out, (double)g->classes);
    for (int64_t row = 0; row < rows; row++) {
        int64_t target = g->targets ? g->targets->i[row] : 0;
        if (g->targets && target == g->ignored)
            continue;
        if (target < 0 || target >= g->classes)
            return NULL;
        count += g->targets ? weight_of(g, target) : 1;
    }
    for (int64_t row = 0; row < rows; row++) {
        bool each = g->reduction == OP_REDUCTION_NONE;
        if (g->targets && g->targets->i[row] == g->ignored)
            continue;
        if (g->back)
            gradient_of(g, row, g->gradient->f[each ? row : 0] / (g->reduction == OP_REDUCTION_MEAN ? count : 1), out);
        else
            loss_of(g, row, out);
    }
    return g->back ? out : reduced(out, g->reduction, count);
}

struct values *reference_loss(const struct reference_request *r) {
    struct given g = {.ignored = 0};
    given_read(&g, r);
    given_operands(&g, r);
    struct values *out = losses(&g);
    if (out)
        round_all(out);
    values_destroy(g.scores);
    values_destroy(g.wanted);
    values_destroy(g.weight);
    values_destroy(g.gradient);
    return out;
}

/* ---- losses of elements ---- */

struct element {
    long double x, target, weight, positive, delta;
    bool log_target;
};

/* The loss of an element, or its derivative; *size: the magnitudes that went into it. */
static long double element_loss(unsigned opcode, const struct element *v, long double *size) {
    long double d = v->x - v->target, t = v->target, sigmoid = 1 / (1 + expl(-v->x));
    long double softplus = v->x > 0 ? log1pl(expl(-v->x)) : log1pl(expl(v->x)) - v->x;
    switch (opcode) {
    case OP_MSE_LOSS:
        *size = d * d;
        return d * d;
    case OP_MSE_LOSS_GRAD:
        *size = 2 * fabsl(d);
        return 2 * d;
    case OP_L1_LOSS:
        *size = fabsl(d);
        return fabsl(d);
    case OP_L1_LOSS_GRAD:
        *size = 1;
        return d > 0 ? 1 : d < 0 ? -1 : d;
    case OP_HUBER_LOSS:
        *size = d * d + v->delta * (fabsl(d) + v->delta);
        return fabsl(d) <= v->delta ? d * d / 2 : v->delta * (fabsl(d) - v->delta / 2);
    case OP_HUBER_LOSS_GRAD:
        *size = fabsl(d);
        return d > v->delta ? v->delta : d < -v->delta ? -v->delta : d;
    case OP_BCE_WITH_LOGITS:
        *size = fabsl(v->weight) * (fabsl((1 - t) * v->x) + (1 + (fabsl(v->positive) + 1) * fabsl(t)) * softplus);
        return v->weight * ((1 - t) * v->x + (1 + (v->positive - 1) * t) * softplus);
    case OP_BCE_WITH_LOGITS_GRAD:
        *size = fabsl(v->weight) * (1 + fabsl(t) + 2 * fabsl(v->positive * t));
        return v->weight * ((1 - t + v->positive * t) * sigmoid - v->positive * t);
    case OP_BCE_WITH_LOGITS_TARGET_GRAD:
        *size = fabsl(v->weight) * (fabsl(v->x) + (fabsl(v->positive) + 1) * softplus);
        return v->weight * ((v->positive - 1) * softplus - v->x);
    case OP_KL_DIV_TARGET_GRAD:
        *size = v->log_target ? expl(t) * (fabsl(t) + fabsl(v->x) + 1) : t > 0 ? fabsl(logl(t)) + fabsl(v->x) + 1 : 0;
        return v->log_target ? expl(t) * (t - v->x + 1) : t == 0 ? 0 : logl(t) + 1 - v->x;
    case OP_KL_DIV:
        if (v->log_target) {
            *size = expl(t) * (fabsl(t) + fabsl(v->x));
            return expl(t) * (t - v->x);
        }
        *size = t > 0 ? t * (fabsl(logl(t)) + fabsl(v->x)) : 0;
        return (t == 0 ? 0 : t * logl(t)) - t * v->x;
    default:
        *size = v->log_target ? expl(t) : fabsl(t);
        return v->log_target ? -expl(t) : -t;
    }
}

struct values *reference_element_loss(const struct reference_request *r) {
    bool back = r->opcode == OP_MSE_LOSS_GRAD || r->opcode == OP_L1_LOSS_GRAD || r->opcode == OP_HUBER_LOSS_GRAD ||
                r->opcode == OP_BCE_WITH_LOGITS_GRAD || r->opcode == OP_KL_DIV_GRAD ||
                r->opcode == OP_BCE_WITH_LOGITS_TARGET_GRAD || r->opcode == OP_KL_DIV_TARGET_GRAD;
    enum op_reduction reduction = (enum op_reduction)r->attributes.ints[0];
    enum dtype dtype = dtype_of(r, 0);
    const struct values *x = r->inputs[back];
    struct values *in[5] = {NULL};
    for (unsigned i = 0; i < r->n_inputs; i++) {
        struct values *cast = reference_cast(r->inputs[i], dtype);
        in[i] = i < back ? values_copy(cast) : reference_broadcast_to(cast, x->rank, x->shape);
        values_destroy(cast);
    }
    struct values *out = values_create(dtype, x->rank, x->shape);
    values_scaled(out, 4);
    for (int64_t k = 0; k < out->count; k++) {
        struct element v = {.x = in[back]->f[k],
                            .target = in[back + 1]->f[k],
                            .weight = r->n_inputs > back + 2u ? in[back + 2]->f[k] : 1,
                            .positive = r->n_inputs > back + 3u ? in[back + 3]->f[k] : 1,
                            .delta = r->attributes.n_floats ? r->attributes.floats[0] : 0,
                            .log_target = r->attributes.n_ints > 1 && r->attributes.ints[1]};
        long double loss = element_loss(r->opcode, &v, &out->scale[k]), gradient = 1;
        if (back)
            gradient = reduction == OP_REDUCTION_NONE ? in[0]->f[k] : in[0]->f[0];
        if (back && reduction == OP_REDUCTION_MEAN)
            gradient /= (long double)out->count;
        out->f[k] = gradient * loss;
        out->scale[k] *= fabsl(gradient);
    }
    struct values *result = back ? out : reduced(out, reduction, (long double)out->count);
    round_all(result);
    return result;
}
