/* Attention and its gradients, row by row: in long double where the result has f64, and else in double, which is exact enough there and takes a third
 * of the time. */
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

#define NUMBER long double
#define OF(name) name##_wide
#define CALL(function) function##l
#include "tests/device/reference_attention_rows.inc"
#undef NUMBER
#undef OF
#undef CALL

#define NUMBER double
#define OF(name) name##_narrow
#define CALL(function) function
#include "tests/device/reference_attention_rows.inc"

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
    if (dtype == DTYPE_F64)
        rows_wide(&a, r->output, out);
    else
        rows_narrow(&a, r->output, out);
    for (int64_t k = 0; k < out->count; k++)
        out->f[k] = value_round(dtype, out->f[k]);
    values_destroy(a.q);
    values_destroy(a.k);
    values_destroy(a.v);
    values_destroy(a.gradient);
    values_destroy(a.result);
    values_destroy(a.spread);
    return out;
}
