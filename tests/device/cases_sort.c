/* Operations that put the elements of an axis in order. */
#include "tests/device/cases.h"

static void topk_once(struct suite *suite, struct sample *x, int64_t k, int64_t axis) {
    const struct sample *input = x;
    struct op_packed attributes = SUITE_ATTRIBUTES(topk, .k = k, .axis = axis, .largest = suite_chance(suite, 50));
    struct sample results[2];
    suite_run_several(
        suite, &(struct suite_call){.opcode = OP_TOPK, .n_inputs = 1, .inputs = &input, .attributes = attributes},
        results, 2);
    for (int i = 0; i < 2; i++)
        case_settle(suite, &results[i]);
    suite_free(suite, x);
}

static void case_topk(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(500); i++) {
        int64_t shape[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 5, shape);
        if (rank == 0)
            continue;
        int64_t axis = suite_below(suite, 2 * rank) - rank, extent = shape[axis < 0 ? axis + rank : axis];
        struct sample x = suite_input(suite, op_case_dtype(suite, row), rank, shape,
                                      suite_chance(suite, 50) ? row->fill : FILL_COUNT);
        topk_once(suite, &x, suite_below(suite, extent + 1), axis);
    }
    for (int i = 0; i < SUITE_REPEAT(20); i++) { /* long rows, and many */
        int64_t shape[] = {1 + suite_below(suite, 20), 200 + suite_below(suite, 1200), 1 + suite_below(suite, 3)};
        int64_t k = suite_chance(suite, 30) ? shape[1] : suite_below(suite, 40);
        struct sample x =
            suite_input(suite, op_case_dtype(suite, row), 3, shape, suite_chance(suite, 70) ? row->fill : FILL_COUNT);
        topk_once(suite, &x, k, 1);
    }
}

static void sort_once(struct suite *suite, unsigned opcode, struct sample *x, int64_t axis) {
    struct op_packed attributes = SUITE_ATTRIBUTES(sort, .axis = axis, .descending = suite_chance(suite, 50));
    struct sample result = suite_attributes(suite, opcode, x, attributes); /* argsort has the same attributes */
    case_settle(suite, &result);
    suite_free(suite, x);
}

/* One row, which the device cuts: numbers all over the dtype, many of them equal in a narrow one. */
static void sort_long(struct suite *suite, unsigned opcode, enum dtype dtype, int64_t n) {
    struct sample x = suite_sample(suite, dtype, 1, &n, FILL_ANY);
    sort_once(suite, opcode, &x, 0);
}

static void case_sort(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(500); i++) {
        int64_t shape[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 5, shape);
        if (rank == 0)
            continue;
        struct sample x = suite_input(suite, op_case_dtype(suite, row), rank, shape,
                                      suite_chance(suite, 50) ? row->fill : FILL_COUNT);
        sort_once(suite, row->opcode, &x, suite_below(suite, 2 * rank) - rank);
    }
    for (int i = 0; i < SUITE_REPEAT(30); i++) { /* longer rows, and many */
        int64_t shape[] = {1 + suite_below(suite, 20), 20 + suite_below(suite, 900), 1 + suite_below(suite, 3)};
        struct sample x =
            suite_input(suite, op_case_dtype(suite, row), 3, shape, suite_chance(suite, 70) ? row->fill : FILL_COUNT);
        sort_once(suite, row->opcode, &x, 1);
    }
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++)
        if (op_case_takes(row, dtype))
            sort_long(suite, row->opcode, dtype, SUITE_REPEAT(5000) + 5);
    sort_long(suite, row->opcode, DTYPE_F32, SUITE_REPEAT(150000));
    sort_long(suite, row->opcode, DTYPE_I64, SUITE_REPEAT(150000));
}

static void search_once(struct suite *suite, struct sample *sorted, struct sample *values, bool right) {
    const struct sample *inputs[] = {sorted, values};
    struct sample result =
        suite_run(suite, &(struct suite_call){.opcode = OP_SEARCHSORTED,
                                              .n_inputs = 2,
                                              .inputs = inputs,
                                              .attributes = SUITE_ATTRIBUTES(searchsorted, .right = right)});
    case_settle(suite, &result);
    suite_free(suite, values);
}

