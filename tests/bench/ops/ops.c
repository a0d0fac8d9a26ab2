/* Measures operations through a daemon with resident tensors, one at a time: a line "ROW<tab>DTYPE<tab>ELEMENTS" on standard
 * input gives a line with the microseconds of one operation, or "-" and the reason why there is no such figure. The line "list" gives
 * the names of all rows, with a tab between them, and "stream" what memory gives (stream.h). ops.py asks this program and those of the
 * peers in turn.
 *
 * As many operations as fill some hundredths of a second are enqueued one after another and then waited for: this is the median of
 * five such times, divided by their number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/ops/stream.h"

bool bench_quick;

enum { OPERANDS = 5, ROUNDS = 5, COUNT_MAX = 20000, NAME_MAX_BYTES = 64, CHAINED = 10 };
/* Channels and extent of the images of a network's rows, as in the first stage of a ResNet-50. */
enum { CHANNELS = 64, EXTENT = 56 };

/* An operation's operands, for one dtype and size. */
struct ops_case {
    td_device *device;
    td_dtype dtype;
    int64_t n, side; /* elements of an operand, and the extent of a square matrix with as many */
    td_tensor *x[OPERANDS];
};

struct ops_row {
    const char *name;
    void (*open)(struct ops_case *at);
    td_tensor *(*run)(const struct ops_case *at);
    double (*measure)(const struct ops_case *at); /* microseconds; NULL: of one `run` among many */
};

/* ---- operands ---- */

/* Numbers between `low` and `high`, of a dtype that uniform may not have. */
static td_tensor *numbers(const struct ops_case *at, int rank, const int64_t *shape, double low, double high) {
    td_tensor *made = bench_made(td_uniform(at->device, TD_F32, rank, shape, 7, low, high), "uniform");
    td_tensor *cast = bench_made(td_cast(made, at->dtype), "cast");
    td_release(made);
    return cast;
}

/* Two vectors in [0.1, 0.9), where all functions but acosh are defined; integers are 10 to 89. */
static void open_vectors(struct ops_case *at) {
    bool integer = at->dtype >= TD_U8 && at->dtype <= TD_I64;
    double low = integer ? 10 : 0.1, high = integer ? 90 : 0.9;
    at->x[0] = numbers(at, 1, &at->n, low, high);
    at->x[1] = numbers(at, 1, &at->n, low, high);
}

static void open_square(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->side, at->side), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(at->side, at->side), -1, 1);
}

/* A square matrix, and as many positions of its rows as it has rows. */
static void open_positions(struct ops_case *at) {
    open_square(at);
    td_tensor *position =
        bench_made(td_uniform(at->device, TD_F32, 1, &at->side, 5, 0, (double)at->side - 0.5), "uniform");
    at->x[2] = bench_made(td_cast(position, TD_I64), "cast");
    td_release(position);
}

/* Products that introductions to GPUs show, of any size. */
static void open_vector_of_matrix(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(at->n / 100, 100), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(100), -1, 1);
}

static void open_oblong(struct ops_case *at) {
    at->x[0] = numbers(at, TD_SHAPE(1000, 500), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(500, 200), -1, 1);
}

/* Images, the weight of a convolution, a gradient of as many images, one of images pooled by 2, and a number for each channel. */
static void open_images(struct ops_case *at) {
    int64_t images = at->n / (CHANNELS * EXTENT * EXTENT);
    images = images > 0 ? images : 1;
    at->x[0] = numbers(at, TD_SHAPE(images, CHANNELS, EXTENT, EXTENT), -1, 1);
    at->x[1] = numbers(at, TD_SHAPE(CHANNELS, CHANNELS, 3, 3), -1, 1);
    at->x[2] = numbers(at, TD_SHAPE(images, CHANNELS, EXTENT, EXTENT), -1, 1);
    at->x[3] = numbers(at, TD_SHAPE(images, CHANNELS, EXTENT / 2, EXTENT / 2), -1, 1);
    at->x[4] = numbers(at, TD_SHAPE(CHANNELS), 0.5, 1);
}

/* Two square matrices, and two vectors as long as their rows. */
static void open_layers(struct ops_case *at) {
    open_square(at);
    at->x[2] = numbers(at, TD_SHAPE(at->side), 0.5, 1);
    at->x[3] = numbers(at, TD_SHAPE(at->side), -1, 1);
}

/* Ten square matrices. */
static void open_ten(struct ops_case *at) {
    int64_t side = (int64_t)sqrt((double)at->n / 10);
    at->x[0] = numbers(at, TD_SHAPE(10, side, side), -1, 1);
}

/* ---- rows ---- */

#define RUN(name, expression)                                                                                          \
    static td_tensor *run_##name(const struct ops_case *at) {                                                          \
        td_tensor *const *x = at->x;                                                                                   \
        (void)x;                                                                                                       \
        return expression;                                                                                             \
    }

/* X(name): functions of one tensor, and of two. */
#define UNARY(X)                                                                                                       \
    X(negative)                                                                                                        \
    X(abs)                                                                                                             \
    X(exp)                                                                                                             \
    X(log) X(sqrt) X(tanh) X(sigmoid) X(relu) X(erf) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh)      \
        X(asinh) X(atanh) X(exp2) X(expm1) X(log1p) X(log2) X(log10) X(erfc) X(square) X(rsqrt) X(reciprocal) X(floor) \
            X(round) X(sign) X(isnan) X(gelu) X(silu) X(hardswish) X(mish)
