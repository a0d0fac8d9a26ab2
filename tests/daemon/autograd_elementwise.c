#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

#define ONE(X)                                                                                                         \
    X(copy, COPY, -2, 2, true, td_copy(x[0]))                                                                          \
    X(cast, CAST, -2, 2, true, td_cast(td_square(td_cast(x[0], TD_F64)), TD_F64))                                      \
    X(real, REAL, -2, 2, true, td_real(td_square(x[0])))                                                               \
    X(conj, CONJ, -2, 2, true, td_conj(td_square(x[0])))                                                               \
    X(positive, POSITIVE, -2, 2, true, td_positive(td_square(x[0])))                                                   \
    X(negative, NEGATIVE, -2, 2, true, td_negative(td_square(x[0])))                                                   \
    X(abs, ABS, -2, 2, false, td_abs(x[0]))                                                                            \
    X(square, SQUARE, -2, 2, true, td_square(x[0]))                                                                    \
    X(sqrt, SQRT, 0.5, 2, true, td_sqrt(x[0]))                                                                         \
    X(rsqrt, RSQRT, 0.5, 2, true, td_rsqrt(x[0]))                                                                      \
    X(reciprocal, RECIPROCAL, 0.5, 2, true, td_reciprocal(x[0]))                                                       \
    X(exp, EXP, -2, 2, true, td_exp(x[0]))                                                                             \
    X(exp2, EXP2, -2, 2, true, td_exp2(x[0]))                                                                          \
    X(expm1, EXPM1, -2, 2, true, td_expm1(x[0]))                                                                       \
    X(log, LOG, 0.5, 2, true, td_log(x[0]))                                                                            \
    X(log1p, LOG1P, -0.5, 2, true, td_log1p(x[0]))                                                                     \
    X(log2, LOG2, 0.5, 2, true, td_log2(x[0]))                                                                         \
    X(log10, LOG10, 0.5, 2, true, td_log10(x[0]))                                                                      \
    X(sin, SIN, -2, 2, true, td_sin(x[0]))                                                                             \
    X(cos, COS, -2, 2, true, td_cos(x[0]))                                                                             \
    X(tan, TAN, -1, 1, true, td_tan(x[0]))                                                                             \
    X(asin, ASIN, -0.9, 0.9, true, td_asin(x[0]))                                                                      \
    X(acos, ACOS, -0.9, 0.9, true, td_acos(x[0]))                                                                      \
    X(atan, ATAN, -2, 2, true, td_atan(x[0]))                                                                          \
    X(sinh, SINH, -2, 2, true, td_sinh(x[0]))                                                                          \
    X(cosh, COSH, -2, 2, true, td_cosh(x[0]))                                                                          \
    X(tanh, TANH, -2, 2, true, td_tanh(x[0]))                                                                          \
    X(asinh, ASINH, -2, 2, true, td_asinh(x[0]))                                                                       \
    X(acosh, ACOSH, 1.5, 3, true, td_acosh(x[0]))                                                                      \
    X(atanh, ATANH, -0.8, 0.8, true, td_atanh(x[0]))                                                                   \
    X(erf, ERF, -2, 2, true, td_erf(x[0]))                                                                             \
    X(erfc, ERFC, -2, 2, true, td_erfc(x[0]))                                                                          \
    X(sigmoid, SIGMOID, -2, 2, true, td_sigmoid(x[0]))                                                                 \
    X(softplus, SOFTPLUS, -2, 2, true, td_softplus(x[0], 1.5, 20))                                                     \
    X(softplus_beyond, SOFTPLUS, 2, 4, false, td_softplus(x[0], 1.5, 2))                                               \
    X(relu, RELU, -2, 2, false, td_relu(x[0]))                                                                         \
    X(silu, SILU, -2, 2, true, td_silu(x[0]))                                                                          \
    X(gelu, GELU, -2, 2, true, td_gelu(x[0]))                                                                          \
    X(gelu_tanh, GELU_TANH, -2, 2, true, td_gelu_tanh(x[0]))                                                           \
    X(mish, MISH, -2, 2, true, td_mish(x[0]))                                                                          \
    X(leaky_relu, LEAKY_RELU, -2, 2, false, td_leaky_relu(x[0], 0.2))                                                  \
    X(elu, ELU, -2, 2, false, td_elu(x[0], 0.7))                                                                       \
    X(hardsigmoid, HARDSIGMOID, -4, 4, false, td_hardsigmoid(x[0]))                                                    \
    X(hardswish, HARDSWISH, -4, 4, false, td_hardswish(x[0]))
#define TWO(X)                                                                                                         \
    X(add, ADD, -2, 2, true, td_add(td_square(x[0]), x[1]))                                                            \
    X(add_twice, ADD, -2, 2, true, td_add(x[1], td_add(x[1], td_multiply(x[0], x[1]))))                                \
    X(subtract, SUBTRACT, -2, 2, true, td_subtract(td_square(x[1]), x[0]))                                             \
    X(multiply, MULTIPLY, -2, 2, true, td_multiply(x[0], x[1]))                                                        \
    X(divide, DIVIDE, 0.5, 2, true, td_divide(x[1], x[0]))                                                             \
    X(pow, POW, 0.5, 2, true, td_pow(x[0], x[1]))                                                                      \
    X(maximum, MAXIMUM, -2, 2, false, td_maximum(x[0], x[1]))                                                          \
    X(minimum, MINIMUM, -2, 2, false, td_minimum(x[1], x[0]))                                                          \
    X(where, WHERE, -2, 2, false, td_where(td_greater(x[0], x[1]), td_square(x[1]), td_exp(x[0])))                     \
    X(clip, CLIP, -2, 2, false, td_clip(x[0], x[1], td_add(x[1], td_abs(x[0]))))                                       \
    X(copysign, COPYSIGN, -2, 2, false, td_copysign(x[0], x[1]))                                                       \
    X(remainder, REMAINDER, 0.6, 2.4, false, td_remainder(td_multiply(x[0], x[1]), x[1]))                              \
    X(fmod, FMOD, 0.6, 2.4, false, td_fmod(td_negative(x[0]), x[1]))                                                   \
    X(hypot, HYPOT, 0.5, 2, true, td_hypot(x[0], x[1]))                                                                \
    X(atan2, ATAN2, 0.5, 2, true, td_atan2(x[0], x[1]))                                                                \
    X(logaddexp, LOGADDEXP, -2, 2, true, td_logaddexp(x[0], x[1]))

ONE(AUTOGRAD_FUNCTION)
TWO(AUTOGRAD_FUNCTION)
ONE(AUTOGRAD_ONE)
TWO(AUTOGRAD_TWO)

const struct autograd_case *const autograd_elementwise_cases[] = {ONE(AUTOGRAD_ROW) TWO(AUTOGRAD_ROW) NULL};
