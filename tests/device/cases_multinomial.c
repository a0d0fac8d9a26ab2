/* Positions drawn by weights. */
#include <math.h>

#include "tests/device/cases.h"

static void multinomial_once(struct suite *suite, struct sample *weights, int64_t samples, bool replacement) {
    struct op_packed attributes = SUITE_ATTRIBUTES(multinomial, .samples = samples, .replacement = replacement,
                                                   .seed = suite_random(suite), .offset = suite_below(suite, 3));
    struct sample result = suite_attributes(suite, OP_MULTINOMIAL, weights, attributes);
    case_settle(suite, &result);
    suite_free(suite, weights);
}

static void case_multinomial(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(200); i++) {
        int64_t shape[VALUES_RANK_MAX];
        int rank;
        do
            rank = suite_shape(suite, 4, shape);
        while (rank == 0 || shape[rank - 1] == 0);
        bool replacement = suite_chance(suite, 50);
        int64_t samples = suite_below(suite, replacement ? 100 : shape[rank - 1] + 1);
        struct sample x =
            suite_input(suite, op_case_dtype(suite, row), rank, shape, suite_chance(suite, 30) ? FILL_ANY : FILL_COUNT);
        multinomial_once(suite, &x, samples, replacement);
    }
    for (int replacement = 0; replacement < 2; replacement++) { /* weights whose sum f64 does not hold */
        struct values *values = values_create(DTYPE_F64, 2, (int64_t[]){3, 20});
        for (int64_t k = 0; k < values->count; k++)
            values->f[k] = k % 3 ? 0x1.8p1023L : k % 2 ? 0x1p-1000L : 0x1p959L;
        struct sample x = suite_upload(suite, values);
        multinomial_once(suite, &x, 20, replacement);
    }
    for (int i = 0; i < SUITE_REPEAT(8); i++) { /* long rows, and rows with few weights or none */
        struct values *values = values_create(DTYPE_F32, 2, (int64_t[]){5, 1 + suite_below(suite, 2000)});
        for (int64_t k = 0; k < values->count; k++)
            values->f[k] = suite_chance(suite, i % 4 * 30) ? (long double)suite_below(suite, 50) : 0;
        struct sample x = suite_upload(suite, values);
        multinomial_once(suite, &x, i % 2 ? 300 : values->shape[1] < 30 ? values->shape[1] : 30, i % 2);
    }
    for (int i = 0; i < 3; i++) { /* so many samples that threads share them out, and that sums are kept for them */
        struct values *values = values_create(DTYPE_F32, 2, (int64_t[]){1 + i, 1 + suite_below(suite, 300)});
        for (int64_t k = 0; k < values->count; k++)
            values->f[k] = suite_chance(suite, 70) ? (long double)(1 + suite_below(suite, 50)) : 0;
        struct sample x = suite_upload(suite, values);
        multinomial_once(suite, &x, 9999 + i, true);
    }
    /* Some positions with nearly all weight, so that others lie close to each other; many without any between others; and none with any. */
    for (int i = 0; i < SUITE_REPEAT(6); i++) {
        struct values *values = values_create(DTYPE_F64, 2, (int64_t[]){3, 600 + suite_below(suite, 500)});
        const int64_t k = values->shape[1];
        for (int64_t at = 0; at < 2 * k; at++)
            values->f[at] = at < k ? suite_chance(suite, 40) : (at - k) / 64 % 3 == 0;
        for (int many = 0; many < 3; many++)
            values->f[suite_below(suite, k)] = (long double)(1 + suite_below(suite, 1000000));
        struct sample x = suite_upload(suite, values);
        multinomial_once(suite, &x, 4999, true);
    }
}

const struct op_case op_case_multinomial = {case_multinomial, OP_MULTINOMIAL, FILL_COUNT};
