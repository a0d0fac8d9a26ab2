/* Results whose number the data gives, and histograms. */
#include <math.h>

#include "tests/device/cases.h"

static void compact_once(struct suite *suite, unsigned opcode, const struct sample *a, const struct sample *b) {
    const struct sample *inputs[] = {a, b};
    struct sample results[5];
    unsigned n = opcode == OP_UNIQUE_RUNS ? 5 : 2;
    suite_run_several(suite, &(struct suite_call){.opcode = opcode, .n_inputs = b ? 2 : 1, .inputs = inputs}, results,
                      n);
    for (unsigned i = 0; i < n; i++)
        case_settle(suite, &results[i]);
}

static enum suite_fill compact_fill(struct suite *suite, const struct op_case *row) {
    return suite_chance(suite, 50) ? FILL_COUNT : row->fill;
}

/* Without an element: the kernels still write how many they have found. */
static struct sample compact_empty(struct suite *suite, int rank) {
    return suite_sample(suite, DTYPE_F32, rank, (int64_t[]){0, 3, 0}, FILL_ANY);
}

static void case_nonzero(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(300); i++) {
        int64_t shape[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 5, shape);
        if (rank == 0)
            continue;
        struct sample x = suite_input(suite, op_case_dtype(suite, row), rank, shape, compact_fill(suite, row));
        compact_once(suite, OP_NONZERO, &x, NULL);
        suite_free(suite, &x);
    }
    struct sample x = suite_sample(suite, DTYPE_I16, 3, (int64_t[]){3, SUITE_REPEAT(700), 101}, FILL_COUNT);
    compact_once(suite, OP_NONZERO, &x, NULL);
    suite_free(suite, &x);
    x = compact_empty(suite, 3);
    compact_once(suite, OP_NONZERO, &x, NULL);
    suite_free(suite, &x);
}

static void case_masked_select(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(300); i++) {
        int64_t shape[VALUES_RANK_MAX], narrow[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 5, shape), less = suite_narrower(suite, rank, shape, narrow);
        bool wide = suite_chance(suite, 50);
        struct sample x =
            suite_input(suite, op_case_dtype(suite, row), wide ? rank : less, wide ? shape : narrow, row->fill);
        struct sample mask = suite_input(suite, DTYPE_BOOL, wide ? less : rank, wide ? narrow : shape, FILL_ANY);
        compact_once(suite, OP_MASKED_SELECT, &x, &mask);
        suite_free(suite, &x);
        suite_free(suite, &mask);
    }
    int64_t n = SUITE_REPEAT(200000);
    struct sample x = suite_sample(suite, DTYPE_F32, 1, &n, row->fill);
    struct sample mask = suite_sample(suite, DTYPE_BOOL, 1, &n, FILL_ANY);
    compact_once(suite, OP_MASKED_SELECT, &x, &mask);
    suite_free(suite, &x);
    suite_free(suite, &mask);
    x = compact_empty(suite, 2);
    mask = suite_sample(suite, DTYPE_BOOL, 2, (int64_t[]){0, 3}, FILL_ANY);
    compact_once(suite, OP_MASKED_SELECT, &x, &mask);
    suite_free(suite, &x);
    suite_free(suite, &mask);
}

static void unique_once(struct suite *suite, struct sample *x) {
    struct op_packed order = SUITE_ATTRIBUTES(sort, .axis = 0);
    struct sample sorted = suite_attributes(suite, OP_SORT, x, order);
    struct sample positions = suite_attributes(suite, OP_ARGSORT, x, order);
    compact_once(suite, OP_UNIQUE_RUNS, &sorted, &positions);
    suite_free(suite, &sorted);
    suite_free(suite, &positions);
    suite_free(suite, x);
}

/* Complex numbers of which equal ones are neighbours, and which were in the opposite order before. */
static void unique_complex(struct suite *suite, enum dtype dtype, int64_t n) {
    struct values *x = values_create(dtype, 1, &n),
                  *places = values_create(suite_chance(suite, 50) ? DTYPE_I64 : DTYPE_I32, 1, &n);
    int64_t run = 0;
    for (int64_t k = 0; k < n; k++) {
        run += suite_chance(suite, 40);
        x->f[k] = run == 0 && suite_chance(suite, 50) ? -0.0L : (long double)(run / 2);
        bool nan = suite_chance(suite, 10);
        x->im[k] = nan ? (long double)NAN : (long double)(run % 2);
        run += nan; /* equal numbers would be on both sides of it */
        places->i[k] = n - 1 - k;
    }
    struct sample sorted = suite_upload(suite, x), positions = suite_upload(suite, places);
    compact_once(suite, OP_UNIQUE_RUNS, &sorted, &positions);
    suite_free(suite, &sorted);
    suite_free(suite, &positions);
}

