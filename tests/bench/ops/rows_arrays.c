/* Rows of what makes, moves, searches and multiplies arrays that rows.c does not have: creation, random numbers, views, indices,
 * reductions, linear algebra, Fourier transforms. */
#include "tests/bench/ops/operands.h"

#define CREATION(X)                                                                                                    \
    X(full, "full", vectors, td_full(at->device, at->dtype, 1, &at->n, 0.5))                                           \
    X(arange, "arange", vectors, td_arange(at->device, at->dtype, 0, (double)at->n, 1))                                \
    X(linspace, "linspace", vectors, td_linspace(at->device, at->dtype, 0, 1, at->n, 1))                               \
    X(linspace_complex, "linspace of complex", vectors, td_linspace_complex(at->device, at->dtype, 0, 1, 1, 2, at->n, 1)) \
    X(eye, "eye", square, td_eye(at->device, at->dtype, at->side, at->side, 0))                                        \
    X(fftfreq, "fftfreq", vectors, td_fftfreq(at->device, at->dtype, at->n, 1))                                        \
    X(rfftfreq, "rfftfreq", vectors, td_rfftfreq(at->device, at->dtype, at->n, 1))                                     \
    X(meshgrid, "meshgrid", edges, ops_first(td_meshgrid(2, x, 0, made), 2, made))

#define RANDOM(X)                                                                                                      \
    X(exponential, "exponential", vectors, td_exponential(at->device, at->dtype, 1, &at->n, 7, 1))                     \
    X(randint, "randint", vectors, td_randint(at->device, TD_I64, 1, &at->n, 7, 0, 1000))                              \
    X(bernoulli, "bernoulli", vectors, td_bernoulli(at->device, at->dtype, 1, &at->n, 7, 0.25))                        \
    X(bernoulli_like, "bernoulli of probabilities", vectors, td_bernoulli_like(x[0], 7))                               \
    X(multinomial, "multinomial", kinds, td_multinomial(x[0], at->n, 1, 7))                                            \
    X(multinomial_once, "multinomial, no replacement", vectors, td_multinomial(x[0], at->n / 16, 0, 7))

/* Views take no pass over memory in libraries that have them. */
#define VIEWS(X)                                                                                                       \
    X(reshape, "reshape", square, td_reshape(x[0], 1, (const int64_t[]){at->side * at->side}))                         \
    X(permute, "permute_dims", batch, td_permute(x[0], TD_AXES(2, 0, 1)))                                              \
    X(transpose, "matrix_transpose", square, td_transpose(x[0]))                                                       \
    X(slice, "slice", square, td_slice(x[0], 0, 0, at->side / 2, 1))                                                   \
    X(broadcast, "broadcast_to", edges, td_broadcast_to(x[0], TD_SHAPE(at->side, at->side)))                           \
    X(expand_dims, "expand_dims", square, td_expand_dims(x[0], 0))                                                     \
    X(squeeze, "squeeze", column, td_squeeze(x[0], TD_AXES(1)))                                                        \
    X(diagonal, "diagonal", square, td_diagonal(x[0], 0, 0, 1))                                                        \
    X(moveaxis, "moveaxis", batch, td_moveaxis(x[0], 1, (const int64_t[]){0}, (const int64_t[]){2}))                   \
    X(split, "split", square,                                                                                          \
      ops_first(td_split(x[0], 2, (const int64_t[]){at->side / 2, at->side - at->side / 2}, 1, made), 2, made))        \
    X(unstack, "unstack", pair, ops_first(td_unstack(x[0], 0, made), 2, made))

#define MOVEMENT(X)                                                                                                    \
    X(triu, "triu", square, td_triu(x[0], 0))                                                                          \
    X(diag, "diag", edges, td_diag(x[0], 0))                                                                           \
    X(diff, "diff", vectors, td_diff(x[0], 1, 0, NULL, NULL))                                                          \
    X(pad_reflected, "pad, reflected", square, td_pad(x[0], 4, (const int64_t[]){1, 1, 1, 1}, TD_PAD_MODE_REFLECT, 0)) \
    X(gather, "gather", places, td_gather(x[0], x[2], 1))                                                              \
    X(scatter_into, "scatter, in place", places, ops_replaced(td_scatter_into(&x[0], x[2], x[1], 1), x[1]))            \
    X(index_copy, "index_copy of rows", positions, td_index_copy(x[0], 0, x[2], x[1]))                                 \
    X(repeat_each, "repeat of counts", counts,                                                                         \
      ops_first(td_repeat_each(x[0], x[1], 2 * at->n, 0, &made[0], &made[1]), 2, made))                                \
    X(unique, "unique", integers, ops_first(td_unique(x[0], &made[0], NULL, NULL, NULL, &made[1]), 2, made))           \
    X(unique_places, "unique and places", integers,                                                                    \
      ops_first(td_unique(x[0], &made[0], &made[1], &made[2], &made[3], &made[4]), 5, made))                           \
    X(unique_runs, "unique of a sorted vector", runs,                                                                  \
      ops_first(td_unique_runs(x[0], x[1], &made[0], &made[1], &made[2], &made[3], &made[4]), 5, made))

