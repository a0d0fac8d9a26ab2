/* Rules of decompositions and of systems of linear equations. Above all: Giles, Collected Matrix Derivative Results for Forward and Reverse Mode
 * Algorithmic Differentiation (2008). Walter and Lehmann, Algorithmic Differentiation of Linear Algebra Functions (2010), for QR. Of complex matrices
 * the same formulas hold with the conjugate transpose (ᴴ), where what is real by definition, such as a diagonal, stays so. */
#include "client/autograd/rule.h"

#include <float.h>

/* x · t⁻¹ for a triangular t. */
static td_tensor *right_solve(td_tensor *x, td_tensor *t, bool upper, bool unit_diagonal) {
    return td_transpose(td_triangular_solve(td_transpose(t), td_transpose(x), !upper, unit_diagonal));
}

/* Square matrices with only the real parts of their diagonals. */
static td_tensor *with_real_diagonal(td_tensor *x) {
    if (!x || !dtype_is_complex(x->type.dtype))
        return x;
    int64_t n = x->type.shape[x->type.rank - 1];
    return td_where(td_eye(x->device, TD_BOOL, n, n, 0), td_real(x), x);
}

/* The triangle that starts at the diagonal, and its mirror image without the diagonal: Hermitian. */
static td_tensor *lower_and_mirror(td_tensor *x) {
    return with_real_diagonal(td_add(td_tril(x, 0), rule_adjoint(td_tril(x, -1))));
}
static td_tensor *upper_and_mirror(td_tensor *x) {
    return with_real_diagonal(td_add(td_triu(x, 0), rule_adjoint(td_triu(x, 1))));
}

/* Vectors as columns. */
static td_tensor *as_column(td_tensor *x, bool vector) {
    int64_t shape[TD_RANK_MAX];
    if (!x || !vector)
        return x;
    int rank = td_tensor_rank(x);
    for (int i = 0; i < rank; i++)
        shape[i] = td_tensor_shape(x)[i];
    shape[rank] = 1;
    return td_reshape(x, rank + 1, shape);
}
static td_tensor *of_column(td_tensor *x, bool vector) {
    return x && vector ? td_reshape(x, td_tensor_rank(x) - 1, td_tensor_shape(x)) : x;
}

/* Numbers (…) as matrices (…, 1, 1). */
static td_tensor *as_matrices(td_tensor *x) {
    return as_column(as_column(x, true), true);
}

/* The gradient counts `a` as Hermitian, and so is it, though only one triangle is read: L⁻ᴴ · S · L⁻¹, in which 2 · S has the lower triangle of
 * Lᴴ · gradient and its mirror image. */
RULE(cholesky) {
    struct cholesky_attributes attributes;
    td_tensor *g = call->g[0], *l = rule_output(call, 0);
    cholesky_attributes_read(&call->node->attributes, &attributes);
    if (attributes.upper) {
        g = rule_adjoint(g);
        l = rule_adjoint(l);
    }
    td_tensor *middle = rule_scale(lower_and_mirror(td_matmul(rule_adjoint(l), g)), 0.5);
    td_tensor *left = td_triangular_solve(rule_adjoint(l), middle, 1, 0);
    rule_give(call, 0, right_solve(left, l, false, false));
}

static td_tensor *columns(td_tensor *x, int64_t start, int64_t stop) {
    return td_slice(x, -1, start, stop, 1);
}
static td_tensor *rows(td_tensor *x, int64_t start, int64_t stop) {
    return td_slice(x, -2, start, stop, 1);
}
static td_tensor *joined(td_tensor *a, td_tensor *b, int axis) {
    return td_concat((td_tensor *const[]){a, b}, 2, axis);
}

/* Of a = P · L · U, in which a wide U is (U1 U2) with a square U1, and of a tall L the upper part L1 is square. With
 * M = tril(Lᴴ · gL, -1) + triu(gU · Uᴴ) a square matrix has P · L⁻ᴴ · M · U⁻ᴴ. The part of M that has further columns of U, or rows of L, in it
 * is made without them, because their gradients go on directly. P does not change with `a`. */
