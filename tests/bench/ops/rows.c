#include "tests/bench/ops/operands.h"

#include <math.h>
#include <stdlib.h>

enum { ROUNDS = 5, CHAINED = 10 };

#define RUN(name, expression)                                                                                          \
    static td_tensor *run_##name(struct ops_case *at) {                                                                \
        td_tensor *const *x = at->x;                                                                                   \
        (void)x;                                                                                                       \
        return expression;                                                                                             \
    }

/* X(name): functions of one tensor, and of two. */
#define UNARY(X)                                                                                                       \
    X(negative)                                                                                                        \
    X(abs)                                                                                                             \
    X(exp)                                                                                                             \
    X(log)                                                                                                             \
    X(sqrt)                                                                                                            \
    X(tanh)                                                                                                            \
    X(sigmoid) X(relu) X(erf) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(asinh) X(atanh) X(exp2)   \
        X(expm1) X(log1p) X(log2) X(log10) X(erfc) X(square) X(rsqrt) X(reciprocal) X(floor) X(round) X(sign) X(isnan) \
            X(gelu) X(silu) X(hardswish) X(mish)
#define BINARY(X)                                                                                                      \
    X(add)                                                                                                             \
    X(subtract)                                                                                                        \
    X(multiply)                                                                                                        \
    X(divide)                                                                                                          \
    X(pow)                                                                                                             \
    X(maximum)                                                                                                         \
    X(minimum) X(equal) X(less) X(atan2) X(hypot) X(logaddexp) X(fmod) X(remainder) X(floor_divide) X(copysign)
#define RUN_UNARY(name) RUN(name, td_##name(x[0]))
#define RUN_BINARY(name) RUN(name, td_##name(x[0], x[1]))
UNARY(RUN_UNARY)
BINARY(RUN_BINARY)

