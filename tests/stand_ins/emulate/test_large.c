/* Shapes for which kernels have ways that those of the other tests are too small for: tiles that transpose, sums and rows
 * that are cut into parts, rows that no block can hold; and more of them than a grid has blocks. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/device/cases.h"

struct large_row {
    unsigned opcode;
    bool turned; /* the first input is a transposed view: its memory has the last two extents exchanged */
    int rank;
    int64_t shape[3]; /* of the first input */
    unsigned n_ints;
    int64_t ints[2];
    int64_t other[3]; /* of the second input, of the same rank; zeros where there is none */
    int64_t skipped;  /* the first input begins behind so many elements of its memory; rank 1 */
};

static const struct large_row transposes[] = {
    {OP_COPY, true, 3, {3, 130, 70}, .n_ints = 0},
    {OP_COPY, true, 2, {33, 64}, .n_ints = 0},
    {OP_COPY, true, 3, {5, 32, 257}, .n_ints = 0},
    {OP_COPY, true, 3, {20, 130, 70}, .n_ints = 0},
    {OP_COPY, true, 2, {128, 192}, .n_ints = 0},
    {OP_COPY, true, 3, {2, 64, 96}, .n_ints = 0},
    {OP_ADD, true, 3, {3, 130, 70}, .other = {3, 130, 70}},
    {OP_ADD, true, 2, {7, 3001}, .other = {1, 3001}},
};

static const struct large_row reductions[] = {
    {OP_SUM, false, 1, {100003}, 2, {0, 0}},
    {OP_SUM, false, 2, {5000, 40}, 2, {0, 0}},
    {OP_SUM, true, 2, {40, 5000}, 2, {1, 1}},
    {OP_SUM, true, 3, {2, 200, 300}, 2, {0, 0}},
    {OP_SUM, false, 2, {70, 8200}, 2, {0, 1}},
    {OP_MEAN, false, 2, {3, 60001}, 2, {0, 1}},
    {OP_MEAN, false, 2, {30000, 7}, 2, {0, 0}},
    {OP_MAX, false, 1, {200003}, 2, {0, 0}},
    {OP_MIN, false, 2, {20000, 9}, 2, {0, 0}},
    {OP_ANY, false, 1, {200003}, 2, {0, 0}},
    {OP_ALL, false, 2, {20000, 9}, 2, {0, 0}},
    {OP_ARGMAX, false, 1, {200003}, 2, {0, 0}},
    {OP_ARGMIN, false, 2, {20000, 9}, 2, {0, 0}},
    {OP_ARGMAX, true, 2, {3, 30001}, 2, {1, 1}},
    {OP_ARGMAX, false, 2, {3000, 36}, 2, {0, 0}},
    {OP_MAX, false, 2, {700, 132}, 2, {0, 0}},
    {OP_SUM, false, 3, {30, 40, 44}, 2, {0, 1}},
    {OP_SUM, false, 1, {100003}, 2, {0, 0}, .skipped = 3},
    {OP_MEAN, false, 1, {100001}, 2, {0, 0}, .skipped = 1},
    {OP_MAX, false, 1, {200001}, 2, {0, 0}, .skipped = 5},
    {OP_ARGMIN, false, 1, {200003}, 2, {0, 0}, .skipped = 7},
};

static const struct large_row softmaxes[] = {
    {OP_SOFTMAX, false, 2, {3, 40000}, 1, {1}},     {OP_SOFTMAX, false, 2, {2, 16387}, 1, {1}},
    {OP_SOFTMAX, false, 2, {3, 9000}, 1, {1}},      {OP_LOG_SOFTMAX, false, 2, {2, 16384}, 1, {1}},
    {OP_SOFTMAX, false, 2, {40000, 3}, 1, {0}},     {OP_SOFTMAX, false, 2, {2000, 40}, 1, {0}},
    {OP_SOFTMAX, false, 2, {50, 70}, 1, {0}},       {OP_SOFTMAX, false, 2, {9, 1000}, 1, {1}},
    {OP_SOFTMAX, false, 2, {70, 3000}, 1, {1}},     {OP_LOG_SOFTMAX, true, 2, {3, 30000}, 1, {1}},
    {OP_LOG_SOFTMAX, false, 2, {3, 30000}, 1, {1}}, {OP_LOG_SOFTMAX, false, 2, {1200, 33}, 1, {0}},
};

/* So deep that they are cut (matmul_tiled.cu cuts from 512 on), and no deeper: each tile of 64 by 64 is walked over whole. */
static const struct large_row products[] = {
    {OP_MATMUL, false, 2, {3, 650}, .other = {650, 4}},
    {OP_MATMUL, true, 2, {130, 300}, .other = {300, 5}},
    {OP_MATMUL, false, 3, {2, 70, 100}, .other = {2, 100, 65}},
    {OP_LINEAR, false, 2, {3, 650}, 1, {OP_ACTIVATION_RELU}, {4, 650}},
    {OP_LINEAR, true, 2, {130, 300}, 1, {OP_ACTIVATION_NONE}, {70, 300}},
};

