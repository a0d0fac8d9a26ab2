#include "tests/device/cases.h"

/* Frees x. */
static void repeat_once(struct suite *suite, struct sample *x, struct values *counts, int64_t length, int64_t axis) {
    struct sample how_often = suite_upload(suite, counts), results[2];
    const struct sample *inputs[] = {x, &how_often};
    suite_run_several(suite,
                      &(struct suite_call){.opcode = OP_REPEAT_EACH,
                                           .n_inputs = 2,
                                           .inputs = inputs,
                                           .attributes = SUITE_ATTRIBUTES(repeat_each, .length = length, .axis = axis)},
                      results, 2);
    for (unsigned i = 0; i < 2; i++)
        case_settle(suite, &results[i]);
    suite_free(suite, &how_often);
    suite_free(suite, x);
}

/* Mostly small, now and then large, and of signed dtypes negative. */
static struct values *repeat_counts(struct suite *suite, enum dtype dtype, int64_t n) {
    struct values *counts = values_create(dtype, 1, &n);
    for (int64_t k = 0; k < n; k++)
        counts->i[k] = suite_chance(suite, 4) ? suite_below(suite, 40) : suite_below(suite, 4);
    if (!value_is_unsigned(dtype) && suite_chance(suite, 20))
        counts->i[suite_below(suite, n)] = -1 - suite_below(suite, 5);
    return counts;
}

static void repeat_random(struct suite *suite, const struct op_case *row, enum dtype counted) {
    int64_t shape[VALUES_RANK_MAX], length;
    int rank = suite_shape(suite, 4, shape);
    if (rank == 0)
        return;
    int64_t axis = suite_below(suite, rank), n = shape[axis];
    if (n == 0)
        return;
    struct sample x = suite_input(suite, op_case_dtype(suite, row), rank, shape, row->fill);
    length = suite_chance(suite, 8) ? 0 : suite_below(suite, 3 * n + 2);
    repeat_once(suite, &x, repeat_counts(suite, counted, n), length, suite_chance(suite, 50) ? axis : axis - rank);
}

/* One element many times, and what does not fit left out; counts that add up to more than there are numbers. */
static void repeat_uneven(struct suite *suite, const struct op_case *row, int64_t n, int64_t length) {
    struct values *counts = repeat_counts(suite, DTYPE_I64, n), *huge = values_create(DTYPE_I64, 1, &n);
    struct sample x = suite_sample(suite, DTYPE_F32, 1, &n, row->fill);
    counts->i[n / 3] = length / 2;
    counts->i[n - 1] = 3;
    repeat_once(suite, &x, counts, length, 0);
    x = suite_sample(suite, DTYPE_I16, 1, &n, row->fill);
    huge->i[n / 2] = INT64_MAX / 2;
    huge->i[n - 1] = INT64_MAX / 2;
    repeat_once(suite, &x, huge, 1000, 0);
}

static void case_repeat_each(struct suite *suite, const struct op_case *row) {
    for (enum dtype counted = DTYPE_BOOL; counted < DTYPE_COUNT; counted++)
        for (int i = 0; i < SUITE_REPEAT(60) && dtype_kind(counted) == DTYPE_KIND_INT; i++)
            repeat_random(suite, row, counted);
    repeat_uneven(suite, row, SUITE_REPEAT(20000), SUITE_REPEAT(60000));
    for (int64_t inner = 1; inner <= 6; inner++) { /* rows of many sizes */
        int64_t n = SUITE_REPEAT(3000), shape[] = {3, n, inner};
        struct sample x = suite_sample(suite, op_case_dtype(suite, row), 3, shape, row->fill);
        repeat_once(suite, &x, repeat_counts(suite, DTYPE_I32, n), 2 * n, 1);
    }
}

const struct op_case op_case_repeat_each = {case_repeat_each, OP_REPEAT_EACH, FILL_ANY};
