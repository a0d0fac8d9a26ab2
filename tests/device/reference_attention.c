/* Attention and its gradients, row by row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/reference.h"

struct attention {
    struct values *q, *k, *v, *gradient, *result;
    const struct values *mask, *logsumexp; /* NULL: there is none */
    struct values *spread;                 /* the mask in the scores' shape */
    int64_t n, m, d, e, heads, kv_heads;
    long double scale;
    bool causal;
};

static enum dtype attention_open(struct attention *a, const struct reference_request *r) {
    bool back = r->opcode == OP_ATTENTION_GRAD;
    struct attention_attributes given;
    enum dtype dtype = r->inputs[0]->dtype;
    attention_attributes_read(&r->attributes, &given);
    for (unsigned i = 1; i < (back ? 5 : 3); i++)
        dtype = reference_promote(dtype, r->inputs[i]->dtype);
    *a = (struct attention){.causal = given.is_causal};
    a->q = reference_cast(r->inputs[back], dtype);
    a->k = reference_cast(r->inputs[back + 1], dtype);
    a->v = reference_cast(r->inputs[back + 2], dtype);
    a->gradient = back ? reference_cast(r->inputs[0], dtype) : NULL;
    a->result = back ? reference_cast(r->inputs[4], dtype) : NULL;
    a->logsumexp = back ? r->inputs[5] : NULL;
    a->mask = r->n_inputs > (back ? 6 : 3) ? r->inputs[back ? 6 : 3] : NULL;
    int last = a->q->rank - 1;
    a->n = a->q->shape[last - 1];
    a->d = a->q->shape[last];
    a->m = a->k->shape[last - 1];
    a->e = a->v->shape[last];
    a->heads = last > 1 ? a->q->shape[last - 2] : 1;
    a->kv_heads = last > 1 ? a->k->shape[last - 2] : 1;
    a->scale = given.scale != 0 ? given.scale : 1 / sqrtl((long double)a->d);
    if (a->mask) {
        int64_t shape[VALUES_RANK_MAX];
        memcpy(shape, a->q->shape, sizeof shape);
        shape[last] = a->m;
        a->spread = reference_broadcast_to(a->mask, a->q->rank, shape);
    }
    return dtype;
}

/* The first key of a row of q; rows are counted over all heads. */
static int64_t keys_of(const struct attention *a, int64_t row) {
    int64_t head = row / a->n;
    return (head / a->heads * a->kv_heads + head % a->heads / (a->heads / a->kv_heads)) * a->m;
}

/* The scores of a row; *size: the magnitude of what went into them. */
static void scores_of(const struct attention *a, int64_t row, long double *scores, long double *size) {
    int64_t keys = keys_of(a, row);
    *size = 0;
    for (int64_t j = 0; j < a->m; j++) {
        long double sum = 0, most = 0;
        for (int64_t c = 0; c < a->d; c++) {
            long double product = a->q->f[row * a->d + c] * a->k->f[(keys + j) * a->d + c];
            sum += product;
            most += fabsl(product);
        }
        scores[j] = sum * a->scale;
        most *= fabsl(a->scale);
        if (a->spread && a->spread->i) {
            scores[j] = a->spread->i[row * a->m + j] ? scores[j] : -INFINITY;
        } else if (a->spread) {
            scores[j] += a->spread->f[row * a->m + j];
            most += isinf(a->spread->f[row * a->m + j]) ? 0 : fabsl(a->spread->f[row * a->m + j]);
        }
        if (a->causal && j > row % a->n)
            scores[j] = -INFINITY;
        *size = fmaxl(*size, most);
    }
}

static long double logsumexp_of(const struct attention *a, const long double *scores) {
    long double greatest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->m; j++)
        greatest = fmaxl(greatest, scores[j]);
    if (greatest == -INFINITY)
        return greatest;
    for (int64_t j = 0; j < a->m; j++)
        sum += expl(scores[j] - greatest);
    return greatest + logl(sum);
}

/* The parts of a row in place of its scores. */
static void parts_of(const struct attention *a, long double logsumexp, long double *scores) {
    for (int64_t j = 0; j < a->m; j++)
        scores[j] = logsumexp == -INFINITY ? 0 : expl(scores[j] - logsumexp);
}

