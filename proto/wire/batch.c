#include "proto/wire/batch.h"

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

static int overrun(const char *column, size_t op, size_t wanted, size_t left, struct fault *fault) {
    fault_set(fault, STATUS_PROTOCOL, "operation %zu of the batch owns %zu %s, %zu are left", op, wanted, column, left);
    return -1;
}

/* Which column is too short for this operation. */
static int explain_overrun(const struct batch_cursor *cursor, const struct batch_op *op, struct fault *fault) {
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
    if (inputs | ints | floats | labels) {
        fault_set(fault, STATUS_PROTOCOL,
                  "%zu inputs, %zu ints, %zu floats and %zu labels of the batch belong to no operation", inputs, ints,
                  floats, labels);
        return -1;
    }
    return 0;
}

static int take_label(struct batch_cursor *cursor, struct batch_op *op, struct fault *fault) {
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

int batch_cursor_next(struct batch_cursor *cursor, struct batch_op *op, struct fault *fault) {
    const Tensord__Batch *batch = cursor->batch;
    if (cursor->op >= batch->n_heads) {
        return finish(cursor, fault);
    }
    uint64_t head = batch->heads[cursor->op];
    unsigned flags = (unsigned)(head >> 40 & 3);
    op->opcode = (unsigned)(head & 0xffff);
    op->n_inputs = (unsigned)(head >> 16 & 0xff);
    op->n_outputs = op->opcode == OP_FREE ? 0 : 1 + (unsigned)(head >> 42 & 0x3f);
    op->n_ints = (unsigned)(head >> 24 & 0xff);
    op->n_floats = (unsigned)(head >> 32 & 0xff);
    op->consume = (uint16_t)(head >> 48);
    op->label = NULL;
    if (op->n_inputs > batch->n_inputs - cursor->input || op->n_ints > batch->n_ints - cursor->integer ||
        op->n_floats > batch->n_floats - cursor->floating) {
        return explain_overrun(cursor, op, fault);
    }
    if (flags & ~(unsigned)BATCH_FLAG_LABEL || (op->n_inputs < BATCH_CONSUME_MAX && op->consume >> op->n_inputs)) {
        fault_set(fault, STATUS_PROTOCOL, "operation %zu of the batch has flags 0x%x and consumes 0x%x of %u inputs",
                  cursor->op, flags, op->consume, op->n_inputs);
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
