/* Kernels that read and write f16 and bf16 themselves take no memory for conversions: a row for each of them, with inputs of a Mi elements
 * or more. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/device/suite.h"

enum { KIB = 1 << 10, ELEMENTS = 1 << 20, INPUTS_MOST = 8 };
/* What operations take besides their results: an eighth of what one operand as f32 would. */
enum { ALLOWED = 512 * KIB };

struct shape {
    int rank;
    int64_t extents[VALUES_RANK_MAX];
};

struct row {
    unsigned opcode, results;
    struct shape inputs[INPUTS_MOST]; /* the last one is before one of rank 0 */
    struct op_packed attributes;
    uint64_t further; /* bytes of workspace beyond ALLOWED; the reason stands beside it */
    uint64_t each;    /* of these, for each thread */
};

#define OF(...)                                                                                                        \
    {                                                                                                                  \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {                                                          \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

static uint64_t ones(struct suite *suite, enum dtype dtype, const struct shape *shape) {
    int64_t ints[2 + VALUES_RANK_MAX] = {dtype, 1};
    memcpy(ints + 2, shape->extents, (size_t)shape->rank * sizeof *ints);
    struct op_request request = {.opcode = OP_FULL,
                                 .n_ints = 2 + (unsigned)shape->rank,
                                 .ints = ints,
                                 .n_floats = 1,
                                 .floats = (const double[]){1}};
    uint64_t id;
    cr_assert_eq(suite_submit(suite, &request, &id), STATUS_OK);
    return id;
}

/* Targets and positions are integers, and logsumexp is what attention computes in. */
static enum dtype input_dtype(unsigned opcode, unsigned i, enum dtype dtype) {
    if (op_info(opcode)->index_inputs >> i & 1)
        return DTYPE_I64;
    return opcode == OP_ATTENTION_GRAD && i == 5 ? DTYPE_F32 : dtype;
}

static void run(const struct row *row, enum dtype dtype) {
    const struct op_info *info = op_info(row->opcode);
    struct suite suite;
    struct failure failure = {0};
    struct session_stats stats;
    uint64_t inputs[INPUTS_MOST], result, elements = 0;
    unsigned n = 0;
    suite_open_limited(&suite, 3, 0, 0);
    for (; n < INPUTS_MOST && row->inputs[n].rank; n++) {
        uint64_t of_input = 1;
        for (int i = 0; i < row->inputs[n].rank; i++)
            of_input *= (uint64_t)row->inputs[n].extents[i];
        elements = of_input > elements ? of_input : elements;
        inputs[n] = ones(&suite, input_dtype(row->opcode, n, dtype), &row->inputs[n]);
    }
    cr_assert_geq(elements, ELEMENTS, "%s: too few elements to tell", info->name);
    suite_sync(&suite);
    struct op_request request = {.opcode = row->opcode,
                                 .n_inputs = n,
                                 .inputs = inputs,
                                 .further = row->results - 1,
                                 .n_ints = row->attributes.n_ints,
                                 .ints = row->attributes.ints,
                                 .n_floats = row->attributes.n_floats,
                                 .floats = row->attributes.floats};
    cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK, "%s is refused", info->name);
    cr_assert_eq(suite_outcome(&suite, result, &failure), STATUS_OK, "%s: %s", info->name, failure.message);
    suite_sync(&suite);
    session_stats(suite.session, &stats);
    uint64_t workspace = row->further + row->each * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    cr_expect_leq(stats.peak, stats.live + ALLOWED + workspace, "%s of %s took %llu KiB more than its results",
                  info->name, dtype_name(dtype), (unsigned long long)(stats.peak - stats.live) / KIB);
    suite_close(&suite);
}

/* The devices whose kernels have been made for this. */
enum { ON_CPU = 1, ON_CUDA = 2 };

static unsigned device_kind(void) {
    const char *device = getenv("TENSORD_TEST_DEVICE");
    if (!device || strncmp(device, "cpu", 3) == 0 || strncmp(device, "late", 4) == 0)
        return ON_CPU;
    return strncmp(device, "cuda", 4) == 0 || strcmp(device, "emulated") == 0 ? ON_CUDA : 0;
}

static void run_rows(const struct row *rows, size_t n, unsigned devices) {
    if (!(device_kind() & devices))
        cr_skip("this device's kernels may get f32 instead");
    for (size_t i = 0; i < n; i++) {
        run(&rows[i], DTYPE_F16);
        run(&rows[i], DTYPE_BF16);
    }
}
#define RUN(rows, devices) run_rows(rows, sizeof(rows) / sizeof *(rows), devices)

Test(halves, normalisations_take_no_memory_to_convert) {
#define BATCH OF(64, 32, 32, 32)
#define ROWS OF(4096, 256)
    const struct op_packed batch = SUITE_ATTRIBUTES(batch_norm, .axis = 1, .epsilon = 1e-5, .momentum = 0.1);
    const struct op_packed channel = SUITE_ATTRIBUTES(channel_norm, .axis = 1, .epsilon = 1e-5);
    const struct op_packed group = SUITE_ATTRIBUTES(group_norm, .groups = 4, .epsilon = 1e-5);
    const struct op_packed line = SUITE_ATTRIBUTES(row_norm, .axes = 1, .epsilon = 1e-5);
    const struct row rows[] = {
        {OP_BATCH_NORM, 3, {BATCH, OF(32), OF(32), OF(32), OF(32)}, batch},
        {OP_BATCH_NORM_INFERENCE, 1, {BATCH, OF(32), OF(32), OF(32), OF(32)}, channel},
        {OP_BATCH_NORM_GRAD, 3, {BATCH, BATCH, OF(32)}, channel},
        {OP_LAYER_NORM, 1, {ROWS, OF(256), OF(256)}, line},
        {OP_LAYER_NORM_GRAD, 3, {ROWS, ROWS, OF(256)}, line},
        {OP_GROUP_NORM, 1, {BATCH, OF(32), OF(32)}, group},
        {OP_GROUP_NORM_GRAD, 3, {BATCH, BATCH, OF(32)}, group},
        {OP_RMS_NORM, 1, {ROWS, OF(256)}, line},
        {OP_RMS_NORM_GRAD, 2, {ROWS, ROWS, OF(256)}, line},
    };
    RUN(rows, ON_CPU | ON_CUDA);
}

Test(halves, losses_take_no_memory_to_convert) {
#define SCORES OF(4096, 512)
#define PLACES OF(4096)
#define NONE .reduction = OP_REDUCTION_NONE
#define MEAN .reduction = OP_REDUCTION_MEAN
    const struct op_packed classes = SUITE_ATTRIBUTES(cross_entropy, MEAN, .ignore_index = -100),
                           each = SUITE_ATTRIBUTES(cross_entropy, NONE, .ignore_index = -100, .label_smoothing = 0.1),
                           soft = SUITE_ATTRIBUTES(soft_cross_entropy, NONE),
                           nll = SUITE_ATTRIBUTES(nll_loss, NONE, .ignore_index = -100),
                           mean = SUITE_ATTRIBUTES(reduced, MEAN), none = SUITE_ATTRIBUTES(reduced, NONE),
                           huber = SUITE_ATTRIBUTES(huber_loss, NONE, .delta = 1), kl = SUITE_ATTRIBUTES(kl_div, NONE);
    const struct row rows[] = {
        {OP_CROSS_ENTROPY, 1, {SCORES, PLACES, OF(512)}, each},
        {OP_CROSS_ENTROPY_GRAD, 1, {PLACES, SCORES, PLACES, OF(512)}, each},
        {OP_CROSS_ENTROPY, 1, {SCORES, PLACES}, classes},
        {OP_SOFT_CROSS_ENTROPY, 1, {SCORES, SCORES, OF(512)}, soft},
        {OP_SOFT_CROSS_ENTROPY_GRAD, 1, {PLACES, SCORES, SCORES, OF(512)}, soft},
        {OP_NLL_LOSS, 1, {SCORES, PLACES}, nll},
        {OP_NLL_LOSS_GRAD, 1, {PLACES, SCORES, PLACES}, nll},
        {OP_MSE_LOSS, 1, {SCORES, SCORES}, mean},
        {OP_MSE_LOSS, 1, {SCORES, SCORES}, none},
        {OP_MSE_LOSS_GRAD, 1, {SCORES, SCORES, SCORES}, none},
        {OP_L1_LOSS, 1, {SCORES, SCORES}, none},
        {OP_L1_LOSS_GRAD, 1, {SCORES, SCORES, SCORES}, none},
        {OP_HUBER_LOSS, 1, {SCORES, SCORES}, huber},
        {OP_HUBER_LOSS_GRAD, 1, {SCORES, SCORES, SCORES}, huber},
        {OP_BCE_WITH_LOGITS, 1, {SCORES, SCORES, SCORES, SCORES}, none},
        {OP_BCE_WITH_LOGITS_GRAD, 1, {SCORES, SCORES, SCORES, SCORES}, none},
        {OP_BCE_WITH_LOGITS_TARGET_GRAD, 1, {SCORES, SCORES, SCORES, SCORES}, none},
        {OP_KL_DIV, 1, {SCORES, SCORES}, kl},
        {OP_KL_DIV_GRAD, 1, {SCORES, SCORES, SCORES}, kl},
        {OP_KL_DIV_TARGET_GRAD, 1, {SCORES, SCORES, SCORES}, kl},
    };
    RUN(rows, ON_CPU | ON_CUDA);
}

Test(halves, optimisers_take_no_memory_to_convert) {
#define P OF(1024, 1024)
    const struct row rows[] = {
        {OP_SGD, 1, {P, P}, SUITE_ATTRIBUTES(sgd, .rate = 0.1)},
        {OP_SGD, 2, {P, P, P}, SUITE_ATTRIBUTES(sgd, .rate = 0.1, .momentum = 0.9)},
        {OP_ADAM, 3, {P, P, P, P}, SUITE_ATTRIBUTES(adam, .step = 1, .rate = 0.1, .beta1 = 0.9, .beta2 = 0.99)},
        {OP_ADAMW, 3, {P, P, P, P}, SUITE_ATTRIBUTES(adamw, .step = 1, .rate = 0.1, .beta1 = 0.9, .beta2 = 0.99)},
        {OP_RMSPROP, 2, {P, P, P}, SUITE_ATTRIBUTES(rmsprop, .rate = 0.1, .alpha = 0.9)},
        {OP_ADAGRAD, 2, {P, P, P}, SUITE_ATTRIBUTES(adagrad, .rate = 0.1)},
        {OP_MOVING_AVERAGE, 1, {P, P}, SUITE_ATTRIBUTES(moving_average, .decay = 0.9)},
    };
    RUN(rows, ON_CPU | ON_CUDA);
}

Test(halves, pooling_takes_no_memory_to_convert) {
#define IMAGES OF(64, 64, 32, 32)
#define POOLED OF(64, 64, 16, 16)
#define WINDOW .kernel = SUITE_LIST(3, 3), .stride = SUITE_LIST(2, 2), .padding = SUITE_LIST(1, 1)
#define IMAGES_SHAPE .shape = SUITE_LIST(64, 64, 32, 32)
    enum { CHANNEL = 32 * 32 * sizeof(float) }; /* of a gradient, where a thread adds up */
    const struct row rows[] = {
        {OP_MAX_POOL, 2, {IMAGES}, SUITE_ATTRIBUTES(max_pool, WINDOW)},
        {OP_MAX_POOL_GRAD, 1, {POOLED, POOLED}, SUITE_ATTRIBUTES(max_pool_grad, WINDOW, IMAGES_SHAPE), .each = CHANNEL},
        {OP_AVG_POOL, 1, {IMAGES}, SUITE_ATTRIBUTES(avg_pool, WINDOW)},
        {OP_AVG_POOL_GRAD, 1, {POOLED}, SUITE_ATTRIBUTES(avg_pool_grad, WINDOW, IMAGES_SHAPE), .each = CHANNEL},
        {OP_ADAPTIVE_AVG_POOL, 1, {IMAGES}, SUITE_ATTRIBUTES(adaptive_avg_pool, .extents = SUITE_LIST(5, 7))},
        {OP_ADAPTIVE_AVG_POOL_GRAD,
         1,
         {POOLED},
         SUITE_ATTRIBUTES(adaptive_avg_pool_grad, IMAGES_SHAPE),
         .each = CHANNEL},
    };
    RUN(rows, ON_CPU | ON_CUDA);
}

Test(halves, attention_takes_no_memory_to_convert) {
#define HEADS OF(8, 16, 256, 32)
#define SUMS OF(8, 16, 256)
#define MASK OF(8, 16, 256, 256)
    enum { BLOCKS = 512 * KIB }; /* of scores, and of the rows and keys that these are of */
    const struct op_packed plain = SUITE_ATTRIBUTES(attention, .is_causal = true);
    const struct row rows[] = {
        {OP_ATTENTION, 2, {HEADS, HEADS, HEADS}, plain, .each = BLOCKS},
        {OP_ATTENTION, 2, {HEADS, HEADS, HEADS, MASK}, plain, .each = BLOCKS},
        {OP_ATTENTION_GRAD, 3, {HEADS, HEADS, HEADS, HEADS, HEADS, SUMS}, plain, .each = BLOCKS},
        {OP_ATTENTION_GRAD, 3, {HEADS, HEADS, HEADS, HEADS, HEADS, SUMS, MASK}, plain, .each = BLOCKS},
    };
    RUN(rows, ON_CPU | ON_CUDA);
}

Test(halves, convolutions_take_no_memory_to_convert) {
#define PICTURES OF(64, 32, 32, 32)
#define FILTERS OF(32, 32, 3, 3)
#define COMMON .stride = SUITE_LIST(1, 1), .padding = SUITE_LIST(1, 1), .groups = 1
    enum {
        PICTURE = KIB * KIB
    }; /* an image and its result, and both in oneDNN's order; or a block of some 1 MiB for two threads */
    const struct row rows[] = {
        {OP_CONV, 1, {PICTURES, FILTERS, OF(32)}, SUITE_ATTRIBUTES(conv, COMMON), .each = PICTURE},
        {OP_CONV_TRANSPOSE, 1, {PICTURES, FILTERS, OF(32)}, SUITE_ATTRIBUTES(conv_transpose, COMMON), .each = PICTURE},
        {OP_CONV_GRAD_INPUT,
         1,
         {PICTURES, FILTERS},
         SUITE_ATTRIBUTES(conv_grad_input, COMMON, .shape = SUITE_LIST(64, 32, 32, 32)),
         .each = PICTURE},
        {OP_CONV_GRAD_WEIGHT,
         1,
         {PICTURES, PICTURES},
         SUITE_ATTRIBUTES(conv_grad_weight, COMMON, .shape = SUITE_LIST(32, 32, 3, 3)),
         .each = PICTURE},
    };
    RUN(rows, ON_CPU); /* elsewhere a library may have its workspace */
}

/* ---- the results ---- */

static uint64_t cast(struct suite *suite, uint64_t x, enum dtype dtype) {
    struct op_packed to = SUITE_ATTRIBUTES(cast, .dtype = dtype);
    struct op_request request = {.opcode = OP_CAST, .n_inputs = 1, .inputs = &x, .n_ints = to.n_ints, .ints = to.ints};
    uint64_t id;
    cr_assert_eq(suite_submit(suite, &request, &id), STATUS_OK);
    return id;
}

static uint8_t *bytes_of(struct suite *suite, uint64_t id, uint64_t *bytes) {
    struct suite_fetch fetch;
    suite_fetch_start(suite, id, &fetch);
    suite_fetch_wait(suite, &fetch);
    cr_assert(!fetch.failed, "%s", fetch.failure.message);
    *bytes = fetch.fetch.bytes;
    uint8_t *read = malloc(*bytes + 1);
    suite_read(suite, &fetch.fetch, read);
    fetch_release(&fetch.fetch);
    return read;
}

/* The first result comes out as that of the inputs in f32, rounded. */
static void run_same(const struct row *row, enum dtype dtype) {
    const struct op_info *info = op_info(row->opcode);
    struct suite suite;
    uint64_t inputs[INPUTS_MOST], wide[INPUTS_MOST], results[2], bytes[2];
    suite_open_limited(&suite, 3, 0, 0);
    struct op_request request = {.opcode = row->opcode,
                                 .inputs = inputs,
                                 .further = row->results - 1,
                                 .n_ints = row->attributes.n_ints,
                                 .ints = row->attributes.ints,
                                 .n_floats = row->attributes.n_floats,
                                 .floats = row->attributes.floats};
    for (unsigned n = 0; n < INPUTS_MOST && row->inputs[n].rank; n++, request.n_inputs++) {
        struct op_packed drawn = SUITE_ATTRIBUTES(normal, .dtype = dtype, .seed = n, .deviation = 1,
                                                  .shape = {(unsigned)row->inputs[n].rank, row->inputs[n].extents});
        struct op_request draw = {.opcode = OP_NORMAL,
                                  .n_ints = drawn.n_ints,
                                  .ints = drawn.ints,
                                  .n_floats = drawn.n_floats,
                                  .floats = drawn.floats};
        cr_assert_eq(suite_submit(&suite, &draw, &inputs[n]), STATUS_OK);
        wide[n] = cast(&suite, inputs[n], DTYPE_F32);
        if (info->own_inputs >> n & 1)
            inputs[n] = wide[n];
    }
    cr_assert_eq(suite_submit(&suite, &request, &results[0]), STATUS_OK, "%s is refused", info->name);
    request.inputs = wide;
    cr_assert_eq(suite_submit(&suite, &request, &results[1]), STATUS_OK);
    uint8_t *halves = bytes_of(&suite, results[0], &bytes[0]);
    uint8_t *rounded = bytes_of(&suite, cast(&suite, results[1], dtype), &bytes[1]);
    cr_assert_eq(bytes[0], bytes[1]);
    cr_expect(!memcmp(halves, rounded, bytes[0]), "%s of %s is another one than in f32", info->name, dtype_name(dtype));
    free(halves);
    free(rounded);
    suite_close(&suite);
}

/* Of shapes that are taken in several blocks, pieces or lines. */
Test(halves, large_ones_come_out_as_in_f32, .timeout = 300) {
#define ALONG(...) SUITE_LIST(__VA_ARGS__)
    if (!(device_kind() & ON_CPU))
        cr_skip("a library may round products of halves once and those of f32 twice");
    const struct op_packed far = SUITE_ATTRIBUTES(max_pool, .kernel = ALONG(9), .stride = ALONG(30),
                                                  .dilation = ALONG(700)),
                           sparse = SUITE_ATTRIBUTES(max_pool, .kernel = ALONG(1, 3), .stride = ALONG(1, 5000)),
                           wide = SUITE_ATTRIBUTES(avg_pool, .kernel = ALONG(4500), .stride = ALONG(3)),
                           run = SUITE_ATTRIBUTES(avg_pool, .kernel = ALONG(1, 900), .stride = ALONG(1, 900)),
                           cube = SUITE_ATTRIBUTES(max_pool, .kernel = ALONG(3, 3, 3), .stride = ALONG(1, 1, 2)),
                           causal = SUITE_ATTRIBUTES(attention, .is_causal = true),
                           plain = SUITE_ATTRIBUTES(attention, .is_causal = false),
                           conv = SUITE_ATTRIBUTES(conv, .stride = ALONG(1, 2), .padding = ALONG(2, 1), .groups = 1);
#define TALL OF(5, 40, 90, 170)
#define TALL_OUT OF(5, 48, 90, 85)
    const struct row rows[] = {
        {OP_MAX_POOL, 2, {OF(3, 2, 20000)}, far},
        {OP_MAX_POOL, 2, {OF(1, 2, 3, 30000)}, sparse},
        {OP_AVG_POOL, 1, {OF(1, 1, 20000)}, wide},
        {OP_AVG_POOL, 1, {OF(2, 3, 4, 2800)}, run},
        {OP_MAX_POOL, 2, {OF(2, 2, 9, 40, 600)}, cube},
        {OP_ATTENTION, 2, {OF(2, 4, 300, 24), OF(2, 2, 600, 24), OF(2, 2, 600, 40), OF(300, 600)}, causal},
        {OP_ATTENTION_GRAD,
         3,
         {OF(2, 4, 200, 24), OF(2, 4, 200, 40), OF(2, 2, 600, 40), OF(2, 2, 600, 24), OF(2, 4, 200, 24), OF(2, 4, 200)},
         causal},
        {OP_ATTENTION_GRAD,
         3,
         {OF(3, 12, 90, 24), OF(3, 12, 90, 40), OF(3, 6, 300, 40), OF(3, 6, 300, 24), OF(3, 12, 90, 24), OF(3, 12, 90)},
         plain},
        {OP_CONV, 1, {TALL, OF(48, 40, 5, 3), OF(48)}, conv},
        {OP_CONV, 1, {OF(2, 40, 90, 170), OF(48, 40, 5, 3), OF(48)}, conv},
        {OP_CONV_GRAD_INPUT,
         1,
         {TALL_OUT, OF(48, 40, 5, 3)},
         SUITE_ATTRIBUTES(conv_grad_input, .stride = ALONG(1, 2), .padding = ALONG(2, 1), .groups = 1,
                          .shape = ALONG(5, 40, 90, 170))},
        {OP_CONV_GRAD_WEIGHT,
         1,
         {TALL, TALL_OUT},
         SUITE_ATTRIBUTES(conv_grad_weight, .stride = ALONG(1, 2), .padding = ALONG(2, 1), .groups = 1,
                          .shape = ALONG(48, 40, 5, 3))},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run_same(&rows[i], DTYPE_F16);
        run_same(&rows[i], DTYPE_BF16);
    }
}
