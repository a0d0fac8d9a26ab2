#include "tests/load/no_memory/client_calls.h"

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/tensord.h"

/* An assertion that no build leaves out. */
#define require(holds)                                                                                                 \
    ((holds) ? (void)0 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds), _exit(1)))

/* Of a call that returns a tensor. */
static int code_of(const td_tensor *tensor) {
    return tensor ? TD_OK : td_last_error()->code;
}

static void given_back(void *user) {
    ((struct client_callbacks *)user)->called++;
}

static void fetched(void *user, int status) {
    require(!status || status == TD_E_NO_HOST_MEMORY || status == TD_E_CANCELLED);
    ((struct client_callbacks *)user)->called++;
}

/* ---- operations: NULL is passed on, so that the last one tells ---- */

static td_tensor *created(td_device *device) {
    td_tensor *all[] = {
        td_full(device, TD_F32, TD_SHAPE(4, 4), 1),
        td_full_int(device, TD_F32, TD_SHAPE(4, 4), 2),
        td_full_uint(device, TD_F32, TD_SHAPE(4, 4), 2),
        td_real(td_conj(td_full_complex(device, TD_C64, TD_SHAPE(4, 4), 1, 2))),
        td_imag(td_complex(td_eye(device, TD_F32, 4, 4, 0), td_eye(device, TD_F32, 4, 4, 1))),
        td_reshape(td_real(td_linspace_complex(device, TD_C64, 0, 1, 2, 3, 16, 1)), TD_SHAPE(4, 4)),
        td_add(td_imag(td_cast(td_eye(device, TD_C64, 4, 4, 0), TD_C64)),
               td_angle(td_full(device, TD_C64, TD_SHAPE(4, 4), 1))),
        td_reshape(td_arange(device, TD_F32, 0, 16, 1), TD_SHAPE(4, 4)),
        td_eye(device, TD_F32, 4, 4, 0),
        td_uniform(device, TD_F32, TD_SHAPE(4, 4), 1, 0, 1),
        td_normal(device, TD_F32, TD_SHAPE(4, 4), 1, 0, 1),
        td_exponential(device, TD_F32, TD_SHAPE(4, 4), 1, 2),
        td_randint(device, TD_I32, TD_SHAPE(4, 4), 1, 0, 7),
        td_bernoulli(device, TD_F32, TD_SHAPE(4, 4), 1, 0.5),
        td_bernoulli_like(td_uniform(device, TD_F32, TD_SHAPE(4, 4), 1, 0, 1), 2),
        td_multinomial(td_uniform(device, TD_F32, TD_SHAPE(4, 4), 1, 0, 1), 4, 0, 2),
        td_reshape(td_permutation(device, TD_I64, 16, 3), TD_SHAPE(4, 4)),
        td_real(td_ifft(td_fft(td_eye(device, TD_F32, 4, 4, 0), 0, 1, TD_FFT_NORM_ORTHO), 0, 1, TD_FFT_NORM_ORTHO)),
        td_irfftn(td_rfftn(td_eye(device, TD_F32, 4, 4, 0), TD_ALL_AXES, NULL, TD_FFT_NORM_BACKWARD), TD_ALL_AXES, NULL,
                  TD_FFT_NORM_BACKWARD),
        td_real(td_ifftn(td_fftn(td_eye(device, TD_F32, 4, 4, 0), TD_ALL_AXES, NULL, TD_FFT_NORM_BACKWARD), TD_ALL_AXES,
                         NULL, TD_FFT_NORM_BACKWARD)),
        td_hfft(td_ihfft(td_eye(device, TD_F32, 4, 4, 0), 4, 0, TD_FFT_NORM_FORWARD), 4, 0, TD_FFT_NORM_FORWARD),
        td_add(td_ifftshift(td_fftshift(td_eye(device, TD_F32, 4, 4, 0), TD_AXES(0)), TD_ALL_AXES),
               td_fftfreq(device, TD_F32, 4, 1)),
        td_add(td_eye(device, TD_F32, 4, 4, 0), td_rfftfreq(device, TD_F32, 6, 0.5)),
        td_irfft(td_rfft(td_eye(device, TD_F32, 4, 4, 0), 0, 1, TD_FFT_NORM_BACKWARD), 0, 1, TD_FFT_NORM_BACKWARD),
    };
    td_tensor *sum = all[0];
    for (size_t i = 1; i < sizeof all / sizeof *all; i++)
        sum = td_add(sum, td_cast(all[i], TD_F32));
    return td_dropout(sum, 0.5, 3);
}

