#include "tests/bench/ops/operands.h"

#include <math.h>

/* The next operand's seed: operands differ. */
static uint64_t seed(struct ops_case *at) {
    return 7 + (uint64_t)at->seeds++;
}

static td_tensor *uniform(struct ops_case *at, int rank, const int64_t *shape, double low, double high) {
    return bench_made(td_uniform(at->device, TD_F32, rank, shape, seed(at), low, high), "uniform");
}

/* Numbers between `low` and `high`, of a dtype that uniform may not have; both parts of complex ones are. Integers, of which few would be
 * in such a range within ±1, are then 10 to 89, or within ±9. */
static td_tensor *numbers(struct ops_case *at, int rank, const int64_t *shape, double low, double high) {
    if (at->dtype >= TD_U8 && at->dtype <= TD_I64 && fabs(high) <= 1) {
        high = low > 0 ? 90 : 9;
        low = low > 0 ? 10 : -9;
    }
    td_tensor *made = uniform(at, rank, shape, low, high), *result;
    if (at->dtype == TD_C64 || at->dtype == TD_C128) {
        td_tensor *imaginary = uniform(at, rank, shape, low, high), *joined = td_complex(made, imaginary);
        result = bench_made(td_cast(joined, at->dtype), "cast");
        td_release(imaginary);
        td_release(joined);
    } else {
        result = bench_made(td_cast(made, at->dtype), "cast");
    }
    td_release(made);
    return result;
}

/* Integers from 0 up to, but without, `below`. */
static td_tensor *integers(struct ops_case *at, int rank, const int64_t *shape, int64_t below) {
    return bench_made(td_randint(at->device, TD_I64, rank, shape, seed(at), 0, below), "randint");
}

static td_tensor *scalar(const struct ops_case *at, double value) {
    return bench_made(td_full(at->device, at->dtype, 0, NULL, value), "full");
}

/* Two vectors in [0.1, 0.9), where all functions but acosh are defined; integers are 10 to 89. */
void operands_vectors(struct ops_case *at) {
    at->x[0] = numbers(at, 1, &at->n, 0.1, 0.9);
    at->x[1] = numbers(at, 1, &at->n, 0.1, 0.9);
}

void operands_square(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->side, at->side), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(at->side, at->side), -1, 1);
}

/* A square matrix, and as many positions of its rows as it has rows. */
void operands_positions(struct ops_case *at) {
    operands_square(at);
    at->x[2] = integers(at, 1, &at->side, at->side);
}

/* Products that introductions to GPUs show, of any size. */
void operands_vector_of_matrix(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->n / 100, 100), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(100), -1, 1);
}

void operands_oblong(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(1000, 500), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(500, 200), -1, 1);
}

/* Images, the weight of a convolution, a gradient of as many images, one of images pooled by 2, and a number for each channel. */
void operands_images(struct ops_case *at) {
    int64_t images = at->n / (CHANNELS * EXTENT * EXTENT);
    images = images > 0 ? images : 1;
    at->x[0] = numbers(at, TD_SHAPE(images, CHANNELS, EXTENT, EXTENT), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(CHANNELS, CHANNELS, 3, 3), -1, 1);
    at->x[2] = numbers(at, TD_SHAPE(images, CHANNELS, EXTENT, EXTENT), -1, 1);
    at->x[3] = numbers(at, TD_SHAPE(images, CHANNELS, EXTENT / 2, EXTENT / 2), -1, 1);
    at->x[4] = numbers(at, TD_SHAPE(CHANNELS), 0.5, 1);
}

/* Two square matrices, and two vectors as long as their rows. */
void operands_layers(struct ops_case *at) {
    operands_square(at);
    at->x[2] = numbers(at, TD_SHAPE(at->side), 0.5, 1);
    at->x[3] = numbers(at, TD_SHAPE(at->side), -1, 1);
}

