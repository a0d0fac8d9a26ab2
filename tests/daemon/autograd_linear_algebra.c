#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

#define RELU TD_ACTIVATION_RELU
#define GELU TD_ACTIVATION_GELU_TANH

#define CASES(X)                                                                                                       \
    X(batches, MATMUL, -2, 2, true, 2, (3, 2), ({2, 3, 4}, {4, 5}), td_matmul(td_square(x[0]), x[1]))                  \
    X(both_batches, MATMUL, -2, 2, true, 2, (3, 4), ({2, 2, 3}, {2, 1, 3, 2}), td_matmul(td_square(x[0]), x[1]))       \
    X(batches_of_b, MATMUL, -2, 2, true, 2, (2, 3), ({2, 3}, {2, 3, 2}), td_matmul(td_square(x[0]), x[1]))             \
    X(row_matrix, MATMUL, -2, 2, true, 2, (2, 2), ({1, 4}, {4, 5}), td_matmul(td_square(x[0]), x[1]))                  \
    X(row, MATMUL, -2, 2, true, 2, (1, 2), ({4}, {4, 3}), td_matmul(td_square(x[0]), x[1]))                            \
    X(row_batches, MATMUL, -2, 2, true, 2, (1, 4), ({3}, {2, 2, 3, 2}), td_matmul(td_square(x[0]), x[1]))              \
    X(column, MATMUL, -2, 2, true, 2, (2, 1), ({3, 4}, {4}), td_matmul(td_square(x[0]), x[1]))                         \
    X(batches_column, MATMUL, -2, 2, true, 2, (4, 1), ({2, 2, 2, 3}, {3}), td_matmul(td_square(x[0]), x[1]))           \
    X(two_vectors, MATMUL, -2, 2, true, 2, (1, 1), ({5}, {5}), td_matmul(td_square(x[0]), x[1]))                       \
    X(mixed_dtypes, MATMUL, -2, 2, true, 2, (2, 2), ({2, 3}, {3, 2}),                                                  \
      td_matmul(td_square(x[0]), td_multiply(x[1], td_arange(td_tensor_device(x[0]), TD_I32, 0, 2, 1))))               \
    X(cross, CROSS, -2, 2, true, 2, (2, 2), ({4, 3}, {4, 3}), td_cross(td_square(x[0]), x[1], -1))                     \
    X(cross_broadcast, CROSS, -2, 2, true, 2, (3, 2), ({2, 3, 1}, {3, 2}), td_cross(td_square(x[0]), x[1], -2))        \
    X(cross_self, CROSS, -2, 2, true, 1, (1), ({3}), td_cross(x[0], td_square(x[0]), -1))                              \
    X(linear, LINEAR, -2, 2, true, 2, (2, 2), ({2, 3}, {4, 3}), td_linear(x[0], x[1], NULL, TD_ACTIVATION_NONE))       \
    X(linear_bias, LINEAR, -2, 2, true, 3, (3, 2, 1), ({2, 2, 3}, {4, 3}, {4}),                                        \
      td_linear(td_square(x[0]), x[1], x[2], TD_ACTIVATION_NONE))                                                      \
    X(linear_relu, LINEAR, -2, 2, false, 3, (3, 2, 1), ({2, 2, 3}, {4, 3}, {4}), td_linear(x[0], x[1], x[2], RELU))    \
    X(linear_relu_only, LINEAR, -2, 2, false, 2, (2, 2), ({4, 3}, {4, 3}), td_linear(x[0], x[1], NULL, RELU))          \
    X(linear_gelu, LINEAR, -2, 2, true, 3, (3, 2, 1), ({2, 2, 3}, {4, 3}, {4}), td_linear(x[0], x[1], x[2], GELU))     \
    X(linear_gelu_only, LINEAR, -2, 2, true, 2, (2, 2), ({2, 3}, {4, 3}), td_linear(x[0], x[1], NULL, GELU))           \
    X(linear_row, LINEAR, -2, 2, true, 3, (1, 2, 1), ({3}, {4, 3}, {4}), td_linear(x[0], x[1], x[2], GELU))            \
    X(linear_vector, LINEAR, -2, 2, true, 3, (3, 1, 0), ({2, 2, 3}, {3}, {}), td_linear(x[0], x[1], x[2], GELU))       \
    X(linear_vectors, LINEAR, -2, 2, true, 3, (1, 1, 0), ({3}, {3}, {}), td_linear(x[0], x[1], x[2], GELU))

CASES(AUTOGRAD_SHAPED)

const struct autograd_case *const autograd_linear_algebra_cases[] = {CASES(AUTOGRAD_SHAPED_ROW) NULL};