static td_tensor *elementwise(td_tensor *x) {
    static td_tensor *(*const binary[])(td_tensor *, td_tensor *) = {
        td_add,           td_subtract,    td_multiply,     td_divide,    td_pow,        td_maximum,
        td_minimum,       td_equal,       td_not_equal,    td_less,      td_less_equal, td_greater,
        td_greater_equal, td_logical_and, td_logical_or,   td_atan2,     td_logaddexp,  td_hypot,
        td_copysign,      td_nextafter,   td_floor_divide, td_remainder, td_fmod,       td_logical_xor,
    };
    static td_tensor *(*const bits[])(td_tensor *, td_tensor *) = {
        td_bitwise_and, td_bitwise_or, td_bitwise_xor, td_bitwise_left_shift, td_bitwise_right_shift,
    };
    static td_tensor *(*const unary[])(td_tensor *) = {
        td_logical_not, td_negative, td_abs,       td_exp,      td_log,         td_sqrt,      td_tanh,       td_sigmoid,
        td_relu,        td_copy,     td_erf,       td_sin,      td_cos,         td_tan,       td_asin,       td_acos,
        td_atan,        td_sinh,     td_cosh,      td_asinh,    td_acosh,       td_atanh,     td_exp2,       td_expm1,
        td_log1p,       td_log2,     td_log10,     td_erfc,     td_square,      td_rsqrt,     td_reciprocal, td_floor,
        td_ceil,        td_trunc,    td_round,     td_positive, td_sign,        td_signbit,   td_isfinite,   td_isinf,
        td_isnan,       td_gelu,     td_gelu_tanh, td_silu,     td_hardsigmoid, td_hardswish, td_mish,
    };
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
        x = td_cast(binary[i](x, x), TD_F32);
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++)
        x = td_cast(unary[i](x), TD_F32);
    td_tensor *i = td_bitwise_invert(td_cast(x, TD_I32));
    for (size_t k = 0; k < sizeof bits / sizeof *bits; k++)
        i = bits[k](i, i);
    x = td_softplus(td_elu(td_leaky_relu(td_cast(i, TD_F32), 0.01), 1), 1, 20);
    return td_where(td_less(x, x), td_clip(x, x, x), x);
}

/* Functions that the library makes up of several operations for what others have one operation. */
static td_tensor *made_up(td_tensor *x) {
    td_tensor *counts = td_cast(td_reshape(td_slice(x, 0, 0, 1, 1), TD_SHAPE(4)), TD_I64), *repeated, *total, *values;
    x = td_add(td_diff(x, 1, 0, NULL, td_slice(x, 0, 0, 1, 1)), td_diff(td_cast(x, TD_BOOL), 0, 1, NULL, NULL));
    if (td_repeat_each(x, counts, 4, 0, &repeated, &total))
        return NULL;
    td_tensor *z = td_complex(x, repeated);
    if (td_unique(z, &values, NULL, NULL, NULL, NULL))
        return NULL;
    z = td_add(td_vecdot(z, z, -1), td_cast(total, TD_C64));
    return td_add(td_real(z), td_abs(td_reshape(td_slice(values, 0, 0, 4, 1), TD_SHAPE(4, 1))));
}

static td_tensor *reduced(td_tensor *x) {
    static td_tensor *(*const reductions[])(td_tensor *, int, const int64_t *, int) = {
        td_sum, td_prod, td_mean, td_max, td_min, td_any, td_all, td_count_nonzero, td_logsumexp,
    };
    td_tensor *sum = x;
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        sum = td_add(sum, td_cast(reductions[i](x, TD_AXES(0), 1), TD_F32));
    sum = td_add(sum, td_add(td_var(x, TD_AXES(0), 1, 1), td_std(x, TD_AXES(0), 1, 1)));
    sum = td_add(sum, td_vector_norm(x, TD_AXES(0, 1), 2, 1));
    td_tensor *places = td_add(td_argmax(x, TD_AXES(1), 0), td_argmin(x, TD_AXES(1), 0));
    td_tensor *best, *at;
    td_topk(x, 1, 1, 1, &best, &at);
    places = td_add(places, td_squeeze(at, TD_AXES(1)));
    return td_add(td_add(td_softmax(sum, 0), td_log_softmax(sum, 1)), td_cast(places, TD_F32));
}

static td_tensor *solved(td_device *device, td_tensor *x) {
    td_tensor *eye = td_eye(device, TD_F32, 4, 4, 0), *outputs[7];
    td_lu(eye, &outputs[0], &outputs[1], &outputs[2]);
    td_qr(eye, TD_QR_MODE_REDUCED, &outputs[3], &outputs[4]);
    td_slogdet(eye, &outputs[5], &outputs[6]);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        x = td_add(x, outputs[i]);
    x = td_solve(td_cholesky(eye, 0), td_triangular_solve(eye, td_inv(eye), 0, 0));
    return td_add(td_lstsq(eye, x), td_det(eye));
}

static td_tensor *spectral(td_device *device, td_tensor *x) {
    td_tensor *eye = td_eye(device, TD_F32, 4, 4, 0), *outputs[5];
    td_eigh(eye, 0, &outputs[0], &outputs[1]);
    td_svd(eye, 1, &outputs[2], &outputs[3], &outputs[4]);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        x = td_add(x, outputs[i]);
    x = td_add(x, td_add(td_eigvalsh(eye, 1), td_svdvals(eye)));
    return td_add(td_pinv(x, -1), td_cast(td_matrix_rank(x, -1), TD_F32));
}