static void row_forward(const struct attention *a, int64_t row, unsigned output, long double *scores,
                        struct values *out) {
    long double size;
    scores_of(a, row, scores, &size);
    long double logsumexp = logsumexp_of(a, scores);
    if (output == 1) {
        out->f[row] = logsumexp;
        out->scale[row] = 1 + size + (isinf(logsumexp) ? 0 : fabsl(logsumexp));
        return;
    }
    parts_of(a, logsumexp, scores);
    for (int64_t j = 0; j < a->m; j++)
        for (int64_t c = 0; c < a->e; c++) {
            long double product = scores[j] * a->v->f[(keys_of(a, row) + j) * a->e + c];
            out->f[row * a->e + c] += product;
            out->scale[row * a->e + c] += fabsl(product) * (1 + 2 * size);
        }
}

static void row_backward(const struct attention *a, int64_t row, unsigned output, long double *scores,
                         struct values *out) {
    long double size, dot = 0, dot_size = 0;
    int64_t keys = keys_of(a, row);
    scores_of(a, row, scores, &size);
    size += 1 + (isinf(a->logsumexp->f[row]) ? 0 : fabsl(a->logsumexp->f[row]));
    parts_of(a, a->logsumexp->f[row], scores);
    const long double *gradient = a->gradient->f + row * a->e;
    for (int64_t c = 0; c < a->e; c++) {
        dot += gradient[c] * a->result->f[row * a->e + c];
        dot_size += fabsl(gradient[c] * a->result->f[row * a->e + c]);
    }
    for (int64_t j = 0; j < a->m; j++) {
        long double by_part = 0, most = dot_size, part = scores[j];
        for (int64_t c = 0; c < a->e; c++) {
            long double product = gradient[c] * a->v->f[(keys + j) * a->e + c];
            by_part += product;
            most += fabsl(product);
        }
        long double slope = part * (by_part - dot) * a->scale, slope_size = part * most * fabsl(a->scale) * 2 * size;
        for (int64_t c = 0; c < a->d && output < 2; c++) {
            int64_t at = output == 0 ? row * a->d + c : (keys + j) * a->d + c;
            long double other = output == 0 ? a->k->f[(keys + j) * a->d + c] : a->q->f[row * a->d + c];
            out->f[at] += slope * other;
            out->scale[at] += slope_size * fabsl(other);
        }
        for (int64_t c = 0; c < a->e && output == 2; c++) {
            out->f[(keys + j) * a->e + c] += part * gradient[c];
            out->scale[(keys + j) * a->e + c] += part * fabsl(gradient[c]) * 2 * size;
        }
    }
}

struct values *reference_attention(const struct reference_request *r) {
    bool back = r->opcode == OP_ATTENTION_GRAD;
    struct attention a;
    enum dtype dtype = attention_open(&a, r);
    const struct values *like = !back || r->output == 0 ? a.q : r->output == 1 ? a.k : a.v;
    int64_t shape[VALUES_RANK_MAX];
    int rank = like->rank - (!back && r->output == 1);
    memcpy(shape, like->shape, sizeof shape);
    if (!back)
        shape[like->rank - 1] = a.e;
    if (!back && r->output == 1 && dtype != DTYPE_F64)
        dtype = DTYPE_F32;
    struct values *out = values_create(dtype, rank, shape);
    values_scaled(out, (double)(a.n + a.m + a.d + a.e));
    long double *scores = calloc((size_t)a.m + 1, sizeof *scores);
    for (int64_t row = 0; row < a.q->count / a.d; row++) {
        if (back)
            row_backward(&a, row, r->output, scores, out);
        else
            row_forward(&a, row, r->output, scores, out);
    }
    for (int64_t k = 0; k < out->count; k++)
        out->f[k] = value_round(dtype, out->f[k]);
    free(scores);
    values_destroy(a.q);
    values_destroy(a.k);
    values_destroy(a.v);
    values_destroy(a.gradient);
    values_destroy(a.result);
    values_destroy(a.spread);
    return out;
}
