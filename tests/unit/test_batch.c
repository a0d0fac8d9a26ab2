#include "proto/wire/batch.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/random.h"

/* An add with a label, a full, and a free that consumes. */
static uint64_t heads[3];
static uint64_t inputs[] = {5, 6, 7};
static int64_t ints[] = {DTYPE_F32, 0, 16};
static double floats[] = {1.5};
static char *labels[] = {(char *)"forward/sum"};

static Tensord__Batch sample(void) {
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    heads[0] = batch_head(OP_ADD, 2, 0, 0, BATCH_FLAG_LABEL, 2);
    heads[1] = batch_head(OP_FULL, 0, 3, 1, 0, 0);
    heads[2] = batch_head(OP_FREE, 1, 0, 0, 0, 0);
    batch.n_heads = 3;
    batch.heads = heads;
    batch.n_inputs = 3;
    batch.inputs = inputs;
    batch.n_ints = 3;
    batch.ints = ints;
    batch.n_floats = 1;
    batch.floats = floats;
    batch.n_labels = 1;
    batch.labels = labels;
    return batch;
}

/* What the last call says after as many good ones as there are. */
static int walk(const Tensord__Batch *batch, struct fault *fault) {
    struct batch_cursor cursor;
    struct op_request op;
    int more;
    batch_cursor_init(&cursor, batch);
    while ((more = batch_cursor_next(&cursor, &op, fault)) > 0) {
    }
    return more;
}

Test(batch, operations_come_with_their_parts_of_the_columns) {
    Tensord__Batch batch = sample();
    struct batch_cursor cursor;
    struct op_request op;
    struct fault fault;
    batch_cursor_init(&cursor, &batch);
    cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 1);
    cr_assert(op.opcode == OP_ADD && op.n_inputs == 2 && op.n_ints == 0 && op.n_floats == 0 && op.consume == 2);
    cr_assert_eq(op.inputs, inputs);
    cr_assert_str_eq(op.label, "forward/sum");
    cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 1);
    cr_assert(op.opcode == OP_FULL && op.n_inputs == 0 && op.n_ints == 3 && op.n_floats == 1 && op.consume == 0);
    cr_assert(op.ints == ints && op.floats == floats && op.label == NULL);
    cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 1);
    cr_assert(op.opcode == OP_FREE && op.inputs == inputs + 2);
    cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 0);
    cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 0, "the end stays the end");
}

Test(batch, an_empty_batch_is_at_its_end) {
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    struct fault fault;
    cr_assert_eq(walk(&batch, &fault), 0);
}

Test(batch, columns_that_nobody_uses_may_be_missing) {
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    struct fault fault;
    heads[0] = batch_head(OP_ADD, 0, 0, 0, 0, 0);
    batch.n_heads = 1;
    batch.heads = heads;
    cr_assert_eq(walk(&batch, &fault), 0);
}

Test(batch, a_head_holds_all_its_fields) {
    uint64_t head = batch_head(0xabcd, 255, 254, 253, 1, 0xffff);
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    static uint64_t many[255];
    static int64_t many_ints[254];
    static double many_floats[253];
    struct batch_cursor cursor;
    struct op_request op;
    batch.n_heads = 1, batch.heads = &head, batch.n_inputs = 255, batch.inputs = many;
    batch.n_ints = 254, batch.ints = many_ints, batch.n_floats = 253, batch.floats = many_floats;
    batch.n_labels = 1, batch.labels = labels;
    batch_cursor_init(&cursor, &batch);
    cr_assert_eq(batch_cursor_next(&cursor, &op, NULL), 1);
    cr_assert(op.opcode == 0xabcd && op.n_inputs == 255 && op.n_ints == 254 && op.n_floats == 253);
    cr_assert_eq(op.consume, 0xffff);
}

Test(batch, a_column_that_is_too_short_is_named) {
    struct fault fault;
    Tensord__Batch batch = sample();
    batch.n_inputs = 1;
    cr_assert_eq(walk(&batch, &fault), -1);
    cr_assert_eq(fault.code, STATUS_PROTOCOL);
    cr_assert_str_eq(fault.message, "operation 0 of the batch owns 2 inputs, 1 are left");
    batch = sample();
    batch.n_ints = 2;
    cr_assert_eq(walk(&batch, &fault), -1);
    cr_assert_str_eq(fault.message, "operation 1 of the batch owns 3 ints, 2 are left");
    batch = sample();
    batch.n_floats = 0;
    cr_assert_eq(walk(&batch, &fault), -1);
    cr_assert_str_eq(fault.message, "operation 1 of the batch owns 1 floats, 0 are left");
    batch = sample();
    batch.n_labels = 0;
    cr_assert_eq(walk(&batch, &fault), -1);
    cr_assert_str_eq(fault.message, "operation 0 of the batch owns 1 labels, 0 are left");
}