/* Sums of products that the client plans; 4 by 4 again. */
static td_tensor *contracted(td_tensor *x) {
    td_tensor *row = td_slice(x, 0, 0, 1, 1), *vector = td_reshape(row, TD_SHAPE(4)), *three = td_slice(x, 1, 0, 3, 1);
    td_tensor *y = td_einsum("ij,jk,kl,ii,m->il", 5, (td_tensor *[]){x, td_transpose(x), x, x, vector});
    y = td_add(y, td_tensordot(x, y, 1, NULL, NULL));
    y = td_add(y, td_add(td_outer(vector, vector), td_vecdot(x, vector, -1)));
    y = td_add(y, td_add(td_trace(x, 1), td_slice(td_kron(x, vector), 1, 0, 4, 1)));
    y = td_add(td_slice(y, 1, 0, 3, 1), td_cross(three, td_slice(y, 1, 0, 3, 1), -1));
    y = td_add(td_matrix_power(x, 3), td_matrix_norm(y, TD_MATRIX_NORM_INF, 1));
    return td_add(y, td_matrix_norm(x, TD_MATRIX_NORM_NUCLEAR, 0));
}

static td_tensor *scanned(td_tensor *x) {
    td_tensor *y = td_add(td_cumulative_sum(x, 0, 0), td_slice(td_cumulative_prod(x, 1, 1), 1, 1, 5, 1));
    td_tensor *values, *at;
    td_cummax(td_logcumsumexp(y, 0), 1, &values, &at);
    y = td_add(values, td_cast(at, TD_F32));
    td_cummin(y, 0, &values, &at);
    return td_add(values, td_cast(at, TD_F32));
}

static td_tensor *moved(td_device *device, td_tensor *x) {
    td_tensor *i = td_full_int(device, TD_I64, TD_SHAPE(4), 1);
    td_tensor *y =
        td_permute(td_transpose(td_slices(x, 6, (const int64_t[]){0, 4, 1, 0, 4, 1})), 2, (const int64_t[]){1, 0});
    y = td_concat((td_tensor *[]){td_slice(y, 0, 0, 2, 1), td_slice(y, 0, 2, 4, 1)}, 2, 0);
    y = td_add(y, td_squeeze(td_expand_dims(td_broadcast_to(td_take(y, i, 0), TD_SHAPE(4, 4)), 0), TD_AXES(0)));
    y = td_slice(td_stack((td_tensor *[]){y, y}, 2, 0), 0, 0, 1, 1);
    y = td_reshape(y, TD_SHAPE(4, 4));
    y = td_add(y, td_take_along_axis(y, td_reshape(i, TD_SHAPE(4, 1)), 1));
    y = td_matmul(y, td_one_hot(i, 4, TD_F32));
    y = td_scatter(td_sort(y, 1, 0), td_reshape(i, TD_SHAPE(4, 1)), y, 0);
    y = td_scatter_add(y, td_argsort(y, 0, 1), td_triu(td_tril(y, 1), -1), 0);
    y = td_add(y, td_cast(td_searchsorted(td_diagonal(y, 0, 0, 1), y, 1, i), TD_F32));
    y = td_slice(td_pad(y, 4, (const int64_t[]){1, 0, 0, 0}, TD_PAD_MODE_EDGE, 0), 0, 0, 4, 1);
    y = td_add(y, td_linspace(device, TD_F32, 0, 1, 4, 1));
    return td_linear(y, x, NULL, TD_ACTIVATION_RELU);
}

static td_tensor *composed(td_device *device, td_tensor *x) {
    td_tensor *i = td_full_int(device, TD_I64, TD_SHAPE(4), 1), *grids[2], *parts[2], *rows[4];
    td_tensor *vectors[] = {td_cast(i, TD_F32), td_cast(td_bincount(i, NULL, 4), TD_F32)};
    td_tensor *y = td_roll(td_flip(x, TD_AXES(0)), 1, 0);
    y = td_moveaxis(td_gather(y, td_reshape(i, TD_SHAPE(4, 1)), 1), 1, (const int64_t[]){0}, (const int64_t[]){1});
    y = td_add(td_index_copy(x, 0, i, td_reshape(y, TD_SHAPE(1, 4))), td_index_add(x, 1, i, x));
    if (!td_clip_grad_norm(2, (td_tensor *[]){y, x}, 1, 2, parts))
        return NULL;
    y = td_add(y, parts[0]);
    y = td_add(y, td_embedding_grad(td_embedding(y, i), i, 4, 1));
    y = td_add(y, td_add(td_diag(vectors[0], 0), td_masked_fill(y, td_less(y, x), 1)));
    if (td_meshgrid(2, vectors, 1, grids) || td_split(y, 2, (const int64_t[]){2, 2}, 0, parts))
        return NULL;
    if (td_unstack(y, 0, rows))
        return NULL;
    td_tensor *several[5];
    if (td_unique_runs(td_sort(vectors[0], 0, 0), td_argsort(vectors[0], 0, 0), &several[0], &several[1], &several[2],
                       &several[3], &several[4]) ||
        td_unique(x, &several[0], &several[1], NULL, &several[2], &several[3]) ||
        td_nonzero(y, &several[0], &several[1]) || td_masked_select(x, td_less(x, y), &several[2], &several[4]))
        return NULL;
    y = td_add(y, td_cast(td_add(several[3], td_histogram(x, 4, 0, 1)), TD_F32));
    y = td_add(td_tile(parts[0], TD_SHAPE(2, 1)), td_repeat(parts[1], 2, 0));
    return td_add(td_add(y, rows[3]), td_add(grids[0], grids[1]));
}

