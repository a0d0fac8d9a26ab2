#include <math.h>
#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

/* Over two axes of three, which are not neighbours. */
#define MIDDLE(name, opcode, low, high, smooth, expression)                                                            \
    static td_tensor *middle_##name(td_tensor **x) {                                                                   \
        return expression;                                                                                             \
    }                                                                                                                  \
    static const struct autograd_case middle_##name##_case = {                                                         \
        OP_##opcode, #expression, middle_##name, low, high, smooth, 1, {3}, {{2, 3, 4}}};
#define MIDDLE_ROW(name, ...) &middle_##name##_case,
#define TWO_AXES TD_AXES(-1, 0)
#define MIDDLES(X)                                                                                                     \
    X(sum, SUM, -2, 2, true, td_sum(td_square(x[0]), TWO_AXES, 0))                                                     \
    X(prod, PROD, 0.5, 2, true, td_prod(x[0], TWO_AXES, 0))                                                            \
    X(prod_kept, PROD, 0.5, 2, true, td_multiply(td_prod(x[0], TD_AXES(1), 1), x[0]))                                  \
    X(mean, MEAN, -2, 2, true, td_mean(td_square(x[0]), TWO_AXES, 0))                                                  \
    X(max, MAX, -2, 2, true, td_max(td_exp(x[0]), TWO_AXES, 0))                                                        \
    X(min, MIN, -2, 2, true, td_min(td_exp(x[0]), TWO_AXES, 0))                                                        \
    X(var, VAR, -2, 2, true, td_var(x[0], TWO_AXES, 0, 0))                                                             \
    X(std, STD, -2, 2, true, td_std(x[0], TWO_AXES, 1, 0))                                                             \
    X(logsumexp, LOGSUMEXP, -2, 2, true, td_logsumexp(x[0], TWO_AXES, 0))                                              \
    X(norm, VECTOR_NORM, -2, 2, true, td_vector_norm(x[0], TWO_AXES, 2, 0))                                            \
    X(norm_3, VECTOR_NORM, 0.5, 2, true, td_vector_norm(x[0], TWO_AXES, 3, 0))

/* x plus numbers of which some are 0, for an x that is 0. */
static td_tensor *zeros_at(td_tensor *x, double a, double b, double c) {
    return td_add(x, td_upload(td_tensor_device(x), TD_F64, TD_SHAPE(3), (const double[]){a, b, c}));
}

