/* Derivatives by complex matrices, whose parts are the inputs of the cases. */
#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

/* A real function of all parts, with another slope by each. */
static td_tensor *parts(td_tensor *y) {
    return td_add(td_real(y), td_multiply(td_sin(td_real(y)), td_imag(y)));
}
static td_tensor *adjoint(td_tensor *x) {
    return td_conj(td_transpose(x));
}
static td_tensor *squared_magnitudes(td_tensor *x) {
    return td_real(td_multiply(x, td_conj(x)));
}

/* i times the number of rows on the diagonals, so that a matrix of small numbers is well conditioned. */
static td_tensor *regular(td_tensor *x) {
    int rank = td_tensor_rank(x);
    int64_t rows = td_tensor_shape(x)[rank - 2], columns = td_tensor_shape(x)[rank - 1];
    td_tensor *diagonal = td_eye(td_tensor_device(x), TD_C128, rows, columns, 0);
    return td_add(x, td_multiply(diagonal, td_full_complex(td_tensor_device(x), TD_C128, 0, NULL, 0, (double)rows)));
}
static td_tensor *hermitian(td_tensor *x) {
    return td_add(x, adjoint(x));
}
/* Hermitian, with positive eigenvalues. */
static td_tensor *positive(td_tensor *x) {
    int64_t n = td_tensor_shape(x)[td_tensor_rank(x) - 1];
    return td_add(td_matmul(x, adjoint(x)), td_eye(td_tensor_device(x), TD_C128, n, n, 0));
}

enum lu_part { L, U, BOTH };
static td_tensor *lu(td_tensor *a, enum lu_part part) {
    td_tensor *p = NULL, *l = NULL, *u = NULL;
    td_lu(a, &p, &l, &u);
    return part == L ? l : part == U ? u : td_matmul(td_square(l), td_exp(u));
}

enum qr_part { Q, R, PRODUCT };
static td_tensor *qr(td_tensor *a, td_qr_mode mode, enum qr_part part) {
    td_tensor *q = NULL, *r = NULL;
    td_qr(a, mode, &q, &r);
    return part == Q ? q : part == R ? r : td_matmul(td_square(q), td_exp(r));
}

/* At ones the matrix is 0, i, … 8i, which is singular, and has minors that are not 0. */
static td_tensor *singular(td_tensor *x) {
    td_tensor *numbers = td_reshape(td_arange(td_tensor_device(x), TD_F64, 0, 9, 1), TD_SHAPE(3, 3));
    return td_multiply(td_complex(td_multiply(x, td_full(td_tensor_device(x), TD_F64, 0, NULL, 0)), x), numbers);
}

enum slogdet_part { SIGN, LOGARITHM, SIGN_AND_LOGARITHM };
static td_tensor *slogdet(td_tensor *a, enum slogdet_part part) {
    td_tensor *sign = NULL, *logarithm = NULL;
    td_slogdet(a, &sign, &logarithm);
    return part == SIGN ? parts(sign) : part == LOGARITHM ? logarithm : parts(td_multiply(sign, td_exp(logarithm)));
}

/* Vectors may have any factor of magnitude 1: what is computed from them must not depend on it. */
enum eigh_part { VALUES, VECTORS, FUNCTION };
static td_tensor *eigh(td_tensor *a, int upper, enum eigh_part part) {
    td_tensor *values = NULL, *v = NULL;
    td_eigh(a, upper, &values, &v);
    if (part == VALUES)
        return values;
    if (part == VECTORS)
        return squared_magnitudes(v);
    return parts(td_matmul(td_multiply(v, td_expand_dims(td_exp(values), -2)), adjoint(v)));
}

/* The projection on the space of columns from k on. */
static td_tensor *projection(td_tensor *u, int64_t k) {
    td_tensor *rest = td_slice(u, -1, k, td_tensor_shape(u)[td_tensor_rank(u) - 1], 1);
    return parts(td_matmul(rest, adjoint(rest)));
}

enum svd_part { OF_U, OF_S, OF_VH, U_AND_VH, REST_OF_U, REST_OF_V, EVERYTHING };
static td_tensor *svd(td_tensor *a, int full_matrices, enum svd_part part) {
    td_tensor *u = NULL, *s = NULL, *vh = NULL;
    td_svd(a, full_matrices, &u, &s, &vh);
    int rank = td_tensor_rank(a);
    const int64_t m = td_tensor_shape(a)[rank - 2], n = td_tensor_shape(a)[rank - 1], k = m < n ? m : n;
    td_tensor *u1 = td_slice(u, -1, 0, k, 1), *v1h = td_slice(vh, -2, 0, k, 1);
    switch (part) {
    case OF_U:
        return squared_magnitudes(u1);
    case OF_S:
        return s;
    case OF_VH:
        return squared_magnitudes(v1h);
    case REST_OF_U:
        return projection(u, k);
    case REST_OF_V:
        return projection(adjoint(vh), k);
    case U_AND_VH:
        return parts(td_matmul(u1, v1h));
    case EVERYTHING:
        break;
    }
    return parts(td_matmul(td_multiply(u1, td_expand_dims(td_exp(s), -2)), v1h));
}