/* X(name in C, name, operands, expression): everything else. */
#define OTHERS(X)                                                                                                      \
    X(cast_bf16, "cast to bf16", vectors, td_cast(x[0], TD_BF16))                                                      \
    X(cast_f32, "cast to f32", vectors, td_cast(x[0], TD_F32))                                                         \
    X(sum, "sum", vectors, td_sum(x[0], TD_ALL_AXES, 0))                                                               \
    X(sum_rows, "sum of rows", square, td_sum(x[0], TD_AXES(1), 0))                                                    \
    X(sum_columns, "sum of columns", square, td_sum(x[0], TD_AXES(0), 0))                                              \
    X(max_rows, "max of rows", square, td_max(x[0], TD_AXES(1), 0))                                                    \
    X(max_columns, "max of columns", square, td_max(x[0], TD_AXES(0), 0))                                              \
    X(argmax_rows, "argmax of rows", square, td_argmax(x[0], TD_AXES(1), 0))                                           \
    X(argmax_columns, "argmax of columns", square, td_argmax(x[0], TD_AXES(0), 0))                                     \
    X(softmax, "softmax", square, td_softmax(x[0], 1))                                                                 \
    X(log_softmax, "log_softmax", square, td_log_softmax(x[0], 1))                                                     \
    X(transposed, "transposed copy", square, transposed(x[0]))                                                         \
    X(concat, "concat", square, td_concat(x, 2, 0))                                                                    \
    X(take, "take of rows", positions, td_take(x[0], x[2], 0))                                                         \
    X(scatter_add, "scatter_add of rows", positions, td_index_add(x[0], 0, x[2], x[1]))                                \
    X(sort, "sort", vectors, td_sort(x[0], 0, 0))                                                                      \
    X(argsort, "argsort", vectors, td_argsort(x[0], 0, 0))                                                             \
    X(sort_rows, "sort of rows", square, td_sort(x[0], 1, 0))                                                          \
    X(roll, "roll", square, td_roll(x[0], 1, 1))                                                                       \
    X(repeat, "repeat", square, td_repeat(x[0], 2, 1))                                                                 \
    X(tril, "tril", square, td_tril(x[0], 0))                                                                          \
    X(fft, "fft", vectors, td_fft(x[0], 0, 0, TD_FFT_NORM_BACKWARD))                                                   \
    X(rfft_rows, "rfft of rows", square, td_rfft(x[0], 0, 1, TD_FFT_NORM_BACKWARD))                                    \
    X(fft_columns, "fft of columns", square, td_fft(x[0], 0, 0, TD_FFT_NORM_BACKWARD))                                 \
    X(matmul, "matmul", square, td_matmul(x[0], x[1]))                                                                 \
    X(matmul_vector, "matrix times vector", vector_of_matrix, td_matmul(x[0], x[1]))                                   \
    X(matmul_oblong, "1000 × 500 times 500 × 200", oblong, td_matmul(x[0], x[1]))                                      \
    X(conv, "conv2d", images, td_conv(x[0], x[1], NULL, LIST(1), LIST(1), 0, NULL, 1, TD_LAYOUT_CHANNELS_FIRST))       \
    X(conv_by_x, "conv2d by x", images,                                                                                \
      td_conv_grad_input(x[2], x[1], 4, td_tensor_shape(x[0]), LIST(1), LIST(1), 0, NULL, 1,                           \
                         TD_LAYOUT_CHANNELS_FIRST))                                                                    \
    X(conv_by_weight, "conv2d by weight", images,                                                                      \
      td_conv_grad_weight(x[0], x[2], 4, td_tensor_shape(x[1]), LIST(1), LIST(1), 0, NULL, 1,                          \
                          TD_LAYOUT_CHANNELS_FIRST))                                                                   \
    X(max_pool, "max_pool2d", images, max_pool(x[0]))                                                                  \
    X(avg_pool, "avg_pool2d", images, td_avg_pool(x[0], LIST(2), 0, NULL, 0, NULL, 0, 1, TD_LAYOUT_CHANNELS_FIRST))    \
    X(avg_pool_back, "avg_pool2d by x", images,                                                                        \
      td_avg_pool_grad(x[3], 4, td_tensor_shape(x[0]), LIST(2), 0, NULL, 0, NULL, 0, 1, TD_LAYOUT_CHANNELS_FIRST))     \
    X(batch_norm, "batch_norm", images, batch_norm(x))                                                                 \
    X(batch_norm_back, "batch_norm back", images, batch_norm_back(x))                                                  \
    X(layer_norm, "layer_norm", layers, td_layer_norm(x[0], x[2], x[3], 1, 1e-5))                                      \
    X(layer_norm_back, "layer_norm back", layers, layer_norm_back(x))                                                  \
    X(where, "where", masked, td_where(x[2], x[0], x[1]))                                                              \
    X(where_number, "where, else a number", masked, td_where(x[2], x[0], x[3]))                                        \
    X(clip, "clip", masked, td_clip(x[0], x[3], x[4]))                                                                 \
    X(multiply_number, "multiply by a number", masked, td_multiply(x[0], x[3]))                                        \
    X(leaky_relu, "leaky_relu", vectors, td_leaky_relu(x[0], 0.01))                                                    \
    X(elu, "elu", vectors, td_elu(x[0], 1))                                                                            \
    X(softplus, "softplus", vectors, td_softplus(x[0], 1, 20))                                                         \
    X(gelu_tanh, "gelu by tanh", vectors, td_gelu_tanh(x[0]))                                                          \
    X(mean_rows, "mean of rows", square, td_mean(x[0], TD_AXES(1), 0))                                                 \
    X(var_rows, "var of rows", square, td_var(x[0], TD_AXES(1), 1, 0))                                                 \
    X(var_columns, "var of columns", square, td_var(x[0], TD_AXES(0), 1, 0))                                           \
    X(prod_rows, "prod of rows", square, td_prod(x[0], TD_AXES(1), 0))                                                 \
    X(logsumexp_rows, "logsumexp of rows", square, td_logsumexp(x[0], TD_AXES(1), 0))                                  \
    X(norm, "vector_norm", vectors, td_vector_norm(x[0], TD_ALL_AXES, 2, 0))                                           \
    X(argmax, "argmax", vectors, td_argmax(x[0], TD_AXES(0), 0))                                                       \
    X(count_nonzero, "count_nonzero", vectors, td_count_nonzero(x[0], TD_ALL_AXES, 0))                                 \
    X(any, "any", masked, td_any(x[2], TD_ALL_AXES, 0))                                                                \
    X(cumsum, "cumsum", vectors, td_cumulative_sum(x[0], 0, 0))                                                        \
    X(cumsum_rows, "cumsum of rows", square, td_cumulative_sum(x[0], 1, 0))                                            \
    X(cumsum_columns, "cumsum of columns", square, td_cumulative_sum(x[0], 0, 0))                                      \
    X(cummax_rows, "cummax of rows", square, cummax(x[0]))                                                             \
    X(stack, "stack", square, td_stack(x, 2, 0))                                                                       \
    X(concat_columns, "concat of columns", square, td_concat(x, 2, 1))                                                 \
    X(tile, "tile", square, td_tile(x[0], 2, (const int64_t[]){2, 2}))                                                 \
    X(flip, "flipped copy", square, flipped(x[0]))                                                                     \
    X(pad, "pad", square, td_pad(x[0], 4, (const int64_t[]){1, 1, 1, 1}, TD_PAD_MODE_CONSTANT, 0))                     \
    X(take_along, "take_along_axis", places, td_take_along_axis(x[0], x[2], 1))                                        \
    X(scatter, "scatter", places, td_scatter(x[0], x[2], x[1], 1))                                                     \
    X(scatter_add_along, "scatter_add", places, td_scatter_add(x[0], x[2], x[1], 1))                                   \
    X(topk, "topk of rows", square, topk(x[0]))                                                                        \
    X(searchsorted, "searchsorted", ordered, td_searchsorted(x[0], x[1], 0, NULL))                                     \
    X(one_hot, "one_hot", positions, td_one_hot(x[2], at->side, TD_I64))                                               \
    X(bincount, "bincount", integers, td_bincount(x[0], NULL, 1000))                                                   \
    X(histogram, "histogram", vectors, td_histogram(x[0], 100, 0, 1))                                                  \
    X(nonzero, "nonzero", masked, first_of(td_nonzero, x[2]))                                                          \
    X(masked_select, "masked_select", masked, masked_select(x))                                                        \
    X(sort_integers, "sort of integers", integers, td_sort(x[0], 0, 0))                                                \
    X(solve, "solve", definite, td_solve(x[2], x[1]))                                                                  \
    X(cholesky, "cholesky", definite, td_cholesky(x[2], 0))                                                            \
    X(inv, "inv", definite, td_inv(x[2]))                                                                              \
    X(det, "det", definite, td_det(x[2]))                                                                              \
    X(qr, "qr", square, qr(x[0]))                                                                                      \
    X(matmul_batch, "matmul of 32 × 32", batch, td_matmul(x[0], x[1]))                                                 \
    X(inv_batch, "inv of 32 × 32", batch, td_inv(x[0]))                                                                \
    X(uniform, "uniform", vectors, td_uniform(at->device, at->dtype, 1, &at->n, 7, 0, 1))                              \
    X(normal, "normal", vectors, td_normal(at->device, at->dtype, 1, &at->n, 7, 0, 1))                                 \
    X(permutation, "permutation", vectors, td_permutation(at->device, TD_I64, at->n, 7))                               \
    X(dropout, "dropout", vectors, td_dropout(x[0], 0.5, 7))                                                           \
    X(cross_entropy, "cross_entropy", positions, td_cross_entropy(x[0], x[2], NULL, -1, TD_REDUCTION_MEAN, 0))         \
    X(mse_loss, "mse_loss", vectors, td_mse_loss(x[0], x[1], TD_REDUCTION_MEAN))                                       \
    X(huber_loss, "huber_loss", vectors, td_huber_loss(x[0], x[1], TD_REDUCTION_MEAN, 1))                              \
    X(bce_loss, "bce_with_logits", vectors, td_bce_with_logits(x[0], x[1], NULL, NULL, TD_REDUCTION_MEAN))             \
    X(attention, "attention", heads, attention(x, 0))                                                                  \
    X(attention_causal, "causal attention", heads, attention(x, 1))                                                    \
    X(rms_norm, "rms_norm", layers, td_rms_norm(x[0], x[2], 1, 1e-5))                                                  \
    X(group_norm, "group_norm", images, td_group_norm(x[0], x[4], x[4], 8, 1e-5))                                      \
    X(adaptive_pool, "adaptive_avg_pool2d", images,                                                                    \
      td_adaptive_avg_pool(x[0], 2, (const int64_t[]){7, 7}, TD_LAYOUT_CHANNELS_FIRST))                                \
    X(conv_transpose, "conv_transpose2d", images,                                                                      \
      td_conv_transpose(x[0], x[1], NULL, LIST(1), LIST(1), 0, NULL, 0, NULL, 1, TD_LAYOUT_CHANNELS_FIRST))            \
    X(conv_depthwise, "depthwise conv2d", depthwise,                                                                   \
      td_conv(x[0], x[1], NULL, LIST(1), LIST(1), 0, NULL, CHANNELS, TD_LAYOUT_CHANNELS_FIRST))                        \
    X(conv_colours, "conv2d of 3 channels", colours,                                                                   \
      td_conv(x[0], x[1], NULL, LIST(1), LIST(0), 0, NULL, 1, TD_LAYOUT_CHANNELS_FIRST))                               \
    X(conv1d, "conv1d", signals, td_conv(x[0], x[1], NULL, LIST(1), LIST(1), 0, NULL, 1, TD_LAYOUT_CHANNELS_FIRST))    \
    X(conv3d, "conv3d", volumes, td_conv(x[0], x[1], NULL, LIST(1), LIST(1), 0, NULL, 1, TD_LAYOUT_CHANNELS_FIRST))    \
    X(lstm, "lstm", four_gates, lstm(x))                                                                               \
    X(gru, "gru", three_gates, gru(x))                                                                                 \
    X(adam, "adam", parameter, adam(at))                                                                               \
    X(clip_grad, "clip_grad_norm", vectors, clip_grad(x[0]))                                                           \
    X(fft2, "fft2", square, td_fftn(x[0], 0, NULL, NULL, TD_FFT_NORM_BACKWARD))                                        \
    X(eigh, "eigh", square, eigh(x[0]))                                                                                \
    X(eigh_ten, "eigh of ten", ten, eigh(x[0]))                                                                        \
    X(eigvalsh_ten, "eigvalsh of ten", ten, td_eigvalsh(x[0], 0))                                                      \
    X(svd, "svd", square, svd(x[0]))                                                                                   \
    X(svd_ten, "svd of ten", ten, svd(x[0]))                                                                           \
    X(svdvals_ten, "svdvals of ten", ten, td_svdvals(x[0]))

