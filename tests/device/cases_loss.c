/* Losses. */
#include <string.h>

#include "tests/device/cases.h"

static struct sample targets_random(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape,
                                    int64_t classes, int64_t ignored) {
    struct values *targets = values_create(dtype, rank, shape);
    for (int64_t k = 0; k < targets->count; k++)
        targets->i[k] = suite_chance(suite, 15) ? ignored : suite_below(suite, classes);
    return suite_upload(suite, targets);
}

/* scores of the batch, the classes and more axes; for a batch of -1 of classes alone. */
static void loss_once(struct suite *suite, const struct op_case *row, enum dtype dtype, int64_t batch, int64_t classes,
                      int more, const int64_t *extents) {
    int64_t shape[VALUES_RANK_MAX] = {batch, classes}, places[VALUES_RANK_MAX] = {batch};
    int rank = batch < 0 ? 1 : 2 + more;
    if (batch < 0)
        shape[0] = classes;
    for (int i = 0; i < more; i++)
        places[1 + i] = shape[2 + i] = extents[i];
    bool back = row->opcode == OP_CROSS_ENTROPY_GRAD;
    int64_t ignored = suite_chance(suite, 50) ? -100 : classes - 1;
    struct sample in[3];
    const struct sample *inputs[] = {&in[0], &in[1], &in[2]};
    in[0] = suite_input(suite, dtype, rank - 1, places, FILL_ORDINARY);
    in[1] = suite_input(suite, dtype, rank, shape, FILL_ORDINARY);
    in[2] = targets_random(suite, suite_chance(suite, 50) ? DTYPE_I64 : DTYPE_I16, rank - 1, places, classes, ignored);
    struct op_packed attributes = SUITE_ATTRIBUTES(cross_entropy, .ignore_index = ignored,
                                                   .label_smoothing = suite_chance(suite, 50) ? 0 : 0.125);
    struct suite_call call = {
        .opcode = row->opcode, .n_inputs = back ? 3 : 2, .inputs = inputs + !back, .attributes = attributes};
    struct sample result = suite_run(suite, &call);
    case_settle(suite, &result);
    for (int i = 0; i < 3; i++)
        suite_free(suite, &in[i]);
}

static void case_cross_entropy(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        for (int i = 0; op_case_takes(row, dtype) && i < SUITE_REPEAT(30); i++) {
            int64_t extents[2] = {1 + suite_below(suite, 4), 1 + suite_below(suite, 4)};
            int64_t batch = suite_chance(suite, 10) ? -1 : suite_below(suite, 9);
            loss_once(suite, row, dtype, batch, 1 + suite_below(suite, 50), batch < 0 ? 0 : (int)suite_below(suite, 3),
                      extents);
        }
    }
    loss_once(suite, row, DTYPE_F32, 300, 1000, 0, NULL);
    loss_once(suite, row, DTYPE_F64, 2, 7, 2, (int64_t[]){40, 30});
    loss_once(suite, row, DTYPE_F32, 3, 30000, 0, NULL);
}

const struct op_case op_case_cross_entropy = {case_cross_entropy, OP_CROSS_ENTROPY, FILL_ORDINARY};
const struct op_case op_case_cross_entropy_grad = {case_cross_entropy, OP_CROSS_ENTROPY_GRAD, FILL_ORDINARY};