Test(batch, a_column_that_is_not_used_up_is_malformed) {
    struct fault fault;
    for (int column = 0; column < 4; column++) {
        Tensord__Batch batch = sample();
        heads[0] = batch_head(OP_ADD, column == 0 ? 1 : 2, 0, 0, column == 3 ? 0 : BATCH_FLAG_LABEL, 0);
        heads[1] = batch_head(OP_FULL, 0, column == 1 ? 2 : 3, column == 2 ? 0 : 1, 0, 0);
        cr_assert_eq(walk(&batch, &fault), -1, "column %d", column);
        cr_assert_eq(fault.code, STATUS_PROTOCOL);
        cr_assert_not_null(strstr(fault.message, "belong to no operation"));
    }
}

Test(batch, consumed_inputs_that_are_not_there_are_malformed) {
    struct fault fault;
    Tensord__Batch batch = sample();
    heads[0] = batch_head(OP_ADD, 2, 0, 0, BATCH_FLAG_LABEL, 4);
    cr_assert_eq(walk(&batch, &fault), -1);
    heads[0] = batch_head(OP_ADD, 2, 0, 0, BATCH_FLAG_LABEL, 3);
    cr_assert_eq(walk(&batch, &fault), 0);
}

/* A wide concat of so many inputs, then the sample's full. */
enum { WIDE_INPUTS = 16 + 64 + 3, MANY_INPUTS = 1000 };
static uint64_t wide[1 + (OP_INPUTS_MAX - 16) / 64 + 1], many[OP_INPUTS_MAX + 256];
static int64_t many_ints[OP_INTS_MAX + 256];

static Tensord__Batch wide_sample(unsigned n) {
    Tensord__Batch batch = sample();
    heads[0] = batch_head(OP_CONCAT, n, 300, 0, BATCH_FLAG_WIDE, 1);
    memset(wide, 0, sizeof wide);
    wide[0] = batch_wide(n, 300, 0, 1);
    batch.n_heads = 2;
    batch.n_inputs = n;
    batch.inputs = many;
    batch.n_ints = 303;
    batch.ints = many_ints;
    batch.n_labels = 0;
    batch.n_wide = batch_wide_entries(n);
    batch.wide = wide;
    return batch;
}

Test(batch, wide_operations_have_more_than_a_head_has_room_for) {
    const unsigned counts[] = {0, 1, 16, 17, 80, 81, 255, 256, MANY_INPUTS, OP_INPUTS_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        Tensord__Batch batch = wide_sample(counts[i]);
        struct batch_cursor cursor;
        struct op_request op;
        struct fault fault;
        heads[0] &= ~(UINT64_C(0xffff) << 48); /* nothing is consumed */
        batch_cursor_init(&cursor, &batch);
        cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 1, "%s", fault.message);
        cr_assert(op.opcode == OP_CONCAT && op.n_inputs == counts[i] && op.n_ints == 300 && op.n_floats == 0);
        cr_assert_eq(cursor.wide, batch.n_wide);
        cr_assert_eq(op.consume_more, counts[i] > 16 ? wide + 1 : NULL);
        cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 1, "%s", fault.message);
        cr_assert(op.opcode == OP_FULL && !op.consume_more && op.ints == many_ints + 300);
        cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 0);
    }
}

Test(batch, wide_operations_have_any_number_of_outputs) {
    const unsigned counts[] = {1, 2, 64, 65, 128, 1000, OP_OUTPUTS_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        Tensord__Batch batch = wide_sample(MANY_INPUTS);
        struct batch_cursor cursor;
        struct op_request op;
        struct fault fault;
        heads[0] |= batch_head_outputs(counts[i]);
        wide[0] = batch_wide(MANY_INPUTS, 300, 0, counts[i]);
        batch_cursor_init(&cursor, &batch);
        cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 1, "%s", fault.message);
        cr_assert_eq(op_request_outputs(&op), counts[i]);
        cr_assert_eq(op.n_inputs, MANY_INPUTS);
    }
}