/* Two vectors, a mask of one half of their elements, and two numbers. */
void operands_masked(struct ops_case *at) {
    operands_vectors(at);
    td_tensor *half = scalar(at, 0.5);
    at->x[2] = bench_made(td_less(at->x[0], half), "less");
    td_release(half);
    at->x[3] = scalar(at, 0.25);
    at->x[4] = scalar(at, 0.75);
}

/* A vector in order, and another one. */
void operands_ordered(struct ops_case *at) {
    operands_vectors(at);
    td_tensor *ordered = bench_made(td_sort(at->x[0], 0, 0), "sort");
    td_release(at->x[0]);
    at->x[0] = ordered;
}

/* Integers from 0 to 999. */
void operands_integers(struct ops_case *at) {
    at->x[0] = integers(at, 1, &at->n, 1000);
}

/* Two square matrices, and for each element a position in its row. */
void operands_places(struct ops_case *at) {
    operands_square(at);
    at->x[2] = integers(at, TD_SHAPE(at->side, at->side), at->side);
}

/* A square matrix that is positive definite, and another one. */
void operands_definite(struct ops_case *at) {
    operands_square(at);
    td_tensor *turned = td_transpose(at->x[0]), *product = bench_made(td_matmul(at->x[0], turned), "matmul");
    td_tensor *side = scalar(at, (double)at->side);
    td_tensor *unit = bench_made(td_eye(at->device, at->dtype, at->side, at->side, 0), "eye");
    td_tensor *more = bench_made(td_multiply(unit, side), "multiply");
    at->x[2] = bench_made(td_add(product, more), "add");
    td_release(turned);
    td_release(product);
    td_release(side);
    td_release(unit);
    td_release(more);
}

/* Queries, keys and values of some sequences, for each head. */
void operands_heads(struct ops_case *at) {
    int64_t sequences = at->n / (HEADS * TOKENS * FEATURES);
    for (int i = 0; i < 3; i++) {
        at->x[i] = numbers(at, TD_SHAPE(sequences, HEADS, TOKENS, FEATURES), -1, 1);
    }
}

/* Signals, volumes and images of few channels, and the weights of their convolutions; and a gradient, of signals. */
void operands_signals(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->n / (64 * 1024), 64, 1024), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(64, 64, 3), -1, 1);
    at->x[2] = numbers(at, TD_SHAPE(at->n / (64 * 1024), 64, 1024), -1, 1);
}

void operands_volumes(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->n / (16 * 16 * 32 * 32), 16, 16, 32, 32), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(16, 16, 3, 3, 3), -1, 1);
}

void operands_depthwise(struct ops_case *at) {
    operands_images(at);
    td_release(at->x[1]);
    at->x[1] = numbers(at, TD_SHAPE(CHANNELS, 1, 3, 3), -1, 1);
}

/* The first layer of a small network: 128 images of three channels. */
void operands_colours(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(128, 3, 32, 32), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(6, 3, 5, 5), -1, 1);
}

/* Sequences of 50 steps, 32 at a time, for a layer of `gates` times 128 numbers. */
static void open_steps(struct ops_case *at, int64_t gates) {
    at->x[0] = numbers(at, TD_SHAPE(50, 32, 64), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(32, 128), 0, 0);
    at->x[2] = numbers(at, TD_SHAPE(gates * 128, 64), -0.1, 0.1);
    at->x[3] = numbers(at, TD_SHAPE(gates * 128, 128), -0.1, 0.1);
    at->x[4] = numbers(at, TD_SHAPE(gates * 128), -0.1, 0.1);
    at->x[5] = numbers(at, TD_SHAPE(32, 128), 0, 0);
}

void operands_four_gates(struct ops_case *at) {
    open_steps(at, 4);
}

void operands_three_gates(struct ops_case *at) {
    open_steps(at, 3);
}

/* A parameter, its gradient, and an optimiser's two moments. */
void operands_parameter(struct ops_case *at) {
    operands_vectors(at);
    for (int i = 2; i < 4; i++) {
        at->x[i] = bench_made(td_full(at->device, at->dtype, 1, &at->n, 0), "full");
    }
}