/* A convolution, its transpose and its gradients, of an image of 4 by 4; 4 by 4 again in the end. */
static td_tensor *convolved(td_tensor *x) {
    td_tensor *image = td_reshape(x, TD_SHAPE(1, 1, 4, 4)), *kernel = td_reshape(x, TD_SHAPE(4, 1, 2, 2));
    td_tensor *y = td_conv(image, kernel, td_slice(td_reshape(x, TD_SHAPE(16)), 0, 0, 4, 1), TD_SHAPE(1), TD_SHAPE(0),
                           TD_SHAPE(1), 1, TD_LAYOUT_CHANNELS_FIRST);
    td_tensor *back = td_conv_transpose(y, kernel, NULL, TD_SHAPE(1), TD_SHAPE(0), TD_SHAPE(0), TD_SHAPE(1), 1,
                                        TD_LAYOUT_CHANNELS_FIRST);
    td_tensor *to_x = td_conv_grad_input(y, kernel, TD_SHAPE(1, 1, 4, 4), TD_SHAPE(1), TD_SHAPE(0), TD_SHAPE(1), 1,
                                         TD_LAYOUT_CHANNELS_FIRST);
    td_tensor *to_kernel = td_conv_grad_weight(image, y, TD_SHAPE(4, 1, 2, 2), TD_SHAPE(1), TD_SHAPE(0), TD_SHAPE(1), 1,
                                               TD_LAYOUT_CHANNELS_FIRST);
    return td_reshape(td_add(td_add(back, to_x), td_reshape(to_kernel, TD_SHAPE(1, 1, 4, 4))), TD_SHAPE(4, 4));
}

/* Pooling, normalisation and their gradients. */
static td_tensor *normalised(td_tensor *x) {
    td_tensor *image = td_reshape(x, TD_SHAPE(1, 2, 2, 4)), *two = td_slice(td_reshape(x, TD_SHAPE(16)), 0, 0, 2, 1);
    td_tensor *greatest, *at, *y, *mean, *variance, *to_x, *to_weight, *to_bias;
    td_max_pool(image, TD_SHAPE(2), TD_SCALAR, TD_SCALAR, TD_SCALAR, 0, TD_LAYOUT_CHANNELS_FIRST, &greatest, &at);
    td_tensor *pooled =
        td_add(greatest, td_avg_pool(image, TD_SHAPE(2), TD_SCALAR, TD_SCALAR, 0, 1, TD_LAYOUT_CHANNELS_FIRST));
    pooled = td_add(pooled, td_adaptive_avg_pool(image, TD_SHAPE(1, 2), TD_LAYOUT_CHANNELS_FIRST));
    image = td_add(td_max_pool_grad(pooled, at, TD_SHAPE(1, 2, 2, 4), TD_SHAPE(2), TD_SCALAR, TD_SCALAR, TD_SCALAR, 0,
                                    TD_LAYOUT_CHANNELS_FIRST),
                   td_avg_pool_grad(pooled, TD_SHAPE(1, 2, 2, 4), TD_SHAPE(2), TD_SCALAR, TD_SCALAR, 0, 1,
                                    TD_LAYOUT_CHANNELS_FIRST));
    image = td_add(image, td_adaptive_avg_pool_grad(pooled, TD_SHAPE(1, 2, 2, 4), TD_LAYOUT_CHANNELS_FIRST));
    td_batch_norm(image, two, two, two, NULL, 1, 1e-5, 0.1, &y, &mean, &variance);
    y = td_batch_norm_inference(y, mean, variance, NULL, NULL, 1, 1e-5);
    td_batch_norm_grad(y, image, two, 1, 1e-5, &to_x, &to_weight, &to_bias);
    y = td_group_norm(td_layer_norm(to_x, NULL, NULL, 1, 1e-5), to_weight, to_bias, 2, 1e-5);
    td_group_norm_grad(y, image, two, 1, 1e-5, &to_x, &to_weight, &to_bias);
    td_layer_norm_grad(td_rms_norm(to_x, NULL, 1, 1e-5), image, NULL, 1, 1e-5, &to_x, &to_weight, &to_bias);
    td_rms_norm_grad(to_x, image, to_weight, 1, 1e-5, &y, &to_weight);
    return td_reshape(y, TD_SHAPE(4, 4));
}

