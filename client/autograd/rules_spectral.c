/* Rules of eigenvalues and singular values. Where a matrix has equal values, the gradient by vectors is infinite or NaN, as in
 * PyTorch, because equal values have no defined vectors; that by values alone does not divide by what they differ. Further columns of U, or rows
 * of Vᴴ, are divided by S. Source: Giles, Collected Matrix Derivative Results for Forward and Reverse Mode Algorithmic Differentiation (2008). */
#include "client/autograd/rule.h"

/* A vector's elements as one row. */
static td_tensor *as_row(td_tensor *x) {
    int64_t shape[TD_RANK_MAX];
    if (!x)
        return NULL;
    int rank = td_tensor_rank(x);
    for (int i = 0; i < rank - 1; i++)
        shape[i] = td_tensor_shape(x)[i];
    shape[rank - 1] = 1;
    shape[rank] = td_tensor_shape(x)[rank - 1];
    return td_reshape(x, rank + 1, shape);
}

/* u · diag(values) · vᴴ */
static td_tensor *composed(td_tensor *u, td_tensor *values, td_tensor *vh) {
    return td_matmul(td_multiply(u, as_row(values)), vh);
}

/* True on the diagonal of the matrices (…, n, n) that go with values (…, n). */
static td_tensor *diagonal_of(const struct rule_call *call, td_tensor *values) {
    int64_t n = values ? td_tensor_shape(values)[td_tensor_rank(values) - 1] : 0;
    return td_eye(call->node->device, TD_BOOL, n, n, 0);
}

/* At (i, j) 1 / (values[j] - values[i]), 0 on the diagonal. */
static td_tensor *inverse_gaps(const struct rule_call *call, td_tensor *values) {
    td_tensor *diagonal = diagonal_of(call, values), *row = as_row(values);
    td_tensor *gaps = td_where(diagonal, rule_number(values, 1), td_subtract(row, td_transpose(row)));
    return td_where(diagonal, rule_number(values, 0), td_reciprocal(gaps));
}

static td_tensor *mean_with_adjoint(td_tensor *x) {
    return rule_scale(td_add(x, rule_adjoint(x)), 0.5);
}

/* V · (diag(gradient by values) + Vᴴ · gradient by vectors / gaps, element by element) · Vᴴ. The gradient counts `a` as Hermitian, and so is
 * it, though only one triangle is read. */
RULE(eigh) {
    td_tensor *values = rule_output(call, 0), *v = rule_output(call, 1), *by_values = NULL, *by_vectors = NULL;
    if (call->g[0])
        by_values = composed(v, call->g[0], rule_adjoint(v));
    if (call->g[1]) {
        td_tensor *inner = td_multiply(td_matmul(rule_adjoint(v), call->g[1]), inverse_gaps(call, values));
        by_vectors = td_matmul(td_matmul(v, mean_with_adjoint(inner)), rule_adjoint(v));
    }
    rule_give(call, 0, !call->g[1] ? by_values : call->g[0] ? td_add(by_values, by_vectors) : by_vectors);
}

/* The vectors are computed with the gradient. */
RULE(eigvalsh) {
    struct eigvalsh_attributes attributes;
    td_tensor *values = NULL, *v = NULL;
    eigvalsh_attributes_read(&call->node->attributes, &attributes);
    td_eigh(rule_input(call, 0), attributes.upper, &values, &v);
    rule_give(call, 0, composed(v, call->g[0], rule_adjoint(v)));
}

/* Columns of matrices, or all of them as they are. */
static td_tensor *columns(td_tensor *x, int64_t start, int64_t stop) {
    bool all = x && start == 0 && stop == td_tensor_shape(x)[td_tensor_rank(x) - 1];
    return all ? x : td_slice(x, -1, start, stop, 1);
}

/* The gradient by U of a · V = U · diag(S), for a V that is square. U's first k columns are U1; the further ones, U2, if there are any, are a basis of
 * the space that is left, so what is computed from them must not depend on which basis it is: they turn with U1, and not in their space. */