RULE(lu) {
    const struct tensor_type *type = rule_type(call, 0);
    int64_t m = type->shape[type->rank - 2], n = type->shape[type->rank - 1];
    td_tensor *p = rule_output(call, 0), *l = rule_output(call, 1), *u = rule_output(call, 2), *inner;
    td_tensor *gl = td_tril(rule_gradient(call, 1), -1), *gu = td_triu(rule_gradient(call, 2), 0);
    td_tensor *by_l = td_matmul(rule_adjoint(l), gl), *by_u = td_matmul(gu, rule_adjoint(u));
    if (m <= n) {
        td_tensor *u1 = m < n ? columns(u, 0, m) : u;
        td_tensor *middle = td_tril(td_subtract(by_l, by_u), -1);
        inner = right_solve(middle, rule_adjoint(u1), false, false);
        inner = m < n ? joined(td_add(inner, columns(gu, 0, m)), columns(gu, m, n), -1) : td_add(inner, gu);
        inner = td_triangular_solve(rule_adjoint(l), inner, 1, 1);
    } else {
        td_tensor *middle = td_triu(td_subtract(by_u, by_l), 0);
        inner = td_triangular_solve(rule_adjoint(rows(l, 0, n)), middle, 1, 1);
        inner = joined(td_add(inner, rows(gl, 0, n)), rows(gl, n, m), -2);
        inner = right_solve(inner, rule_adjoint(u), false, false);
    }
    rule_give(call, 0, td_matmul(p, inner));
}

/* (gQ + Q · M) · R⁻ᴴ, in which M is the upper triangle of gR · Rᴴ - Qᴴ · gQ and its mirror image. A wide `a` is (A1 A2), with Q and R1 of A1 alone;
 * R2 = Qᴴ · A2 adds its part to gQ, and to A2's gradient Q · gR2. M's diagonal is real, as R's is: its elements change their magnitude alone. */
RULE(qr) {
    struct qr_attributes attributes;
    const struct tensor_type *type = rule_type(call, 0);
    int64_t m = type->shape[type->rank - 2], n = type->shape[type->rank - 1];
    td_tensor *q = rule_output(call, 0), *r = rule_output(call, 1);
    td_tensor *gq = rule_gradient(call, 0), *gr = rule_gradient(call, 1), *further = NULL;
    qr_attributes_read(&call->node->attributes, &attributes);
    if (attributes.mode == OP_QR_MODE_COMPLETE && m > n) {
        rule_refuse(call, "the matrix does not determine Q's columns behind its own, so the complete mode has no "
                          "derivative if there are more rows than columns; the reduced mode has one");
        return;
    }
    if (m < n) {
        td_tensor *gr2 = columns(gr, m, n);
        gq = td_add(gq, td_matmul(q, td_matmul(columns(r, m, n), rule_adjoint(gr2))));
        further = td_matmul(q, gr2);
        r = columns(r, 0, m);
        gr = columns(gr, 0, m);
    }
    td_tensor *middle = td_subtract(td_matmul(gr, rule_adjoint(r)), td_matmul(rule_adjoint(q), gq));
    td_tensor *own = td_add(gq, td_matmul(q, upper_and_mirror(middle)));
    own = right_solve(own, rule_adjoint(r), false, false);
    rule_give(call, 0, m < n ? joined(own, further, -1) : own);
}

/* Of x = a⁻¹ · b: a⁻ᴴ · gradient by b, and from that -(gradient by b) · xᴴ by a. */
RULE(solve) {
    bool vector = rule_type(call, 1)->rank == 1;
    td_tensor *x = as_column(rule_output(call, 0), vector), *g = as_column(call->g[0], vector);
    td_tensor *by_b = td_solve(rule_adjoint(rule_input(call, 0)), g);
    if (rule_wants(call, 0))
        rule_give(call, 0, td_negative(td_matmul(by_b, rule_adjoint(x))));
    if (rule_wants(call, 1))
        rule_give(call, 1, of_column(by_b, vector));
}

/* The same for what is read of `a`. */
RULE(triangular_solve) {
    struct triangular_solve_attributes attributes;
    bool vector = rule_type(call, 1)->rank == 1;
    td_tensor *x = as_column(rule_output(call, 0), vector), *g = as_column(call->g[0], vector);
    triangular_solve_attributes_read(&call->node->attributes, &attributes);
    bool upper = attributes.upper, unit = attributes.unit_diagonal;
    td_tensor *by_b = td_triangular_solve(rule_adjoint(rule_input(call, 0)), g, !upper, unit);
    if (rule_wants(call, 0)) {
        td_tensor *by_a = td_negative(td_matmul(by_b, rule_adjoint(x)));
        rule_give(call, 0, upper ? td_triu(by_a, unit) : td_tril(by_a, unit ? -1 : 0));
    }
    if (rule_wants(call, 1))
        rule_give(call, 1, of_column(by_b, vector));
}

/* -yᴴ · gradient · yᴴ */
RULE(inv) {
    td_tensor *y = rule_adjoint(rule_output(call, 0));
    rule_give(call, 0, td_negative(td_matmul(td_matmul(y, call->g[0]), y)));
}

static td_tensor *identity(const struct rule_call *call, enum dtype dtype) {
    const struct tensor_type *type = rule_type(call, 0);
    int64_t n = type->shape[type->rank - 1];
    return td_eye(call->node->device, (td_dtype)dtype, n, n, 0);
}

