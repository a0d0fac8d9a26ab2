/* Random numbers. */
#include <math.h>

#include "tests/device/cases.h"

static void random_once(struct suite *suite, unsigned opcode, struct op_packed attributes) {
    struct sample x = suite_run(suite, &(struct suite_call){.opcode = opcode, .attributes = attributes});
    case_settle(suite, &x);
}

/* Of either operation: low and high, or the mean and the deviation. */
static struct op_packed random_attributes(unsigned opcode, enum dtype dtype, uint64_t seed, int64_t offset, int rank,
                                          const int64_t *shape, double first, double second) {
    struct op_ints extents = {(unsigned)rank, shape};
    if (opcode == OP_NORMAL)
        return SUITE_ATTRIBUTES(normal, .dtype = dtype, .seed = seed, .offset = offset, .mean = first,
                                .deviation = second, .shape = extents);
    return SUITE_ATTRIBUTES(uniform, .dtype = dtype, .seed = seed, .offset = offset, .low = first, .high = second,
                            .shape = extents);
}

/* The mean and the spread of many numbers, in units of what chance allows. */
static void random_moments(struct suite *suite, unsigned opcode, enum dtype dtype) {
    int64_t n = SUITE_REPEAT(200000);
    double mean = 0, square = 0;
    struct op_packed attributes = random_attributes(opcode, dtype, 77, 0, 1, &n, opcode == OP_NORMAL ? 3 : -1, 2);
    struct sample x = suite_run(suite, &(struct suite_call){.opcode = opcode, .attributes = attributes});
    suite_adopt(suite, &x);
    for (int64_t k = 0; k < n; k++)
        mean += (double)x.values->f[k] / (double)n;
    for (int64_t k = 0; k < n; k++)
        square += ((double)x.values->f[k] - mean) * ((double)x.values->f[k] - mean) / (double)n;
    double want_mean = opcode == OP_NORMAL ? 3 : 0.5, deviation = opcode == OP_NORMAL ? 2 : 3 / sqrt(12);
    double slack = dtype == DTYPE_BF16 ? 0.02 : 0; /* 8 bits */
    if (fabs(mean - want_mean) > 5 * deviation / sqrt((double)n) + slack ||
        fabs(sqrt(square) - deviation) > 5 * deviation / sqrt((double)n) + slack)
        suite_fail(suite, "%s %s: mean %g, expected %g; deviation %g, expected %g", value_name(dtype),
                   op_info(opcode)->name, mean, want_mean, sqrt(square), deviation);
    suite_free(suite, &x);
}

static void case_random(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_F16; dtype <= DTYPE_F64; dtype++) {
        for (int i = 0; i < SUITE_REPEAT(40); i++) {
            int64_t shape[VALUES_RANK_MAX];
            uint64_t seed = suite_random(suite);
            int64_t offset = suite_chance(suite, 50) ? 0 : suite_below(suite, 1 << 20);
            int rank = suite_shape(suite, 5, shape);
            random_once(
                suite, row->opcode,
                random_attributes(row->opcode, dtype, seed, offset, rank, shape, i % 2 ? -1.25 : 0, i % 2 ? 3.5 : 1));
        }
        /* Bounds that are no values of the dtype, narrow ones, and the widest. */
        double most = dtype == DTYPE_F64 ? 0x1p1022 : (double)value_max(dtype);
        double bounds[][2] = {{0.7, 0.8},     {-0.8, -0.7},   {-1e-3, 1.1e-3}, {0.99, 1.0},
                              {1.0, 1.00999}, {-1.01, 0.999}, {-most, most},   {0.1, 0.1}};
        for (size_t i = 0; i < sizeof bounds / sizeof *bounds && row->opcode == OP_UNIFORM; i++)
            random_once(suite, OP_UNIFORM,
                        SUITE_ATTRIBUTES(uniform, .dtype = dtype, .seed = i, .low = bounds[i][0], .high = bounds[i][1],
                                         .shape = SUITE_LIST(5000)));
        int64_t large = SUITE_REPEAT(1 << 18) + 3;
        random_once(suite, row->opcode, random_attributes(row->opcode, dtype, 5, 3, 1, &large, 0, 1));
        random_moments(suite, row->opcode, dtype);
    }
}

/* Shapes and seeds for a case: calls it often with small ones, then with a large one. */
typedef void random_shapes_function(struct suite *suite, enum dtype dtype, uint64_t seed, int64_t offset,
                                    struct op_ints shape);

static void random_shapes(struct suite *suite, enum dtype dtype, random_shapes_function *run) {
    for (int i = 0; i < SUITE_REPEAT(40); i++) {
        int64_t shape[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 5, shape);
        run(suite, dtype, suite_random(suite), suite_chance(suite, 50) ? 0 : suite_below(suite, 1 << 20),
            (struct op_ints){(unsigned)rank, shape});
    }
    run(suite, dtype, 5, 3, SUITE_LIST(SUITE_REPEAT(1 << 17) + 3));
}

static void exponential_once(struct suite *suite, enum dtype dtype, uint64_t seed, int64_t offset,
                             struct op_ints shape) {
    static const double scales[] = {1, 0.25, 3, 0};
    random_once(suite, OP_EXPONENTIAL,
                SUITE_ATTRIBUTES(exponential, .dtype = dtype, .seed = seed, .offset = offset, .shape = shape,
                                 .scale = scales[suite_below(suite, 4)]));
}

