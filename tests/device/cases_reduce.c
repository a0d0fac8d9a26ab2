#include <math.h>

#include "tests/device/cases.h"

/* A random set of axes in random order, some counted from the end; none: all of them. */
static unsigned random_axes(struct suite *suite, int rank, int64_t axes[VALUES_RANK_MAX]) {
    unsigned n = 0;
    for (int axis = 0; axis < rank; axis++) {
        if (suite_chance(suite, 50))
            continue;
        int64_t at = suite_below(suite, n + 1);
        axes[n++] = axes[at];
        axes[at] = suite_chance(suite, 30) ? axis - rank : axis;
    }
    return n;
}

static bool reduces_nothing(const struct op_case *row, int rank, const int64_t *shape) {
    bool choice =
        row->opcode == OP_MAX || row->opcode == OP_MIN || row->opcode == OP_ARGMAX || row->opcode == OP_ARGMIN;
    for (int i = 0; choice && i < rank; i++)
        if (shape[i] == 0)
            return true;
    return false;
}

/* The attributes of this and of other reductions: those with a float, one of the given ones, have the same integers. */
static struct op_packed reduce_attributes(struct suite *suite, const struct op_case *row,
                                          const struct reduction_attributes *attributes) {
    static const double corrections[] = {0, 1, 0.5, -1}, ords[] = {2, 1, 0, 3, 0.5, -1, INFINITY, -INFINITY};
    struct op_packed packed;
    reduction_attributes_write(attributes, &packed);
    packed.n_floats = (unsigned)op_info(row->opcode)->floats_min;
    packed.floats[0] = row->opcode == OP_VECTOR_NORM ? ords[suite_below(suite, 8)] : corrections[suite_below(suite, 4)];
    return packed;
}

static void reduce_once(struct suite *suite, const struct op_case *row, struct sample *x,
                        struct reduction_attributes attributes) {
    struct op_packed packed = reduce_attributes(suite, row, &attributes);
    struct sample result = suite_attributes(suite, row->opcode, x, packed);
    case_settle(suite, &result);
    suite_free(suite, x);
}

static void reduce_lengths(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    for (int i = 0; i < case_length_count; i++) {
        if (reduces_nothing(row, 1, &case_lengths[i]))
            continue;
        int64_t inner[] = {3, case_lengths[i]}, outer[] = {case_lengths[i], 5};
        struct sample x = suite_sample(suite, dtype, 1, &case_lengths[i], row->fill);
        reduce_once(suite, row, &x, (struct reduction_attributes){.keepdims = false});
        x = suite_sample(suite, dtype, 2, inner, row->fill);
        reduce_once(suite, row, &x, (struct reduction_attributes){.axes = SUITE_LIST(1)});
        x = suite_sample(suite, dtype, 2, outer, row->fill);
        reduce_once(suite, row, &x, (struct reduction_attributes){.axes = SUITE_LIST(0), .keepdims = true});
    }
}

/* Over everything in several threads, over the rows, over the columns, and few results of much. */
static void reduce_large(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    int64_t n = SUITE_REPEAT(1024);
    int64_t square[] = {n, 1037}, tall[] = {n * 512, 2};
    struct sample x = suite_sample(suite, dtype, 2, square, row->fill);
    for (int axis = 0; axis < 2; axis++) {
        struct sample result =
            suite_attributes(suite, row->opcode, &x,
                             reduce_attributes(suite, row, &(struct reduction_attributes){.axes = SUITE_LIST(axis)}));
        case_settle(suite, &result);
    }
    reduce_once(suite, row, &x, (struct reduction_attributes){.keepdims = false});
    x = suite_sample(suite, dtype, 2, tall, row->fill);
    reduce_once(suite, row, &x, (struct reduction_attributes){.axes = SUITE_LIST(0)});
}

/* What infinities and NaN do to sums is fixed too; of short rows and of long ones. */
static void reduce_specials(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    for (int i = 0; i < 16; i++) {
        int64_t columns = i & 8 ? 331 : 21;
        struct values *values = values_create(dtype, 2, (int64_t[]){3, columns});
        suite_fill(suite, values, FILL_NEAR_ONE);
        values->f[5] = i & 1 ? __builtin_infl() : 0.5L;
        values->f[9] = i & 2 ? -__builtin_infl() : 0.5L;
        values->f[columns + 19] = i & 4 ? __builtin_nanl("") : 0.5L;
        struct sample x = suite_upload(suite, values);
        reduce_once(suite, row, &x, (struct reduction_attributes){.axes = SUITE_LIST(1)});
    }
}

