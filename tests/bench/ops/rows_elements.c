/* Rows of elementwise operations that rows.c does not have: truth, bits, tests, complex numbers. */
#include "tests/bench/ops/operands.h"

#define NAMED(X, name, operands, expression) X(name, #name, operands, expression)
#define ROWS(X)                                                                                                        \
    NAMED(X, not_equal, vectors, td_not_equal(x[0], x[1]))                                                             \
    NAMED(X, less_equal, vectors, td_less_equal(x[0], x[1]))                                                           \
    NAMED(X, greater, vectors, td_greater(x[0], x[1]))                                                                 \
    NAMED(X, greater_equal, vectors, td_greater_equal(x[0], x[1]))                                                     \
    NAMED(X, logical_and, masks, td_logical_and(x[0], x[1]))                                                           \
    NAMED(X, logical_or, masks, td_logical_or(x[0], x[1]))                                                             \
    NAMED(X, logical_xor, masks, td_logical_xor(x[0], x[1]))                                                           \
    NAMED(X, logical_not, masks, td_logical_not(x[0]))                                                                 \
    NAMED(X, bitwise_and, shifts, td_bitwise_and(x[0], x[1]))                                                          \
    NAMED(X, bitwise_or, shifts, td_bitwise_or(x[0], x[1]))                                                            \
    NAMED(X, bitwise_xor, shifts, td_bitwise_xor(x[0], x[1]))                                                          \
    NAMED(X, bitwise_invert, shifts, td_bitwise_invert(x[0]))                                                          \
    NAMED(X, bitwise_left_shift, shifts, td_bitwise_left_shift(x[0], x[1]))                                            \
    NAMED(X, bitwise_right_shift, shifts, td_bitwise_right_shift(x[0], x[1]))                                          \
    NAMED(X, ceil, vectors, td_ceil(x[0]))                                                                             \
    NAMED(X, trunc, vectors, td_trunc(x[0]))                                                                           \
    NAMED(X, positive, vectors, td_positive(x[0]))                                                                     \
    NAMED(X, signbit, vectors, td_signbit(x[0]))                                                                       \
    NAMED(X, isfinite, vectors, td_isfinite(x[0]))                                                                     \
    NAMED(X, isinf, vectors, td_isinf(x[0]))                                                                           \
    NAMED(X, nextafter, vectors, td_nextafter(x[0], x[1]))                                                             \
    NAMED(X, acosh, above_one, td_acosh(x[0]))                                                                         \
    NAMED(X, hardsigmoid, vectors, td_hardsigmoid(x[0]))                                                               \
    NAMED(X, complex, vectors, td_complex(x[0], x[1]))                                                                 \
    NAMED(X, real, vectors, td_real(x[0]))                                                                             \
    NAMED(X, imag, vectors, td_imag(x[0]))                                                                             \
    NAMED(X, conj, vectors, td_conj(x[0]))                                                                             \
    NAMED(X, angle, vectors, td_angle(x[0]))                                                                           \
    NAMED(X, copy, vectors, td_copy(x[0]))                                                                             \
    NAMED(X, masked_fill, masked, td_masked_fill(x[0], x[2], 0))                                                       \
    X(where_into, "where, in place", masked, ops_replaced(td_where_into(&x[1], x[2], x[3]), x[2]))

ROWS(OPS_RUN)
static const struct ops_row rows[] = {ROWS(OPS_ROW)};
const struct ops_rows ops_rows_of_elements = {rows, sizeof rows / sizeof *rows};
