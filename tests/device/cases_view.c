#include <string.h>

#include "tests/device/cases.h"

/* Extents for a reshape: the elements split anew, now and then with one extent left open. */
static unsigned list_reshape(struct suite *suite, const struct values *x, int64_t *list) {
    unsigned n = 0;
    int64_t left = x->count;
    if (left == 0) {
        memcpy(list, x->shape, sizeof x->shape);
        return (unsigned)x->rank;
    }
    for (int64_t divisor = 2; divisor <= left && divisor < 100 && n < 6; divisor++) {
        if (left % divisor || suite_chance(suite, 30))
            continue;
        list[n++] = divisor;
        left /= divisor;
    }
    if (left > 1 || suite_chance(suite, 30))
        list[n++] = left;
    if (n && suite_chance(suite, 30))
        list[suite_below(suite, n)] = -1;
    return n;
}

static unsigned list_permute(struct suite *suite, const struct values *x, int64_t *list) {
    for (int i = 0; i < x->rank; i++) {
        int64_t at = suite_below(suite, i + 1);
        list[i] = list[at];
        list[at] = i;
    }
    for (int i = 0; i < x->rank; i++)
        list[i] -= suite_chance(suite, 30) ? x->rank : 0;
    return (unsigned)x->rank;
}

/* Any numbers at all: bounds far outside, beyond each other, and steps of either sign. */
static unsigned list_slice(struct suite *suite, const struct values *x, int64_t *list) {
    static const int64_t odd[] = {OP_SLICE_NONE, INT64_MAX, INT64_MIN + 1, -1000000, 1000000, 0, -1, 1};
    for (int i = 0; i < x->rank; i++) {
        int64_t n = x->shape[i];
        for (int j = 0; j < 2; j++)
            list[3 * i + j] =
                suite_chance(suite, 40) ? odd[suite_below(suite, 8)] : suite_below(suite, 3 * n + 3) - n - 1;
        int64_t step = 1 + suite_below(suite, 4);
        list[3 * i + 2] = suite_chance(suite, 10) ? INT64_MAX : suite_chance(suite, 45) ? -step : step;
    }
    return (unsigned)(3 * x->rank);
}

static unsigned list_broadcast(struct suite *suite, const struct values *x, int64_t *list) {
    unsigned more = (unsigned)suite_below(suite, 3);
    for (unsigned i = 0; i < more; i++)
        list[i] = suite_below(suite, 4);
    for (int i = 0; i < x->rank; i++)
        list[more + (unsigned)i] = x->shape[i] == 1 ? suite_below(suite, 4) : x->shape[i];
    return more + (unsigned)x->rank;
}

static unsigned list_squeeze(struct suite *suite, const struct values *x, int64_t *list) {
    unsigned n = 0;
    for (int i = 0; i < x->rank; i++)
        if (x->shape[i] == 1 && suite_chance(suite, 70))
            list[n++] = suite_chance(suite, 50) ? i : i - x->rank;
    return n;
}

static struct op_packed attributes_reshape(struct suite *suite, const struct values *x) {
    int64_t list[VALUES_RANK_MAX];
    unsigned n = list_reshape(suite, x, list);
    return SUITE_ATTRIBUTES(reshape, .shape = {n, list});
}

static struct op_packed attributes_permute(struct suite *suite, const struct values *x) {
    int64_t list[VALUES_RANK_MAX];
    unsigned n = list_permute(suite, x, list);
    return SUITE_ATTRIBUTES(permute_dims, .axes = {n, list});
}

static struct op_packed attributes_slice(struct suite *suite, const struct values *x) {
    int64_t list[3 * VALUES_RANK_MAX];
    unsigned n = list_slice(suite, x, list);
    return SUITE_ATTRIBUTES(slice, .ranges = {n, list});
}

static struct op_packed attributes_broadcast(struct suite *suite, const struct values *x) {
    int64_t list[VALUES_RANK_MAX];
    unsigned n = list_broadcast(suite, x, list);
    return SUITE_ATTRIBUTES(broadcast_to, .shape = {n, list});
}

static struct op_packed attributes_squeeze(struct suite *suite, const struct values *x) {
    int64_t list[VALUES_RANK_MAX];
    unsigned n = list_squeeze(suite, x, list);
    return SUITE_ATTRIBUTES(squeeze, .axes = {n, list});
}

