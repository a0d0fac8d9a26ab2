/* Products of floats whose extents, strides and addresses are odd: right, and left to the library where a device has one,
 * whose own kernel for the rest is slower by orders of magnitude; and with the same bits whatever memory is free. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/cases.h"

static const struct shape_row {
    int64_t m, k, n;
} shapes[] = {
    {1, 1, 1},     {3, 5, 7},    {65, 67, 69}, {1, 2049, 33}, {33, 2049, 1}, {1, 999, 1},  {257, 1, 129},
    {129, 3, 513}, {2, 8191, 2}, {17, 64, 63}, {64, 17, 64},  {65, 63, 64},  {1, 64, 501}, {501, 64, 1},
    {64, 64, 96},  {5, 16, 16},  {16, 16, 5},  {16, 5, 16},   {100, 31, 99}, {31, 32, 33}, {40, 1000, 24},
};

static struct device_info device_now(struct suite *suite) {
    struct engine_stats stats;
    suite_sync(suite);
    engine_stats(suite->engine, &stats);
    return stats.device;
}

static uint64_t slow_products(struct suite *suite) {
    return device_now(suite).products_slow;
}

/* (rows, columns) out of a matrix with `more` rows and columns, beginning behind them; `turned`: stored the other way. */
static struct sample odd_matrix(struct suite *suite, enum dtype dtype, int64_t rows, int64_t columns, int64_t more,
                                bool turned) {
    int64_t shape[2] = {rows + more, columns + more};
    if (turned) {
        shape[0] = columns + more;
        shape[1] = rows + more;
    }
    struct sample x = suite_sample(suite, dtype, 2, shape, FILL_ORDINARY);
    struct sample cut =
        suite_attributes(suite, OP_SLICE, &x,
                         SUITE_ATTRIBUTES(slice, .ranges = SUITE_LIST(more, OP_SLICE_NONE, 1, more, OP_SLICE_NONE, 1)));
    suite_free(suite, &x);
    if (!turned)
        return cut;
    x = suite_unary(suite, OP_MATRIX_TRANSPOSE, &cut);
    suite_free(suite, &cut);
    return x;
}

static void odd_product(struct suite *suite, enum dtype dtype, const struct shape_row *shape, unsigned way,
                        bool linear) {
    int64_t more = way >> 2 & 1;
    struct op_packed attributes = {.n_ints = 0};
    struct sample a = odd_matrix(suite, dtype, shape->m, shape->k, more, way & 1);
    struct sample b = linear ? odd_matrix(suite, dtype, shape->n, shape->k, more, way & 2)
                             : odd_matrix(suite, dtype, shape->k, shape->n, more, way & 2);
    struct sample bias = suite_sample(suite, dtype, 1, &shape->n, FILL_ORDINARY);
    const struct sample *inputs[] = {&a, &b, &bias};
    if (linear)
        attributes = SUITE_ATTRIBUTES(linear, .activation = OP_ACTIVATION_RELU);
    struct sample result = suite_run(suite, &(struct suite_call){.opcode = linear ? OP_LINEAR : OP_MATMUL,
                                                                 .n_inputs = linear ? 3 : 2,
                                                                 .inputs = inputs,
                                                                 .attributes = attributes});
    case_settle(suite, &result);
    suite_free(suite, &a);
    suite_free(suite, &b);
    suite_free(suite, &bias);
}

static void odd_products(enum dtype dtype) {
    struct suite suite;
    unsigned refused = 0;
    suite_open(&suite, 4711);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (unsigned way = 0; way < 16; way++) {
            uint64_t before = slow_products(&suite);
            odd_product(&suite, dtype, &shapes[i], way & 7, way >> 3);
            if (slow_products(&suite) == before)
                continue;
            refused++;
            fprintf(stderr, "slow: %s (%" PRId64 ", %" PRId64 ", %" PRId64 "), way %u\n", dtype_name(dtype),
                    shapes[i].m, shapes[i].k, shapes[i].n, way);
        }
    cr_expect_eq(refused, 0, "%u products of %s are slow", refused, dtype_name(dtype));
    suite_close(&suite);
}

Test(products, odd_ones_of_f16_are_the_librarys, .timeout = 120) {
    odd_products(DTYPE_F16);
}
Test(products, odd_ones_of_bf16_are_the_librarys, .timeout = 120) {
    odd_products(DTYPE_BF16);
}
Test(products, odd_ones_of_f32_are_the_librarys, .timeout = 120) {
    odd_products(DTYPE_F32);
}
Test(products, odd_ones_of_f64_are_the_librarys, .timeout = 120) {
    odd_products(DTYPE_F64);
}

/* ---- many batches ---- */

/* (first, second, rows, columns) out of memory where the axes of batches lie inside of the matrices, so that they do not merge; or, `repeated`, out of
 * matrices that the second axis has in common. */
static struct sample far_batches(struct suite *suite, int64_t first, int64_t second, bool repeated) {
    enum { ROWS = 3, COLUMNS = 4 };
    const int64_t apart[4] = {second, ROWS, first, COLUMNS}, common[4] = {first, 1, ROWS, COLUMNS};
    struct sample x = suite_sample(suite, DTYPE_F32, 4, repeated ? common : apart, FILL_ORDINARY);
    if (repeated)
        return x;
    struct sample turned =
        suite_attributes(suite, OP_PERMUTE_DIMS, &x, SUITE_ATTRIBUTES(permute_dims, .axes = SUITE_LIST(2, 0, 1, 3)));
    suite_free(suite, &x);
    return turned;
}

