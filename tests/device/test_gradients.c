/* Gradients against central differences: a weighted sum of a result changes along a random direction as the gradient says. In f64, on the
 * device alone: nothing here depends on the reference. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/device/cases.h"

enum { INPUTS_MOST = 12, OUTPUTS_MOST = 8 };

/* An operation with its inputs; the first result is differentiated. */
struct forward {
    unsigned opcode, n_inputs, n_outputs;
    struct op_packed attributes;
    struct values *in[INPUTS_MOST];
};

static struct values *random_values(struct suite *suite, int rank, const int64_t *shape, enum suite_fill fill) {
    struct values *values = values_create(DTYPE_F64, rank, shape);
    suite_fill(suite, values, fill);
    return values;
}

/* The results as the device computes them. */
static void run(struct suite *suite, unsigned opcode, unsigned n_inputs, struct values *const *in,
                const struct op_packed *attributes, struct values **out, unsigned n_outputs) {
    struct sample inputs[INPUTS_MOST], results[OUTPUTS_MOST];
    const struct sample *list[INPUTS_MOST];
    for (unsigned i = 0; i < n_inputs; i++) {
        inputs[i] = suite_upload(suite, values_copy(in[i]));
        list[i] = &inputs[i];
    }
    suite_run_several(
        suite, &(struct suite_call){.opcode = opcode, .n_inputs = n_inputs, .inputs = list, .attributes = *attributes},
        results, n_outputs);
    for (unsigned i = 0; i < n_outputs; i++) {
        suite_adopt(suite, &results[i]);
        out[i] = values_copy(results[i].values);
        suite_free(suite, &results[i]);
    }
    for (unsigned i = 0; i < n_inputs; i++)
        suite_free(suite, &inputs[i]);
}

static struct values *result_of(struct suite *suite, const struct forward *f, struct values **indices) {
    struct values *out[OUTPUTS_MOST];
    run(suite, f->opcode, f->n_inputs, f->in, &f->attributes, out, f->n_outputs);
    if (indices)
        *indices = out[1];
    return out[0];
}

static long double dot(const struct values *a, const struct values *b) {
    long double sum = 0;
    cr_assert_eq(a->count, b->count);
    for (int64_t k = 0; k < a->count; k++)
        sum += a->f[k] * b->f[k];
    return sum;
}

/* The sum of the result times `weights`, with input `which` moved along a direction. */
static long double moved(struct suite *suite, struct forward f, unsigned which, const struct values *direction,
                         long double by, const struct values *weights) {
    struct values *x = values_copy(f.in[which]);
    for (int64_t k = 0; k < x->count; k++)
        x->f[k] = value_round(DTYPE_F64, x->f[k] + by * direction->f[k]);
    f.in[which] = x;
    long double sum = dot(result_of(suite, &f, NULL), weights);
    values_destroy(x);
    return sum;
}

static void check(struct suite *suite, const struct forward *f, unsigned which, const struct values *weights,
                  const struct values *gradient) {
    static const long double step = 1e-6L;
    for (int i = 0; i < 3; i++) {
        struct values *direction = random_values(suite, f->in[which]->rank, f->in[which]->shape, FILL_NEAR_ONE);
        long double difference =
            (moved(suite, *f, which, direction, step, weights) - moved(suite, *f, which, direction, -step, weights)) /
            (2 * step);
        long double expected = dot(gradient, direction), size = 1;
        for (int64_t k = 0; k < gradient->count; k++)
            size += fabsl(gradient->f[k] * direction->f[k]);
        if (!(fabsl(difference - expected) <= 1e-7L * size))
            suite_fail(suite, "%s by input %u: the gradient says %.12Lg, differences %.12Lg", op_info(f->opcode)->name,
                       which, expected, difference);
        values_destroy(direction);
    }
}

/* ---- convolutions ---- */

#define GEOMETRY .stride = SUITE_LIST(2, 1), .padding = SUITE_LIST(1, 2), .dilation = SUITE_LIST(1, 2), .groups = 2