static struct op_packed attributes_expand(struct suite *suite, const struct values *x) {
    return SUITE_ATTRIBUTES(expand_dims, .axis = suite_below(suite, 2 * (x->rank + 1)) - (x->rank + 1));
}

static struct op_packed attributes_diagonal(struct suite *suite, const struct values *x) {
    int64_t rows = suite_below(suite, x->rank), columns = (rows + 1 + suite_below(suite, x->rank - 1)) % x->rank;
    int64_t offset = suite_chance(suite, 10)   ? INT64_MIN + suite_below(suite, 2)
                     : suite_chance(suite, 10) ? INT64_MAX
                                               : suite_below(suite, 9) - 4;
    return SUITE_ATTRIBUTES(diagonal, .offset = offset, .axis1 = suite_chance(suite, 50) ? rows : rows - x->rank,
                            .axis2 = columns);
}

static struct op_packed attributes_none(struct suite *suite, const struct values *x) {
    (void)suite;
    (void)x;
    return (struct op_packed){.n_ints = 0};
}

static const struct {
    unsigned opcode;
    struct op_packed (*attributes)(struct suite *suite, const struct values *x);
    int rank_min, rank_max;
} view_kinds[] = {
    {OP_RESHAPE, attributes_reshape, 0, 8},        {OP_PERMUTE_DIMS, attributes_permute, 0, 8},
    {OP_MATRIX_TRANSPOSE, attributes_none, 2, 8},  {OP_SLICE, attributes_slice, 0, 8},
    {OP_BROADCAST_TO, attributes_broadcast, 0, 6}, {OP_SQUEEZE, attributes_squeeze, 0, 8},
    {OP_EXPAND_DIMS, attributes_expand, 0, 7},     {OP_DIAGONAL, attributes_diagonal, 2, 8},
};
enum { VIEW_KINDS = sizeof view_kinds / sizeof *view_kinds };

/* Takes a view of x by this kind, where its rank allows, in place of x. The base's id is freed. */
static void view_step(struct suite *suite, struct sample *x, int kind) {
    if (x->values->rank < view_kinds[kind].rank_min || x->values->rank > view_kinds[kind].rank_max)
        return;
    struct op_packed attributes = view_kinds[kind].attributes(suite, x->values);
    struct sample view = suite_attributes(suite, view_kinds[kind].opcode, x, attributes);
    suite_free(suite, x);
    *x = view;
}

static int view_kind_of(unsigned opcode) {
    int kind = 0;
    while (view_kinds[kind].opcode != opcode)
        kind++;
    return kind;
}

/* This view of uploads and of views, and further views of it; each is read by a fetch and by a kernel. */
static void case_view(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(400); i++) {
        int64_t shape[VALUES_RANK_MAX];
        int rank;
        do
            rank = suite_shape(suite, 5, shape);
        while (rank < view_kinds[view_kind_of(row->opcode)].rank_min);
        if (row->opcode == OP_SQUEEZE)
            for (int j = 0; j < rank; j++)
                shape[j] = suite_chance(suite, 50) ? 1 : shape[j];
        struct sample x = suite_input(suite, op_case_dtype(suite, row), rank, shape, row->fill);
        view_step(suite, &x, view_kind_of(row->opcode));
        suite_check(suite, &x);
        for (int64_t more = suite_below(suite, 4); more > 0 && x.values->count < 10000; more--)
            view_step(suite, &x, (int)suite_below(suite, VIEW_KINDS));
        suite_check(suite, &x);
        struct sample read = suite_unary(suite, value_is_f8(x.values->dtype) ? OP_COPY : OP_LOGICAL_NOT, &x);
        case_settle(suite, &read);
        suite_free(suite, &x);
    }
}

const struct op_case op_case_reshape = {case_view, OP_RESHAPE, FILL_ANY};
const struct op_case op_case_permute_dims = {case_view, OP_PERMUTE_DIMS, FILL_ANY};
const struct op_case op_case_matrix_transpose = {case_view, OP_MATRIX_TRANSPOSE, FILL_ANY};
const struct op_case op_case_slice = {case_view, OP_SLICE, FILL_ANY};
const struct op_case op_case_broadcast_to = {case_view, OP_BROADCAST_TO, FILL_ANY};
const struct op_case op_case_squeeze = {case_view, OP_SQUEEZE, FILL_ANY};
const struct op_case op_case_expand_dims = {case_view, OP_EXPAND_DIMS, FILL_ANY};
const struct op_case op_case_diagonal = {case_view, OP_DIAGONAL, FILL_ANY};
