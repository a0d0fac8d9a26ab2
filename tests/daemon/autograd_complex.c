/* Derivatives by complex numbers, whose parts are the inputs of the cases: so the differences are by the parts, and the gradient of a real sum goes
 * through complex numbers between. */
#include <math.h>
#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

/* A real function of all parts, with another slope by each. */
static td_tensor *parts(td_tensor *y) {
    return td_add(td_real(y), td_multiply(td_sin(td_real(y)), td_imag(y)));
}
static td_tensor *z_of(td_tensor **x) {
    return td_complex(x[0], x[1]);
}
#define Z z_of(x)
/* Beside it another one: its conjugate, shifted. */
#define W td_add(td_conj(Z), td_full(td_tensor_device(x[0]), TD_F64, 0, NULL, 3))

static td_tensor *positions(td_tensor *x) {
    return td_upload(td_tensor_device(x), TD_I64, TD_SHAPE(2, 2), (const int64_t[]){2, 0, 0, 2});
}
static td_tensor *outer_of(td_tensor *y) {
    return td_matmul(y, td_conj(td_transpose(y)));
}
static td_tensor *chosen(td_tensor *y, td_tensor *mask) {
    td_tensor *values, *count;
    return td_masked_select(y, mask, &values, &count) ? NULL : values;
}

/* Each element twice: of complex numbers equal ones need only be neighbours. */
static td_tensor *runs(td_tensor *y) {
    td_tensor *sorted = td_repeat(td_reshape(y, TD_SHAPE(-1)), 2, 0), *all[5];
    td_tensor *places = td_arange(td_tensor_device(y), TD_I64, 0, 12, 1);
    return td_unique_runs(sorted, places, &all[0], &all[1], &all[2], &all[3], &all[4]) ? NULL : td_exp(all[0]);
}

static td_tensor *repeated(td_tensor *y) {
    const int64_t counts[] = {0, 2, 1};
    td_tensor *result, *how_often = td_upload(td_tensor_device(y), TD_I64, TD_SHAPE(3), counts);
    return td_repeat_each(y, how_often, 4, 1, &result, NULL) ? NULL : result;
}

