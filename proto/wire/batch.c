#include "proto/wire/batch.h"

#include <inttypes.h>
#include <string.h>

void batch_cursor_init(struct batch_cursor *cursor, const Tensord__Batch *batch) {
    static const uint64_t no_inputs[1];
    static const int64_t no_ints[1];
    static const double no_floats[1];
    *cursor = (struct batch_cursor){
        .batch = batch,
        .inputs = batch->inputs ? batch->inputs : no_inputs,
        .ints = batch->ints ? batch->ints : no_ints,
        .floats = batch->floats ? batch->floats : no_floats,
    };
}

bool batch_cursor_follow(struct batch_cursor *cursor, const Tensord__Batch *batch) {
    struct batch_cursor before = *cursor;
    batch_cursor_init(cursor, batch);
    cursor->op = before.op;
    cursor->input = before.input;
    cursor->integer = before.integer;
    cursor->floating = before.floating;
    cursor->label = before.label;
    cursor->wide = before.wide;
    return cursor->op <= batch->n_heads && cursor->input <= batch->n_inputs && cursor->integer <= batch->n_ints &&
           cursor->floating <= batch->n_floats && cursor->label <= batch->n_labels && cursor->wide <= batch->n_wide;
}

static int overrun(const char *column, size_t op, size_t wanted, size_t left, struct fault *fault) {
    fault_set(fault, STATUS_PROTOCOL, "operation %zu of the batch owns %zu %s, %zu are left", op, wanted, column, left);
    return -1;
}

/* Says which column is too short for this operation. */
static int explain_overrun(const struct batch_cursor *cursor, const struct op_request *op, struct fault *fault) {
    const Tensord__Batch *batch = cursor->batch;
    if (op->n_inputs > batch->n_inputs - cursor->input) {
        return overrun("inputs", cursor->op, op->n_inputs, batch->n_inputs - cursor->input, fault);
    }
    if (op->n_ints > batch->n_ints - cursor->integer) {
        return overrun("ints", cursor->op, op->n_ints, batch->n_ints - cursor->integer, fault);
    }
    return overrun("floats", cursor->op, op->n_floats, batch->n_floats - cursor->floating, fault);
}

static int finish(const struct batch_cursor *cursor, struct fault *fault) {
    const Tensord__Batch *batch = cursor->batch;
    size_t inputs = batch->n_inputs - cursor->input, ints = batch->n_ints - cursor->integer;
    size_t floats = batch->n_floats - cursor->floating, labels = batch->n_labels - cursor->label;
    size_t wide = batch->n_wide - cursor->wide;
    if (inputs | ints | floats | labels | wide) {
        fault_set(fault, STATUS_PROTOCOL,
                  "%zu inputs, %zu ints, %zu floats, %zu labels and %zu wide of the batch belong to no operation",
                  inputs, ints, floats, labels, wide);
        return -1;
    }
    return 0;
}

static int take_label(struct batch_cursor *cursor, struct op_request *op, struct fault *fault) {
    const Tensord__Batch *batch = cursor->batch;
    if (cursor->label >= batch->n_labels) {
        return overrun("labels", cursor->op, 1, 0, fault);
    }
    op->label = batch->labels[cursor->label];
    if (strnlen(op->label, BATCH_LABEL_MAX + 1) > BATCH_LABEL_MAX) {
        fault_set(fault, STATUS_PROTOCOL, "the label of operation %zu of the batch has more than %d bytes", cursor->op,
                  BATCH_LABEL_MAX);
        return -1;
    }
    cursor->label++;
    return 1;
}