Test(gradients, of_convolutions) {
    struct suite suite;
    suite_open(&suite, 0x67ad1);
    const int64_t x[] = {2, 4, 9, 8}, w[] = {6, 2, 3, 2};
    struct forward f = {OP_CONV, 3, 1, SUITE_ATTRIBUTES(conv, GEOMETRY), {0}};
    f.in[0] = random_values(&suite, 4, x, FILL_ORDINARY);
    f.in[1] = random_values(&suite, 4, w, FILL_ORDINARY);
    f.in[2] = random_values(&suite, 1, w, FILL_ORDINARY);
    struct values *y = result_of(&suite, &f, NULL), *weights = random_values(&suite, y->rank, y->shape, FILL_ORDINARY),
                  *got;
    struct op_packed to_x = SUITE_ATTRIBUTES(conv_grad_input, GEOMETRY, .shape = {4, x});
    struct op_packed to_w = SUITE_ATTRIBUTES(conv_grad_weight, GEOMETRY, .shape = {4, w});
    run(&suite, OP_CONV_GRAD_INPUT, 2, (struct values *[]){weights, f.in[1]}, &to_x, &got, 1);
    check(&suite, &f, 0, weights, got);
    run(&suite, OP_CONV_GRAD_WEIGHT, 2, (struct values *[]){f.in[0], weights}, &to_w, &got, 1);
    check(&suite, &f, 1, weights, got);
    suite_close(&suite);
}

/* As its description says: by x a convolution, by the weight conv_grad_weight with the roles exchanged. */
Test(gradients, of_transposed_convolutions) {
    struct suite suite;
    suite_open(&suite, 0x67ad2);
    const int64_t x[] = {2, 6, 4, 5}, w[] = {6, 2, 3, 2};
    struct forward f = {
        OP_CONV_TRANSPOSE, 2, 1, SUITE_ATTRIBUTES(conv_transpose, GEOMETRY, .output_padding = SUITE_LIST(1, 0)), {0}};
    f.in[0] = random_values(&suite, 4, x, FILL_ORDINARY);
    f.in[1] = random_values(&suite, 4, w, FILL_ORDINARY);
    struct values *y = result_of(&suite, &f, NULL), *weights = random_values(&suite, y->rank, y->shape, FILL_ORDINARY),
                  *got;
    struct op_packed to_x = SUITE_ATTRIBUTES(conv, GEOMETRY);
    struct op_packed to_w = SUITE_ATTRIBUTES(conv_grad_weight, GEOMETRY, .shape = {4, w});
    run(&suite, OP_CONV, 2, (struct values *[]){weights, f.in[1]}, &to_x, &got, 1);
    check(&suite, &f, 0, weights, got);
    run(&suite, OP_CONV_GRAD_WEIGHT, 2, (struct values *[]){weights, f.in[0]}, &to_w, &got, 1);
    check(&suite, &f, 1, weights, got);
    suite_close(&suite);
}

/* ---- pooling ---- */

static void pooling(struct suite *suite, struct forward f, unsigned back, const struct op_packed *attributes) {
    struct values *indices = NULL;
    struct values *y = result_of(suite, &f, f.n_outputs > 1 ? &indices : NULL), *got;
    struct values *weights = random_values(suite, y->rank, y->shape, FILL_ORDINARY);
    run(suite, back, indices ? 2 : 1, (struct values *[]){weights, indices}, attributes, &got, 1);
    check(suite, &f, 0, weights, got);
}

Test(gradients, of_pooling) {
    struct suite suite;
    suite_open(&suite, 0x67ad3);
    const int64_t x[] = {2, 3, 9, 8};
    struct values *in = random_values(&suite, 4, x, FILL_ORDINARY);
#define WINDOW .kernel = SUITE_LIST(3, 2), .stride = SUITE_LIST(2), .padding = SUITE_LIST(1), .ceil_mode = true
    struct op_packed to_x = SUITE_ATTRIBUTES(max_pool_grad, WINDOW, .shape = {4, x});
    pooling(&suite, (struct forward){OP_MAX_POOL, 1, 2, SUITE_ATTRIBUTES(max_pool, WINDOW), {in}}, OP_MAX_POOL_GRAD,
            &to_x);
    to_x = SUITE_ATTRIBUTES(avg_pool_grad, WINDOW, .count_include_pad = true, .shape = {4, x});
    pooling(&suite,
            (struct forward){OP_AVG_POOL, 1, 1, SUITE_ATTRIBUTES(avg_pool, WINDOW, .count_include_pad = true), {in}},
            OP_AVG_POOL_GRAD, &to_x);
    to_x = SUITE_ATTRIBUTES(adaptive_avg_pool_grad, .shape = {4, x});
    pooling(&suite,
            (struct forward){
                OP_ADAPTIVE_AVG_POOL, 1, 1, SUITE_ATTRIBUTES(adaptive_avg_pool, .extents = SUITE_LIST(4, 3)), {in}},
            OP_ADAPTIVE_AVG_POOL_GRAD, &to_x);
    suite_close(&suite);
}