static td_tensor *outside(td_tensor *u, td_tensor *gu, int64_t k) {
    td_tensor *u1 = columns(u, 0, k), *g1 = columns(gu, 0, k);
    td_tensor *rest = td_subtract(g1, td_matmul(u1, td_matmul(rule_adjoint(u1), g1)));
    int64_t all = u ? td_tensor_shape(u)[td_tensor_rank(u) - 1] : k;
    if (all == k)
        return rest;
    td_tensor *u2 = columns(u, k, all), *g2 = columns(gu, k, all);
    return td_subtract(rest, td_matmul(u2, td_matmul(rule_adjoint(g2), u1)));
}

static td_tensor *minus_adjoint(td_tensor *x) {
    return td_subtract(x, rule_adjoint(x));
}

/* With E[i, j] = s[j]² - s[i]² and / element by element outside the diagonal:
 * U1 · (skew(U1ᴴ · gU) / E · S + S · skew(V1ᴴ · gV) / E + diag(gS)) · V1ᴴ, with skew(X) = X - Xᴴ, and
 * what is outside of the spaces of U1 and V1, by S. The vectors of a complex matrix may turn together: that what is computed does not depend on by
 * how much gives U1ᴴ · gU and V1ᴴ · gV opposite imaginary parts on their diagonals, and U1 · diag(i · imag(U1ᴴ · gU) / S) · V1ᴴ is the gradient by
 * how far U turns and V does not. */
RULE(svd) {
    td_tensor *u = rule_output(call, 0), *s = rule_output(call, 1), *vh = rule_output(call, 2);
    td_tensor *gu = call->g[0], *gs = call->g[1], *gv = call->g[2] ? rule_adjoint(call->g[2]) : NULL;
    const struct tensor_type *type = rule_type(call, 0);
    int64_t m = type->shape[type->rank - 2], n = type->shape[type->rank - 1], k = m < n ? m : n;
    td_tensor *u1 = columns(u, 0, k), *v1h = n > k ? td_slice(vh, -2, 0, k, 1) : vh;
    td_tensor *row = as_row(s), *column = td_transpose(row), *parts[5];
    int count = 0;
    if (gs)
        parts[count++] = composed(u1, gs, v1h);
    if (gu) {
        td_tensor *skew = minus_adjoint(td_matmul(rule_adjoint(u1), columns(gu, 0, k)));
        td_tensor *inner = td_multiply(td_multiply(skew, inverse_gaps(call, td_square(s))), row);
        if (dtype_is_complex(type->dtype)) /* twice the diagonal's imaginary parts */
            inner = td_where(diagonal_of(call, s), td_divide(rule_scale(skew, 0.5), row), inner);
        parts[count++] = td_matmul(td_matmul(u1, inner), v1h);
        if (m > k)
            parts[count++] = td_matmul(td_divide(outside(u, gu, k), row), v1h);
    }
    if (gv) {
        td_tensor *skew = minus_adjoint(td_matmul(v1h, columns(gv, 0, k)));
        td_tensor *inner = td_multiply(td_multiply(skew, inverse_gaps(call, td_square(s))), column);
        parts[count++] = td_matmul(td_matmul(u1, inner), v1h);
        if (n > k)
            parts[count++] = td_matmul(td_divide(u1, row), rule_adjoint(outside(rule_adjoint(vh), gv, k)));
    }
    td_tensor *sum = parts[0];
    for (int i = 1; i < count; i++)
        sum = td_add(sum, parts[i]);
    rule_give(call, 0, sum);
}

/* The vectors are computed with the gradient. */
RULE(svdvals) {
    td_tensor *u = NULL, *s = NULL, *vh = NULL;
    td_svd(rule_input(call, 0), 0, &u, &s, &vh);
    rule_give(call, 0, composed(u, call->g[0], vh));
}