/* So many elements that were in order before, all but a few. */
static void unique_ordered(struct suite *suite, int64_t n) {
    struct values *x = values_create(DTYPE_I32, 1, &n), *places = values_create(DTYPE_I64, 1, &n);
    for (int64_t k = 0; k < n; k++) {
        x->i[k] = k / 3001;
        places->i[k] = k;
    }
    for (int64_t k = 1000; k + 1 < n; k += 90001) {
        places->i[k] = k + 1;
        places->i[k + 1] = k;
    }
    struct sample sorted = suite_upload(suite, x), positions = suite_upload(suite, places);
    compact_once(suite, OP_UNIQUE_RUNS, &sorted, &positions);
    suite_free(suite, &sorted);
    suite_free(suite, &positions);
}

static void case_unique(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(300); i++) {
        int64_t n = suite_chance(suite, 80) ? suite_below(suite, 60) : suite_below(suite, 3000);
        enum dtype dtype = op_case_dtype(suite, row);
        if (value_is_complex(dtype)) {
            unique_complex(suite, dtype, n);
            continue;
        }
        struct sample x = suite_input(suite, dtype, 1, &n, compact_fill(suite, row));
        unique_once(suite, &x);
    }
    struct values *few = values_create(DTYPE_U8, 1, (int64_t[]){SUITE_REPEAT(120000)});
    for (int64_t k = 0; k < few->count; k++) /* runs of several chunks */
        few->i[k] = k % 50 == 0;
    struct sample x = suite_upload(suite, few);
    unique_once(suite, &x);
    struct values *more = values_create(DTYPE_I32, 1, (int64_t[]){SUITE_REPEAT(120000)});
    for (int64_t k = 0; k < more->count; k++) /* runs across the edges of chunks, of all lengths up to 100 */
        more->i[k] = (int64_t)sqrt((double)(k * 7919 % more->count) * 40);
    x = suite_upload(suite, more);
    unique_once(suite, &x);
    unique_ordered(suite, SUITE_REPEAT(700000)); /* what is behind the runs is written past the caches */
    x = compact_empty(suite, 1);
    unique_once(suite, &x);
}

static void case_histogram(struct suite *suite, const struct op_case *row) {
    static const int64_t counts[] = {1, 2, 4, 8, 64};
    for (int i = 0; i < SUITE_REPEAT(300); i++) {
        int64_t shape[VALUES_RANK_MAX], bins = counts[suite_below(suite, 5)];
        double low = (double)suite_below(suite, 9) - 6, width = (double)bins / (double)(1 << suite_below(suite, 4));
        int rank = suite_shape(suite, 4, shape);
        struct sample x = suite_input(suite, op_case_dtype(suite, row), rank, shape, compact_fill(suite, row));
        struct sample result = suite_attributes(
            suite, OP_HISTOGRAM, &x, SUITE_ATTRIBUTES(histogram, .bins = bins, .low = low, .high = low + width));
        case_settle(suite, &result);
        suite_free(suite, &x);
    }
    int64_t n = SUITE_REPEAT(100000);
    struct sample x = suite_sample(suite, DTYPE_F32, 1, &n, FILL_ORDINARY);
    struct sample result =
        suite_attributes(suite, OP_HISTOGRAM, &x, SUITE_ATTRIBUTES(histogram, .bins = 16, .low = -4, .high = 4));
    case_settle(suite, &result);
    suite_free(suite, &x);
}

const struct op_case op_case_nonzero = {case_nonzero, OP_NONZERO, FILL_ANY};
const struct op_case op_case_masked_select = {case_masked_select, OP_MASKED_SELECT, FILL_ANY};
const struct op_case op_case_unique_runs = {case_unique, OP_UNIQUE_RUNS, FILL_ANY};
const struct op_case op_case_histogram = {case_histogram, OP_HISTOGRAM, FILL_ANY};