/* ---- normalisation ---- */

/* x, then weight and bias as far as there are any; batch_norm has its running statistics between them. */
static void normalisation(struct suite *suite, struct forward f, unsigned first, unsigned back,
                          const struct op_packed *attributes, unsigned n_gradients) {
    struct values *got[OUTPUTS_MOST], *y = result_of(suite, &f, NULL);
    struct values *weights = random_values(suite, y->rank, y->shape, FILL_ORDINARY);
    run(suite, back, 3, (struct values *[]){weights, f.in[0], f.in[first]}, attributes, got, n_gradients);
    check(suite, &f, 0, weights, got[0]);
    for (unsigned i = 1; i < n_gradients; i++)
        check(suite, &f, first + i - 1, weights, got[i]);
}

Test(gradients, of_normalisation) {
    struct suite suite;
    suite_open(&suite, 0x67ad4);
    struct values *x = random_values(&suite, 3, (int64_t[]){5, 6, 4}, FILL_ORDINARY);
    struct values *c = random_values(&suite, 1, (int64_t[]){6}, FILL_NEAR_ONE),
                  *d = random_values(&suite, 1, (int64_t[]){6}, FILL_NEAR_ONE);
    struct values *r = random_values(&suite, 2, (int64_t[]){6, 4}, FILL_NEAR_ONE);
    struct values *s = random_values(&suite, 2, (int64_t[]){6, 4}, FILL_NEAR_ONE);
    struct op_packed channel = SUITE_ATTRIBUTES(channel_norm, .axis = 1, .epsilon = 1e-5);
    struct op_packed row = SUITE_ATTRIBUTES(row_norm, .axes = 2, .epsilon = 1e-5);
    struct op_packed group = SUITE_ATTRIBUTES(group_norm, .groups = 3, .epsilon = 1e-5);
    struct op_packed batch = SUITE_ATTRIBUTES(batch_norm, .axis = 1, .epsilon = 1e-5, .momentum = 0.1);
    normalisation(&suite, (struct forward){OP_BATCH_NORM, 5, 3, batch, {x, c, d, c, d}}, 3, OP_BATCH_NORM_GRAD,
                  &channel, 3);
    normalisation(&suite, (struct forward){OP_LAYER_NORM, 3, 1, row, {x, r, s}}, 1, OP_LAYER_NORM_GRAD, &row, 3);
    normalisation(&suite, (struct forward){OP_GROUP_NORM, 3, 1, group, {x, c, d}}, 1, OP_GROUP_NORM_GRAD, &group, 3);
    normalisation(&suite, (struct forward){OP_RMS_NORM, 2, 1, row, {x, r}}, 1, OP_RMS_NORM_GRAD, &row, 2);
    suite_close(&suite);
}

/* ---- losses ---- */

static struct op_packed class_attributes(unsigned opcode, enum op_reduction reduction) {
    if (opcode == OP_SOFT_CROSS_ENTROPY)
        return SUITE_ATTRIBUTES(soft_cross_entropy, .reduction = reduction, .label_smoothing = 0.1);
    if (opcode == OP_NLL_LOSS)
        return SUITE_ATTRIBUTES(nll_loss, .reduction = reduction, .ignore_index = -100);
    return SUITE_ATTRIBUTES(cross_entropy, .label_smoothing = 0.1, .ignore_index = -100, .reduction = reduction);
}

/* By input `by`, with all others as they are. */
static void loss_by(struct suite *suite, const struct forward *f, unsigned back, unsigned by) {
    struct values *y = result_of(suite, f, NULL), *weights = random_values(suite, y->rank, y->shape, FILL_ORDINARY);
    struct values *in[INPUTS_MOST] = {weights}, *got;
    for (unsigned i = 0; i < f->n_inputs; i++)
        in[1 + i] = f->in[i];
    run(suite, back, f->n_inputs + 1, in, &f->attributes, &got, 1);
    check(suite, f, by, weights, got);
}

static void loss(struct suite *suite, const struct forward *f, unsigned back) {
    loss_by(suite, f, back, 0);
}