/* Losses, their gradients, and attention. */
static td_tensor *losses(td_device *device, td_tensor *x) {
    td_tensor *targets = td_full_int(device, TD_I64, TD_SHAPE(4), 1), *one = td_full(device, TD_F32, TD_SCALAR, 1);
    td_tensor *y, *logsumexp, *to_q, *to_k, *to_v, *sum = td_nll_loss(x, targets, NULL, -100, TD_REDUCTION_SUM);
    sum = td_add(sum, td_soft_cross_entropy(x, x, NULL, TD_REDUCTION_MEAN, 0.1));
    sum = td_add(sum, td_mse_loss(x, x, TD_REDUCTION_MEAN));
    sum = td_add(sum, td_l1_loss(x, x, TD_REDUCTION_MEAN));
    sum = td_add(sum, td_huber_loss(x, x, TD_REDUCTION_MEAN, 1));
    sum = td_add(sum, td_bce_with_logits(x, x, one, x, TD_REDUCTION_MEAN));
    sum = td_add(sum, td_kl_div(x, x, TD_REDUCTION_MEAN, 1));
    x = td_add(x, td_nll_loss_grad(sum, x, targets, NULL, -100, TD_REDUCTION_SUM));
    x = td_add(x, td_soft_cross_entropy_grad(sum, x, x, NULL, TD_REDUCTION_MEAN, 0.1));
    x = td_add(x, td_mse_loss_grad(sum, x, x, TD_REDUCTION_MEAN));
    x = td_add(x, td_l1_loss_grad(sum, x, x, TD_REDUCTION_MEAN));
    x = td_add(x, td_huber_loss_grad(sum, x, x, TD_REDUCTION_MEAN, 1));
    x = td_add(x, td_bce_with_logits_grad(sum, x, x, one, x, TD_REDUCTION_MEAN));
    x = td_add(x, td_kl_div_grad(sum, x, x, TD_REDUCTION_MEAN, 1));
    x = td_add(x, td_bce_with_logits_target_grad(sum, x, x, one, x, TD_REDUCTION_MEAN));
    x = td_add(x, td_kl_div_target_grad(sum, x, x, TD_REDUCTION_MEAN, 1));
    td_scaled_dot_product_attention(x, x, x, NULL, 0, 0, &y, &logsumexp);
    td_scaled_dot_product_attention_grad(y, x, x, x, y, logsumexp, x, 1, 0, &to_q, &to_k, &to_v);
    return td_add(to_q, td_add(to_k, to_v));
}

/* Recurrent layers and their gradients. */
static td_tensor *remembered(td_device *device, td_tensor *x) {
    td_tensor *steps = td_reshape(x, TD_SHAPE(2, 2, 4)), *state = td_slice(x, 0, 0, 2, 1), *out[6], *y, *h, *c;
    td_tensor *weights = td_full(device, TD_F32, TD_SHAPE(16, 4), 0.1), *fewer = td_slice(weights, 0, 0, 12, 1), *gates;
    td_tensor *cells;
    td_lstm(steps, state, state, weights, weights, NULL, NULL, 1, &y, &h, &c, &gates, &cells);
    td_lstm_grad(y, h, c, steps, state, state, weights, weights, y, gates, cells, 1, &out[0], &out[1], &out[2], &out[3],
                 &out[4], &out[5]);
    td_gru(out[0], h, fewer, fewer, NULL, NULL, 0, &y, &c, &gates);
    td_gru_grad(y, c, steps, h, fewer, fewer, y, gates, 0, &out[0], &out[1], &out[2], &out[3], &out[4], &out[5]);
    return td_reshape(out[0], TD_SHAPE(4, 4));
}

/* A loss, its gradient, and steps of each optimiser; the tensors that a step replaces are copies. */
static td_tensor *optimised(td_device *device, td_tensor *x) {
    td_tensor *targets = td_full_int(device, TD_I64, TD_SHAPE(4), 1), *step[3];
    td_tensor *gradient = td_cross_entropy_grad(td_cross_entropy(x, targets, NULL, -100, TD_REDUCTION_NONE, 0.1), x,
                                                targets, NULL, -100, TD_REDUCTION_NONE, 0.1);
    for (int i = 0; i < 3; i++)
        if (!(step[i] = td_copy(x)))
            return NULL;
    if (!gradient || td_sgd(1, &step[0], &gradient, &step[1], 0.1, 0.9, 0, 0) ||
        td_adam(1, &step[0], &gradient, &step[1], &step[2], 1, 0.1, 0.9, 0.999, 1e-8, 0) ||
        td_adamw(1, &step[0], &gradient, &step[1], &step[2], 1, 0.1, 0.9, 0.999, 1e-8, 0) ||
        td_rmsprop(1, &step[0], &gradient, &step[1], 0.1, 0.9, 1e-8, 0) ||
        td_adagrad(1, &step[0], &gradient, &step[1], 0.1, 1e-8, 0) || td_moving_average(1, &step[2], &step[0], 0.5) ||
        td_scatter_into(&step[2], td_reshape(targets, TD_SHAPE(4, 1)), gradient, 0) ||
        td_where_into(&step[2], td_less(gradient, step[2]), gradient))
        return NULL;
    return step[2];
}

/* Batches, slabs of handles and columns grow. */
static td_tensor *many(td_device *device, td_tensor *sum) {
    char label[TD_LABEL_MAX];
    for (int i = 0; i < 600; i++) {
        snprintf(label, sizeof label, "step %d", i);
        if (i % 10 == 0)
            td_label(label);
        sum = td_add(i % 3 ? sum : td_slice(sum, 0, 0, 4, 1), td_full(device, TD_F32, TD_SHAPE(4, 4), i));
    }
    return sum;
}