/* Values in order: few or many, and as close to each other as what is sorted or further apart. */
static void search_in_order(struct suite *suite, const struct op_case *row) {
    int64_t n = 1 + suite_below(suite, suite_chance(suite, 50) ? 3000 : 40), count = 1 + suite_below(suite, 300);
    enum dtype dtype = op_case_dtype(suite, row);
    enum suite_fill fill = suite_chance(suite, 50) ? FILL_COUNT : row->fill;
    struct op_packed order = SUITE_ATTRIBUTES(sort, .axis = 0);
    struct sample x = suite_input(suite, dtype, 1, &n, fill), y = suite_input(suite, dtype, 1, &count, fill);
    struct sample sorted = suite_attributes(suite, OP_SORT, &x, order);
    struct sample values = suite_attributes(suite, OP_SORT, &y, order);
    search_once(suite, &sorted, &values, suite_chance(suite, 50));
    suite_free(suite, &x);
    suite_free(suite, &y);
    suite_free(suite, &sorted);
}

static void element_set(struct values *values, int64_t k, int64_t number) {
    if (values->f)
        values->f[k] = (long double)number;
    else
        values->i[k] = number;
}

/* Values that follow one another, as those of arange, among integers that are close to each other, equal, or far apart. */
static void search_in_turn(struct suite *suite) {
    static const enum dtype dtypes[] = {DTYPE_U8, DTYPE_I16, DTYPE_I32, DTYPE_U32, DTYPE_I64, DTYPE_F64};
    const enum dtype dtype = dtypes[suite_below(suite, 6)], value = suite_chance(suite, 50) ? DTYPE_I16 : dtype;
    const int64_t step = 1 + suite_below(suite, 4), most = dtype == DTYPE_U8 ? 255 : 20000;
    struct values *sorted = values_create(dtype, 1, (int64_t[]){suite_below(suite, 3000)});
    struct values *values =
        values_create(value, 1, (int64_t[]){1 + suite_below(suite, dtype == DTYPE_U8 ? 200 : 2000)});
    int64_t at = suite_below(suite, 20), first = suite_below(suite, 40);
    for (int64_t k = 0; k < sorted->count; k++) {
        at += suite_chance(suite, 1) ? suite_below(suite, 300) : suite_below(suite, step);
        at = at < most ? at : most;
        element_set(sorted, k, at);
    }
    for (int64_t k = 0; k < values->count; k++, first += suite_chance(suite, 1) ? 3 : 1) {
        if (k % 64 == 0 && suite_chance(suite, 20)) /* they begin again */
            first = suite_below(suite, 40);
        element_set(values, k, first < most ? first : most);
    }
    struct sample x = suite_upload(suite, sorted), y = suite_upload(suite, values);
    search_once(suite, &x, &y, suite_chance(suite, 50));
    suite_free(suite, &x);
}

static void case_search(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(200); i++) {
        search_in_order(suite, row);
        search_in_turn(suite);
    }
    for (int i = 0; i < SUITE_REPEAT(400); i++) {
        int64_t shape[VALUES_RANK_MAX], n = suite_chance(suite, 80) ? suite_below(suite, 40) : suite_below(suite, 3000);
        enum dtype dtype = op_case_dtype(suite, row), partner = op_case_partner(suite, row, dtype);
        /* Infinities and extremes stay in order when they are promoted; numbers in between may become equal. */
        enum suite_fill fill = suite_chance(suite, 50) ? FILL_COUNT : row->fill;
        struct sample x = suite_input(suite, dtype, 1, &n, fill);
        struct sample sorted = suite_attributes(suite, OP_SORT, &x, SUITE_ATTRIBUTES(sort, .axis = 0));
        int rank = suite_shape(suite, 4, shape);
        struct sample values = suite_input(suite, suite_chance(suite, 50) ? dtype : partner, rank, shape, fill);
        search_once(suite, &sorted, &values, suite_chance(suite, 50));
        suite_free(suite, &x);
        suite_free(suite, &sorted);
    }
}

const struct op_case op_case_sort = {case_sort, OP_SORT, FILL_ANY};
const struct op_case op_case_argsort = {case_sort, OP_ARGSORT, FILL_ANY};
const struct op_case op_case_searchsorted = {case_search, OP_SEARCHSORTED, FILL_ANY};
const struct op_case op_case_topk = {case_topk, OP_TOPK, FILL_ANY};