Test(gradients, of_losses_of_classes) {
    struct suite suite;
    suite_open(&suite, 0x67ad5);
    struct values *scores = random_values(&suite, 3, (int64_t[]){4, 7, 3}, FILL_ORDINARY);
    struct values *parts = random_values(&suite, 3, scores->shape, FILL_NEAR_ONE);
    struct values *weight = random_values(&suite, 1, (int64_t[]){7}, FILL_NEAR_ONE);
    struct values *targets = values_create(DTYPE_I64, 2, (int64_t[]){4, 3});
    for (int64_t k = 0; k < targets->count; k++)
        targets->i[k] = k == 5 ? -100 : k % 7;
    for (int64_t k = 0; k < weight->count; k++)
        weight->f[k] = fabsl(weight->f[k]); /* so that their sum is not near 0 */
    for (enum op_reduction reduction = OP_REDUCTION_NONE; reduction < OP_REDUCTION_COUNT; reduction++)
        for (unsigned n = 2; n <= 3; n++) {
            loss(&suite,
                 &(struct forward){
                     OP_CROSS_ENTROPY, n, 1, class_attributes(OP_CROSS_ENTROPY, reduction), {scores, targets, weight}},
                 OP_CROSS_ENTROPY_GRAD);
            loss(&suite,
                 &(struct forward){OP_SOFT_CROSS_ENTROPY,
                                   n,
                                   1,
                                   class_attributes(OP_SOFT_CROSS_ENTROPY, reduction),
                                   {scores, parts, weight}},
                 OP_SOFT_CROSS_ENTROPY_GRAD);
            loss(&suite,
                 &(struct forward){
                     OP_NLL_LOSS, n, 1, class_attributes(OP_NLL_LOSS, reduction), {scores, targets, weight}},
                 OP_NLL_LOSS_GRAD);
        }
    suite_close(&suite);
}

Test(gradients, of_losses_of_elements) {
    struct suite suite;
    suite_open(&suite, 0x67ad6);
    const int64_t shape[] = {5, 6};
    struct values *x = random_values(&suite, 2, shape, FILL_ORDINARY);
    struct values *target = random_values(&suite, 2, shape, FILL_NEAR_ONE);
    struct values *weight = random_values(&suite, 1, shape + 1, FILL_NEAR_ONE);
    struct values *positive = random_values(&suite, 2, shape, FILL_NEAR_ONE);
    for (int64_t k = 0; k < target->count; k++)
        target->f[k] = fabsl(target->f[k]) - 0.5L;
    for (enum op_reduction reduction = OP_REDUCTION_NONE; reduction < OP_REDUCTION_COUNT; reduction++) {
        struct op_packed plain = SUITE_ATTRIBUTES(reduced, .reduction = reduction);
        struct op_packed huber = SUITE_ATTRIBUTES(huber_loss, .reduction = reduction, .delta = 0.75);
        struct op_packed kl = SUITE_ATTRIBUTES(kl_div, .reduction = reduction, .log_target = false);
        struct op_packed kl_log = SUITE_ATTRIBUTES(kl_div, .reduction = reduction, .log_target = true);
        loss(&suite, &(struct forward){OP_MSE_LOSS, 2, 1, plain, {x, target}}, OP_MSE_LOSS_GRAD);
        loss(&suite, &(struct forward){OP_L1_LOSS, 2, 1, plain, {x, target}}, OP_L1_LOSS_GRAD);
        loss(&suite, &(struct forward){OP_HUBER_LOSS, 2, 1, huber, {x, target}}, OP_HUBER_LOSS_GRAD);
        loss(&suite, &(struct forward){OP_KL_DIV, 2, 1, kl, {x, target}}, OP_KL_DIV_GRAD);
        loss(&suite, &(struct forward){OP_KL_DIV, 2, 1, kl_log, {x, target}}, OP_KL_DIV_GRAD);
        loss_by(&suite, &(struct forward){OP_KL_DIV, 2, 1, kl, {x, target}}, OP_KL_DIV_TARGET_GRAD, 1);
        loss_by(&suite, &(struct forward){OP_KL_DIV, 2, 1, kl_log, {x, target}}, OP_KL_DIV_TARGET_GRAD, 1);
        for (unsigned n = 2; n <= 4; n++) {
            struct forward f = {OP_BCE_WITH_LOGITS, n, 1, plain, {x, target, weight, positive}};
            loss(&suite, &f, OP_BCE_WITH_LOGITS_GRAD);
            loss_by(&suite, &f, OP_BCE_WITH_LOGITS_TARGET_GRAD, 1);
        }
    }
    suite_close(&suite);
}