#define REDUCED TD_QR_MODE_REDUCED
#define COMPLETE TD_QR_MODE_COMPLETE
#define A td_complex(x[0], x[1])
#define B td_complex(x[2], x[3])

/* One complex matrix, and two. */
#define ONE(X)                                                                                                         \
    X(cholesky, CHOLESKY, (2, 2), ({3, 3}, {3, 3}), parts(td_cholesky(positive(A), 0)))                                \
    X(cholesky_upper, CHOLESKY, (3, 3), ({2, 3, 3}, {2, 3, 3}), parts(td_cholesky(positive(A), 1)))                    \
    X(lu_l, LU, (2, 2), ({3, 3}, {3, 3}), parts(lu(A, L)))                                                             \
    X(lu_u, LU, (2, 2), ({3, 3}, {3, 3}), parts(lu(A, U)))                                                             \
    X(lu_both, LU, (3, 3), ({2, 3, 3}, {2, 3, 3}), parts(lu(A, BOTH)))                                                 \
    X(lu_wide, LU, (2, 2), ({2, 4}, {2, 4}), parts(lu(A, BOTH)))                                                       \
    X(lu_tall, LU, (2, 2), ({4, 2}, {4, 2}), parts(lu(A, BOTH)))                                                       \
    X(qr_q, QR, (2, 2), ({3, 3}, {3, 3}), parts(qr(A, REDUCED, Q)))                                                    \
    X(qr_r, QR, (2, 2), ({3, 3}, {3, 3}), parts(qr(A, COMPLETE, R)))                                                   \
    X(qr_tall, QR, (3, 3), ({2, 4, 2}, {2, 4, 2}), parts(qr(A, REDUCED, PRODUCT)))                                     \
    X(qr_wide, QR, (2, 2), ({2, 4}, {2, 4}), parts(qr(A, COMPLETE, PRODUCT)))                                          \
    X(inv, INV, (3, 3), ({2, 3, 3}, {2, 3, 3}), parts(td_inv(regular(A))))                                             \
    X(det, DET, (3, 3), ({2, 3, 3}, {2, 3, 3}), parts(td_det(td_square(A))))                                           \
    X(det_of_one, DET, (2, 2), ({1, 1}, {1, 1}), parts(td_det(A)))                                                     \
    X(slogdet_sign, SLOGDET, (2, 2), ({3, 3}, {3, 3}), slogdet(A, SIGN))                                               \
    X(slogdet_logarithm, SLOGDET, (3, 3), ({2, 3, 3}, {2, 3, 3}), slogdet(A, LOGARITHM))                               \
    X(slogdet_both, SLOGDET, (3, 3), ({2, 3, 3}, {2, 3, 3}), slogdet(A, SIGN_AND_LOGARITHM))                           \
    X(eigh_values, EIGH, (3, 3), ({2, 3, 3}, {2, 3, 3}), eigh(hermitian(A), 0, VALUES))                                \
    X(eigh_vectors, EIGH, (2, 2), ({3, 3}, {3, 3}), eigh(hermitian(A), 1, VECTORS))                                    \
    X(eigh_function, EIGH, (3, 3), ({2, 3, 3}, {2, 3, 3}), eigh(hermitian(A), 0, FUNCTION))                            \
    X(eigvalsh, EIGVALSH, (3, 3), ({2, 3, 3}, {2, 3, 3}), td_eigvalsh(hermitian(A), 0))                                \
    X(eigvalsh_upper, EIGVALSH, (2, 2), ({3, 3}, {3, 3}), td_eigvalsh(hermitian(A), 1))                                \
    X(svd_u, SVD, (2, 2), ({3, 3}, {3, 3}), svd(A, 0, OF_U))                                                           \
    X(svd_vh, SVD, (2, 2), ({3, 3}, {3, 3}), svd(A, 0, OF_VH))                                                         \
    X(svd_s, SVD, (3, 3), ({2, 3, 2}, {2, 3, 2}), svd(A, 0, OF_S))                                                     \
    X(svd_tall_u, SVD, (2, 2), ({4, 2}, {4, 2}), svd(A, 0, OF_U))                                                      \
    X(svd_wide_vh, SVD, (2, 2), ({2, 4}, {2, 4}), svd(A, 0, OF_VH))                                                    \
    X(svd_square, SVD, (2, 2), ({3, 3}, {3, 3}), svd(A, 1, EVERYTHING))                                                \
    X(svd_tall, SVD, (3, 3), ({2, 4, 2}, {2, 4, 2}), svd(A, 1, EVERYTHING))                                            \
    X(svd_wide, SVD, (2, 2), ({2, 4}, {2, 4}), svd(A, 1, EVERYTHING))                                                  \
    X(svd_polar, SVD, (2, 2), ({2, 4}, {2, 4}), svd(A, 1, U_AND_VH))                                                   \
    X(svd_rest_of_u, SVD, (2, 2), ({4, 2}, {4, 2}), svd(A, 1, REST_OF_U))                                              \
    X(svd_rest_of_v, SVD, (2, 2), ({2, 4}, {2, 4}), svd(A, 1, REST_OF_V))                                              \
    X(svdvals, SVDVALS, (3, 3), ({2, 3, 2}, {2, 3, 2}), td_svdvals(A))                                                 \
    X(svdvals_wide, SVDVALS, (2, 2), ({2, 3}, {2, 3}), td_svdvals(A))                                                  \
    X(pinv, SVD, (2, 2), ({4, 2}, {4, 2}), parts(td_pinv(A, -1)))

