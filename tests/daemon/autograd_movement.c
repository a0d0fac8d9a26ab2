#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

#define ONE(X)                                                                                                         \
    X(reshape, RESHAPE, -2, 2, true, td_reshape(td_square(x[0]), TD_SHAPE(3, 2)))                                      \
    X(matrix_transpose, MATRIX_TRANSPOSE, -2, 2, true, td_transpose(td_square(x[0])))                           \
    X(broadcast_to, BROADCAST_TO, -2, 2, true, td_broadcast_to(td_square(x[0]), TD_SHAPE(4, 2, 3)))

ONE(AUTOGRAD_FUNCTION)
ONE(AUTOGRAD_ONE)

const struct autograd_case *const autograd_movement_cases[] = {ONE(AUTOGRAD_ROW) NULL};