/* ---- attention ---- */

static void attention(struct suite *suite, struct values *const qkv[4], unsigned n_inputs, bool causal) {
    struct forward f = {OP_ATTENTION, n_inputs, 2, SUITE_ATTRIBUTES(attention, .is_causal = causal), {0}};
    struct values *logsumexp, *got[3];
    memcpy(f.in, qkv, n_inputs * sizeof *qkv);
    struct values *y = result_of(suite, &f, &logsumexp),
                  *weights = random_values(suite, y->rank, y->shape, FILL_ORDINARY);
    run(suite, OP_ATTENTION_GRAD, n_inputs + 3,
        (struct values *[]){weights, qkv[0], qkv[1], qkv[2], y, logsumexp, qkv[3]}, &f.attributes, got, 3);
    for (unsigned i = 0; i < 3; i++)
        check(suite, &f, i, weights, got[i]);
}

Test(gradients, of_attention) {
    struct suite suite;
    suite_open(&suite, 0x67ad7);
    struct values *qkv[4];
    qkv[0] = random_values(&suite, 4, (int64_t[]){1, 4, 70, 6}, FILL_ORDINARY);
    qkv[1] = random_values(&suite, 4, (int64_t[]){1, 2, 260, 6}, FILL_ORDINARY);
    qkv[2] = random_values(&suite, 4, (int64_t[]){1, 2, 260, 5}, FILL_ORDINARY);
    qkv[3] = random_values(&suite, 2, (int64_t[]){70, 260}, FILL_ORDINARY);
    attention(&suite, qkv, 3, false);
    attention(&suite, qkv, 3, true);
    attention(&suite, qkv, 4, false);
    suite_close(&suite);
}

/* ---- recurrent layers ---- */

/* By all inputs; the gradients by the last states are 0. */
static void recurrent(struct suite *suite, bool gru, bool reverse) {
    const int64_t n = 6, batch = 3, in = 4, hidden = 5, gates = (gru ? 3 : 4) * hidden;
    struct op_packed attributes = SUITE_ATTRIBUTES(recurrent, .reverse = reverse);
    struct forward f = {gru ? OP_GRU : OP_LSTM, gru ? 6 : 7, gru ? 3 : 5, attributes, {0}};
    struct values *out[OUTPUTS_MOST], *got[OUTPUTS_MOST], *list[INPUTS_MOST];
    unsigned at = 0, states = gru ? 1 : 2;
    f.in[at++] = random_values(suite, 3, (int64_t[]){n, batch, in}, FILL_ORDINARY);
    for (unsigned i = 0; i < states; i++)
        f.in[at++] = random_values(suite, 2, (int64_t[]){batch, hidden}, FILL_NEAR_ONE);
    f.in[at++] = random_values(suite, 2, (int64_t[]){gates, in}, FILL_NEAR_ONE);
    f.in[at++] = random_values(suite, 2, (int64_t[]){gates, hidden}, FILL_NEAR_ONE);
    f.in[at++] = random_values(suite, 1, &gates, FILL_NEAR_ONE);
    f.in[at++] = random_values(suite, 1, &gates, FILL_NEAR_ONE);
    run(suite, f.opcode, f.n_inputs, f.in, &attributes, out, f.n_outputs);
    struct values *weights = random_values(suite, 3, out[0]->shape, FILL_ORDINARY);
    at = 0;
    list[at++] = weights;
    for (unsigned i = 0; i < states; i++)
        list[at++] = values_create(DTYPE_F64, 2, (int64_t[]){batch, hidden});
    for (unsigned i = 0; i < states + 3; i++)
        list[at++] = f.in[i];
    list[at++] = out[0];
    list[at++] = out[gru ? 2 : 3];
    if (!gru)
        list[at++] = out[4];
    run(suite, gru ? OP_GRU_GRAD : OP_LSTM_GRAD, at, list, &attributes, got, 6);
    for (unsigned i = 0; i < 6; i++)
        check(suite, &f, i, weights, got[i]);
    if (!gru) /* both biases have one gradient */
        check(suite, &f, 6, weights, got[5]);
}

Test(gradients, of_recurrent_layers) {
    struct suite suite;
    suite_open(&suite, 0x67ad8);
    for (int i = 0; i < 4; i++)
        recurrent(&suite, i & 1, i & 2);
    suite_close(&suite);
}