/* Sums of neighbours that the dtype cannot hold, where the whole sum is a number. */
static void reduce_overflow(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    const long double large = dtype == DTYPE_F16 ? 6e4L : dtype == DTYPE_F64 ? 1e300L : 3e38L;
    for (int down = 0; down < 2; down++) {
        struct values *values = values_create(dtype, 2, (int64_t[]){144, 144});
        for (int64_t k = 0; k < values->count; k++) {
            values->f[k] = value_round(dtype, (down ? k / 144 : k % 144) / 4 % 2 ? -large : large);
        }
        struct sample x = suite_upload(suite, values);
        reduce_once(suite, row, &x, (struct reduction_attributes){.axes = SUITE_LIST(!down)});
    }
}

/* Elements far from zero, whose squares would cancel; and ascending ones, over a wide range. */
static void reduce_far(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    for (int down = 0; down < 2; down++) {
        struct values *far = values_create(dtype, 2, (int64_t[]){70, 70}), *wide = values_copy(far);
        suite_fill(suite, far, FILL_ORDINARY);
        for (int64_t k = 0; k < far->count; k++) {
            far->f[k] = value_round(dtype, far->f[k] + 3000);
            wide->f[k] = value_round(dtype, (long double)(down ? k / 70 : k % 70) * 13 - 400);
        }
        struct sample x = suite_upload(suite, far);
        reduce_once(suite, row, &x, (struct reduction_attributes){.axes = SUITE_LIST(!down)});
        x = suite_upload(suite, wide);
        reduce_once(suite, row, &x, (struct reduction_attributes){.axes = SUITE_LIST(!down)});
    }
}

/* Eight axes of which no two are one after another in memory. */
static void reduce_eight(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    struct sample x = suite_sample(suite, dtype, 8, (int64_t[]){2, 3, 2, 3, 2, 2, 2, 3}, row->fill);
    struct sample turned = suite_attributes(suite, OP_PERMUTE_DIMS, &x,
                                            SUITE_ATTRIBUTES(permute_dims, .axes = SUITE_LIST(7, 6, 5, 4, 3, 2, 1, 0)));
    suite_free(suite, &x);
    reduce_once(suite, row, &turned, (struct reduction_attributes){.axes = SUITE_LIST(1, 3, 5, 7)});
}

static void case_reduce(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        if (!op_case_takes(row, dtype))
            continue;
        reduce_lengths(suite, row, dtype);
        /* A complex product with an infinity is NaN or infinite by the order of its steps. */
        if (value_is_float(dtype) && !(value_is_complex(dtype) && row->opcode == OP_PROD))
            reduce_specials(suite, row, dtype);
        if (value_is_float(dtype) && !value_is_complex(dtype) && (row->opcode == OP_SUM || row->opcode == OP_MEAN))
            reduce_overflow(suite, row, dtype);
        if (value_is_float(dtype) && row->opcode != OP_PROD)
            reduce_far(suite, row, dtype);
        reduce_eight(suite, row, dtype);
        for (int i = 0; i < SUITE_REPEAT(40); i++) {
            int64_t shape[VALUES_RANK_MAX], axes[VALUES_RANK_MAX];
            int rank = suite_shape(suite, 5, shape);
            if (reduces_nothing(row, rank, shape))
                continue;
            struct sample x = suite_input(suite, dtype, rank, shape, row->fill);
            unsigned n = random_axes(suite, rank, axes);
            reduce_once(suite, row, &x,
                        (struct reduction_attributes){.axes = {n, axes}, .keepdims = suite_chance(suite, 50)});
        }
    }
    reduce_large(suite, row, DTYPE_F32);
    if (row->opcode != OP_PROD)
        reduce_large(suite, row, DTYPE_I32);
}

