/* The columns of a batch: making and reading them. `message Batch` in tensord.proto describes their form. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/ops/op.h"
#include "proto/wire/frame.h"
#include "proto/wire/tensord.pb-c.h"

enum {
    BATCH_FLAG_LABEL = 1,
    BATCH_FLAG_WIDE = 2,
    BATCH_COUNT_MAX = 255,  /* the largest count for which a head has room */
    BATCH_CONSUME_MAX = 16, /* inputs in a head's consume mask */
    BATCH_OUTPUTS_MAX = 64, /* outputs for which a head has room */
    BATCH_LABEL_MAX = 128,
};

/* Of an operation with one output, or none; batch_head_outputs() says that there are more. Of larger counts only the low bits: the
 * others are in batch_wide(). */
static inline uint64_t batch_head(unsigned opcode, unsigned inputs, unsigned ints, unsigned floats, unsigned flags,
                                  uint16_t consume) {
    return (uint64_t)opcode | (uint64_t)(inputs & 0xff) << 16 | (uint64_t)(ints & 0xff) << 24 |
           (uint64_t)(floats & 0xff) << 32 | (uint64_t)flags << 40 | (uint64_t)consume << 48;
}

static inline uint64_t batch_head_outputs(unsigned outputs) {
    return outputs > 1 ? (uint64_t)((outputs - 1) & (BATCH_OUTPUTS_MAX - 1)) << 42 : 0;
}

/* The first entry in `wide` of a wide operation, and the number of its entries. */
static inline uint64_t batch_wide(unsigned inputs, unsigned ints, unsigned floats, unsigned outputs) {
    uint64_t further = outputs > 1 ? outputs - 1 : 0;
    return (uint64_t)(inputs >> 8) | (uint64_t)(ints >> 8) << 12 | (uint64_t)(floats >> 8) << 24 |
           further / BATCH_OUTPUTS_MAX << 36;
}
static inline unsigned batch_wide_entries(unsigned inputs) {
    return 1 + (inputs > BATCH_CONSUME_MAX ? (inputs - BATCH_CONSUME_MAX + 63) / 64 : 0);
}

/* The bits of a head for attributes and flags. */
#define BATCH_HEAD_MORE (UINT64_C(0x3ffff) << 24)

/* Reads the operations of an unpacked message, one after the other. */
struct batch_cursor {
    const Tensord__Batch *batch;
    /* The columns; never NULL, because an empty column needs an address, too. */
    const uint64_t *inputs;
    const int64_t *ints;
    const double *floats;
    size_t op, input, integer, floating, label, wide; /* the next entry of each column */
};
void batch_cursor_init(struct batch_cursor *cursor, const Tensord__Batch *batch);
/* The cursor goes on in `batch`, which is the same message, perhaps unpacked again. False: there is less in it than has been read. */
bool batch_cursor_follow(struct batch_cursor *cursor, const Tensord__Batch *batch);
/* Private: as batch_cursor_next(), for any operation. */
int batch_cursor_read(struct batch_cursor *cursor, struct op_request *op, struct fault *fault);
/* 1: *op is the next operation, which points into the columns; the caller sets its stream, output, sequence and rights. 0: the end,
 * and every column is used up. -1: the batch is malformed, and `fault` says how: columns are too short or too long, an operation
 * consumes an input that it does not have, a count is above OP_INPUTS_MAX or its like, or a label is above BATCH_LABEL_MAX. */
static inline int batch_cursor_next(struct batch_cursor *cursor, struct op_request *op, struct fault *fault) {
    const Tensord__Batch *batch = cursor->batch;
    if (cursor->op >= batch->n_heads)
        return batch_cursor_read(cursor, op, fault);
    uint64_t head = batch->heads[cursor->op];
    unsigned n_inputs = (unsigned)(head >> 16 & 0xff);
    uint64_t consume = head >> 48;
    if (__builtin_expect((head & BATCH_HEAD_MORE) != 0, 0) ||
        __builtin_expect(n_inputs > batch->n_inputs - cursor->input, 0) ||
        (consume && n_inputs < BATCH_CONSUME_MAX && consume >> n_inputs))
        return batch_cursor_read(cursor, op, fault);
    op->opcode = (unsigned)(head & 0xffff);
    op->n_inputs = n_inputs;
    op->ints = cursor->ints;
    op->floats = cursor->floats;
    op->n_ints = op->n_floats = 0;
    op->further = (unsigned)(head >> 42 & (BATCH_OUTPUTS_MAX - 1));
    op->consume = (uint16_t)consume;
    op->consume_more = NULL;
    op->inputs = cursor->inputs + cursor->input;
    op->label = NULL;
    cursor->input += n_inputs;
    cursor->op++;
    return 1;
}

/* Prints any message in readable form, in one line, for TENSORD_DEBUG=wire. `arrow` is "->" or "<-". A batch takes one line more
 * for each operation: "  #12 %7 = add(%5, %6) free %5  [forward/logits]". */
void wire_print(FILE *out, const char *arrow, const struct frame_header *header, const uint8_t *message);
/* An operation as this line has it, with its attributes by name: "sum(%5; axes=[0], keep=1)". */
void wire_print_call(FILE *out, const struct op_request *op);
/* A text from elsewhere, so that it can neither control a terminal nor end the line. */
void wire_print_text(FILE *out, const char *text);
