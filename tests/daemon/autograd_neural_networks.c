#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

#define ONE(X)                                                                                                         \
    X(softmax, SOFTMAX, -2, 2, true, td_softmax(x[0], -1))                                                             \
    X(softmax_first, SOFTMAX, -2, 2, true, td_softmax(x[0], 0))                                                        \
    X(log_softmax, LOG_SOFTMAX, -2, 2, true, td_log_softmax(td_square(x[0]), -1))                                      \
    X(log_softmax_first, LOG_SOFTMAX, -2, 2, true, td_log_softmax(td_square(x[0]), 0))

ONE(AUTOGRAD_FUNCTION)
ONE(AUTOGRAD_ONE)

const struct autograd_case *const autograd_neural_networks_cases[] = {ONE(AUTOGRAD_ROW) NULL};
