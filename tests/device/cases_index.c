#include <string.h>

#include "tests/device/cases.h"

enum { JOIN_MOST = 300 }; /* more than a head has room for on the wire */

static void join_once(struct suite *suite, const struct op_case *row, unsigned n, bool mixed, int rank,
                      const int64_t *shape) {
    struct sample inputs[JOIN_MOST];
    const struct sample *pointers[JOIN_MOST];
    bool stack = row->opcode == OP_STACK;
    enum dtype both = op_case_dtype(suite, row);
    int64_t axis = suite_below(suite, 2 * (rank + stack)) - (rank + stack), own[VALUES_RANK_MAX];
    for (unsigned i = 0; i < n; i++) {
        memcpy(own, shape, sizeof own);
        if (!stack)
            own[axis < 0 ? axis + rank : axis] = suite_below(suite, suite_chance(suite, 20) ? 70 : 5);
        enum dtype own_dtype = mixed && i ? op_case_partner(suite, row, both) : both;
        both = reference_promote(both, own_dtype);
        inputs[i] = suite_input(suite, own_dtype, rank, own, row->fill);
        pointers[i] = &inputs[i];
    }
    /* stack has the same attributes */
    struct sample result = suite_run(suite, &(struct suite_call){.opcode = row->opcode,
                                                                 .n_inputs = n,
                                                                 .inputs = pointers,
                                                                 .attributes = SUITE_ATTRIBUTES(concat, .axis = axis)});
    case_settle(suite, &result);
    for (unsigned i = 0; i < n; i++)
        suite_free(suite, &inputs[i]);
}

static void case_join(struct suite *suite, const struct op_case *row) {
    int64_t shape[VALUES_RANK_MAX];
    for (int i = 0; i < SUITE_REPEAT(250); i++) {
        int rank;
        do
            rank = suite_shape(suite, 5, shape);
        while (rank == 0 && row->opcode == OP_CONCAT);
        join_once(suite, row, 1 + (unsigned)suite_below(suite, 5), suite_chance(suite, 50), rank, shape);
    }
    join_once(suite, row, JOIN_MOST, false, 2, (int64_t[VALUES_RANK_MAX]){3, 5});
    join_once(suite, row, JOIN_MOST, true, 1, (int64_t[VALUES_RANK_MAX]){2});
}

static const enum dtype index_dtypes[] = {DTYPE_U8, DTYPE_U16, DTYPE_U32, DTYPE_U64,
                                          DTYPE_I8, DTYPE_I16, DTYPE_I32, DTYPE_I64};
enum { INDEX_DTYPES = sizeof index_dtypes / sizeof *index_dtypes };

/* Indices below `extent`, of any integer dtype, as an upload or a slice of one with step -1. */
static struct sample index_sample(struct suite *suite, int rank, const int64_t *shape, int64_t extent) {
    enum dtype dtype = index_dtypes[suite_below(suite, INDEX_DTYPES)];
    struct values *values = values_create(dtype, rank, shape);
    long double high = value_number(dtype, value_high(dtype));
    int64_t most = (long double)extent - 1 < high ? extent : value_high(dtype);
    for (int64_t k = 0; k < values->count; k++)
        values->i[k] = suite_below(suite, most);
    struct sample x = suite_upload(suite, values);
    if (rank == 0 || suite_chance(suite, 60))
        return x;
    int64_t slices[3 * VALUES_RANK_MAX];
    for (int i = 0; i < 3 * rank; i++)
        slices[i] = i % 3 == 2 ? -1 : OP_SLICE_NONE;
    struct sample view =
        suite_attributes(suite, OP_SLICE, &x, SUITE_ATTRIBUTES(slice, .ranges = {(unsigned)(3 * rank), slices}));
    suite_free(suite, &x);
    return view;
}

static void take_once(struct suite *suite, unsigned opcode, struct sample *x, struct sample *indices, int64_t axis) {
    const struct sample *inputs[] = {x, indices};
    /* take_along_axis has the same attributes */
    struct sample result = suite_run(suite, &(struct suite_call){.opcode = opcode,
                                                                 .n_inputs = 2,
                                                                 .inputs = inputs,
                                                                 .attributes = SUITE_ATTRIBUTES(take, .axis = axis)});
    case_settle(suite, &result);
    suite_free(suite, x);
    suite_free(suite, indices);
}

static void case_take(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(400); i++) {
        int64_t shape[VALUES_RANK_MAX], count = suite_below(suite, 40);
        int rank = suite_shape(suite, 5, shape);
        if (rank == 0)
            continue;
        int64_t axis = suite_below(suite, 2 * rank) - rank, extent = shape[axis < 0 ? axis + rank : axis];
        if (extent == 0)
            count = 0;
        struct sample x = suite_input(suite, op_case_dtype(suite, row), rank, shape, row->fill);
        struct sample indices = index_sample(suite, 1, &count, extent);
        take_once(suite, OP_TAKE, &x, &indices, axis);
    }
    struct sample x = suite_sample(suite, DTYPE_F32, 2, (int64_t[]){1000, 64}, row->fill);
    struct sample indices = index_sample(suite, 1, (int64_t[]){SUITE_REPEAT(20000)}, 1000);
    take_once(suite, OP_TAKE, &x, &indices, 0);
}

