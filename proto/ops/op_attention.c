/* Rules of attention. They follow torch.nn.functional.scaled_dot_product_attention. */
#include <inttypes.h>
#include <math.h>

#include "proto/ops/op_rules.h"

static int refuse_shapes(const struct tensor_type *const qkv[3], const char *why, struct fault *fault) {
    char q[SHAPE_TEXT_MAX], k[SHAPE_TEXT_MAX], v[SHAPE_TEXT_MAX];
    return fault_set(fault, STATUS_SHAPE, "q %s, k %s, v %s: %s", shape_text(qkv[0], q), shape_text(qkv[1], k),
                     shape_text(qkv[2], v), why);
}

static int check_shapes(const struct tensor_type *const qkv[3], struct fault *fault) {
    const struct tensor_type *q = qkv[0], *k = qkv[1], *v = qkv[2];
    int rank = q->rank;
    if (rank < 2 || k->rank != rank || v->rank != rank) {
        return refuse_shapes(qkv, "they have one rank, 2 or more", fault);
    }
    if (q->shape[rank - 1] < 1 || q->shape[rank - 1] != k->shape[rank - 1] || v->shape[rank - 1] < 1) {
        return refuse_shapes(qkv, "q and k have one last extent, and no last extent is 0", fault);
    }
    if (k->shape[rank - 2] != v->shape[rank - 2]) {
        return refuse_shapes(qkv, "k and v have one number of keys", fault);
    }
    for (int i = 0; i + 2 < rank; i++) {
        bool heads = i + 3 == rank, groups = heads && k->shape[i] > 0 && q->shape[i] % k->shape[i] == 0;
        if (k->shape[i] != v->shape[i] || (k->shape[i] != q->shape[i] && !groups)) {
            return refuse_shapes(
                qkv, heads ? "q's heads are no multiple of those of k and v" : "their leading axes differ", fault);
        }
    }
    return STATUS_OK;
}

static int check_mask(const struct tensor_type *mask, const struct tensor_type *q, int64_t keys, struct fault *fault) {
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    struct tensor_type scores = *q, both = {.rank = 0};
    scores.shape[scores.rank - 1] = keys;
    if (mask->dtype != DTYPE_BOOL && (dtype_kind(mask->dtype) != DTYPE_KIND_FLOAT || dtype_is_f8(mask->dtype))) {
        return fault_set(fault, STATUS_DTYPE, "the mask is %s, neither bool nor floating", dtype_name(mask->dtype));
    }
    if (shape_broadcast(&both, &scores, mask, NULL) == STATUS_OK && shape_equal(&both, &scores)) {
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_SHAPE, "the mask %s does not broadcast to %s", shape_text(mask, a),
                     shape_text(&scores, b));
}

static int check_scale(const struct op_call *call, struct fault *fault) {
    struct attention_attributes given;
    attention_attributes_read(call->attributes, &given);
    return isfinite(given.scale) ? STATUS_OK
                                 : fault_set(fault, STATUS_INVALID_ARGUMENT, "scale is %g, not finite", given.scale);
}

static int check_all(const struct op_call *call, unsigned first, unsigned mask, struct fault *fault) {
    const struct tensor_type *const *qkv = call->inputs + first;
    int status = check_shapes(qkv, fault);
    if (status == STATUS_OK && call->n_inputs > mask) {
        status = check_mask(call->inputs[mask], qkv[0], qkv[1]->shape[qkv[1]->rank - 2], fault);
    }
    return status == STATUS_OK ? check_scale(call, fault) : status;
}

/* The shapes of the result and of logsumexp. */
static void forward_shapes(const struct tensor_type *const qkv[3], struct tensor_type *result,
                           struct tensor_type *logsumexp) {
    op_copy_shape(result, qkv[0]);
    op_copy_shape(logsumexp, qkv[0]);
    result->shape[result->rank - 1] = qkv[2]->shape[qkv[2]->rank - 1];
    logsumexp->rank--;
}

int op_rule_attention(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = check_all(call, 0, 3, fault);
    if (status == STATUS_OK) {
        forward_shapes(call->inputs, &out[0], &out[1]);
    }
    return status;
}

int op_rule_attention_grad(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    static const struct {
        unsigned input;
        const char *name;
    } rows[] = {{0, "gradient"}, {4, "result"}, {5, "logsumexp"}};
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    struct tensor_type wanted[2] = {{.rank = 0}, {.rank = 0}};
    int status = check_all(call, 1, 6, fault);
    if (status != STATUS_OK) {
        return status;
    }
    forward_shapes(call->inputs + 1, &wanted[0], &wanted[1]);
    for (unsigned i = 0; i < 3; i++) {
        const struct tensor_type *given = call->inputs[rows[i].input], *is = &wanted[i == 2];
        if (!shape_equal(given, is)) {
            return fault_set(fault, STATUS_SHAPE, "%s %s is not %s", rows[i].name, shape_text(given, a),
                             shape_text(is, b));
        }
    }
    if (call->inputs[5]->dtype != op_computed(out[0].dtype)) {
        return fault_set(fault, STATUS_DTYPE, "logsumexp is %s, and %s is computed in %s",
                         dtype_name(call->inputs[5]->dtype), dtype_name(out[0].dtype),
                         dtype_name(op_computed(out[0].dtype)));
    }
    for (unsigned i = 0; i < 3; i++) {
        op_copy_shape(&out[i], call->inputs[1 + i]);
    }
    return STATUS_OK;
}