static td_tensor *transposed(td_tensor *x) {
    td_tensor *view = td_transpose(x), *copy = view ? td_copy(view) : NULL;
    td_release(view);
    return copy;
}

static td_tensor *flipped(td_tensor *x) {
    td_tensor *view = td_flip(x, TD_AXES(1)), *copy = view ? td_copy(view) : NULL;
    td_release(view);
    return copy;
}

/* The first of two results. */
static td_tensor *first_of(int (*function)(td_tensor *, td_tensor **, td_tensor **), td_tensor *x) {
    td_tensor *first, *second;
    if (function(x, &first, &second)) {
        return NULL;
    }
    td_release(second);
    return first;
}

static td_tensor *masked_select(td_tensor *const *x) {
    td_tensor *values, *count;
    if (td_masked_select(x[0], x[2], &values, &count)) {
        return NULL;
    }
    td_release(count);
    return values;
}

static td_tensor *cummax(td_tensor *x) {
    td_tensor *values, *indices;
    if (td_cummax(x, 1, &values, &indices)) {
        return NULL;
    }
    td_release(indices);
    return values;
}

static td_tensor *topk(td_tensor *x) {
    td_tensor *values, *indices;
    if (td_topk(x, 4, 1, 1, &values, &indices)) {
        return NULL;
    }
    td_release(indices);
    return values;
}