static void case_take_along_axis(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(400); i++) {
        int64_t shape[VALUES_RANK_MAX], shape_x[VALUES_RANK_MAX], shape_i[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 5, shape);
        if (rank == 0)
            continue;
        int64_t axis = suite_below(suite, 2 * rank) - rank, at = axis < 0 ? axis + rank : axis;
        for (int j = 0; j < rank; j++) {
            shape_x[j] = j != at && suite_chance(suite, 20) ? 1 : shape[j];
            shape_i[j] = j == at ? suite_below(suite, 6) : suite_chance(suite, 20) ? 1 : shape[j];
        }
        if (shape_x[at] == 0)
            shape_i[at] = 0;
        struct sample x = suite_input(suite, op_case_dtype(suite, row), rank, shape_x, row->fill);
        struct sample indices = index_sample(suite, rank, shape_i, shape_x[at]);
        take_once(suite, OP_TAKE_ALONG_AXIS, &x, &indices, axis);
    }
}

static void case_one_hot(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(300); i++) {
        int64_t shape[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 4, shape);
        int64_t classes = 1 + suite_below(suite, 20);
        enum dtype dtype = op_case_dtype(suite, row);
        struct sample indices = index_sample(suite, rank, shape, classes);
        struct sample result = suite_attributes(suite, OP_ONE_HOT, &indices,
                                                SUITE_ATTRIBUTES(one_hot, .classes = classes, .dtype = dtype));
        case_settle(suite, &result);
        suite_free(suite, &indices);
    }
}

static void scatter_once(struct suite *suite, unsigned opcode, struct sample *x, struct sample *indices,
                         struct sample *values, int64_t axis) {
    const struct sample *inputs[] = {x, indices, values};
    bool consumes = suite_chance(suite, 50);
    struct suite_call call = {.opcode = opcode,
                              .n_inputs = 3,
                              .inputs = inputs,
                              .attributes = SUITE_ATTRIBUTES(scatter, .axis = axis), /* scatter_add has the same */
                              .consume = consumes};
    struct sample result = suite_run(suite, &call);
    case_settle(suite, &result);
    if (consumes)
        suite_forget(x);
    else
        suite_free(suite, x);
    suite_free(suite, indices);
    suite_free(suite, values);
}

static void case_scatter(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(500); i++) {
        int64_t shape[VALUES_RANK_MAX], places[VALUES_RANK_MAX], shape_i[VALUES_RANK_MAX], shape_v[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 5, shape);
        if (rank == 0)
            continue;
        int64_t axis = suite_below(suite, 2 * rank) - rank, at = axis < 0 ? axis + rank : axis;
        bool same = suite_chance(suite, 30);
        for (int j = 0; j < rank; j++) {
            places[j] = j != at ? shape[j] : shape[at] ? suite_below(suite, 12) : 0;
            shape_i[j] = j != at && (same || suite_chance(suite, 20)) ? 1 : places[j];
        }
        int rank_v = rank;
        if (suite_chance(suite, 50))
            rank_v = suite_narrower(suite, rank, places, shape_v);
        else
            memcpy(shape_v, places, sizeof shape_v);
        enum dtype dtype = op_case_dtype(suite, row);
        struct sample x = suite_input(suite, dtype, rank, shape, row->fill);
        struct sample indices = index_sample(suite, rank, shape_i, shape[at]);
        struct sample values = suite_input(suite, suite_chance(suite, 70) ? dtype : op_case_partner(suite, row, dtype),
                                           rank_v, shape_v, row->fill);
        scatter_once(suite, row->opcode, &x, &indices, &values, axis);
    }
    for (
        int i = 0; i < 6;
        i++) { /* many values for each element; columns, one axis, few columns, long rows, and short ones of all lengths */
        static const int64_t shapes[][3] = {{1, 50, 96},  {1, 700, 1}, {3, 300, 2},
                                            {1, 50, 300}, {1, 90, 37}, {2, 60, 16}};
        int64_t places[] = {shapes[i][0], SUITE_REPEAT(3000), shapes[i][2]};
        struct sample x = suite_sample(suite, op_case_dtype(suite, row), 3, shapes[i], row->fill);
        struct sample values = suite_sample(suite, x.values->dtype, 3, places, row->fill);
        struct sample indices = index_sample(suite, 3, i % 3 == 0 || i > 3 ? (int64_t[]){1, places[1], 1} : places,
                                             shapes[i][1] < 127 ? shapes[i][1] : 127);
        scatter_once(suite, row->opcode, &x, &indices, &values, 1);
    }
}

const struct op_case op_case_scatter = {case_scatter, OP_SCATTER, FILL_ANY};
const struct op_case op_case_scatter_add = {case_scatter, OP_SCATTER_ADD, FILL_ORDINARY};
const struct op_case op_case_concat = {case_join, OP_CONCAT, FILL_ANY};
const struct op_case op_case_stack = {case_join, OP_STACK, FILL_ANY};
const struct op_case op_case_take = {case_take, OP_TAKE, FILL_ANY};
const struct op_case op_case_take_along_axis = {case_take_along_axis, OP_TAKE_ALONG_AXIS, FILL_ANY};
const struct op_case op_case_one_hot = {case_one_hot, OP_ONE_HOT, FILL_ANY};