static td_tensor *operations(td_device *device, float *values, size_t n) {
    td_tensor *x = td_upload(device, TD_F32, TD_SHAPE(4, 4), values);
    td_tensor *large = td_upload(device, TD_F32, TD_SHAPE((int64_t)n), values);
    td_tensor *y = scanned(made_up(reduced(elementwise(td_add(x, created(device))))));
    y = moved(device, contracted(spectral(device, solved(device, y))));
    y = remembered(device, losses(device, normalised(convolved(y))));
    td_tensor *kept = td_keep(composed(device, optimised(device, y)));
    td_tensor *sum = td_add(many(device, kept), td_max(large, TD_ALL_AXES, 0));
    td_release(large);
    return sum;
}

static void looked_at(const td_tensor *x, td_device *device) {
    require(td_tensor_dtype(x) == TD_F32 && td_tensor_rank(x) == 2 && td_tensor_shape(x)[1] == 4);
    require(td_tensor_bytes(x) == 16 * td_dtype_size(TD_F32) && td_tensor_device(x) == device);
    td_link link;
    require(!td_device_link(device, &link) && link.connected);
    require(*td_dtype_name(TD_F32) && *td_device_name(device) && *td_version() && *td_strerror(TD_E_NO_HOST_MEMORY));
}

/* ---- the rest ---- */

/* The code that a descriptor tells. */
static int told(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    uint64_t value = 0;
    require(poll(&entry, 1, 10000) == 1 && read(fd, &value, sizeof value) == sizeof value);
    close(fd);
    return (int)value - 1;
}

static int asynchronous(td_tensor *x, struct client_callbacks *callbacks) {
    float *out = callbacks->fetched;
    int fd, code = td_fetch_async(x, out, 64, fetched, callbacks);
    callbacks->expected += !code;
    td_test(x);
    if (!code)
        code = td_fetch_fd(x, out + 16, 64, &fd);
    if (!code)
        code = told(fd);
    if (!code)
        code = td_wait_fd(x, &fd);
    return code ? code : told(fd);
}

static bool never(void *user) {
    (void)user;
    return false;
}

static void interrupted(void *user, int status) {
    (void)user, (void)status;
    require(false);
}

static int interruptible(td_device *device, td_tensor *x, float *out) {
    const td_interrupt interrupt = {never, interrupted, NULL};
    int code = td_fetch_interruptible(x, out, 64, &interrupt);
    if (!code)
        code = td_wait_interruptible(x, &interrupt);
    if (!code)
        code = td_wait_room(device, TD_NEVER);
    return code ? code : td_sync_interruptible(device, &interrupt);
}

static int kernels(td_device *device, td_tensor *x) {
    td_kernel *kernel;
    td_tensor *all[3], *consumed = td_full(device, TD_F32, TD_SHAPE(4, 4), 1), *place = consumed;
    int code = td_kernel_compile(device, "wrong", "f", &kernel);
    if (code != TD_E_INVALID_ARGUMENT)
        return code ? code : -1;
    code = td_kernel_compile(device, "right", "f", &kernel);
    if (code)
        return code;
    code = td_kernel_launch(kernel, TD_DIM(1), TD_DIM(32), 0,
                            TD_ARGS(td_arg_out(&all[0], TD_F32, TD_SHAPE(4)), td_arg_update(&all[1], x), td_arg_in(x),
                                    td_arg_consume(&place, consumed), td_arg_i32(1), td_arg_u32(1), td_arg_i64(1),
                                    td_arg_u64(1), td_arg_f32(1), td_arg_f64(1)));
    require(!code || (!all[0] && !all[1] && place == consumed));
    td_kernel_release(kernel);
    return code;
}

static int names(td_device *device, td_tensor *x) {
    td_name_info infos[4];
    size_t count;
    int code = td_publish(x, "x");
    if (!code)
        code = td_publish_all(2, (td_tensor *[]){x, x}, (const char *[]){"y", "z"}, false);
    if (!code)
        code = code_of(td_open(device, "x"));
    if (!code)
        code = td_names(device, infos, 4, &count);
    if (!code)
        code = td_names_all(device, infos, 4, &count);
    if (!code)
        code = td_names_move(device, NULL, "x", NULL, "w");
    if (!code)
        code = td_names_remove(device, NULL, "w");
    return code ? code : td_unpublish(device, "x");
}

static int streams(td_device *device) {
    td_stream *stream = NULL;
    int code = td_stream_open(device, 1, &stream);
    if (!code)
        code = td_stream_set(device, stream);
    if (!code)
        code = code_of(td_full(device, TD_F32, TD_SCALAR, 1));
    if (!code)
        code = td_stream_set(device, NULL);
    if (stream)
        td_stream_close(stream);
    return code;
}