#define REDUCTIONS(X)                                                                                                  \
    X(min_rows, "min of rows", square, td_min(x[0], TD_AXES(1), 0))                                                    \
    X(all, "all", masks, td_all(x[0], TD_ALL_AXES, 0))                                                                 \
    X(any_rows, "any of rows", booleans, td_any(x[0], TD_AXES(1), 0))                                                  \
    X(all_rows, "all of rows", booleans, td_all(x[0], TD_AXES(1), 0))                                                  \
    X(argmin, "argmin", vectors, td_argmin(x[0], TD_AXES(0), 0))                                                       \
    X(std_rows, "std of rows", square, td_std(x[0], TD_AXES(1), 1, 0))                                                 \
    X(mean, "mean", vectors, td_mean(x[0], TD_ALL_AXES, 0))                                                            \
    X(std, "std", vectors, td_std(x[0], TD_ALL_AXES, 1, 0))                                                            \
    X(cumprod_rows, "cumprod of rows", near_one, td_cumulative_prod(x[0], 1, 0))                                       \
    X(cummin_rows, "cummin of rows", square, ops_first(td_cummin(x[0], 1, &made[0], &made[1]), 2, made))               \
    X(logcumsumexp_rows, "logcumsumexp of rows", square, td_logcumsumexp(x[0], 1))

#define ALGEBRA(X)                                                                                                     \
    X(lu, "lu", definite, ops_first(td_lu(x[2], &made[0], &made[1], &made[2]), 3, made))                               \
    X(triangular_solve, "triangular_solve", definite, td_triangular_solve(x[2], x[1], 0, 0))                           \
    X(slogdet, "slogdet", definite, ops_first(td_slogdet(x[2], &made[0], &made[1]), 2, made))                          \
    X(lstsq, "lstsq", tall, td_lstsq(x[0], x[1]))                                                                      \
    X(pinv, "pinv", square, td_pinv(x[0], 1e-5))                                                                       \
    X(matrix_rank, "matrix_rank", square, td_matrix_rank(x[0], 1e-5))                                                  \
    X(matrix_norm, "matrix_norm", square, td_matrix_norm(x[0], TD_MATRIX_NORM_FROBENIUS, 0))                           \
    X(matrix_norm_columns, "matrix_norm, greatest column", square, td_matrix_norm(x[0], TD_MATRIX_NORM_1, 0))          \
    X(matrix_power, "matrix_power of 5", square, td_matrix_power(x[0], 5))                                             \
    X(trace, "trace", square, td_trace(x[0], 0))                                                                       \
    X(outer, "outer", edges, td_outer(x[0], x[1]))                                                                     \
    X(vecdot, "vecdot of rows", square, td_vecdot(x[0], x[1], -1))                                                     \
    X(cross, "cross", points, td_cross(x[0], x[1], -1))                                                                \
    X(kron, "kron", factors, td_kron(x[0], x[1]))                                                                      \
    X(tensordot, "tensordot", folded, td_tensordot(x[0], x[1], 2, (const int64_t[]){1, 2}, (const int64_t[]){0, 1}))   \
    X(einsum, "einsum of bij,bkj->bik", batch, td_einsum("bij,bkj->bik", 2, x))                                        \
    X(einsum_dot, "einsum of ij,ij->i", square, td_einsum("ij,ij->i", 2, x))                                           \
    X(linear, "linear", layers, td_linear(x[0], x[1], x[2], TD_ACTIVATION_NONE))                                       \
    X(linear_relu, "linear and relu", layers, td_linear(x[0], x[1], x[2], TD_ACTIVATION_RELU))

#define FOURIER(X)                                                                                                     \
    X(ifft, "ifft", vectors, td_ifft(x[0], 0, 0, TD_FFT_NORM_BACKWARD))                                                \
    X(irfft_rows, "irfft of rows", half_plane, td_irfft(x[0], 0, 1, TD_FFT_NORM_BACKWARD))                             \
    X(ifft2, "ifft2", square, td_ifftn(x[0], 0, NULL, NULL, TD_FFT_NORM_BACKWARD))                                     \
    X(rfft2, "rfft2", square, td_rfftn(x[0], 0, NULL, NULL, TD_FFT_NORM_BACKWARD))                                     \
    X(irfft2, "irfft2", half_plane, td_irfftn(x[0], 0, NULL, NULL, TD_FFT_NORM_BACKWARD))                              \
    X(hfft, "hfft", spectrum, td_hfft(x[0], 0, 0, TD_FFT_NORM_BACKWARD))                                               \
    X(ihfft, "ihfft", vectors, td_ihfft(x[0], 0, 0, TD_FFT_NORM_BACKWARD))                                             \
    X(fftshift, "fftshift", square, td_fftshift(x[0], TD_ALL_AXES))                                                    \
    X(ifftshift, "ifftshift", square, td_ifftshift(x[0], TD_ALL_AXES))

#define ROWS(X) CREATION(X) RANDOM(X) VIEWS(X) MOVEMENT(X) REDUCTIONS(X) ALGEBRA(X) FOURIER(X)

ROWS(OPS_RUN)
static const struct ops_row rows[] = {ROWS(OPS_ROW)};
const struct ops_rows ops_rows_of_arrays = {rows, sizeof rows / sizeof *rows};