static td_tensor *qr(td_tensor *x) {
    td_tensor *q, *r;
    if (td_qr(x, TD_QR_MODE_REDUCED, &q, &r)) {
        return NULL;
    }
    td_release(q);
    return r;
}

static td_tensor *attention(td_tensor *const *x, int causal) {
    td_tensor *result, *logsumexp;
    if (td_scaled_dot_product_attention(x[0], x[1], x[2], NULL, causal, 1 / sqrt((double)FEATURES), &result,
                                        &logsumexp)) {
        return NULL;
    }
    td_release(logsumexp);
    return result;
}

static td_tensor *lstm(td_tensor *const *x) {
    td_tensor *made[5];
    if (td_lstm(x[0], x[1], x[5], x[2], x[3], x[4], x[4], 0, &made[0], &made[1], &made[2], &made[3], &made[4])) {
        return NULL;
    }
    for (int i = 1; i < 5; i++) {
        td_release(made[i]);
    }
    return made[0];
}

static td_tensor *gru(td_tensor *const *x) {
    td_tensor *made[3];
    if (td_gru(x[0], x[1], x[2], x[3], x[4], x[4], 0, &made[0], &made[1], &made[2])) {
        return NULL;
    }
    td_release(made[1]);
    td_release(made[2]);
    return made[0];
}

/* Replaces the parameter and its moments, of which nothing may hold the old ones: the result is a view of the gradient, so that there is one. */
static td_tensor *adam(struct ops_case *at) {
    td_tensor **x = at->x;
    if (td_adam(1, &x[0], &x[1], &x[2], &x[3], 3, 0.001, 0.9, 0.999, 1e-8, 0)) {
        return NULL;
    }
    return td_reshape(x[1], 1, &at->n);
}

