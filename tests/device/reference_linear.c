#include <math.h>

#include "tests/device/reference.h"

/* x/2 · (1 + tanh(u)), written so that a tanh near -1 costs no digits. */
static long double gelu_tanh(long double x) {
    long double u = sqrtl(2 / 3.14159265358979323846264338327950288L) * (x + 0.044715L * x * x * x);
    return x / (1 + expl(-2 * u));
}

static long double activate_float(int64_t activation, long double x) {
    if (activation == OP_ACTIVATION_GELU_TANH)
        return gelu_tanh(x);
    return activation == OP_ACTIVATION_RELU && x < 0 ? 0 : x;
}

/* One element: row `row` of x by row `column` of the weight. */
static void linear_float(struct values *out, const struct values *x, const struct values *weight,
                         const struct values *bias, int64_t activation, int64_t k, int64_t row, int64_t column) {
    int64_t at = row * (weight->rank == 2 ? weight->shape[0] : 1) + column;
    long double sum = bias ? bias->f[column] : 0, magnitude = fabsl(sum);
    for (int64_t i = 0; i < k; i++) {
        long double term = x->f[row * k + i] * weight->f[column * k + i];
        sum += term;
        magnitude += fabsl(term);
    }
    out->f[at] = value_round(out->dtype, activate_float(activation, sum));
    out->scale[at] = magnitude;
}

static void linear_integer(struct values *out, const struct values *x, const struct values *weight,
                           const struct values *bias, int64_t activation, int64_t k, int64_t row, int64_t column) {
    int64_t at = row * (weight->rank == 2 ? weight->shape[0] : 1) + column;
    uint64_t sum = bias ? (uint64_t)bias->i[column] : 0;
    for (int64_t i = 0; i < k; i++)
        sum += (uint64_t)x->i[row * k + i] * (uint64_t)weight->i[column * k + i];
    int64_t wrapped = value_wrap(out->dtype, (int64_t)sum);
    out->i[at] = activation == OP_ACTIVATION_RELU && value_order(out->dtype, wrapped, 0) < 0 ? 0 : wrapped;
}

static bool linear_refused(const struct reference_request *r, enum op_activation activation, enum dtype dtype) {
    const struct values *x = r->inputs[0], *weight = r->inputs[1], *bias = r->n_inputs == 3 ? r->inputs[2] : NULL;
    if (x->rank == 0 || weight->rank < 1 || weight->rank > 2 || dtype == DTYPE_BOOL ||
        x->shape[x->rank - 1] != weight->shape[weight->rank - 1])
        return true;
    if (bias && (bias->rank != weight->rank - 1 || (bias->rank == 1 && bias->shape[0] != weight->shape[0])))
        return true;
    return activation == OP_ACTIVATION_GELU_TANH && !value_is_float(dtype);
}

struct values *reference_linear(const struct reference_request *r) {
    bool has_bias = r->n_inputs == 3, f8 = dtype_is_f8(r->inputs[0]->dtype) && dtype_is_f8(r->inputs[1]->dtype);
    enum dtype dtype = f8 ? DTYPE_F32 : reference_promote(r->inputs[0]->dtype, r->inputs[1]->dtype);
    if (has_bias)
        dtype = reference_promote(dtype, r->inputs[2]->dtype);
    struct linear_attributes given;
    linear_attributes_read(&r->attributes, &given);
    if (linear_refused(r, given.activation, dtype))
        return NULL;
    struct values *x = reference_cast(r->inputs[0], dtype), *weight = reference_cast(r->inputs[1], dtype);
    struct values *bias = has_bias ? reference_cast(r->inputs[2], dtype) : NULL;
    int64_t shape[VALUES_RANK_MAX], rows = 1, k = x->shape[x->rank - 1], n = weight->rank == 2 ? weight->shape[0] : 1;
    int rank = x->rank - 1;
    for (int i = 0; i < rank; i++)
        rows *= shape[i] = x->shape[i];
    if (weight->rank == 2)
        shape[rank++] = n;
    struct values *out = values_create(dtype, rank, shape);
    if (out->f)
        values_scaled(out, (double)(k + 1));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++)
            (out->f ? linear_float : linear_integer)(out, x, weight, bias, given.activation, k, i, j);
    reference_loosen_f8(out, r->inputs[0], r->inputs[1]);
    values_destroy(x);
    values_destroy(weight);
    values_destroy(bias);
    return out;
}
