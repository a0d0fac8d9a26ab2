/* Batches whose columns do not fit together, ids used in the wrong order, and labels. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/hostile.h"

TestSuite(malformed_batches, .timeout = 240);

enum { KEPT = HOSTILE_KEPT, SPARE = HOSTILE_SPARE, NEXT = HOSTILE_NEXT };

/* ---- columns ---- */

/* What lies in the columns, beside what the heads say. */
struct columns {
    uint64_t heads[2];
    size_t n_heads, n_inputs, n_ints, n_floats, n_labels;
    uint64_t first_output, first_sequence;
    uint64_t wide[5];
    size_t n_wide;
};

static void send_columns(struct wire *wire, const struct columns *columns) {
    uint64_t inputs[8] = {KEPT, KEPT, KEPT, KEPT, KEPT, KEPT, KEPT, KEPT};
    int64_t ints[8] = {DTYPE_F32, 0, 1, 1, 1, 1, 1, 1};
    double floats[8] = {0};
    char *labels[2] = {"one", "two"};
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    batch.first_output = columns->first_output ? columns->first_output : NEXT;
    batch.first_sequence = columns->first_sequence ? columns->first_sequence : NEXT;
    batch.n_heads = columns->n_heads;
    batch.heads = (uint64_t *)columns->heads;
    batch.n_inputs = columns->n_inputs;
    batch.inputs = inputs;
    batch.n_ints = columns->n_ints;
    batch.ints = ints;
    batch.n_floats = columns->n_floats;
    batch.floats = floats;
    batch.n_labels = columns->n_labels;
    batch.labels = labels;
    batch.n_wide = columns->n_wide;
    batch.wide = (uint64_t *)columns->wide;
    wire_send(wire, FRAME_BATCH, &batch, NULL, 0);
}

#define HEAD(opcode, inputs, ints, floats, flags)                                                                      \
    ((uint64_t)(opcode) | (uint64_t)(inputs) << 16 | (uint64_t)(ints) << 24 | (uint64_t)(floats) << 32 |               \
     (uint64_t)(flags) << 40)
#define COLUMNS(name, ...)                                                                                             \
    static void name(struct wire *wire) {                                                                              \
        send_columns(wire, &(struct columns){__VA_ARGS__});                                                            \
    }
#define ADD HEAD(OP_ADD, 2, 0, 0, 0)
#define ADD_LABELLED HEAD(OP_ADD, 2, 0, 0, BATCH_FLAG_LABEL)
#define FULL HEAD(OP_FULL, 0, 3, 1, 0)