static td_tensor *clip_grad(td_tensor *x) {
    td_tensor *clipped, *norm = td_clip_grad_norm(1, &x, 1, 2, &clipped);
    td_release(norm);
    return clipped;
}

static td_tensor *eigh(td_tensor *x) {
    td_tensor *values, *vectors;
    td_eigh(x, 0, &values, &vectors);
    td_release(vectors);
    return values;
}

static td_tensor *svd(td_tensor *x) {
    td_tensor *u, *values, *vh;
    td_svd(x, 0, &u, &values, &vh);
    td_release(u);
    td_release(vh);
    return values;
}

static td_tensor *max_pool(td_tensor *x) {
    td_tensor *values, *indices;
    td_max_pool(x, LIST(2), 0, NULL, 0, NULL, 0, NULL, 0, TD_LAYOUT_CHANNELS_FIRST, &values, &indices);
    td_release(indices);
    return values;
}

static td_tensor *batch_norm(td_tensor *const *x) {
    td_tensor *result, *mean, *variance;
    td_batch_norm(x[0], x[4], x[4], x[4], x[4], 1, 1e-5, 0.1, &result, &mean, &variance);
    td_release(mean);
    td_release(variance);
    return result;
}

static td_tensor *batch_norm_back(td_tensor *const *x) {
    td_tensor *by_x, *by_weight, *by_bias;
    td_batch_norm_grad(x[2], x[0], x[4], 1, 1e-5, &by_x, &by_weight, &by_bias);
    td_release(by_weight);
    td_release(by_bias);
    return by_x;
}

static td_tensor *layer_norm_back(td_tensor *const *x) {
    td_tensor *by_x, *by_weight, *by_bias;
    td_layer_norm_grad(x[1], x[0], x[2], 1, 1e-5, &by_x, &by_weight, &by_bias);
    td_release(by_weight);
    td_release(by_bias);
    return by_x;
}

td_tensor *ops_first(int code, int count, td_tensor *const *made) {
    if (code) {
        return NULL;
    }
    for (int i = 1; i < count; i++) {
        td_release(made[i]);
    }
    return made[0];
}

td_tensor *ops_replaced(int code, td_tensor *other) {
    return code ? NULL : td_reshape(other, td_tensor_rank(other), td_tensor_shape(other));
}

#define RUN_OTHER(id, name, operands, expression) RUN(id, expression)
OTHERS(RUN_OTHER)

/* x · x · …, as long as a chain of CHAINED products. Microseconds until the last of them is enqueued, and until the result is here. */
static void chain(const struct ops_case *at, double *enqueued, double *fetched) {
    size_t bytes = (size_t)(at->side * at->side) * td_dtype_size(at->dtype);
    void *result = malloc(bytes);
    if (!result) {
        bench_fail("no memory");
    }
    double begin = bench_now();
    td_tensor *product = td_matmul(at->x[0], at->x[1]);
    for (int i = 1; i < CHAINED && product; i++) {
        td_tensor *next = td_matmul(product, at->x[1]);
        td_release(product);
        product = next;
    }
    *enqueued = (bench_now() - begin) * 1e6;
    bench_check(td_fetch(bench_made(product, "matmul"), result, bytes), "fetch");
    *fetched = (bench_now() - begin) * 1e6;
    td_release(product);
    free(result);
}

/* The median of some chains, behind one that is not counted. */
static double chains(const struct ops_case *at, bool fetched) {
    double times[2][ROUNDS];
    int rounds = bench_quick ? 1 : 3;
    chain(at, &times[0][0], &times[1][0]);
    for (int i = 0; i < rounds; i++) {
        chain(at, &times[0][i], &times[1][i]);
    }
    return bench_median(times[fetched], (size_t)rounds);
}

static double chain_enqueued(const struct ops_case *at) {
    return chains(at, false);
}

static double chain_fetched(const struct ops_case *at) {
    return chains(at, true);
}

static const struct ops_row rows[] = {
#define ROW(name) {#name, operands_vectors, run_##name, NULL},
#define ROW_OTHER(id, name, operands, expression) {name, operands_##operands, run_##id, NULL},
    UNARY(ROW) BINARY(ROW) OTHERS(ROW_OTHER){"ten products, enqueued", operands_square, NULL, chain_enqueued},
    {"ten products, fetched", operands_square, NULL, chain_fetched}};
const struct ops_rows ops_rows = {rows, sizeof rows / sizeof *rows};