/* Two tapes, whose tables of operations and tensors grow. */
static int differentiated(td_tensor *x) {
    td_tensor *gradients[2], *xs[] = {x, x};
    int code = td_tape_begin();
    if (code)
        return code;
    code = td_tape_begin();
    if (!code) {
        td_tensor *y = td_add(td_stop_gradient(x), x);
        for (int i = 0; i < 34; i++)
            y = td_tanh(td_multiply(y, y));
        code = y ? td_gradients(y, 2, xs, gradients) : td_last_error()->code;
        require(code || (gradients[0] && gradients[1]));
        td_tape_end();
    }
    td_tape_end();
    return code;
}

/* A parameter that is consumed, one that is sliced, and one of each kind that makes the recorder's lists grow. */
static int recorded(td_device *device, td_tensor *x, td_program **program) {
    int code = td_record_begin(device);
    if (code)
        return code;
    td_record_cancel(device);
    code = td_record_begin(device);
    if (code)
        return code;
    td_tensor *w = td_parameter_consumed(TD_F32, TD_SHAPE(4, 4)), *slice = td_parameter(TD_F32, TD_SHAPE(4)), *slope;
    td_tensor *y = td_add(td_multiply(w, x), slice);
    for (int i = 0; i < 34; i++)
        y = td_add(y, td_tanh(td_full(device, TD_F32, TD_SHAPE(4, 4), i)));
    for (int i = 0; i < 20; i++)
        y = td_parameter(TD_F32, TD_SHAPE(4, 4)) ? y : NULL;
    code = y ? td_gradients(y, 1, &w, &slope) : td_last_error()->code;
    td_tensor *results[] = {code ? NULL : td_subtract(w, slope), y, y};
    int end = td_record_end(device, 3, results, program);
    require(!code || end);
    return end;
}

enum { INPUTS = 22 }; /* of the recorded program */

/* The program and a loop of it inside of another one. */
static int inside(td_device *device, td_program *program, const td_loop *loop, td_tensor *const *inputs) {
    td_tensor *own[INPUTS], *results[3];
    td_program *outer;
    int code = td_record_begin(device);
    if (code)
        return code;
    for (int i = 0; i < INPUTS; i++)
        own[i] = inputs[i];
    own[0] = td_parameter_consumed(TD_F32, TD_SHAPE(4, 4));
    code = own[0] ? td_program_repeat(program, 7, loop, INPUTS, own, 3, results) : td_last_error()->code;
    require(code || (results[0] && results[1] && results[2]));
    own[0] = code ? NULL : results[0];
    own[1] = code ? NULL : td_exp(td_parameter(TD_F32, TD_SHAPE(4)));
    if (own[1])
        code = td_program_run(program, INPUTS, own, 3, results);
    else
        code = td_last_error()->code;
    if (!code)
        code = td_record_end(device, 3, results, &outer);
    if (code)
        td_record_cancel(device);
    else
        td_program_release(outer);
    return code;
}

/* To a file, and from it; names, under which the daemon has no programs. */
static int saved(td_device *device, td_program *program) {
    char path[] = "/tmp/tensord-no-memory-XXXXXX";
    td_program *loaded = NULL;
    int fd = mkstemp(path);
    require(fd >= 0 && !close(fd));
    int code = td_program_save(program, path);
    if (!code)
        code = td_program_load(device, path, &loaded);
    require(!code == !!loaded);
    td_program_release(loaded);
    unlink(path);
    if (!code)
        code = td_program_publish(program, "program");
    if (code)
        return code;
    int opened = td_program_open(device, "program", &loaded), removed = td_program_unpublish(device, "program");
    require(opened == TD_E_INVALID_ARGUMENT || opened == TD_E_NO_HOST_MEMORY);
    require(removed == TD_E_INVALID_ARGUMENT || removed == TD_E_NO_HOST_MEMORY);
    return opened == TD_E_INVALID_ARGUMENT && removed == TD_E_INVALID_ARGUMENT ? 0 : TD_E_NO_HOST_MEMORY;
}

static int programs(td_device *device, td_tensor *x) {
    static const td_carry carried[] = {{0, 0}};
    static const int sliced[] = {1}, stacked[] = {1};
    const td_loop loop = {1, carried, 1, sliced, 1, stacked};
    td_program *program;
    td_tensor *inputs[INPUTS], *results[3];
    const int64_t *shape;
    td_dtype dtype;
    int rank;
    int code = recorded(device, x, &program);
    if (code)
        return code;
    require(td_program_device(program) == device && td_program_parameters(program) == INPUTS);
    require(td_program_consumes(program, 0) && !td_program_consumes(program, 1));
    require(td_program_results(program) == 3 && !td_program_parameter_type(program, 0, &dtype, &rank, &shape));
    require(!td_program_result_type(program, 0, &dtype, &rank, &shape) && rank == 2);
    for (int i = 0; i < INPUTS; i++)
        inputs[i] = x;
    inputs[0] = td_full(device, TD_F32, TD_SHAPE(4, 4), 1);
    inputs[1] = td_full(device, TD_F32, TD_SHAPE(4), 1);
    code = td_program_run(program, INPUTS, inputs, 3, results);
    require(!code == !!results[0] && !results[0] == !results[2]);
    inputs[0] = results[0];
    inputs[1] = td_full(device, TD_F32, TD_SHAPE(7, 4), 1);
    if (!code)
        code = td_program_repeat(program, 7, &loop, INPUTS, inputs, 3, results);
    require(!code == !!results[0] && !results[0] == !results[2]);
    if (!code)
        code = inside(device, program, &loop, inputs);
    if (!code)
        code = saved(device, program);
    td_program_release(program);
    return code;
}