COLUMNS(inputs_missing, {ADD}, 1)
COLUMNS(one_input_missing, {ADD, ADD}, 2, 3)
COLUMNS(inputs_left_over, {ADD}, 1, 3)
COLUMNS(ints_missing, {FULL}, 1, 0, 2, 1)
COLUMNS(ints_left_over, {FULL}, 1, 0, 4, 1)
COLUMNS(floats_missing, {FULL}, 1, 0, 3, 0)
COLUMNS(floats_left_over, {FULL}, 1, 0, 3, 2)
COLUMNS(label_missing, {ADD_LABELLED}, 1, 2)
COLUMNS(label_left_over, {ADD}, 1, 2, 0, 0, 1)
COLUMNS(labels_without_operations, .n_labels = 2)
COLUMNS(inputs_without_operations, .n_inputs = 8)
COLUMNS(counts_of_255, {HEAD(OP_CONCAT, 255, 255, 255, 0)}, 1, 8, 8, 8)
COLUMNS(no_operations, .n_heads = 0)
#define WIDE(n_inputs, n_ints, n_floats) HEAD(OP_CONCAT, n_inputs, n_ints, n_floats, BATCH_FLAG_WIDE)
COLUMNS(wide_missing, {WIDE(2, 1, 0)}, 1, 2, 1)
COLUMNS(wide_left_over, {HEAD(OP_CONCAT, 2, 1, 0, 0)}, 1, 2, 1, .n_wide = 1)
COLUMNS(wide_of_few, {WIDE(2, 1, 0)}, 1, 2, 1, .n_wide = 1)
COLUMNS(wide_consume_missing, {WIDE(100, 1, 0)}, 1, 8, 8, .n_wide = 1)
COLUMNS(wide_inputs_missing, {WIDE(2, 1, 0)}, 1, 2, 1, .wide = {1}, .n_wide = 5)
COLUMNS(wide_unknown_bits, {WIDE(2, 1, 0)}, 1, 2, 1, .wide = {UINT64_C(1) << 48}, .n_wide = 1)
COLUMNS(wide_too_many, {WIDE(2, 1, 0)}, 1, 2, 1, .wide = {UINT64_MAX >> 28}, .n_wide = 1)
COLUMNS(wide_too_many_outputs, {WIDE(2, 1, 0)}, 1, 2, 1, .wide = {UINT64_C(0xfff) << 36}, .n_wide = 1)
COLUMNS(wide_outputs_of_a_concat, {WIDE(2, 1, 0)}, 1, 2, 1, .wide = {UINT64_C(100) << 36}, .n_wide = 1)
COLUMNS(wide_ints_of_an_add, {WIDE(2, 8, 0) - OP_CONCAT + OP_ADD}, 1, 2, 8, .n_wide = 1)
COLUMNS(head_of_all_ones, {UINT64_MAX}, 1, 8, 8, 8, 2)
COLUMNS(ids_that_wrap_around, {FULL, ADD}, 2, 2, 3, 1, 0, UINT64_MAX)
COLUMNS(largest_sequence, {FULL, ADD}, 2, 2, 3, 1, 0, NEXT, UINT64_MAX)
COLUMNS(sequence_from_the_past, {FULL}, 1, 0, 3, 1, 0, NEXT, 1)
COLUMNS(sequence_with_a_gap, {FULL}, 1, 0, 3, 1, 0, NEXT, 1000)

/* One operation of a thousand inputs; the last one is consumed, and another tensor than the others. */
static void many_inputs_consumed(struct wire *wire) {
    enum { N = 1000, LAST = N - 1 - BATCH_CONSUME_MAX };
    uint64_t head = HEAD(OP_CONCAT, N & 0xff, 1, 0, BATCH_FLAG_WIDE), inputs[N];
    uint64_t wide[1 + (N - BATCH_CONSUME_MAX + 63) / 64] = {0};
    int64_t axis = 0;
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    for (int i = 0; i < N; i++)
        inputs[i] = i == N - 1 ? SPARE : KEPT;
    wide[0] = batch_wide(N, 1, 0, 1);
    wide[1 + LAST / 64] = UINT64_C(1) << LAST % 64;
    batch.first_output = batch.first_sequence = NEXT;
    batch.n_heads = 1;
    batch.heads = &head;
    batch.n_inputs = N;
    batch.inputs = inputs;
    batch.n_ints = 1;
    batch.ints = &axis;
    batch.n_wide = sizeof wide / sizeof *wide;
    batch.wide = wide;
    wire_send(wire, FRAME_BATCH, &batch, NULL, 0);
}

static void many_frees_of_nothing(struct wire *wire) {
    enum { N = 50000 };
    uint64_t *heads = malloc(N * sizeof *heads), *inputs = malloc(N * sizeof *inputs);
    for (int i = 0; i < N; i++) {
        heads[i] = HEAD(OP_FREE, 1, 0, 0, 0);
        inputs[i] = 999;
    }
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    batch.first_output = batch.first_sequence = NEXT;
    batch.n_heads = batch.n_inputs = N;
    batch.heads = heads;
    batch.inputs = inputs;
    wire_send(wire, FRAME_BATCH, &batch, NULL, 0);
    free(heads);
    free(inputs);
}

