#include "tests/device/cases.h"

static void cross_once(struct suite *suite, struct sample *a, struct sample *b, int64_t axis) {
    const struct sample *inputs[] = {a, b};
    struct sample result = suite_run(suite, &(struct suite_call){.opcode = OP_CROSS,
                                                                 .n_inputs = 2,
                                                                 .inputs = inputs,
                                                                 .attributes = SUITE_ATTRIBUTES(cross, .axis = axis)});
    case_settle(suite, &result);
    suite_free(suite, a);
    suite_free(suite, b);
}

/* Both operands are chosen out of one broadcast shape, whose axis has three elements in both. */
static void cross_random(struct suite *suite, enum dtype dtype_a, enum dtype dtype_b) {
    int64_t shape[VALUES_RANK_MAX], a[VALUES_RANK_MAX], b[VALUES_RANK_MAX];
    int rank = suite_shape(suite, 4, shape), most;
    if (rank == 0)
        return;
    int rank_a = suite_narrower(suite, rank, shape, a), rank_b = suite_narrower(suite, rank, shape, b);
    most = rank_a < rank_b ? rank_a : rank_b;
    if (most == 0)
        return;
    int64_t axis = -1 - suite_below(suite, most);
    a[rank_a + axis] = b[rank_b + axis] = 3;
    struct sample x = suite_input(suite, dtype_a, rank_a, a, FILL_ORDINARY);
    struct sample y = suite_input(suite, dtype_b, rank_b, b, FILL_ORDINARY);
    cross_once(suite, &x, &y, axis);
}

static void case_cross(struct suite *suite, const struct op_case *row) {
    for (enum dtype a = DTYPE_BOOL; a < DTYPE_COUNT; a++)
        for (enum dtype b = DTYPE_BOOL; b < DTYPE_COUNT; b++)
            if (op_case_takes(row, reference_promote(a, b)))
                for (int i = 0; i < SUITE_REPEAT(a == b ? 40 : 4); i++)
                    cross_random(suite, a, b);
    /* Vectors one after another, and elements one after another: many, and around the widths of processors' vectors. */
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++)
        for (int i = 0; i < case_length_count && op_case_takes(row, dtype); i++)
            for (int64_t axis = -1; axis >= -2; axis--) {
                const int64_t n = case_lengths[i], last[] = {n, 3}, first[] = {3, n};
                struct sample x = suite_sample(suite, dtype, 2, axis == -1 ? last : first, FILL_ORDINARY);
                struct sample y = suite_sample(suite, dtype, 2, axis == -1 ? last : first, FILL_ORDINARY);
                cross_once(suite, &x, &y, axis);
            }
    struct sample x = suite_sample(suite, DTYPE_F32, 2, (int64_t[]){SUITE_REPEAT(400000), 3}, FILL_ORDINARY);
    struct sample y = suite_sample(suite, DTYPE_F32, 2, x.values->shape, FILL_ORDINARY);
    cross_once(suite, &x, &y, -1);
}

const struct op_case op_case_cross = {case_cross, OP_CROSS, FILL_ORDINARY};