#define NORM(n) TD_FFT_NORM_##n
#define ROWS(X)                                                                                                        \
    X(complex, COMPLEX, -2, 2, true, parts(td_square(Z)))                                                              \
    X(imag, IMAG, -2, 2, true, td_square(td_imag(Z)))                                                                  \
    X(imag_of_real, IMAG, -2, 2, true, td_multiply(x[0], td_add(td_imag(td_complex(x[1], x[1])), x[1])))               \
    X(real, REAL, -2, 2, true, td_square(td_real(Z)))                                                                  \
    X(conj, CONJ, -2, 2, true, parts(td_multiply(Z, td_conj(Z))))                                                      \
    X(angle, ANGLE, 0.5, 2, true, td_angle(Z))                                                                         \
    X(abs, ABS, 0.5, 2, true, td_abs(Z))                                                                               \
    X(sign, SIGN, 0.5, 2, true, parts(td_sign(Z)))                                                                     \
    X(add, ADD, -2, 2, true, parts(td_add(td_square(Z), x[0])))                                                        \
    X(subtract, SUBTRACT, -2, 2, true, parts(td_subtract(x[0], td_square(Z))))                                         \
    X(multiply, MULTIPLY, -2, 2, true, parts(td_multiply(Z, W)))                                                       \
    X(multiply_real, MULTIPLY, -2, 2, true, parts(td_multiply(Z, x[0])))                                               \
    X(divide, DIVIDE, 0.5, 2, true, parts(td_divide(Z, W)))                                                            \
    X(divide_real, DIVIDE, 0.5, 2, true, parts(td_divide(x[1], Z)))                                                    \
    X(pow, POW, 0.5, 1, true, parts(td_pow(Z, td_conj(Z))))                                                            \
    X(pow_real, POW, 0.5, 1, true, parts(td_pow(x[0], Z)))                                                             \
    X(negative, NEGATIVE, -2, 2, true, parts(td_negative(td_square(Z))))                                               \
    X(positive, POSITIVE, -2, 2, true, parts(td_positive(td_square(Z))))                                               \
    X(square, SQUARE, -2, 2, true, parts(td_square(Z)))                                                                \
    X(reciprocal, RECIPROCAL, 0.5, 2, true, parts(td_reciprocal(Z)))                                                   \
    X(sqrt, SQRT, 0.5, 2, true, parts(td_sqrt(Z)))                                                                     \
    X(exp, EXP, -2, 2, true, parts(td_exp(Z)))                                                                         \
    X(expm1, EXPM1, -2, 2, true, parts(td_expm1(Z)))                                                                   \
    X(log, LOG, 0.5, 2, true, parts(td_log(Z)))                                                                        \
    X(log1p, LOG1P, 0.5, 2, true, parts(td_log1p(Z)))                                                                  \
    X(log2, LOG2, 0.5, 2, true, parts(td_log2(Z)))                                                                     \
    X(log10, LOG10, 0.5, 2, true, parts(td_log10(Z)))                                                                  \
    X(sin, SIN, -2, 2, true, parts(td_sin(Z)))                                                                         \
    X(cos, COS, -2, 2, true, parts(td_cos(Z)))                                                                         \
    X(tan, TAN, 0.5, 1, true, parts(td_tan(Z)))                                                                        \
    X(asin, ASIN, 0.5, 2, true, parts(td_asin(Z)))                                                                     \
    X(acos, ACOS, 0.5, 2, true, parts(td_acos(Z)))                                                                     \
    X(atan, ATAN, 0.5, 2, true, parts(td_atan(Z)))                                                                     \
    X(sinh, SINH, -2, 2, true, parts(td_sinh(Z)))                                                                      \
    X(cosh, COSH, -2, 2, true, parts(td_cosh(Z)))                                                                      \
    X(tanh, TANH, 0.5, 1, true, parts(td_tanh(Z)))                                                                     \
    X(asinh, ASINH, 0.5, 2, true, parts(td_asinh(Z)))                                                                  \
    X(acosh, ACOSH, 0.5, 2, true, parts(td_acosh(Z)))                                                                  \
    X(acosh_left, ACOSH, 0.5, 2, true, parts(td_acosh(td_negative(Z))))                                                \
    X(atanh, ATANH, 0.5, 2, true, parts(td_atanh(Z)))                                                                  \
    X(where, WHERE, -2, 2, false, parts(td_where(td_greater(x[0], x[1]), td_square(Z), td_exp(x[1]))))                 \
    X(cast, CAST, -2, 2, true, parts(td_cast(td_square(x[0]), TD_C128)))                                               \
    X(copy, COPY, -2, 2, true, parts(td_copy(td_square(Z))))                                                           \
    X(reshape, RESHAPE, -2, 2, true, parts(td_reshape(td_square(Z), TD_SHAPE(6))))                                     \
    X(permute, PERMUTE_DIMS, -2, 2, true, parts(td_permute(td_square(Z), TD_AXES(1, 0))))                              \
    X(transpose, MATRIX_TRANSPOSE, -2, 2, true, parts(td_transpose(td_square(Z))))                                     \
    X(slice, SLICE, -2, 2, true, parts(td_slice(td_square(Z), 1, 0, 3, 2)))                                            \
    X(broadcast, BROADCAST_TO, -2, 2, true, parts(td_broadcast_to(td_square(Z), TD_SHAPE(2, 2, 3))))                   \
    X(squeeze, SQUEEZE, -2, 2, true, parts(td_squeeze(td_expand_dims(td_square(Z), 0), TD_AXES(0))))                   \
    X(expand_dims, EXPAND_DIMS, -2, 2, true, parts(td_expand_dims(td_square(Z), 1)))                                   \
    X(concat, CONCAT, -2, 2, true, parts(td_concat((td_tensor *[]){Z, x[0], td_square(Z)}, 3, 1)))                     \
    X(stack, STACK, -2, 2, true, parts(td_stack((td_tensor *[]){Z, td_square(Z)}, 2, 1)))                              \
    X(diagonal, DIAGONAL, -2, 2, true, parts(td_diagonal(td_square(Z), 1, 0, 1)))                                      \
    X(pad, PAD, -2, 2, true, parts(td_pad(td_square(Z), TD_SHAPE(1, 0, 1, 1), TD_PAD_MODE_REFLECT, 0)))                \
    X(tril, TRIL, -2, 2, true, parts(td_tril(td_square(Z), 0)))                                                        \
    X(triu, TRIU, -2, 2, true, parts(td_triu(td_square(Z), 1)))                                                        \
    X(take, TAKE, -2, 2, true, parts(td_take(td_square(Z), td_reshape(positions(x[0]), TD_SHAPE(-1)), 1)))             \
    X(take_along, TAKE_ALONG_AXIS, -2, 2, true, parts(td_take_along_axis(td_square(Z), positions(x[0]), 1)))           \
    X(scatter, SCATTER, -2, 2, true, parts(td_scatter(td_square(Z), positions(x[0]), td_slice(W, 1, 0, 2, 1), 1)))     \
    X(scatter_add, SCATTER_ADD, -2, 2, true,                                                                           \
      parts(td_scatter_add(td_square(Z), positions(x[0]), td_slice(W, 1, 0, 2, 1), 1)))                                \
    X(masked_select, MASKED_SELECT, -2, 2, false, parts(chosen(td_square(Z), td_greater(x[0], x[1]))))                 \
    X(unique_runs, UNIQUE_RUNS, -2, 2, true, parts(runs(Z)))                                                           \
    X(repeat_each, REPEAT_EACH, -2, 2, true, parts(repeated(td_square(Z))))                                            \
    X(sum, SUM, -2, 2, true, parts(td_sum(td_square(Z), TD_AXES(1), 0)))                                               \
    X(mean, MEAN, -2, 2, true, parts(td_mean(td_square(Z), TD_AXES(0), 1)))                                            \
    X(prod, PROD, -2, 2, true, parts(td_prod(Z, TD_AXES(1), 0)))                                                       \
    X(norm, VECTOR_NORM, 0.5, 2, true, td_vector_norm(Z, TD_AXES(1), 2, 0))                                            \
    X(norm_1, VECTOR_NORM, 0.5, 2, true, td_vector_norm(Z, TD_AXES(0), 1, 0))                                          \
    X(norm_3, VECTOR_NORM, 0.5, 2, true, td_vector_norm(Z, TD_AXES(0, 1), 3, 1))                                       \
    X(norm_infinite, VECTOR_NORM, 0.5, 2, false, td_vector_norm(Z, TD_AXES(1), INFINITY, 0))                           \
    X(cumulative_sum, CUMULATIVE_SUM, -2, 2, true, parts(td_cumulative_sum(td_square(Z), 1, 1)))                       \
    X(cumulative_prod, CUMULATIVE_PROD, -2, 2, true, parts(td_cumulative_prod(Z, 1, 0)))                               \
    X(matmul, MATMUL, -2, 2, true, parts(outer_of(Z)))                                                                 \
    X(matmul_real, MATMUL, -2, 2, true, parts(td_matmul(Z, td_transpose(x[0]))))                                       \
    X(matmul_vector, MATMUL, -0.5, 0.5, true, parts(td_matmul(Z, td_sum(W, TD_AXES(0), 0))))                           \
    X(cross, CROSS, -2, 2, true, parts(td_cross(td_square(Z), W, -1)))                                                 \
    X(cross_real, CROSS, -2, 2, true, parts(td_cross(td_square(Z), x[0], -1)))                                         \
    X(fft, FFT, -2, 2, true, parts(td_fft(Z, 0, 1, NORM(BACKWARD))))                                                   \
    X(fft_shorter, FFT, -2, 2, true, parts(td_fft(Z, 2, -1, NORM(FORWARD))))                                           \
    X(fft_longer, FFT, -2, 2, true, parts(td_fft(Z, 5, 1, NORM(ORTHO))))                                               \
    X(fft_real, FFT, -2, 2, true, parts(td_fft(x[0], 4, 1, NORM(BACKWARD))))                                           \
    X(ifft, IFFT, -2, 2, true, parts(td_ifft(Z, 0, 0, NORM(BACKWARD))))                                                \
    X(ifft_longer, IFFT, -2, 2, true, parts(td_ifft(Z, 4, 1, NORM(FORWARD))))                                          \
    X(rfft, RFFT, -2, 2, true, parts(td_rfft(x[0], 0, 1, NORM(BACKWARD))))                                             \
    X(rfft_even, RFFT, -2, 2, true, parts(td_rfft(x[1], 4, -1, NORM(ORTHO))))                                          \
    X(rfft_shorter, RFFT, -2, 2, true, parts(td_rfft(x[1], 2, 1, NORM(FORWARD))))                                      \
    X(irfft, IRFFT, -2, 2, true, td_sin(td_irfft(Z, 0, 1, NORM(BACKWARD))))                                            \
    X(irfft_odd, IRFFT, -2, 2, true, td_sin(td_irfft(Z, 5, 1, NORM(FORWARD))))                                         \
    X(irfft_longer, IRFFT, -2, 2, true, td_sin(td_irfft(Z, 8, 1, NORM(ORTHO))))                                        \
    X(irfft_shorter, IRFFT, -2, 2, true, td_sin(td_irfft(Z, 2, 1, NORM(BACKWARD))))                                    \
    X(irfft_one, IRFFT, -2, 2, true, td_sin(td_irfft(Z, 1, 0, NORM(BACKWARD))))                                        \
    X(several, RFFT, -2, 2, true,                                                                                      \
      td_irfftn(td_square(td_rfftn(x[0], TD_ALL_AXES, NULL, NORM(ORTHO))), TD_ALL_AXES, (const int64_t[]){2, 3},       \
                NORM(ORTHO)))

#define SHAPED(name, opcode, low, high, smooth, expression)                                                            \
    AUTOGRAD_SHAPED(name, opcode, low, high, smooth, 2, (2, 2), ({2, 3}, {2, 3}), expression)

ROWS(SHAPED)

const struct autograd_case *const autograd_complex_cases[] = {ROWS(AUTOGRAD_ROW) NULL};
