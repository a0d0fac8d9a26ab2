#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

static td_tensor *matmul(td_tensor **x) {
    return td_matmul(td_square(x[0]), x[1]);
}
static const struct autograd_case matmul_case = {OP_MATMUL, "batches times a matrix", matmul, -2, 2, true, 2,
                                                 {3, 2},    {{2, 3, 4}, {4, 5}}};
static const struct autograd_case row_case = {OP_MATMUL, "a row times a matrix", matmul, -2, 2, true, 2,
                                              {2, 2},    {{1, 4}, {4, 5}}};

const struct autograd_case *const autograd_linear_algebra_cases[] = {&matmul_case, &row_case, NULL};