#define BINARY(X)                                                                                                      \
    X(add)                                                                                                             \
    X(subtract)                                                                                                        \
    X(multiply)                                                                                                        \
    X(divide) X(pow) X(maximum) X(minimum) X(equal) X(less) X(atan2) X(hypot) X(logaddexp) X(fmod) X(remainder)        \
        X(floor_divide) X(copysign)
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
    X(eigh, "eigh", square, eigh(x[0]))                                                                                \
    X(eigh_ten, "eigh of ten", ten, eigh(x[0]))                                                                        \
    X(eigvalsh_ten, "eigvalsh of ten", ten, td_eigvalsh(x[0], 0))                                                      \
    X(svd, "svd", square, svd(x[0]))                                                                                   \
    X(svd_ten, "svd of ten", ten, svd(x[0]))                                                                           \
    X(svdvals_ten, "svdvals of ten", ten, td_svdvals(x[0]))

#define LIST(n)                                                                                                        \
    1, (const int64_t[]) {                                                                                             \
        n                                                                                                              \
    }

static td_tensor *transposed(td_tensor *x) {
    td_tensor *view = td_transpose(x), *copy = view ? td_copy(view) : NULL;
    td_release(view);
    return copy;
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
#define ROW(name) {#name, open_vectors, run_##name, NULL},
#define ROW_OTHER(id, name, operands, expression) {name, open_##operands, run_##id, NULL},
    UNARY(ROW) BINARY(ROW) OTHERS(ROW_OTHER){"ten products, enqueued", open_square, NULL, chain_enqueued},
    {"ten products, fetched", open_square, NULL, chain_fetched}};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

/* ---- measuring ---- */

static void enqueue(const struct ops_row *row, const struct ops_case *at) {
    td_tensor *result = row->run(at);
    while (!result && bench_again(at->device)) {
        result = row->run(at);
    }
    td_release(bench_made(result, row->name));
}

static double seconds(const struct ops_row *row, const struct ops_case *at, long count) {
    double begin = bench_now();
    for (long i = 0; i < count; i++) {
        enqueue(row, at);
    }
    bench_check(td_sync(at->device), row->name);
    return bench_now() - begin;
}

/* Microseconds of one operation. */
static double measure(const struct ops_row *row, const struct ops_case *at) {
    const double wanted = bench_quick ? 0.0001 : 0.04;
    double times[ROUNDS];
    long count = 1;
    seconds(row, at, 1); /* memory and libraries are there from now on */
    for (double one = seconds(row, at, 1); one < wanted && count < COUNT_MAX; one = seconds(row, at, count)) {
        long more = (long)((double)count * wanted / one) + 1;
        count = more > count * 10 ? count * 10 : more;
    }
    for (int i = 0; i < ROUNDS; i++) {
        times[i] = seconds(row, at, count) / (double)count;
    }
    return bench_median(times, ROUNDS) * 1e6;
}

static const struct ops_row *row_of(const char *name) {
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (!strcmp(rows[i].name, name)) {
            return &rows[i];
        }
    }
    return NULL;
}

static td_dtype dtype_of(const char *name) {
    static const struct {
        const char *name;
        td_dtype dtype;
    } dtypes[] = {{"u8", TD_U8},   {"i8", TD_I8},     {"i16", TD_I16}, {"i32", TD_I32}, {"i64", TD_I64},
                  {"f16", TD_F16}, {"bf16", TD_BF16}, {"f32", TD_F32}, {"f64", TD_F64}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (!strcmp(dtypes[i].name, name)) {
            return dtypes[i].dtype;
        }
    }
    bench_fail("%s is no dtype", name);
}

static void answer(td_device *device, char *line) {
    char *name = strtok(line, "\t"), *dtype = strtok(NULL, "\t"), *elements = strtok(NULL, "\t");
    const struct ops_row *row = elements ? row_of(name) : NULL;
    if (!row) {
        printf("-\tthere is no such row\n");
        return;
    }
    struct ops_case at = {.device = device, .dtype = dtype_of(dtype), .n = strtoll(elements, NULL, 10)};
    at.side = (int64_t)sqrt((double)at.n);
    row->open(&at);
    printf("%.4g\n", row->measure ? row->measure(&at) : measure(row, &at));
    for (int i = 0; i < OPERANDS; i++) {
        td_release(at.x[i]);
    }
}

int main(int argc, char **argv) {
    char line[3 * NAME_MAX_BYTES];
    struct bench_daemon daemon;
    struct bench_client client;
    bench_quick = argc > 1 && !strcmp(argv[1], "--quick");
    bench_daemon_start(&daemon);
    bench_client_open(&client, daemon.url, NULL);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "list")) {
            for (size_t i = 0; i < ROW_COUNT; i++) {
                printf("%s%s", i ? "\t" : "", rows[i].name);
            }
            printf("\n");
        } else if (!strcmp(line, "stream")) {
            printf("%.4g\n", stream_rate(bench_quick));
        } else {
            answer(client.device, line);
        }
        fflush(stdout);
    }
    bench_client_close(&client);
    bench_daemon_stop(&daemon);
    return 0;
}
