/* The geometry of attention, and its operands by their roles. */
#pragma once

#include <math.h>

#include "engine/device/launch.h"

struct attention {
    int64_t batch, heads, kv_heads, group; /* group: q's heads that share one of k and v */
    int64_t n, m, d, e;
    double scale;
    bool causal, back;
    const void *gradient, *q, *k, *v, *result, *logsumexp;
    void *out[3];               /* the result and logsumexp, or the gradients by q, k and v */
    const struct operand *mask; /* NULL: there is none */
};

static inline struct attention attention_make(const struct launch *launch) {
    struct attention a;
    struct attention_attributes given;
    attention_attributes_read(&launch->attributes, &given);
    a.back = launch->opcode == OP_ATTENTION_GRAD;
    const struct operand *in = launch->inputs, *qkv = in + (a.back ? 1 : 0);
    const unsigned plain = a.back ? 6 : 3;
    a.batch = qkv[0].shape[0];
    a.heads = qkv[0].shape[1];
    a.n = qkv[0].shape[2];
    a.d = qkv[0].shape[3];
    a.kv_heads = qkv[1].shape[1];
    a.m = qkv[1].shape[2];
    a.e = qkv[2].shape[3];
    a.group = a.kv_heads > 0 ? a.heads / a.kv_heads : 1;
    a.scale = given.scale != 0 ? given.scale : 1 / sqrt((double)a.d);
    a.causal = given.is_causal;
    a.q = qkv[0].data;
    a.k = qkv[1].data;
    a.v = qkv[2].data;
    a.gradient = a.back ? in[0].data : NULL;
    a.result = a.back ? in[4].data : NULL;
    a.logsumexp = a.back ? in[5].data : NULL;
    a.mask = launch->n_inputs > plain ? &in[plain] : NULL;
    a.out[0] = launch->output.data;
    for (unsigned i = 1; i < 3; i++)
        a.out[i] = i <= launch->further ? launch_further(launch, i)->data : NULL;
    return a;
}