static int check_wide(const struct batch_cursor *cursor, const struct op_request *op, uint64_t counts,
                      struct fault *fault) {
    if (counts >> 48) {
        fault_set(fault, STATUS_PROTOCOL, "operation %zu of the batch has unknown bits in its wide head: 0x%" PRIx64,
                  cursor->op, counts);
        return -1;
    }
    if (op->n_inputs > OP_INPUTS_MAX || op->n_ints > OP_INTS_MAX || op->n_floats > OP_FLOATS_MAX ||
        op->further >= OP_OUTPUTS_MAX) {
        fault_set(fault, STATUS_PROTOCOL,
                  "operation %zu of the batch has %u inputs, %u ints, %u floats and %u outputs; at most %d, %d, %d and "
                  "%d are possible",
                  cursor->op, op->n_inputs, op->n_ints, op->n_floats, op->further + 1, OP_INPUTS_MAX, OP_INTS_MAX,
                  OP_FLOATS_MAX, OP_OUTPUTS_MAX);
        return -1;
    }
    return 0;
}

/* Reads the entries of `wide`, which have what does not fit the head. */
static __attribute__((noinline)) int take_wide(struct batch_cursor *cursor, struct op_request *op,
                                               struct fault *fault) {
    size_t left = cursor->batch->n_wide - cursor->wide;
    if (!left) {
        return overrun("wide", cursor->op, 1, 0, fault);
    }
    const uint64_t *wide = cursor->batch->wide + cursor->wide;
    op->n_inputs |= (unsigned)(*wide & 0xfff) << 8;
    op->n_ints |= (unsigned)(*wide >> 12 & 0xfff) << 8;
    op->n_floats |= (unsigned)(*wide >> 24 & 0xfff) << 8;
    op->further += (unsigned)(*wide >> 36 & 0xfff) * BATCH_OUTPUTS_MAX;
    unsigned entries = batch_wide_entries(op->n_inputs);
    if (check_wide(cursor, op, *wide, fault) < 0) {
        return -1;
    }
    if (entries > left) {
        return overrun("wide", cursor->op, entries, left, fault);
    }
    unsigned last = entries > 1 ? (op->n_inputs - BATCH_CONSUME_MAX) % 64 : 0;
    if (last && wide[entries - 1] >> last) {
        fault_set(fault, STATUS_PROTOCOL, "operation %zu of the batch consumes inputs after its %u", cursor->op,
                  op->n_inputs);
        return -1;
    }
    op->consume_more = entries > 1 ? wide + 1 : NULL;
    cursor->wide += entries;
    return 0;
}

int batch_cursor_read(struct batch_cursor *cursor, struct op_request *op, struct fault *fault) {
    const Tensord__Batch *batch = cursor->batch;
    if (cursor->op >= batch->n_heads) {
        return finish(cursor, fault);
    }
    uint64_t head = batch->heads[cursor->op];
    unsigned n_inputs = (unsigned)(head >> 16 & 0xff);
    unsigned flags = (unsigned)(head >> 40 & 3);
    op->opcode = (unsigned)(head & 0xffff);
    op->n_inputs = n_inputs;
    op->further = (unsigned)(head >> 42 & 0x3f);
    op->n_ints = (unsigned)(head >> 24 & 0xff);
    op->n_floats = (unsigned)(head >> 32 & 0xff);
    op->consume = (uint16_t)(head >> 48);
    op->consume_more = NULL;
    op->label = NULL;
    if (flags & BATCH_FLAG_WIDE && take_wide(cursor, op, fault) < 0) {
        return -1;
    }
    if (op->n_inputs > batch->n_inputs - cursor->input || op->n_ints > batch->n_ints - cursor->integer ||
        op->n_floats > batch->n_floats - cursor->floating) {
        return explain_overrun(cursor, op, fault);
    }
    if (op->n_inputs < BATCH_CONSUME_MAX && op->consume >> op->n_inputs) {
        fault_set(fault, STATUS_PROTOCOL, "operation %zu of the batch consumes 0x%x of %u inputs", cursor->op,
                  op->consume, op->n_inputs);
        return -1;
    }
    if (flags & BATCH_FLAG_LABEL && take_label(cursor, op, fault) < 0) {
        return -1;
    }
    op->inputs = cursor->inputs + cursor->input;
    op->ints = cursor->ints + cursor->integer;
    op->floats = cursor->floats + cursor->floating;
    cursor->input += op->n_inputs;
    cursor->integer += op->n_ints;
    cursor->floating += op->n_floats;
    cursor->op++;
    return 1;
}
