/* Gradients as PyTorch's autograd has them: where central differences say nothing, at ties and kinks, its definitions count. autograd_numbers.py
 * wrote the numbers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"

static struct daemon tensord;
static struct client client;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0"});
    client_open(&client, tensord.url, NULL);
}

static void stop(void) {
    client_close(&client);
    daemon_stop(&tensord);
}

TestSuite(autograd_numbers, .init = start, .fini = stop, .timeout = 120);

static void ok(int code) {
    cr_assert_eq(code, 0, "%s", td_last_error()->message);
}

/* An input, and the gradient by it. */
struct stored {
    int rank;
    int64_t shape[5];
    const double *values, *gradient;
};
#include "tests/daemon/autograd_numbers.inc"

/* ---- the functions: of several results the one that counts ---- */

#define FIRST TD_LAYOUT_CHANNELS_FIRST
#define NO_LIST 0, (const int64_t *)NULL

static td_tensor *integers(int rank, const int64_t *shape, const int64_t *values) {
    return td_upload(client.device, TD_I64, rank, shape, values);
}
static td_tensor *classes(void) {
    return integers(TD_SHAPE(4), (const int64_t[]){2, 0, -100, 3});
}
static td_tensor *numbers_to(int n) {
    return td_arange(client.device, TD_F64, 1, n + 1, 1);
}
static td_tensor *max_pool(td_tensor *x, int64_t kernel, int64_t stride, int64_t padding, int ceil_mode) {
    td_tensor *values = NULL, *indices;
    td_max_pool(x, TD_SHAPE(kernel), TD_SHAPE(stride), TD_SHAPE(padding), NO_LIST, ceil_mode, FIRST, &values, &indices);
    return values;
}
static td_tensor *batch_norm(td_tensor **x) {
    td_tensor *result = NULL, *mean, *variance, *zeros = td_full(client.device, TD_F64, TD_SHAPE(2), 0);
    td_batch_norm(x[0], zeros, zeros, x[1], x[2], 1, 1e-3, 0.1, &result, &mean, &variance);
    return result;
}
static td_tensor *extreme(td_tensor *x, int (*function)(td_tensor *, int, td_tensor **, td_tensor **)) {
    td_tensor *values = NULL, *indices;
    function(x, 1, &values, &indices);
    return values;
}
static td_tensor *top(td_tensor *x) {
    td_tensor *values = NULL, *indices;
    td_topk(x, 2, 1, 1, &values, &indices);
    return values;
}
static td_tensor *logdet(td_tensor *a) {
    td_tensor *sign, *logarithm = NULL;
    td_slogdet(a, &sign, &logarithm);
    return logarithm;
}
static td_tensor *r_of(td_tensor *a) {
    td_tensor *q, *r = NULL;
    td_qr(a, TD_QR_MODE_REDUCED, &q, &r);
    return td_abs(r);
}
static td_tensor *eigenvalues(td_tensor *a) {
    td_tensor *values = NULL, *vectors;
    td_eigh(td_add(a, td_transpose(a)), 0, &values, &vectors);
    return values;
}
static td_tensor *with_adjoint(td_tensor *a, td_tensor *(*of)(td_tensor *, td_tensor *)) {
    return of(a, td_conj(td_transpose(a)));
}
static td_tensor *u_of(td_tensor *a) {
    td_tensor *p, *l, *u = NULL;
    td_lu(a, &p, &l, &u);
    return u;
}
static td_tensor *q_of(td_tensor *a) {
    td_tensor *q = NULL, *r;
    td_qr(a, TD_QR_MODE_REDUCED, &q, &r);
    return q;
}
static td_tensor *sign_and_logdet(td_tensor *a) {
    td_tensor *sign = NULL, *logarithm = NULL;
    td_slogdet(a, &sign, &logarithm);
    return td_multiply(td_imag(sign), logarithm);
}
static td_tensor *eigenvectors(td_tensor *a) {
    td_tensor *values, *vectors = NULL;
    td_eigh(a, 0, &values, &vectors);
    return td_abs(vectors);
}
static td_tensor *polar(td_tensor *a) {
    td_tensor *u = NULL, *s, *vh = NULL;
    td_svd(a, 0, &u, &s, &vh);
    return td_matmul(u, vh);
}
static td_tensor *attention(td_tensor **x, td_tensor *mask, int is_causal) {
    td_tensor *result = NULL, *logsumexp;
    td_scaled_dot_product_attention(x[0], x[1], x[2], mask, is_causal, 0, &result, &logsumexp);
    return result;
}
static td_tensor *lstm_of(td_tensor **x) {
    td_tensor *result = NULL, *h, *c, *gates, *cells;
    td_lstm(x[0], x[1], x[2], x[3], x[4], x[5], x[6], 0, &result, &h, &c, &gates, &cells);
    return result;
}
static td_tensor *gru_of(td_tensor **x) {
    td_tensor *result = NULL, *h, *gates;
    td_gru(x[0], x[1], x[2], x[3], x[4], x[5], 0, &result, &h, &gates);
    return result;
}
#define Z td_complex(x[0], x[1])
#define CE(weight, reduction, smoothing)                                                                               \
    td_cross_entropy(x[0], classes(), weight, -100, TD_REDUCTION_##reduction, smoothing)

/* Each loss as none, mean and sum. */
#define LOSSES(X, suffix, r)                                                                                           \
    X(each_cross_entropy_##suffix, CE(numbers_to(5), r, 0))                                                            \
    X(each_soft_cross_entropy_##suffix, td_soft_cross_entropy(x[0], x[1], NULL, TD_REDUCTION_##r, 0))                  \
    X(each_nll_loss_##suffix, td_nll_loss(x[0], classes(), NULL, -100, TD_REDUCTION_##r))                              \
    X(each_mse_loss_##suffix, td_mse_loss(x[0], x[1], TD_REDUCTION_##r))                                               \
    X(each_l1_loss_##suffix, td_l1_loss(x[0], x[1], TD_REDUCTION_##r))                                                 \
    X(each_huber_loss_##suffix, td_huber_loss(x[0], x[1], TD_REDUCTION_##r, 0.5))                                      \
    X(each_bce_with_logits_##suffix, td_bce_with_logits(x[0], x[1], NULL, NULL, TD_REDUCTION_##r))                     \
    X(each_kl_div_##suffix, td_kl_div(x[0], x[1], TD_REDUCTION_##r, 0))

#define CASES(X)                                                                                                       \
    X(conv1d, td_conv(x[0], x[1], x[2], TD_SHAPE(2), TD_SHAPE(1), NO_LIST, 2, FIRST))                                  \
    X(conv2d, td_conv(x[0], x[1], x[2], TD_SHAPE(1, 2), TD_SHAPE(1, 0), TD_SHAPE(2, 1), 1, FIRST))                     \
    X(conv3d, td_conv(x[0], x[1], NULL, NO_LIST, NO_LIST, NO_LIST, 1, FIRST))                                          \
    X(conv_transpose2d, td_conv_transpose(x[0], x[1], x[2], TD_SHAPE(2), TD_SHAPE(1), TD_SHAPE(1), NO_LIST, 1, FIRST)) \
    X(max_pool_ties, max_pool(x[0], 2, 1, 0, 0))                                                                       \
    X(max_pool_padded, max_pool(x[0], 3, 2, 1, 1))                                                                     \
    X(avg_pool_padded, td_avg_pool(x[0], TD_SHAPE(3), TD_SHAPE(2), TD_SHAPE(1), 1, 1, FIRST))                          \
    X(avg_pool_inside, td_avg_pool(x[0], TD_SHAPE(3), TD_SHAPE(2), TD_SHAPE(1), 1, 0, FIRST))                          \
    X(adaptive_avg_pool, td_adaptive_avg_pool(x[0], TD_SHAPE(2, 3), FIRST))                                            \
    X(batch_norm, batch_norm(x))                                                                                       \
    X(layer_norm, td_layer_norm(x[0], x[1], x[2], 1, 1e-3))                                                            \
    X(group_norm, td_group_norm(x[0], x[1], x[2], 2, 1e-3))                                                            \
    X(rms_norm, td_rms_norm(x[0], x[1], 1, 1e-3))                                                                      \
    X(normalised_constant, td_layer_norm(x[0], NULL, NULL, 1, 1e-3))                                                   \
    X(cross_entropy_none, CE(NULL, NONE, 0.1))                                                                         \
    X(cross_entropy_mean, CE(numbers_to(5), MEAN, 0))                                                                  \
    X(cross_entropy_smooth, CE(numbers_to(5), MEAN, 0.2))                                                              \
    X(cross_entropy_sum, CE(NULL, SUM, 0))                                                                             \
    X(soft_cross_entropy, td_soft_cross_entropy(x[0], x[1], NULL, TD_REDUCTION_MEAN, 0.1))                             \
    X(nll_loss, td_nll_loss(x[0], classes(), numbers_to(5), -100, TD_REDUCTION_MEAN))                                  \
    X(mse_loss, td_mse_loss(x[0], x[1], TD_REDUCTION_MEAN))                                                            \
    X(l1_loss_equal, td_l1_loss(x[0], x[1], TD_REDUCTION_NONE))                                                        \
    X(huber_loss, td_huber_loss(x[0], x[1], TD_REDUCTION_SUM, 1))                                                      \
    X(bce_with_logits,                                                                                                 \
      td_bce_with_logits(x[0], x[1], td_full(client.device, TD_F64, 0, NULL, 1), numbers_to(3), TD_REDUCTION_MEAN))    \
    X(kl_div, td_divide(td_kl_div(x[0], x[1], TD_REDUCTION_SUM, 0), td_full(client.device, TD_F64, 0, NULL, 2)))       \
    X(kl_div_log, td_kl_div(x[0], x[1], TD_REDUCTION_SUM, 1))                                                          \
    X(relu, td_relu(x[0]))                                                                                             \
    X(leaky_relu, td_leaky_relu(x[0], 0.1))                                                                            \
    X(elu, td_elu(x[0], 0.5))                                                                                          \
    X(hardswish, td_hardswish(x[0]))                                                                                   \
    X(hardsigmoid, td_hardsigmoid(x[0]))                                                                               \
    X(gelu, td_gelu(x[0]))                                                                                             \
    X(gelu_tanh, td_gelu_tanh(x[0]))                                                                                   \
    X(silu, td_silu(x[0]))                                                                                             \
    X(mish, td_mish(x[0]))                                                                                             \
    X(softplus, td_softplus(x[0], 2, 6))                                                                               \
    X(softmax, td_softmax(x[0], -1))                                                                                   \
    X(log_softmax, td_log_softmax(x[0], 0))                                                                            \
    X(sigmoid, td_sigmoid(x[0]))                                                                                       \
    X(abs, td_abs(x[0]))                                                                                               \
    X(sqrt, td_sqrt(x[0]))                                                                                             \
    X(clip, td_clip(x[0], x[1], x[2]))                                                                                 \
    X(clip_constants,                                                                                                  \
      td_clip(x[0], td_full(client.device, TD_F64, 0, NULL, -3), td_full(client.device, TD_F64, 0, NULL, 3)))          \
    X(maximum, td_maximum(x[0], x[1]))                                                                                 \
    X(minimum, td_minimum(x[0], x[1]))                                                                                 \
    X(pow_zero, td_pow(x[0], x[1]))                                                                                    \
    X(hypot, td_hypot(x[0], x[1]))                                                                                     \
    X(atan2, td_atan2(x[0], x[1]))                                                                                     \
    X(logaddexp, td_logaddexp(x[0], x[1]))                                                                             \
    X(fmod, td_fmod(x[0], x[1]))                                                                                       \
    X(remainder, td_remainder(x[0], x[1]))                                                                             \
    X(copysign, td_copysign(x[0], x[1]))                                                                               \
    X(where, td_where(td_greater(x[0], td_full(client.device, TD_F64, 0, NULL, 0)), td_multiply(x[0], x[1]), x[1]))    \
    X(max_ties, td_max(x[0], TD_AXES(1), 0))                                                                           \
    X(min_ties, td_min(x[0], TD_ALL_AXES, 0))                                                                          \
    X(prod_zeros, td_prod(x[0], TD_AXES(1), 0))                                                                        \
    X(cumulative_prod_zeros, td_cumulative_prod(x[0], 1, 0))                                                           \
    X(logsumexp, td_logsumexp(x[0], TD_AXES(1), 0))                                                                    \
    X(var, td_var(x[0], TD_ALL_AXES, 1, 0))                                                                            \
    X(std, td_std(x[0], TD_AXES(1), 0.5, 0))                                                                           \
    X(std_equal, td_std(x[0], TD_AXES(1), 1, 0))                                                                       \
    X(norm_zero, td_vector_norm(x[0], TD_AXES(1), 2, 0))                                                               \
    X(norm_1, td_vector_norm(x[0], TD_AXES(1), 1, 0))                                                                  \
    X(norm_3, td_vector_norm(x[0], TD_AXES(1), 3, 0))                                                                  \
    X(norm_infinite, td_vector_norm(x[0], TD_AXES(1), INFINITY, 0))                                                    \
    X(cummax_ties, extreme(x[0], td_cummax))                                                                           \
    X(cummin_ties, extreme(x[0], td_cummin))                                                                           \
    X(logcumsumexp, td_logcumsumexp(x[0], 1))                                                                          \
    X(sort, td_sort(x[0], 1, 1))                                                                                       \
    X(topk, top(x[0]))                                                                                                 \
    X(embedding, td_embedding(x[0], integers(TD_SHAPE(2, 3), (const int64_t[]){1, 3, 1, 0, 1, 1})))                    \
    X(scatter_add, td_scatter_add(x[0], integers(TD_SHAPE(2, 3), (const int64_t[]){1, 1, 0, 3, 3, 3}), x[1], 1))       \
    X(matmul, td_matmul(x[0], x[1]))                                                                                   \
    X(cholesky, td_cholesky(td_matmul(x[0], td_transpose(x[0])), 0))                                                   \
    X(inv, td_inv(x[0]))                                                                                               \
    X(det, td_det(x[0]))                                                                                               \
    X(slogdet, logdet(x[0]))                                                                                           \
    X(solve, td_solve(x[0], x[1]))                                                                                     \
    X(triangular_solve, td_triangular_solve(x[0], x[1], 1, 0))                                                         \
    X(qr, r_of(x[0]))                                                                                                  \
    X(eigh, eigenvalues(x[0]))                                                                                         \
    X(svdvals, td_svdvals(x[0]))                                                                                       \
    X(matrix_norm, td_matrix_norm(x[0], TD_MATRIX_NORM_NUCLEAR, 0))                                                    \
    X(attention, attention(x, x[3], 0))                                                                                \
    X(attention_causal, attention(x, NULL, 1))                                                                         \
    X(lstm, lstm_of(x))                                                                                                \
    X(gru, gru_of(x))                                                                                                  \
    X(complex_abs, td_abs(Z))                                                                                          \
    X(complex_angle, td_angle(Z))                                                                                      \
    X(complex_sign, td_imag(td_sign(Z)))                                                                               \
    X(complex_fft, td_imag(td_exp(td_fft(Z, 4, -1, TD_FFT_NORM_BACKWARD))))                                            \
    X(complex_irfft, td_irfft(Z, 6, -1, TD_FFT_NORM_ORTHO))                                                            \
    X(complex_cholesky, td_exp(td_imag(td_cholesky(with_adjoint(Z, td_matmul), 0))))                                   \
    X(complex_lu, td_imag(u_of(Z)))                                                                                    \
    X(complex_qr, td_exp(td_imag(q_of(Z))))                                                                            \
    X(complex_solve, td_imag(td_solve(Z, x[0])))                                                                       \
    X(complex_inv, td_imag(td_inv(Z)))                                                                                 \
    X(complex_det, td_imag(td_det(Z)))                                                                                 \
    X(complex_slogdet, sign_and_logdet(Z))                                                                             \
    X(complex_eigh, eigenvectors(with_adjoint(Z, td_add)))                                                             \
    X(complex_svd, td_imag(polar(Z)))                                                                                  \
    LOSSES(X, none, NONE) LOSSES(X, mean, MEAN) LOSSES(X, sum, SUM)

#define X(name, expression)                                                                                            \
    static td_tensor *function_##name(td_tensor **x) {                                                                 \
        return expression;                                                                                             \
    }
CASES(X)
#undef X

/* ---- the comparison ---- */

enum { INPUTS = 8 };

struct row {
    const char *name;
    td_tensor *(*function)(td_tensor **x);
    int n_inputs;
    const struct stored *inputs;
};
#define X(name, expression) {#name, function_##name, sizeof stored_##name / sizeof *stored_##name, stored_##name},
static const struct row rows[] = {CASES(X)};
#undef X

/* Σ cos(k) · y[k] */
static td_tensor *weighted(td_tensor *y) {
    if (!y)
        return NULL;
    int64_t n = (int64_t)(td_tensor_bytes(y) / sizeof(double));
    td_tensor *weights = td_cos(td_arange(client.device, TD_F64, 0, (double)n, 1));
    return td_sum(td_multiply(td_reshape(y, TD_SHAPE(-1)), weights), TD_ALL_AXES, 0);
}

/* PyTorch divides by 6 in f32. */
static void compare(const struct row *row, int i, td_tensor *gradient) {
    size_t n = td_tensor_bytes(gradient) / sizeof(double);
    double *got = malloc((n + 1) * sizeof *got);
    cr_assert(got);
    ok(td_fetch(gradient, got, n * sizeof *got));
    for (size_t k = 0; k < n; k++) {
        double expected = row->inputs[i].gradient[k];
        cr_expect(fabs(got[k] - expected) <= 1e-7 * (1 + fabs(expected)),
                  "%s: by input %d [%zu] %.12g, PyTorch has %.12g", row->name, i, k, got[k], expected);
    }
    free(got);
}

Test(autograd_numbers, are_those_of_pytorch) {
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const struct row *row = &rows[r];
        td_tensor *x[INPUTS], *gradients[INPUTS];
        td_scope_begin(NULL);
        ok(td_tape_begin());
        for (int i = 0; i < row->n_inputs; i++)
            x[i] = td_upload(client.device, TD_F64, row->inputs[i].rank, row->inputs[i].shape, row->inputs[i].values);
        int code = td_gradients(weighted(row->function(x)), row->n_inputs, x, gradients);
        cr_assert_eq(code, 0, "%s: %s", row->name, td_last_error()->message);
        td_tape_end();
        for (int i = 0; i < row->n_inputs; i++)
            compare(row, i, gradients[i]);
        td_scope_end();
    }
}