/* conj(det(a)) · a⁻ᴴ exists also where the inverse does not: zeros on U's diagonal count as very small numbers, for both factors, which is
 * exact but for rounding errors. */
RULE(det) {
    const struct tensor_type *type = rule_type(call, 0);
    td_tensor *p = NULL, *l = NULL, *u = NULL;
    td_lu(rule_input(call, 0), &p, &l, &u);
    td_tensor *mean = td_mean(td_abs(u), TD_AXES(-2, -1), 1);
    bool narrow = type->dtype == DTYPE_F32 || type->dtype == DTYPE_C64;
    td_tensor *small = td_stop_gradient(rule_scale(mean, narrow ? FLT_EPSILON : DBL_EPSILON));
    td_tensor *zeros = td_logical_and(identity(call, DTYPE_BOOL), td_equal(u, rule_number(u, 0)));
    small = td_where(td_equal(small, rule_number(small, 0)), rule_number(small, DBL_EPSILON), small);
    u = td_where(zeros, small, u);
    td_tensor *inverse = td_triangular_solve(rule_adjoint(u), identity(call, type->dtype), 0, 0);
    inverse = td_matmul(p, td_triangular_solve(rule_adjoint(l), inverse, 1, 1));
    td_tensor *factor = td_multiply(call->g[0], rule_conjugate(td_det(td_matmul(p, u))));
    rule_give(call, 0, td_multiply(as_matrices(factor), inverse));
}

/* f · a⁻ᴴ, in which f is the gradient by the logarithm, and of complex matrices i times that by the angle of the sign. The sign of real
 * matrices is constant. */
RULE(slogdet) {
    td_tensor *factor = call->g[1];
    if (dtype_is_complex(rule_type(call, 0)->dtype) && call->g[0]) {
        td_tensor *turn = td_imag(td_multiply(td_conj(rule_output(call, 0)), call->g[0]));
        factor = td_complex(rule_gradient(call, 1), turn);
    }
    if (factor)
        rule_give(call, 0, td_multiply(as_matrices(factor), rule_adjoint(td_inv(rule_input(call, 0)))));
}

/* Of the x that solves aᴴ · a · x = aᴴ · b. With a = Q · R and z = R⁻¹ · R⁻ᴴ · gradient: a · z by b, and (b - a · x) · zᴴ - a · z · xᴴ by a. */
static void lstsq_tall(struct rule_call *call, td_tensor *x, td_tensor *b, td_tensor *g, bool vector) {
    td_tensor *a = rule_operand(call, 0), *q = NULL, *r = NULL;
    td_qr(a, TD_QR_MODE_REDUCED, &q, &r);
    td_tensor *half = td_triangular_solve(rule_adjoint(r), g, 0, 0), *by_b = td_matmul(q, half);
    if (rule_wants(call, 0)) {
        td_tensor *z = td_triangular_solve(r, half, 1, 0), *rest = td_subtract(b, td_matmul(a, x));
        rule_give(call, 0, td_subtract(td_matmul(rest, rule_adjoint(z)), td_matmul(by_b, rule_adjoint(x))));
    }
    if (rule_wants(call, 1))
        rule_give(call, 1, of_column(by_b, vector));
}

/* Of x = aᴴ · w with a · aᴴ · w = b. With aᴴ = Q · R and h = R⁻¹ · Qᴴ · gradient: h by b, and w · (gradient - aᴴ · h)ᴴ - h · xᴴ by a. */
static void lstsq_wide(struct rule_call *call, td_tensor *x, td_tensor *g, bool vector) {
    td_tensor *a = rule_operand(call, 0), *q = NULL, *r = NULL;
    td_qr(rule_adjoint(a), TD_QR_MODE_REDUCED, &q, &r);
    td_tensor *by_b = td_triangular_solve(r, td_matmul(rule_adjoint(q), g), 1, 0);
    if (rule_wants(call, 0)) {
        td_tensor *w = td_triangular_solve(r, td_matmul(rule_adjoint(q), x), 1, 0);
        td_tensor *rest = td_subtract(g, td_matmul(rule_adjoint(a), by_b));
        rule_give(call, 0, td_subtract(td_matmul(w, rule_adjoint(rest)), td_matmul(by_b, rule_adjoint(x))));
    }
    if (rule_wants(call, 1))
        rule_give(call, 1, of_column(by_b, vector));
}

RULE(lstsq) {
    const struct tensor_type *type = rule_type(call, 0);
    bool vector = rule_type(call, 1)->rank == 1;
    td_tensor *x = as_column(rule_output(call, 0), vector), *g = as_column(call->g[0], vector);
    if (type->shape[type->rank - 2] >= type->shape[type->rank - 1])
        lstsq_tall(call, x, as_column(rule_input(call, 1), vector), g, vector);
    else
        lstsq_wide(call, x, g, vector);
}
