#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

/* n on the diagonals, so that a matrix of small numbers is well conditioned. */
static td_tensor *regular(td_tensor *x) {
    int rank = td_tensor_rank(x);
    int64_t rows = td_tensor_shape(x)[rank - 2], columns = td_tensor_shape(x)[rank - 1];
    td_tensor *diagonal = td_eye(td_tensor_device(x), TD_F64, rows, columns, 0);
    return td_add(x, td_multiply(diagonal, td_full(td_tensor_device(x), TD_F64, 0, NULL, (double)rows)));
}
/* Symmetric, with positive eigenvalues. */
static td_tensor *positive(td_tensor *x) {
    return regular(td_matmul(x, td_transpose(x)));
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

/* At ones the matrix is 0, 1, … 8, which is singular, and has minors that are not 0. */
static td_tensor *singular(td_tensor *x) {
    return td_multiply(x, td_reshape(td_arange(td_tensor_device(x), TD_F64, 0, 9, 1), TD_SHAPE(3, 3)));
}

static td_tensor *slogdet(td_tensor *a) {
    td_tensor *sign = NULL, *logarithm = NULL;
    td_slogdet(a, &sign, &logarithm);
    return td_multiply(sign, logarithm);
}

#define REDUCED TD_QR_MODE_REDUCED
#define COMPLETE TD_QR_MODE_COMPLETE

#define CASES(X)                                                                                                       \
    X(cholesky, CHOLESKY, -1, 1, true, 1, (2), ({3, 3}), td_cholesky(positive(x[0]), 0))                               \
    X(cholesky_upper, CHOLESKY, -1, 1, true, 1, (3), ({2, 3, 3}), td_cholesky(positive(x[0]), 1))                      \
    X(lu_l, LU, -1, 1, true, 1, (2), ({3, 3}), lu(x[0], L))                                                            \
    X(lu_u, LU, -1, 1, true, 1, (2), ({3, 3}), lu(x[0], U))                                                            \
    X(lu_both, LU, -1, 1, true, 1, (3), ({2, 3, 3}), lu(x[0], BOTH))                                                   \
    X(lu_wide, LU, -1, 1, true, 1, (2), ({2, 4}), lu(x[0], BOTH))                                                      \
    X(lu_tall, LU, -1, 1, true, 1, (2), ({4, 2}), lu(x[0], BOTH))                                                      \
    X(lu_tall_l, LU, -1, 1, true, 1, (2), ({4, 2}), lu(x[0], L))                                                       \
    X(qr_q, QR, -1, 1, true, 1, (2), ({3, 3}), qr(x[0], REDUCED, Q))                                                   \
    X(qr_r, QR, -1, 1, true, 1, (2), ({3, 3}), qr(x[0], COMPLETE, R))                                                  \
    X(qr_tall, QR, -1, 1, true, 1, (3), ({2, 4, 2}), qr(x[0], REDUCED, PRODUCT))                                       \
    X(qr_wide, QR, -1, 1, true, 1, (2), ({2, 4}), qr(x[0], COMPLETE, PRODUCT))                                         \
    X(solve, SOLVE, -1, 1, true, 2, (2, 2), ({3, 3}, {3, 2}), td_solve(regular(x[0]), x[1]))                           \
    X(solve_vector, SOLVE, -1, 1, true, 2, (2, 1), ({3, 3}, {3}), td_solve(regular(x[0]), x[1]))                       \
    X(solve_vectors, SOLVE, -1, 1, true, 2, (3, 1), ({2, 3, 3}, {3}), td_solve(regular(x[0]), x[1]))                   \
    X(solve_batches, SOLVE, -1, 1, true, 2, (2, 4), ({3, 3}, {2, 1, 3, 2}), td_solve(regular(x[0]), x[1]))             \
    X(triangular_lower, TRIANGULAR_SOLVE, -1, 1, true, 2, (2, 2), ({3, 3}, {3, 2}),                                    \
      td_triangular_solve(regular(x[0]), x[1], 0, 0))                                                                  \
    X(triangular_upper, TRIANGULAR_SOLVE, -1, 1, true, 2, (3, 1), ({2, 3, 3}, {3}),                                    \
      td_triangular_solve(regular(x[0]), x[1], 1, 0))                                                                  \
    X(triangular_lower_unit, TRIANGULAR_SOLVE, -1, 1, true, 2, (2, 2), ({3, 3}, {3, 2}),                               \
      td_triangular_solve(x[0], x[1], 0, 1))                                                                           \
    X(triangular_upper_unit, TRIANGULAR_SOLVE, -1, 1, true, 2, (2, 3), ({3, 3}, {2, 3, 2}),                            \
      td_triangular_solve(x[0], x[1], 1, 1))                                                                           \
    X(inv, INV, -1, 1, true, 1, (3), ({2, 3, 3}), td_inv(regular(x[0])))                                               \
    X(det, DET, -1, 1, true, 1, (2), ({3, 3}), td_det(x[0]))                                                           \
    X(dets, DET, -1, 1, true, 1, (3), ({2, 3, 3}), td_det(td_square(x[0])))                                            \
    X(det_of_one, DET, -1, 1, true, 1, (2), ({1, 1}), td_det(x[0]))                                                    \
    X(det_of_singular, DET, 1, 1, false, 1, (2), ({3, 3}), td_det(singular(x[0])))                                     \
    X(det_of_ones, DET, 1, 1, false, 1, (2), ({3, 3}), td_det(x[0]))                                                   \
    X(det_of_zero, DET, 0, 0, false, 1, (3), ({2, 1, 1}), td_det(x[0]))                                                \
    X(slogdet, SLOGDET, -1, 1, true, 1, (3), ({2, 3, 3}), slogdet(x[0]))                                               \
    X(lstsq_tall, LSTSQ, -1, 1, true, 2, (2, 2), ({4, 2}, {4, 2}), td_lstsq(x[0], x[1]))                               \
    X(lstsq_square, LSTSQ, -1, 1, true, 2, (2, 1), ({3, 3}, {3}), td_lstsq(regular(x[0]), x[1]))                       \
    X(lstsq_wide, LSTSQ, -1, 1, true, 2, (2, 2), ({2, 4}, {2, 2}), td_lstsq(x[0], x[1]))                               \
    X(lstsq_tall_vector, LSTSQ, -1, 1, true, 2, (3, 1), ({2, 4, 2}, {4}), td_lstsq(x[0], x[1]))                        \
    X(lstsq_wide_batches, LSTSQ, -1, 1, true, 2, (2, 3), ({2, 3}, {2, 2, 1}), td_lstsq(x[0], x[1]))

CASES(AUTOGRAD_SHAPED)

const struct autograd_case *const autograd_decompose_cases[] = {CASES(AUTOGRAD_SHAPED_ROW) NULL};
