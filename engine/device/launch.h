/* A launch: one kernel call, ready to run. The engine builds it on the owner thread, in a stream's queue; the submitter hands it to the
 * backend. It has raw addresses, which stay valid since memory is stream-ordered: a block that is freed is free only for later work
 * of the stream.
 *
 * Launches have normal forms, so that kernels stay simple. Nothing empty is launched: every operand has at least one element. Only
 * reductions may have an empty input, and then the result is the neutral element (the shape rule refuses max, min, argmax and
 * argmin of nothing); and so may gradients that are sums over a batch. The further rules stand at each family's name in enum op_family (proto/ops/operations.h, generated from the
 * descriptions).
 *
 * dtypes: inputs as op_operand_dtype() says, output as op_infer() says. The operands of a product have one dtype, or a and b have f8 of
 * either format and the output f32. If the device converts an operation's inputs as it reads them (op_kernel.converts), they come
 * unconverted, and operand.as is the dtype that op_operand_dtype() says. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/ops/op.h"

/* Kernels in C++ see a plain word, which they write with atomics of their own. */
#ifdef __cplusplus
typedef uint32_t report_code;
#else
#include <stdatomic.h>
typedef _Atomic uint32_t report_code;
#endif

/* The longest name of an operation, and the longest label from a client, in records and failures. */
enum { OPERATION_NAME_MAX = 31, OPERATION_LABEL_MAX = 128 };

struct operand {
    void *data;             /* first element, offset applied */
    const int64_t *shape;   /* [rank] */
    const int64_t *strides; /* [rank], in elements; may be 0 or negative */
    uint8_t dtype;          /* enum dtype: of the elements in memory */
    uint8_t as;             /* of an input: the dtype on which the kernel computes */
    uint8_t rank;
};

/* Here a kernel reports wrong data. The first report stays; the owner reads it when the stream has passed this launch. */
struct report {
    report_code code; /* enum status; STATUS_OK: nothing is wrong */
    /* OUT_OF_RANGE: the index that is wrong, LIMIT: milliseconds, SINGULAR: a matrix's number times `limit`, and its row */
    int64_t value;
    int64_t position; /* position of that index, counted row-major in the index tensor */
    int64_t limit;    /* the extent below which the index should be; rows of a matrix */
};

struct launch {
    uint16_t opcode;
    uint16_t factor; /* the estimate of its time was multiplied by this, in 256ths */
    uint8_t n_inputs;
    uint8_t further; /* outputs after the first */
    bool tf32;       /* MATMUL, LINEAR and convolutions of f32: inputs may be rounded to TF32 */
    bool scarce;     /* there was no memory for more workspace than the least */
    /* Not NULL for OP_FAMILY_TAKE, OP_FAMILY_SCATTER, OP_FAMILY_DECOMPOSE and OP_FAMILY_LOSS, and for launches that may be stopped because
     * they take too long. */
    struct report *report;
    struct op_attributes attributes; /* those that the kernel needs, for NAME_attributes_read() */
    void *workspace; /* as many bytes as op_kernel.workspace says, of any content, aligned to 64; NULL: none */
    struct operand output;
    struct operand inputs[]; /* [n_inputs], at most 12; then the outputs after the first */
};

/* A small elementwise operation, cast excepted, on contiguous operands of its own dtypes: what a launch is for most of them, in
 * short. Many small operations come one after another, and then a launch costs more than what it computes. */
enum { FLAT_ELEMENTS_MAX = 1024 };
struct flat_launch {
    uint16_t opcode;
    uint8_t n_inputs;
    uint8_t dtype; /* of the last input: by which kernels are looked up */
    uint32_t elements;
    void *data[4];     /* output, inputs */
    uint64_t sequence; /* number of the operation in its session */
};

/* Several operations as one pass over a matrix of rows and columns. Each is elementwise on all elements; or a reduction of each row to one element; or
 * elementwise on such elements, one for each row; or a softmax of each row. A device computes all of them for some columns of a row before it goes on to the next ones, or with
 * reductions or softmax among them (`whole_rows`) for one row after another, so that what they pass on stays in its caches or registers. Each operation sees the
 * results of those before it. An operand lies in memory, with every element at its place, the same in every row, or the same in every column; or in a slot,
 * which only operations of this launch use. What one operation writes, others read and write only at the same place.
 *
 * On some devices (device_vtable.fused_segments) operations on one row may also reduce all of its elements to one, in `segments`. No other operation reads their
 * results, and none writes their inputs behind them. What they read is in memory, or in one of the slots from FUSED_SLOTS_MAX on. */
enum {
    FUSED_OPERATIONS_MAX = 64,
    FUSED_ROW_MAX = 1 << 16, /* columns of rows that are computed as a whole, at most */
    FUSED_SLOTS_MAX = 8,
    FUSED_SLOT_ELEMENT = 8,      /* bytes, at most */
    FUSED_SLOTS_BYTES = 1 << 17, /* of all slots for whole rows, if each element takes FUSED_SLOT_ELEMENT */
    FUSED_WHOLE_MAX = 4,         /* operations that reduce all elements, */
    FUSED_WHOLE_SLOTS = 3,       /* and further slots, which those can read */
};
enum fused_rows { FUSED_SAME, FUSED_NEXT, FUSED_FLAT };
struct fused_operand {
    void *data;     /* of the first element; of no meaning in a slot */
    uint8_t row;    /* enum fused_rows, elements from a row to the next: 0, 1, as many as there are columns */
    uint8_t column; /* elements from a column to the next: 1 or 0 */
    bool in_slot;
    uint8_t slot;
    uint8_t dtype, as; /* as in struct operand */
};
struct fused_operation {
    const void *kernel; /* as the device's fused_kernel() said */
    uint16_t opcode;
    uint8_t n_inputs, n_floats;
    bool softmax : 1; /* or its logarithm */
    bool reduces : 1; /* the input's columns; else it has as many elements in a row as the output: columns, or one */
    bool whole : 1;   /* it reduces all elements, in segments */
    uint16_t note;    /* as the device's fused_ready() left it; else 0 */
    struct fused_operand output, inputs[3];
    double floats
        [2]; /* attributes; behind what every operation has, so that a long list of them takes fewer cache lines */
};
struct fused_launch {
    int64_t rows, columns;
    struct report *report; /* NULL, or as in struct launch */
    uint32_t n, n_slots;
    uint32_t segments; /* of operations that reduce all elements; 0: there are none */
    bool whole_rows;
    bool plain; /* one row, without slots, reductions and inputs that are converted */
    struct fused_operation operations[];
};

/* Output number i, from 1 on; the first one is launch->output. */
static inline const struct operand *launch_further(const struct launch *launch, unsigned i) {
    return &launch->inputs[launch->n_inputs + i - 1];
}

/* The dtype by which kernels are looked up, and estimates of their time corrected: that of the last input, or of the first output if
 * there is no input. */
static inline unsigned launch_dtype(const struct launch *launch) {
    return launch->n_inputs ? launch->inputs[launch->n_inputs - 1].dtype : launch->output.dtype;
}