static int root(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    (void)state;
    outputs[0] = td_sqrt(td_abs(inputs[0]));
    return outputs[0] ? 0 : td_last_error()->code;
}

static int root_back(void *state, const td_backward *call) {
    (void)state;
    call->input_gradients[0] = td_divide(call->output_gradients[0], call->outputs[0]);
    return call->input_gradients[0] ? 0 : td_last_error()->code;
}

static void count(void *calls) {
    ++*(int *)calls;
}

/* Functions of the program under two tapes, the one with its own rule, the other one run again. Its state goes once, whatever happens. */
static int customised(td_tensor *x) {
    const td_gradient_rule rule = {
        .name = "root", .forward = root, .backward = root_back, .destroy = count, .keeps_outputs = TD_KEEP_ALL};
    int code = td_tape_begin(), destroyed = 0, calls = 0;
    if (code)
        return code;
    code = td_tape_begin();
    if (!code) {
        td_tensor *y = NULL, *z = NULL, *gradient;
        calls++;
        code = td_custom_gradient(&rule, &destroyed, 1, &x, 1, &y);
        require(!code == (y != NULL));
        calls += !code;
        if (!code)
            code = td_checkpoint(root, &destroyed, count, 1, &y, 1, &z);
        if (!code)
            code = td_gradients(z, 1, &x, &gradient);
        td_tape_end();
    }
    td_tape_end();
    require(destroyed == calls);
    return code;
}

/* A tape that is entered and shortened. */
static int noted(td_tensor *x) {
    td_tape *tape = td_tape_create();
    if (!tape)
        return td_last_error()->code;
    td_tape_enter(tape);
    td_tensor *a = td_exp(x), *y = td_multiply(a, a);
    if (!td_scope_begin_free())
        td_release(td_copy(x));
    td_scope_end();
    td_tape_resume(td_tape_suspend());
    td_tape_leave(tape);
    int depends = 0, code = y ? td_tape_depends(tape, y, 1, &x, &depends) : td_last_error()->code;
    require(code || (depends && td_tape_has(tape, a)));
    if (!code)
        code = td_tape_keep(tape, 1, &a);
    if (!code)
        code = td_tape_drop_after(tape, a);
    if (!code)
        code = td_tape_drop_before(tape, a);
    size_t bytes;
    require(code || td_tape_size(tape, &bytes) == 0);
    td_tape_destroy(tape);
    return code;
}

static int work(td_device *device, td_device *other, float *values, size_t n, struct client_callbacks *callbacks) {
    int code = streams(device);
    if (code)
        return code;
    td_tensor *x = operations(device, values, n);
    if (!x)
        return td_last_error()->code;
    looked_at(x, device);
    td_tensor *borrowed = td_upload_borrow(device, TD_F32, TD_SHAPE((int64_t)n), values, given_back, callbacks);
    callbacks->expected += borrowed != NULL;
    code = td_fetch(x, callbacks->fetched, 64);
    if (!code)
        code = code_of(borrowed);
    if (!code)
        code = td_wait(x);
    if (!code)
        code = asynchronous(x, callbacks);
    if (!code)
        code = interruptible(device, x, callbacks->fetched);
    if (!code)
        code = code_of(td_copy_to(x, other));
    if (!code)
        code = kernels(device, x);
    if (!code)
        code = differentiated(x);
    if (!code)
        code = programs(device, x);
    if (!code)
        code = customised(x);
    if (!code)
        code = noted(x);
    if (!code)
        code = names(device, x);
    if (!code)
        code = td_flush(device);
    return code ? code : td_sync(device);
}

static int on_devices(td_connection *connection, float *values, size_t n, struct client_callbacks *callbacks) {
    td_device *device, *other;
    td_device_info infos[4];
    size_t count;
    int code = td_devices(connection, infos, 4, &count);
    if (!code)
        code = td_device_open(connection, "cpu:0", &device);
    if (code)
        return code;
    code = td_device_open(connection, "cpu:1", &other);
    if (!code) {
        code = work(device, other, values, n, callbacks);
        td_device_close(other);
    }
    return code; /* the first one is closed with its connection */
}

int client_calls(const char *url, float *values, size_t n, struct client_callbacks *callbacks) {
    td_connection *connection;
    td_options options = {.client_name = "no memory", .timeout_ms = 5000};
    int code = td_connect(url, &options, &connection);
    if (code)
        return code;
    td_scope_begin("outer");
    td_scope_begin("inner");
    td_scope_begin_label("label");
    code = on_devices(connection, values, n, callbacks);
    td_scope_end();
    td_scope_end();
    td_scope_end();
    td_close(connection);
    return code;
}