Test(batch, wide_operations_consume_any_of_their_inputs) {
    Tensord__Batch batch = wide_sample(WIDE_INPUTS);
    struct batch_cursor cursor;
    struct op_request op;
    struct fault fault;
    wide[1] = UINT64_C(1) << 63; /* input 79 */
    wide[2] = 4;                 /* input 82, the last one */
    batch_cursor_init(&cursor, &batch);
    cr_assert_eq(batch_cursor_next(&cursor, &op, &fault), 1);
    for (unsigned i = 0; i < WIDE_INPUTS; i++)
        cr_assert_eq(op_consumes(op.consume, op.consume_more, i), i == 0 || i == 79 || i == 82, "%u", i);
    wide[2] = 8;
    cr_assert_eq(walk(&batch, &fault), -1);
    cr_assert_str_eq(fault.message, "operation 0 of the batch consumes inputs after its 83");
}

Test(batch, wide_heads_that_do_not_fit_are_malformed) {
    struct fault fault;
    Tensord__Batch batch = wide_sample(WIDE_INPUTS);
    batch.n_wide = 0;
    cr_assert_eq(walk(&batch, &fault), -1);
    cr_assert_str_eq(fault.message, "operation 0 of the batch owns 1 wide, 0 are left");
    batch.n_wide = 2;
    cr_assert_eq(walk(&batch, &fault), -1);
    cr_assert_str_eq(fault.message, "operation 0 of the batch owns 3 wide, 2 are left");
    batch.n_wide = 4;
    cr_assert_eq(walk(&batch, &fault), -1);
    cr_assert_not_null(strstr(fault.message, "1 wide of the batch belong to no operation"));
    batch.n_wide = 3;
    batch.n_inputs--;
    cr_assert_eq(walk(&batch, &fault), -1);
    cr_assert_str_eq(fault.message, "operation 0 of the batch owns 83 inputs, 82 are left");
    batch = wide_sample(WIDE_INPUTS);
    wide[0] |= UINT64_C(1) << 48;
    cr_assert_eq(walk(&batch, &fault), -1);
    cr_assert_not_null(strstr(fault.message, "unknown bits in its wide head"));
    const uint64_t counts[] = {batch_wide(OP_INPUTS_MAX + 256, 0, 0, 1), batch_wide(0, OP_INTS_MAX + 256, 0, 1),
                               batch_wide(0, 0, OP_FLOATS_MAX + 256, 1), batch_wide(0, 0, 0, OP_OUTPUTS_MAX + 1),
                               (UINT64_C(1) << 48) - 1};
    for (int i = 0; i < 5; i++) {
        batch = wide_sample(WIDE_INPUTS);
        wide[0] = counts[i];
        cr_assert_eq(walk(&batch, &fault), -1);
        cr_assert_not_null(strstr(fault.message, "at most 8192, 1024, 1024 and 8192 are possible"));
    }
}

Test(batch, long_labels_are_malformed) {
    struct fault fault;
    char text[BATCH_LABEL_MAX + 2];
    char *one = text;
    Tensord__Batch batch = sample();
    batch.labels = &one;
    memset(text, 'x', sizeof(text));
    text[BATCH_LABEL_MAX + 1] = 0;
    cr_assert_eq(walk(&batch, &fault), -1);
    text[BATCH_LABEL_MAX] = 0;
    cr_assert_eq(walk(&batch, &fault), 0);
}

Test(batch, garbage_never_leads_out_of_the_columns) {
    uint64_t state = 7;
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[200];
        struct fault fault;
        size_t n = random_next(&state) % sizeof(bytes);
        for (size_t i = 0; i < n; i++) {
            bytes[i] = (uint8_t)random_next(&state);
        }
        if (n > 20) { /* a heads column, so that there is something to walk */
            bytes[0] = 4 << 3 | 2;
            bytes[1] = 16;
        }
        Tensord__Batch *batch = tensord__batch__unpack(NULL, n, bytes);
        if (batch) {
            int end = walk(batch, &fault);
            cr_assert(end == 0 || (end == -1 && fault.code == STATUS_PROTOCOL));
            tensord__batch__free_unpacked(batch, NULL);
        }
    }
}
