#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

static td_tensor *greatest(td_tensor *x, int64_t k, int axis, int largest) {
    td_tensor *values = NULL, *indices;
    td_topk(x, k, axis, largest, &values, &indices);
    return values;
}

#define ONE(X)                                                                                                         \
    X(sort, SORT, -2, 2, true, td_sort(td_exp(x[0]), -1, 0))                                                           \
    X(sort_descending, SORT, -2, 2, true, td_sort(td_exp(x[0]), 0, 1))                                                 \
    X(topk, TOPK, -2, 2, true, greatest(td_exp(x[0]), 2, -1, 1))                                                       \
    X(topk_least, TOPK, -2, 2, true, greatest(td_exp(x[0]), 1, 0, 0))

ONE(AUTOGRAD_FUNCTION)
ONE(AUTOGRAD_ONE)

const struct autograd_case *const autograd_sort_cases[] = {ONE(AUTOGRAD_ROW) NULL};