static void randint_once(struct suite *suite, enum dtype dtype, uint64_t seed, int64_t offset, struct op_ints shape) {
    int64_t low = value_low(dtype), high = dtype == DTYPE_U64 ? INT64_MAX : value_high(dtype),
            small = suite_below(suite, 100);
    struct randint_attributes given = {.dtype = dtype, .seed = seed, .offset = offset, .shape = shape};
    struct op_packed packed;
    given.low = suite_chance(suite, 30) ? low : small;
    given.high = suite_chance(suite, 30) ? (high < INT64_MAX ? high + 1 : high) : small + 1 + suite_below(suite, 27);
    randint_attributes_write(&given, &packed);
    random_once(suite, OP_RANDINT, packed);
}

static const double random_probabilities[] = {0, 1, 0.5, 0.1, 0x1p-32, 1 - 0x1p-33, 0.999};

static void bernoulli_once(struct suite *suite, enum dtype dtype, uint64_t seed, int64_t offset, struct op_ints shape) {
    random_once(suite, OP_BERNOULLI,
                SUITE_ATTRIBUTES(bernoulli, .dtype = dtype, .seed = seed, .offset = offset, .shape = shape,
                                 .probability = random_probabilities[suite_below(suite, 7)]));
}

static void case_random_shapes(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++)
        if (op_case_takes(row, dtype))
            random_shapes(suite, dtype,
                          row->opcode == OP_EXPONENTIAL ? exponential_once
                          : row->opcode == OP_RANDINT   ? randint_once
                                                        : bernoulli_once);
}

/* The reference's numbers are a permutation, too: each comes once. */
static void permutation_once(struct suite *suite, enum dtype dtype, int64_t n, uint64_t seed) {
    struct sample x = suite_run(
        suite, &(struct suite_call){.opcode = OP_PERMUTATION,
                                    .attributes = SUITE_ATTRIBUTES(permutation, .dtype = dtype, .n = n, .seed = seed)});
    struct values *seen = values_create(DTYPE_I64, 1, &n);
    for (int64_t k = 0; k < n; k++)
        if (seen->i[x.values->i[k]]++)
            suite_fail(suite, "%s: %lld comes twice", x.story, (long long)x.values->i[k]);
    values_destroy(seen);
    case_settle(suite, &x);
}

static void case_permutation(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        if (!op_case_takes(row, dtype))
            continue;
        for (int64_t n = 0; n < 40; n++)
            permutation_once(suite, dtype, n, suite_random(suite));
        permutation_once(suite, dtype, 128, 1);
    }
    for (int i = 0; i < 6; i++)
        permutation_once(suite, DTYPE_I64, SUITE_REPEAT(5000) + suite_below(suite, 10000), suite_random(suite));
    /* Of 3 numbers all orders come about equally often. */
    int orders[27] = {0}, times = SUITE_REPEAT(600);
    for (int i = 0; i < times; i++) {
        struct op_packed attributes = SUITE_ATTRIBUTES(permutation, .dtype = DTYPE_U8, .n = 3, .seed = (uint64_t)i);
        struct sample x = suite_run(suite, &(struct suite_call){.opcode = OP_PERMUTATION, .attributes = attributes});
        orders[x.values->i[0] * 9 + x.values->i[1] * 3 + x.values->i[2]]++;
        case_settle(suite, &x);
    }
    double expected = times / 6.0;
    for (int i = 0; i < 27; i++)
        if (orders[i] && fabs(orders[i] - expected) > 6 * sqrt(expected))
            suite_fail(suite, "an order of 3 numbers comes %d times of %d", orders[i], times);
}

static void draw_once(struct suite *suite, const struct op_case *row, struct sample *x, uint64_t seed) {
    int64_t offset = suite_chance(suite, 50) ? 0 : suite_below(suite, 1 << 20);
    struct op_packed attributes =
        row->opcode == OP_DROPOUT
            ? SUITE_ATTRIBUTES(dropout, .probability = random_probabilities[suite_below(suite, 7)], .seed = seed,
                               .offset = offset)
            : SUITE_ATTRIBUTES(bernoulli_like, .seed = seed, .offset = offset);
    struct sample result = suite_attributes(suite, row->opcode, x, attributes);
    case_settle(suite, &result);
    suite_free(suite, x);
}

static void case_draw(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_F16; dtype <= DTYPE_F64; dtype++) {
        for (int i = 0; i < SUITE_REPEAT(60); i++) {
            int64_t shape[VALUES_RANK_MAX];
            int rank = suite_shape(suite, 5, shape);
            struct sample x = suite_input(suite, dtype, rank, shape, i % 2 ? FILL_NEAR_ONE : FILL_ANY);
            draw_once(suite, row, &x, suite_random(suite));
        }
        int64_t large = SUITE_REPEAT(1 << 17) + 3;
        struct sample x = suite_sample(suite, dtype, 1, &large, FILL_NEAR_ONE);
        draw_once(suite, row, &x, 7);
    }
}

const struct op_case op_case_uniform = {case_random, OP_UNIFORM, FILL_ANY};
const struct op_case op_case_normal = {case_random, OP_NORMAL, FILL_ANY};
const struct op_case op_case_exponential = {case_random_shapes, OP_EXPONENTIAL, FILL_ANY};
const struct op_case op_case_randint = {case_random_shapes, OP_RANDINT, FILL_ANY};
const struct op_case op_case_bernoulli = {case_random_shapes, OP_BERNOULLI, FILL_ANY};
const struct op_case op_case_permutation = {case_permutation, OP_PERMUTATION, FILL_ANY};
const struct op_case op_case_dropout = {case_draw, OP_DROPOUT, FILL_ANY};
const struct op_case op_case_bernoulli_like = {case_draw, OP_BERNOULLI_LIKE, FILL_ANY};
