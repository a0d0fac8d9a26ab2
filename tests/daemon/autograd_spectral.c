#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

static td_tensor *symmetric(td_tensor *x) {
    return td_add(x, td_transpose(x));
}

/* Vectors may have either sign: what is computed from them must not depend on it. */
enum eigh_part { VALUES, VECTORS, ALL };
static td_tensor *eigh(td_tensor *a, int upper, enum eigh_part part) {
    td_tensor *values = NULL, *vectors = NULL;
    td_eigh(a, upper, &values, &vectors);
    td_tensor *squares = td_square(vectors);
    return part == VALUES ? values : part == VECTORS ? squares : td_matmul(squares, td_expand_dims(values, -1));
}

enum svd_part { U, S, VH, U_AND_VH, REST_OF_U, REST_OF_V, EVERYTHING };

/* The projection on the space of columns from k on. */
static td_tensor *projection(td_tensor *u, int64_t k) {
    td_tensor *rest = td_slice(u, -1, k, td_tensor_shape(u)[td_tensor_rank(u) - 1], 1);
    return td_matmul(rest, td_transpose(rest));
}

static td_tensor *svd(td_tensor *a, int full_matrices, enum svd_part part) {
    td_tensor *u = NULL, *s = NULL, *vh = NULL;
    td_svd(a, full_matrices, &u, &s, &vh);
    int rank = td_tensor_rank(a);
    const int64_t m = td_tensor_shape(a)[rank - 2], n = td_tensor_shape(a)[rank - 1], k = m < n ? m : n;
    td_tensor *u1 = td_slice(u, -1, 0, k, 1), *v1h = td_slice(vh, -2, 0, k, 1);
    switch (part) {
    case U:
        return td_square(u1);
    case S:
        return s;
    case VH:
        return td_square(v1h);
    case REST_OF_U:
        return projection(u, k);
    case REST_OF_V:
        return projection(td_transpose(vh), k);
    case U_AND_VH:
        return td_matmul(u1, v1h);
    case EVERYTHING:
        break;
    }
    return td_matmul(td_multiply(u1, td_expand_dims(td_exp(s), -2)), v1h);
}

#define CASES(X)                                                                                                       \
    X(eigh_values, EIGH, -1, 1, true, 1, (3), ({2, 3, 3}), eigh(symmetric(x[0]), 0, VALUES))                           \
    X(eigh_vectors, EIGH, -1, 1, true, 1, (2), ({3, 3}), eigh(symmetric(x[0]), 1, VECTORS))                            \
    X(eigh_all, EIGH, -1, 1, true, 1, (3), ({2, 3, 3}), eigh(symmetric(x[0]), 0, ALL))                                 \
    X(eigvalsh, EIGVALSH, -1, 1, true, 1, (3), ({2, 3, 3}), td_eigvalsh(symmetric(x[0]), 0))                           \
    X(eigvalsh_upper, EIGVALSH, -1, 1, true, 1, (2), ({3, 3}), td_eigvalsh(symmetric(x[0]), 1))                        \
    X(svd_u, SVD, -1, 1, true, 1, (2), ({3, 3}), svd(x[0], 0, U))                                                      \
    X(svd_vh, SVD, -1, 1, true, 1, (2), ({3, 3}), svd(x[0], 0, VH))                                                    \
    X(svd_s, SVD, -1, 1, true, 1, (3), ({2, 3, 2}), svd(x[0], 0, S))                                                   \
    X(svd_tall_u, SVD, -1, 1, true, 1, (2), ({4, 2}), svd(x[0], 0, U))                                                 \
    X(svd_wide_vh, SVD, -1, 1, true, 1, (2), ({2, 4}), svd(x[0], 0, VH))                                               \
    X(svd_tall, SVD, -1, 1, true, 1, (3), ({2, 4, 2}), svd(x[0], 1, EVERYTHING))                                       \
    X(svd_wide, SVD, -1, 1, true, 1, (2), ({2, 4}), svd(x[0], 1, EVERYTHING))                                          \
    X(svd_polar, SVD, -1, 1, true, 1, (2), ({2, 4}), svd(x[0], 1, U_AND_VH))                                           \
    X(svd_rest_of_u, SVD, -1, 1, true, 1, (2), ({4, 2}), svd(x[0], 1, REST_OF_U))                                      \
    X(svd_rest_of_v, SVD, -1, 1, true, 1, (2), ({2, 4}), svd(x[0], 1, REST_OF_V))                                      \
    X(svdvals, SVDVALS, -1, 1, true, 1, (3), ({2, 3, 2}), td_svdvals(x[0]))                                            \
    X(svdvals_wide, SVDVALS, -1, 1, true, 1, (2), ({2, 3}), td_svdvals(x[0]))

CASES(AUTOGRAD_SHAPED)

const struct autograd_case *const autograd_spectral_cases[] = {CASES(AUTOGRAD_SHAPED_ROW) NULL};
