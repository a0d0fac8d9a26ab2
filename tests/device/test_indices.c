/* Indices out of range show on the device only: they poison what is computed from them, and nothing else. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/device/suite.h"

static struct sample index_values(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, int64_t at,
                                  int64_t bad) {
    struct values *values = values_create(dtype, rank, shape);
    for (int64_t k = 0; k < values->count; k++)
        values->i[k] = k % 3;
    values->i[at] = bad;
    return suite_upload(suite, values);
}

struct bad_index {
    unsigned opcode;
    int64_t bad;
    const char *text, *where;
};

static const char none_of_axis[] = "is out of range for axis 0 of extent 5", no_class[] = "is none of 5 classes";

/* x has 5 rows; 5, 6 and -1 are not among them. */
static const struct bad_index bad_indices[] = {
    {OP_TAKE, 5, "5", none_of_axis},
    {OP_TAKE, -1, "-1", none_of_axis},
    {OP_TAKE, INT64_MAX, "9223372036854775807", none_of_axis},
    {OP_TAKE, INT64_MIN, "-9223372036854775808", none_of_axis},
    {OP_TAKE_ALONG_AXIS, 6, "6", none_of_axis},
    {OP_TAKE_ALONG_AXIS, -2, "-2", none_of_axis},
    {OP_ONE_HOT, 5, "5", no_class},
    {OP_ONE_HOT, -1, "-1", no_class},
    {OP_SCATTER, 5, "5", none_of_axis},
    {OP_SCATTER, INT64_MIN, "-9223372036854775808", none_of_axis},
    {OP_SCATTER_ADD, 6, "6", none_of_axis},
    {OP_SCATTER_ADD, -1, "-1", none_of_axis},
};

static int take_bad(struct suite *suite, const struct bad_index *row, const struct sample *x, uint64_t *result) {
    bool hot = row->opcode == OP_ONE_HOT, writes = row->opcode == OP_SCATTER || row->opcode == OP_SCATTER_ADD;
    bool along = writes || row->opcode == OP_TAKE_ALONG_AXIS;
    struct sample indices =
        index_values(suite, DTYPE_I64, along ? 2 : 1, along ? (int64_t[]){40, 1} : (int64_t[]){40}, 17, row->bad);
    struct sample values = suite_sample(suite, DTYPE_F32, 0, NULL, FILL_ORDINARY);
    uint64_t ids[] = {x->id, indices.id, values.id};
    int64_t axis[] = {0}, hot_ints[] = {5, DTYPE_F32};
    struct op_request request = {.opcode = row->opcode,
                                 .n_inputs = hot      ? 1
                                             : writes ? 3
                                                      : 2,
                                 .inputs = hot ? ids + 1 : ids,
                                 .n_ints = hot ? 2 : 1,
                                 .ints = hot ? hot_ints : axis,
                                 .label = "lookup"};
    int code = suite_submit(suite, &request, result);
    suite_forget(&indices);
    suite_forget(&values);
    return code;
}

/* By itself, and in a recorded program. Where indices broadcast, as their columns do here, the position is still theirs. */
Test(indices, one_out_of_range_poisons_the_result_and_names_itself) {
    size_t n = sizeof bad_indices / sizeof *bad_indices;
    for (size_t i = 0; i < 2 * n; i++) {
        struct suite suite;
        struct failure failure;
        uint64_t result;
        const struct bad_index *row = &bad_indices[i % n];
        suite_open(&suite, 8);
        suite.replays |= i >= n;
        struct sample x = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){5, 3}, FILL_ANY);
        cr_assert_eq(take_bad(&suite, row, &x, &result), STATUS_OK, "row %zu: only the device can know", i);
        uint64_t sequence = suite.sequence;
        cr_assert_eq(suite_outcome(&suite, result, &failure), STATUS_OUT_OF_RANGE, "row %zu", i);
        char words[64];
        snprintf(words, sizeof words, "index %s at position 17 ", row->text);
        cr_assert_eq(strncmp(failure.message, words, strlen(words)), 0, "%s", failure.message);
        cr_assert(strstr(failure.message, row->where), "%s", failure.message);
        cr_assert_str_eq(failure.operation, op_info(row->opcode)->name);
        cr_assert_str_eq(failure.label, "lookup");
        cr_assert_eq(failure.sequence, sequence);
        suite_check(&suite, &x);
        suite_close(&suite);
    }
}