/* Batches of matrices of 32 by 32. */
void operands_batch(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->n / 1024, 32, 32), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(at->n / 1024, 32, 32), -1, 1);
}

/* Ten square matrices. */
void operands_ten(struct ops_case *at) {
    int64_t side = (int64_t)sqrt((double)at->n / 10);
    at->x[0] = numbers(at, TD_SHAPE(10, side, side), -1, 1);
}

/* ---- of elementwise operations ---- */

/* Where acosh is defined. */
void operands_above_one(struct ops_case *at) {
    at->x[0] = numbers(at, 1, &at->n, 1.1, 9);
}

/* Integers, and by how many bits they are shifted. */
void operands_shifts(struct ops_case *at) {
    at->x[0] = numbers(at, 1, &at->n, 1, 100);
    at->x[1] = numbers(at, 1, &at->n, 0, 7);
}

/* Two masks, each of one half of the elements. */
void operands_masks(struct ops_case *at) {
    td_tensor *half = bench_made(td_full(at->device, TD_F32, 0, NULL, 0.5), "full");
    for (int i = 0; i < 2; i++) {
        td_tensor *any = uniform(at, 1, &at->n, 0, 1);
        at->x[i] = bench_made(td_less(any, half), "less");
        td_release(any);
    }
    td_release(half);
}

/* ---- of arrays ---- */

/* A matrix whose products stay near to 1. */
void operands_near_one(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->side, at->side), 0.99, 1.01);
}

/* A matrix of one column, and one of two rows. */
void operands_column(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->n, 1), -1, 1);
}

void operands_pair(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(2, at->n / 2), -1, 1);
}

/* A square of booleans, one half of them true. */
void operands_booleans(struct ops_case *at) {
    td_tensor *any = uniform(at, TD_SHAPE(at->side, at->side), 0, 1);
    td_tensor *half = bench_made(td_full(at->device, TD_F32, 0, NULL, 0.5), "full");
    at->x[0] = bench_made(td_less(any, half), "less");
    td_release(any);
    td_release(half);
}

/* A vector, and how often each element is wanted: 0 to 3 times. */
void operands_counts(struct ops_case *at) {
    at->x[0] = numbers(at, 1, &at->n, -1, 1);
    at->x[1] = integers(at, 1, &at->n, 4);
}

/* Two vectors whose outer product has as many elements as the others' operands. */
void operands_edges(struct ops_case *at) {
    at->x[0] = numbers(at, 1, &at->side, -1, 1);
    at->x[1] = numbers(at, 1, &at->side, -1, 1);
}

/* Points in space. */
void operands_points(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->n / 3, 3), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(at->n / 3, 3), -1, 1);
}

/* Two matrices whose Kronecker product has as many elements as the others' operands. */
void operands_factors(struct ops_case *at) {
    int64_t extent = (int64_t)sqrt((double)at->side);
    at->x[0] = numbers(at, TD_SHAPE(extent, extent), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(extent, extent), -1, 1);
}

/* Two tensors that share two axes of 32. */
void operands_folded(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->n / 1024, 32, 32), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(32, 32, at->n / 1024), -1, 1);
}

/* More equations than unknowns, and four right sides. */
void operands_tall(struct ops_case *at) {
    int64_t unknowns = at->side / 2;
    at->x[0] = numbers(at, TD_SHAPE(4 * unknowns, unknowns), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(4 * unknowns, 4), -1, 1);
}

/* A transform of real numbers, and one of a square of them. */
void operands_spectrum(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->n / 2 + 1), -1, 1);
}

void operands_half_plane(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->side, at->side / 2 + 1), -1, 1);
}

/* Weights of 1000 kinds. */
void operands_kinds(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(1000), 0.1, 0.9);
}

/* Integers below 1000 in order, and their places: they have not been sorted. */
void operands_runs(struct ops_case *at) {
    td_tensor *unordered = integers(at, 1, &at->n, 1000);
    at->x[0] = bench_made(td_sort(unordered, 0, 0), "sort");
    at->x[1] = bench_made(td_arange(at->device, TD_I64, 0, (double)at->n, 1), "arange");
    td_release(unordered);
}