/* ---- ids over several operations ---- */

static void full(struct wire *wire, uint64_t output, uint64_t sequence) {
    wire_full(wire, output, sequence, 4, 5);
}
static void add(struct wire *wire, uint64_t output, uint64_t sequence, uint64_t a, uint64_t b) {
    wire_op(wire, &(struct wire_op){.opcode = OP_ADD, .output = output, .sequence = sequence, WIRE_INPUTS(a, b)});
}
static void release(struct wire *wire, uint64_t sequence, uint64_t id) {
    wire_op(wire, &(struct wire_op){.opcode = OP_FREE, .output = NEXT, .sequence = sequence, WIRE_INPUTS(id)});
}

static void output_id_zero(struct wire *wire) {
    full(wire, 0, NEXT);
}
static void output_id_used_before(struct wire *wire) {
    full(wire, KEPT, NEXT);
}
static void output_id_decreases(struct wire *wire) {
    full(wire, 100, NEXT);
    full(wire, 50, NEXT + 1);
}
static void output_id_freed_and_used_again(struct wire *wire) {
    release(wire, NEXT, SPARE);
    full(wire, SPARE, NEXT + 1);
}
static void use_after_free(struct wire *wire) {
    release(wire, NEXT, SPARE);
    add(wire, NEXT, NEXT + 1, SPARE, KEPT);
}
static void double_free(struct wire *wire) {
    release(wire, NEXT, SPARE);
    release(wire, NEXT + 1, SPARE);
}
static void use_after_consume(struct wire *wire) {
    wire_op(wire, &(struct wire_op){
                      .opcode = OP_ADD, .output = NEXT, .sequence = NEXT, WIRE_INPUTS(SPARE, KEPT), .consume = 1});
    add(wire, NEXT + 1, NEXT + 1, SPARE, KEPT);
}
static void two_operations_in_a_circle(struct wire *wire) {
    uint64_t heads[2] = {ADD, ADD}, inputs[4] = {NEXT + 1, KEPT, NEXT, KEPT};
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    batch.first_output = batch.first_sequence = NEXT;
    batch.n_heads = 2;
    batch.heads = heads;
    batch.n_inputs = 4;
    batch.inputs = inputs;
    wire_send(wire, FRAME_BATCH, &batch, NULL, 0);
}
static void fetch_of_a_foreign_id(struct wire *wire) {
    (void)wire;
}
static void view_outlives_its_base(struct wire *wire) {
    wire_op(wire, &(struct wire_op){
                      .opcode = OP_RESHAPE, .output = NEXT, .sequence = NEXT, WIRE_INPUTS(SPARE), WIRE_INTS(2, 2)});
    release(wire, NEXT + 1, SPARE);
    add(wire, NEXT + 1, NEXT + 2, NEXT, NEXT);
}

/* ---- labels ---- */

static void labelled(struct wire *wire, const char *label) {
    wire_op(wire, &(struct wire_op){
                      .opcode = OP_ADD, .output = NEXT, .sequence = NEXT, WIRE_INPUTS(KEPT, 999), .label = label});
}
static void label_of_129_bytes(struct wire *wire) {
    char label[130];
    memset(label, 'l', sizeof label);
    label[129] = 0;
    labelled(wire, label);
}
static void label_of_half_a_mebibyte(struct wire *wire) {
    char *label = calloc((512 << 10) + 1, 1);
    memset(label, 'l', 512 << 10);
    labelled(wire, label);
    free(label);
}
static void label_that_is_no_text(struct wire *wire) {
    labelled(wire, "\xff\xfe\x1b]0;x\x07\n\"=");
}
/* A batch of one labelled add, its label "a\0b", packed by hand. */
static void label_with_nul(struct wire *wire) {
    uint8_t message[] = {0x09, NEXT, 0, 0,      0,    0, 0, 0, 0, 0x11, NEXT, 0,    0,    0,    0,   0, 0,
                         0,    0x22, 8, OP_ADD, 0,    2, 0, 0, 1, 0,    0,    0x2a, 16,   KEPT, 0,   0, 0,
                         0,    0,    0, 0,      KEPT, 0, 0, 0, 0, 0,    0,    0,    0x42, 3,    'a', 0, 'b'};
    wire_header(wire, &(struct frame_header){.type = FRAME_BATCH, .message_bytes = sizeof message});
    wire_write(wire, message, sizeof message);
}

