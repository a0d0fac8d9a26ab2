/* Losses. */
#include <string.h>

#include "tests/device/cases.h"

/* ---- of classes ---- */

static struct sample targets_random(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape,
                                    int64_t classes, int64_t ignored) {
    struct values *targets = values_create(dtype, rank, shape);
    for (int64_t k = 0; k < targets->count; k++)
        targets->i[k] = suite_chance(suite, 15) ? ignored : suite_below(suite, classes);
    if (targets->count && classes > 1) /* one that counts: else a mean is of nothing */
        targets->i[0] = 0;
    return suite_upload(suite, targets);
}

/* Numbers from 0.5 to 1.5. */
static struct sample weights_random(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape) {
    struct values *values = values_create(dtype, rank, shape);
    suite_fill(suite, values, FILL_NEAR_ONE);
    for (int64_t k = 0; k < values->count; k++)
        values->f[k] = values->f[k] < 0 ? -values->f[k] : values->f[k];
    return suite_upload(suite, values);
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
    bool back = row->opcode == OP_CROSS_ENTROPY_GRAD || row->opcode == OP_SOFT_CROSS_ENTROPY_GRAD ||
                row->opcode == OP_NLL_LOSS_GRAD;
    bool soft = row->opcode == OP_SOFT_CROSS_ENTROPY || row->opcode == OP_SOFT_CROSS_ENTROPY_GRAD;
    bool plain = row->opcode == OP_NLL_LOSS || row->opcode == OP_NLL_LOSS_GRAD, weighted = suite_chance(suite, 50);
    int64_t ignored = suite_chance(suite, 50) ? -100 : classes - 1;
    enum op_reduction reduction = (enum op_reduction)suite_below(suite, OP_REDUCTION_COUNT);
    double smoothing = suite_chance(suite, 50) ? 0 : 0.125;
    struct sample in[4];
    const struct sample *inputs[] = {&in[0], &in[1], &in[2], &in[3]};
    in[0] = suite_input(suite, dtype, reduction == OP_REDUCTION_NONE ? rank - 1 : 0, places, FILL_ORDINARY);
    in[1] = suite_input(suite, dtype, rank, shape, FILL_ORDINARY);
    enum dtype integers = ((const enum dtype[]){DTYPE_I64, DTYPE_I32, DTYPE_I16})[suite_below(suite, 3)];
    in[2] = soft ? suite_input(suite, dtype, rank, shape, FILL_NEAR_ONE)
                 : targets_random(suite, integers, rank - 1, places, classes, ignored);
    in[3] = weights_random(suite, dtype, 1, &classes);
    struct op_packed indices =
        SUITE_ATTRIBUTES(cross_entropy, .ignore_index = ignored, .reduction = reduction, .label_smoothing = smoothing);
    struct op_packed parts = SUITE_ATTRIBUTES(soft_cross_entropy, .reduction = reduction, .label_smoothing = smoothing);
    struct op_packed logarithms = SUITE_ATTRIBUTES(nll_loss, .ignore_index = ignored, .reduction = reduction);
    struct suite_call call = {.opcode = row->opcode,
                              .n_inputs = 2u + back + weighted,
                              .inputs = inputs + !back,
                              .attributes = soft    ? parts
                                            : plain ? logarithms
                                                    : indices};
    struct sample result = suite_run(suite, &call);
    case_settle(suite, &result);
    for (int i = 0; i < 4; i++)
        suite_free(suite, &in[i]);
}

static void case_loss(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        for (int i = 0; op_case_takes(row, dtype) && i < SUITE_REPEAT(40); i++) {
            int64_t extents[2] = {1 + suite_below(suite, 4), 1 + suite_below(suite, 4)};
            int64_t batch = suite_chance(suite, 10) ? -1 : suite_below(suite, 9);
            loss_once(suite, row, dtype, batch, 1 + suite_below(suite, 50), batch < 0 ? 0 : (int)suite_below(suite, 3),
                      extents);
        }
    }
    for (int i = 0; i < 4; i++)
        loss_once(suite, row, DTYPE_F32, 300, 1000, 0, NULL);
    loss_once(suite, row, DTYPE_F64, 2, 7, 2, (int64_t[]){40, 30});
    loss_once(suite, row, DTYPE_F32, 3, 30000, 0, NULL);
    for (int i = 0; i < 4; i++) { /* halves, which are converted some at a time */
        loss_once(suite, row, DTYPE_F16, 5, 2500, 0, NULL);
        loss_once(suite, row, DTYPE_BF16, 2, 1100, 1, (int64_t[]){3});
    }
}

const struct op_case op_case_cross_entropy = {case_loss, OP_CROSS_ENTROPY, FILL_ORDINARY};
const struct op_case op_case_cross_entropy_grad = {case_loss, OP_CROSS_ENTROPY_GRAD, FILL_ORDINARY};
const struct op_case op_case_soft_cross_entropy = {case_loss, OP_SOFT_CROSS_ENTROPY, FILL_ORDINARY};
const struct op_case op_case_soft_cross_entropy_grad = {case_loss, OP_SOFT_CROSS_ENTROPY_GRAD, FILL_ORDINARY};
const struct op_case op_case_nll_loss = {case_loss, OP_NLL_LOSS, FILL_ORDINARY};
const struct op_case op_case_nll_loss_grad = {case_loss, OP_NLL_LOSS_GRAD, FILL_ORDINARY};