/* Rows so long, or so short, that a device may treat them otherwise. */
Test(indices, a_wrong_one_of_rows_is_reported_and_writes_nothing) {
    static const int64_t bad[] = {5, -1, INT64_MIN, 6}, widths[] = {300, 20, 3};
    for (size_t i = 0; i < 3 * sizeof bad / sizeof *bad; i++) {
        struct suite suite;
        struct failure failure;
        uint64_t result;
        suite_open(&suite, 8);
        struct sample x = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){5, widths[i % 3]}, FILL_ORDINARY);
        struct sample values = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){40, widths[i % 3]}, FILL_ORDINARY);
        struct sample indices = index_values(&suite, DTYPE_I64, 2, (int64_t[]){40, 1}, 17, bad[i / 3]);
        struct op_request request = {.opcode = OP_SCATTER_ADD,
                                     .n_inputs = 3,
                                     .inputs = (uint64_t[]){x.id, indices.id, values.id},
                                     .n_ints = 1,
                                     .ints = (int64_t[]){0}};
        cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK);
        cr_expect_eq(suite_outcome(&suite, result, &failure), STATUS_OUT_OF_RANGE, "%lld", (long long)bad[i / 3]);
        suite_forget(&indices);
        suite_check(&suite, &x);
        suite_check(&suite, &values);
        suite_close(&suite);
    }
}

/* Whatever their dtype, and where they lie: one after another, in rows, or as a view that repeats its only column. */
Test(indices, a_wrong_one_is_reported_the_same_in_every_dtype_and_layout) {
    static const enum dtype dtypes[] = {DTYPE_I64, DTYPE_U64, DTYPE_I32, DTYPE_U32,
                                        DTYPE_I16, DTYPE_U16, DTYPE_I8,  DTYPE_U8};
    static const struct {
        int64_t columns, at;
        bool repeats;
        const char *where;
    } layouts[] = {{1, 17, false, "position 17 "}, {3, 52, false, "position 52 "}, {3, 17, true, "position 51 "}};
    static const unsigned opcodes[] = {OP_TAKE_ALONG_AXIS, OP_SCATTER, OP_SCATTER_ADD};
    struct suite suite;
    suite_open(&suite, 8);
    struct sample value = suite_sample(&suite, DTYPE_F32, 0, NULL, FILL_ORDINARY);
    for (size_t i = 0; i < 3 * 3 * sizeof dtypes / sizeof *dtypes; i++) {
        enum dtype dtype = dtypes[i / 9];
        unsigned opcode = opcodes[i % 3], layout = (unsigned)(i / 3 % 3);
        int64_t columns = layouts[layout].columns, wide[] = {40, columns}, axis[] = {0};
        struct sample x = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){5, columns}, FILL_ANY);
        struct sample indices =
            index_values(&suite, dtype, 2, layouts[layout].repeats ? (int64_t[]){40, 1} : wide, layouts[layout].at, 9);
        uint64_t ids[] = {x.id, indices.id, value.id}, result;
        struct op_request broadcast = {
            .opcode = OP_BROADCAST_TO, .n_inputs = 1, .inputs = &indices.id, .n_ints = 2, .ints = wide};
        if (layouts[layout].repeats)
            cr_assert_eq(suite_submit(&suite, &broadcast, &ids[1]), STATUS_OK);
        struct op_request request = {.opcode = opcode,
                                     .n_inputs = opcode == OP_TAKE_ALONG_AXIS ? 2 : 3,
                                     .inputs = ids,
                                     .n_ints = 1,
                                     .ints = axis};
        struct failure failure;
        cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK);
        cr_assert_eq(suite_outcome(&suite, result, &failure), STATUS_OUT_OF_RANGE);
        cr_assert(strstr(failure.message, "index 9 at ") && strstr(failure.message, layouts[layout].where),
                  "%s of %s, layout %u: %s", op_info(opcode)->name, dtype_name(dtype), layout, failure.message);
        suite_forget(&x);
        suite_forget(&indices);
    }
    suite_close(&suite);
}

/* Through views, casts, reductions, products, joins, in-place operations and other streams. */
Test(indices, an_axis_that_counts_from_the_end_is_named_from_the_beginning) {
    struct suite suite;
    struct failure failure;
    uint64_t result;
    suite_open(&suite, 8);
    struct sample x = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){5, 3}, FILL_ANY);
    struct sample indices = index_values(&suite, DTYPE_U8, 1, (int64_t[]){4}, 2, 9);
    uint64_t ids[] = {x.id, indices.id};
    struct op_request request = {.opcode = OP_TAKE, .n_inputs = 2, .inputs = ids, .n_ints = 1, .ints = (int64_t[]){-2}};
    cr_assert_eq(suite_submit(&suite, &request, &result), STATUS_OK);
    cr_assert_eq(suite_outcome(&suite, result, &failure), STATUS_OUT_OF_RANGE);
    cr_assert_str_eq(failure.message, "index 9 at position 2 is out of range for axis 0 of extent 5");
    suite_close(&suite);
}