/* A table of 1000 vectors, which of them are wanted, and a gradient of the result. */
void operands_words(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(1000, FEATURES), -1, 1);
    at->x[1] = integers(at, TD_SHAPE(at->n / FEATURES), 1000);
    at->x[2] = numbers(at, TD_SHAPE(at->n / FEATURES, FEATURES), -1, 1);
}

/* ---- of layers ---- */

/* Scores, probabilities, labels, the gradient of a mean, and the scores' logarithms of probabilities. */
void operands_scores(struct ops_case *at) {
    operands_square(at);
    td_tensor *other = at->x[1];
    at->x[1] = bench_made(td_softmax(other, 1), "softmax");
    at->x[2] = integers(at, 1, &at->side, at->side);
    at->x[3] = scalar(at, 1);
    at->x[4] = bench_made(td_log_softmax(at->x[0], 1), "log_softmax");
    td_release(other);
}

/* Two vectors, and the gradient of a mean. */
void operands_losses(struct ops_case *at) {
    operands_vectors(at);
    at->x[2] = scalar(at, 1);
}

/* Images as above, where the greatest of each window is, and a gradient of images pooled to 7 by 7. */
void operands_pooled(struct ops_case *at) {
    td_tensor *values;
    const int64_t window = 2;
    operands_images(at);
    bench_check(
        td_max_pool(at->x[0], 1, &window, 0, NULL, 0, NULL, 0, NULL, 0, TD_LAYOUT_CHANNELS_FIRST, &values, &at->x[5]),
        "max_pool");
    td_release(values);
    at->x[6] = numbers(at, TD_SHAPE(td_tensor_shape(at->x[0])[0], CHANNELS, 7, 7), -1, 1);
}

/* Images, and the weight of a convolution of single pixels. */
void operands_narrow(struct ops_case *at) {
    operands_images(at);
    td_release(at->x[1]);
    at->x[1] = numbers(at, TD_SHAPE(CHANNELS, CHANNELS, 1, 1), -1, 1);
}

/* Queries, keys and values, a gradient, the result, and what the operation keeps for the gradient. */
static void open_heads_back(struct ops_case *at, int causal) {
    operands_heads(at);
    at->x[3] = numbers(at, 4, td_tensor_shape(at->x[0]), -1, 1);
    bench_check(td_scaled_dot_product_attention(at->x[0], at->x[1], at->x[2], NULL, causal, 1 / sqrt((double)FEATURES),
                                                &at->x[4], &at->x[5]),
                "attention");
}

void operands_heads_back(struct ops_case *at) {
    open_heads_back(at, 0);
}

void operands_heads_back_causal(struct ops_case *at) {
    open_heads_back(at, 1);
}

/* A layer's operands (0 to 5), gradients by its results (6 to 8), and what it keeps (9 to 11). */
void operands_four_gates_back(struct ops_case *at) {
    td_tensor **x = at->x, *h, *c;
    operands_four_gates(at);
    bench_check(td_lstm(x[0], x[1], x[5], x[2], x[3], x[4], x[4], 0, &x[9], &h, &c, &x[10], &x[11]), "lstm");
    x[6] = numbers(at, TD_SHAPE(50, 32, 128), -1, 1);
    x[7] = numbers(at, TD_SHAPE(32, 128), -1, 1);
    x[8] = numbers(at, TD_SHAPE(32, 128), -1, 1);
    td_release(h);
    td_release(c);
}

void operands_three_gates_back(struct ops_case *at) {
    td_tensor **x = at->x, *h;
    operands_three_gates(at);
    bench_check(td_gru(x[0], x[1], x[2], x[3], x[4], x[4], 0, &x[9], &h, &x[10]), "gru");
    x[6] = numbers(at, TD_SHAPE(50, 32, 128), -1, 1);
    x[7] = numbers(at, TD_SHAPE(32, 128), -1, 1);
    td_release(h);
}
