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

const struct op_case op_case_topk = {case_topk, OP_TOPK, FILL_ANY};