Test(indices, everything_computed_from_the_result_carries_the_first_cause) {
    struct suite suite;
    struct failure failure;
    struct fault fault;
    uint64_t bad, ids[16], n = 0;
    suite_open(&suite, 8);
    cr_assert_eq(session_stream_open(suite.session, 1, 0, &fault), STATUS_OK);
    struct sample x = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){5, 3}, FILL_ORDINARY);
    cr_assert_eq(take_bad(&suite, &bad_indices[0], &x, &bad), STATUS_OK);
    uint64_t sequence = suite.sequence;
    int64_t all[] = {0}, dtype[] = {DTYPE_I32}, flat[] = {-1}, axis[] = {0};
    const struct op_request chain[] = {
        {.opcode = OP_NEGATIVE, .n_inputs = 1, .consume = 0},
        {.opcode = OP_CAST, .n_inputs = 1, .n_ints = 1, .ints = dtype},
        {.opcode = OP_RESHAPE, .n_inputs = 1, .n_ints = 1, .ints = flat},
        {.opcode = OP_ABS, .n_inputs = 1, .consume = 1, .label = "not me"},
        {.opcode = OP_SUM, .n_inputs = 1, .n_ints = 1, .ints = all},
        {.opcode = OP_STACK, .n_inputs = 1, .n_ints = 1, .ints = axis},
        {.opcode = OP_ADD, .n_inputs = 2},
    };
    uint64_t last = bad;
    for (size_t i = 0; i < sizeof chain / sizeof *chain; i++) {
        uint64_t inputs[] = {last, x.id};
        struct op_request request = chain[i];
        request.inputs = inputs;
        suite.stream = i % 2;
        int code = suite_submit(&suite, &request, &last);
        cr_assert(code == STATUS_OK || code == STATUS_OUT_OF_RANGE, "step %zu: %s", i, status_name(code));
        if (!(i + 1 < sizeof chain / sizeof *chain && chain[i + 1].consume))
            ids[n++] = last;
    }
    suite.stream = 0;
    for (uint64_t i = 0; i < n; i++) {
        cr_assert_eq(suite_outcome(&suite, ids[i], &failure), STATUS_OUT_OF_RANGE, "step %lu", (unsigned long)i);
        cr_assert_str_eq(failure.operation, "take");
        cr_assert_str_eq(failure.label, "lookup");
        cr_assert_eq(failure.sequence, sequence);
    }
    suite_check(&suite, &x);
    suite_close(&suite);
}

Test(indices, the_first_of_two_causes_is_told) {
    struct suite suite;
    struct failure failure;
    uint64_t first, second, sum;
    suite_open(&suite, 8);
    struct sample x = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){5, 3}, FILL_ORDINARY);
    cr_assert_eq(take_bad(&suite, &bad_indices[0], &x, &first), STATUS_OK);
    uint64_t sequence = suite.sequence;
    cr_assert_eq(take_bad(&suite, &bad_indices[1], &x, &second), STATUS_OK);
    uint64_t ids[] = {first, second};
    suite_submit(&suite, &(struct op_request){.opcode = OP_ADD, .n_inputs = 2, .inputs = ids}, &sum);
    cr_assert_eq(suite_outcome(&suite, sum, &failure), STATUS_OUT_OF_RANGE);
    cr_assert_eq(failure.sequence, sequence);
    suite_close(&suite);
}

Test(indices, a_poisoned_input_reused_after_the_fetch_fails_at_once) {
    struct suite suite;
    uint64_t bad, after;
    suite_open(&suite, 8);
    struct sample x = suite_sample(&suite, DTYPE_F32, 2, (int64_t[]){5, 3}, FILL_ORDINARY);
    cr_assert_eq(take_bad(&suite, &bad_indices[1], &x, &bad), STATUS_OK);
    cr_assert_eq(suite_outcome(&suite, bad, NULL), STATUS_OUT_OF_RANGE);
    struct op_request request = {.opcode = OP_NEGATIVE, .n_inputs = 1, .inputs = &bad};
    cr_assert_eq(suite_submit(&suite, &request, &after), STATUS_OUT_OF_RANGE);
    cr_assert_eq(suite_outcome(&suite, after, NULL), STATUS_OUT_OF_RANGE);
    suite_close(&suite);
}

Test(indices, good_and_bad_ones_mixed_a_thousand_times) {
    struct suite suite;
    suite_open(&suite, 8);
    struct sample x = suite_sample(&suite, DTYPE_I32, 2, (int64_t[]){5, 3}, FILL_ANY);
    uint64_t ids[1000];
    bool wrong[1000];
    for (int i = 0; i < 1000; i++) {
        wrong[i] = suite_chance(&suite, 10);
        cr_assert_eq(take_bad(&suite, &(struct bad_index){OP_TAKE, wrong[i] ? 5 : 4, ""}, &x, &ids[i]), STATUS_OK);
    }
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(suite_outcome(&suite, ids[i], NULL), wrong[i] ? STATUS_OUT_OF_RANGE : STATUS_OK, "number %d", i);
    suite_close(&suite);
}