static void far_product(struct suite *suite, int64_t first, int64_t second, bool repeated) {
    struct sample a = far_batches(suite, first, second, false), b = far_batches(suite, first, second, repeated);
    struct sample turned = suite_unary(suite, OP_MATRIX_TRANSPOSE, &b);
    const struct sample *inputs[] = {&a, &turned};
    struct sample result = suite_run(suite, &(struct suite_call){.opcode = OP_MATMUL, .n_inputs = 2, .inputs = inputs});
    case_settle(suite, &result);
    suite_free(suite, &a);
    suite_free(suite, &b);
    suite_free(suite, &turned);
}

/* The thread that calls the library serves everybody. */
Test(products, of_many_batches_are_few_calls, .timeout = 120) {
    enum { CALLS_MOST = 256 };
    static const struct {
        int64_t first, second;
        bool repeated;
    } rows[] = {{7, 5, false}, {100, 90, false}, {100, 90, true}, {300, 280, true}};
    struct suite suite;
    suite_open(&suite, 4712);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct device_info before = device_now(&suite);
        far_product(&suite, rows[i].first, rows[i].second, rows[i].repeated);
        struct device_info now = device_now(&suite);
        uint64_t calls = now.products_library - before.products_library,
                 slow = now.products_slow - before.products_slow;
        cr_expect_leq(calls + slow, CALLS_MOST, "%" PRIu64 " calls for %" PRId64 " times %" PRId64 " batches",
                      calls + slow, rows[i].first, rows[i].second);
        if (!rows[i].repeated)
            cr_expect_leq(calls + slow, 64, "copied operands are one batch, or those of one axis are few");
    }
    suite_close(&suite);
}

/* ---- operands in common ---- */

/* Several rectangles of one product, and several batches, have the same part of b; or each batch has its own. bf16 is packed once for those. */
Test(products, of_batches_with_one_right_operand_and_with_many, .timeout = 120) {
    enum { BATCHES = 4, ROWS = 270, DEPTH = 1100, COLUMNS = 72 };
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    struct suite suite;
    suite_open(&suite, 4714);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (unsigned way = 0; way < 4; way++) {
            const bool many = way & 1, turned = way & 2;
            const int64_t left[3] = {BATCHES, ROWS, DEPTH};
            const int64_t right[3] = {many ? BATCHES : 1, turned ? COLUMNS : DEPTH, turned ? DEPTH : COLUMNS};
            struct sample a = suite_sample(&suite, dtypes[i], 3, left, FILL_ORDINARY);
            struct sample b = suite_sample(&suite, dtypes[i], 3, right, FILL_ORDINARY);
            struct sample across = turned ? suite_unary(&suite, OP_MATRIX_TRANSPOSE, &b) : b;
            struct sample result = suite_binary(&suite, OP_MATMUL, &a, &across);
            case_settle(&suite, &result);
            suite_free(&suite, &a);
            suite_free(&suite, &b);
            if (turned)
                suite_free(&suite, &across);
        }
    suite_close(&suite);
}

/* ---- memory ---- */

/* (rows, columns) out of every other row and column of a matrix: a library gets a copy of it. */
static struct sample scattered_matrix(struct suite *suite, enum dtype dtype, int64_t rows, int64_t columns) {
    const int64_t shape[2] = {2 * rows, 2 * columns};
    struct sample x = suite_sample(suite, dtype, 2, shape, FILL_ORDINARY);
    struct sample cut = suite_attributes(
        suite, OP_SLICE, &x, SUITE_ATTRIBUTES(slice, .ranges = SUITE_LIST(0, OP_SLICE_NONE, 2, 0, OP_SLICE_NONE, 2)));
    suite_free(suite, &x);
    return cut;
}

enum { SCRATCH_ROWS = 3, SCRATCH_DEPTH = 1300, SCRATCH_COLUMNS = 5, SCRATCH_SESSIONS = 3 };

struct scratch_bits {
    uint8_t of[SCRATCH_SESSIONS][SCRATCH_ROWS * SCRATCH_COLUMNS * 8];
};

/* The results of a product that wants scratch memory, in each of some sessions of one device. */
static void scratch_products(enum dtype dtype, struct scratch_bits *bits) {
    struct suite suite;
    memset(bits, 0, sizeof *bits);
    suite_open(&suite, 4713);
    for (unsigned i = 0; i < SCRATCH_SESSIONS; i++) {
        struct sample a = scattered_matrix(&suite, dtype, SCRATCH_ROWS, SCRATCH_DEPTH);
        struct sample b = scattered_matrix(&suite, dtype, SCRATCH_DEPTH, SCRATCH_COLUMNS);
        struct sample result = suite_binary(&suite, OP_MATMUL, &a, &b);
        struct values *values = suite_get(&suite, &result);
        cr_assert_leq(values_bytes(values), sizeof bits->of[i]);
        values_encode(values, bits->of[i]);
        values_destroy(values);
        suite_free(&suite, &result);
        suite_free(&suite, &a);
        suite_free(&suite, &b);
        suite_restart(&suite);
    }
    suite_close(&suite);
}

/* Only the emulated device can be told to have no free memory. */
Test(products, have_the_same_bits_when_no_memory_is_free, .timeout = 120) {
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_F64};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct scratch_bits usual, starved;
        scratch_products(dtypes[i], &usual);
        setenv("EMULATED_NO_SCRATCH", "1", 1);
        scratch_products(dtypes[i], &starved);
        unsetenv("EMULATED_NO_SCRATCH");
        for (unsigned k = 0; k < SCRATCH_SESSIONS; k++)
            cr_expect_arr_eq(usual.of[k], starved.of[k], sizeof usual.of[k], "%s, session %u", dtype_name(dtypes[i]),
                             k);
    }
}