#define TWO(X)                                                                                                         \
    X(solve, SOLVE, (2, 2, 2, 2), ({3, 3}, {3, 3}, {3, 2}, {3, 2}), parts(td_solve(regular(A), B)))                    \
    X(solve_vectors, SOLVE, (3, 3, 1, 1), ({2, 3, 3}, {2, 3, 3}, {3}, {3}), parts(td_solve(regular(A), B)))            \
    X(triangular_lower, TRIANGULAR_SOLVE, (2, 2, 2, 2), ({3, 3}, {3, 3}, {3, 2}, {3, 2}),                              \
      parts(td_triangular_solve(regular(A), B, 0, 0)))                                                                 \
    X(triangular_upper, TRIANGULAR_SOLVE, (3, 3, 1, 1), ({2, 3, 3}, {2, 3, 3}, {3}, {3}),                              \
      parts(td_triangular_solve(regular(A), B, 1, 0)))                                                                 \
    X(triangular_unit, TRIANGULAR_SOLVE, (2, 2, 2, 2), ({3, 3}, {3, 3}, {3, 2}, {3, 2}),                               \
      parts(td_triangular_solve(A, B, 0, 1)))                                                                          \
    X(lstsq_tall, LSTSQ, (2, 2, 2, 2), ({4, 2}, {4, 2}, {4, 2}, {4, 2}), parts(td_lstsq(A, B)))                        \
    X(lstsq_square, LSTSQ, (2, 2, 1, 1), ({3, 3}, {3, 3}, {3}, {3}), parts(td_lstsq(regular(A), B)))                   \
    X(lstsq_wide, LSTSQ, (2, 2, 2, 2), ({2, 4}, {2, 4}, {2, 2}, {2, 2}), parts(td_lstsq(A, B)))                        \
    X(lstsq_wide_batches, LSTSQ, (2, 2, 3, 3), ({2, 3}, {2, 3}, {2, 2, 1}, {2, 2, 1}), parts(td_lstsq(A, B)))

/* A real matrix with a complex one. */
#define MIXED(X)                                                                                                       \
    X(solve_real_matrix, SOLVE, (2, 1, 1), ({3, 3}, {3}, {3}),                                                         \
      parts(td_solve(td_imag(regular(td_complex(x[0], x[0]))), td_complex(x[1], x[2]))))                               \
    X(solve_complex_matrix, SOLVE, (2, 2, 1), ({3, 3}, {3, 3}, {3}), parts(td_solve(regular(A), x[2])))                \
    X(triangular_real_matrix, TRIANGULAR_SOLVE, (2, 1, 1), ({3, 3}, {3}, {3}),                                         \
      parts(td_triangular_solve(x[0], td_complex(x[1], x[2]), 1, 1)))                                                  \
    X(lstsq_real_matrix, LSTSQ, (2, 1, 1), ({4, 2}, {4}, {4}), parts(td_lstsq(x[0], td_complex(x[1], x[2]))))          \
    X(lstsq_complex_matrix, LSTSQ, (2, 2, 1), ({2, 4}, {2, 4}, {2}), parts(td_lstsq(A, x[2])))

#define ROW_ONE(name, opcode, ranks, shapes, expression)                                                               \
    AUTOGRAD_SHAPED(name, opcode, -1, 1, true, 2, ranks, shapes, expression)
#define ROW_TWO(name, opcode, ranks, shapes, expression)                                                               \
    AUTOGRAD_SHAPED(name, opcode, -1, 1, true, 4, ranks, shapes, expression)
#define ROW_MIXED(name, opcode, ranks, shapes, expression)                                                             \
    AUTOGRAD_SHAPED(name, opcode, -1, 1, true, 3, ranks, shapes, expression)
#define AT(name, opcode, ranks, shapes, expression) &name##_case,

ONE(ROW_ONE)
TWO(ROW_TWO)
MIXED(ROW_MIXED)
AUTOGRAD_SHAPED(det_of_singular, DET, 1, 1, false, 1, (2), ({3, 3}), parts(td_det(singular(x[0]))))

const struct autograd_case *const autograd_complex_matrices_cases[] = {ONE(AT) TWO(AT) MIXED(AT) & det_of_singular_case,
                                                                       NULL};