/* ---- streams ---- */

static void stream_open(struct wire *wire, uint32_t number, int32_t priority) {
    Tensord__StreamOpen open = TENSORD__STREAM_OPEN__INIT;
    open.stream = number;
    open.priority = priority;
    wire_send(wire, FRAME_STREAM_OPEN, &open, NULL, 0);
}
static void stream_close(struct wire *wire, uint32_t number) {
    Tensord__StreamClose close = TENSORD__STREAM_CLOSE__INIT;
    close.stream = number;
    wire_send(wire, FRAME_STREAM_CLOSE, &close, NULL, 0);
}
static void stream_zero_opened(struct wire *wire) {
    stream_open(wire, 0, 0);
}
static void stream_number_too_large(struct wire *wire) {
    stream_open(wire, UINT32_MAX, 0);
}
static void stream_opened_twice(struct wire *wire) {
    stream_open(wire, 5, 0);
    stream_open(wire, 5, 1);
}
static void stream_of_extreme_priority(struct wire *wire) {
    stream_open(wire, 5, INT32_MIN);
    stream_open(wire, 6, INT32_MAX);
}
static void stream_zero_closed(struct wire *wire) {
    stream_close(wire, 0);
}
static void unknown_stream_closed(struct wire *wire) {
    stream_close(wire, 9);
}
static void stream_used_after_its_close(struct wire *wire) {
    stream_open(wire, 5, 0);
    stream_close(wire, 5);
    wire_op(wire, &(struct wire_op){
                      .opcode = OP_ADD, .output = NEXT, .sequence = NEXT, .stream = 5, WIRE_INPUTS(KEPT, KEPT)});
}
static void ten_thousand_streams(struct wire *wire) {
    for (uint32_t i = 1; i <= 10000; i++)
        stream_open(wire, i, 0);
}

static void wait_of_an_unknown_id(struct wire *wire) {
    Tensord__Wait wait = TENSORD__WAIT__INIT;
    struct wire_frame frame;
    wait.id = 999;
    cr_assert(wire_request(wire, FRAME_WAIT, &wait));
    cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_DONE);
    Tensord__Done *done = tensord__done__unpack(NULL, frame.header.message_bytes, frame.message);
    cr_assert(done && done->error);
    cr_assert_eq(done->error->code, STATUS_UNKNOWN_ID);
    tensord__done__free_unpacked(done, NULL);
    wire_frame_finish(&frame);
}