/* Kinks, where the slopes on both sides are of different signs, or equal parts of 2. */
#define ONE(X)                                                                                                         \
    X(sum, SUM, -2, 2, true, td_sum(td_square(x[0]), TD_AXES(-1), 0))                                                  \
    X(sum_kept, SUM, -2, 2, true, td_multiply(x[0], td_sum(x[0], TD_AXES(0, 1), 1)))                                   \
    X(sum_all, SUM, -2, 2, true, td_square(td_sum(x[0], TD_ALL_AXES, 0)))                                              \
    X(prod, PROD, -2, 2, true, td_prod(x[0], TD_ALL_AXES, 0))                                                          \
    X(prod_zero, PROD, 0, 0, true, td_exp(td_prod(zeros_at(x[0], 2, 0, 3), TD_AXES(-1), 0)))                           \
    X(prod_zeros, PROD, 0, 0, true, td_exp(td_prod(zeros_at(x[0], 0, 2, 0), TD_AXES(-1), 0)))                          \
    X(mean, MEAN, -2, 2, true, td_mean(td_square(x[0]), TD_ALL_AXES, 0))                                               \
    X(mean_kept, MEAN, -2, 2, true, td_multiply(x[0], td_mean(x[0], TD_AXES(-2), 1)))                                  \
    X(max, MAX, -2, 2, true, td_max(td_exp(x[0]), TD_ALL_AXES, 0))                                                     \
    X(max_kept, MAX, -2, 2, true, td_multiply(x[0], td_max(x[0], TD_AXES(-1), 1)))                                     \
    X(max_equal, MAX, 0, 0, false, td_max(x[0], TD_AXES(0), 0))                                                        \
    X(min, MIN, -2, 2, true, td_min(td_exp(x[0]), TD_AXES(0), 0))                                                      \
    X(min_kept, MIN, -2, 2, true, td_multiply(x[0], td_min(x[0], TD_ALL_AXES, 1)))                                     \
    X(min_equal, MIN, 0, 0, false, td_min(x[0], TD_AXES(-2), 0))                                                       \
    X(var, VAR, -2, 2, true, td_var(x[0], TD_ALL_AXES, 1, 0))                                                          \
    X(var_kept, VAR, -2, 2, true, td_multiply(x[0], td_var(x[0], TD_AXES(-1), 0.5, 1)))                                \
    X(std, STD, -2, 2, true, td_std(x[0], TD_ALL_AXES, 0, 0))                                                          \
    X(std_kept, STD, -2, 2, true, td_multiply(x[0], td_std(x[0], TD_AXES(-1), 1.5, 1)))                                \
    X(std_equal, STD, 0, 0, false, td_std(x[0], TD_AXES(-1), 1, 0))                                                    \
    X(logsumexp, LOGSUMEXP, -2, 2, true, td_logsumexp(x[0], TD_ALL_AXES, 0))                                           \
    X(logsumexp_far, LOGSUMEXP, 1000, 1004, true, td_logsumexp(x[0], TD_AXES(0), 1))                                   \
    X(norm_2, VECTOR_NORM, -2, 2, true, td_vector_norm(x[0], TD_ALL_AXES, 2, 1))                                       \
    X(norm_1, VECTOR_NORM, -2, 2, true, td_square(td_vector_norm(x[0], TD_AXES(-1), 1, 0)))                            \
    X(norm_half, VECTOR_NORM, -2, 2, true, td_vector_norm(x[0], TD_AXES(-1), 0.5, 1))                                  \
    X(norm_3, VECTOR_NORM, -2, 2, true, td_vector_norm(x[0], TD_AXES(0), 3, 0))                                        \
    X(norm_below, VECTOR_NORM, -2, 2, true, td_vector_norm(x[0], TD_ALL_AXES, -1.5, 0))                                \
    X(norm_most, VECTOR_NORM, -2, 2, true, td_square(td_vector_norm(x[0], TD_AXES(-1), INFINITY, 0)))                  \
    X(norm_least, VECTOR_NORM, -2, 2, true, td_square(td_vector_norm(x[0], TD_AXES(0), -INFINITY, 1)))                 \
    X(norm_0, VECTOR_NORM, 0.5, 2, true, td_add(td_square(x[0]), td_vector_norm(x[0], TD_AXES(0), 0, 1)))              \
    X(norm_1_zero, VECTOR_NORM, 0, 0, false, td_vector_norm(zeros_at(x[0], 0, -2, 0), TD_AXES(0), 1, 0))               \
    X(norm_2_zero, VECTOR_NORM, 0, 0, false, td_vector_norm(zeros_at(x[0], 0, -2, 0), TD_AXES(0), 2, 0))               \
    X(norm_3_zero, VECTOR_NORM, 0, 0, false, td_vector_norm(zeros_at(x[0], 0, -2, 0), TD_AXES(0), 3, 0))               \
    X(norm_most_zero, VECTOR_NORM, 0, 0, false, td_vector_norm(zeros_at(x[0], 0, 2, 0), TD_AXES(1), INFINITY, 0))

ONE(AUTOGRAD_FUNCTION)
ONE(AUTOGRAD_ONE)
MIDDLES(MIDDLE)

const struct autograd_case *const autograd_reduce_cases[] = {ONE(AUTOGRAD_ROW) MIDDLES(MIDDLE_ROW) NULL};