static struct sample large_input(struct suite *suite, const struct op_case *kind, const struct large_row *row,
                                 enum dtype dtype) {
    int64_t stored[3] = {row->shape[0], row->shape[1], row->shape[2]};
    if (row->skipped) {
        stored[0] += row->skipped;
        struct sample memory = suite_sample(suite, dtype, row->rank, stored, kind->fill);
        struct sample view = suite_attributes(
            suite, OP_SLICE, &memory, SUITE_ATTRIBUTES(slice, .ranges = SUITE_LIST(row->skipped, OP_SLICE_NONE, 1)));
        suite_free(suite, &memory);
        return view;
    }
    if (!row->turned)
        return suite_sample(suite, dtype, row->rank, stored, kind->fill);
    stored[row->rank - 2] = row->shape[row->rank - 1];
    stored[row->rank - 1] = row->shape[row->rank - 2];
    struct sample memory = suite_sample(suite, dtype, row->rank, stored, kind->fill);
    struct sample view = suite_unary(suite, OP_MATRIX_TRANSPOSE, &memory);
    suite_free(suite, &memory);
    return view;
}

static void large_run(struct suite *suite, const struct op_case *kind, const struct large_row *row, enum dtype dtype) {
    struct sample x = large_input(suite, kind, row, dtype), y, result;
    const struct sample *inputs[] = {&x, &y};
    bool two = row->other[0] != 0;
    if (two)
        y = suite_sample(suite, dtype, row->rank, row->other, kind->fill);
    struct suite_call call = {.opcode = row->opcode, .n_inputs = two ? 2 : 1, .inputs = inputs};
    call.attributes.n_ints = op_ints_write(call.attributes.ints, &(struct op_ints){row->n_ints, row->ints});
    result = suite_run(suite, &call);
    suite_check(suite, &result);
    suite_free(suite, &result);
    suite_free(suite, &x);
    if (two)
        suite_free(suite, &y);
}

/* Each row with every dtype that its operation takes. */
static void large_agrees(const struct large_row *rows, size_t n) {
    struct suite suite;
    suite_open(&suite, 77);
    for (size_t i = 0; i < n; i++) {
        const struct op_case *kind = op_case_find(rows[i].opcode);
        for (int dtype = 1; dtype < DTYPE_COUNT; dtype++)
            if (op_case_takes(kind, (enum dtype)dtype))
                large_run(&suite, kind, &rows[i], (enum dtype)dtype);
    }
    suite_close(&suite);
}

Test(large, transposed_operands, .timeout = 120) {
    large_agrees(transposes, sizeof transposes / sizeof *transposes);
}

Test(large, reductions_in_parts, .timeout = 120) {
    large_agrees(reductions, sizeof reductions / sizeof *reductions);
}

Test(large, softmax_of_long_rows, .timeout = 120) {
    large_agrees(softmaxes, sizeof softmaxes / sizeof *softmaxes);
}

/* One row each, since an emulated product takes its time. */
Test(large, product_with_long_sums, .timeout = 120) {
    large_agrees(&products[0], 1);
}

Test(large, product_of_transposed, .timeout = 120) {
    large_agrees(&products[1], 1);
}

Test(large, products_in_batches, .timeout = 120) {
    large_agrees(&products[2], 1);
}

Test(large, linear_with_long_sums, .timeout = 120) {
    large_agrees(&products[3], 1);
}

Test(large, linear_of_transposed, .timeout = 120) {
    large_agrees(&products[4], 1);
}

/* The one at the first position is told, whichever blocks and threads meet others. */
Test(large, first_of_many_bad_indices, .timeout = 120) {
    enum { ROUNDS = 40, COUNT = 40000, CLASSES = 7 };
    struct suite suite;
    suite_open(&suite, 78);
    for (int round = 0; round < ROUNDS; round++) {
        struct values *values = values_create(DTYPE_I64, 1, (int64_t[]){COUNT});
        struct failure failure = {0};
        char text[64];
        uint64_t result;
        int64_t first = suite_below(&suite, COUNT - 1), step = 1 + suite_below(&suite, round % 2 ? 3000 : 2);
        memset(values->i, 0, COUNT * sizeof *values->i);
        for (int64_t k = first; k < COUNT; k += step)
            values->i[k] = CLASSES + k;
        struct sample indices = suite_upload(&suite, values);
        struct op_request request = {.opcode = OP_ONE_HOT,
                                     .n_inputs = 1,
                                     .inputs = &indices.id,
                                     .n_ints = 2,
                                     .ints = (int64_t[]){CLASSES, DTYPE_U8}};
        cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK);
        cr_assert_eq(suite_outcome(&suite, result, &failure), STATUS_OUT_OF_RANGE);
        snprintf(text, sizeof text, "index %ld at position %ld ", (long)(CLASSES + first), (long)first);
        cr_assert(strstr(failure.message, text), "%s; expected %s", failure.message, text);
        suite_release(&suite, result);
        suite_free(&suite, &indices);
    }
    suite_close(&suite);
}
