#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

#define ONE(X)                                                                                                         \
    X(sum, SUM, -2, 2, true, td_sum(td_square(x[0]), TD_AXES(-1), 0))                                                  \
    X(sum_kept, SUM, -2, 2, true, td_multiply(x[0], td_sum(x[0], TD_AXES(0, 1), 1)))                                   \
    X(sum_all, SUM, -2, 2, true, td_square(td_sum(x[0], TD_ALL_AXES, 0)))

ONE(AUTOGRAD_FUNCTION)
ONE(AUTOGRAD_ONE)

const struct autograd_case *const autograd_reduce_cases[] = {ONE(AUTOGRAD_ROW) NULL};
