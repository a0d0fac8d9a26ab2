#include "tests/device/cases.h"

static void product_once(struct suite *suite, struct sample *a, struct sample *b) {
    struct sample result = suite_binary(suite, OP_MATMUL, a, b);
    case_settle(suite, &result);
    suite_free(suite, a);
    suite_free(suite, b);
}

/* Batch axes of both sides are chosen out of one broadcast shape; a rank of 1 is a row or a column. */
static void product_random(struct suite *suite, enum dtype dtype_a, enum dtype dtype_b) {
    int64_t batch[VALUES_RANK_MAX], a[VALUES_RANK_MAX], b[VALUES_RANK_MAX], sides[3];
    int rank = suite_chance(suite, 50) ? 0 : suite_shape(suite, 3, batch);
    for (int i = 0; i < rank; i++)
        batch[i] = batch[i] > 3 ? 3 : batch[i];
    for (int i = 0; i < 3; i++)
        sides[i] = suite_chance(suite, 8) ? 0 : suite_chance(suite, 15) ? 1 : 1 + suite_below(suite, 34);
    int rank_a = suite_narrower(suite, rank, batch, a), rank_b = suite_narrower(suite, rank, batch, b);
    if (rank_a > 0 || suite_chance(suite, 75))
        a[rank_a++] = sides[0];
    a[rank_a++] = sides[1];
    b[rank_b++] = sides[1];
    if (rank_b > 1 || suite_chance(suite, 75))
        b[rank_b++] = sides[2];
    struct sample x = suite_input(suite, dtype_a, rank_a, a, FILL_ORDINARY);
    struct sample y = suite_input(suite, dtype_b, rank_b, b, FILL_ORDINARY);
    product_once(suite, &x, &y);
}

/* Both sides stored transposed, as a backward pass has them. */
static void product_transposed(struct suite *suite, enum dtype dtype, int64_t m, int64_t k, int64_t n) {
    for (int which = 0; which < 4; which++) {
        struct sample a =
            suite_sample(suite, dtype, 2, which & 1 ? (int64_t[]){k, m} : (int64_t[]){m, k}, FILL_ORDINARY);
        struct sample b =
            suite_sample(suite, dtype, 2, which & 2 ? (int64_t[]){n, k} : (int64_t[]){k, n}, FILL_ORDINARY);
        struct sample ta = a, tb = b;
        if (which & 1)
            ta = suite_unary(suite, OP_MATRIX_TRANSPOSE, &a);
        if (which & 2)
            tb = suite_unary(suite, OP_MATRIX_TRANSPOSE, &b);
        struct sample result = suite_binary(suite, OP_MATMUL, &ta, &tb);
        case_settle(suite, &result);
        if (which & 1)
            suite_free(suite, &ta);
        if (which & 2)
            suite_free(suite, &tb);
        suite_free(suite, &a);
        suite_free(suite, &b);
    }
}

/* Rows times columns, in batches: their elements follow one another, or are those of columns, and there may be many. */
static void product_of_vectors(struct suite *suite, enum dtype dtype, int64_t batch, int64_t k) {
    for (int which = 0; which < 4; which++) {
        struct sample a = suite_sample(suite, dtype, 3, which & 1 ? (int64_t[]){1, k, batch} : (int64_t[]){batch, 1, k},
                                       FILL_ORDINARY);
        struct sample b = suite_sample(suite, dtype, 3, which & 2 ? (int64_t[]){k, 1, batch} : (int64_t[]){batch, k, 1},
                                       FILL_ORDINARY);
        static const int64_t order[] = {2, 0, 1};
        struct sample across_a = a, across_b = b;
        if (which & 1)
            across_a = suite_attributes(suite, OP_PERMUTE_DIMS, &a, SUITE_ATTRIBUTES(permute_dims, .axes = {3, order}));
        if (which & 2)
            across_b = suite_attributes(suite, OP_PERMUTE_DIMS, &b, SUITE_ATTRIBUTES(permute_dims, .axes = {3, order}));
        struct sample result = suite_binary(suite, OP_MATMUL, &across_a, &across_b);
        case_settle(suite, &result);
        if (which & 1)
            suite_free(suite, &across_a);
        if (which & 2)
            suite_free(suite, &across_b);
        suite_free(suite, &a);
        suite_free(suite, &b);
    }
}

static void case_matmul(struct suite *suite, const struct op_case *row) {
    for (enum dtype a = DTYPE_BOOL; a < DTYPE_COUNT; a++) {
        for (enum dtype b = DTYPE_BOOL; b < DTYPE_COUNT; b++) {
            if (op_case_takes(row, reference_promote(a, b)) || (value_is_f8(a) && value_is_f8(b)))
                for (int i = 0; i < SUITE_REPEAT(a == b ? 40 : 4); i++)
                    product_random(suite, a, b);
        }
        if (op_case_takes(row, a))
            product_transposed(suite, a, 17, 33, 9);
    }
    product_transposed(suite, DTYPE_F32, SUITE_REPEAT(150), 131, 120);
    product_transposed(suite, DTYPE_F64, SUITE_REPEAT(90), 65, 64);
    product_transposed(suite, DTYPE_F32, 2, SUITE_REPEAT(9000), 3);
    for (int i = 0; i < SUITE_REPEAT(8); i++)
        product_of_vectors(suite, i % 2 ? DTYPE_F64 : DTYPE_F32, 1 + suite_below(suite, 40),
                           1 + suite_below(suite, 300));
    struct values *ones = values_create(DTYPE_F32, 1, (int64_t[]){1600000}); /* so many that a device may cut it */
    for (int64_t k = 0; k < ones->count; k++)
        ones->f[k] = 1;
    struct sample x = suite_upload(suite, ones), y = suite_unary(suite, OP_SQUARE, &x);
    product_once(suite, &x, &y);
}

const struct op_case op_case_matmul = {case_matmul, OP_MATMUL, FILL_ORDINARY};