static void case_arg(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        if (!op_case_takes(row, dtype))
            continue;
        reduce_lengths(suite, row, dtype);
        for (int i = 0; i < SUITE_REPEAT(40); i++) {
            int64_t shape[VALUES_RANK_MAX];
            int rank = suite_shape(suite, 5, shape);
            if (reduces_nothing(row, rank, shape))
                continue;
            /* few different values: many equals, of which the first counts */
            struct sample x = suite_input(suite, dtype, rank, shape, suite_chance(suite, 50) ? FILL_COUNT : FILL_ANY);
            int64_t axis = rank ? suite_below(suite, 2 * rank) - rank : 0;
            unsigned n = rank && suite_chance(suite, 70);
            reduce_once(suite, row, &x,
                        (struct reduction_attributes){.axes = {n, &axis}, .keepdims = suite_chance(suite, 50)});
        }
    }
    reduce_large(suite, row, DTYPE_F32);
}

static void softmax_once(struct suite *suite, const struct op_case *row, struct sample *x, int64_t axis) {
    struct sample result = suite_attributes(suite, row->opcode, x, SUITE_ATTRIBUTES(softmax, .axis = axis));
    case_settle(suite, &result);
    suite_free(suite, x);
}

static void softmax_wide_range(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    struct values *values = values_create(dtype, 2, (int64_t[]){4, 19});
    suite_fill(suite, values, FILL_ORDINARY);
    for (int64_t k = 0; k < values->count; k++)
        values->f[k] = value_round(dtype, values->f[k] * 2000);
    values->f[3] = -__builtin_infl(); /* a share of nothing */
    values->f[25] = __builtin_nanl("");
    values->f[45] = __builtin_infl();
    for (int64_t k = 57; k < 76; k++)
        values->f[k] = -__builtin_infl(); /* shares of nothing at all: NaN */
    struct sample x = suite_upload(suite, values);
    softmax_once(suite, row, &x, 1);
}

static void case_softmax(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        if (!op_case_takes(row, dtype))
            continue;
        for (int i = 0; i < case_length_count; i++) {
            struct sample x = suite_sample(suite, dtype, 2, (int64_t[]){3, case_lengths[i]}, row->fill);
            softmax_once(suite, row, &x, -1);
        }
        for (int i = 0; i < SUITE_REPEAT(30); i++) {
            int64_t shape[VALUES_RANK_MAX];
            int rank;
            do
                rank = suite_shape(suite, 5, shape);
            while (rank == 0);
            struct sample x = suite_input(suite, dtype, rank, shape, row->fill);
            softmax_once(suite, row, &x, suite_below(suite, 2 * rank) - rank);
        }
        softmax_wide_range(suite, row, dtype);
    }
    struct sample x = suite_sample(suite, DTYPE_F32, 2, (int64_t[]){SUITE_REPEAT(3000), 101}, row->fill);
    softmax_once(suite, row, &x, 1);
}

const struct op_case op_case_sum = {case_reduce, OP_SUM, FILL_ORDINARY};
const struct op_case op_case_prod = {case_reduce, OP_PROD, FILL_NEAR_ONE};
const struct op_case op_case_mean = {case_reduce, OP_MEAN, FILL_ORDINARY};
const struct op_case op_case_max = {case_reduce, OP_MAX, FILL_ANY};
const struct op_case op_case_min = {case_reduce, OP_MIN, FILL_ANY};
const struct op_case op_case_any = {case_reduce, OP_ANY, FILL_COUNT};
const struct op_case op_case_all = {case_reduce, OP_ALL, FILL_COUNT};
const struct op_case op_case_argmax = {case_arg, OP_ARGMAX, FILL_ANY};
const struct op_case op_case_argmin = {case_arg, OP_ARGMIN, FILL_ANY};
const struct op_case op_case_var = {case_reduce, OP_VAR, FILL_ORDINARY};
const struct op_case op_case_std = {case_reduce, OP_STD, FILL_ORDINARY};
const struct op_case op_case_count_nonzero = {case_reduce, OP_COUNT_NONZERO, FILL_ANY};
const struct op_case op_case_logsumexp = {case_reduce, OP_LOGSUMEXP, FILL_ORDINARY};
const struct op_case op_case_vector_norm = {case_reduce, OP_VECTOR_NORM, FILL_ORDINARY};
const struct op_case op_case_softmax = {case_softmax, OP_SOFTMAX, FILL_ORDINARY};
const struct op_case op_case_log_softmax = {case_softmax, OP_LOG_SOFTMAX, FILL_ORDINARY};