/* ---- of elements ---- */

static struct op_packed element_attributes(struct suite *suite, unsigned opcode, enum op_reduction reduction) {
    if (opcode == OP_HUBER_LOSS || opcode == OP_HUBER_LOSS_GRAD)
        return SUITE_ATTRIBUTES(huber_loss, .reduction = reduction, .delta = suite_chance(suite, 50) ? 1 : 0.75);
    if (opcode == OP_KL_DIV || opcode == OP_KL_DIV_GRAD || opcode == OP_KL_DIV_TARGET_GRAD)
        return SUITE_ATTRIBUTES(kl_div, .reduction = reduction, .log_target = suite_chance(suite, 50));
    return SUITE_ATTRIBUTES(reduced, .reduction = reduction);
}

static bool takes_weights(const struct op_case *row) {
    return row->opcode == OP_BCE_WITH_LOGITS || row->opcode == OP_BCE_WITH_LOGITS_GRAD ||
           row->opcode == OP_BCE_WITH_LOGITS_TARGET_GRAD;
}

/* A target: of kl_div and bce_with_logits it is not negative, and now and then 0. */
static struct sample target_random(struct suite *suite, const struct op_case *row, enum dtype dtype, int rank,
                                   const int64_t *shape) {
    bool part = row->opcode == OP_KL_DIV || row->opcode == OP_KL_DIV_TARGET_GRAD || takes_weights(row);
    if (!part)
        return suite_input(suite, dtype, rank, shape, FILL_ORDINARY);
    struct values *values = values_create(dtype, rank, shape);
    for (int64_t k = 0; k < values->count; k++)
        values->f[k] = (long double)suite_below(suite, 9) / 8;
    return suite_upload(suite, values);
}

static void element_loss_once(struct suite *suite, const struct op_case *row, enum dtype dtype, int rank,
                              const int64_t *shape) {
    bool back = op_info(row->opcode)->inputs_min == 3;
    bool weights = takes_weights(row);
    enum op_reduction reduction = (enum op_reduction)suite_below(suite, OP_REDUCTION_COUNT);
    int64_t narrow[2][VALUES_RANK_MAX];
    int first = suite_narrower(suite, rank, shape, narrow[0]), second = suite_narrower(suite, rank, shape, narrow[1]);
    struct sample in[5];
    const struct sample *inputs[] = {&in[0], &in[1], &in[2], &in[3], &in[4]};
    in[0] = suite_input(suite, dtype, reduction == OP_REDUCTION_NONE ? rank : 0, shape, FILL_ORDINARY);
    in[1] = suite_input(suite, op_case_partner(suite, row, dtype), rank, shape, FILL_ORDINARY);
    in[2] = target_random(suite, row, dtype, rank, shape);
    in[3] = suite_input(suite, dtype, first, narrow[0], FILL_NEAR_ONE);
    in[4] = weights_random(suite, dtype, second, narrow[1]);
    struct suite_call call = {.opcode = row->opcode,
                              .n_inputs = 2u + back + (weights ? (unsigned)suite_below(suite, 3) : 0),
                              .inputs = inputs + !back,
                              .attributes = element_attributes(suite, row->opcode, reduction)};
    struct sample result = suite_run(suite, &call);
    case_settle(suite, &result);
    for (int i = 0; i < 5; i++)
        suite_free(suite, &in[i]);
}

static void case_element_loss(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(120); i++) {
        int64_t shape[VALUES_RANK_MAX];
        int rank = suite_shape(suite, 3, shape);
        element_loss_once(suite, row, op_case_dtype(suite, row), rank, shape);
    }
    for (int i = 0; i < 4; i++)
        element_loss_once(suite, row, i % 2 ? DTYPE_F32 : DTYPE_F64, 2, (int64_t[]){70, 1001});
    for (int i = 0; i < 4; i++) /* converted some at a time */
        element_loss_once(suite, row, i % 2 ? DTYPE_F16 : DTYPE_BF16, 2, (int64_t[]){3, 1101});
    /* Longer than the caches. */
    element_loss_once(suite, row, DTYPE_F64, 2, (int64_t[]){SUITE_REPEAT(1050), 1001});
}

#define ELEMENT_LOSS(name, ID) const struct op_case op_case_##name = {case_element_loss, OP_##ID, FILL_ORDINARY};
ELEMENT_LOSS(mse_loss, MSE_LOSS)
ELEMENT_LOSS(mse_loss_grad, MSE_LOSS_GRAD)
ELEMENT_LOSS(l1_loss, L1_LOSS)
ELEMENT_LOSS(l1_loss_grad, L1_LOSS_GRAD)
ELEMENT_LOSS(huber_loss, HUBER_LOSS)
ELEMENT_LOSS(huber_loss_grad, HUBER_LOSS_GRAD)
ELEMENT_LOSS(bce_with_logits, BCE_WITH_LOGITS)
ELEMENT_LOSS(bce_with_logits_grad, BCE_WITH_LOGITS_GRAD)
ELEMENT_LOSS(kl_div, KL_DIV)
ELEMENT_LOSS(kl_div_grad, KL_DIV_GRAD)
ELEMENT_LOSS(bce_with_logits_target_grad, BCE_WITH_LOGITS_TARGET_GRAD)
ELEMENT_LOSS(kl_div_target_grad, KL_DIV_TARGET_GRAD)
