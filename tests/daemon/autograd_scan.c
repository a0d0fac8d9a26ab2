#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

static td_tensor *extreme(td_tensor *x, int axis, int (*function)(td_tensor *, int, td_tensor **, td_tensor **)) {
    td_tensor *values = NULL, *indices;
    function(x, axis, &values, &indices);
    return values;
}

/* x plus numbers of which some are 0, for an x that is 0. */
static td_tensor *zeros_at(td_tensor *x, double a, double b, double c) {
    return td_add(x, td_upload(td_tensor_device(x), TD_F64, TD_SHAPE(3), (const double[]){a, b, c}));
}

#define ONE(X)                                                                                                         \
    X(sum, CUMULATIVE_SUM, -2, 2, true, td_cumulative_sum(td_square(x[0]), -1, 0))                                     \
    X(sum_initial, CUMULATIVE_SUM, -2, 2, true, td_cumulative_sum(td_square(x[0]), 0, 1))                              \
    X(prod, CUMULATIVE_PROD, -2, 2, true, td_cumulative_prod(x[0], -1, 0))                                             \
    X(prod_initial, CUMULATIVE_PROD, -2, 2, true, td_cumulative_prod(td_exp(x[0]), 0, 1))                              \
    X(prod_zero, CUMULATIVE_PROD, 0, 0, true, td_cumulative_prod(zeros_at(x[0], 3, 0, 2), -1, 0))                      \
    X(prod_zero_initial, CUMULATIVE_PROD, 0, 0, true, td_exp(td_cumulative_prod(zeros_at(x[0], 0, 3, 2), 1, 1)))       \
    X(prod_zeros, CUMULATIVE_PROD, 0, 0, true, td_cumulative_prod(zeros_at(x[0], 0, 2, 0), -1, 0))                     \
    X(prod_all_zeros, CUMULATIVE_PROD, 0, 0, true, td_exp(td_cumulative_prod(zeros_at(x[0], 0, 0, 0), -1, 1)))         \
    X(prod_of_zeros, PROD, 0, 0, true, td_prod(zeros_at(x[0], 0, 2, 0), TD_AXES(1), 0))                                \
    X(cummax, CUMMAX, -2, 2, true, extreme(td_exp(x[0]), -1, td_cummax))                                               \
    X(cummin, CUMMIN, -2, 2, true, extreme(td_exp(x[0]), 0, td_cummin))                                                \
    X(logcumsumexp, LOGCUMSUMEXP, -2, 2, true, td_logcumsumexp(td_square(x[0]), -1))                                   \
    X(logcumsumexp_far, LOGCUMSUMEXP, -900, 900, false, td_logcumsumexp(x[0], 0))

ONE(AUTOGRAD_FUNCTION)
ONE(AUTOGRAD_ONE)

#define LONG(X)                                                                                                        \
    X(prod_long, CUMULATIVE_PROD, 0.5, 1.5, true, 1, (2), ({11, 2}), td_cumulative_prod(x[0], 0, 0))                   \
    X(prod_one, CUMULATIVE_PROD, 0.5, 1.5, true, 1, (1), ({1}), td_cumulative_prod(td_square(x[0]), 0, 1))
LONG(AUTOGRAD_SHAPED)

const struct autograd_case *const autograd_scan_cases[] = {ONE(AUTOGRAD_ROW) LONG(AUTOGRAD_SHAPED_ROW) NULL};