#define ROW(act, outcome, code, id)                                                                                    \
    { #act, HOSTILE_SESSION, act, HOSTILE_##outcome, code, id, NULL }
static const struct hostile_row rows[] = {
    ROW(inputs_missing, CLOSES, STATUS_PROTOCOL, 0),
    ROW(one_input_missing, CLOSES, STATUS_PROTOCOL, 0),
    ROW(inputs_left_over, CLOSES, STATUS_PROTOCOL, 0),
    ROW(ints_missing, CLOSES, STATUS_PROTOCOL, 0),
    ROW(ints_left_over, CLOSES, STATUS_PROTOCOL, 0),
    ROW(floats_missing, CLOSES, STATUS_PROTOCOL, 0),
    ROW(floats_left_over, CLOSES, STATUS_PROTOCOL, 0),
    ROW(label_missing, CLOSES, STATUS_PROTOCOL, 0),
    ROW(label_left_over, CLOSES, STATUS_PROTOCOL, 0),
    ROW(labels_without_operations, CLOSES, STATUS_PROTOCOL, 0),
    ROW(inputs_without_operations, CLOSES, STATUS_PROTOCOL, 0),
    ROW(counts_of_255, CLOSES, STATUS_PROTOCOL, 0),
    ROW(no_operations, EITHER, 0, 0),
    ROW(wide_missing, CLOSES, STATUS_PROTOCOL, 0),
    ROW(wide_left_over, CLOSES, STATUS_PROTOCOL, 0),
    ROW(wide_of_few, LIVES, 0, 0),
    ROW(wide_consume_missing, CLOSES, STATUS_PROTOCOL, 0),
    ROW(wide_inputs_missing, CLOSES, STATUS_PROTOCOL, 0),
    ROW(wide_unknown_bits, CLOSES, STATUS_PROTOCOL, 0),
    ROW(wide_too_many, CLOSES, STATUS_PROTOCOL, 0),
    ROW(wide_too_many_outputs, CLOSES, STATUS_PROTOCOL, 0),
    ROW(wide_outputs_of_a_concat, FAILS, STATUS_INVALID_ARGUMENT, NEXT),
    ROW(wide_ints_of_an_add, FAILS, STATUS_INVALID_ARGUMENT, NEXT),
    ROW(many_inputs_consumed, FAILS, STATUS_UNKNOWN_ID, SPARE),
    ROW(head_of_all_ones, CLOSES, STATUS_PROTOCOL, 0),
    ROW(ids_that_wrap_around, EITHER, 0, 0),
    ROW(largest_sequence, EITHER, 0, 0),
    ROW(sequence_from_the_past, EITHER, 0, 0),
    ROW(sequence_with_a_gap, EITHER, 0, 0),
    ROW(many_frees_of_nothing, LIVES, 0, 0),
    ROW(output_id_zero, FAILS, STATUS_UNKNOWN_ID, 0),
    ROW(output_id_used_before, LIVES, 0, 0),
    ROW(output_id_decreases, FAILS, STATUS_UNKNOWN_ID, 50),
    ROW(output_id_freed_and_used_again, FAILS, STATUS_UNKNOWN_ID, SPARE),
    ROW(use_after_free, FAILS, STATUS_UNKNOWN_ID, NEXT),
    ROW(double_free, FAILS, STATUS_UNKNOWN_ID, SPARE),
    ROW(use_after_consume, FAILS, STATUS_UNKNOWN_ID, NEXT + 1),
    ROW(two_operations_in_a_circle, FAILS, STATUS_UNKNOWN_ID, NEXT + 1),
    ROW(fetch_of_a_foreign_id, FAILS, STATUS_UNKNOWN_ID, HOSTILE_FOREIGN),
    ROW(view_outlives_its_base, LIVES, 0, 0),
    ROW(label_of_129_bytes, EITHER, 0, 0),
    ROW(label_of_half_a_mebibyte, EITHER, 0, 0),
    ROW(label_that_is_no_text, EITHER, 0, 0),
    ROW(label_with_nul, EITHER, 0, 0),
    ROW(stream_zero_opened, EITHER, 0, 0),
    ROW(stream_number_too_large, EITHER, 0, 0),
    ROW(stream_opened_twice, EITHER, 0, 0),
    ROW(stream_of_extreme_priority, LIVES, 0, 0),
    ROW(stream_zero_closed, EITHER, 0, 0),
    ROW(unknown_stream_closed, EITHER, 0, 0),
    ROW(stream_used_after_its_close, FAILS, 0, NEXT),
    ROW(ten_thousand_streams, EITHER, 0, 0),
    ROW(wait_of_an_unknown_id, LIVES, 0, 0),
};

Test(malformed_batches, every_row) {
    hostile_run(rows, sizeof rows / sizeof *rows, NULL);
}
